"""The line between modules of LLVM IR in one text: a kernel's own, and those that define C functions it calls.

In: nothing. Out: a constant. Invariant: nothing is imported here, as compile workers read it. Who writes it:
`te/lower.py`; who reads it: `codegen/llvm/machine.py`.
"""

IMPORTS = "\n; imported module\n"
