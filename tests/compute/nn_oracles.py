"""Plain numpy for neural-network functions: what each has to compute, in float64 or whole numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataType,
    DimensionRoundingType,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    QuantizationInfo,
    Size2D,
    Tensor,
    TensorInfo,
    TensorShape,
)

Array = np.ndarray[Any, Any]


def tensor(
    values: Array | None = None,
    shape: tuple[int, ...] = (),
    kind: DataType = DataType.F32,
    scale: float = 1.0,
    offset: int = 0,
) -> Tensor:
    """An allocated tensor of values, or one of a shape (as numpy has it) whose memory is to come."""
    made = Tensor()
    sizes = TensorShape(*reversed(values.shape if values is not None else shape))
    made.allocator().init(TensorInfo(sizes, 1, kind, QuantizationInfo(scale, offset)))
    if values is not None:
        made.allocator().allocate()
        made.array().reshape(values.shape)[...] = values
    return made


def padded(image: Array, info: PadStrideInfo, value: float = 0) -> Array:
    """An image (n, c, h, w) with padding around."""
    sides = ((0, 0), (0, 0), (info.pad_top(), info.pad_bottom()), (info.pad_left(), info.pad_right()))
    return np.pad(image, sides, constant_values=value)


def convolved(image: Array, weights: Array, info: PadStrideInfo, dilation: Size2D, groups: int = 1) -> Array:
    """Sums of a convolution in the type of the image; CEIL adds zeros at the end."""
    ceil = info.round is DimensionRoundingType.CEIL
    more = max(info.stride()) if ceil else 0
    data = np.pad(padded(image, info), ((0, 0), (0, 0), (0, more), (0, more)))
    n, _, height, width = data.shape
    outputs, per_group, rows, columns = weights.shape
    out = []
    for size, taps, spread, step in (
        (height, rows, dilation.height, info.stride()[1]),
        (width, columns, dilation.width, info.stride()[0]),
    ):
        room = size - more - (taps - 1) * spread - 1
        out.append((-(-room // step) if ceil else room // step) + 1)
    sums = np.zeros((n, outputs, *out), image.dtype)
    for y, x in product(range(rows), range(columns)):
        at_y, at_x = y * dilation.height, x * dilation.width
        part = data[
            :,
            :,
            at_y : at_y + info.stride()[1] * out[0] : info.stride()[1],
            at_x : at_x + info.stride()[0] * out[1] : info.stride()[0],
        ][:, :, : out[0], : out[1]]
        for group in range(groups):
            inputs = slice(group * per_group, (group + 1) * per_group)
            here = slice(group * outputs // groups, (group + 1) * outputs // groups)
            sums[:, here] += np.einsum("nchw,oc->nohw", part[:, inputs], weights[here, :, y, x])
    return sums


def activated(x: Array, info: ActivationLayerInfo | None) -> Array:
    """An activation in float64."""
    if info is None or info.activation is None:
        return x
    a, b, f = info.a, info.b, ActivationFunction
    rules = {
        f.LOGISTIC: lambda: 1 / (1 + np.exp(-x)),
        f.TANH: lambda: a * np.tanh(b * x),
        f.RELU: lambda: np.maximum(x, 0),
        f.BOUNDED_RELU: lambda: np.clip(x, 0, a),
        f.LU_BOUNDED_RELU: lambda: np.clip(x, b, a),
        f.LEAKY_RELU: lambda: np.where(x > 0, x, a * x),
        f.SOFT_RELU: lambda: np.log1p(np.exp(x)),
        f.ELU: lambda: np.where(x >= 0, x, a * np.expm1(x)),
        f.ABS: lambda: np.abs(x),
        f.SQUARE: lambda: x * x,
        f.SQRT: lambda: np.sqrt(x),
        f.LINEAR: lambda: a * x + b,
        f.IDENTITY: lambda: x,
        f.HARD_SWISH: lambda: x * np.clip(x + 3, 0, 6) / 6,
    }
    return np.asarray(rules[info.activation]())


def requantized(sums: Array, scales: tuple[float, float, float], offset: int, low: int, high: int) -> Array:
    """Sums times input's scale * weights' / output's in float32, as gemmlowp has it with whole numbers."""
    first, second, third = (np.float32(scale) for scale in scales)
    part, exponent = np.frexp(float(first * second / third))
    fixed = int(np.floor(part * 2.0**31 + 0.5))
    if fixed == 2**31:
        fixed, exponent = 2**30, exponent + 1

    def one(value: int) -> int:
        if exponent > 0:
            value = max(-(2**31), min(2**31 - 1, value << int(exponent)))
        wide = value * fixed
        nudged = wide + (2**30 if wide >= 0 else 1 - 2**30)
        high_half = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
        shift = max(0, -int(exponent))
        rest, half = high_half & ((1 << shift) - 1), ((1 << shift) - 1 >> 1) + (high_half < 0)
        return (high_half >> shift) + (rest > half)

    made = np.array([one(int(v)) for v in sums.ravel()]).reshape(sums.shape)
    return np.clip(made + offset, low, high)


def pooled(image: Array, info: PoolingLayerInfo) -> Array:
    """The library's pooling: averages count padding as given, unless excluded, but nothing beyond it."""
    n, channels, height, width = image.shape
    if info.is_global_pooling:
        pads, size = PadStrideInfo(), Size2D(width, height)
    else:
        pads, size = info.pad_stride_info, info.pool_size
    out = []
    for extent, side, step, before, after in (
        (height, size.height, pads.stride()[1], pads.pad_top(), pads.pad_bottom()),
        (width, size.width, pads.stride()[0], pads.pad_left(), pads.pad_right()),
    ):
        room = extent + before + after - side
        count = (-(-room // step) if pads.round is DimensionRoundingType.CEIL else room // step) + 1
        out.append(count - 1 if (count - 1) * step >= extent + before else count)
    made = np.zeros((n, channels, *out), image.dtype)
    for y, x in product(range(out[0]), range(out[1])):
        top, left = y * pads.stride()[1] - pads.pad_top(), x * pads.stride()[0] - pads.pad_left()
        bottom = min(top + size.height, height + pads.pad_bottom())
        right = min(left + size.width, width + pads.pad_right())
        part = image[:, :, max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
        count = part.shape[2] * part.shape[3] if info.exclude_padding else (bottom - top) * (right - left)
        if info.pool_type is PoolingType.MAX:
            made[:, :, y, x] = part.max((2, 3))
        elif info.pool_type is PoolingType.AVG:
            made[:, :, y, x] = part.sum((2, 3)) / count
        else:
            made[:, :, y, x] = np.sqrt((part * part).sum((2, 3)) / count)
    return made
