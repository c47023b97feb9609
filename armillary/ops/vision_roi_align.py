"""vision.roi_align: regions of a feature map pooled to one size; and ONNX RoiAlign.

In: data (N, C, H, W) and rois (R, 5): number of the image, then x1, y1, x2, y2 in the image's coordinates. Out:
(R, C, h, w): the average (or maximum) of sample_ratio x sample_ratio bilinear samples in each cell. Invariant: samples
more than one element outside the map count as 0; with `half_pixel` regions may be of any size, else of at least 1. In
mode "max" the largest single weighted corner wins, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._late import T, te
from armillary.ops.elementwise_cast import cast
from armillary.ops.nn_common import Tensor, f32, need_dtype, need_float, need_rank, need_tensor, per_axis, reduce_axes
from armillary.ops.shape import expand_dims
from armillary.ops.transform import concatenate
from armillary.record import record
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, OnnxNode, Op, Sample, from_onnx
from armillary.relay.types import TensorType, Type

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
    x = need_float(NAME, need_rank(NAME, need_tensor(NAME, data), 4))
    regions = need_rank(NAME, need_tensor(NAME, rois, "rois"), 2, "rois")
    need_dtype(NAME, x, regions)
    if regions.shape[1] != 5:
        raise TypeMismatch(f"{NAME}: rois must have 5 columns, got {regions}")
    if attrs.layout != "NCHW" or attrs.mode not in ("avg", "max"):
        raise TypeMismatch(f"{NAME}: layout {attrs.layout!r} with mode {attrs.mode!r} is not known")
    if attrs.sample_ratio < 1:
        raise UnsupportedError(f"{NAME}: the number of samples would depend on the regions", hint="set sample_ratio")
    return TensorType((regions.shape[0], x.shape[1], *per_axis(NAME, "pooled_size", attrs.pooled_size, 2)), x.dtype)


def _places(m: Any, attrs: RoiAlignAttrs, ends: Any, cell: Any, sample: Any, cells: int) -> Any:
    """Where sample number `sample` of cell number `cell` lies along one axis; m has `maximum`."""
    offset = 0.5 if attrs.half_pixel else 0.0
    start, end = (v * attrs.spatial_scale - offset for v in ends)
    extent = end - start if attrs.half_pixel else m.maximum(end - start, 1.0)
    size = extent * (1.0 / cells)
    return start + cell * size + (sample + 0.5) * size * (1.0 / attrs.sample_ratio)


@roi_align.reference
def reference(attrs: RoiAlignAttrs, data: Array, rois: Array) -> Array:
    height, width = data.shape[2:]
    rows, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    box = rois[:, :, None, None].astype(np.float32)
    steps = np.arange(attrs.sample_ratio, dtype=np.float32)[None, None, :]
    y = _places(np, attrs, (box[:, 2], box[:, 4]), np.arange(rows, dtype=np.float32)[None, :, None], steps, rows)
    x = _places(np, attrs, (box[:, 1], box[:, 3]), np.arange(columns, dtype=np.float32)[None, :, None], steps, columns)
    y, x = y[:, :, :, None, None], x[:, None, None, :, :]  # region, row, sample, column, sample
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    image = np.clip(rois[:, 0].astype(np.int32), 0, data.shape[0] - 1)[:, None, None, None, None]
    corners = []
    for y_at, y_weight in _corners(y, height):
        for x_at, x_weight in _corners(x, width):
            at: Any = (image, slice(None), *np.broadcast_arrays(y_at, x_at))  # Any: numpy's index types
            value = data[at].astype(np.float32)
            corners.append(value * np.where(inside, y_weight * x_weight, 0)[..., None])
    pooled = np.max(corners, axis=0).max((2, 4)) if attrs.mode == "max" else np.sum(corners, axis=0).mean((2, 4))
    return np.asarray(pooled).transpose(0, 3, 1, 2).astype(data.dtype)


def _corners(at: Array, size: int) -> list[tuple[Array, Array]]:
    """The two neighbours along an axis and their weights."""
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int32)
    return [(low, 1 - (at - low)), (np.minimum(low + 1, size - 1), at - low)]


@roi_align.compute
def compute(attrs: RoiAlignAttrs, data: Tensor, rois: Tensor) -> Tensor:
    count, channels, height, width = te.static_shape(data)
    rows, columns = per_axis(NAME, "pooled_size", attrs.pooled_size, 2)
    inner = reduce_axes([attrs.sample_ratio, attrs.sample_ratio], ["sy", "sx"])

    def corners(at: Any, size: int) -> tuple[Any, list[tuple[Any, Any]]]:
        after, before = T.const(-1.0, "float32"), T.const(float(size), "float32")
        inside = T.logical_and(T.greater_equal(at, after), T.less_equal(at, before))
        at = T.minimum(T.maximum(at, T.const(0.0, "float32")), T.const(size - 1.0, "float32"))
        low = T.cast(T.call("floor", at), "int32")
        fraction = at - T.cast(low, "float32")
        one = T.const(1.0, "float32")
        return inside, [(low, one - fraction), (T.minimum(low + 1, T.const(size - 1)), fraction)]

    def element(r: Any, c: Any, i: Any, j: Any) -> Any:
        def along(first: int, cell: Any, sample: Any, cells: int, size: int) -> Any:
            ends = tuple(rois(r, k).astype("float32") for k in (first, first + 2))
            return corners(_places(T, attrs, ends, cell.astype("float32"), sample.astype("float32"), cells), size)

        y_inside, ys = along(2, i, inner[0], rows, height)
        x_inside, xs = along(1, j, inner[1], columns, width)
        image = T.minimum(T.maximum(T.cast(rois(r, 0), "int32"), T.const(0)), T.const(count - 1))
        values = [data(image, c, y, x).astype("float32") * (wy * wx) for y, wy in ys for x, wx in xs]
        value = values[0]
        for other in values[1:]:
            value = T.maximum(value, other) if attrs.mode == "max" else value + other
        value = T.select(T.logical_and(y_inside, x_inside), value, T.const(0.0, "float32"))
        return te.max(value, axis=inner) if attrs.mode == "max" else te.sum(value, axis=inner)

    shape = (te.static_shape(rois)[0], channels, rows, columns)
    pooled = te.compute(shape, element, name="roi_align", tag="roi_align")
    scale = 1.0 if attrs.mode == "max" else 1.0 / attrs.sample_ratio**2

    def scaled(*i: Any) -> Any:
        return T.cast(pooled(*i) * T.const(scale, "float32"), data.dtype)

    made: Tensor = te.compute(pooled.shape, scaled, name="pooled")
    return made


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


@from_onnx("RoiAlign", since=10)
def from_onnx_roi_align(node: OnnxNode) -> Expr:
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    half = (node.string("coordinate_transformation_mode", default) or default) == "half_pixel"
    size = (int(node.int("output_height", 1)), int(node.int("output_width", 1)))
    image = cast(expand_dims(node.input(2), 1), str(node.type_of(1).dtype))
    return roi_align(
        node.input(0), concatenate((image, node.input(1)), 1), pooled_size=size, half_pixel=half,
        spatial_scale=float(node.float("spatial_scale", 1.0)), sample_ratio=int(node.int("sampling_ratio", 0)),
        mode=node.string("mode", "avg") or "avg",
    )  # fmt: skip
