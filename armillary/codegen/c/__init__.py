"""Loops to C11 source: `source` writes kernels, `expr` expressions, `packed` what scripts of the era look at."""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"codegen_c": "armillary.codegen.c.packed:codegen_c"})
