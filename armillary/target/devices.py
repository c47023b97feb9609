"""Boards and phones by name: the targets people do not want to spell.

In: a model name and extra options. Out: a `Target`. Invariant: an unknown model gives the family's generic target with
`-model=<name>` (tuning logs need the name), never an error. Facts only; derived CPU facts are in `cpu.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import TargetError
from armillary.target.target import Target

_ANDROID64 = "-mtriple=arm64-linux-android"
_HARD_FLOAT = "-mtriple=armv7l-linux-gnueabihf"
_BOARDS: dict[str, str] = {
    "pixel2": f"-model=snapdragon835 {_ANDROID64} -mattr=+neon",
    **dict.fromkeys(("mate10", "mate10pro", "p20", "p20pro"), f"-model=kirin970 {_ANDROID64} -mattr=+neon"),
    "rasp3b": f"-model=bcm2837 {_HARD_FLOAT} -mattr=+neon",
    "rasp4b": "-model=bcm2711 -mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72",
    "rasp4b64": "-model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
    "rk3399": "-model=rk3399 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "pynq": "-model=pynq -mtriple=armv7a-linux-eabi -mattr=+neon",
    "ultra96": "-model=ultra96 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "beagleai": "-model=beagleai -mtriple=armv7a-linux-gnueabihf -mattr=+neon,+vfp4,+thumb2 -mcpu=cortex-a15",
    "stm32mp1": "-model=stm32mp1 -mtriple=armv7a-linux-gnueabihf -mattr=+neon,+vfp4,+thumb2 -mcpu=cortex-a7",
    "thunderx": "-model=thunderx -mtriple=aarch64-linux-gnu -mattr=+neon,+crc,+lse -mcpu=thunderxt88",
}


def _options(options: str | Sequence[str] | None) -> str:
    if options is None or isinstance(options, str):
        return options or ""
    if all(isinstance(option, str) for option in options):
        return " ".join(options)
    raise TargetError(f"options must be a string or a list of strings, got {options!r}")


def arm_cpu(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """The CPU of a board or phone (rasp4b64, rk3399, pixel2, …), through LLVM."""
    board = _BOARDS.get(model, f"-model={model}")
    return Target(f"llvm -keys=arm_cpu,cpu -device=arm_cpu {board} {_options(options)}")


def mali(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm Mali GPU through OpenCL."""
    return Target(f"opencl -device=mali -model={model} {_options(options)}")


def adreno(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """A Qualcomm Adreno GPU through OpenCL."""
    return Target(f"opencl -device=adreno -model={model} {_options(options)}")


def intel_graphics(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Intel GPU through OpenCL."""
    return Target(f"opencl -device=intel_graphics -model={model} -thread_warp_size=16 {_options(options)}")
