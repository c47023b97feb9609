"""Kernels whose loops are written here, not scheduled: elements of fused functions over buffers, and their parts."""
