"""Kernels to OpenCL C: `expr` writes scalar expressions, `source` statements, kernels and the whole program."""
