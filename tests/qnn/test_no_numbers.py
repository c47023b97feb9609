"""NaN, quantised: the zero point in kernels, in constants that are folded, and by the reference."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest

from armillary.driver.build import build
from armillary.ops.qnn.functions import leaky_relu, softmax
from armillary.ops.qnn.quantize import quantize, requantize
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, Function, var
from armillary.relay.types import tensor_type
from armillary.transform import PassContext

Array: TypeAlias = np.ndarray[Any, Any]
X = np.array([[np.nan, 1.0, np.inf, -np.inf]] * 2, np.float32)
SCALES = [(np.nan, 1.0), (1.0, np.nan), (np.inf, np.inf), (0.0, 0.0)]
CASES = [("int8", 7), ("uint8", 7), ("int16", -3), ("int8", [7, -8, 0, 1]), ("uint8", [0, 0, 0, 0]), ("int32", 7)]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("own_type", [False, True])
def test_points_of_each_channel_move_the_limits(dtype: str, own_type: bool) -> None:
    limits = np.iinfo(dtype)
    zeros = np.array([limits.min, -1 if limits.min else 1, 3, min(limits.max, 32767)])
    points = zeros.astype(dtype if own_type else np.int32)
    data = np.concatenate([np.linspace(-600, 600, 301), np.linspace(-2e5, 2e5, 40), [0.5, 1.5, -0.5]])
    x = np.repeat(data.astype(np.float32)[:, None], 4, 1)
    given = var("x", tensor_type(x.shape))
    scale = Constant(np.full(4, 0.5, np.float32))
    function = Function((given,), quantize(given, scale, Constant(points), axis=1, out_dtype=dtype))
    wanted = np.clip(np.rint(x / np.float32(0.5)).astype(np.int64) + zeros, limits.min, limits.max)
    np.testing.assert_array_equal(evaluate(function, [x]), wanted)
    for level in (0, 3):
        with PassContext(opt_level=level):
            graph = build(function, "llvm")["default"]()
        graph.set_input("x", x)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)


def _agree(function: Function, inputs: list[Array], wanted: Array) -> None:
    """Compiled, at two levels, for two targets, it gives what the reference does."""
    for level, target in ((0, "llvm"), (3, "llvm"), (3, "c")):
        with PassContext(opt_level=level):
            graph = build(function, target)["default"]()
        for given, value in zip(function.params, inputs, strict=True):
            graph.set_input(given.name_hint, value)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)


@pytest.mark.parametrize("width", [1, 9])
@pytest.mark.parametrize("own_type", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), CASES, ids=str)
def test_no_number_is_the_zero_point(dtype: str, zero: Any, own_type: bool, width: int) -> None:
    points = np.asarray(zero, dtype if own_type else "int32")
    numbers, last = np.repeat(X, width, 0), points.reshape(-1)
    scales = np.full(points.shape, 0.5, np.float32)
    x, scale, point = (
        var(name, tensor_type(a.shape, str(a.dtype))) for name, a in (("x", numbers), ("scale", scales), ("z", points))
    )

    def made(params: list[Any], data: Expr, *parts: Expr) -> Function:
        return Function(params, quantize(data, *parts, axis=1, out_dtype=dtype))

    known, computed = (Constant(scales), Constant(points)), (scale, point)
    wanted = np.asarray(evaluate(made([x], x, *known), [numbers]))
    assert (wanted[:, 0] == last[0]).all()
    assert (wanted[:, 3] == np.iinfo(dtype).min).all() and (wanted[:, 2] > 100).all()
    _agree(made([x], x, *known), [numbers], wanted)
    _agree(made([], Constant(numbers), *known), [], wanted)
    _agree(made([x, scale, point], x, *computed), [numbers, scales, points], wanted)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("compute", ["float32", "float64"])
@pytest.mark.parametrize("out", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("zero", [5, [5, 1, 0]], ids=str)
@pytest.mark.parametrize(("scale", "to"), SCALES)
def test_factors_that_are_no_numbers_give_the_zero_point(
    scale: float, to: float, zero: Any, out: str, compute: str, known: bool
) -> None:
    sums, points = np.array([[-1000, 0, 77]] * 3, np.int32), np.asarray(zero, np.int32)
    x = var("x", tensor_type(sums.shape, "int32"))
    parts = [np.float32(scale), np.int32(0), np.float32(to), points]
    given = [var(f"p{k}", tensor_type(np.shape(v), str(np.asarray(v).dtype))) for k, v in enumerate(parts)]
    params = [x] if known else [x, *given]
    taken = [Constant(np.asarray(v)) for v in parts] if known else given
    attrs = {"axis": 1, "rounding": "TOEVEN", "compute_dtype": compute, "out_dtype": out}
    inputs = [sums] if known else [sums, *(np.asarray(v) for v in parts)]
    wanted = np.broadcast_to(points, sums.shape)
    function = Function(params, requantize(x, *taken, **attrs))
    np.testing.assert_array_equal(evaluate(function, inputs), wanted)
    _agree(function, inputs, wanted)


@pytest.mark.parametrize(("scale", "to"), [(np.nan, 1.0), (1.0, np.nan)])
@pytest.mark.parametrize("which", ["leaky_relu", "softmax"])
def test_tables_of_no_numbers_hold_the_zero_point(which: str, scale: float, to: float) -> None:
    codes = np.arange(-128, 128, dtype=np.int8).reshape(16, 16)
    x = var("x", tensor_type(codes.shape, "int8"))
    parts = (Constant(np.asarray(v)) for v in (np.float32(scale), np.int32(3), np.float32(to), np.int32(5)))
    function = Function([x], {"leaky_relu": leaky_relu, "softmax": softmax}[which](x, *parts))
    np.testing.assert_array_equal(evaluate(function, [codes]), np.full(codes.shape, 5))
    _agree(function, [codes], np.full(codes.shape, 5, np.int8))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64"])
def test_a_zero_point_may_be_of_any_integer_type(kind: str) -> None:
    values = np.array([-3.0, 0.4, np.nan, 900.0], np.float32)
    x = var("x", tensor_type(values.shape, "float32"))
    zero = Constant(np.asarray(7, kind))
    function = Function([x], quantize(x, Constant(np.float32(2)), zero, out_dtype="int8"))
    wanted = np.array([5, 7, 7, 127], np.int8)
    np.testing.assert_array_equal(evaluate(function, [values]), wanted)
    _agree(function, [values], wanted)
