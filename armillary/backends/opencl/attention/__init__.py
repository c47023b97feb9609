"""Attention as three kernels: scores by the product kernel, their softmax by rows, and the mix of values."""
