"""Every primitive keeps the values: loops are interpreted and compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest
from common import matmul, randoms, run

from armillary import te
from armillary.backends.cpu.conv2d.winograd.cost import tiles_along
from armillary.errors import ScheduleError
from armillary.te.stage import static_extent
from armillary.tir.analysis import all_statements
from armillary.tir.build import const
from armillary.tir.expr import BufferLoad
from armillary.tir.stmt import Allocate, BufferStore, For, LoopKind


def check_matmul(schedule, tensors, rtol=1e-4):
    a, b = randoms((9, 7), (7, 10))
    (c,) = run(schedule, tensors, [a, b])
    np.testing.assert_allclose(c, a @ b, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_split_by_factor_keeps_the_tail(factor):
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[1], factor=factor)
    s[c].split(c.op.reduce_axis[0], factor=factor)
    check_matmul(s, [a, b, c])


@pytest.mark.parametrize(
    ("extent", "factor", "step", "outer"),
    [
        (6, 2, 3, 3),
        (24, 4, 3, 6),
        (28, 4, 4, 8),
        (65, 4, 4, 17),
        (13, 4, 2, 4),
        (7, 4, 4, 4),
        (2, 4, 3, 2),
        (9, 3, 1, 3),
    ],
)
def test_split_by_a_step_visits_each_element_once(extent, factor, step, outer):
    a = te.placeholder((extent,), name="A")
    b = te.compute((extent,), lambda i: a(i) + 1.0, name="B")
    s = te.create_schedule(b.op)
    o, i = s[b].split(b.op.axis[0], factor=factor, step=step)
    assert static_extent(o) == outer == tiles_along(extent, factor, step)
    visited = [(t // step) * step * static_extent(i) + k * step + t % step for t in range(outer) for k in range(factor)]
    assert sorted(v for v in set(visited) if v < extent) == list(range(extent))
    (x,) = randoms((extent,))
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x + 1)


def test_a_stage_at_interleaved_tiles_computes_just_those():
    a = te.placeholder((24,), name="A")
    b = te.compute((6, 4), lambda t, k: a(t // 3 * 12 + t % 3 + k * 3) * 2.0, name="B")
    c = te.compute((24,), lambda i: b(i // 12 * 3 + i % 3, i % 12 // 3) + 1.0, name="C")
    (x,) = randoms((24,))
    for strip, rows in ((1, 1), (3, 3), (6, 6)):
        s = te.create_schedule(c.op)
        tile, _ = s[c].split(c.op.axis[0], factor=4, step=3)
        at, _ = s[c].split(tile, factor=strip)
        s[b].compute_at(s[c], at)
        assert f"compute B[{rows}, 4]" in str(s), s
        np.testing.assert_allclose(run(s, [a, c], [x])[0], x * 2 + 1, rtol=1e-6)


@pytest.mark.parametrize("nparts", [1, 3, 4, 16])
def test_split_by_nparts_keeps_the_tail(nparts):
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    _outer, inner = s[c].split(c.op.axis[0], nparts=nparts)
    s[c].split(inner, factor=2)
    s[c].split(c.op.reduce_axis[0], nparts=nparts)
    check_matmul(s, [a, b, c])


def test_tile_reorder_fuse_and_marks_keep_values():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    xo, yo, xi, yi = s[c].tile(*c.op.axis, 4, 4)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=3)
    s[c].reorder(xo, yo, ko, xi, ki, yi)
    s[c].vectorize(yi)
    s[c].unroll(ki)
    s[c].parallel(s[c].fuse(xo, yo))
    check_matmul(s, [a, b, c])


def test_fused_then_split_reduction_is_exact():
    a = te.placeholder((4, 3, 5), name="A")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 5), "j")
    b = te.compute((4,), lambda n: te.sum(a[n, i, j], axis=[i, j]), name="B")
    s = te.create_schedule(b.op)
    s[b].split(s[b].fuse(i, j), factor=4)
    (x,) = randoms((4, 3, 5))
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x.sum((1, 2)), rtol=1e-5)


def test_cache_write_and_compute_at_allocate_just_the_tile():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    cached = s.cache_write(c, "local")
    _xo, yo, _xi, _yi = s[c].tile(*c.op.axis, 4, 5)
    s[cached].compute_at(s[c], yo)
    x, y = s[cached].op.axis
    s[cached].reorder(*s[cached].op.reduce_axis, x, y)
    check_matmul(s, [a, b, c])
    assert "C.local[4, 5] in local" in str(s)


def test_cache_read_is_computed_where_it_is_used():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    shared = s.cache_read(a, "local", [c])
    outer, _ = s[c].split(c.op.axis[0], factor=4)
    s[shared].compute_at(s[c], outer)
    assert "A.local[4, 7] in local" in str(s)
    check_matmul(s, [a, b, c])


@pytest.mark.parametrize("factor_axis", [0, 1, -1])
def test_rfactor_keeps_values(factor_axis):
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    _ko, ki = s[c].split(c.op.reduce_axis[0], factor=3)
    partial = s.rfactor(c, ki, factor_axis)
    s[partial].compute_at(s[c], s[c].op.reduce_axis[0])
    check_matmul(s, [a, b, c])


def test_rfactor_of_the_only_axis_keeps_values():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    s.rfactor(c, c.op.reduce_axis[0])
    check_matmul(s, [a, b, c])


def argmax_of(n, k):
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")

    def combine(x, y):
        better = te.any(x[1] > y[1], te.all(te.floordiv(x[0], 1) < y[0], x[1] >= y[1]))
        return te.select(better, x[0], y[0]), te.select(better, x[1], y[1])

    argmax = te.comm_reducer(combine, lambda i, v: (te.const(2**31 - 1, i), te.min_value(v)), "argmax")
    return a, *te.compute((n,), lambda i: argmax((axis.var, a[i, axis]), axis=axis), name="argmax")


@pytest.mark.parametrize("with_rfactor", [False, True])
def test_tuple_reduction_gives_position_and_value(with_rfactor):
    a, index, value = argmax_of(5, 12)
    s = te.create_schedule(index.op)
    if with_rfactor:
        _, inner = s[index].split(index.op.reduce_axis[0], factor=5)
        s.rfactor(index, inner)
    (x,) = randoms((5, 12))
    i, v = run(s, [a, index, value], [x])
    np.testing.assert_array_equal(i, x.argmax(1))
    np.testing.assert_array_equal(v, x.max(1))


def test_inlined_chain_with_reuse_keeps_values():
    a = te.placeholder((6,), name="A")
    b = a
    for step in range(6):
        b = te.compute((6,), lambda i, b=b: b[i] * 0.5 + b[i] * 0.5, name=f"B{step}")
    s = te.create_schedule(b.op)
    for stage in s.stages[1:-1]:
        stage.compute_inline()
    (x,) = randoms((6,))
    np.testing.assert_allclose(run(s, [a, b], [x * 0 + 2])[0], x * 0 + 2, rtol=1e-5)


def test_stencil_region_is_the_tile_and_its_halo():
    a = te.placeholder((30,), name="A")
    b = te.compute((30,), lambda i: a[i] * 2, name="B")
    c = te.compute((28,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], outer)
    assert "compute B[10]:" in str(s)
    (x,) = randoms((30,))
    np.testing.assert_allclose(run(s, [a, c], [x])[0], 2 * (x[:-2] + x[1:-1] + x[2:]), rtol=1e-4, atol=1e-5)


def test_strided_window_region_is_exact():
    a = te.placeholder((40,), name="A")
    b = te.compute((40,), lambda i: a[i] + 1, name="B")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((19,), lambda i: te.max(b[i * 2 + k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=5)
    s[b].compute_at(s[c], outer)
    assert "compute B[11]:" in str(s)
    (x,) = randoms((40,))
    want = np.stack([x[i : i + 37 : 2][:19] for i in range(3)]).max(0) + 1
    np.testing.assert_allclose(run(s, [a, c], [x])[0], want, rtol=1e-5)


def test_attached_inside_attached_keeps_values():
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((16, 16), lambda i, j: b[j, i] + 1, name="C")
    d = te.compute((16, 16), lambda i, j: c[i, j] * b[i, j], name="D")
    s = te.create_schedule(d.op)
    xo, yo, _xi, _yi = s[d].tile(*d.op.axis, 5, 3)
    s[c].compute_at(s[d], yo)
    s[b].compute_at(s[d], xo)
    (x,) = randoms((16, 16))
    np.testing.assert_allclose(run(s, [a, d], [x])[0], (x.T * 2 + 1) * x * 2, rtol=1e-4)


def test_attach_at_fused_axis_gives_one_row():
    a = te.placeholder((6, 4, 8), name="A")
    b = te.compute((6, 4, 8), lambda i, j, k: a[i, j, k] * 2, name="B")
    c = te.compute((6, 4, 8), lambda i, j, k: b[i, j, 7 - k], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].fuse(*c.op.axis[:2]))
    assert "compute B[1, 1, 8]:" in str(s)
    (x,) = randoms((6, 4, 8))
    np.testing.assert_allclose(run(s, [a, c], [x])[0], x[..., ::-1] * 2)


def test_symbolic_extent_with_tail_and_attached_stage():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute((n,), lambda i: b[i] + 1, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    s[c].vectorize(inner)
    assert "compute B[4]:" in str(s)
    (x,) = randoms((11,))
    np.testing.assert_allclose(run(s, [a, c], [x], n=11)[0], x * 2 + 1, rtol=1e-6)


def test_extern_reads_and_writes_its_buffers():
    a = te.placeholder((3, 4), name="A")
    b = te.compute((3, 4), lambda i, j: a[i, j] + 1, name="B")

    def cumsum(ins, outs):
        ib = te.ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 3, "i") as i:
            total = ib.allocate("float32", (1,), "total", scope="local")
            total[0] = 0.0
            with ib.for_range(0, 4, "j") as j:
                total[0] = total[0] + source[i * 4 + j]
                with ib.if_scope(j > 0):
                    target[i, j] = total[0]
                with ib.else_scope():
                    target[i, j] = source[i, 0]
        return ib.get()

    c = te.extern((3, 4), [b], cumsum, name="cumsum")
    d = te.compute((3, 4), lambda i, j: c[i, j] * 2, name="D")
    s = te.create_schedule(d.op)
    (x,) = randoms((3, 4))
    np.testing.assert_allclose(run(s, [a, d], [x])[0], 2 * np.cumsum(x + 1, 1), rtol=1e-4)


def test_rank_zero_tensors_are_read_as_scalars():
    a = te.placeholder((5,), name="A")
    k = te.reduce_axis((0, 5), "k")
    total = te.compute((), lambda: te.sum(a[k], axis=k), name="total")
    b = te.compute((5,), lambda i: a[i] / total() + total[()] - total, name="B")
    s = te.create_schedule(b.op)
    x = np.arange(1, 6, dtype="float32")
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x / 15, rtol=1e-5, atol=1e-5)


def test_where_and_init_of_a_reduction():
    a = te.placeholder((5, 6), name="A")
    k = te.reduce_axis((1, 6), "k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k, where=k.var % 2 == 1, init=10.0), name="B")
    s = te.create_schedule(b.op)
    (x,) = randoms((5, 6))
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x[:, 1::2].sum(1) + 10, rtol=1e-5)


def test_storage_align_pads_the_inner_dimension():
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 8), lambda i, j: b[j, i], name="C")
    s = te.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], 16, 1)
    function = te.lower_schedule(s, [a, c])
    assert function.body.buffer.shape[1].value == 17
    (x,) = randoms((8, 8))
    np.testing.assert_allclose(run(s, [a, c], [x])[0], x.T + 1)


@pytest.mark.parametrize(("columns", "read", "taken"), [(32, 20, 32), (24, 20, 20), (32, 32, 32)])
def test_round_up_takes_whole_vectors_where_there_is_data(columns, read, taken):
    a = te.placeholder((6, columns), name="A")
    b = te.compute((6, columns), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((6, read), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    s[b].set_scope("local")
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].round_up(b.op.axis[1], 16)
    (x,) = randoms((6, columns))
    np.testing.assert_allclose(run(s, [a, c], [x])[0], (x[:, :read] + 1) * 2, rtol=1e-6)
    (buffer,) = (n.buffer for n in all_statements(te.lower_schedule(s, [a, c]).body) if isinstance(n, Allocate))
    assert buffer.shape[-1].value == taken


def test_round_up_at_several_places_of_a_row():
    a = te.placeholder((4, 60), name="A")
    b = te.compute((4, 60), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 50), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[1], factor=10)
    s[b].compute_at(s[c], outer)
    s[b].round_up(b.op.axis[1], 12)  # begins at multiples of 10, so nothing is rounded
    (x,) = randoms((4, 60))
    np.testing.assert_allclose(run(s, [a, c], [x])[0], (x[:, :50] + 1) * 2, rtol=1e-6)


@pytest.mark.parametrize("factor", [0, 1.5])
def test_round_up_refuses_other_factors(factor):
    b = te.compute((6, 20), lambda i, j: i + j, name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(ScheduleError, match=r"factor .* wanted at least 1"):
        s[b].round_up(b.op.axis[1], factor)


def dot_intrinsic(n, k):
    a, b = te.placeholder((k,), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), "k")
    out = te.compute((n,), lambda j: te.sum(a[axis] * b[axis, j], axis=axis), name="out")

    def statements(ins, outs):
        def loops(start):
            ib = te.ir_builder.create()
            x, w, y = (ib.buffer_ptr(t) for t in (*ins, *outs))
            with ib.for_range(0, n, "j") as j:
                if start:
                    y[j] = const(0.0)
                if start != "reset":
                    with ib.for_range(0, k, "k") as r:
                        y[j] = y[j] + x[r] * w[r, j]
            return ib.get()

        return loops("body"), loops("reset"), loops("")

    return te.decl_tensor_intrin(out.op, statements, "dot")


@pytest.mark.parametrize("order", ["whole", "update"])
def test_tensorize_puts_the_intrinsic_in_place_of_inner_loops(order):
    a, b, c = matmul(6, 8, 8)
    s = te.create_schedule(c.op)
    yo, yi = s[c].split(c.op.axis[1], factor=4)
    if order == "whole":
        s[c].reorder(c.op.axis[0], yo, yi, c.op.reduce_axis[0])
        s[c].tensorize(yi, dot_intrinsic(4, 8))
    else:
        ko, ki = s[c].split(c.op.reduce_axis[0], factor=2)
        s[c].reorder(c.op.axis[0], ko, yo, yi, ki)
        s[c].tensorize(yi, dot_intrinsic(4, 2))
    x, y = randoms((6, 8), (8, 8))
    np.testing.assert_allclose(run(s, [a, b, c], [x, y])[0], x @ y, rtol=1e-4, atol=1e-5)


def test_bound_threads_are_thread_loops():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=16)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    loop = te.lower_schedule(s, [a, b]).body
    assert isinstance(loop, For) and loop.kind is LoopKind.THREAD and loop.thread_tag == "blockIdx.x"
    (x,) = randoms((64,))
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x + 1)


def test_shared_copy_of_a_thread_block_covers_all_its_threads():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    copy = s.cache_read(a, "shared", [b])
    outer, inner = s[b].split(b.op.axis[0], factor=16)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[b], outer)
    assert "A.shared[16] in shared" in str(s)
    s[copy].bind(s[copy].op.axis[0], te.thread_axis("threadIdx.x"))
    (x,) = randoms((64,))
    np.testing.assert_allclose(run(s, [a, b], [x])[0], x + 1)


def test_pragma_becomes_an_annotation_of_its_loop():
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    s[c].pragma(c.op.axis[0], "auto_unroll_max_step", 16)
    loop = te.lower_schedule(s, [a, b, c]).body
    assert isinstance(loop, For) and loop.annotations == (("pragma_auto_unroll_max_step", 16),)


def test_plain_body_of_a_tile_reads_tile_relative_indices():
    a = te.placeholder((32,), name="A")
    b = te.compute((32,), lambda i: a[i] * 2, name="B")
    c = te.compute((32,), lambda i: b[i] + 1, name="C")
    s = te.create_schedule(c.op)
    outer, _inner = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], outer)
    nest = te.lower_schedule(s, [a, c]).body.body.body.statements[1]
    store = nest.body
    assert isinstance(store, BufferStore)
    load = store.value.a
    assert isinstance(load, BufferLoad) and load.indices[0] is nest.var
