"""image.crop_and_resize: boxes cut out of images and brought to one size.

In: data (N, C, H, W) or (N, H, W, C), boxes (R, 4) as y1, x1, y2, x2 in units of the image, the number of each box's
image, and the size of the crops. Out: (R, C, h, w) or (R, h, w, C). Invariant: corners are aligned; what lies outside
the image is `extrapolation_value`; a box may be turned round, which mirrors its crop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._convert import convert
from armillary.ops._deferred import T, te
from armillary.ops._types import check_to_read
from armillary.ops.nn._windows import Tensor, f32, need_rank, need_shape, numpy_within, per_axis, place_within, placed
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type, tensor_type

NAME = "image.crop_and_resize"


@record
class CropAndResizeAttrs:
    crop_size: tuple[int, ...] = ()
    layout: str = "NCHW"
    method: str = "bilinear"
    extrapolation_value: float = 0.0
    out_dtype: str = ""


_INPUTS = ("data", "boxes", "box_indices")
crop_and_resize = Op(NAME, kind=Kind.CONTRACTION, inputs=_INPUTS, doc="Boxes of images, brought to one size.")
crop_and_resize.attrs(CropAndResizeAttrs)


def _method(attrs: CropAndResizeAttrs) -> str:
    return {"nearest": "nearest_neighbor", "linear": "bilinear"}.get(attrs.method, attrs.method)


@crop_and_resize.infer
def _infer(attrs: CropAndResizeAttrs, data: Type, boxes: Type, box_indices: Type) -> TensorType:
    x, b = need_rank(NAME, data, 4), need_rank(NAME, boxes, 2, "boxes")
    number = need_rank(NAME, box_indices, 1, "box_indices")
    need_shape(NAME, "boxes", b, (number.shape[0], 4))
    if attrs.layout not in ("NCHW", "NHWC") or _method(attrs) not in ("bilinear", "nearest_neighbor"):
        raise TypeMismatch(f"{NAME}: layout {attrs.layout!r} with method {attrs.method!r} is not known")
    if not number.dtype.is_int or not b.dtype.is_float:
        raise TypeMismatch(f"{NAME}: boxes are {b.dtype} and box_indices {number.dtype}, wanted float and integer")
    check_to_read(NAME, x, (attrs.layout.index(axis) for axis in "NHW"), (b.shape[0],))
    height, width = per_axis(NAME, "crop_size", attrs.crop_size, 2)
    sizes = {"N": b.shape[0], "C": x.shape[attrs.layout.index("C")], "H": height, "W": width}
    dtype = tensor_type((), attrs.out_dtype or str(x.dtype)).dtype
    return TensorType(tuple(placed(attrs.layout, sizes)), dtype)


@crop_and_resize.reference
def _reference(attrs: CropAndResizeAttrs, data: Array, boxes: Array, box_indices: Array) -> Array:
    image = (data if attrs.layout == "NCHW" else data.transpose(0, 3, 1, 2)).astype(np.float32)
    wanted, sizes = per_axis(NAME, "crop_size", attrs.crop_size, 2), image.shape[2:]
    out = np.full((len(boxes), image.shape[1], *wanted), attrs.extrapolation_value, np.float32)
    for r, box in enumerate(boxes.astype(np.float32)):
        places = [_line(box[k], box[k + 2], sizes[k], wanted[k]) for k in range(2)]
        inside = [(p >= 0) & (p <= size - 1) for p, size in zip(places, sizes, strict=True)]
        picture = image[numpy_within(box_indices[r], len(image) - 1)]
        y, x = (numpy_within(p, size - 1) for p, size in zip(places, sizes, strict=True))
        value = _read(picture, y, x, _method(attrs))
        out[r] = np.where(inside[0][:, None] & inside[1][None, :], value, out[r])
    result = out if attrs.layout == "NCHW" else out.transpose(0, 2, 3, 1)
    return result.astype(attrs.out_dtype or data.dtype)


def _line(start: np.floating, end: np.floating, size: int, count: int) -> Array:
    """Where the elements along one axis of a crop lie; a single one begins the box."""
    step = np.float32(size - 1) * (end - start) / np.float32(max(count - 1, 1))
    return np.asarray(start * np.float32(size - 1) + step * np.arange(count, dtype=np.float32))


def _read(picture: Array, y: Array, x: Array, method: str) -> Array:
    if method == "nearest_neighbor":
        return np.asarray(picture[:, np.rint(y).astype(int)][:, :, np.rint(x).astype(int)])
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    rows = picture[:, top] + (picture[:, np.ceil(y).astype(int)] - picture[:, top]) * (y - top)[None, :, None]
    right = np.ceil(x).astype(int)
    return np.asarray(rows[:, :, left] + (rows[:, :, right] - rows[:, :, left]) * (x - left))


@crop_and_resize.compute
def _compute(attrs: CropAndResizeAttrs, data: Tensor, boxes: Tensor, box_indices: Tensor) -> Tensor:
    layout, wanted = attrs.layout, per_axis(NAME, "crop_size", attrs.crop_size, 2)
    shape = te.extents(data)
    sizes = [shape[layout.index(axis)] for axis in "HW"]
    ends = [float(s - 1) if isinstance(s, int) else T.cast(s - 1, "float32") for s in sizes]
    regions, channels = te.extents(boxes)[0], shape[layout.index("C")]
    dtype, method = attrs.out_dtype or str(data.dtype), _method(attrs)

    def along(k: int) -> Tensor:
        def place(r: te.Expr, i: te.Expr) -> te.Expr:
            start, end = boxes(r, k).astype("float32"), boxes(r, k + 2).astype("float32")
            step = (end - start) * ends[k] / float(max(wanted[k] - 1, 1))
            return start * ends[k] + step * i.astype("float32")

        return te.compute((regions, wanted[k]), place, name="crop_place", tag="packed")

    places = [along(k) for k in range(2)]

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(layout, index, strict=True))
        y, x = (places[k](at["N"], at["HW"[k]]) for k in range(2))
        inside = T.all_of(y >= 0.0, y <= ends[0], x >= 0.0, x <= ends[1])
        image = place_within(box_indices(at["N"]), shape[0] - 1)

        def read(row: te.Expr, column: te.Expr) -> te.Expr:
            where = {
                "N": image,
                "C": at["C"],
                "H": place_within(row, sizes[0] - 1),
                "W": place_within(column, sizes[1] - 1),
            }
            return data(*placed(layout, where)).astype("float32")

        outside = T.const(attrs.extrapolation_value, "float32")
        if method == "nearest_neighbor":
            value = read(te.nearbyint(y), te.nearbyint(x))
        else:
            top, left = te.floor(y), te.floor(x)
            upper, lower = (_between(read(row, left), read(row, te.ceil(x)), x - left) for row in (top, te.ceil(y)))
            value = _between(upper, lower, y - top)
        return convert(T.select(inside, value, outside), dtype)

    out = placed(layout, {"N": regions, "C": channels, "H": wanted[0], "W": wanted[1]})
    return te.compute(tuple(out), element, name="crop_and_resize", tag="injective")


def _between(low: te.Expr, high: te.Expr, share: te.Expr) -> te.Expr:
    return low + (high - low) * share


@crop_and_resize.samples
def _samples() -> Iterator[Sample]:
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.9, 0.1, 0.0, 1.3], [-0.2, 0.0, 0.5, 0.5]], np.float32)
    number = np.array([1, 0, 1], np.int32)
    yield Sample(CropAndResizeAttrs((3, 4)), (f32(2, 3, 6, 7), boxes, number))
    yield Sample(CropAndResizeAttrs((1, 2), "NHWC", extrapolation_value=0.5), (f32(2, 5, 4, 3), boxes, number))
    yield Sample(CropAndResizeAttrs((4, 3), method="nearest_neighbor"), (f32(2, 1, 6, 7), boxes, number))


@crop_and_resize.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    number = np.array([0], np.int32)
    yield BadSample(CropAndResizeAttrs((3, 4)), (f32(1, 2, 4, 4), f32(1, 5), number), "boxes has shape")
    yield BadSample(CropAndResizeAttrs((3, 4)), (f32(1, 2, 4, 4), f32(1, 4), f32(1)), "wanted float and integer")
    yield BadSample(CropAndResizeAttrs((3, 4), "HW"), (f32(1, 2, 4, 4), f32(1, 4), number), "is not known")
