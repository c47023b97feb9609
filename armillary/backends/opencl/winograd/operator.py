"""Winograd convolution in plain layouts, as three kernels: transform, batched product, transform back.

In: data (N, C, H, W) and a transformed weight (a, a, C, O), where a = m + 2 and each tile gives m x m outputs. Out: (N,
O, OH, OW). Operators: opencl.winograd_weight (run when weights are loaded) and opencl.conv2d_winograd. Invariant: equal
to the direct convolution up to rounding; tiles are counted along one axis, filled up to a multiple of ALIGN with zeros,
so that the products have sizes that tiles of work-items divide. Chosen by graph/winograd_conv2d.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from armillary.backends.winograd import KERNEL, POINTS, matrices, pick_row
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32, need_rank, reduce_axes, widened_call
from armillary.ops.nn.conv import convolve, image_size, window
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

ALIGN = ((128, 32), (32, 16), (0, 4))  # from so many tiles on, a multiple of so many


@record
class WeightAttrs:
    tile_size: int = 4


@record
class WinogradAttrs:
    tile_size: int = 4
    padding: tuple[int, ...] = (0, 0)
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    choice: str = ""  # target/choice.py


weight_transform = Op("opencl.winograd_weight", kind=Kind.OPAQUE, inputs=("weight",))
winograd = Op("opencl.conv2d_winograd", kind=Kind.CONTRACTION, inputs=("data", "weight"))
weight_transform.attrs(WeightAttrs)
weight_transform.expands = True
winograd.attrs(WinogradAttrs)
winograd.decompose(partial(widened_call, winograd))


def _side(op: str, tile: int) -> int:
    if tile not in POINTS:
        raise TypeMismatch(f"{op}: tile_size must be one of {sorted(POINTS)}, got {tile}")
    return tile + KERNEL - 1


@weight_transform.infer
def _infer_weight(attrs: WeightAttrs, weight: Type) -> TensorType:
    w, side = need_rank(weight_transform.name, weight, 4, "weight"), _side(weight_transform.name, attrs.tile_size)
    if w.shape[2:] != (KERNEL, KERNEL):
        raise TypeMismatch(f"{weight_transform.name}: the kernel must be 3 x 3, got {w.shape[2]} x {w.shape[3]}")
    return TensorType((side, side, w.shape[1], w.shape[0]), w.dtype)


@weight_transform.reference
def _reference_weight(attrs: WeightAttrs, weight: Array) -> Array:
    g = matrices(attrs.tile_size).weight
    transformed = np.einsum("ay,oiyx,bx->abio", g, weight.astype(np.float64), g, optimize=True)
    return np.ascontiguousarray(transformed).astype(weight.dtype)


@weight_transform.compute
def _compute_weight(attrs: WeightAttrs, weight: te.Tensor) -> te.Tensor:
    g = matrices(attrs.tile_size).weight
    side, (units, channels, _, _) = len(g), weight.shape
    rows = te.compute(
        (side, KERNEL, channels, units),
        lambda a, x, i, o: pick_row(a, g, lambda y: weight(o, i, y, x)),
        name="rows",
    )
    result: te.Tensor = te.compute(
        (side, side, channels, units),
        lambda a, b, i, o: pick_row(b, g, lambda x: rows(a, x, i, o)),
        name="weights",
        tag="opencl_winograd_weight",
    )
    return result


@winograd.infer
def _infer(attrs: WinogradAttrs, data: Type, weight: Type) -> TensorType:
    op = winograd.name
    x, w, side = need_rank(op, data, 4), need_rank(op, weight, 4, "weight"), _side(op, attrs.tile_size)
    if w.shape[:3] != (side, side, x.shape[1]):
        wanted = f"({side}, {side}, {x.shape[1]}, O)"
        message = f"{op}: for data {x.shape} and tile {attrs.tile_size} the weight must be {wanted}, got {w.shape}"
        raise TypeMismatch(message)
    if set(attrs.strides) != {1} or set(attrs.dilation) != {1}:
        raise TypeMismatch(f"{op}: strides and dilation must be 1, got {attrs.strides} and {attrs.dilation}")
    size = image_size(op, attrs, x, (KERNEL, KERNEL))
    return TensorType((x.shape[0], w.shape[3], *size), x.dtype)


@winograd.reference
def _reference(attrs: WinogradAttrs, data: Array, weight: Array) -> Array:
    """The direct convolution with the kernel that the transformed weight came from (least squares, exact for it)."""
    inverse = np.linalg.pinv(matrices(attrs.tile_size).weight)
    kernel = np.einsum("ya,abio,xb->oiyx", inverse, weight.astype(np.float64), inverse, optimize=True)
    return convolve(data.astype(np.float64), kernel, window(winograd.name, attrs, 2), 1).astype(data.dtype)


def tiles_of(images: int, height: int, width: int, tile: int) -> tuple[int, int, int]:
    """Tiles along the rows and the columns of outputs, and of all images, filled up."""
    rows, columns = -(-height // tile), -(-width // tile)
    count = images * rows * columns
    multiple = next(to for least, to in ALIGN if count >= least)
    return rows, columns, -(-count // multiple) * multiple


@winograd.compute
def winograd_stages(attrs: WinogradAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Read a tile, transform along each axis, multiply at each point, transform back: every step a stage with a tag."""
    m, matrix_set = attrs.tile_size, matrices(attrs.tile_size)
    side, win = m + KERNEL - 1, window(winograd.name, attrs, 2)
    ((top, bottom), (left, right)) = win.pads
    n, channels, height, width = te.static_shape(data)
    units = te.static_shape(weight)[3]
    out_h, out_w = height + top + bottom - KERNEL + 1, width + left + right - KERNEL + 1
    rows, columns, count = tiles_of(n, out_h, out_w, m)
    each = rows * columns

    def read(c: te.Expr, p: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        image, row, column = p // each, p % each // columns * m + y - top, p % columns * m + x - left
        inside = te.all(image < n, row >= 0, row < height, column >= 0, column < width)
        return te.if_then_else(inside, data(image, c, row, column), te.const(0.0, data.dtype))

    patch = te.compute((channels, count, side, side), read, name="patch", tag="winograd_patch")
    half = te.compute(
        (channels, count, side, side),
        lambda c, p, u, x: pick_row(u, matrix_set.data, lambda y: patch(c, p, y, x)),
        name="data_rows",
        tag="winograd_rows",
    )
    points = te.compute(
        (side, side, channels, count),
        lambda u, v, c, p: pick_row(v, matrix_set.data, lambda x: half(c, p, u, x)),
        name="data_points",
        tag="winograd_data",
    )
    (c,) = reduce_axes([channels], ["rc"])
    product = te.compute(
        (side, side, units, count),
        lambda u, v, o, p: te.sum(weight(u, v, c, o) * points(u, v, c, p), axis=[c]),
        name="products",
        tag="winograd_product",
    )
    back = te.compute(
        (units, count, m, side),
        lambda o, p, y, v: pick_row(y, matrix_set.output, lambda u: product(u, v, o, p)),
        name="output_rows",
        tag="winograd_output_rows",
    )
    tile = te.compute(
        (units, count, m, m),
        lambda o, p, y, x: pick_row(x, matrix_set.output, lambda v: back(o, p, y, v)),
        name="output_tile",
        tag="winograd_output",
    )

    def element(b: te.Expr, o: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        return tile(o, b * each + y // m * columns + x // m, y % m, x % m)

    result: te.Tensor = te.compute((n, units, out_h, out_w), element, name="conv2d_winograd", tag="conv2d_winograd")
    return result


@winograd.macs
def _macs(_attrs: WinogradAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """As the 3x3 convolution that it computes."""
    return result.size * types[0].static[1] * KERNEL**2


@winograd.flops
def _flops(attrs: WinogradAttrs, types: Sequence[TensorType], result: TensorType) -> float:
    """A multiply-add for each point and pair of channels of a tile."""
    n, units, height, width = result.static
    *_, count = tiles_of(n, height, width, attrs.tile_size)
    return 2.0 * (attrs.tile_size + KERNEL - 1) ** 2 * count * units * types[0].static[1]


@weight_transform.samples
def _weight_samples() -> Iterator[Sample]:
    yield Sample(WeightAttrs(tile_size=2), (f32(5, 3, 3, 3),))
    yield Sample(WeightAttrs(tile_size=4), (f32(4, 6, 3, 3),))


@weight_transform.bad_samples
def _bad_weight() -> Iterator[BadSample]:
    yield BadSample(WeightAttrs(), (f32(1, 1, 5, 5),), "the kernel must be 3 x 3")
    yield BadSample(WeightAttrs(tile_size=3), (f32(1, 1, 3, 3),), "tile_size must be one of")


def _transformed(tile: int, *shape: int) -> Array:
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result: Array = _reference_weight(WeightAttrs(tile), weight)
    return result


@winograd.samples
def _samples() -> Iterator[Sample]:
    yield Sample(WinogradAttrs(2, (1, 1)), (f32(1, 8, 4, 5), _transformed(2, 4, 8, 3, 3)), atol=1e-4)
    yield Sample(WinogradAttrs(4, (1, 1)), (f32(2, 8, 8, 7), _transformed(4, 16, 8, 3, 3)), atol=2e-4)
    yield Sample(WinogradAttrs(4, (0, 1, 2, 0)), (f32(1, 3, 14, 14), _transformed(4, 5, 3, 3, 3)), atol=2e-4)


@winograd.bad_samples
def _bad() -> Iterator[BadSample]:
    yield BadSample(WinogradAttrs(), (f32(1, 1, 8, 8), f32(4, 4, 1, 1)), "the weight must be")
    strided = WinogradAttrs(strides=(2, 2))
    yield BadSample(strided, (f32(1, 1, 8, 8), f32(6, 6, 1, 1)), "strides and dilation must be 1")
