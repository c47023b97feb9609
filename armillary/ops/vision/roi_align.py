"""vision.roi_align: regions of a feature map pooled to one size; and ONNX RoiAlign.

In: data (N, C, H, W) and rois (R, 5): number of the image, then x1, y1, x2, y2 in the image's coordinates. Out:
(R, C, h, w): the average (or maximum) of sample_ratio x sample_ratio bilinear samples in each cell. Invariant: samples
more than one element outside the map count as 0; with `half_pixel` regions may be of any size, else of at least 1. In
mode "max" the largest single weighted corner wins, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import T, te
from armillary.ops._types import check_to_read
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_float,
    need_rank,
    numpy_within,
    per_axis,
    place_within,
    reduce_axes,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.types import TensorType, Type

Value = TypeVar("Value", Array, "te.Expr")

NAME = "vision.roi_align"


@record
class RoiAlignAttrs:
    pooled_size: tuple[int, ...] = (1, 1)
    spatial_scale: float = 1.0
    sample_ratio: int = -1
    layout: str = "NCHW"
    mode: str = "avg"
    half_pixel: bool = False


roi_align = Op(NAME, kind=Kind.CONTRACTION, inputs=("data", "rois"), doc="Regions pooled from bilinear samples.")
roi_align.attrs(RoiAlignAttrs)


@roi_align.infer
def infer(attrs: RoiAlignAttrs, data: Type, rois: Type) -> TensorType:
    x = need_float(NAME, need_rank(NAME, data, 4))
    regions = need_rank(NAME, rois, 2, "rois")
    need_dtype(NAME, x, regions)
    if regions.shape[1] != 5:
        raise TypeMismatch(f"{NAME}: rois must have 5 columns, got {regions}")
    if attrs.layout != "NCHW" or attrs.mode not in ("avg", "max"):
        raise TypeMismatch(f"{NAME}: layout {attrs.layout!r} with mode {attrs.mode!r} is not known")
    if attrs.sample_ratio < 1:
        raise UnsupportedError(f"{NAME}: the number of samples would depend on the regions", hint="set sample_ratio")
    check_to_read(NAME, x, (0, 2, 3), (regions.shape[0], x.shape[1]))
    return TensorType((regions.shape[0], x.shape[1], *per_axis(NAME, "pooled_size", attrs.pooled_size, 2)), x.dtype)


def _places(
    maximum: Callable[[Value, float], Value],
    attrs: RoiAlignAttrs,
    ends: tuple[Value, Value],
    cell: Value,
    sample: Value,
    cells: int,
) -> Value:
    """Where sample number `sample` of cell number `cell` lies along one axis; `maximum` is of the same values."""
    offset = 0.5 if attrs.half_pixel else 0.0
    start, end = (v * attrs.spatial_scale - offset for v in ends)
    extent = end - start if attrs.half_pixel else maximum(end - start, 1.0)
    size = extent * (1.0 / cells)
    return start + cell * size + (sample + 0.5) * size * (1.0 / attrs.sample_ratio)


@roi_align.reference
def reference(attrs: RoiAlignAttrs, data: Array, rois: Array) -> Array:
    height, width = data.shape[2:]
    rows, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    box = rois[:, :, None, None].astype(np.float32)
    steps = np.arange(attrs.sample_ratio, dtype=np.float32)
    cells = [np.arange(count, dtype=np.float32)[None, :, None] for count in (rows, columns)]
    x = _places(np.maximum, attrs, (box[:, 1], box[:, 3]), cells[1], steps, columns)[:, None]
    image = numpy_within(rois[:, 0], data.shape[0] - 1).astype(np.int32)[:, None, None, None]
    pooled: Array | None = None
    for step in steps:  # one row of samples of each cell at a time: all of them may fill the memory
        y = _places(np.maximum, attrs, (box[:, 2], box[:, 4]), cells[0], np.asarray(step), rows)[..., None]
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)  # region, row, column, sample
        for y_at, y_weight in _corners(y, height):
            for x_at, x_weight in _corners(x, width):
                at: tuple[Array | slice, ...] = (image, slice(None), *np.broadcast_arrays(y_at, x_at))
                value = data[at].astype(np.float32) * np.where(inside, y_weight * x_weight, 0)[..., None]
                found = value.max(3) if attrs.mode == "max" else value.sum(3)
                combine = np.maximum if attrs.mode == "max" else np.add
                pooled = found if pooled is None else combine(pooled, found)
    share = 1 if attrs.mode == "max" else attrs.sample_ratio**2
    return (np.asarray(pooled) / np.float32(share)).transpose(0, 3, 1, 2).astype(data.dtype)


@roi_align.flops
def flops(attrs: RoiAlignAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A multiply-add for each of the four neighbours of each sample."""
    return 8 * result.size * attrs.sample_ratio**2


def _corners(at: Array, size: int) -> list[tuple[Array, Array]]:
    """The two neighbours along an axis and their weights."""
    at = numpy_within(at, size - 1)
    low = np.floor(at).astype(np.int32)
    return [(low, 1 - (at - low)), (np.minimum(low + 1, size - 1), at - low)]


@roi_align.compute
def compute(attrs: RoiAlignAttrs, data: Tensor, rois: Tensor) -> Tensor:
    """Where each sample reads along an axis and with what weight, once for all channels; then sums of rows of channels.

    Stages: `roi_rows` (N, H * W, C), `roi_place` and `roi_weight` (R, cells, samples, 2) of each axis, `roi_align`.
    """
    count, channels, height, width = te.static_shape(data)
    rows, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    regions, samples = te.static_shape(rois)[0], attrs.sample_ratio

    def along(first: int, cells: int, size: int, pitch: int) -> tuple[Tensor, Tensor]:
        def at(r: te.Expr, cell: te.Expr, sample: te.Expr) -> te.Expr:
            ends = rois(r, first).astype("float32"), rois(r, first + 2).astype("float32")
            return _places(T.maximum, attrs, ends, cell.astype("float32"), sample.astype("float32"), cells)

        def place(r: te.Expr, cell: te.Expr, sample: te.Expr, side: te.Expr) -> te.ExprLike:
            return T.minimum(_low(at(r, cell, sample), size) + side, T.const(size - 1)) * pitch

        def weight(r: te.Expr, cell: te.Expr, sample: te.Expr, side: te.Expr) -> te.ExprLike:
            value, one = at(r, cell, sample), T.const(1.0, "float32")
            is_inside = T.logical_and(value >= -1.0, value <= float(size))
            fraction = _clamped(value, size) - T.cast(_low(value, size), "float32")
            chosen = T.select(T.equal(side, T.const(0)), one - fraction, fraction)
            return T.select(is_inside, chosen, T.const(0.0, "float32"))

        shape = (regions, cells, samples, 2)
        return (
            te.compute(shape, place, name="roi_place", tag="roi_place"),
            te.compute(shape, weight, name="roi_weight", tag="roi_weight"),
        )

    flat = te.compute(
        (count, height * width, channels),
        lambda n, p, c: data(n, c, p // width, p % width).astype("float32"),
        name="roi_rows",
        tag="packed",
    )
    (y_place, y_weight), (x_place, x_weight) = along(2, rows, height, width), along(1, columns, width, 1)
    inner = reduce_axes([samples, samples, 2, 2], ["sy", "sx", "ky", "kx"])
    sy, sx, ky, kx = inner

    def pooled(r: te.Expr, p: te.Expr, c: te.Expr) -> te.Expr:
        image = place_within(rois(r, 0), count - 1)
        i, j = p // columns, p % columns
        value = flat(image, y_place(r, i, sy, ky) + x_place(r, j, sx, kx), c)
        value = value * (y_weight(r, i, sy, ky) * x_weight(r, j, sx, kx))
        return te.max(value, axis=inner) if attrs.mode == "max" else te.sum(value, axis=inner)

    cells = te.compute((regions, rows * columns, channels), pooled, name="roi_align", tag="roi_align")
    scale = 1.0 if attrs.mode == "max" else 1.0 / samples**2
    made: Tensor = te.compute(
        (regions, channels, rows, columns),
        lambda r, c, i, j: T.cast(cells(r, i * columns + j, c) * T.const(scale, "float32"), data.dtype),
        name="pooled",
    )
    return made


def _clamped(at: te.Expr, size: int) -> te.Expr:
    return T.minimum(T.maximum(at, T.const(0.0, "float32")), T.const(size - 1.0, "float32"))


def _low(at: te.Expr, size: int) -> te.Expr:
    return place_within(T.call("floor", at), size - 1)


@roi_align.samples
def samples() -> Iterator[Sample]:
    rois = np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3.5, 7.25], [0, -3, 4, 2, 12]], np.float32)
    for mode in ("avg", "max"):
        yield Sample(RoiAlignAttrs((2, 3), 0.75, 2, mode=mode), (f32(2, 3, 6, 7), rois))
        yield Sample(RoiAlignAttrs((3, 3), 1.0, 3, mode=mode, half_pixel=True), (f32(2, 2, 8, 6), rois))


@roi_align.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(RoiAlignAttrs(sample_ratio=2), (f32(1, 2, 4, 4), f32(3, 4)), "must have 5 columns")
    yield BadSample(RoiAlignAttrs(), (f32(1, 2, 4, 4), f32(3, 5)), "would depend on the regions")
    yield BadSample(RoiAlignAttrs(sample_ratio=2, mode="min"), (f32(1, 2, 4, 4), f32(3, 5)), "mode 'min' is not known")


state("vision.roi_align", follows=Follows.REGIONS, axes=Axes("NCHW"))
