"""Boards and phones by name: the targets people do not want to spell.

In: a model name and extra options. Out: a `Target`. Invariant: an unknown model gives the family's generic target with
`-model=<name>` (tuning logs need the name); a microcontroller is refused. The boards: `boards.py`; CPU facts: `cpu.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.boundary import boundary
from armillary.errors import TargetError
from armillary.target.boards import board_options
from armillary.target.target import Target


def _options(options: str | Sequence[str] | None) -> str:
    if options is None or isinstance(options, str):
        return options or ""
    if all(isinstance(option, str) for option in options):
        return " ".join(options)
    raise TargetError(f"options must be a string or a list of strings, got {options!r}")


@boundary("target.arm_cpu", arguments=True)
def arm_cpu(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """The CPU of a board or phone (rasp4b64, rk3399, pixel2, …: `boards.py`), through LLVM.

    A name that the table lacks is a label for tuning records: say the triple in `options` then.
    """
    board = board_options(model) or f"-model={model}"
    return Target(f"llvm -keys=arm_cpu,cpu -device=arm_cpu {board} {_options(options)}")


@boundary("target.mali", arguments=True)
def mali(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm Mali GPU through OpenCL."""
    return Target(f"opencl -device=mali -model={model} {_options(options)}")


@boundary("target.adreno", arguments=True)
def adreno(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """A Qualcomm Adreno GPU through OpenCL."""
    return Target(f"opencl -device=adreno -model={model} {_options(options)}")


@boundary("target.intel_graphics", arguments=True)
def intel_graphics(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Intel GPU through OpenCL."""
    return Target(f"opencl -device=intel_graphics -model={model} -thread_warp_size=16 {_options(options)}")


@boundary("target.cuda", arguments=True)
def cuda(model: str = "unknown", arch: str | None = None, options: str | Sequence[str] | None = None) -> Target:
    """A GPU by CUDA: a name for scripts, nothing generates code for it."""
    return Target(f"cuda -model={model} {f'-arch={arch}' if arch else ''} {_options(options)}")


@boundary("target.rocm", arguments=True)
def rocm(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """A GPU by ROCm: a name for scripts, nothing generates code for it."""
    return Target(f"rocm -model={model} {_options(options)}")


@boundary("target.hexagon", arguments=True)
def hexagon(cpu_ver: str = "v68", **options: object) -> Target:
    """A Hexagon processor: a name for scripts, nothing generates code for it."""
    del options
    return Target(f"hexagon -mcpu=hexagon{cpu_ver}")
