"""ATen's activations, softmax and dropout.

In: a float tensor and the numbers of the activation. Out: the nn.* operator where one fits, else its arithmetic.
Invariant: a function that is applied to integers gives what ATen gives; dropout does nothing, as in inference.
"""

from __future__ import annotations

import math

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    as_float,
    axis_in,
    cast,
    dtype_of,
    is_float,
    op,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Expr


def _like(x: Expr, number: float) -> Expr:
    return scalar(number, dtype_of(x))


@aten("relu")
def relu(call: AtenCall, x: Expr) -> Expr:
    return op("nn.relu", x) if is_float(x) else op("maximum", x, _like(x, 0))


@aten("relu6")
def relu6(call: AtenCall, x: Expr) -> Expr:
    result: Expr = hardtanh(call, x, 0, 6)
    return result


@aten("hardtanh")
def hardtanh(call: AtenCall, x: Expr, low: Value, high: Value) -> Expr:
    if is_float(x):
        return op("clip", x, a_min=float(low), a_max=float(high))
    return op("minimum", op("maximum", x, _like(x, int(low))), _like(x, int(high)))


@aten("leaky_relu")
def leaky_relu(call: AtenCall, x: Expr, slope: Value) -> Expr:
    return op("nn.leaky_relu", x, alpha=float(slope))


@aten("elu")
def elu(call: AtenCall, x: Expr, alpha: Value = 1, scale: Value = 1, input_scale: Value = 1) -> Expr:
    value = op("multiply", x, _like(x, float(input_scale))) if input_scale != 1 else x
    below = op("subtract", op("exp", op("minimum", value, _like(x, 0))), _like(x, 1))
    negative = op("multiply", below, _like(x, float(alpha) * float(scale)))
    positive = op("multiply", x, _like(x, float(scale))) if scale != 1 else x
    return op("where", op("greater", x, _like(x, 0)), positive, negative)


@aten("selu")
def selu(call: AtenCall, x: Expr) -> Expr:
    result: Expr = elu(call, x, 1.6732632423543772, 1.0507009873554805)
    return result


@aten("celu")
def celu(call: AtenCall, x: Expr, alpha: Value) -> Expr:
    result: Expr = elu(call, x, alpha, 1, 1 / float(alpha))
    return result


@aten("gelu")
def gelu(call: AtenCall, x: Expr, approximate: str) -> Expr:
    return op("nn.gelu", x, approximate=approximate)


@aten("silu")
def silu(call: AtenCall, x: Expr) -> Expr:
    return op("multiply", x, op("sigmoid", x))


@aten("mish")
def mish(call: AtenCall, x: Expr) -> Expr:
    return op("multiply", x, op("tanh", softplus(call, x, 1, 20)))


@aten("softplus")
def softplus(call: AtenCall, x: Expr, beta: Value, threshold: Value) -> Expr:
    """log(1 + exp(beta x)) / beta; from the threshold on, x itself."""
    scaled = op("multiply", x, _like(x, float(beta))) if beta != 1 else x
    grown = op("log", op("add", op("exp", op("negative", op("abs", scaled))), _like(x, 1)))
    total = op("add", op("maximum", scaled, _like(x, 0)), grown)
    total = op("divide", total, _like(x, float(beta))) if beta != 1 else total
    return op("where", op("greater", scaled, _like(x, float(threshold))), x, total)


@aten("softsign")
def softsign(call: AtenCall, x: Expr) -> Expr:
    return op("divide", x, op("add", op("abs", x), _like(x, 1)))


@aten("log_sigmoid")
def log_sigmoid(call: AtenCall, x: Expr) -> Expr:
    return op("negative", softplus(call, op("negative", x), 1, math.inf))


@aten("log_sigmoid_forward")
def log_sigmoid_forward(call: AtenCall, x: Expr) -> list[Expr]:
    return [log_sigmoid(call, x), op("zeros", shape=(0,), dtype=dtype_of(x))]


@aten("hardsigmoid")
def hardsigmoid(call: AtenCall, x: Expr) -> Expr:
    shifted = op("clip", op("add", x, _like(x, 3)), a_min=0.0, a_max=6.0)
    return op("divide", shifted, _like(x, 6))


@aten("hardswish")
def hardswish(call: AtenCall, x: Expr) -> Expr:
    return op("multiply", x, hardsigmoid(call, x))


@aten("threshold")
def threshold(call: AtenCall, x: Expr, limit: Value, value: Value) -> Expr:
    return op("where", op("greater", x, _like(x, limit)), x, _like(x, value))


@aten("hardshrink")
def hardshrink(call: AtenCall, x: Expr, limit: Value) -> Expr:
    is_small = op("less_equal", op("abs", x), _like(x, float(limit)))
    return op("where", is_small, _like(x, 0), x)


@aten("softshrink")
def softshrink(call: AtenCall, x: Expr, limit: Value) -> Expr:
    above = op("maximum", op("subtract", x, _like(x, float(limit))), _like(x, 0))
    below = op("minimum", op("add", x, _like(x, float(limit))), _like(x, 0))
    return op("where", op("isnan", x), x, op("add", above, below))


@aten("tanhshrink")
def tanhshrink(call: AtenCall, x: Expr) -> Expr:
    return op("subtract", x, op("tanh", x))


@aten("prelu", "_prelu_kernel")
def prelu(call: AtenCall, x: Expr, weight: Expr) -> Expr:
    if rank_of(weight) == 1 and rank_of(x) > 1:
        count = shape_of(weight)[0]
        weight = reshape_to(weight, tuple(count if k == 1 else 1 for k in range(rank_of(x))))
    return op("where", op("greater", x, _like(x, 0)), x, op("multiply", x, weight))


@aten("rrelu", "rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(call: AtenCall, x: Expr, *arguments: Value) -> Expr:
    numbers = [v for v in arguments if isinstance(v, float)]
    if True in [v for v in arguments if isinstance(v, bool)]:
        call.refuse("it is in training mode, where it is random", "call model.eval() before the export")
    return op("nn.leaky_relu", x, alpha=(numbers[0] + numbers[1]) / 2)


@aten("glu")
def glu(call: AtenCall, x: Expr, dim: int) -> Expr:
    axis = axis_in(dim, rank_of(x))
    half = shape_of(x)[axis] // 2
    first, second = (op("strided_slice", x, begin=(k,), end=(k + half,), axes=(axis,)) for k in (0, half))
    return op("multiply", first, op("sigmoid", second))


def _of_floats(name: str, x: Expr, dim: int, dtype: str | None) -> Expr:
    data = cast(x, dtype) if dtype is not None else as_float(x)
    if not rank_of(x):
        flat = op(name, reshape_to(data, (1,)), axis=0)
        return reshape_to(flat, ())
    return op(name, data, axis=axis_in(dim, rank_of(x)))


@aten("softmax", "special_softmax")
def softmax(call: AtenCall, x: Expr, dim: int, dtype: str | None = None) -> Expr:
    return _of_floats("nn.softmax", x, dim, dtype)


@aten("_softmax", "_log_softmax")
def softmax_kernel(call: AtenCall, x: Expr, dim: int, to_float: bool) -> Expr:
    name = "nn.log_softmax" if "log" in call.name else "nn.softmax"
    return _of_floats(name, x, dim, "float32" if to_float else None)


@aten("log_softmax", "special_log_softmax")
def log_softmax(call: AtenCall, x: Expr, dim: int, dtype: str | None = None) -> Expr:
    return _of_floats("nn.log_softmax", x, dim, dtype)


@aten("_safe_softmax")
def safe_softmax(call: AtenCall, x: Expr, dim: int, dtype: str | None = None) -> Expr:
    """softmax; zeros where a whole row is -inf."""
    data = cast(x, dtype) if dtype is not None else x
    axis = axis_in(dim, rank_of(x))
    is_open = op("any", op("greater", data, _like(data, -math.inf)), axis=(axis,), keepdims=True)
    return op("where", is_open, op("nn.softmax", data, axis=axis), _like(data, 0))


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(call: AtenCall, x: Expr, p: float, train: bool) -> Expr:
    if train and p:
        call.refuse("it is in training mode, where it is random", "call model.eval() before the export")
    return x


@aten("native_dropout")
def native_dropout(call: AtenCall, x: Expr, p: float, train: bool | None) -> list[Expr]:
    if train and p:
        call.refuse("it is in training mode, where it is random", "call model.eval() before the export")
    return [x, op("equal", x, x) if not is_float(x) else op("full_like", op("equal", x, x), scalar(True, "bool"))]
