"""Outputs larger than every cache are written past the caches, wherever a caller puts them; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import compiled, run

from armillary import te
from armillary.target.cpu import CpuModel, cpu_model, outgrows_caches
from armillary.te.lower import lower_schedule
from armillary.tir.lower import lower_function
from armillary.tir.stmt import PrimFunc

LINE, SERVER = 16, "llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids"
LARGE, SMALL = 512 * 1024, 16 * 1024  # rows of a line: 32 MB, 1 MB


def program(rows: int, lanes: int = LINE, columns: int = LINE) -> PrimFunc:
    """Doubled rows."""
    x = te.placeholder((rows, columns), "float32", "x")
    y = te.compute((rows, columns), lambda i, j: x(i, j) * 2.0, name="y")
    schedule = te.create_schedule(y.op)
    row, column = schedule[y].op.axis
    _, inner = schedule[y].split(column, factor=lanes)
    schedule[y].vectorize(inner)
    schedule[y].parallel(row)
    return lower_function(lower_schedule(schedule, [x, y]))


def streams(function: PrimFunc, target: str) -> bool:
    """Whether there are stores past the caches, and the fence that they need."""
    text = compiled([function], target).get_source("asm")
    assert ("movnt" in text) == ("sfence" in text)
    return "movnt" in text


@pytest.mark.parametrize(
    ("rows", "lanes", "columns", "target", "expected"),
    [
        (LARGE, LINE, LINE, SERVER, True),
        (LARGE, LINE, LINE, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", True),  # a line is two vectors
        (SMALL, LINE, LINE, SERVER, False),
        (LARGE, LINE // 2, LINE, SERVER, False),  # half lines
        (LARGE, LINE, LINE + 1, SERVER, False),  # lines that begin anywhere
        (LARGE, LINE, LINE, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", False),
    ],
)
def test_only_whole_lines_of_large_outputs_go_past_the_caches(
    rows: int, lanes: int, columns: int, target: str, expected: bool
) -> None:
    assert streams(program(rows, lanes, columns), target) == expected


def test_an_output_that_is_read_again_stays_in_the_caches() -> None:
    x = te.placeholder((LARGE, LINE), "float32", "x")
    k = te.reduce_axis((0, 2), "k")
    y = te.compute((LARGE, LINE), lambda i, j: te.sum(x(i, j), axis=k), name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].reorder(k, *schedule[y].op.axis)
    schedule[y].vectorize(schedule[y].op.axis[1])
    assert not streams(lower_function(lower_schedule(schedule, [x, y])), SERVER)


def test_a_cpu_without_a_last_cache_has_none_to_go_past() -> None:
    model: CpuModel = cpu_model("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53")
    assert model.l3 == 0 and not outgrows_caches(1 << 40, model)


@pytest.mark.skipif(not cpu_model("llvm").has("avx2"), reason="runs code for Haswell")
@pytest.mark.parametrize("shift", [0, 1, 8, LINE])
def test_memory_that_is_not_aligned_gets_the_same_values(shift: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((LARGE, LINE)).astype(np.float32)
    room: np.ndarray[Any, Any] = np.zeros(LARGE * LINE + 2 * LINE, np.float32)
    first = -(room.ctypes.data // 4) % LINE + shift
    y = room[first : first + LARGE * LINE]
    assert run(program(LARGE), "llvm -mcpu=haswell", x, y) == 0
    assert (y.reshape(x.shape) == 2 * x).all()
    assert not room[:first].any() and not room[first + LARGE * LINE :].any()
