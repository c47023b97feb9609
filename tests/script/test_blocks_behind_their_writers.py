"""`tir.Schedule.reverse_compute_at`: a block runs in the loops of the one that writes what it reads, or is refused."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError

RNG = np.random.default_rng(6)


def _product() -> tir.Schedule:
    """d = (a @ b.T).T + e, in two blocks."""
    k = te.reduce_axis((0, 24), "k")
    a, b, e = (te.placeholder(s, name=n) for s, n in (((10, 24), "a"), ((16, 24), "b"), ((16,), "e")))
    c = te.compute((10, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")
    return tir.Schedule(te.create_prim_func([a, b, e, te.compute((16, 10), lambda i, j: c[j, i] + e[i], name="d")]))


def _check(schedule: tir.Schedule) -> None:
    a, b, e = (RNG.random(s, dtype=np.float32) for s in ((10, 24), (16, 24), (16,)))
    d = np.zeros((16, 10), np.float32)
    armillary.build(schedule.mod, target="llvm")(a, b, e, d)
    np.testing.assert_allclose(d, (a @ b.T).T + e[:, None], rtol=1e-5)


@pytest.mark.parametrize(("depth", "lengths"), [(0, [16, 4]), (1, [5, 4]), (2, [5, 1]), (3, [1, 1])])
def test_a_block_runs_behind_the_tile_that_it_reads(depth: int, lengths: list[int]) -> None:
    s = _product()
    i, j, k = s.get_loops(s.get_block("c"))
    i0, i1 = s.split(i, [None, 4])  # 10 = 3 * 4 - 2
    j0, j1 = s.split(j, [None, 5])  # 16 = 4 * 5 - 4
    k0, k1 = s.split(k, [None, 7])  # 24 = 4 * 7 - 4
    s.reorder(i0, j0, i1, j1, k0, k1)
    s.reverse_compute_at(s.get_block("d"), (i0, j0, i1, j1)[depth])
    loops = s.get_loops(s.get_block("d"))
    assert [loop.var.name for loop in loops] == [*("i_0", "j_0", "i_1", "j_1")[: depth + 1], "ax0", "ax1"]
    assert [s.get(loop).extent.value for loop in loops[depth + 1 :]] == lengths
    s.parallel(i0)
    _check(s)


def test_what_no_iteration_writes_alone_is_not_read_in_it() -> None:
    s = _product()
    i, j, k = s.get_loops(s.get_block("c"))
    with pytest.raises(ScheduleError, match="'c' has its last values only behind loop k, which reduces"):
        s.reverse_compute_at(s.get_block("d"), k)
    with pytest.raises(ScheduleError, match="'c' stands in loop i already"):
        s.reverse_compute_at(s.get_block("c"), i)
    with pytest.raises(ScheduleError, match="'c' reads nothing of what loop i writes"):
        s.reverse_compute_at(s.get_block("c"), s.get_loops(s.get_block("d"))[0])
    outer, inner = s.split(i, [None, 4])
    s.split(inner, [None, 3])  # 4 = 2 * 3 - 2: an iteration of `outer` writes 4 rows, its loops reach over 6
    with pytest.raises(ScheduleError, match="writes a part of c that is no box in i_0"):
        s.reverse_compute_at(s.get_block("d"), outer)
    s = _product()
    i, j, k = s.get_loops(s.get_block("c"))
    tiles, _ = s.split(s.fuse(i, j), [None, 8])
    with pytest.raises(ScheduleError, match="no box"):
        s.reverse_compute_at(s.get_block("d"), tiles)
    s = _product()
    i, j, k = s.get_loops(s.get_block("c"))
    s.reorder(k, i, j)
    with pytest.raises(ScheduleError, match="behind loop k"):
        s.reverse_compute_at(s.get_block("d"), i)
    s = _product()
    s.split(s.get_loops(s.get_block("d"))[0], [None, 4])
    with pytest.raises(ScheduleError, match="no loop of its own for each axis"):
        s.reverse_compute_at(s.get_block("d"), s.get_loops(s.get_block("c"))[0])
    _check(s)


def test_windows_are_not_read_before_they_are_whole() -> None:
    a = te.placeholder((34,), name="a")
    b = te.compute((34,), lambda i: a[i] * 2, name="b")
    c = te.compute((32,), lambda i: b[i] + b[i + 2], name="c")
    s = tir.Schedule(te.create_prim_func([a, c]))
    with pytest.raises(ScheduleError, match="does not read b at its own axes"):
        s.reverse_compute_at(s.get_block("c"), s.get_loops(s.get_block("b"))[0])
