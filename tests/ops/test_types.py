"""Facts about operators that samples cannot state: unknown dimensions, Python operators, users' functions."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.errors import TypeMismatch
from armillary.ops.elementwise.broadcast import add, multiply
from armillary.ops.misc.linalg import einsum
from armillary.ops.misc.user import FUNCTIONS
from armillary.ops.reduce.reduce import sum_
from armillary.ops.shape.indexing import TakeAttrs, take_reference
from armillary.ops.shape.shape import reshape, squeeze, transpose
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import concatenate, split
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Tuple, const, var
from armillary.relay.lazy_registry import module_names
from armillary.relay.op import OPS
from armillary.relay.types import ANY_DIM, tensor_type

assert module_names()
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _unknown(*shape: int) -> object:
    return var("x", tensor_type(shape))


@pytest.mark.parametrize(
    ("expr", "shape"),
    [
        (lambda x: add(x, const(np.ones(4, np.float32))), (ANY_DIM, 4)),
        (lambda x: multiply(x, x), (ANY_DIM, 4)),
        (lambda x: transpose(x), (4, ANY_DIM)),
        (lambda x: reshape(x, (0, 2, 2)), (ANY_DIM, 2, 2)),
        (lambda x: reshape(x, (0, -1)), (ANY_DIM, 4)),
        (lambda x: reshape(x, (-1,)), (ANY_DIM,)),
        (lambda x: sum_(x, 0), (4,)),
        (lambda x: concatenate(Tuple((x, x)), 0), (ANY_DIM, 4)),
        (lambda x: concatenate(Tuple((x, x)), 1), (ANY_DIM, 8)),
        (lambda x: strided_slice(x, (0,), (2,), None, (1,)), (ANY_DIM, 2)),
        (lambda x: squeeze(x, (0,)), (4,)),
    ],
)
def test_unknown_dimensions_propagate(expr, shape) -> None:
    assert expr(_unknown(-1, 4)).checked_type.shape == shape


def test_split_of_an_unknown_axis_has_unknown_parts() -> None:
    assert [t.shape for t in split(_unknown(-1, 4), 2).checked_type.fields] == [(ANY_DIM, 4)] * 2


def test_python_operators_build_calls_with_constants_of_the_other_side() -> None:
    x = Constant(X)
    np.testing.assert_allclose(evaluate(2 * x - x / 4 + 1), 2 * X - X / 4 + 1)
    np.testing.assert_array_equal(evaluate(-x <= 0), -X <= 0)


def test_every_operator_that_scripts_call_by_another_order_has_a_function() -> None:
    assert set(FUNCTIONS) >= {"gather", "mean_std", "mean_variance", "meshgrid", "std", "variance", "stft", "dft"}
    assert all(callable(function) and function.__doc__ for function in FUNCTIONS.values())


def test_gather_takes_the_axis_second() -> None:
    picked = evaluate(FUNCTIONS["gather"](Constant(X), 2, const(np.zeros((2, 3, 1), np.int32))))
    np.testing.assert_array_equal(picked, X[..., :1])


def test_std_and_variance_are_those_of_numpy() -> None:
    np.testing.assert_allclose(evaluate(FUNCTIONS["std"](Constant(X), 1)), X.std(1), rtol=1e-5)
    np.testing.assert_allclose(evaluate(FUNCTIONS["variance"](Constant(X), (0, 2))), X.var((0, 2)), rtol=1e-5)
    mean, deviation = evaluate(FUNCTIONS["mean_std"](Constant(X), 0, True))
    np.testing.assert_allclose(mean, X.mean(0, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(deviation, X.std(0, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid_is_that_of_numpy(indexing: str) -> None:
    vectors = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    got = evaluate(FUNCTIONS["meshgrid"]([Constant(v) for v in vectors], indexing))
    for g, w in zip(got, np.meshgrid(*vectors, indexing=indexing), strict=True):
        np.testing.assert_array_equal(g, w)


def test_meshgrid_refuses_a_matrix() -> None:
    with pytest.raises(TypeMismatch, match="wanted a vector"):
        FUNCTIONS["meshgrid"]([Constant(X)])


def test_reduction_without_axes_of_an_einsum_sums_everything() -> None:
    np.testing.assert_allclose(evaluate(einsum(Tuple((Constant(X),)), "abc->")), X.sum(), rtol=1e-6)


def test_operator_names_are_lower_case() -> None:
    plain = [name.removesuffix("_int8").removesuffix("_bf16") for name in OPS]
    assert [name for name in plain if name != name.lower() and not name.endswith("NCHWc")] == []


def test_take_of_flattened_data_has_no_batch_axes() -> None:
    data, indices = np.arange(6.0, dtype="float32").reshape(2, 3), np.array([4, 0], "int32")
    assert take_reference(TakeAttrs(batch_dims=1), data, indices).tolist() == [4.0, 0.0]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "trunc_divide"])
def test_large_integers_keep_their_digits_where_they_are_rounded(name: str, dtype: str) -> None:
    values = np.array([(1 << 62) + 1, 428121385740743769, 7], dtype)
    others = (np.ones(3, dtype),) * (name == "trunc_divide")
    result = OPS[name].evaluate(None, (values, *others))
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result, values)
