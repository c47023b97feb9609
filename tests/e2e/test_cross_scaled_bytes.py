"""Sums of bytes in fixed point on AArch64: exact under qemu for every pair of bytes; the high half of products is kept.

In: `qnn.add`, `qnn.subtract` and `qnn.requantize` with scales and zero points of random quantised networks. Out: bytes
of the reference. The rule: codegen/llvm/narrowing.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any  # of arrays

import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, Tuple, const
from armillary.transform import PassContext

NEEDED = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
_LOOP = re.compile(r"^(\.LBB\d+_\d+):\n((?:\t.*\n)*?)\tb\.\w+\t\1\n", re.MULTILINE)

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _scale(value: float) -> Expr:
    return const(np.float32(value))


def _zero(value: int) -> Expr:
    return const(np.int32(value))


def _pair(rng: np.random.Generator, operator: str, a: Expr, b: Expr, dtype: str) -> Expr:
    """The operator with scales whose ratios lie between 1/20 and 3, and any zero points."""
    info = np.iinfo(dtype)
    scales = [_scale(s) for s in rng.uniform(0.05, 1, 3)]
    zeros = [_zero(z) for z in rng.integers(info.min, info.max, 3, endpoint=True)]
    found: Expr = getattr(relay.qnn, operator)(a, b, scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2])
    return found


def _cases(dtype: str) -> Function:
    """Sums, differences, one rescaled operand, limits inside those of the type, and rows that are no whole vectors."""
    rng = np.random.default_rng(17)
    a, b = (relay.var(name, shape=(256, 256), dtype=dtype) for name in "ab")
    found = [_pair(rng, "add", a, b, dtype) for _ in range(8)]
    found += [_pair(rng, "subtract", a, b, dtype) for _ in range(4)]
    found += [
        relay.qnn.requantize(a, _scale(s), _zero(3), _scale(0.31), _zero(z), out_dtype=out)
        for s, z, out in ((0.2, 7, "uint8"), (0.7, -9, "int8"), (0.31, 0, "uint8"))
    ]
    found.append(relay.clip(_pair(rng, "add", a, b, dtype), 20, 90))
    left, right = (relay.strided_slice(x, begin=(0, 0), end=(256, 29)) for x in (a, b))
    found.append(_pair(rng, "add", left, right, dtype))
    return Function([a, b], Tuple(found))


def _values(dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """Every pair of bytes."""
    every = np.arange(256).astype("uint8").view(dtype)
    return {"a": np.repeat(every, 256).reshape(256, 256), "b": np.tile(every, 256).reshape(256, 256)}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_pair_of_bytes_is_exact(dtype: str, cross_runner: Path, tmp_path: Path) -> None:
    function, values = _cases(dtype), _values(dtype)
    with PassContext(opt_level=3):
        library = relay.build(IRModule.from_expr(function), TARGET)
    library.export_library(tmp_path / "net.so")
    np.savez(tmp_path / "in.npz", a=values["a"], b=values["b"])
    command = ["timeout", "-s", "KILL", "120", *qemu_aarch64(), str(cross_runner), str(tmp_path / "net.so")]
    command += [f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}", "--run-count=1"]
    subprocess.run(command, check=True, capture_output=True, timeout=150)
    wanted = evaluate(function, list(values.values()))
    with np.load(tmp_path / "out.npz") as found:
        for number, want in enumerate(wanted):
            np.testing.assert_array_equal(found[f"output_{number}"], want, err_msg=str(number))
    assert library.get_source("asm").count("\taddhn\t") > 20


def test_a_sum_of_bytes_takes_two_instructions_an_element() -> None:
    """24.11 of Arm's library executes 2.16."""
    shape = (1, 56, 56, 64)
    a, b = (relay.var(name, shape=shape, dtype="uint8") for name in "ab")
    numbers = _scale(0.0213), _zero(3), _scale(0.0331), _zero(5), _scale(0.0507), _zero(4)
    with PassContext(opt_level=3):
        library = relay.build(IRModule.from_expr(relay.qnn.add(a, b, *numbers)), TARGET)
    loops = [body for _, body in _LOOP.findall(library.get_source("asm"))]
    counts = [body.count("\n") + 1 for body in loops if "addhn" in body]
    assert counts and max(counts) <= 2 * 16
