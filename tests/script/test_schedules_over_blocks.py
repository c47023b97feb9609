# ruff: noqa: N803  (buffers have capital letters, as scripts write them)
"""`tir.Schedule`: loops around blocks change, what is computed does not."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError
from armillary.script import tir as T

RNG = np.random.default_rng(3)


def _matmul() -> tir.PrimFunc:
    k = te.reduce_axis((0, 24), "k")
    a, b = te.placeholder((10, 24), name="a"), te.placeholder((16, 24), name="b")
    c = te.compute((10, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")
    return te.create_prim_func([a, b, te.compute((10, 16), lambda i, j: c[i, j] + 1, name="d")])


def _check(schedule: tir.Schedule) -> None:
    a, b = RNG.random((10, 24), dtype=np.float32), RNG.random((16, 24), dtype=np.float32)
    d = np.zeros((10, 16), np.float32)
    armillary.build(schedule.mod, target="llvm")(a, b, d)
    np.testing.assert_allclose(d, a @ b.T + 1, rtol=1e-5)


def test_loops_are_split_reordered_fused_and_marked() -> None:
    s = tir.Schedule(_matmul())
    i, j, k = s.get_loops(s.get_block("c"))
    i0, i1 = s.split(i, [None, 4])  # 10 = 3 * 4 - 2
    j0, j1 = s.split(j, factors=[2, 8])
    s.reorder(i0, j0, k, i1, j1)
    s.vectorize(j1)
    s.unroll(i1)
    s.parallel(s.fuse(i0, j0))
    assert [loop.var.name for loop in s.get_loops(s.get_block("c"))] == ["i_0_j_0_fused", "k", "i_1", "j_1"]
    x = s.get_loops(s.get_block("d"))[0]
    s.annotate(x, "note", 3)
    assert s.get(x).annotations == (("note", 3),)
    assert [b.name for b in s.get_child_blocks(s.get_block("root"))] == ["c", "d"]
    _check(s)


def test_what_would_change_the_meaning_is_refused() -> None:
    s = tir.Schedule(_matmul())
    i, j, k = s.get_loops(s.get_block("c"))
    with pytest.raises(ScheduleError, match="write the same elements"):
        s.parallel(k)
    with pytest.raises(ScheduleError, match="does not stand directly inside"):
        s.fuse(i, k)
    with pytest.raises(ScheduleError, match="cover 8 of 16"):
        s.split(j, [2, 4])
    with pytest.raises(ScheduleError, match="not loops of one nest"):
        s.reorder(i, s.get_loops(s.get_block("d"))[0])
    with pytest.raises(ScheduleError, match="no block 'e'"):
        s.get_block("e")
    gone = i
    s.split(i, [5, 2])
    with pytest.raises(ScheduleError, match="not there any more"):
        s.unroll(gone)
    _check(s)


def test_blocks_of_one_name_get_names_of_their_own() -> None:
    @T.prim_func
    def twice(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("step"):
                v = T.axis.spatial(8, i)
                A[v] = A[v] + 1.0
        for i in range(8):
            with T.block("step"):
                v = T.axis.spatial(8, i)
                A[v] = A[v] * 2.0

    s = tir.Schedule(twice)
    assert list(s.mod) == ["main"]
    assert isinstance(s.get_sref(s.get_block("step_1")), tir.schedule.StmtSRef)
    s.vectorize(s.get_loops(s.get_block("step_1"))[0])
    values = np.arange(8, dtype=np.float32)
    armillary.build(s.mod, target="llvm")(values)
    np.testing.assert_array_equal(values, (np.arange(8) + 1) * 2)


def test_what_a_block_touches_may_be_hidden() -> None:
    s = tir.Schedule(_matmul())
    block = s.get_block("c")
    assert [r.buffer.name for r in s.get(block).reads] == ["a", "b"]
    s.unsafe_hide_buffer_access(block, "read", [1])
    s.unsafe_hide_buffer_access(block, "write", [])
    assert ([r.buffer.name for r in s.get(block).reads], len(s.get(block).writes)) == (["a"], 1)
    _check(s)
    with pytest.raises(ScheduleError, match="no kind 'opaque'"):
        s.unsafe_hide_buffer_access(block, "opaque", [0])
    with pytest.raises(ScheduleError, match="block c reads 1 buffers, there is no number 1"):
        s.unsafe_hide_buffer_access(block, "read", [1])


def test_a_block_is_computed_where_it_is_read() -> None:
    k = te.reduce_axis((0, 24), "k")
    a, b = te.placeholder((10, 24), name="a"), te.placeholder((16, 24), name="b")
    twice = te.compute((10, 24), lambda i, j: a[i, j] * 2, name="twice")
    c = te.compute((10, 16), lambda i, j: te.sum(twice[i, k] * b[j, k], axis=k), name="c")
    s = tir.Schedule(te.create_prim_func([a, b, te.compute((10, 16), lambda i, j: c[i, j] + 1, name="d")]))
    block = s.get_block("twice")
    assert [x.name for x in s.get_consumers(block)] == ["c"]
    assert [x.name for x in s.get_producers(s.get_block("c"))] == ["twice"]
    s.compute_inline(block)
    assert [x.name for x in s.get_child_blocks(s.get_block("root"))] == ["c", "d"]
    assert sorted(r.buffer.name for r in s.get(s.get_block("c")).reads) == ["a", "b"]
    assert [x.name for x in s.get(s.get_block("root")).alloc_buffers] == ["c"]
    x, y = RNG.random((10, 24), dtype=np.float32), RNG.random((16, 24), dtype=np.float32)
    d = np.zeros((10, 16), np.float32)
    armillary.build(s.mod, target="llvm")(x, y, d)
    np.testing.assert_allclose(d, 2 * x @ y.T + 1, rtol=1e-5)


def test_what_cannot_be_computed_where_it_is_read() -> None:
    s = tir.Schedule(_matmul())
    with pytest.raises(ScheduleError, match="is not one store"):
        s.compute_inline(s.get_block("c"))
    with pytest.raises(ScheduleError, match="an argument of the function"):
        s.compute_inline(s.get_block("d"))
    loop = s.get_loops(s.get_block("d"))[0]
    s.annotate(loop, "note", 3)
    s.unannotate(loop, "note")
    assert s.get(loop).annotations == ()
    with pytest.raises(ScheduleError, match="no note 'note'"):
        s.unannotate(loop, "note")
