"""The quantised programs of PT2E (torchao): `quantized_decomposed` operators as qnn operators.

In: tensors, scales and zero points (numbers, tensors, vectors along an axis, one for each row or group), the range of
the integers. Out: `qnn.quantize`, clipped where the range is smaller than the dtype's, and `qnn.dequantize`; scales and
zero points from the data's range, as PyTorch's observers choose them. Invariant: real = (q - zero) * scale; PyTorch
multiplies by 1 / scale where we divide by it, so that what lies within a rounding of a half may be one step off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.dtype import DType
from armillary.frontend.pytorch.table import AtenCall, AtenRule, aten
from armillary.frontend.values import Value, broadcast, cast, is_tensor, op, rank_of, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr

_EPSILON = float(np.finfo(np.float32).eps)


def _quantized(*names: str) -> Callable[[AtenRule], AtenRule]:
    return aten(*names, namespace="quantized_decomposed")


def _parameter(value: Value, dtype: str) -> Expr:
    """A scale or zero point: without dimensions where there is one, else as it is."""
    result = cast(value, dtype)
    is_one = is_tensor(value) and rank_of(result) > 0 and all(d == 1 for d in shape_of(result))
    return reshape_to(result, ()) if is_one else result


def _quantize(
    call: AtenCall, x: Expr, scale: Value, zero: Value, limits: tuple[Value, Value], dtype: str, axis: int = -1
) -> Expr:
    low, high = (call.known(v, "range").item() if is_tensor(v) else v for v in limits)
    steps = op(
        "qnn.quantize",
        cast(x, "float32"),
        _parameter(scale, "float32"),
        _parameter(zero, "int32"),
        axis=axis,
        out_dtype=dtype,
    )
    kind = DType(dtype)
    if low <= kind.min_value and high >= kind.max_value:
        return steps
    return op("clip", steps, a_min=float(low), a_max=float(high))


def _dequantize(x: Expr, scale: Value, zero: Value | None, dtype: str | None, axis: int = -1) -> Expr:
    shift = scalar(0, "int32") if zero is None else _parameter(zero, "int32")
    return op("qnn.dequantize", x, _parameter(scale, "float32"), shift, axis=axis, out_dtype=dtype or "float32")


@_quantized("quantize_per_tensor")
def quantize_per_tensor(
    call: AtenCall, x: Expr, scale: Value, zero: Value, low: Value, high: Value, dtype: str
) -> Expr:
    return _quantize(call, x, scale, zero, (low, high), dtype)


@_quantized("dequantize_per_tensor")
def dequantize_per_tensor(
    call: AtenCall,
    x: Expr,
    scale: Value,
    zero: Value,
    low: Value,
    high: Value,
    dtype: str,
    out_dtype: str | None = None,
) -> Expr:
    return _dequantize(x, scale, zero, out_dtype)


@_quantized("quantize_per_channel")
def quantize_per_channel(
    call: AtenCall, x: Expr, scales: Expr, zeros: Expr, axis: int, low: int, high: int, dtype: str
) -> Expr:
    return _quantize(call, x, scales, zeros, (low, high), dtype, axis)


@_quantized("dequantize_per_channel")
def dequantize_per_channel(
    call: AtenCall,
    x: Expr,
    scales: Expr,
    zeros: Expr | None,
    axis: int,
    low: int,
    high: int,
    dtype: str,
    out_dtype: str | None = None,
) -> Expr:
    return _dequantize(x, scales, zeros, out_dtype, axis)


def _by_row(parameter: Expr, x: Expr) -> Expr:
    """One value for each row of the data's last axis."""
    return reshape_to(parameter, (*shape_of(x)[:-1], 1))


@_quantized("quantize_per_token")
def quantize_per_token(call: AtenCall, x: Expr, scales: Expr, zeros: Expr, low: int, high: int, dtype: str) -> Expr:
    return _quantize(call, x, _by_row(scales, x), _by_row(zeros, x), (low, high), dtype)


@_quantized("dequantize_per_token")
def dequantize_per_token(
    call: AtenCall, x: Expr, scales: Expr, zeros: Expr, low: int, high: int, dtype: str, out_dtype: str
) -> Expr:
    return _dequantize(x, _by_row(scales, x), _by_row(zeros, x), out_dtype)


def _in_groups(x: Expr, scales: Expr, size: int) -> Expr:
    rows, columns = shape_of(x)
    size = columns if size > columns and shape_of(scales)[-1] == 1 else size
    return reshape_to(x, (rows * columns // size, size))


@_quantized("quantize_per_channel_group")
def quantize_per_group(
    call: AtenCall, x: Expr, scales: Expr, zeros: Expr, low: int, high: int, dtype: str, size: int
) -> Expr:
    groups = _in_groups(x, scales, size)
    return reshape_to(quantize_per_token(call, groups, scales, zeros, low, high, dtype), shape_of(x))


@_quantized("dequantize_per_channel_group")
def dequantize_per_group(
    call: AtenCall,
    x: Expr,
    scales: Expr,
    zeros: Expr | None,
    low: int,
    high: int,
    dtype: str,
    size: int,
    out_dtype: str,
) -> Expr:
    groups = _in_groups(x, scales, size)
    shift = None if zeros is None else _by_row(zeros, groups)
    return reshape_to(_dequantize(groups, _by_row(scales, groups), shift, out_dtype), shape_of(x))


def _range(x: Expr, axes: tuple[int, ...], keepdims: bool) -> tuple[Expr, Expr]:
    """The least and the largest element, or 0."""
    zero, data = scalar(0, "float32"), cast(x, "float32")
    low = op("minimum", op("min", data, axis=axes, keepdims=keepdims), zero)
    return low, op("maximum", op("max", data, axis=axes, keepdims=keepdims), zero)


def _rounded(x: Expr, low: int, high: int) -> Expr:
    return cast(op("clip", op("nearbyint", x), a_min=float(low), a_max=float(high)), "int64")


@_quantized("choose_qparams")
def choose_by_range(call: AtenCall, x: Expr, low: int, high: int, eps: float, dtype: str) -> list[Expr]:
    least, largest = _range(x, tuple(range(rank_of(x))), False)
    scale = op("divide", op("subtract", largest, least), scalar(float(high - low), "float32"))
    scale = op("maximum", scale, scalar(eps, "float32"))
    steps = op("nearbyint", op("divide", least, scale))
    zero = _rounded(op("subtract", scalar(low, "float32"), steps), low, high)
    return [reshape_to(cast(scale, "float64"), (1,)), reshape_to(zero, (1,))]


@_quantized("choose_qparams_symmetric")
def choose_symmetric(call: AtenCall, x: Expr, low: int, high: int, eps: float, dtype: str) -> list[Expr]:
    least, largest = _range(x, tuple(range(rank_of(x))), False)
    reach = op("maximum", op("negative", least), largest)
    scale = op("maximum", op("divide", reach, scalar((high - low) / 2, "float32")), scalar(eps, "float32"))
    zero = broadcast(scalar(128 if dtype == "uint8" else 0, "int64"), (1,))
    return [reshape_to(cast(scale, "float64"), (1,)), zero]


@_quantized("choose_qparams_per_token")
def choose_for_rows(call: AtenCall, x: Expr, dtype: str) -> list[Expr]:
    reach = op("max", op("abs", cast(x, "float32")), axis=(-1,), keepdims=True)
    scale = op("divide", op("maximum", reach, scalar(1e-5, "float32")), scalar(127, "float32"))
    return [
        cast(scale, call.outputs[0] or "float32"),
        broadcast(scalar(0, call.outputs[1] or "float32"), shape_of(scale)),
    ]


@_quantized("choose_qparams_per_token_asymmetric", "_choose_qparams_per_token_asymmetric_impl")
def choose_asymmetric_for_rows(call: AtenCall, x: Expr, dtype: str) -> list[Expr]:
    low, high = -128, 127
    least, largest = _range(x, (-1,), True)
    scale = op("divide", op("subtract", largest, least), scalar(high - low, "float32"))
    scale = op("maximum", scale, scalar(_EPSILON, "float32"))
    below, above = op("divide", least, scale), op("divide", largest, scale)
    error = op("add", op("add", below, above), scalar(low + high, "float32"))
    is_low = op("greater", error, scalar(0, "float32"))
    shift = op(
        "where", is_low, op("subtract", scalar(low, "float32"), below), op("subtract", scalar(high, "float32"), above)
    )
    return [cast(scale, "float64"), _rounded(shift, low, high)]
