"""Row-wise kernels of the CPU: reductions in lanes, softmax, normalisations and attention agree with float64."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from armillary import relay, te
from armillary.backends.cpu.access import contiguous_axis, crossing_axis
from armillary.backends.cpu.attention.space import plan_of
from armillary.backends.cpu.gemm.dense import packed_product
from armillary.backends.cpu.reduce.reduce import reduce_in_lanes
from armillary.backends.registry import Fused, choose
from armillary.backends.workload import Workload
from armillary.driver.build import build
from armillary.ops.nn.attention import AttentionAttrs, sizes_of
from armillary.relay.op import get_op
from armillary.relay.types import TensorType
from armillary.runtime import cpu
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.te.lower import lower_schedule
from armillary.tir.lower import lower_function
from armillary.transform import PassContext

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 CPUs")
AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"


def compiled(body: Any, target: str = "llvm", /, **inputs: np.ndarray) -> np.ndarray:
    variables = {name: relay.var(name, shape=value.shape) for name, value in inputs.items()}
    with PassContext(opt_level=3):
        graph = build(relay.Function(list(variables.values()), body(**variables)), target)["default"](cpu(0))
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    result: np.ndarray = graph.get_output(0).numpy().copy()
    return result


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("size", [3, 4, 7, 16, 37, 64, 197])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "prod"])
def test_reduction_of_the_last_axis(name: str, size: int) -> None:
    x = normal(size, 5, size)
    got = compiled(lambda x: get_op(name)(x, axis=1), x=x)
    np.testing.assert_allclose(got, getattr(x.astype("float64"), name)(1), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 20, 7, 7), (2, 9, 14, 14), (3, 5, 3, 5, 7), (1, 30, 1, 9), (40, 6, 8)])
@pytest.mark.parametrize("name", ["sum", "max", "mean"])
def test_reduction_before_short_axes(name: str, shape: tuple[int, ...]) -> None:
    x = normal(sum(shape), *shape)
    got = compiled(lambda x: get_op(name)(x, axis=1, keepdims=True), x=x)
    expected = getattr(x.astype("float64"), name)(1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


def test_reduction_keeps_nan_and_infinity() -> None:
    x = normal(1, 4, 40)
    x[0, 35], x[1, 3], x[2, 17] = np.nan, np.inf, -np.inf
    got = compiled(lambda x: relay.max(x, axis=1), x=x)
    np.testing.assert_array_equal(got, x.max(1))


def test_reduction_over_two_axes_and_a_product() -> None:
    x, y = normal(2, 3, 6, 21), normal(3, 3, 6, 21)
    got = compiled(lambda x, y: relay.sum(x * y, axis=(1, 2)), x=x, y=y)
    np.testing.assert_allclose(got, (x.astype("float64") * y).sum((1, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("extent", "lanes", "count"),
    [(45, 16, 2), (101, 32, 3), (256, 64, 4), (1008, 16, 63), (3000, 64, 46)],
    ids=["short", "two-vectors-side-by-side", "four", "what-is-left-over-is-no-full-vector", "or-is-little"],
)
def test_partial_sums_live_in_vectors(extent: int, lanes: int, count: int) -> None:
    x, k = te.placeholder((8, extent), "float32", "x"), te.reduce_axis((0, extent), "k")
    total = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="t")
    schedule = te.create_schedule(total.op)
    axis = contiguous_axis(schedule, total.op)
    assert axis is not None
    reduce_in_lanes(schedule, total, axis, cpu_model(AVX))
    text = str(lower_function(lower_schedule(schedule, [x, total], "f"), constant_loops=True))
    if count > 4:
        assert f"for k_outer in range({count})" in text, "the tail must be outside the loop"
    assert f"t_rf[ramp(0, 1, {lanes})] + x[ramp(i * {extent}" in text


def test_lanes_go_to_the_data_axis_where_that_is_contiguous() -> None:
    x, k = te.placeholder((8, 32), "float32", "x"), te.reduce_axis((0, 8), "k")
    total = te.compute((32,), lambda i: te.sum(x[k, i], axis=k), name="t")
    assert contiguous_axis(te.create_schedule(total.op), total.op) is None


@pytest.mark.parametrize("shape", [(2, 3), (3, 16), (4, 45), (2, 3, 197), (7,)])
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_softmax(name: str, shape: tuple[int, ...]) -> None:
    x = 5 * normal(4, *shape)
    e = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True)
    got = compiled(lambda x: get_op(name)(x), x=x)
    np.testing.assert_allclose(np.exp(got) if name == "nn.log_softmax" else got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64", "c"])
@pytest.mark.parametrize("shape", [(500, 7), (2, 33, 17), (16, 2), (3, 2, 19, 31), (20, 16), (600, 24), (9, 12, 12)])
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax", "nn.standardize"])
def test_short_rows_a_vector_at_a_time(name: str, shape: tuple[int, ...], target: str) -> None:
    if target.startswith("llvm -m") and platform.machine() != "x86_64":
        pytest.skip("names of x86 CPUs")
    x, y = 5 * normal(20, *shape), normal(21, shape[-1])
    wide = x.astype("float64") - x.max(-1, keepdims=True)
    total, deviation = np.exp(wide).sum(-1, keepdims=True), wide - wide.mean(-1, keepdims=True)
    expected = {
        "nn.softmax": np.exp(wide) / total,
        "nn.log_softmax": wide - np.log(total),
        "nn.standardize": deviation / np.sqrt(wide.var(-1, keepdims=True) + 1e-5),
    }[name]
    got = compiled(lambda x, y: get_op(name)(relay.negative(x)) * y, target, x=-x, y=y)
    np.testing.assert_allclose(got, expected * y, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("shape", "attrs", "reason"),
    [
        ((500, 7), {}, None),
        ((500, 17), {}, None),
        ((500, 32), {}, "rows of 32 fill vectors of 16"),
        ((500, 33), {}, "rows of 33 fill vectors of 16"),
        ((100, 12, 7), {}, None),
        ((100, 7, 7), {}, "7 rows in a run are fewer than half of 16 lanes"),
        ((7, 500), {"axis": 0}, "not the last axis alone"),
    ],
)
def test_rows_are_short_where_they_leave_lanes_empty(shape: tuple[int, ...], attrs: Any, reason: str | None) -> None:
    op = get_op("nn.softmax")
    row, reasons = choose(Workload(op, op.attrs_class(**attrs), (TensorType(shape, "float32"),), Target(AVX)))
    assert (row.name == "softmax_short") == (reason is None)
    assert reasons[:1] == (() if reason is None else (f"softmax_short: {reason}",))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 21, 8, 16), 1),
        ((2, 16, 4, 25), 1),
        ((12, 30, 8), 1),
        ((9, 20, 3), 1),
        ((40, 33), 0),
        ((3, 5, 7, 11, 13), 2),
        ((30, 17, 1), 1),
        ((6, 40, 1, 1), 1),
    ],
    ids=["channels", "fused-axes-a-tile-cuts", "half-a-vector", "less", "first", "three-behind", "one", "two-ones"],
)
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax", "nn.standardize"])
def test_rows_that_lie_across_memory(name: str, shape: tuple[int, ...], axis: int, target: str) -> None:
    if target.startswith("llvm -m") and platform.machine() != "x86_64":
        pytest.skip("names of x86 CPUs")
    x, y = 5 * normal(22, *shape), normal(23, *shape[1:])
    wide = x.astype("float64") - x.max(axis, keepdims=True)
    total, deviation = np.exp(wide).sum(axis, keepdims=True), wide - wide.mean(axis, keepdims=True)
    expected = {
        "nn.softmax": np.exp(wide) / total,
        "nn.log_softmax": wide - np.log(total),
        "nn.standardize": deviation / np.sqrt(wide.var(axis, keepdims=True) + 1e-5),
    }[name]
    got = compiled(lambda x, y: get_op(name)(relay.negative(x), axis=axis) * y, target, x=-x, y=y)
    np.testing.assert_allclose(got, expected * y, rtol=2e-5, atol=2e-5)


def test_standardize_over_axes_in_the_middle() -> None:
    x = 3 + normal(24, 3, 4, 5, 40)
    wide = x.astype("float64")
    expected = (wide - wide.mean((1, 2), keepdims=True)) / np.sqrt(wide.var((1, 2), keepdims=True) + 1e-5)
    got = compiled(lambda x: relay.nn.standardize(x, axis=(1, 2)), x=x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "width"), [((1, 16, 4, 2100), 112), ((3, 16, 4, 2100), 112), ((3, 5, 16, 30, 35), 128)]
)
def test_a_tile_of_columns_is_as_wide_as_its_readers_ask(shape: tuple[int, ...], width: int) -> None:
    """Axes behind the sum are fused and cut where no axis ends: what the tile computes is no wider for that."""
    op = get_op("nn.softmax")
    x, axis = te.placeholder(shape, "float32", "x"), shape.index(16)
    workload = Workload(op, op.attrs_class(axis=axis), (TensorType(shape, "float32"),), Target(AVX))
    row, _ = choose(workload)
    assert row.name == "softmax_across" and row.compute is not None
    y = row.compute(workload.attrs, x)
    schedule = te.create_schedule(y.op)
    row.schedule(schedule, Fused(workload, (y,), (y,), (x,)))
    assert f"alloc softmax_max: Buffer[(1, {width})" in str(lower_schedule(schedule, [x, y], "f"))


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 45), (1, 2, 100)])
def test_layer_norm_with_everything_around_it_is_one_kernel(shape: tuple[int, ...]) -> None:
    x, g, b = 3 + normal(5, *shape), normal(6, shape[-1]), normal(7, shape[-1])
    wide = x.astype("float64")
    y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    got = compiled(lambda x, g, b: relay.nn.relu(relay.nn.layer_norm(x, g, b)), x=x, g=g, b=b)
    np.testing.assert_allclose(got, np.maximum(y * g + b, 0), rtol=1e-4, atol=1e-5)


def test_group_norm() -> None:
    x, g, b = normal(8, 2, 6, 5, 7), normal(9, 6), normal(10, 6)
    wide = x.astype("float64").reshape(2, 3, -1)
    y = ((wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    got = compiled(lambda x, g, b: relay.nn.group_norm(x, g, b, num_groups=3), x=x, g=g, b=b)
    np.testing.assert_allclose(got, y * g[:, None, None] + b[:, None, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "keys"), [(1, 9), (8, 16), (37, 21), (23, 48), (12, 60)])
@pytest.mark.parametrize("features", [8, 16, 40])
@pytest.mark.parametrize("mask_shape", [(), (2, 1, 1), (2, 3, 0)], ids=["plain", "row", "whole"])
def test_attention(rows: int, keys: int, features: int, mask_shape: tuple[int, ...]) -> None:
    q, k, v = normal(11, 2, rows, 3, features), normal(12, 2, keys, 3, features), normal(13, 2, keys, 3, features)
    mask = {"m": normal(14, *(n or rows for n in mask_shape), keys)} if mask_shape else {}
    scores = np.einsum("bthd,bshd->bhts", q.astype("float64"), k) * 0.3 + mask.get("m", 0)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhts,bshd->bthd", e / e.sum(-1, keepdims=True), v)
    op = get_op("nn.masked_attention" if mask else "nn.attention")
    got = compiled(lambda **x: op(*x.values(), scale=0.3), q=q, k=k, v=v, **mask)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key_layout", ["BTHD", "BHDT"])
@pytest.mark.parametrize(("rows", "keys", "features"), [(1, 37, 64), (2, 16, 24), (3, 21, 136), (1, 5, 6)])
def test_attention_of_few_rows_reads_keys_where_they_lie(rows: int, keys: int, features: int, key_layout: str) -> None:
    q, k, v = normal(11, 1, rows, 4, features), normal(12, 1, keys, 2, features), normal(13, 1, keys, 2, features)
    scores = np.einsum("bthd,bshd->bhts", q.astype("float64"), np.repeat(k, 2, 2)) * 0.3
    e = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhts,bshd->bthd", e / e.sum(-1, keepdims=True), np.repeat(v, 2, 2))
    op = get_op("nn.attention")
    attrs = {"scale": 0.3, "shared": 2, "key_layout": key_layout}
    turned = np.ascontiguousarray(k.transpose(["BTHD".index(c) for c in key_layout]))
    got = compiled(lambda **x: op(*x.values(), **attrs), q=q, k=turned, v=v)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    types = [TensorType(x.shape, "float32") for x in (q, turned, v)]
    row, _ = choose(Workload(op, op.attrs_class(**attrs), tuple(types), Target(AVX)))
    assert row.name == "attention_few_rows"


def test_attention_of_scores_that_are_no_numbers_is_no_number() -> None:
    q, k, v = normal(11, 1, 9, 2, 16), normal(12, 1, 40, 2, 16), normal(13, 1, 40, 2, 16)
    q[0, 3, 1, 5], k[0, 33, 0, 2] = np.nan, np.nan
    got = compiled(lambda **x: get_op("nn.attention")(*x.values()), q=q, k=k, v=v)
    assert np.isnan(got[0, 3, 1]).all() and np.isnan(got[0, :, 0]).all()
    assert np.isfinite(np.delete(got[0, :, 1], 3, axis=0)).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64"])
def test_attention_in_front_of_another_type(dtype: str) -> None:
    q, k, v = normal(11, 2, 5, 3, 8), normal(12, 2, 6, 3, 8), normal(13, 2, 6, 3, 8)
    op = get_op("nn.attention")
    plain = compiled(lambda **x: op(*x.values()), q=q, k=k, v=v)

    def changed(**x: Any) -> Any:
        return op(*x.values()) < relay.const(np.float32(0.1)) if dtype == "bool" else relay.cast(op(*x.values()), dtype)

    got = compiled(changed, q=q, k=k, v=v)
    np.testing.assert_array_equal(got, plain < np.float32(0.1) if dtype == "bool" else plain.astype(dtype))


@X86
@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "c"])
@pytest.mark.parametrize("name", ["attention", "norm", "product"])
def test_other_vector_lengths(name: str, target: str) -> None:
    x = normal(19, 1, 21, 2, 24)
    wide = x.astype("float64")
    scores = np.einsum("bthd,bshd->bhts", wide, wide)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    bodies: dict[str, tuple[Any, np.ndarray]] = {
        "attention": (
            lambda x: get_op("nn.attention")(x, x, x),
            np.einsum("bhts,bshd->bthd", e / e.sum(-1, keepdims=True), wide),
        ),
        "norm": (
            lambda x: get_op("nn.standardize")(x),
            (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5),
        ),
        "product": (
            lambda x: relay.nn.batch_matmul(relay.reshape(x, (21, 2, 24)), relay.reshape(x, (21, 2, 24))),
            wide[0] @ wide[0].swapaxes(1, 2),
        ),
    }
    body, expected = bodies[name]
    np.testing.assert_allclose(compiled(body, target, x=x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", [1, 5, 64, 128, 197, 384])
def test_attention_tiles_fit_the_registers(positions: int) -> None:
    model = cpu_model(AVX)
    plan = plan_of(sizes_of(AttentionAttrs(), [(1, positions, 2, 64)] * 3), model, model.lanes)
    assert plan.rows * plan.keys + plan.keys + 1 <= model.vector_registers
    assert plan.rows * plan.features + plan.features + 1 <= model.vector_registers
    assert -(-positions // plan.rows) * plan.rows < 1.15 * positions + 1


@pytest.mark.parametrize("name", ["haswell", "alderlake", "sapphirerapids"])
def test_tiles_of_attention_keep_two_ports_busy(name: str) -> None:
    model = cpu_model(f"llvm -mcpu={name} -mtriple=x86_64-linux-gnu")
    plan = plan_of(sizes_of(AttentionAttrs(), [(1, 197, 6, 64)] * 3), model, model.lanes)
    assert plan.rows * min(plan.keys, plan.features) > model.fma_chains


@pytest.mark.parametrize(("m", "k", "n"), [(197, 16, 197), (12, 40, 13), (9, 8, 33), (5, 3, 4)])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_batched_product_with_columns_that_fill_no_vector(m: int, k: int, n: int, transpose_b: bool) -> None:
    a, b = normal(15, 2, m, k), normal(16, 2, *((n, k) if transpose_b else (k, n)))
    got = compiled(lambda a, b: relay.nn.batch_matmul(a, b, transpose_b=transpose_b) + relay.const(1.0), a=a, b=b)
    expected = a.astype("float64") @ (b.swapaxes(1, 2) if transpose_b else b) + 1
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("m", "k", "n", "copies"),
    [(8, 24, 512, False), (16, 24, 512, False), (17, 24, 512, True), (100, 24, 64, False), (9, 8, 33, True)],
)
def test_right_hand_side_is_read_where_it_lies(m: int, k: int, n: int, copies: bool) -> None:
    a, b = normal(22, 2, m, k), normal(23, 2, k, n)
    expected = np.maximum(a.astype("float64") @ b, 0)
    batch_matmul = get_op("nn.batch_matmul")

    def body(a: Any, b: Any) -> Any:
        return relay.nn.relu(batch_matmul(a, b, transpose_b=False))

    np.testing.assert_allclose(compiled(body, a=a, b=b), expected, rtol=1e-4, atol=1e-5)
    negative = compiled(lambda a, b: body(a, relay.negative(b)), a=a, b=-b)
    np.testing.assert_allclose(negative, expected, rtol=1e-4, atol=1e-5)
    attrs = batch_matmul.attrs_class(transpose_b=False)
    with Target(AVX):
        product = packed_product(attrs, *(te.placeholder(x.shape, "float32", "x") for x in (a, b)))
    schedule = te.create_schedule(product.op)
    assert any(stage.op.name == "packed" for stage in schedule.stages) == copies


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((19, 37), (1, 0)),
        ((64, 48), (1, 0)),
        ((2, 33, 48), (0, 2, 1)),
        ((3, 20, 4, 18), (0, 2, 3, 1)),
        ((5, 4, 6), (2, 1, 0)),
    ],
)
@pytest.mark.parametrize("target", ["llvm", pytest.param("llvm -mcpu=haswell", marks=X86)])
def test_transposition(shape: tuple[int, ...], axes: tuple[int, ...], target: str) -> None:
    x, y = normal(17, *shape), normal(18, *(shape[a] for a in axes))
    got = compiled(lambda x, y: relay.transpose(x, axes) + y, target, x=x, y=y)
    np.testing.assert_array_equal(got, x.transpose(axes) + y)


def test_crossing_axis_of_a_transposition_only() -> None:
    x = te.placeholder((8, 32), "float32", "x")
    crossed, plain = te.compute((32, 8), lambda i, j: x[j, i]), te.compute((8, 32), lambda i, j: x[i, j] + x[0, j])
    twice = te.compute((32, 8), lambda i, j: crossed[i, j] * 2.0)
    schedule = te.create_schedule([twice.op, plain.op])
    assert crossing_axis(schedule, crossed.op) is crossed.op.axis[0]
    assert crossing_axis(schedule, twice.op) is None
    schedule[crossed].compute_inline()
    assert crossing_axis(schedule, twice.op) is twice.op.axis[0], "what is inlined counts"
    assert crossing_axis(schedule, plain.op) is None


def test_attention_over_keys_that_fill_no_vector_has_no_condition_in_its_vectors() -> None:
    op, shape = get_op("nn.attention"), TensorType((1, 6, 2, 16), "float32")
    query = [te.placeholder((1, keys, 2, 16), "float32", "x") for keys in (6, 60, 60)]
    types = (shape, *[TensorType((1, 60, 2, 16), "float32")] * 2)
    workload = Workload(op, op.attrs_class(), types, Target(AVX))
    row, _ = choose(workload)
    assert row.compute is not None
    with workload.target:
        result = row.compute(workload.attrs, *query)
    schedule = te.create_schedule(result.op)
    row.schedule(schedule, Fused(workload, (result,), (result,), tuple(query)))
    text = str(lower_function(lower_schedule(schedule, [*query, result], "f")))
    inside = text[text.index("attention_products") :]
    assert "if_then_else" not in inside and "if " not in inside
    assert all("attention_max" in line for line in inside.splitlines() if "select" in line)


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (1, 5, 14, 14), (2, 2, 5, 3, 4), (3, 4, 1, 9), (3, 4, 9, 1)])
@pytest.mark.parametrize("where", ["channel", "line", "column"])
def test_images_are_standardised_as_one_row(shape: tuple[int, ...], where: str) -> None:
    of = {"channel": (shape[1], *[1] * (len(shape) - 2)), "line": (*shape[2:-1], 1), "column": shape[-1:]}[where]
    x = normal(len(shape), *shape)
    axes = tuple(range(2, len(shape)))
    scale = normal(1, *of)
    got = compiled(lambda x, scale: relay.nn.standardize(x, axes) * scale, x=x, scale=scale)
    wide = x.astype("float64")
    wide = wide - wide.mean(axes, keepdims=True)
    expected = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("size", [7, 16, 49, 64, 197, 208])
def test_rows_with_what_is_no_number(name: str, size: int) -> None:
    x = normal(size, 6, size)
    x[0, size // 2] = x[1, 0] = x[1, -1] = np.nan
    x[2], x[3, 1], x[4, ::2] = np.nan, np.inf, -np.inf
    got = compiled(lambda x: get_op(f"nn.{name}")(x), x=x)
    with np.errstate(invalid="ignore", divide="ignore"):
        powers = np.exp(x.astype("float64") - x.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
        expected = expected if name == "softmax" else np.log(expected)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    assert np.isnan(got[:4]).all() and not np.isnan(got[4:]).any()
