"""ONNX quantisation: QuantizeLinear, DequantizeLinear, ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul.

In: nodes of any opset; scales per tensor, per axis or per block; 2- to 16-bit integers, and the 8- and 4-bit floats
that opset 19 and later allow. Out: qnn operators for integers, plain ones for small floats and for products that qnn
has no operator for. Invariant: rounding is half to even with float32 factors, as the standard says.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from armillary.base.dtype import DType
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.frontend.onnx.rules.cast import cast_saturated
from armillary.frontend.onnx.rules.nn.conv import spatial_rank, window_attrs
from armillary.frontend.onnx.rules.nn.dense import batched, times, transposed
from armillary.ops._types import axis_of
from armillary.ops.elementwise.broadcast import add, divide, equal, maximum, minimum, multiply, subtract, where
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn._windows import call
from armillary.ops.qnn.conv_transpose_matmul import qbatch_matmul
from armillary.ops.qnn.product import qconv2d, qdense
from armillary.ops.qnn.quantize import (
    centred,
    dequantize,
    is_zero,
    placed,
    quantize,
    requantize,
    tensor_of,
)
from armillary.ops.shape.shape import reshape
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import repeat
from armillary.relay.expr import Expr, const
from armillary.relay.op import constant_value

_ONE = np.float32(1)


# --- quantise and dequantise ----------------------------------------------------------------------------------------


def _zero_point(node: OnnxNode, index: int, dtype: str = "int32") -> Expr:
    return const(0, dtype) if node.missing(index) else node.input(index)


def _parameters(node: OnnxNode, zero: Expr) -> tuple[Expr, Expr, int]:
    """Scale, zero point and axis, such that qnn operators take them; blocks are written out."""
    data, scale = node.type_of(0), node.input(1)
    shape, ndim, block = tensor_of(scale).static, data.ndim, int(node.int("block_size", default=0) or 0)
    axis = int(node.int("axis", default=1))
    if math.prod(shape) == 1 and not block:
        return scale, zero, 0
    axis = axis_of(node.op_type, axis, ndim)
    if not block:
        return scale, zero, axis
    wanted = tuple(-(-d // block) if a == axis else d for a, d in enumerate(data.static))
    if shape != wanted:
        raise TypeMismatch(f"{node.op_type}: blocks of {block} want a scale of shape {wanted}, got {shape}")
    zero = zero if is_zero(zero) else _spread(zero, block, axis, data.static)
    return _spread(scale, block, axis, data.static), zero, axis


def _spread(parameter: Expr, block: int, axis: int, shape: tuple[int, ...]) -> Expr:
    """A parameter per block as one per element."""
    spread = repeat(parameter, block, axis)
    if tensor_of(spread).static == shape:
        return spread
    return strided_slice(spread, begin=(0,) * len(shape), end=shape)


@from_onnx("QuantizeLinear", since=10)
def quantize_linear(node: OnnxNode) -> Expr:
    declared = int(node.int("output_dtype", default=0) or 0)
    target = onnx_dtype(node, declared) if declared else "uint8" if node.missing(2) else str(node.type_of(2).dtype)
    if not node.missing(2) and node.type_of(2).dtype != target:
        raise TypeMismatch(f"QuantizeLinear: output_dtype is {target}, the zero point is {node.type_of(2).dtype}")
    precision = int(node.int("precision", default=0) or 0)
    working = onnx_dtype(node, precision) if precision else str(node.type_of(1).dtype)
    data = node.input(0)
    saturating = node.flag("saturate", True)
    if DType(target).is_float:
        _refuse_zero_point(node)
        scale, _, axis = _parameters(node, const(0, "int32"))
        steps = divide(cast(data, working), cast(placed(scale, node.type_of(0).ndim, axis), working))
        return cast_saturated(steps, target) if saturating else cast(steps, target)
    scale, zero, axis = _parameters(node, _zero_point(node, 2))
    if not node.type_of(0).dtype.is_float or (precision and node.type_of(0).dtype != working):
        data = cast(data, "float32" if not precision else working)
    return quantize(data, scale, zero, axis=axis, out_dtype=target)


def quantized_by_range(data: Expr) -> tuple[Expr, Expr, Expr]:
    """float32 as uint8 by its own range and 0, the scale, the zero point as int32; the scale of zeros alone is 1."""
    everything, zero = tuple(range(tensor_of(data).ndim)), const(np.float32(0))
    low = minimum(call("min", data, axis=everything, keepdims=False), zero)
    high = maximum(call("max", data, axis=everything, keepdims=False), zero)
    scale = divide(subtract(high, low), const(np.float32(255)))
    scale = where(equal(scale, zero), const(_ONE), scale)  # no number stays none
    shift = cast(call("clip", call("nearbyint", subtract(zero, divide(low, scale))), a_min=0.0, a_max=255.0), "int32")
    return quantize(data, scale, shift, out_dtype="uint8"), scale, shift


@from_onnx("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode) -> list[Expr]:
    """The standard's function, which divides by 0 where all numbers are 0 or there are none."""
    data, scale, shift = quantized_by_range(node.input(0))
    return [data, scale, cast(shift, "uint8")]


def _refuse_zero_point(node: OnnxNode) -> None:
    """Small floats have no zero point but 0."""
    if not node.missing(2) and np.any(node.const(2, "zero point").astype(np.float32)):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: a zero point of floats other than 0")


@from_onnx("DequantizeLinear", since=10)
def dequantize_linear(node: OnnxNode) -> Expr:
    declared = int(node.int("output_dtype", default=0) or 0)
    target = onnx_dtype(node, declared) if declared else str(node.type_of(1).dtype)
    data, ndim = node.input(0), node.type_of(0).ndim
    if node.type_of(0).dtype.is_float:
        _refuse_zero_point(node)
        scale, _, axis = _parameters(node, const(0, "int32"))
        return cast(multiply(cast(data, "float32"), cast(placed(scale, ndim, axis), "float32")), target)
    in_blocks = _blocks(node)
    if in_blocks is not None:
        return in_blocks(target)
    scale, zero, axis = _parameters(node, _zero_point(node, 2))
    return dequantize(data, scale, zero, axis=axis, out_dtype=target)


def _blocks(node: OnnxNode) -> Callable[[str], Expr] | None:
    """How to dequantise data in whole blocks: an axis more, along which scales have size 1. None: other data."""
    data, scale, block = node.type_of(0), node.type_of(1), int(node.int("block_size", default=0) or 0)
    if not block or node.type_of(0).ndim != scale.ndim or scale.size == 1:
        return None
    axis = axis_of(node.op_type, int(node.int("axis", default=1)), data.ndim)
    wanted = tuple(d // block if a == axis else d for a, d in enumerate(data.static))
    if data.static[axis] % block or scale.static != wanted:
        return None

    def apart(x: Expr, size: int) -> Expr:
        return reshape(x, (*wanted[: axis + 1], size, *wanted[axis + 1 :]))

    zero = _zero_point(node, 2)
    zero = zero if tensor_of(zero).size == 1 else apart(zero, 1)
    return lambda dtype: reshape(
        dequantize(apart(node.input(0), block), apart(node.input(1), 1), zero, out_dtype=dtype), data.static
    )


# --- integer products -------------------------------------------------------------------------------------------------


def _convolution(node: OnnxNode, data: int, weight: int, zero: Expr, weight_zero: Expr) -> Expr:
    """The int32 convolution of inputs `data` and `weight`."""
    rank, kernel = spatial_rank(node), node.type_of(weight).static[2:]
    attrs = window_attrs(node, kernel) | {"groups": node.int("group", 1), "channels": node.type_of(weight).static[0]}
    x, w = node.input(data), node.input(weight)
    if rank == 2 and tensor_of(zero).size == 1:
        return qconv2d(x, w, zero, weight_zero, const(_ONE), const(_ONE), kernel_size=kernel, **attrs)
    moved = centred(x, zero, rank + 2, 1), centred(w, weight_zero, rank + 2, 0)
    return call(f"nn.conv{rank}d", *moved, kernel_size=kernel, out_dtype="int32", **attrs)


@from_onnx("ConvInteger", since=10)
def conv_integer(node: OnnxNode) -> Expr:
    return _convolution(node, 0, 1, _zero_point(node, 2), _zero_point(node, 3))


def product(a: Expr, b: Expr, zero: Expr, b_zero: Expr) -> Expr:
    """The int32 matrix product; zero points may be one per row of a and one per column of b."""
    ta, tb = tensor_of(a), tensor_of(b)
    are_single = tensor_of(zero).size == tensor_of(b_zero).size == 1
    as_dense = tb.ndim == 2 and tensor_of(zero).size == 1 and tensor_of(b_zero).ndim <= 1 and ta.ndim > 1
    if as_dense and (constant_value(b) is not None or not are_single):  # else turning b would cost at every run
        return qdense(a, transposed(b, (1, 0)), zero, b_zero, const(_ONE), const(_ONE))
    if min(ta.ndim, tb.ndim) > 1 and are_single:
        zeros = (_flat(zero), _flat(b_zero), const(_ONE), const(_ONE))
        return batched(a, b, lambda x, y: qbatch_matmul(x, y, *zeros, transpose_b=False))
    return times(_subtracted(a, zero, ta.ndim - 2), _subtracted(b, b_zero, tb.ndim - 1))


def _subtracted(x: Expr, zero: Expr, axis: int) -> Expr:
    return centred(x, zero, tensor_of(x).ndim, max(axis, 0))


@from_onnx("MatMulInteger", since=10)
def matmul_integer(node: OnnxNode) -> Expr:
    return product(node.input(0), node.input(1), _zero_point(node, 2), _zero_point(node, 3))


# --- quantised products -----------------------------------------------------------------------------------------------


def _requantized(node: OnnxNode, total: Expr, scales: tuple[int, int], output: int, axis: int) -> Expr:
    """int32 sums as the output's integers; `scales` and `output` are numbers of inputs."""
    first, second = (cast(node.input(k), "float32") for k in scales)
    scale = _flat(multiply(first, second))
    to, zero = cast(node.input(output), "float32"), node.input(output + 1)
    dtype = str(node.type_of(output + 1).dtype)
    return requantize(
        total,
        scale,
        const(0, "int32"),
        to,
        zero,
        axis=axis,
        rounding="TOEVEN",
        compute_dtype="float32",
        out_dtype=dtype,
    )


def _flat(scale: Expr) -> Expr:
    ty = tensor_of(scale)
    return scale if ty.size > 1 or ty.ndim == 0 else reshape(scale, ())


@from_onnx("QLinearConv", since=10)
def qlinear_conv(node: OnnxNode) -> Expr:
    """Inputs: x, its scale and zero point, w, its scale and zero point, y's scale and zero point, bias."""
    total = _convolution(node, 0, 3, node.input(2), node.input(5))
    if not node.missing(8):
        total = add(total, placed(node.input(8), tensor_of(total).ndim, 1))
    return _requantized(node, total, (1, 4), 6, 1)


@from_onnx("QLinearMatMul", since=10)
def qlinear_matmul(node: OnnxNode) -> Expr:
    """Inputs: a, its scale and zero point, b, its scale and zero point, y's scale and zero point."""
    total = product(node.input(0), node.input(3), node.input(2), node.input(5))
    return _requantized(node, total, (1, 4), 6, -1)
