"""Winograd convolution in blocked layouts: 3x3 kernels, stride 1, any dilation, groups of whole blocks.

In: data (N, C/ci, H, W, ci) and a transformed weight (a, a, O/co, C/groups/ci, ci, co), where a = m + 2 and each tile
gives m x m outputs. Out: (N, O/co, OH, OW, co). Operators: cpu.conv2d_winograd_weight_transform (run when
weights are loaded) and cpu.conv2d_winograd_NCHWc. Invariant: equal to the direct convolution up to rounding; the
points of F(4,3) are 0, +-1/sqrt(2), +-sqrt(2), infinity, which keep the largest matrix entry at 2.83 and a single
layer's error at about 5 times that of the direct sum (with +-1, +-2: 13 times). Source: S. Winograd, "Arithmetic
Complexity of Computations" (1980); A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2015);
matrices by the Cook-Toom construction. Chosen by winograd_conv2d.py.

With dilation d the outputs of a tile lie d apart, in rows and in columns, and so do the inputs they need: d x d tiles
interleave, and their products are those of any other tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.conv2d.winograd.cost import KERNEL, Layer, tiles_along
from armillary.backends.winograd import POINTS, matrices
from armillary.backends.winograd import pick_row as _pick
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import f32, known, need_rank, reduce_axes, widened_call
from armillary.ops.nn.conv import convolve, image_size, window
from armillary.ops.nn.conv_blocked import unblock
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type
from armillary.target.choice import Choice

Place = Callable[["te.Expr"], tuple["te.Expr", ...]]  # of a block of channels: where its tiles' points lie

if TYPE_CHECKING:
    from armillary.ops.nn.conv_blocked import BlockedConv2DAttrs


@record
class WeightTransformAttrs:
    tile_size: int = 4


@record
class WinogradAttrs:
    tile_size: int = 4
    padding: tuple[int, ...] = (0, 0)
    channels: int | None = None
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    choice: str = ""  # target/choice.py


_PART = 1 << 15  # kernels transformed together

weight_transform = Op("cpu.conv2d_winograd_weight_transform", kind=Kind.OPAQUE, inputs=("weight",))
winograd = Op("cpu.conv2d_winograd_NCHWc", kind=Kind.CONTRACTION, inputs=("data", "weight"))
weight_transform.attrs(WeightTransformAttrs)
weight_transform.expands = True
winograd.attrs(WinogradAttrs)
winograd.decompose(partial(widened_call, winograd))


@weight_transform.infer
def _infer_weight(attrs: WeightTransformAttrs, weight: Type) -> TensorType:
    op = weight_transform.name
    w = need_rank(op, weight, 6, "weight")
    _check_tile(op, attrs.tile_size)
    if w.shape[2:4] != (KERNEL, KERNEL):
        raise TypeMismatch(f"{op}: the kernel must be 3 x 3, got {w.shape[2]} x {w.shape[3]}")
    side = attrs.tile_size + KERNEL - 1
    return TensorType((side, side, *w.shape[:2], *w.shape[4:]), w.dtype)


def _check_tile(op: str, tile: int) -> None:
    if tile not in POINTS:
        raise TypeMismatch(f"{op}: tile_size must be one of {sorted(POINTS)}, got {tile}")


@weight_transform.reference
def _reference_weight(attrs: WeightTransformAttrs, weight: Array) -> Array:
    g = matrices(attrs.tile_size).weight
    both = np.kron(g, g)  # (side * side, 9): row and column transform at once
    o, i, _, _, p, q = weight.shape
    result = np.empty((len(both), o * i, p * q), weight.dtype)
    blocks = weight.reshape(o * i, KERNEL * KERNEL, p * q)
    step = max(1, _PART // (p * q))  # in parts that stay in the cache: ten times faster than all at once
    for k in range(0, o * i, step):
        part = blocks[k : k + step].transpose(1, 0, 2).reshape(KERNEL * KERNEL, -1).astype(np.float64)
        result[:, k : k + step] = (both @ part).reshape(len(both), -1, p * q)
    return result.reshape(len(g), len(g), o, i, p, q)


@weight_transform.compute
def _compute_weight(attrs: WeightTransformAttrs, weight: te.Tensor) -> te.Tensor:
    g = matrices(attrs.tile_size).weight
    side = g.shape[0]
    shape = (side, KERNEL, *weight.shape[:2], *weight.shape[4:])
    rows = te.compute(shape, lambda a, x, o, i, p, q: _pick(a, g, lambda y: weight(o, i, y, x, p, q)), name="rows")
    shape = (side, side, *weight.shape[:2], *weight.shape[4:])
    result: te.Tensor = te.compute(
        shape, lambda a, b, o, i, p, q: _pick(b, g, lambda x: rows(a, x, o, i, p, q)), name="weights"
    )
    return result


@winograd.infer
def _infer(attrs: WinogradAttrs, data: Type, weight: Type) -> TensorType:
    op = winograd.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 6, "weight")
    _check_tile(op, attrs.tile_size)
    side = attrs.tile_size + KERNEL - 1
    channels = known(x.shape[1])
    blocks, rest = divmod(0 if channels is None else channels, attrs.groups)
    if rest or w.static[2] % attrs.groups:
        raise TypeMismatch(
            f"{op}: {x.shape[1]} input and {w.shape[2]} output blocks cannot be divided into {attrs.groups} groups"
        )
    if (*w.shape[:2], *w.shape[3:5]) != (side, side, blocks, x.shape[4]):
        raise TypeMismatch(
            f"{op}: for data {x.shape}, {attrs.groups} group(s) and tile {attrs.tile_size} the weight must be "
            f"({side}, {side}, O/o, {blocks}, {x.shape[4]}, o), got {w.shape}"
        )
    if set(attrs.strides) != {1}:
        raise TypeMismatch(f"{op}: strides must be 1, got {attrs.strides}")
    size = image_size(op, attrs, x, (KERNEL, KERNEL))
    return TensorType((x.shape[0], w.shape[2], *size, w.shape[5]), x.dtype)


@winograd.reference
def _reference(attrs: WinogradAttrs, data: Array, weight: Array) -> Array:
    """The direct convolution with the kernel that the transformed weight came from (least squares, exact for it)."""
    inverse = np.linalg.pinv(matrices(attrs.tile_size).weight)
    kernel = np.einsum("ya,aboipq,xb->oqipyx", inverse, weight.astype(np.float64), inverse, optimize=True)
    o, q, i, p, *_ = kernel.shape
    full = kernel.reshape(o * q, i * p, KERNEL, KERNEL)
    y = convolve(unblock(data).astype(np.float64), full, window(winograd.name, attrs, 2), attrs.groups)
    n, _, h, w = y.shape
    return np.ascontiguousarray(y.reshape(n, o, q, h, w).transpose(0, 1, 3, 4, 2)).astype(data.dtype)


def layer_of(attrs: BlockedConv2DAttrs | WinogradAttrs, data: TensorType, result: TensorType) -> Layer:
    """The sizes of a blocked 3x3 convolution with stride 1, as the cost model takes them."""
    win = window(winograd.name, attrs, 2)
    batch, chunks, height, width, block = result.static
    _, blocks, *sizes, inner = data.static
    taps = tuple(_taps_inside(*axis) for axis in zip(sizes, (height, width), win.pads, win.dilation, strict=True))
    return Layer(blocks * inner, chunks * block, batch, height, width, block, win.dilation, taps, attrs.groups)


def _taps_inside(size: int, outputs: int, pads: tuple[int, int], dilation: int) -> float:
    """How many taps lie on the data, of an average output; the cost model was fitted with all for dilation 1."""
    if dilation == 1:
        return float(KERNEL)
    starts = range(-pads[0], KERNEL * dilation - pads[0], dilation)
    return sum(len(range(max(0, s), min(size, s + outputs))) for s in starts) / outputs


def _place(tile: te.Expr, index: te.Index, m: int, dilation: int) -> te.Expr:
    """The row or column of an element of a tile."""
    if dilation == 1:
        return tile * m + index
    return tile // dilation * (m * dilation) + tile % dilation + index * dilation


def _tile_of(place: te.Expr, m: int, dilation: int) -> tuple[te.Expr, te.Expr]:
    """The tile of a row or column, and its index there: the inverse of `_place`."""
    if dilation == 1:
        return place // m, place % m
    group, rest = place // (m * dilation), place % (m * dilation)
    return group * dilation + place % dilation, rest // dilation


@winograd.compute
def winograd_stages(attrs: WinogradAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Tile, transform along each axis, multiply per point, transform back: every step a stage with a tag.

    Tiles of open images in phases have one axis, so that products are as well of few tiles in a line as of many.
    """
    m, rows = attrs.tile_size, matrices(attrs.tile_size)
    side, win = m + KERNEL - 1, window(winograd.name, attrs, 2)
    ((top, _), (left, _)), (dy, dx) = win.pads, win.dilation
    n, i_blocks, height, width, ci = te.extents(data)
    _, _, o_blocks, _, _, co = te.static_shape(weight)
    out_h, out_w = (
        size + (sum(pad) - (KERNEL - 1) * d)
        for size, pad, d in zip((height, width), win.pads, win.dilation, strict=True)
    )
    th, tw = tiles_along(out_h, m, dy), tiles_along(out_w, m, dx)
    is_fixed = isinstance(height, int) and isinstance(width, int)
    is_flat = not is_fixed and Choice.parse(attrs.choice).knob("strip") == 0

    def read(b: te.Expr, c: te.Expr, p: te.Expr, q: te.Expr, y: te.Expr, x: te.Expr, i: te.Expr) -> te.Expr:
        row, column = _place(p, y, m, dy) - top, _place(q, x, m, dx) - left
        inside = te.all(row >= 0, row < T.convert(height), column >= 0, column < T.convert(width))
        return te.if_then_else(inside, data(b, c, row, column, i), te.const(0.0, data.dtype))

    tile = te.compute((n, i_blocks, th, tw, side, side, ci), read, name="tile", tag="winograd_tile")
    half = te.compute(
        (n, i_blocks, th, tw, side, side, ci),
        lambda b, c, p, q, y, v, i: _pick(v, rows.data, lambda x: tile(b, c, p, q, y, x, i)),
        name="data_rows",
        tag="winograd_data_rows",
    )
    points = _transformed_data(half, rows.data, is_flat=is_flat)
    product = _products(attrs, points, weight, is_flat=is_flat)

    def place(b: te.Expr, o: te.Expr, p: te.Expr, q: te.Expr) -> tuple[te.Expr, ...]:
        return (o, (b * th + p) * tw + q) if is_flat else (b, p, o, q)

    back = te.compute(
        (n, o_blocks, th, tw, m, side, co),
        lambda b, o, p, q, y, v, j: _pick(y, rows.output, lambda u: product(u, v, *place(b, o, p, q), j)),
        name="output_rows",
        tag="winograd_output_rows",
    )
    block = te.compute(
        (n, o_blocks, th, tw, m, m, co),
        lambda b, o, p, q, y, x, j: _pick(x, rows.output, lambda v: back(b, o, p, q, y, v, j)),
        name="output_tile",
        tag="winograd_output",
    )

    def pick(b: te.Expr, o: te.Expr, y: te.Expr, x: te.Expr, j: te.Expr) -> te.Expr:
        (p, v), (q, w) = _tile_of(y, m, dy), _tile_of(x, m, dx)
        total: te.Expr = block(b, o, p, q, v, w, j)
        return total

    result: te.Tensor = te.compute((n, o_blocks, out_h, out_w, co), pick, name="conv2d_winograd", tag="conv2d_winograd")
    return result


def _transformed_data(half: te.Tensor, matrix: Array, *, is_flat: bool) -> te.Tensor:
    """The second transform of each tile, by points: tiles in lines of an image, or all one after another."""
    n, i_blocks, th, tw, side, _, ci = half.shape

    def tile(u: te.Expr, v: te.Expr, b: te.Expr, p: te.Expr, c: te.Expr, q: te.Expr, i: te.Expr) -> te.Expr:
        value: te.Expr = _pick(u, matrix, lambda y: half(b, c, p, q, y, v, i))
        return value

    def flat(u: te.Expr, v: te.Expr, c: te.Expr, t: te.Expr, i: te.Expr) -> te.Expr:
        return tile(u, v, t // (th * tw), t // tw % th, c, t % tw, i)

    shape = (side, side, i_blocks, n * th * tw, ci) if is_flat else (side, side, n, th, i_blocks, tw, ci)
    result: te.Tensor = te.compute(shape, flat if is_flat else tile, name="data_points", tag="winograd_data")
    return result


def _products(attrs: WinogradAttrs, points: te.Tensor, weight: te.Tensor, *, is_flat: bool) -> te.Tensor:
    """Per point a product of tiles and weights; tiles are as `points` has them."""
    side, _, o_blocks, inside, ci, co = te.static_shape(weight)
    ico, ici = reduce_axes([inside, ci], ["ic_outer", "ic_inner"])

    def summed(u: te.Expr, v: te.Expr, o: te.Expr, j: te.Expr, place: Place) -> te.Expr:
        block = ico if attrs.groups == 1 else o // (o_blocks // attrs.groups) * inside + ico
        return te.sum(points(u, v, *place(block), ici) * weight(u, v, o, ico, ici, j), axis=[ico, ici])

    def multiply(u: te.Expr, v: te.Expr, b: te.Expr, p: te.Expr, o: te.Expr, q: te.Expr, j: te.Expr) -> te.Expr:
        return summed(u, v, o, j, lambda c: (b, p, c, q))

    def flat(u: te.Expr, v: te.Expr, o: te.Expr, t: te.Expr, j: te.Expr) -> te.Expr:
        return summed(u, v, o, j, lambda c: (c, t))

    lines = points.shape[2:-1]
    tiles: tuple[te.ExprLike, ...] = (o_blocks, lines[1]) if is_flat else (*lines[:2], o_blocks, lines[3])
    shape = (side, side, *tiles, co)
    result: te.Tensor = te.compute(shape, flat if is_flat else multiply, name="products", tag="winograd_product")
    return result


@winograd.macs
def _macs(attrs: WinogradAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """As the 3x3 convolution that it computes."""
    return result.size * types[0].static[1] * types[0].static[4] * KERNEL**2 // attrs.groups


@winograd.flops
def _flops(attrs: WinogradAttrs, types: Sequence[TensorType], result: TensorType) -> float:
    """A multiply-add per point and pair of channels of a tile, and those of the transforms of data and output."""
    batch, chunks, height, width, block = result.static
    channels, outputs, m = types[0].static[1] * types[0].static[4], chunks * block, attrs.tile_size
    side, rows = m + KERNEL - 1, matrices(m)
    (dy, dx) = window(winograd.name, attrs, 2).dilation
    tiles = batch * tiles_along(height, m, dy) * tiles_along(width, m, dx)
    data, back = (int(np.count_nonzero(np.abs(x) > 1e-12)) for x in (rows.data, rows.output))
    transforms = channels * 2 * side * data + outputs * (side + m) * back
    return 2.0 * tiles * (side * side * channels * outputs / attrs.groups + transforms)


@weight_transform.samples
def _weight_samples() -> Iterator[Sample]:
    yield Sample(WeightTransformAttrs(tile_size=2), (f32(1, 2, 3, 3, 4, 4),))
    yield Sample(WeightTransformAttrs(tile_size=4), (f32(2, 1, 3, 3, 4, 4),))


@weight_transform.bad_samples
def _bad_weight() -> Iterator[BadSample]:
    yield BadSample(WeightTransformAttrs(), (f32(1, 1, 5, 5, 4, 4),), "the kernel must be 3 x 3")
    yield BadSample(WeightTransformAttrs(tile_size=3), (f32(1, 1, 3, 3, 4, 4),), "tile_size must be one of")


def _transformed(tile: int, *shape: int) -> Array:
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result: Array = _reference_weight(WeightTransformAttrs(tile), weight)
    return result


@winograd.samples
def _samples() -> Iterator[Sample]:
    yield Sample(WinogradAttrs(2, (1, 1)), (f32(1, 1, 4, 5, 4), _transformed(2, 1, 1, 3, 3, 4, 4)), atol=1e-4)
    yield Sample(WinogradAttrs(4, (1, 1)), (f32(1, 2, 8, 7, 4), _transformed(4, 1, 2, 3, 3, 4, 4)), atol=1e-4)
    yield Sample(
        WinogradAttrs(2, (2, 1), dilation=(3, 2)), (f32(1, 1, 8, 7, 4), _transformed(2, 1, 1, 3, 3, 4, 4)), atol=1e-4
    )
    grouped = WinogradAttrs(2, (1, 1), groups=2)
    yield Sample(grouped, (f32(1, 4, 5, 6, 4), _transformed(2, 6, 2, 3, 3, 4, 4)), atol=1e-4)
    yield Sample(WinogradAttrs(4, (0, 0)), (f32(2, 1, 14, 14, 16), _transformed(4, 2, 1, 3, 3, 16, 16)), atol=3e-4)


@winograd.bad_samples
def _bad() -> Iterator[BadSample]:
    yield BadSample(WinogradAttrs(), (f32(1, 1, 8, 8, 4), f32(4, 4, 1, 1, 4, 4)), "the weight must be")
    strided = WinogradAttrs(strides=(2, 2))
    yield BadSample(strided, (f32(1, 1, 8, 8, 4), f32(6, 6, 1, 1, 4, 4)), "strides must be 1")
    grouped = WinogradAttrs(2, groups=2)
    yield BadSample(grouped, (f32(1, 4, 8, 8, 4), f32(4, 4, 2, 4, 4, 4)), "the weight must be")
    yield BadSample(grouped, (f32(1, 4, 8, 8, 4), f32(4, 4, 3, 2, 4, 4)), "cannot be divided into 2 groups")
