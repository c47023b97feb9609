"""Loops written as Python functions: `@te.hybrid.script`, over numpy arrays or over tensors.

In: a function whose body is a small part of Python: loops over `range`, `parallel`, `vectorize`, `unroll`,
`const_range`, `if`, assignments to elements, `output_tensor`, `allocate`. Out: called with tensors, the tensors that it
writes (`te.extern` of its statements); called with arrays, what Python computes. Invariant: what a script may not
contain is a TypeMismatch that names function and line. From Python to statements: `parser.py`; names
in scripts: `runtime.py`; scheduled programs as scripts again: `module.py`.
"""

from __future__ import annotations

from armillary.te.hybrid.module import HybridModule, build, script

__all__ = ["HybridModule", "build", "script"]
