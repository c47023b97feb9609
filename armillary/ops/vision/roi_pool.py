"""vision.roi_pool: the maximum of every cell of a grid over regions of a feature map (Fast R-CNN's layer).

In: data (N, C, H, W) or (N, H, W, C), rois (R, 5): number of the image, then x1, y1, x2, y2. Out: (R, C, h, w), or the
channels last. Invariant: corners of regions are rounded to elements (half away from zero), cells overlap where a
region does not divide; a cell outside the map is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import check_to_read
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    lowest,
    need_dtype,
    need_float,
    need_rank,
    numpy_within,
    per_axis,
    place_within,
    placed,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.types import TensorType, Type

NAME = "vision.roi_pool"
_FARTHEST = 1 << 20  # of an end from the image's first pixel: cells times their count stay within 32 bits


@record
class RoiPoolAttrs:
    pooled_size: tuple[int, ...] = (1, 1)
    spatial_scale: float = 1.0
    layout: str = "NCHW"


roi_pool = Op(NAME, kind=Kind.OPAQUE, inputs=("data", "rois"), doc="Maxima of the cells of regions.")
roi_pool.attrs(RoiPoolAttrs)


@roi_pool.infer
def _infer(attrs: RoiPoolAttrs, data: Type, rois: Type) -> TensorType:
    x, regions = need_float(NAME, need_rank(NAME, data, 4)), need_rank(NAME, rois, 2, "rois")
    need_dtype(NAME, x, regions)
    if regions.shape[1] != 5 or attrs.layout not in ("NCHW", "NHWC"):
        raise TypeMismatch(f"{NAME}: rois {regions} in layout {attrs.layout!r}; wanted 5 columns, NCHW or NHWC")
    check_to_read(NAME, x, (attrs.layout.index(axis) for axis in "NHW"), (regions.shape[0],))
    height, width = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    sizes = {"N": regions.shape[0], "C": x.shape[attrs.layout.index("C")], "H": height, "W": width}
    return TensorType(tuple(placed(attrs.layout, sizes)), x.dtype)


@roi_pool.reference
def _reference(attrs: RoiPoolAttrs, data: Array, rois: Array) -> Array:
    image = data if attrs.layout == "NCHW" else data.transpose(0, 3, 1, 2)
    counts = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    out = np.zeros((len(rois), image.shape[1], *counts), data.dtype)
    for r, i, j in np.ndindex(len(rois), *counts):
        spans = []
        for k, cell in enumerate((i, j)):  # rows, then columns
            ends = [_end(v) for v in rois[r, 2 - k :: 2][:2].astype(np.float32) * np.float32(attrs.spatial_scale)]
            share = max(ends[1] - ends[0] + 1, 1) / counts[k]
            bounds = (int(np.floor(cell * share)) + ends[0], int(np.ceil((cell + 1) * share)) + ends[0])
            spans.append(slice(*np.clip(bounds, 0, image.shape[2 + k])))
        picture = image[int(numpy_within(rois[r, 0], len(image) - 1)), :, spans[0], spans[1]]
        out[r, :, i, j] = picture.max((1, 2)) if picture.size else 0
    return out if attrs.layout == "NCHW" else out.transpose(0, 2, 3, 1)


def _end(value: np.floating) -> int:
    """The nearest whole number, half away from zero; of no number, and far outside, the farthest one."""
    rounded = np.trunc(value + np.copysign(np.float32(0.5), value))
    return int(min(rounded, _FARTHEST)) if rounded > -_FARTHEST else -_FARTHEST


@roi_pool.flops
def _flops(attrs: RoiPoolAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A comparison for each element of the image and region, if that is all of it."""
    return max(result.size, types[0].size // types[0].static[attrs.layout.index("N")] * types[1].static[0])


@roi_pool.compute
def _compute(attrs: RoiPoolAttrs, data: Tensor, rois: Tensor) -> Tensor:
    """Bounds of the cells along both axes, then maxima down the columns, then along the rows."""
    layout, counts = attrs.layout, per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    shape, regions = te.extents(data), te.extents(rois)[0]
    sizes = [shape[layout.index(axis)] for axis in "HW"]
    channels = shape[layout.index("C")]

    def bounds(k: int) -> Tensor:
        """(regions, cells, 2): the first element and the one behind the last."""

        def bound(r: te.Expr, cell: te.Expr, side: te.Expr) -> te.Expr:
            first, last = (_rounded(rois(r, c).astype("float32") * attrs.spatial_scale) for c in (2 - k, 4 - k))
            extent = T.maximum(last - first + 1, T.const(1))
            share = extent * cell // counts[k]  # of whole numbers: no rounding of quotients
            upper = (extent * (cell + 1) + (counts[k] - 1)) // counts[k]
            at = T.select(T.equal(side, T.const(0)), share, upper) + first
            return T.minimum(T.maximum(at, T.const(0)), T.cast(sizes[k], "int32"))

        return te.compute((regions, counts[k], 2), bound, name="roi_bounds", tag="packed")

    rows, columns = bounds(0), bounds(1)
    low = T.const(lowest(str(data.dtype)), data.dtype)
    down, along = te.reduce_axis((0, sizes[0]), "down"), te.reduce_axis((0, sizes[1]), "along")

    def column(r: te.Expr, c: te.Expr, i: te.Expr, x: te.Expr) -> te.Expr:
        image = place_within(rois(r, 0), shape[0] - 1)
        value = data(*placed(layout, {"N": image, "C": c, "H": down, "W": x}))
        return te.max(T.select(T.all_of(down >= rows(r, i, 0), down < rows(r, i, 1)), value, low), axis=down)

    maxima = te.compute((regions, channels, counts[0], sizes[1]), column, name="roi_columns")

    def cell(r: te.Expr, c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        inside = T.all_of(along >= columns(r, j, 0), along < columns(r, j, 1))
        return te.max(T.select(inside, maxima(r, c, i, along), low), axis=along)

    cells = te.compute((regions, channels, *counts), cell, name="roi_cells")

    def element(*index: te.Expr) -> te.Expr:
        r, c, i, j = (dict(zip(layout, index, strict=True))[axis] for axis in "NCHW")
        is_empty = T.any_of(rows(r, i, 1) <= rows(r, i, 0), columns(r, j, 1) <= columns(r, j, 0))
        return T.select(is_empty, T.const(0, data.dtype), cells(r, c, i, j))

    out = placed(layout, {"N": regions, "C": channels, "H": counts[0], "W": counts[1]})
    return te.compute(tuple(out), element, name="roi_pool")


def _rounded(value: te.Expr) -> te.Expr:
    """The same as an expression."""
    rounded = T.select(value < 0.0, te.ceil(value - 0.5), te.floor(value + 0.5))
    low, high = T.const(-float(_FARTHEST), "float32"), T.const(float(_FARTHEST), "float32")
    return T.cast(T.select(rounded > low, T.select(rounded < high, rounded, high), low), "int32")


@roi_pool.samples
def _samples() -> Iterator[Sample]:
    rois = np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3.5, 7.25], [0, -3, 4, 2, 12], [1, 20, 1, 30, 4]], np.float32)
    yield Sample(RoiPoolAttrs((2, 3), 0.75), (f32(2, 3, 6, 7), rois))
    yield Sample(RoiPoolAttrs((3, 2), 1.0, "NHWC"), (f32(2, 8, 6, 2), rois))


@roi_pool.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(RoiPoolAttrs(), (f32(1, 2, 4, 4), f32(3, 4)), "wanted 5 columns")
    yield BadSample(RoiPoolAttrs((1, 2, 3)), (f32(1, 2, 4, 4), f32(3, 5)), "pooled_size must be 2 integers")


state("vision.roi_pool", follows=Follows.REGIONS, axes=Axes("NCHW"))
