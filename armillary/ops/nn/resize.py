"""image.resize1d, image.resize2d, image.resize3d, nn.upsampling, nn.upsampling3d: interpolation on a regular grid.

In: data in a plain layout, the spatial size wanted; `scales` may give the exact factors behind that size. Out: data of
that size. Invariant: every method is separable: one axis at a time, each output element is a weighted sum of a few
input elements whose places and weights are known when compiling. So the operator is decomposed into `take` and
arithmetic, or, with many taps (antialias), into a product with a small matrix. Along axes of open sizes places and
weights are computed when the network runs (_open_resize.py). The ONNX rules are in rules/nn/resize.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.aliases import NumpyDtype
from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known
from armillary.base.node import Node
from armillary.base.record import record
from armillary.budgets import TENSOR_BYTES
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops.nn import _open_resize
from armillary.ops.nn._open_resize import OpenAxis
from armillary.ops.nn._windows import SPATIAL, call, f32, letters, need_tensor, per_axis, spatial_axes, tensor, type_of
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows, Precision
from armillary.relay.types import ANY_DIM, Dim, TensorType, Type, as_dim

MAX_UNROLLED_TAPS = 4  # elements of a weighted sum that are read one by one
MOST_TAPS = 16  # that are no matrix product
METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@record
class ResizeAttrs:
    size: tuple[Known, ...] = ()
    roi: tuple[float, ...] = ()
    layout: str = ""
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    out_dtype: str = ""
    antialias: bool = False
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.size, tuple) and any(
            isinstance(size, Node) for size in self.size
        ):  # variables of scripts name open sizes
            sizes = tuple(as_dim(size) if isinstance(size, Node) else size for size in self.size)
            object.__setattr__(self, "size", sizes)


@record
class UpsamplingAttrs:
    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    align_corners: bool = False


@record
class Axis:
    """One axis of a resize: sizes, exact scale, region of interest, and how to interpolate."""

    size: int
    out: int
    scale: float
    roi: tuple[float, float]
    attrs: ResizeAttrs


def _method(attrs: ResizeAttrs) -> str:
    return {"nearest": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}.get(attrs.method, attrs.method)


def _coordinates(axis: Axis) -> Array:
    """Where each output element lies in the input, as a real number."""
    i, mode = np.arange(axis.out, dtype=np.float64), axis.attrs.coordinate_transformation_mode
    if mode == "align_corners":
        spans = axis.scale * axis.size - 1  # by the exact scale, as the ONNX specification has it
        return i * ((axis.size - 1) / spans) if axis.out > 1 else i * 0
    if mode == "asymmetric":
        return i / axis.scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / axis.scale
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return i * 0
    if mode == "tf_crop_and_resize":
        start, end = axis.roi
        if axis.out == 1:
            return i * 0 + 0.5 * (start + end) * (axis.size - 1)
        return start * (axis.size - 1) + i * (end - start) * (axis.size - 1) / (axis.out - 1)
    if mode == "half_pixel_symmetric":
        adjustment = axis.out / (axis.scale * axis.size)
        return axis.size / 2 * (1 - adjustment) + (i + 0.5) / axis.scale - 0.5
    return (i + 0.5) / axis.scale - 0.5


def _nearest(x: Array, rounding: str) -> Array:
    if rounding == "floor":
        return np.floor(x)
    if rounding == "ceil":
        return np.ceil(x)
    return np.ceil(x - 0.5) if rounding == "round_prefer_floor" else np.floor(x + 0.5)


def _rounding(attrs: ResizeAttrs) -> str:
    """How a coordinate becomes a place; where nothing is said, as in Relay."""
    default = "round" if attrs.coordinate_transformation_mode == "align_corners" else "floor"
    return attrs.rounding_method or default


def _cubic(t: Array, a: float) -> Array:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    return np.where(t <= 1, near, np.where(t < 2, ((t - 5) * t + 8) * t * a - 4 * a, 0.0))


def _check_weights(axis: Axis, count: int) -> None:
    """Refuse more weights than one result may have bytes: they are computed from three more tables in float64."""
    TENSOR_BYTES.check(32 * axis.out * count, f"image.resize: {count} weights for each of {axis.out} elements")


def taps(axis: Axis) -> tuple[Array, Array]:
    """For each output element: places (out, k) in the input and their weights (out, k)."""
    attrs, method = axis.attrs, _method(axis.attrs)
    _check_weights(axis, 1)
    x = _coordinates(axis)
    if method == "nearest_neighbor":
        places = _nearest(np.round(x, 9), _rounding(attrs))[:, None]
        weights = np.ones_like(places)
    else:
        stretch = min(axis.scale, 1.0) if attrs.antialias else 1.0
        reach = (1 if method == "linear" else 2) / stretch
        _check_weights(axis, 4 * math.ceil(reach))
        first = np.floor(x) - math.ceil(reach) + 1
        places = first[:, None] + np.arange(2 * math.ceil(reach))
        distance = (places - x[:, None]) * stretch
        weights = np.maximum(0, 1 - np.abs(distance)) if method == "linear" else _cubic(distance, attrs.cubic_alpha)
        outside = (places < 0) | (places >= axis.size)
        if attrs.cubic_exclude and (method == "cubic" or attrs.antialias):
            weights = np.where(outside, 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, axis.size - 1).astype(np.int32), weights


def outside(axis: Axis) -> Array | None:
    """Which output elements lie outside the data, where that matters (tf_crop_and_resize)."""
    if axis.attrs.coordinate_transformation_mode != "tf_crop_and_resize":
        return None
    x = _coordinates(axis)
    mask = (x < 0) | (x > axis.size - 1)
    return mask if mask.any() else None


def _plan(op: str, attrs: ResizeAttrs, rank: int, shape: Sequence[int]) -> list[tuple[int, Axis]]:
    """(axis of the data, what to do along it) for the axes that change."""
    layout = attrs.layout or "NC" + SPATIAL[rank]
    where, wanted = spatial_axes(op, layout, rank), _sizes(op, attrs, rank)
    plan = []
    for n, (a, out) in enumerate(zip(where, wanted, strict=True)):
        if isinstance(out, Extent) or shape[a] == 0:
            continue  # open: _open_plan
        scale = attrs.scales[n] if attrs.scales else out / shape[a]
        area = attrs.roi or ()
        roi = (float(area[n]), float(area[n + rank])) if len(area) == 2 * rank else (0.0, 1.0)
        axis = Axis(shape[a], out, scale, roi, attrs)
        places, weights = taps(axis)
        here = places == np.arange(out)[:, None]
        same = out == shape[a] and bool(
            np.all(np.where(here, 0, weights) == 0) and np.all((weights * here).sum(1) == 1)
        )
        if not same or outside(axis) is not None:
            plan.append((a, axis))
    return plan


def _sizes(op: str, attrs: ResizeAttrs, rank: int) -> tuple[Known, ...]:
    """The size wanted along each spatial axis."""
    numbers = tuple(1 if isinstance(v, Extent) else v for v in attrs.size)
    checked = per_axis(op, "size", numbers, rank)
    return checked if numbers == attrs.size else attrs.size if len(attrs.size) == rank else attrs.size * rank


def _open_plan(op: str, attrs: ResizeAttrs, rank: int, shape: Sequence[Dim]) -> list[tuple[int, OpenAxis]]:
    """(axis of the data, what to do along it) for the axes of open sizes that change."""
    where = spatial_axes(op, attrs.layout or "NC" + SPATIAL[rank], rank)
    plan = []
    for n, (a, out) in enumerate(zip(where, _sizes(op, attrs, rank), strict=True)):
        size = shape[a]
        if isinstance(size, int) and isinstance(out, int):
            continue
        if not isinstance(size, int | Extent):
            raise TypeMismatch(f"{op}: the size of axis {a} is not known", hint="bind the dimension with shape=")
        axis = OpenAxis(size, out, attrs.scales[n] if attrs.scales else None, attrs)
        if not axis.keeps:
            plan.append((a, axis))
    return plan


def _infer(op: str, rank: int, attrs: ResizeAttrs, data: Type) -> TensorType:
    x = need_tensor(op, data)
    layout = attrs.layout or "NC" + SPATIAL[rank]
    if len(letters(layout)) != x.ndim:
        raise TypeMismatch(f"{op}: data has {x.ndim} dimensions, its layout is {layout}")
    for what, value, known in (
        ("method", _method(attrs), METHODS),
        ("coordinate_transformation_mode", attrs.coordinate_transformation_mode, MODES),
        ("rounding_method", attrs.rounding_method or "round", ROUNDINGS),
    ):
        if value not in known:
            raise TypeMismatch(f"{op}: unknown {what} {value!r}; it is one of {', '.join(known)}")
    if attrs.scales and len(attrs.scales) != rank:
        raise TypeMismatch(f"{op}: scales must be {rank} numbers, got {attrs.scales}")
    shape = list(x.shape)
    for a, size in zip(spatial_axes(op, layout, rank), _sizes(op, attrs, rank), strict=True):
        if shape[a] == 0:
            raise TypeMismatch(f"{op}: {x} has no pixels to interpolate")
        shape[a] = size
    return TensorType(tuple(shape), DType(attrs.out_dtype) if attrs.out_dtype else x.dtype)


def _along(values: Array, ndim: int, axis: int) -> Array:
    shape = [1] * ndim
    shape[axis] = -1
    return values.reshape(shape)


def _finish(y: Array, dtype: NumpyDtype) -> Array:
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        y = np.clip(np.trunc(y), info.min, info.max)
    return y.astype(dtype)


def _reference(op: str, rank: int, attrs: ResizeAttrs, x: Array) -> Array:
    dtype = DType(attrs.out_dtype).numpy if attrs.out_dtype else x.dtype
    if _method(attrs) == "nearest_neighbor" and attrs.coordinate_transformation_mode != "tf_crop_and_resize":
        for a, axis in _plan(op, attrs, rank, x.shape):
            x = np.take(x, taps(axis)[0][:, 0], axis=a)
        return x.astype(dtype)
    y = x.astype(np.float32)
    masks = []
    for a, axis in _plan(op, attrs, rank, x.shape):
        places, weights = taps(axis)
        y = sum(  # type: ignore[assignment]
            np.take(y, places[:, k], axis=a) * _along(weights[:, k].astype(np.float32), y.ndim, a)
            for k in range(places.shape[1])
        )
        masks.append((a, outside(axis)))
    for a, mask in masks:
        if mask is not None:
            y = np.where(_along(mask, y.ndim, a), np.float32(attrs.extrapolation_value), y)
    return _finish(y, dtype)


def _blend(y: Expr, a: int, axis: Axis) -> Expr:
    """The weighted sum along one axis."""
    places, weights = taps(axis)
    ndim, count = type_of(y).ndim, places.shape[1]
    if MAX_UNROLLED_TAPS < count <= MOST_TAPS and a == ndim - 1 > 0:  # a row of outputs reads rows
        swapped = (*range(ndim - 2), ndim - 1, ndim - 2)
        return call("transpose", _blend(call("transpose", y, axes=swapped), a - 1, axis), axes=swapped)
    if count > MOST_TAPS or (count > MAX_UNROLLED_TAPS and ndim == 1):
        _check_weights(axis, axis.size)
        matrix = np.zeros((axis.out, axis.size), np.float32)
        for k in range(places.shape[1]):
            np.add.at(matrix, (np.arange(axis.out), places[:, k]), weights[:, k])
        order = (*(n for n in range(ndim) if n != a), a)
        back = tuple(order.index(n) for n in range(ndim))
        return call("transpose", call("nn.dense", call("transpose", y, axes=order), const(matrix)), axes=back)
    total: Expr | None = None
    for k in range(count):
        if not weights[:, k].any():
            continue
        part = call("take", y, const(places[:, k]), axis=a)
        if not (weights[:, k] == 1).all():
            part = part * const(_along(weights[:, k].astype(np.float32), ndim, a))
        total = part if total is None else total + part
    return total if total is not None else y * 0.0


def _open_blend(y: Expr, a: int, axis: OpenAxis) -> Expr:
    """The weighted sum along one axis of an open size."""
    is_linear, ndim = _method(axis.attrs) == "linear", type_of(y).ndim
    weight = _open_resize.linear if is_linear else _open_resize.cubic(axis.attrs.cubic_alpha)
    total: Expr | None = None
    for place, part in zip(*_open_resize.taps(axis, 1 if is_linear else 2, weight), strict=True):
        row = tuple(-1 if n == a else 1 for n in range(ndim))
        term = call("take", y, place, axis=a) * call("reshape", part, newshape=row)
        total = term if total is None else total + term
    assert total is not None, "there are taps"
    return total


def _decompose(op: str, rank: int, attrs: ResizeAttrs, x: Expr) -> Expr:
    ty = type_of(x)
    dtype = DType(attrs.out_dtype) if attrs.out_dtype else ty.dtype
    plan = _plan(op, attrs, rank, [d if isinstance(d, int) else 0 for d in ty.shape])
    open_plan = _open_plan(op, attrs, rank, ty.shape)
    crop = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    if _method(attrs) == "nearest_neighbor" and not crop:
        for a, axis in plan:
            x = call("take", x, const(taps(axis)[0][:, 0]), axis=a)
        for a, row in open_plan:
            x = call("take", x, _open_resize.nearest(row, _rounding(attrs)), axis=a)
        return x if dtype == ty.dtype else call("cast", x, dtype=dtype)
    y = x if ty.dtype == "float32" else call("cast", x, dtype="float32")
    for a, axis in plan:
        y = _blend(y, a, axis)
    for a, row in open_plan:
        y = _open_blend(y, a, row)
    for a, axis in plan:
        mask = outside(axis)
        if mask is not None:
            y = call("where", const(_along(mask, ty.ndim, a)), const(np.float32(attrs.extrapolation_value)), y)
    if dtype.is_int:
        y = call("clip", y, a_min=float(dtype.min_value), a_max=float(dtype.max_value))
    return y if dtype == "float32" else call("cast", y, dtype=dtype)


def _samples(rank: int) -> Iterator[Sample]:
    size, bigger, smaller = (6, 5, 4)[:rank], (13, 9, 7)[:rank], (4, 3, 2)[:rank]
    for method in METHODS:
        yield Sample(ResizeAttrs(bigger, method=method), (f32(1, 2, *size),))
        yield Sample(ResizeAttrs(smaller, method=method, cubic_exclude=1), (f32(1, 2, *size),))
    yield Sample(ResizeAttrs(bigger, coordinate_transformation_mode="align_corners"), (f32(1, 2, *size),))
    yield Sample(ResizeAttrs(smaller, antialias=True), (f32(1, 2, *size),))
    if rank == 2:
        nhwc = ResizeAttrs((12, 10), layout="NHWC", method="nearest_neighbor")
        yield Sample(ResizeAttrs((3, 9), method="linear"), (tensor("uint8", 1, 2, 6, 5),), (0, 255), atol=1)
        yield Sample(nhwc, (f32(1, 6, 5, 3),))
        crop = ResizeAttrs((5, 4), (0.4, 0.6, 1.2, 0.9), coordinate_transformation_mode="tf_crop_and_resize")
        yield Sample(crop, (f32(1, 2, 6, 5),))


def _bad_samples(rank: int) -> Iterator[BadSample]:
    size = (4,) * rank
    yield BadSample(ResizeAttrs(size, method="magic"), (f32(1, 2, *size),), "unknown method 'magic'")
    yield BadSample(ResizeAttrs((0,) * rank), (f32(1, 2, *size),), "size must be")


def _resize(rank: int) -> Op:
    name = f"image.resize{rank}d"
    op = Op(name, kind=Kind.INJECTIVE, doc="Interpolation to another spatial size.")
    op.attrs(ResizeAttrs)
    op.infer(lambda attrs, data: _infer(name, rank, attrs, data))
    op.reference(lambda attrs, x: _reference(name, rank, attrs, x))
    op.decompose(lambda attrs, x: _decompose(name, rank, attrs, x))
    op.samples(lambda: _samples(rank))
    op.bad_samples(lambda: _bad_samples(rank))
    return op


resize1d, resize2d, resize3d = (_resize(rank) for rank in (1, 2, 3))

upsampling = Op("nn.upsampling", kind=Kind.INJECTIVE, doc="image.resize2d by factors.")
upsampling.attrs(UpsamplingAttrs)


def _scaled_type(data: TensorType, axes: Sequence[int], scales: Sequence[float]) -> TensorType | None:
    """The type of what factors enlarge where a size is not known; None where all sizes are."""
    if all(isinstance(data.shape[a], int) for a in axes):
        return None
    shape = list(data.shape)
    for a, scale in zip(axes, scales, strict=True):
        size = shape[a]
        if isinstance(size, int):
            shape[a] = round(size * scale)
        else:
            shape[a] = size * int(scale) if float(scale).is_integer() else ANY_DIM
    return TensorType(tuple(shape), data.dtype)


def _numbers(data: TensorType) -> list[int]:
    """The sizes, 0 for those that are not known and that nothing reads."""
    return [d if isinstance(d, int) else 0 for d in data.shape]


def _enlarged(op: str, size: Known, scale: float) -> Known:
    """A size times a factor, which is whole for sizes that are open."""
    if isinstance(size, int):
        return round(size * scale)
    if not float(scale).is_integer():
        raise UnsupportedError(
            f"{op}: {scale} times an open size of {size}", hint="fix the size, or scale by whole numbers"
        )
    return size * int(scale)


def _as_resize(attrs: UpsamplingAttrs, shape: Sequence[Known]) -> ResizeAttrs:
    height, width = spatial_axes("nn.upsampling", attrs.layout, 2)
    ends = (shape[height], attrs.scale_h), (shape[width], attrs.scale_w)
    size = tuple(_enlarged("nn.upsampling", end, scale) for end, scale in ends)
    mode = "align_corners" if attrs.align_corners else "asymmetric"
    return ResizeAttrs(size, (), attrs.layout, attrs.method, mode)


@upsampling.infer
def _infer_upsampling(attrs: UpsamplingAttrs, data: Type) -> TensorType:
    x = need_tensor("nn.upsampling", data)
    if len(letters(attrs.layout)) != x.ndim:
        raise TypeMismatch(f"nn.upsampling: data has {x.ndim} dimensions, its layout is {attrs.layout}")
    axes, scales = spatial_axes("nn.upsampling", attrs.layout, 2), (attrs.scale_h, attrs.scale_w)
    return _scaled_type(x, axes, scales) or _infer("nn.upsampling", 2, _as_resize(attrs, _numbers(x)), x)


upsampling.reference(lambda attrs, x: _reference("nn.upsampling", 2, _as_resize(attrs, x.shape), x))
upsampling.decompose(lambda attrs, x: _decompose("nn.upsampling", 2, _as_resize(attrs, type_of(x).known), x))


@upsampling.samples
def _samples_upsampling() -> Iterator[Sample]:
    yield Sample(UpsamplingAttrs(2.0, 3.0), (f32(1, 2, 3, 4),))
    yield Sample(UpsamplingAttrs(2.0, 2.0, method="bilinear", align_corners=True), (f32(1, 2, 3, 4),))


upsampling3d = Op("nn.upsampling3d", kind=Kind.INJECTIVE, doc="image.resize3d by factors.")


@upsampling3d.attrs
@record
class Upsampling3dAttrs:
    scale_d: float = 1.0
    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCDHW"
    method: str = "nearest_neighbor"
    coordinate_transformation_mode: str = "half_pixel"


def _as_resize3d(attrs: Upsampling3dAttrs, shape: Sequence[Known]) -> ResizeAttrs:
    axes = spatial_axes("nn.upsampling3d", attrs.layout, 3)
    scales = (attrs.scale_d, attrs.scale_h, attrs.scale_w)
    size = tuple(_enlarged("nn.upsampling3d", shape[a], scale) for a, scale in zip(axes, scales, strict=True))
    nearest = attrs.method in ("nearest_neighbor", "nearest")
    method = {"trilinear": "linear"}.get(attrs.method, attrs.method)
    mode = "asymmetric" if nearest else attrs.coordinate_transformation_mode
    return ResizeAttrs(size, (), attrs.layout, method, mode)


@upsampling3d.infer
def _infer_upsampling3d(attrs: Upsampling3dAttrs, data: Type) -> TensorType:
    x = need_tensor("nn.upsampling3d", data)
    if len(letters(attrs.layout)) != x.ndim:
        raise TypeMismatch(f"nn.upsampling3d: data has {x.ndim} dimensions, its layout is {attrs.layout}")
    axes, scales = spatial_axes("nn.upsampling3d", attrs.layout, 3), (attrs.scale_d, attrs.scale_h, attrs.scale_w)
    return _scaled_type(x, axes, scales) or _infer("nn.upsampling3d", 3, _as_resize3d(attrs, _numbers(x)), x)


upsampling3d.reference(lambda attrs, x: _reference("nn.upsampling3d", 3, _as_resize3d(attrs, x.shape), x))
upsampling3d.decompose(lambda attrs, x: _decompose("nn.upsampling3d", 3, _as_resize3d(attrs, type_of(x).known), x))


@upsampling3d.samples
def _samples_upsampling3d() -> Iterator[Sample]:
    yield Sample(Upsampling3dAttrs(2.0, 1.0, 3.0), (f32(1, 2, 2, 3, 4),))
    yield Sample(Upsampling3dAttrs(2.0, 2.0, 1.5, "NDHWC", "trilinear", "align_corners"), (f32(1, 2, 3, 4, 2),))


@upsampling3d.bad_samples
def _bad_samples_upsampling3d() -> Iterator[BadSample]:
    yield BadSample(Upsampling3dAttrs(), (f32(1, 2, 3, 4),), "data has 4 dimensions")


state("image.resize2d nn.upsampling nn.upsampling3d", precision=Precision.FOLLOW)
state("nn.upsampling nn.upsampling3d", follows=Follows.ENLARGED)
state("image.resize1d", follows=Follows.RESIZED, axes=Axes("NCW"))
state("image.resize2d", follows=Follows.RESIZED, axes=Axes("NCHW"))
