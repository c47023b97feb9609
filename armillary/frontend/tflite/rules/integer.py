"""TFLite's layers on affine integers: convolutions, products, pooling, arithmetic, means.

In: nodes whose tensors are integers with scales and zero points. Out: qnn's products in int32, brought to 8 bits
by `rescaled`. Invariant: results have the bits of the interpreter's reference kernels: factors
are computed in the precision in which the interpreter computes them, sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.frontend import channels_last
from armillary.frontend.tflite import fixed_point
from armillary.frontend.tflite.node import ACTIVATIONS, TfliteNode, in_integers
from armillary.frontend.tflite.rules import nn
from armillary.frontend.tflite.schema import Tensor
from armillary.frontend.values import cast, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, const

_ADDED_BITS = 20  # that sums of bytes have behind the point
_REACH = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}


def zero_of(tensor: Tensor) -> int:
    """The zero point of a tensor with one scale."""
    return int(tensor.zero[0])


def scale_of(tensor: Tensor) -> np.float32:
    """The scale of a tensor with one."""
    return np.float32(tensor.scale[0])


def rescaled(x: Expr, factor: Array | float) -> Expr:
    """int32 numbers times real factors, one or one for each channel, as the reference kernels multiply."""
    pairs = [fixed_point.multiplier_of(float(f)) for f in np.asarray(factor, np.float64).reshape(-1)]
    return multiplied(x, *(np.array(side, np.int32) for side in zip(*pairs, strict=True)))


def multiplied(x: Expr, multipliers: Array, exponents: Array) -> Expr:
    """int32 numbers times multipliers of 31 bits and powers of two, one of each or one for each channel.

    The product is rounded halves up, what is then shifted out halves away from zero.
    """
    left, right = np.maximum(exponents, 0), np.maximum(-exponents, 0)
    if multipliers.size == 1:
        high = op("fixed_point_multiply", x, multiplier=int(multipliers[0]), shift=int(left[0]))
    else:
        vectors = [const(v.astype(np.int32)) for v in (multipliers, left, 0 * right)]
        axes = (len(shape_of(x)) - 1,)
        high = op("fixed_point_multiply_per_axis", x, *vectors, is_lshift_required=bool(np.any(left)), axes=axes)
    if not np.any(right):
        return high
    right, half = right.astype(np.int32), ((1 << right.astype(np.int64)) >> 1).astype(np.int32)
    if multipliers.size == 1:
        right, half = right.reshape(()), half.reshape(())
    below = op("right_shift", high, scalar(31, "int32"))  # -1 below zero
    if not np.all(right):
        below = op("multiply", below, const((right > 0).astype(np.int32)))
    return op("right_shift", op("add", op("add", high, below), const(half)), const(right))


def activated(node: TfliteNode, x: Expr, name: str = "") -> Expr:
    """int32 numbers at the result's zero point, within the activation and the result's dtype."""
    to = node.writes[0]
    limits = DType(to.dtype)
    low, high = int(limits.min_value), int(limits.max_value)
    name = name or node.one_of("activation", ACTIVATIONS)
    if name != "none":
        if name not in _REACH:
            node.refuse(f"the activation {name.upper()} on affine integers")
        bounds = [_quantised(value, to) if math.isfinite(value) else value for value in _REACH[name]]
        low, high = int(max(low, bounds[0])), int(min(high, bounds[1]))
    return cast(op("clip", x, a_min=float(low), a_max=float(high)), to.dtype)


def _quantised(value: float, to: Tensor) -> int:
    steps = np.float32(value) / scale_of(to)
    return zero_of(to) + int(math.copysign(math.floor(abs(steps) + 0.5), steps))


def finished(node: TfliteNode, total: Expr, factor: Array | float, name: str = "") -> Expr:
    """Sums in int32 as the node's result."""
    return moved(node, rescaled(total, factor), name)


def moved(node: TfliteNode, steps: Expr, name: str = "") -> Expr:
    """Steps of the result's scale as the node's result."""
    return activated(node, op("add", steps, scalar(zero_of(node.writes[0]), "int32")), name)


# --- products -------------------------------------------------------------------------------------------------------


def product_factor(node: TfliteNode, data: Tensor, weight: Tensor, is_real: bool) -> Array:
    """Scale of sums over the scale of the result; `is_real`: the product of scales in float64."""
    to = np.float64(scale_of(node.writes[0]))
    if is_real and data.dtype == "int8":
        return np.float64(scale_of(data)) * weight.scale.astype(np.float64) / to
    return np.asarray((scale_of(data) * weight.scale).astype(np.float64) / to)


def _parameters(data: Tensor, weight: Tensor) -> tuple[Expr, ...]:
    zeros = weight.zero.astype(np.int32)
    shift = const(zeros if np.any(zeros) and zeros.size > 1 else zeros[0])
    scales = const(weight.scale if weight.scale.size > 1 else weight.scale[0])
    return scalar(zero_of(data), "int32"), shift, const(scale_of(data)), scales


def _biased(node: TfliteNode, total: Expr, index: int = 2) -> Expr:
    return op("add", total, node.input(index)) if node.has(index) else total


def _one_scale_or_channels(node: TfliteNode, weight: Tensor, axis: int) -> None:
    if weight.scale.size > 1 and weight.axis != axis:
        node.refuse(f"weights with scales along axis {weight.axis}", f"of the whole tensor, or along axis {axis}")


@in_integers("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(node: TfliteNode) -> Expr:
    data, weight, is_deep = node.read(0), node.read(1), node.op == "DEPTHWISE_CONV_2D"
    _one_scale_or_channels(node, weight, 3 if is_deep else 0)
    kernel = op("transpose", node.input(1), axes=(1, 2, 3, 0))
    window = channels_last.depthwise if is_deep else channels_last.conv
    total = window(
        node.x,
        kernel,
        nn.strides_of(node),
        nn.padding_of(node),
        nn.dilation_of(node),
        quantised=_parameters(data, weight),
    )
    return finished(node, _biased(node, total), product_factor(node, data, weight, True))


@in_integers("TRANSPOSE_CONV")
def transpose_conv(node: TfliteNode) -> Expr:
    weight, data = node.read(1), node.read(2)
    _one_scale_or_channels(node, weight, 0)
    size = node.wholes(0, "the shape of the result")
    x = op("subtract", cast(node.input(2), "int32"), scalar(zero_of(data), "int32"))
    kernel = op("subtract", cast(node.input(1), "int32"), scalar(zero_of(weight), "int32"))
    total = nn.transposed_conv(node, x, kernel, size)
    return finished(node, _biased(node, total, 3), product_factor(node, data, weight, True), "none")


@in_integers("FULLY_CONNECTED")
def fully_connected(node: TfliteNode) -> Expr:
    """The one product whose reference kernel brings sums to the result's scale by a factor in float64."""
    data, weight, kernel = node.read(0), node.read(1), node.input(1)
    _one_scale_or_channels(node, weight, 0)
    units, width = shape_of(kernel)
    flat = reshape_to(node.x, (math.prod(node.shape) // width, width))
    total = _biased(node, op("qnn.dense", flat, kernel, *_parameters(data, weight), units=units))
    factor = np.float64(scale_of(data)) * weight.scale.astype(np.float64) / np.float64(scale_of(node.writes[0]))
    exact = op("multiply", cast(total, "float64"), const(factor if factor.size > 1 else factor[0]))
    return nn.rows_as(node, moved(node, cast(op("round", exact), "int32")), units)


@in_integers("BATCH_MATMUL")
def batch_matmul(node: TfliteNode) -> Expr:
    data, weight = node.read(0), node.read(1)
    a, b = (
        nn.swapped(node.input(k)) if node.option(name) else node.input(k) for k, name in ((0, "adj_x"), (1, "adj_y"))
    )
    (left, right), lead = nn.batched(a, b)
    total = op("qnn.batch_matmul", left, right, *_matrices(data, weight), transpose_b=False)
    total = reshape_to(total, (*lead, shape_of(a)[-2], shape_of(b)[-1]))
    return finished(node, total, product_factor(node, data, weight, False), "none")


def _matrices(data: Tensor, weight: Tensor) -> tuple[Expr, ...]:
    zeros = (scalar(zero_of(t), "int32") for t in (data, weight))
    return (*zeros, *(const(scale_of(t)) for t in (data, weight)))


# --- pooling, means ---------------------------------------------------------------------------------------------------


@in_integers("MAX_POOL_2D")
def max_pool(node: TfliteNode) -> Expr:
    return activated(node, nn.pooled(node, "max", node.x))


@in_integers("AVERAGE_POOL_2D")
def average_pool(node: TfliteNode) -> Expr:
    """Sums of what lies in the image over their number, halves away from zero."""
    window, strides = (node.whole("height"), node.whole("width")), nn.strides_of(node)
    sizes = node.shape[1:3]
    ones = [_counts(*row, nn.padding_of(node)) for row in zip(sizes, window, strides, strict=True)]
    count = np.multiply.outer(*ones)[None, :, :, None].astype(np.int32)
    wide = cast(node.x, "float32")  # exact: a mean times its count is within 1/2 of the sum
    mean = channels_last.pool("avg", wide, window, strides, nn.padding_of(node))
    total = cast(op("round", op("multiply", mean, const(count.astype(np.float32)))), "int32")
    half = const(count // 2)
    away = op("where", op("greater", total, scalar(0, "int32")), half, op("negative", half))
    return activated(node, op("trunc_divide", op("add", total, away), const(count)))


def _counts(size: int, taps: int, stride: int, padding: str) -> Array:
    """How many elements of an axis lie in each window."""
    (before, behind) = channels_last.pairs_of(padding, (size,), (taps,), (stride,))
    begins = np.arange((size + before + behind - taps) // stride + 1) * stride - before
    return np.minimum(begins + taps, size) - np.maximum(begins, 0)


@in_integers("MEAN", "SUM")
def mean(node: TfliteNode) -> Expr:
    data, to, axes = node.read(0), node.writes[0], node.wholes(1, "the axes")
    axes = tuple({axis % len(node.shape) for axis in axes})
    count = math.prod(node.shape[axis] for axis in axes)
    total = op("sum", cast(node.x, "int32"), axis=axes, keepdims=bool(node.option("keep_dims")))
    multiplier, exponent = fixed_point.multiplier_of(np.float64(scale_of(data)) / np.float64(scale_of(to)))
    total = op("subtract", total, scalar(zero_of(data) * count, "int32"))
    if node.op == "MEAN":  # the count divides the multiplier, which may have less than 31 bits then
        shift = min(count.bit_length() - 1, 32, 31 + exponent)
        multiplier, exponent = (multiplier << shift) // count, exponent - shift
    return moved(node, multiplied(total, np.array([multiplier]), np.array([exponent])), "none")


# --- arithmetic -----------------------------------------------------------------------------------------------------


def _steps(node: TfliteNode, index: int) -> Expr:
    """A side, less its zero point, in int32."""
    return op("subtract", cast(node.input(index), "int32"), scalar(zero_of(node.read(index)), "int32"))


@in_integers("ADD", "SUB")
def add(node: TfliteNode) -> Expr:
    scales = [np.float64(scale_of(node.read(k))) for k in (0, 1)]
    largest, to = 2 * max(scales), np.float64(scale_of(node.writes[0]))
    sides = [
        rescaled(op("left_shift", _steps(node, k), scalar(_ADDED_BITS, "int32")), scales[k] / largest) for k in (0, 1)
    ]
    total = op("add" if node.op == "ADD" else "subtract", *sides)
    return finished(node, total, largest / ((1 << _ADDED_BITS) * to))


@in_integers("MUL")
def multiply(node: TfliteNode) -> Expr:
    one, other, to = (scale_of(t) for t in (node.read(0), node.read(1), node.writes[0]))
    return finished(node, op("multiply", _steps(node, 0), _steps(node, 1)), np.float64(one * other / to))


@in_integers("SQUARED_DIFFERENCE")
def squared_difference(node: TfliteNode) -> Expr:
    scales = [np.float64(scale_of(node.read(k))) for k in (0, 1)]
    largest, to, bits = 2 * max(scales), np.float64(scale_of(node.writes[0])), 7
    sides = [rescaled(op("left_shift", _steps(node, k), scalar(bits, "int32")), scales[k] / largest) for k in (0, 1)]
    apart = op("subtract", *sides)
    return finished(node, op("multiply", apart, apart), largest * largest / ((1 << bits * 2) * to), "none")


@in_integers("MAXIMUM", "MINIMUM")
def extreme(node: TfliteNode) -> Expr:
    return op(node.op.lower(), node.x, node.input(1))


@in_integers("PRELU")
def prelu(node: TfliteNode) -> Expr:
    data, slope, to = node.read(0), node.read(1), node.writes[0]
    above = rescaled(_steps(node, 0), np.float64(scale_of(data)) / np.float64(scale_of(to)))
    factor = np.float64(scale_of(data)) * np.float64(scale_of(slope)) / np.float64(scale_of(to))
    below = rescaled(op("multiply", _steps(node, 0), _steps(node, 1)), factor)
    chosen = op("where", op("greater_equal", _steps(node, 0), scalar(0, "int32")), above, below)
    return moved(node, chosen, "none")


_COMPARED_BITS = 8
_COMPARES: dict[str, str] = {
    "EQUAL": "equal",
    "NOT_EQUAL": "not_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
}


@in_integers(*_COMPARES)
def compare(node: TfliteNode) -> Expr:
    sides = [
        rescaled(op("left_shift", _steps(node, k), scalar(_COMPARED_BITS, "int32")), float(scale_of(node.read(k))))
        for k in (0, 1)
    ]
    return op(_COMPARES[node.op], *sides)


@in_integers("CONCATENATION")
def concatenation(node: TfliteNode) -> Expr:
    """Parts of other scales are brought to the result's in float32."""
    to, parts = node.writes[0], []
    for k, x in enumerate(node.present):
        data = node.read(k)
        same = scale_of(data) == scale_of(to) and zero_of(data) == zero_of(to)
        parts.append(x if same else by_table(node, x, data, _joined(data, to)))
    return activated(node, op("concatenate", Tuple(tuple(parts)), axis=node.whole("axis")))


def _joined(data: Tensor, to: Tensor) -> Callable[[Array], Array]:
    factor = scale_of(data) * (np.float32(1) / scale_of(to))
    shift = np.float32(-zero_of(data)) * factor
    return lambda q: rounded(q.astype(np.float32) * factor + shift) + zero_of(to)


def rounded(x: Array) -> Array:
    """Numbers as whole ones, halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)).astype(np.int64)


def by_table(node: TfliteNode, x: Expr, data: Tensor, function: Callable[[Array], Array]) -> Expr:
    """A function of bytes, computed of all of them: from stored integers to the result's, not yet saturated."""
    limits, to = DType(data.dtype), DType(node.writes[0].dtype)
    if limits.bits > 8:
        node.refuse(f"{data.dtype}", "8 bits are supported")
    every = np.arange(int(limits.min_value), int(limits.max_value) + 1, dtype=np.int64)
    with np.errstate(all="ignore"):  # scales of damaged files
        table = np.clip(function(every), int(to.min_value), int(to.max_value)).astype(to.numpy)
    place = op("subtract", cast(x, "int32"), scalar(int(limits.min_value), "int32"))
    return op("take", const(table), place, axis=0, mode="clip")
