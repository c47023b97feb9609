"""Convolution with large kernels by Fourier transforms of tiles."""
