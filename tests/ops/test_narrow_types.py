"""Counts and sizes that a narrow type does not hold: results are those of wide arithmetic, or the type is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sampling

from armillary import relay, te
from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr
from armillary.relay.op import OPS, Op
from armillary.relay.types import TensorType
from armillary.tir import build as T
from armillary.tir.expr import FloatImm
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
WRITTEN_AS_LOOPS = ("argsort", "cumprod", "cumsum", "sort", "topk")
FLOATS = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _float_constants(outputs: Any) -> Iterator[tuple[str, float]]:
    """Type and value of every constant in the stages behind some tensors."""
    todo, seen = list(outputs) if isinstance(outputs, list | tuple) else [outputs], set()
    while todo:
        op = todo.pop().op
        if id(op) in seen:
            continue
        seen.add(id(op))
        todo.extend(op.input_tensors)
        for body in op.body if isinstance(op, te.ComputeOp) else ():
            yield from ((str(e.dtype), e.value) for e in post_order(body) if isinstance(e, FloatImm))


def _large(op: Op) -> tuple[Any, list[TensorType]] | None:
    """Attributes and types of the first sample that may be float16 and 70,001 times as long along every axis."""
    for sample in sampling.list_samples(op):
        if not sample.inputs or not all(isinstance(x, TensorType) for x in sample.inputs):
            continue
        shapes = [tuple(d * 70_001 if d > 1 else d for d in x.static) for x in sample.inputs]
        kinds = [DType("float16") if x.dtype.is_float else x.dtype for x in sample.inputs]
        types = [TensorType(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
        try:
            Call(op, tuple(relay.var(f"x{k}", ty) for k, ty in enumerate(types)), sample.attrs).checked_type  # noqa: B018
        except ArmillaryError:
            continue
        return sample.attrs, types
    return None


def test_no_operator_makes_a_float16_of_a_count_or_its_inverse() -> None:
    """Whatever the extents: a constant is 0, infinite, or of a size that float16 holds with all its digits."""
    checked, lost = 0, []
    for name, op in sorted(OPS.items()):
        large = _large(op) if op.compute_rule is not None else None
        if large is None or name in WRITTEN_AS_LOOPS:
            continue
        attrs, types = large
        assert op.compute_rule is not None, "just seen"
        outputs = op.compute_rule(attrs, *(te.placeholder(t.static, str(t.dtype)) for t in types))
        numbers = [value for kind, value in _float_constants(outputs) if kind == "float16" and np.isfinite(value)]
        lost += [(name, value) for value in numbers if value and not 6.1e-5 < abs(value) <= 65504]
        checked += 1
    assert not lost
    assert checked > 80


def _variables(*arrays: Array) -> list[relay.Var]:
    return [relay.var(f"x{k}", shape=a.shape, dtype=a.dtype.name) for k, a in enumerate(arrays)]


def _check(inputs: list[relay.Var], body: Expr, arrays: list[Array], wanted: Any, rtol: float = 0.0) -> None:
    """By the interpreter and at the lowest and highest level."""
    function = relay.Function(inputs, body)
    found = [np.asarray(evaluate(function, arrays))]
    for level in (0, 3):
        with PassContext(opt_level=level):
            graph = relay.build(function, "llvm")["default"]()
        for variable, array in zip(inputs, arrays, strict=True):
            graph.set_input(variable.name_hint, array)
        graph.run()
        found.append(graph.get_output(0).numpy())
    for got in found:
        np.testing.assert_allclose(got.astype(np.float64), np.asarray(wanted, np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["variance", "std", "mean", "logsumexp"])
def test_reductions_over_more_elements_than_a_float_counts(name: str, dtype: Any) -> None:
    x = np.random.default_rng(0).random((2, 70_000)).astype(dtype)
    (data,), exact = _variables(x), x.astype(np.float64)
    wanted = {
        "variance": exact.var(1),
        "std": exact.std(1),
        "mean": exact.mean(1),
        "logsumexp": np.log(np.exp(exact).sum(1)),
    }
    _check([data], getattr(relay, name)(data, axis=1), [x], wanted[name], 2e-2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["mean_variance", "mean_std"])
def test_pairs_of_moments_over_large_shapes(name: str, dtype: Any) -> None:
    x = np.random.default_rng(1).random((2, 70_000)).astype(dtype)
    (data,), exact = _variables(x), x.astype(np.float64)
    spread = exact.var(1) if name == "mean_variance" else exact.std(1)
    for field, wanted in enumerate((exact.mean(1), spread)):
        _check([data], getattr(relay, name)(data, axis=1)[field], [x], wanted, 2e-2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_squares_beyond_a_float_have_a_deviation_within(dtype: Any) -> None:
    x = np.tile([300, 900], (2, 25)).astype(dtype)
    (data,) = _variables(x)
    _check([data], relay.std(data, axis=1), [x], np.full(2, 300.0), 1e-2)


POOLS = {
    "avg_pool2d": {"pool_size": (300, 300)},
    "global_avg_pool2d": {},
    "adaptive_avg_pool2d": {"output_size": (1, 1)},
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_means_of_windows_larger_than_a_float_counts(name: str, dtype: Any) -> None:
    x = np.random.default_rng(2).random((1, 2, 300, 300)).astype(dtype)
    (data,) = _variables(x)
    body = getattr(relay.nn, name)(data, **POOLS[name])
    _check([data], body, [x], x.astype(np.float64).mean((2, 3), keepdims=True), 2e-2)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_means_of_integers_whose_sums_are_wide(dtype: str) -> None:
    x = np.random.default_rng(3).integers(50, 100, (1, 2, 20, 20)).astype(dtype)
    (data,) = _variables(x)
    wanted = x.astype(np.int64).sum((2, 3), keepdims=True) // 400
    for body in (
        relay.nn.avg_pool2d(data, pool_size=(20, 20)),
        relay.nn.global_avg_pool2d(data),
        relay.nn.adaptive_avg_pool2d(data, output_size=(1, 1)),
        relay.mean(data, axis=(2, 3), keepdims=True),
    ):
        _check([data], body, [x], wanted)


def _indexed(name: str, data: Array, places: Array) -> tuple[list[relay.Var], Expr, list[Array], Array]:
    """A call that reads or writes `data` at `places`, and what it gives."""
    at, ones = places.astype(np.int64), np.full(places.shape, -1, np.float32)
    if name == "scatter_elements":
        x, i, u = _variables(data, places, ones)
        wanted = data.copy()
        wanted[at] = -1
        return [x, i, u], relay.scatter_elements(x, i, u, axis=0), [data, places, ones], wanted
    if name == "one_hot":
        (i,) = _variables(places)
        body = relay.one_hot(i, relay.const(1.0), relay.const(0.0), data.size, -1, "float32")
        return [i], body, [places], np.equal.outer(at, np.arange(data.size))
    x, i = _variables(data, places[None] if name == "gather_nd" else places)
    body = {
        "take": lambda: relay.take(x, i, axis=0),
        "wrap": lambda: relay.take(x, i, axis=0, mode="wrap"),
        "flat": lambda: relay.take(x, i),
        "gather": lambda: relay.gather(x, 0, i),
        "gather_nd": lambda: relay.gather_nd(x, i),
    }[name]()
    return [x, i], body, [data, places[None] if name == "gather_nd" else places], data[at % data.size]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [200, 256, 300])
@pytest.mark.parametrize("name", ["take", "wrap", "flat", "gather", "gather_nd", "scatter_elements", "one_hot"])
def test_narrow_indices_of_an_axis_longer_than_they_count(name: str, size: int, dtype: str) -> None:
    places = np.array([0, 5, min(np.iinfo(dtype).max, size - 1)], dtype)
    inputs, body, arrays, wanted = _indexed(name, np.arange(size, dtype=np.float32), places)
    _check(inputs, body, arrays, wanted)


@pytest.mark.parametrize("name", ["wrap", "gather", "gather_nd"])
def test_negative_narrow_indices_count_from_the_end(name: str) -> None:
    inputs, body, arrays, wanted = _indexed(name, np.arange(200, dtype=np.float32), np.array([-1, -128, 3], np.int8))
    _check(inputs, body, arrays, wanted)


def test_narrow_lengths_of_a_longer_axis_reverse_what_they_say() -> None:
    x, lengths = np.arange(400, dtype=np.float32).reshape(200, 2), np.array([127, 2], np.int8)
    data, counts = _variables(x, lengths)
    wanted = x.copy()
    wanted[:127, 0], wanted[:2, 1] = x[:127, 0][::-1], x[:2, 1][::-1]
    _check([data, counts], relay.reverse_sequence(data, counts, seq_axis=0, batch_axis=1), [x, lengths], wanted)


def test_positions_and_sizes_that_a_type_lacks_are_refused() -> None:
    data = relay.var("x", shape=(200,))
    for call in (
        lambda: relay.argsort(data, dtype="int8"),
        lambda: relay.topk(data, 3, ret_type="indices", dtype="int8"),
        lambda: relay.shape_of(data, dtype="int8"),
        lambda: relay.ndarray_size(data, dtype="int8"),
    ):
        with pytest.raises(TypeMismatch, match="dtype int8 does not hold"):
            call().checked_type  # noqa: B018
    assert relay.argsort(relay.var("x", shape=(128,)), dtype="int8").checked_type.dtype == "int8"


@pytest.mark.parametrize(
    ("dtype", "number", "wanted"),
    [
        ("int8", 100, "int8"),
        ("int8", 200, "int32"),
        ("uint8", 255, "uint8"),
        ("uint8", 256, "int32"),
        ("uint8", -1, "uint8"),
        ("float16", 60_000.0, "float16"),
        ("float16", 70_000, "float32"),
        ("float16", float("inf"), "float16"),
        ("bfloat16", 70_000, "bfloat16"),
    ],
)
def test_a_number_takes_the_type_of_the_other_side_where_that_holds_it(dtype: str, number: Any, wanted: str) -> None:
    x = te.var("x", dtype)
    assert [e.dtype for e in T.match_types(x, number)] == [wanted, wanted]
    assert [e.dtype for e in T.match_types(number, x)] == [wanted, wanted]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["lrn", "correlation"])
def test_shares_and_squares_that_a_float_does_not_hold(name: str, dtype: Any) -> None:
    """The share of one element, 1/3000 or 0.0001/5, keeps few bits in float16; the square of 900 none."""
    x = (np.random.default_rng(4).random((1, 3000, 2, 3)) * (900 if name == "lrn" else 9)).astype(dtype)
    (data,), exact = _variables(x), x.astype(np.float64)
    if name == "lrn":
        squares = np.pad(np.square(exact), [(0, 0), (2, 2), (0, 0), (0, 0)])
        wanted = exact / (2 + 1e-4 / 5 * sum(squares[:, k : k + 3000] for k in range(5))) ** 0.75
        _check([data], relay.nn.lrn(data, size=5, bias=2.0, alpha=1e-4), [x], wanted, 2e-2)
    else:
        body = relay.nn.correlation(data, data, 1, 0, 1, 1, (0, 0), True)
        _check([data], body, [x], np.square(exact).mean(1, keepdims=True), 2e-2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_sum_of_exponentials_beyond_a_float_has_a_logarithm(dtype: Any) -> None:
    x = np.random.default_rng(5).random((2, 150_000)).astype(dtype)
    (data,), exact = _variables(x), x.astype(np.float64)
    _check([data], relay.logsumexp(data), [x], np.log(np.exp(exact).sum()), 2e-2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("method", ["nearest", "bilinear"])
def test_places_in_a_row_longer_than_a_float_counts(method: str, dtype: Any) -> None:
    x = np.arange(6000, dtype=np.int64).reshape(1, 1, 1, 6000) % 251
    grid = np.array([-0.984375, -0.5, 0.25, 0.99609375]).reshape(1, 1, 4)  # exact in both types
    arrays = [x.astype(dtype), np.stack([grid, np.zeros_like(grid)], 1).astype(dtype)]
    data, where = _variables(*arrays)
    places = (grid + 1) * 5999 / 2
    low = np.floor(places).astype(int)
    row, part = arrays[0].astype(np.float64)[0, 0, 0], places - low
    between = row[low] * (1 - part) + row[np.minimum(low + 1, 5999)] * part
    wanted = row[np.rint(places).astype(int)] if method == "nearest" else between
    _check([data, where], relay.image.grid_sample(data, where, method), arrays, wanted[None], 1e-2)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_means_of_integers_are_sums_over_counts_and_never_one_less(dtype: str) -> None:
    x = np.random.default_rng(6).integers(np.iinfo(dtype).min, 100, (1, 60, 7, 6)).astype(dtype)
    (data,) = _variables(x)
    sums = x.astype(np.int64).sum((2, 3), keepdims=True)
    body = relay.nn.adaptive_avg_pool2d(data, output_size=(1, 1))
    _check([data], body, [x], np.sign(sums) * (np.abs(sums) // 42))
