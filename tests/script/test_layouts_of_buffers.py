"""`tir.Schedule.transform_layout`: buffers between blocks lie otherwise; what is computed stays, or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError

RNG = np.random.default_rng(8)


def _two() -> tir.Schedule:
    a = te.placeholder((6, 10), name="a")
    b = te.compute((6, 10), lambda i, j: a[i, j] * 2, name="b")
    return tir.Schedule(te.create_prim_func([a, te.compute((6, 10), lambda i, j: b[i, 9 - j] + 1, name="c")]))


def _check(schedule: tir.Schedule) -> None:
    a, c = RNG.random((6, 10), dtype=np.float32), np.zeros((6, 10), np.float32)
    armillary.build(schedule.mod, target="llvm")(a, c)
    np.testing.assert_allclose(c, a[:, ::-1] * 2 + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("to", "shape"),
    [
        (lambda i, j: (j, i), [10, 6]),
        (lambda i, j: (j // 4, i, j % 4), [3, 6, 4]),  # two columns are nobody's
        (lambda i, j: (i * 10 + j,), [60]),
        (lambda i, j: (5 - i, j + 1), [6, 11]),
    ],
)
def test_elements_move_and_values_stay(to: Callable[..., Any], shape: list[int]) -> None:
    s = _two()
    s.transform_layout(s.get_block("c"), ("read", 0), to)
    written = s.get(s.get_block("b")).writes[0].buffer
    assert [n.value for n in written.shape] == shape
    assert written is s.get(s.get_block("c")).reads[0].buffer
    _check(s)
    s.parallel(s.get_loops(s.get_block("b"))[0])
    _check(s)


def test_what_is_no_layout_is_refused() -> None:
    s = _two()
    b, c = s.get_block("b"), s.get_block("c")
    with pytest.raises(ScheduleError, match="c is an argument of the function"):
        s.transform_layout(c, "c", lambda i, j: (j, i))
    with pytest.raises(ScheduleError, match="puts 60 elements in 6 places"):
        s.transform_layout(b, ("write", 0), lambda i, j: (i, i))
    with pytest.raises(ScheduleError, match="no integers from 0 on"):
        s.transform_layout(b, ("write", 0), lambda i, j: (i - 1, j))
    with pytest.raises(ScheduleError, match="takes no arrays of 2 indices"):
        s.transform_layout(b, ("write", 0), lambda i: (i,))
    with pytest.raises(ScheduleError, match="wanted a tuple of indices"):
        s.transform_layout(b, ("write", 0), lambda i, j: i * 10 + j)
    with pytest.raises(ScheduleError, match="has no buffer 'd'"):
        s.transform_layout(b, "d", lambda i, j: (j, i))
    with pytest.raises(ScheduleError, match="writes 1 buffers, there is no number 1"):
        s.transform_layout(b, ("write", 1), lambda i, j: (j, i))
    _check(s)


@pytest.mark.parametrize(("axis", "factor", "offset", "size"), [(0, 16, 0, 90), (-2, 8, 3, 65), (0, 1, 0, 60)])
def test_rows_have_gaps_behind_them(axis: int, factor: int, offset: int, size: int) -> None:
    s = _two()
    s.storage_align(s.get_block("b"), 0, axis, factor, offset)
    assert f"alloc b: Buffer[({size},), float32]" in str(armillary.lower(s.mod))
    _check(s)
    with pytest.raises(ScheduleError, match="an axis of 2, and 0 <= offset < factor"):
        s.storage_align(s.get_block("b"), 0, 2, factor, offset)
    with pytest.raises(ScheduleError, match="0 <= offset < factor"):
        s.storage_align(s.get_block("b"), 0, 1, 1, 1)
    with pytest.raises(ScheduleError, match="c is an argument of main"):
        s.storage_align(s.get_block("c"), 0, axis, factor, offset)
    s.transform_layout(s.get_block("b"), "b", lambda i, j: (j, i))
    _check(s)


def test_gaps_are_whole_rows_of_the_next_axis() -> None:
    a = te.placeholder((3, 5, 4), name="a")
    b = te.compute((3, 5, 4), lambda i, j, k: a[i, j, k] * 2, name="b")
    s = tir.Schedule(te.create_prim_func([a, te.compute((3, 5, 4), lambda i, j, k: b[i, j, k] + 1, name="c")]))
    with pytest.raises(ScheduleError, match="no step along axis 0 is a multiple of 8 and 2 more"):
        s.storage_align(s.get_block("b"), 0, 0, 8, 2)
    s.storage_align(s.get_block("b"), 0, 0, 16, 8)
    assert [n.value for n in s.get(s.get_block("b")).writes[0].buffer.strides] == [24, 4, 1]
    values, result = RNG.random((3, 5, 4), dtype=np.float32), np.zeros((3, 5, 4), np.float32)
    armillary.build(s.mod, target="llvm")(values, result)
    np.testing.assert_allclose(result, values * 2 + 1, rtol=1e-6)
