"""`target.codegen`: what scripts ask about the LLVM that makes the code.

In: nothing. Out: its version, and the triple and CPU of this machine as LLVM names them. Invariant: answers are of the
LLVM that kernels are compiled with (llvmlite's). What a CPU has: `target/cpu.py`; `Target.features`.
"""

from __future__ import annotations

from armillary.target.host import cpu_name, triple

__all__ = ["llvm_get_system_cpu", "llvm_get_system_triple", "llvm_version_major"]


def llvm_version_major(allow_none: bool = False) -> int:
    """The major version of LLVM; `allow_none` is for builds without it, which do not exist."""
    import llvmlite.binding  # LLVM takes 50 MB, and few ask

    return int(llvmlite.binding.llvm_version_info[0])


def llvm_get_system_triple() -> str:
    """LLVM's triple of this process."""
    return triple()


def llvm_get_system_cpu() -> str:
    """LLVM's name of this machine's CPU."""
    return cpu_name()
