"""`contrib.cutlass`: names of scripts that let NVIDIA's CUTLASS multiply.

In: what such scripts pass. Out: an UnsupportedError. Invariant: nothing is compiled: CUTLASS makes CUDA kernels, and
there is no code for CUDA. The other half of these names is `relay/op/contrib/cutlass.py`.
"""

from __future__ import annotations

from typing import NoReturn

from armillary.relay.op.contrib.cutlass import refuse


def finalize_modules(lib: object, lib_path: str = "compile.so", tmp_dir: str = "./tmp") -> NoReturn:
    """Refused: there are no kernels of CUTLASS to link."""
    refuse("finalize_modules")


def finalize_modules_vm(vm_exec: object, lib_path: str = "compile.so", tmp_dir: str = "./tmp") -> NoReturn:
    """Refused: there are no kernels of CUTLASS to link."""
    refuse("finalize_modules_vm")


def num_cutlass_partitions(mod: object) -> int:
    """How many parts of a module are CUTLASS's: none."""
    return 0


def has_cutlass() -> bool:
    """Whether CUTLASS can be used: no."""
    return False
