"""Convolution in the plain layout NCHW: vectors along the image."""
