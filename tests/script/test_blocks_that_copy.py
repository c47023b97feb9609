# ruff: noqa: N803  (buffers have capital letters, as scripts write them)
"""`tir.Schedule`: copies of buffers and reductions in two blocks; what is computed stays, else it is refused."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError
from armillary.script import tir as T

RNG = np.random.default_rng(5)


def _matmul() -> tir.Schedule:
    k = te.reduce_axis((0, 24), "k")
    a, b = te.placeholder((10, 24), name="a"), te.placeholder((16, 24), name="b")
    c = te.compute((10, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")
    return tir.Schedule(te.create_prim_func([a, b, te.compute((10, 16), lambda i, j: c[i, j] + 1, name="d")]))


def _check(schedule: tir.Schedule) -> None:
    a, b = RNG.random((10, 24), dtype=np.float32), RNG.random((16, 24), dtype=np.float32)
    d = np.zeros((10, 16), np.float32)
    armillary.build(schedule.mod, target="llvm")(a, b, d)
    np.testing.assert_allclose(d, a @ b.T + 1, rtol=1e-5)


def _names(schedule: tir.Schedule) -> list[str]:
    return [b.name for b in schedule.get_child_blocks(schedule.get_block("root"))]


def test_what_is_read_and_written_is_copied() -> None:
    s = _matmul()
    read = s.cache_read(s.get_block("c"), 1, "local")
    written = s.cache_write(s.get_block("c"), 0, "global")
    assert (read.name, written.name) == ("b_local", "c_global")
    assert _names(s) == ["b_local", "c", "c_global", "d"]
    assert [r.buffer.name for r in s.get(s.get_block("c")).reads] == ["a", "b_local"]
    _check(s)
    s.vectorize(s.get_loops(read)[-1])
    outer, _ = s.split(s.get_loops(s.get_block("c"))[0], [None, 4])
    s.parallel(outer)
    again = s.cache_read(s.get_block("d"), 0, "global", [s.get_block("d")])
    assert [b.name for b in s.get_producers(again)] == ["c_global"]
    _check(s)
    s.set_scope(written, 0, "local")
    assert s.get(written).writes[0].buffer.scope == "local"
    _check(s)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_reduction_has_its_first_values_before_a_loop(depth: int) -> None:
    s = _matmul()
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    i0, i1 = s.split(i, [None, 4])  # 10 = 3 * 4 - 2
    k0, k1 = s.split(k, [None, 7])  # 24 = 4 * 7 - 4
    s.reorder(i0, j, k0, i1, k1)
    loops = s.get_loops(block)
    if depth == 3:
        with pytest.raises(ScheduleError, match="reduces over k_0, which is outside of i_1"):
            s.decompose_reduction(block, loops[depth])
    else:
        first = s.decompose_reduction(block, loops[depth])
        assert (first.name, s.get(block).init) == ("c_init", None)
        assert len(s.get_loops(first)) == 3
    _check(s)


def test_what_would_be_copied_wrong_is_refused() -> None:
    s = _matmul()
    with pytest.raises(ScheduleError, match="block c reads 2 buffers, there is no number 2"):
        s.cache_read(s.get_block("c"), 2, "local")
    with pytest.raises(ScheduleError, match="d is an argument of main"):
        s.set_scope(s.get_block("d"), 0, "local")
    with pytest.raises(ScheduleError, match="block 'd' has no first values"):
        s.decompose_reduction(s.get_block("d"), s.get_loops(s.get_block("d"))[0])
    with pytest.raises(ScheduleError, match="is not around block 'c'"):
        s.decompose_reduction(s.get_block("c"), s.get_loops(s.get_block("d"))[0])

    @T.prim_func
    def steps(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("one"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + 1.0
        for i in range(4):
            with T.block("two"):
                v = T.axis.spatial(4, i)
                A[v * 2] = B[v] * 2.0

    s = tir.Schedule(steps)
    with pytest.raises(ScheduleError, match="block 'two' writes A after it would be copied"):
        s.cache_read(s.get_block("one"), 0, "global")
    with pytest.raises(ScheduleError, match="block 'one' reads A before"):
        s.cache_write(s.get_block("two"), 0, "global")
    s.cache_write(s.get_block("one"), 0, "global")
    s.cache_read(s.get_block("two"), 0, "global")
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    armillary.build(s.mod, target="llvm")(a, b)
    assert b.tolist() == [1, 2, 3, 4, 5, 6, 7, 8] and a.tolist() == [2, 1, 4, 3, 6, 5, 8, 7]


def test_a_block_is_computed_inside_a_loop_of_its_readers() -> None:
    s = _matmul()
    i, j = s.get_loops(s.get_block("d"))
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 5])  # 16 = 4 * 5 - 4
    s.reorder(i0, j0, i1, j1)
    s.compute_at(s.get_block("c"), j0)
    assert [loop.var.name for loop in s.get_loops(s.get_block("c"))] == ["i_0", "j_0", "ax0", "ax1", "ax2"]
    assert [s.get(loop).extent.value for loop in s.get_loops(s.get_block("c"))][2:] == [4, 5, 24]
    _check(s)
    s.parallel(i0)
    s.compute_at(s.cache_read(s.get_block("c"), 1, "local"), s.get_loops(s.get_block("c"))[1])
    _check(s)
    first = s.decompose_reduction(s.get_block("c"), s.get_loops(s.get_block("c"))[4])
    assert first.name == "c_init"
    _check(s)


def test_windows_that_overlap_are_computed_for_each_iteration() -> None:
    a = te.placeholder((34,), name="a")
    b = te.compute((34,), lambda i: a[i] * 2, name="b")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((32,), lambda i: te.sum(b[i + k], axis=k), name="c")
    s = tir.Schedule(te.create_prim_func([a, c]))
    outer, _ = s.split(s.get_loops(s.get_block("c"))[0], [None, 8])
    s.compute_at(s.get_block("b"), outer)
    assert s.get(s.get_loops(s.get_block("b"))[-1]).extent.value == 10
    values, result = RNG.random(34, dtype=np.float32), np.zeros(32, np.float32)
    armillary.build(s.mod, target="llvm")(values, result)
    np.testing.assert_allclose(result, 2 * np.convolve(values, np.ones(3), "valid"), rtol=1e-5)


def test_what_cannot_be_computed_inside_a_loop() -> None:
    assert tir.ScheduleError is tir.schedule.ScheduleError is ScheduleError
    s = _matmul()
    with pytest.raises(ScheduleError, match="block 'd' writes d, an argument of the function"):
        s.compute_at(s.get_block("d"), s.get_loops(s.get_block("c"))[0])
    with pytest.raises(ScheduleError, match="block 'c' stands in loop i already"):
        s.compute_at(s.get_block("c"), s.get_loops(s.get_block("c"))[0])
    s.cache_read(s.get_block("d"), 0, "global")
    with pytest.raises(ScheduleError, match="is read by 'c_global', outside of loop"):
        s.compute_at(s.get_block("c"), s.get_loops(s.get_block("d"))[0])


def test_a_block_is_computed_where_what_it_reads_is_written() -> None:
    a = te.placeholder((10, 6), name="a")
    b = te.compute((6, 10), lambda i, j: a[j, i] * 2, name="b")
    bias = te.placeholder((6,), name="bias")
    c = te.compute((6, 10), lambda i, j: b[i, j] + bias[i], name="c")
    s = tir.Schedule(te.create_prim_func([a, bias, c]))
    i, _ = s.get_loops(s.get_block("b"))
    s.split(i, [None, 4])
    s.reverse_compute_inline(s.get_block("c"))
    assert _names(s) == ["b"] and not s.get(s.get_block("root")).alloc_buffers
    assert sorted(r.buffer.name for r in s.get(s.get_block("b")).reads) == ["a", "bias"]
    values, added, result = (
        RNG.random((10, 6), dtype=np.float32),
        np.arange(6, dtype=np.float32),
        np.zeros((6, 10), np.float32),
    )
    armillary.build(s.mod, target="llvm")(values, added, result)
    np.testing.assert_allclose(result, values.T * 2 + added[:, None], rtol=1e-6)
    s = _matmul()
    with pytest.raises(ScheduleError, match="reads what block 'c' reduces"):
        s.reverse_compute_inline(s.get_block("d"))
    with pytest.raises(ScheduleError, match="reads no buffer of the function's own"):
        s.reverse_compute_inline(s.get_block("c"))
