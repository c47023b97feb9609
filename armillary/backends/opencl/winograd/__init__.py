"""Winograd's convolution on GPUs: the operators and their schedule; `graph/winograd_conv2d.py` chooses it."""
