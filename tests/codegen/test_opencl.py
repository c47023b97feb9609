"""OpenCL kernels from schedules with bound axes: run on a device, and what their source says."""

import re

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay, te, tir
from armillary.artifact import Descriptor
from armillary.artifact.json_form import Reader
from armillary.artifact.launches import read_launch
from armillary.base.dtype import DType
from armillary.errors import ArtifactError, TypeMismatch, UnsupportedError
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.parser import parse_function
from armillary.tir.transform.insert_barriers import _Inserter, insert_barriers

X, Y = "threadIdx.x", "threadIdx.y"


def _run(library, *arrays, shape, dtype="float32"):
    device = armillary.opencl()
    given = [armillary.nd.array(a, device) for a in arrays]
    out = armillary.nd.empty(shape, dtype, device)
    library(*given, out)
    return out.numpy()


def _random(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def _bound(n, extent):
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: te.exp(a[i]) + 1.0, name="b")
    s = te.create_schedule(b.op)
    group, item = s[b].split(b.op.axis[0], factor=extent)
    s[b].bind(group, te.thread_axis("blockIdx.x"))
    s[b].bind(item, te.thread_axis(X))
    return armillary.build(s, [a, b], "opencl", name="grid")


@needs_opencl
@pytest.mark.parametrize("n", [256, 100, 3])
def test_a_grid_covers_every_element(n):
    a = _random(n)
    np.testing.assert_allclose(_run(_bound(n, 64), a, shape=(n,)), np.exp(a) + 1, rtol=1e-6)


def test_the_source_names_arguments_and_the_group():
    (module,) = _bound(256, 64).imported_modules
    assert module.type_key == "opencl"
    source = module.get_source()
    assert "void grid_kernel0(__global float* restrict a, __global float* restrict b) {" in source
    assert "reqd_work_group_size(64, 1, 1)" in source and "get_group_id(0)" in source


def _product(n, vthreads=1):
    """A product by tiles: both sides through shared memory, sums in registers."""
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="c")
    s = te.create_schedule(c.op)
    sides = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    sums = s.cache_write(c, "local")
    yo, xo, yi, xi = s[c].tile(*c.op.axis, 32, 32)
    (ty, yii), (tx, xii) = s[c].split(yi, nparts=8), s[c].split(xi, nparts=8)
    if vthreads > 1:
        v, yii = s[c].split(yii, nparts=vthreads)
        s[c].reorder(yo, xo, v, ty, tx, yii, xii)
        s[c].bind(v, te.thread_axis("vthread"))
    else:
        s[c].reorder(yo, xo, ty, tx, yii, xii)
    for axis, tag in ((yo, "blockIdx.y"), (xo, "blockIdx.x"), (ty, Y), (tx, X)):
        s[c].bind(axis, te.thread_axis(tag))
    s[c].vectorize(xii)
    s[sums].compute_at(s[c], tx)
    ko, ki = s[sums].split(sums.op.reduce_axis[0], factor=8)
    s[sums].reorder(ko, ki, *sums.op.axis)
    s[sums].vectorize(sums.op.axis[1])
    for side in sides:
        s[side].compute_at(s[sums], ko)
        flat = s[side].fuse(*side.op.axis)
        _, part = s[side].split(flat, factor=64)
        py, px = s[side].split(part, factor=8)
        s[side].bind(py, te.thread_axis(Y))
        s[side].bind(px, te.thread_axis(X))
    return armillary.build(s, [a, b, c], "opencl", name="product")


@needs_opencl
@pytest.mark.parametrize("vthreads", [1, 2])
def test_a_product_through_shared_memory_is_right(vthreads):
    a, b = _random(64, 64), _random(64, 64) + 1
    np.testing.assert_allclose(_run(_product(64, vthreads), a, b, shape=(64, 64)), a @ b, rtol=1e-4, atol=1e-4)


def test_barriers_stand_around_what_work_items_share():
    source = _product(64).imported_modules[0].get_source()
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == 2
    assert source.count("  __local float ") == 2
    assert "*(__global float4*)(" in source and "*(__local float4*)(" in source  # aligned: vload4 may be four loads


@needs_opencl
def test_a_stage_of_its_own_is_read_from_the_workspace():
    n = 128
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((n,), lambda i: b[n - 1 - i] + 1.0, name="c")
    s = te.create_schedule(c.op)
    for t in (b, c):
        group, item = s[t].split(t.op.axis[0], factor=32)
        s[t].bind(group, te.thread_axis("blockIdx.x"))
        s[t].bind(item, te.thread_axis(X))
    library = armillary.build(s, [a, c], "opencl", name="two")
    assert len(library.descriptor.functions["two"].launches) == 2
    data = _random(n)
    np.testing.assert_allclose(_run(library, data, shape=(n,)), data[::-1] * 2 + 1, rtol=1e-6)


@needs_opencl
def test_loops_that_nobody_bound_run_in_one_work_item():
    a = te.placeholder((5, 7), name="a")
    k = te.reduce_axis((0, 7), "k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], k), name="b")
    library = armillary.build(te.create_schedule(b.op), [a, b], "opencl", name="plain")
    data = _random(5, 7)
    np.testing.assert_allclose(_run(library, data, shape=(5,)), data.sum(1), rtol=1e-5)


@needs_opencl
def test_tensors_of_the_host_are_refused_by_a_function_of_a_device():
    library = _bound(64, 64)
    with pytest.raises(TypeMismatch, match="is on a device of type 1, but the function runs on type 4"):
        library(_random(64), _random(64))


def test_a_barrier_that_not_all_work_items_would_pass_is_refused():
    place = E.Var("thread_x", E.INT32)
    shared = S.Buffer("s", (T.const(64),), DType("float32"), "shared")
    out = S.Buffer("o", (T.const(64),), DType("float32"))
    write = S.BufferStore(shared, T.const(1.0, "float32"), (place,))
    read = S.BufferStore(out, E.BufferLoad(shared, (T.sub(T.const(63), place),)), (place,))
    body = S.Allocate(shared, S.IfThenElse(T.less(place, T.const(3)), S.seq(write, read)))
    with pytest.raises(UnsupportedError, match="condition that depends on the work-item"):
        insert_barriers(body, frozenset([place]), "uneven")
    assert "thread_sync" in str(insert_barriers(S.Allocate(shared, S.seq(write, read)), frozenset([place]), "even"))


@needs_opencl
def test_sizes_that_are_known_when_a_function_runs():
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0 + i.astype("float32"), name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[1], factor=32)
    for axis, tag in ((b.op.axis[0], "blockIdx.y"), (outer, "blockIdx.x"), (inner, "threadIdx.x")):
        s[b].bind(axis, te.thread_axis(tag))
    library = armillary.build(s, [a, b], "opencl", name="any_size")
    (launch,) = library.descriptor.functions["any_size"].launches
    assert (launch.groups, launch.items) == (("floordiv(m + 31, 32)", "n", 1), (32, 1, 1))
    assert Descriptor.from_json(library.descriptor.to_json()) == library.descriptor
    for shape in ((3, 70), (5, 32), (1, 1), (0, 4)):
        data = _random(*shape)
        np.testing.assert_array_equal(
            _run(library, data, shape=shape), data * 2 + np.arange(shape[0], dtype="f")[:, None]
        )


def test_work_groups_whose_size_is_known_only_when_they_run_are_refused():
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(UnsupportedError, match="known only when it runs"):
        armillary.build(s, [a, b], "opencl", name="unknown")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 31, 32], 1, 1], r"an integer in \[0, "),
        ([-1, 1, 1], r"an integer in \[0, "),
        ([1, 1], "must be three sizes"),
    ],
)
def test_damaged_counts_of_groups_are_refused(groups: list[object], message: str):
    row = {"kernel": "k", "args": [], "groups": groups, "items": [1, 1, 1]}
    with pytest.raises(ArtifactError, match=message):
        read_launch(Reader(row, "launch"))


@needs_opencl
def test_a_buffer_called_like_a_function_does_not_hide_it():
    a = te.placeholder((8,), name="tan")
    b = te.compute((8,), lambda i: te.atan(te.tan(a[i])), name="atan")
    library = armillary.build(te.create_schedule(b.op), [a, b], "opencl", name="named")
    data = _random(8) * 0.3
    np.testing.assert_allclose(_run(library, data, shape=(8,)), data, rtol=1e-5)


def test_kernels_of_networks_are_called_as_old_sources_call_them() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    source = relay.build(module, "opencl").get_source("cl")
    assert "__kernel" in source and re.search(r"void tvmgen_default_fused_nn_relu_\w+_kernel0\(", source)


def _mirrored(groups: int) -> armillary.IRModule:
    """b = 2 * a; c = b from its end, in one kernel of 64 work-items a group."""
    text = """func @mirrored(a: Buffer[(N,), float32], b: Buffer[(N,), float32], c: Buffer[(N,), float32]) {
        for x in range(GROUPS) thread("blockIdx.x") {
            for y in range(64) thread("threadIdx.x") {
                b[x * 64 + y] = a[x * 64 + y] * 2.0
                c[x * 64 + y] = b[N - 1 - (x * 64 + y)] } } }"""
    func = parse_function(text.replace("GROUPS", str(groups)).replace("N", str(64 * groups)))
    return armillary.IRModule({"mirrored": func.with_attr("global_symbol", "mirrored")})


def test_global_memory_is_waited_for_in_a_group_and_refused_across_groups():
    switch = {"tir.detect_global_barrier": True}
    with armillary.transform.PassContext(config=switch):
        source = armillary.build(_mirrored(1), target="opencl").imported_modules[0].get_source()
        assert source.count("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)") == 1
        assert "GLOBAL" not in _product(64).imported_modules[0].get_source()
        with pytest.raises(UnsupportedError, match="may read of b what one of another group writes"):
            armillary.build(_mirrored(2), target="opencl")
    assert "barrier" not in armillary.build(_mirrored(2), target="opencl").imported_modules[0].get_source()
    synced = tir.transform.ThreadSync("global")(_mirrored(1))
    assert str(synced).count('thread_sync:int32("global")') == 1
    with pytest.raises(UnsupportedError, match="of another group"):
        tir.transform.ThreadSync("global")(_mirrored(2))


@needs_opencl
def test_a_group_reads_what_its_work_items_wrote_to_global_memory():
    with armillary.transform.PassContext(config={"tir.detect_global_barrier": True}):
        library = armillary.build(_mirrored(1), target="opencl")
    device, data = armillary.opencl(), _random(64)
    a, b, c = (armillary.nd.array(one, device) for one in (data, 0 * data, 0 * data))
    library(a, b, c)
    np.testing.assert_array_equal(c.numpy(), 2 * data[::-1])


def test_a_double_buffer_needs_one_barrier_in_a_turn() -> None:
    place, turn = E.Var("item", E.INT32), E.Var("turn", E.INT32)
    shared = S.Buffer("stages", (T.const(128),), DType("float32"), "shared")
    held = S.Buffer("out", (T.const(64),), DType("float32"), "global")
    half = [T.mul(T.floormod(T.add(turn, n), 2), 64) for n in (0, 1)]
    read = S.BufferStore(held, E.BufferLoad(shared, (T.add(half[1], T.sub(63, place)),)), (place,))
    write: S.Stmt = S.BufferStore(shared, T.const(1.0, DType("float32")), (T.add(half[0], place),))
    counts = []
    for noted in (write, S.AttrStmt("double_buffer_write", T.const(1), write, shared)):
        body = S.For(turn, T.const(0), T.const(8), S.LoopKind.SERIAL, S.seq(read, noted))
        counts.append(str(insert_barriers(S.Allocate(shared, body), frozenset([place]), "two")).count("thread_sync"))
    assert counts == [2, 1]


def test_of_the_places_in_a_shared_buffer_two_unlike_ones_are_remembered() -> None:
    place, out = E.Var("item", E.INT32), S.Buffer("out", (T.const(64),), DType("float32"))
    shared = S.Buffer("s", (T.const(4096),), DType("float32"), "shared")
    reads = [S.BufferStore(out, E.BufferLoad(shared, (T.add(place, n // 2),)), (place,)) for n in range(400)]
    inserter = _Inserter(frozenset([place]), "long", frozenset([shared]))
    assert len(inserter.accesses(S.seq(*reads)).reads[shared]) == 2
    write = S.BufferStore(shared, T.const(1.0, DType("float32")), (place,))
    for before, count in ((reads, 1), (reads[:2], 0)):  # the first two read what their own work-item writes
        body = S.Allocate(shared, S.seq(*before, write))
        assert str(insert_barriers(body, frozenset([place]), "long")).count("thread_sync") == count
