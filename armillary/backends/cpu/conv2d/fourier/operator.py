"""Convolution with large kernels in blocked layouts, by Fourier transforms of 16x16 tiles.

In: data (N, C/ci, H, W, ci), weight (O/co, C/ci, ci, KH, KW, co) as OI{ci}iHW{co}o, kernels of 4x4 to 15x15, stride 1.
Out: (N, O/co, OH, OW, co). A tile of 16x16 inputs gives (17 - KH) x (17 - KW) outputs. Operator:
cpu.conv2d_fourier_NCHWc. Invariant: equal to the direct convolution up to rounding, which is below that of a
direct sum: every factor of the transforms has absolute value 1. Chosen by fourier_conv2d.py.

Rows are multiplied modulo x^16 + 1, whose roots come in pairs of conjugates: 16 numbers become 8 complex ones, with no
real one among them (modulo x^16 - 1 there are two). Element j + 8 is the imaginary part of element j modulo x^8 = i.
Columns are complex transforms of 16. What wraps around falls on the outputs that a tile drops. The product of complex
numbers takes three products (C. F. Gauss): 8 x 16 x 3 *points*, each a matrix product like those of Winograd's
algorithm. Weights are transformed in every inference, in parts that stay in the cache: transformed ones would take 384
numbers for a kernel.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary.backends.cpu.conv2d.fourier.cost import KERNELS, POINTS
from armillary.backends.fourier import FORMS, HALF, SIDE, Row, Value, steps, twist, weighted_sum
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32, need_rank, reduce_axes
from armillary.ops.nn.conv import convolve, image_size, window
from armillary.ops.nn.conv_blocked import unblock, unblock_weight
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

TRANSFORM = 3000.0  # additions and multiplications of a tile or a kernel, about


@record
class FourierAttrs:
    padding: tuple[int, ...] = (0, 0)
    channels: int | None = None
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    choice: str = ""  # target/choice.py


fourier = Op("cpu.conv2d_fourier_NCHWc", kind=Kind.CONTRACTION, inputs=("data", "weight"))
fourier.attrs(FourierAttrs)


@fourier.infer
def _infer(attrs: FourierAttrs, data: Type, weight: Type) -> TensorType:
    op = fourier.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 6, "weight")
    if w.shape[1:3] != (x.shape[1], x.shape[4]):
        raise TypeMismatch(
            f"{op}: for data {x.shape} the weight must be (O/o, {x.shape[1]}, {x.shape[4]}, KH, KW, o), got {w.shape}"
        )
    if not all(k in KERNELS for k in w.shape[3:5]):
        raise TypeMismatch(f"{op}: the kernel must be of {KERNELS[0]} to {KERNELS[-1]} rows and columns, got {w.shape}")
    if {*attrs.strides, *attrs.dilation} != {1}:
        raise TypeMismatch(f"{op}: strides and dilation must be 1, got {attrs.strides} and {attrs.dilation}")
    size = image_size(op, attrs, x, w.shape[3:5])
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[5]), x.dtype)


@fourier.reference
def _reference(attrs: FourierAttrs, data: Array, weight: Array) -> Array:
    """The direct convolution."""
    x, w = unblock(data).astype(np.float64), unblock_weight(weight.transpose(0, 1, 3, 4, 2, 5)).astype(np.float64)
    y = convolve(x, w, window(fourier.name, attrs, 2), 1)
    blocked = y.reshape(y.shape[0], weight.shape[0], weight.shape[5], *y.shape[2:]).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked).astype(data.dtype)


def _apply(rows: Sequence[Row], row: te.ExprLike, value: Value) -> te.Expr:
    """Row `row` (known after unrolling) of the matrix times the vector of values, as a choice between sums."""
    sums = [weighted_sum(terms, value) for terms in rows]
    result = sums[-1]
    for index in reversed(range(len(sums) - 1)):
        result = te.select(row == index, sums[index], result)
    return result


# --- the stages -------------------------------------------------------------------------------------------------------


@fourier.compute
def fourier_stages(attrs: FourierAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Tiles to points, weights to points, a product for each point, products to outputs: every step a tagged stage."""
    pads = window(fourier.name, attrs, 2).pads
    n, _, height, width, _ = te.static_shape(data)
    o_blocks, _, _, kh, kw, co = te.static_shape(weight)
    out_h, out_w = height + sum(pads[0]) - kh + 1, width + sum(pads[1]) - kw + 1
    m_h, m_w = SIDE - kh + 1, SIDE - kw + 1
    th, tw = -(-out_h // m_h), -(-out_w // m_w)
    points = _data_points(data, (m_h, m_w), (th, tw), (pads[0][0], pads[1][0]))
    weights = _weight_points(weight)
    _, _, _, i_blocks, tiles, ci = te.static_shape(points)
    ico, ici = reduce_axes([i_blocks, ci], ["ic_outer", "ic_inner"])
    product = te.compute(
        (HALF, SIDE, FORMS, o_blocks, tiles, co),
        lambda v, u, f, o, t, j: te.sum(
            points(v, u, f, ico, t, ici) * weights(v, u, f, o, ico, ici, j), axis=[ico, ici]
        ),
        name="products",
        tag="fourier_product",
    )
    block = _output_tiles(product, (kh, kw))
    result: te.Tensor = te.compute(
        (n, o_blocks, out_h, out_w, co),
        lambda b, o, y, x, j: block((b * th + y // m_h) * tw + x // m_w, o, y % m_h, x % m_w, j),
        name="conv2d_fourier",
        tag="conv2d_fourier",
    )
    return result


def _stage(shape: Sequence[int], rows: Sequence[Row], value: Callable[..., te.Expr], name: str, tag: str) -> te.Tensor:
    """A matrix applied along the axis before the last; `value(axes, k)` is element k of what it is applied to."""
    result: te.Tensor = te.compute(
        tuple(shape),
        lambda *axes: _apply(rows, axes[-2], lambda index: value(axes, index)),
        name=name,
        tag=f"fourier_{tag}",
    )
    return result


def _transform(
    shape: Sequence[int], size: int, sign: int, present: int, value: Callable[..., te.Expr], tag: str
) -> te.Tensor:
    """A complex transform of `size` along the axis before the last, in three steps with a radix of four."""
    for number, rows in enumerate(steps(size, sign, present)):
        result = _stage(shape, rows, value, f"{tag}_{number}", f"{tag}_{number}")
        value = partial(_along, result)
    return result


def _along(tensor: te.Tensor, axes: Sequence[te.Expr], index: int) -> te.Expr:
    return tensor(*axes[:-2], index, axes[-1])


def _data_points(
    data: te.Tensor, outputs: tuple[int, int], grid: tuple[int, int], before: tuple[int, int]
) -> te.Tensor:
    """(HALF, SIDE, FORMS, C/ci, tiles, ci) of tiles read row by row, each row transformed, then each column."""
    n, i_blocks, height, width, ci = te.static_shape(data)
    (m_h, m_w), (th, tw), (top, left) = outputs, grid, before

    def read(t: te.Expr, c: te.Expr, y: te.Expr, x: te.Expr, i: te.Expr) -> te.Expr:
        row, column = t // tw % th * m_h + y - top, t % tw * m_w + x - left
        inside = te.all(row >= 0, row < height, column >= 0, column < width)
        return te.if_then_else(inside, data(t // (th * tw), c, row, column, i), te.const(0.0, data.dtype))

    tiles = n * th * tw
    tile = te.compute((tiles, i_blocks, SIDE, SIDE, ci), read, name="tile", tag="fourier_tile")
    shape = (tiles, i_blocks, SIDE, SIDE, ci)
    twisted = _stage(
        shape, twist(1), lambda axes, k: tile(*axes[:3], k // 2 + HALF * (k % 2), axes[-1]), "twisted", "data_twist"
    )
    rows = _transform(shape, HALF, 1, HALF, partial(_along, twisted), "data_rows")
    held = te.compute(shape, lambda t, c, y, s, i: rows(t, c, y, s, i), name="data_held", tag="fourier_data_held")
    columns = _transform(
        (tiles, i_blocks, HALF, 2 * SIDE, ci),
        SIDE,
        1,
        SIDE,
        lambda axes, k: held(axes[0], axes[1], k // 2, 2 * axes[2] + k % 2, axes[-1]),
        "data_columns",
    )

    def form(v: te.Expr, u: te.Expr, f: te.ExprLike, c: te.Expr, t: te.Expr, i: te.Expr) -> te.Expr:
        re, im = (columns(t, c, v, 2 * u + part, i) for part in range(2))
        return te.select(f == 0, re + im, te.select(f == 1, re, im))

    result: te.Tensor = te.compute(
        (HALF, SIDE, FORMS, i_blocks, tiles, ci), form, name="data_points", tag="fourier_data"
    )
    return result


def _weight_points(weight: te.Tensor) -> te.Tensor:
    """(HALF, SIDE, FORMS, O/co, C/ci, ci, co): rows as plain sums, one bin after another, then columns."""
    o_blocks, i_blocks, ci, kh, kw, co = te.static_shape(weight)

    def root(v: int, x: int, part: int) -> float:
        turned = cmath.exp(1j * math.pi * (4 * v + 1) * x / SIDE) / (SIDE * HALF)  # both transforms back divide by it
        return turned.imag if part else turned.real

    flat = [root(v, x, part) for v in range(HALF) for part in range(2) for x in range(kw)]
    table = te.compute(
        (len(flat),),
        lambda k: _constant(k, flat, weight.dtype),
        name="roots",
        tag="fourier_roots",
    )

    def row(o: te.Expr, c: te.Expr, v: te.Expr, p: te.Expr, s: te.Expr, q: te.Expr) -> te.Expr:
        terms = (weight(o, c, p, kh - 1 - s // 2, kw - 1 - x, q) * table((v * 2 + s % 2) * kw + x) for x in range(kw))
        return functools.reduce(operator.add, terms)

    rows = te.compute((o_blocks, i_blocks, HALF, ci, 2 * kh, co), row, name="weight_rows", tag="fourier_weight_rows")
    columns = _transform(
        (o_blocks, i_blocks, HALF, ci, 2 * SIDE, co), SIDE, 1, kh, partial(_along, rows), "weight_columns"
    )

    def form(v: te.Expr, u: te.Expr, f: te.ExprLike, o: te.Expr, c: te.Expr, p: te.Expr, q: te.Expr) -> te.Expr:
        re, im = (columns(o, c, v, p, 2 * u + part, q) for part in range(2))
        return te.select(f == 0, re, te.select(f == 1, im - re, re + im))

    result: te.Tensor = te.compute(
        (HALF, SIDE, FORMS, o_blocks, i_blocks, ci, co), form, name="weight_points", tag="fourier_weight"
    )
    return result


def _constant(index: te.ExprLike, values: Sequence[float], dtype: str | DType) -> te.Expr:
    """`values[index]` as a choice, for an index that is known after unrolling."""
    result = te.const(values[-1], dtype)
    for k in reversed(range(len(values) - 1)):
        result = te.select(index == k, te.const(values[k], dtype), result)
    return result


def _output_tiles(product: te.Tensor, kernel: tuple[int, int]) -> te.Tensor:
    """(tiles, O/co, 17 - KH, 17 - KW, co): complex sums of the products, columns back, then rows back."""
    _, _, _, o_blocks, tiles, co = te.static_shape(product)
    (kh, kw), (m_h, m_w) = kernel, (SIDE - k + 1 for k in kernel)

    def joined(t: te.ExprLike, o: te.ExprLike, v: te.ExprLike, s: Any, j: te.ExprLike) -> te.ExprLike:
        first, second, third = (product(v, s // 2, f, o, t, j) for f in range(FORMS))
        return te.select((s % 2) == 0, first - third, first + second)

    shape = (tiles, o_blocks, HALF, 2 * SIDE, co)
    sums = te.compute(shape, joined, name="sums", tag="fourier_sums")
    columns = _transform(shape, SIDE, -1, SIDE, partial(_along, sums), "output_columns")
    held = te.compute(
        (tiles, o_blocks, HALF, m_h, 2, co),
        lambda t, o, v, y, part, j: columns(t, o, v, 2 * (y + kh - 1) + part, j),
        name="output_held",
        tag="fourier_output_held",
    )
    rows = _transform(
        (tiles, o_blocks, m_h, SIDE, co),
        HALF,
        -1,
        HALF,
        lambda axes, k: held(axes[0], axes[1], k // 2, axes[2], k % 2, axes[-1]),
        "output_rows",
    )
    back = twist(-1)
    untwist = [back[2 * (x % HALF) + x // HALF] for x in range(kw - 1, SIDE)]
    return _stage((tiles, o_blocks, m_h, m_w, co), untwist, partial(_along, rows), "output_tile", "output")


@fourier.macs
def _macs(_attrs: FourierAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """As the direct convolution."""
    return result.size * math.prod(types[1].static[1:-1])


@fourier.flops
def _flops(attrs: FourierAttrs, types: Sequence[TensorType], result: TensorType) -> float:
    """A multiply-add per point and pair of channels of a tile; the transforms of data, outputs and weights."""
    batch, chunks, height, width, block = result.static
    kh, kw = types[1].static[3:5]
    channels, outputs = types[0].static[1] * types[0].static[4], chunks * block
    tiles = batch * -(-height // (SIDE - kh + 1)) * -(-width // (SIDE - kw + 1))
    return 2.0 * tiles * POINTS * channels * outputs + TRANSFORM * (tiles * (channels + outputs) + channels * outputs)


@fourier.samples
def _samples() -> Iterator[Sample]:
    yield Sample(FourierAttrs((1, 2)), (f32(1, 1, 5, 4, 2), f32(1, 1, 2, 4, 5, 1)), atol=1e-4)


@fourier.bad_samples
def _bad() -> Iterator[BadSample]:
    yield BadSample(FourierAttrs(), (f32(1, 1, 8, 8, 4), f32(1, 2, 4, 5, 5, 4)), "the weight must be")
    yield BadSample(FourierAttrs(), (f32(1, 1, 8, 8, 4), f32(1, 1, 4, 3, 3, 4)), "the kernel must be of 4 to 15")
    wide = FourierAttrs(dilation=(2, 2))
    yield BadSample(wide, (f32(1, 1, 8, 8, 4), f32(1, 1, 4, 5, 5, 4)), "strides and dilation must be 1")
