"""Loops to C11 source: `source` writes kernels, `expr` expressions, `codegen_c` what scripts of the era look at."""
