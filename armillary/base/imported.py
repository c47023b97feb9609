"""Marks in texts of LLVM IR that emitters write and compile workers read.

In: nothing. Out: the line between modules in one text, a kernel's own and those that define C functions it calls; the
note of loops in which LLVM may find vectors of SVE. Invariant: nothing is imported here, so that workers start fast.
Who writes them: `te/lower.py`, `codegen/llvm/emit.py`; who reads them: `codegen/llvm/machine.py`.
"""

IMPORTS = "\n; imported module\n"
SCALABLE = "llvm.loop.vectorize.scalable.enable"
