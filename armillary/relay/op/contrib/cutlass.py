"""`relay.op.contrib.cutlass`: the name by which scripts give products and convolutions to NVIDIA's CUTLASS.

In: a module. Out: an UnsupportedError. Invariant: no module is changed: there is no code for CUDA, and a module whose
parts wait for a library that never comes would not build.
"""

from __future__ import annotations

from typing import NoReturn

from armillary.errors import UnsupportedError

_HINT = 'leave this step out and build for "llvm", or for "opencl", which NVIDIA\'s devices run as well'


def refuse(name: str) -> NoReturn:
    """Say why a function of CUTLASS does nothing."""
    raise UnsupportedError(f"{name}: CUTLASS makes CUDA kernels, and code for CUDA is not there", hint=_HINT)


def partition_for_cutlass(mod: object, params: object = None) -> NoReturn:
    """Refused: no part of a module can be given to CUTLASS."""
    refuse("partition_for_cutlass")
