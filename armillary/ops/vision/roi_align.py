"""vision.roi_align: regions of a feature map pooled to one size; and ONNX RoiAlign.

In: data (N, C, H, W), or with the channels last, and rois (R, 5): number of the image, then x1, y1, x2, y2 in the
image's coordinates. Out: (R, C, h, w), or with the channels last: the average (or maximum) of sample_ratio x
sample_ratio bilinear samples in each cell; where the ratio is 0 or less, a cell has as many as it is elements high and
wide, rounded up. Invariant: samples more than one element outside the map count as 0; with `half_pixel` regions may be
of any size, else of at least 1. Mode "max" takes the largest sample, as Relay did; in mode "max_corners" the largest
single weighted corner wins, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import E, S, T, te
from armillary.ops._loops import load, loop, nest, rows, scratch, store
from armillary.ops._types import check_to_read, number
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
_AXES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 3, 1, 2)}  # where the axes of planes lie
MOST_SAMPLES = (1 << 24) - 1  # of a cell along an axis, where the regions say how many


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
    if attrs.layout not in _AXES or attrs.mode not in ("avg", "max", "max_corners"):
        raise TypeMismatch(f"{NAME}: layout {attrs.layout!r} with mode {attrs.mode!r} is not known")
    count, channels, height, width = (x.shape[axis] for axis in _AXES[attrs.layout])
    planes = TensorType((count, channels, height, width), x.dtype)
    check_to_read(NAME, planes, (0, 2, 3), (regions.shape[0], channels))
    shape = (regions.shape[0], channels, *per_axis(NAME, "pooled_size", attrs.pooled_size, 2))
    return TensorType(shape if attrs.layout == "NCHW" else (shape[0], *shape[2:], channels), x.dtype)


def _cells(
    maximum: Callable[[Value, float], Value], attrs: RoiAlignAttrs, ends: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Where a region starts along an axis, and how long it is; `maximum` is of the same values."""
    offset = 0.5 if attrs.half_pixel else 0.0
    start, end = (v * attrs.spatial_scale - offset for v in ends)
    return start, end - start if attrs.half_pixel else maximum(end - start, 1.0)


def _places(
    maximum: Callable[[Value, float], Value],
    attrs: RoiAlignAttrs,
    ends: tuple[Value, Value],
    cell: Value,
    sample: Value,
    cells: int,
    share: float | Value,
) -> Value:
    """Where sample number `sample` of cell number `cell` lies along one axis; `share` of a cell is a sample's."""
    start, extent = _cells(maximum, attrs, ends)
    size = extent * (1.0 / cells)
    return start + cell * size + (sample + 0.5) * size * share


@roi_align.reference
def reference(attrs: RoiAlignAttrs, data: Array, rois: Array) -> Array:
    if attrs.layout == "NHWC":
        planes = np.ascontiguousarray(data.transpose(_AXES["NHWC"]))
        pooled: Array = reference(replace(attrs, layout="NCHW"), planes, rois)
        return pooled.transpose(0, 2, 3, 1)
    lines, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    image = numpy_within(rois[:, 0], data.shape[0] - 1).astype(np.int32)
    pooled = np.zeros((len(rois), data.shape[1], lines, columns), np.float32)
    for region, box in enumerate(rois.astype(np.float32)):
        (y, y_count), (x, x_count) = (
            _grid(attrs, box[n], box[n + 2], cells, size)
            for n, cells, size in ((2, lines, data.shape[2]), (1, columns, data.shape[3]))
        )
        if y.size and x.size:
            sums = _pooled(attrs.mode, data[image[region]].astype(np.float32), y, x)
            pooled[region] = sums / np.float32(y_count * x_count) if attrs.mode == "avg" else sums
    return pooled.astype(data.dtype)


def _grid(attrs: RoiAlignAttrs, first: Array, last: Array, cells: int, size: int) -> tuple[Array, int]:
    """Where the samples of a region lie along an axis, (cells, samples), and how many a cell has.

    Where the regions say how many, those beside the map, of which a far region has millions, are one: they are zeros.
    """
    cell, count = np.arange(cells, dtype=np.float32)[:, None], attrs.sample_ratio
    if count > 0:
        sample = np.arange(count, dtype=np.float32)
        return _places(np.maximum, attrs, (first, last), cell, sample, cells, np.asarray(1 / count, np.float32)), count
    extent = _cells(np.maximum, attrs, (first, last))[1]
    count = int(numpy_within(np.ceil(extent / np.float32(cells)), MOST_SAMPLES))
    share = np.asarray(1 / max(count, 1), np.float32)
    origin: Array = _places(np.maximum, attrs, (first, last), cell, np.zeros(1, np.float32), cells, share)
    step = extent * np.float32(1 / cells) * share
    pace = np.maximum(step, np.float32(1e-6))
    low = numpy_within(np.floor((-1 - origin) / pace) - 1, count)
    high = numpy_within(np.ceil((size - origin) / pace) + 2, count)
    longest = min(int((high - low).max()) + 1, count)
    sample = low + np.arange(longest, dtype=np.float32)
    return np.where(sample < high, origin + sample * step, np.float32(-2)), count


def _pooled(mode: str, image: Array, y: Array, x: Array) -> Array:
    """One region: samples at all y of a row of cells and all x of a column, summed, or the greatest of them."""
    height, width = image.shape[1:]
    best: Array | None = None
    for step in range(y.shape[1]):  # one row of samples of each cell at a time: all of them may fill the memory
        at = y[:, step][:, None, None]  # cell, column, sample
        inside = (at >= -1) & (at <= height) & (x >= -1) & (x <= width)
        corners = []
        for y_at, y_weight in _corners(at, height):
            for x_at, x_weight in _corners(x, width):
                at_y, at_x = np.broadcast_arrays(y_at, x_at)
                value = image[:, at_y, at_x]
                corners.append(value * np.where(inside, y_weight * x_weight, 0))
        samples = np.max(corners, axis=0) if mode == "max_corners" else np.sum(corners, axis=0)
        line = samples.sum(3) if mode == "avg" else samples.max(3)
        best = line if best is None else best + line if mode == "avg" else np.maximum(best, line)
    assert best is not None, "there are samples"
    return best


@roi_align.flops
def flops(attrs: RoiAlignAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A multiply-add for each of the four neighbours of each sample; two by two where the regions say how many."""
    return 8 * result.size * (attrs.sample_ratio if attrs.sample_ratio > 0 else 2) ** 2


def _corners(at: Array, size: int) -> list[tuple[Array, Array]]:
    """The two neighbours along an axis and their weights."""
    at = numpy_within(at, size - 1)
    low = np.floor(at).astype(np.int32)
    return [(low, 1 - (at - low)), (np.minimum(low + 1, size - 1), at - low)]


def _along(
    attrs: RoiAlignAttrs, rois: Tensor, first: int, cells: int, size: Known, pitch: Known
) -> tuple[Tensor, Tensor]:
    """Of each sample along an axis: where its two neighbours lie, and their weights."""
    regions, samples = te.extents(rois)[0], attrs.sample_ratio

    def at(r: te.Expr, cell: te.Expr, sample: te.Expr) -> te.Expr:
        ends = rois(r, first).astype("float32"), rois(r, first + 2).astype("float32")
        return _places(T.maximum, attrs, ends, cell.astype("float32"), sample.astype("float32"), cells, 1.0 / samples)

    def place(r: te.Expr, cell: te.Expr, sample: te.Expr, side: te.Expr) -> te.ExprLike:
        return T.minimum(_low(at(r, cell, sample), size) + side, T.convert(size - 1)) * pitch

    def weight(r: te.Expr, cell: te.Expr, sample: te.Expr, side: te.Expr) -> te.ExprLike:
        value, one = at(r, cell, sample), T.const(1.0, "float32")
        is_inside = T.logical_and(value >= -1.0, value <= number(size, "float32"))
        fraction = _clamped(value, size) - T.cast(_low(value, size), "float32")
        chosen = T.select(T.equal(side, T.const(0)), one - fraction, fraction)
        return T.select(is_inside, chosen, T.const(0.0, "float32"))

    shape = (regions, cells, samples, 2)
    return (
        te.compute(shape, place, name="roi_place", tag="roi_place"),
        te.compute(shape, weight, name="roi_weight", tag="roi_weight"),
    )


@roi_align.compute
def compute(attrs: RoiAlignAttrs, data: Tensor, rois: Tensor) -> Tensor:
    """Where each sample reads along an axis and with what weight, once for all channels; then sums of rows of channels.

    Stages: `roi_rows` (N, H * W, C), `roi_place` and `roi_weight` (R, cells, samples, 2) of each axis, `roi_align`.
    """
    if attrs.layout == "NHWC":
        return _channels_last(attrs, data, rois)
    if attrs.sample_ratio < 1:
        return by_regions(attrs, data, rois)
    count, channels, height, width = te.extents(data)
    lines, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    regions, samples = te.extents(rois)[0], attrs.sample_ratio

    flat = te.compute(
        (count, height * width, channels),
        lambda n, p, c: data(n, c, p // width, p % width).astype("float32"),
        name="roi_rows",
        tag="packed",
    )
    (y_place, y_weight), (x_place, x_weight) = (
        _along(attrs, rois, *axis) for axis in ((2, lines, height, width), (1, columns, width, 1))
    )
    inner = reduce_axes([samples, samples, 2, 2], ["sy", "sx", "ky", "kx"])
    sy, sx = inner[:2]

    def pooled(r: te.Expr, p: te.Expr, c: te.Expr) -> te.Expr:
        image = place_within(rois(r, 0), count - 1)
        i, j = p // columns, p % columns

        def corner(ky: te.Index, kx: te.Index) -> te.Expr:
            value = flat(image, y_place(r, i, sy, ky) + x_place(r, j, sx, kx), c)
            return value * (y_weight(r, i, sy, ky) * x_weight(r, j, sx, kx))

        if attrs.mode == "max":
            (first, second), (third, fourth) = ((corner(ky, 0), corner(ky, 1)) for ky in (0, 1))
            return te.max(first + second + third + fourth, axis=inner[:2])
        value = corner(*inner[2:])
        return te.sum(value, axis=inner) if attrs.mode == "avg" else te.max(value, axis=inner)

    cells = te.compute((regions, lines * columns, channels), pooled, name="roi_align", tag="roi_align")
    scale = 1.0 / samples**2 if attrs.mode == "avg" else 1.0
    result: Tensor = te.compute(
        (regions, channels, lines, columns),
        lambda r, c, i, j: T.cast(cells(r, i * columns + j, c) * T.const(scale, "float32"), data.dtype),
        name="pooled",
    )
    return result


def _channels_last(attrs: RoiAlignAttrs, data: Tensor, rois: Tensor) -> Tensor:
    """The same between two changes of layout, which are views of loops."""
    count, height, width, channels = te.extents(data)
    planes = te.compute(
        (count, channels, height, width), lambda n, c, y, x: data(n, y, x, c), name="planes", tag="injective"
    )
    pooled = compute(replace(attrs, layout="NCHW"), planes, rois)
    regions, _, lines, columns = te.extents(pooled)
    shape = (regions, lines, columns, channels)
    result: Tensor = te.compute(shape, lambda r, i, j, c: pooled(r, c, i, j), name="channels_last", tag="injective")
    return result


def _samples_on_map(
    attrs: RoiAlignAttrs, ends: tuple[E.Expr, E.Expr], size: Known, cells: int, cell: E.Expr
) -> tuple[E.Expr, E.Expr, E.Expr, E.Expr, E.Expr]:
    """Of a cell along an axis: how many samples (a float), where the first lies, how far apart they are, which to try.

    Those that are left out lie beside the map for sure.
    """
    zero, one = T.const(0.0, "float32"), T.const(1.0, "float32")
    start, extent = _cells(T.maximum, attrs, ends)
    samples = T.cast(place_within(T.call("ceil", extent / float(cells)), MOST_SAMPLES), "float32")
    width = extent * (1.0 / cells)
    step = width * (one / T.maximum(samples, one))
    origin = start + T.cast(cell, "float32") * width + step * 0.5
    pace = T.maximum(step, T.const(1e-6, "float32"))
    low = T.maximum(T.call("floor", (-1.0 - origin) / pace) - 1.0, zero)
    high = T.minimum(T.call("ceil", (number(size, "float32") - origin) / pace) + 2.0, samples)
    return samples, origin, step, place_within(low, MOST_SAMPLES), place_within(high, MOST_SAMPLES)


def by_regions(attrs: RoiAlignAttrs, data: Tensor, rois: Tensor) -> Tensor:
    """Cells of as many samples as each region asks for, by loops over those of them that may lie on the map."""
    count, channels, height, width = te.extents(data)
    cells = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    regions, is_sum = te.extents(rois)[0], attrs.mode == "avg"
    zero, one = T.const(0.0, "float32"), T.const(1.0, "float32")

    def region(at: list[E.Expr], ins: Sequence[S.Buffer], out: S.Buffer) -> S.Stmt:
        image, boxes = ins
        r, channel = at
        batch = place_within(load(boxes, r, 0), count - 1)

        def cell(place: list[E.Expr]) -> S.Stmt:
            corners_of = [T.cast(load(boxes, r, n), "float32") for n in range(1, 5)]
            x_ends, y_ends = (corners_of[0], corners_of[2]), (corners_of[1], corners_of[3])
            n_y, y0, dy, y_begin, y_end = _samples_on_map(attrs, y_ends, height, cells[0], place[0])
            n_x, x0, dx, x_begin, x_end = _samples_on_map(attrs, x_ends, width, cells[1], place[1])
            total = scratch("total", 1, "float32", "local")

            def sample(sy: E.Expr, sx: E.Expr) -> S.Stmt:
                y, x = y0 + T.cast(sy, "float32") * dy, x0 + T.cast(sx, "float32") * dx
                inside = T.all_of(y >= -1.0, y <= number(height, "float32"), x >= -1.0, x <= number(width, "float32"))
                corners = []
                for y_at, y_weight in _sides(y, height):
                    for x_at, x_weight in _sides(x, width):
                        value = T.cast(load(image, batch, channel, y_at, x_at), "float32")
                        corners.append(value * T.select(inside, y_weight * x_weight, zero))
                a, b, c, d = corners
                value = T.maximum(T.maximum(a, b), T.maximum(c, d)) if attrs.mode == "max_corners" else a + b + c + d
                here = load(total, 0)
                return store(total, here + value if is_sum else T.maximum(here, value), 0)

            def lines(sy: E.Expr) -> S.Stmt:
                return loop("sx", T.maximum(x_end - x_begin, T.const(0)), lambda k: sample(sy, x_begin + k))

            # samples beside the map, which the loops leave out, are zeros; without any sample the cell is 0
            run = T.cast(T.maximum(y_end - y_begin, T.const(0)) * T.maximum(x_end - x_begin, T.const(0)), "float32")
            lowest = T.const(-3.4028234663852886e38, "float32")
            first = zero if is_sum else T.select(run < T.maximum(n_y * n_x, one), zero, lowest)
            share = one / T.maximum(n_y * n_x, one) if is_sum else one
            body = S.seq(
                store(total, first, 0),
                loop("sy", T.maximum(y_end - y_begin, T.const(0)), lambda k: lines(y_begin + k)),
                store(out, load(total, 0) * share, r, channel, *place),
            )
            return S.Allocate(total, body)

        return nest(cells, cell)

    result: Tensor = te.extern(
        (regions, channels, *cells),
        [data, rois],
        lambda ins, outs: rows((regions, channels), lambda at: region(at, ins, outs[0])),
        dtype=data.dtype,
        name="roi_align",
    )
    return result


def _sides(at: E.Expr, size: Known) -> list[tuple[E.Expr, E.Expr]]:
    """The two neighbours along an axis and their weights, of one sample."""
    low = _low(at, size)
    fraction = _clamped(at, size) - T.cast(low, "float32")
    return [(low, T.const(1.0, "float32") - fraction), (T.minimum(low + 1, T.convert(size - 1)), fraction)]


def _clamped(at: te.Expr, size: Known) -> te.Expr:
    return T.minimum(T.maximum(at, T.const(0.0, "float32")), number(size - 1, "float32"))


def _low(at: te.Expr, size: Known) -> te.Expr:
    return place_within(T.call("floor", at), size - 1)


@roi_align.samples
def samples() -> Iterator[Sample]:
    rois = np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3.5, 7.25], [0, -3, 4, 2, 12]], np.float32)
    far = np.array([[1, -90, 2, 80, 3], [0, 2, 2, 2, 2]], np.float32)
    for ratio in (2, -1):
        yield Sample(RoiAlignAttrs((2, 3), 0.75, ratio, "NHWC"), (f32(2, 6, 7, 3), rois))
    for mode in ("avg", "max", "max_corners"):
        yield Sample(RoiAlignAttrs((2, 3), 0.75, 2, mode=mode), (f32(2, 3, 6, 7), rois))
        yield Sample(RoiAlignAttrs((3, 3), 1.0, 3, mode=mode, half_pixel=True), (f32(2, 2, 8, 6), rois))
        for half in (False, True):
            adaptive = RoiAlignAttrs((2, 3), 0.75, mode=mode, half_pixel=half)
            yield Sample(adaptive, (f32(2, 3, 6, 7), np.concatenate([rois, far])))


@roi_align.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(RoiAlignAttrs(sample_ratio=2), (f32(1, 2, 4, 4), f32(3, 4)), "must have 5 columns")
    yield BadSample(RoiAlignAttrs(sample_ratio=2, mode="min"), (f32(1, 2, 4, 4), f32(3, 5)), "mode 'min' is not known")


state("vision.roi_align", follows=Follows.REGIONS, axes=Axes("NCHW"))
