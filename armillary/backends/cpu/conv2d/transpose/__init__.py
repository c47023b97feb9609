"""Transposed convolution in blocked layouts, a register tile per phase."""
