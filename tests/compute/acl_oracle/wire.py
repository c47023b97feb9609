"""The driver of Arm Compute Library 20.08 (`driver.cpp`): built with the cross compiler, run under qemu.

In: cases: a function's name, tensors with their bytes, parameters. Out: what the library gives for each: numbers, the
valid region of the last tensor, the bytes of all tensors. Invariant: cases of one process share nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from emulators import qemu_aarch64

Array = np.ndarray[Any, Any]
COMPILER = "aarch64-linux-gnu-g++"
HEADER = Path("/usr/include/aarch64-linux-gnu/arm_compute/runtime/NEON/NEFunctions.h")
LIBRARIES = ("-larm_compute", "-larm_compute_core", "-lpthread", "-ldl")
DTYPES = {"S16": "int16", "U16": "uint16", "S32": "int32", "U32": "uint32", "F32": "float32"}
CHANNELS = {"RGB888": (3,), "RGBA8888": (4,), "UV88": (2,), "YUYV422": (2,), "UYVY422": (2,)}


@dataclass
class Tensor:
    """What a tensor is: a format (or `t` and a data type; `n`: in NHWC), sizes (innermost first), a value a plane."""

    kind: str
    sizes: tuple[int, ...]
    planes: list[Array]
    scale: float = 0.0
    offset: int = 0
    scales: tuple[float, ...] = ()  # of QSYMM8_PER_CHANNEL


@dataclass
class Case:
    """One call: `ours` computes the same with `armillary.compute` (outputs, numbers, valid region)."""

    name: str
    tensors: list[Tensor]
    params: list[float]
    ours: Callable[[Case], Result]
    bound: float = 0.0  # how far reals may be apart, as a part of the largest; numbers an eighth of it on average
    share: float = 1.0  # of numbers that must agree, where iterations may end at one value or at another
    row: int = 0  # numbers of a detection, its score last; of two scores that agree to rounding either comes first
    outputs: tuple[int, ...] = (-1,)
    has_region: bool = True  # the library's own regions of colour images do not say what was computed
    step: int = 0  # how far whole numbers may differ, where the library's own order of operations decides
    side: str = "NE"  # or CL: which of this library's functions `ours` takes
    padding: int = 0  # 0, or a number by which tensors get padding (so strides) of their own


@dataclass
class Result:
    """What a call gives: numbers, the valid region (x, y, width, height), outputs."""

    numbers: list[float]
    region: tuple[int, ...]
    outputs: list[Array] = field(default_factory=list)


def shape_of(tensor: Tensor) -> list[tuple[int, ...]]:
    """The shapes of the planes, rows first."""
    if tensor.kind[0] in "tn":
        return [tuple(reversed(tensor.sizes))]
    width, height = tensor.sizes
    half = (height // 2, width // 2)
    planes = {"NV12": [(height, width), (*half, 2)], "IYUV": [(height, width), half, half]}
    planes |= {"NV21": planes["NV12"], "YUV444": [(height, width)] * 3}
    return planes.get(tensor.kind, [(height, width, *CHANNELS.get(tensor.kind, ()))])


def dtype_of(kind: str) -> str:
    """The type of a value."""
    named = {"F32": "float32", "QASYMM8_SIGNED": "int8", "QSYMM8_PER_CHANNEL": "int8", "S32": "int32", "F16": "float16"}
    return named.get(kind[1:]) or DTYPES.get(kind, "uint8")


def has_library() -> bool:
    """Whether compiler, emulator and library are there."""
    from shutil import which

    return which(COMPILER) is not None and which(qemu_aarch64()[0]) is not None and HEADER.exists()


def build(folder: Path) -> Path:
    """Compile the driver."""
    program = folder / "driver"
    source = Path(__file__).with_name("driver.cpp")
    subprocess.run([COMPILER, "-std=c++14", "-O1", "-w", "-o", program, source, *LIBRARIES], check=True)
    return program


def run(program: Path, cases: Sequence[Case]) -> list[Result]:
    """What the library gives."""
    asked = b"".join(_asked(case) for case in cases)
    done = subprocess.run([*qemu_aarch64(), str(program)], input=asked, capture_output=True)
    answer, found = done.stdout, []
    for number, case in enumerate(cases):
        line, _, answer = answer.partition(b"\n")
        if line.startswith(b"error") or not line:
            message = (line or done.stderr[-500:]).decode(errors="replace")
            raise RuntimeError(f"case {number}, {case.name} {[t.sizes for t in case.tensors]} {case.params}: {message}")
        count, *region = map(int, line.split())
        numbers = np.frombuffer(answer[: 8 * count], np.float64)
        answer = answer[8 * count :]
        tensors: list[list[Array]] = []
        for tensor in case.tensors:
            planes = []
            for shape in shape_of(tensor):
                values = np.frombuffer(answer, dtype_of(tensor.kind), int(np.prod(shape))).reshape(shape)
                answer = answer[values.nbytes :]
                planes.append(values)
            tensors.append(planes)
        outputs = [plane for at in case.outputs for plane in tensors[at]]
        found.append(Result(numbers.tolist(), tuple(region), outputs))
    return found


def _asked(case: Case) -> bytes:
    lines = [f"{case.name} {len(case.tensors)} {len(case.params)}"]
    for t in case.tensors:
        lines.append(
            f"{t.kind} {len(t.sizes)} {' '.join(map(str, t.sizes))} {t.scale!r} {t.offset} {len(t.scales)}"
            f" {' '.join(map(repr, t.scales))}"
        )
    lines.append(" ".join(repr(float(p)) for p in case.params))
    data = b"".join(np.ascontiguousarray(p).tobytes() for t in case.tensors for p in t.planes)
    return "\n".join(lines).encode() + b"\n" + data
