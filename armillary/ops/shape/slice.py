"""Slices: strided_slice and slice_like.

In: one tensor (slice_like: and one that lends its shape). Out: a part of it. Invariant: limits follow numpy: negative
positions count from the end, positions beyond the ends are clamped, a negative stride walks backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Extent, Known, ceil_div, least, most, note_at_most
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import Index, axes_of, axis_of, elements, f32, i32
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import ANY_DIM, AnyDim, Dim, TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

Limits = tuple[Known | None, ...]


@record
class StridedSliceAttrs:
    """Per axis of `axes` (default: the first ones) begin, end, stride; None as a limit: the end in walking direction.

    slice_mode "size": `end` holds sizes (-1: all that is left) and strides are 1.
    """

    begin: Limits
    end: Limits
    strides: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None
    slice_mode: str = "end"


strided_slice = Op("strided_slice", kind=Kind.INJECTIVE, doc="A regular part of a tensor, as numpy's x[b:e:s].")
strided_slice.attrs(StridedSliceAttrs)


def filled(attrs: StridedSliceAttrs) -> StridedSliceAttrs:
    """Limits and strides of the first axes, as many of each: what is not told is all of the axis, by steps of 1."""
    strides = attrs.strides or ()
    count = max(len(attrs.begin), len(attrs.end))
    steps = len(strides) if len(strides) > 1 else count
    if attrs.axes is not None or len({len(attrs.begin), len(attrs.end), steps}) == 1:
        return attrs
    count = max(count, len(strides))
    begin, end = (limits + (None,) * (count - len(limits)) for limits in (attrs.begin, attrs.end))
    every = strides + (1,) * (count - len(strides)) if strides else None
    return StridedSliceAttrs(begin, end, every, None, attrs.slice_mode)


def _check(attrs: StridedSliceAttrs, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes and strides."""
    axes = axes_of("strided_slice", attrs.axes if attrs.axes is not None else range(len(attrs.begin)), ndim)
    strides = attrs.strides if attrs.strides else (1,) * len(axes)
    strides = strides * len(axes) if len(strides) == 1 else strides
    if attrs.slice_mode not in ("end", "size"):
        raise TypeMismatch(f"strided_slice: slice_mode {attrs.slice_mode!r}, wanted 'end' or 'size'")
    if not len(attrs.begin) == len(attrs.end) == len(axes) == len(strides):
        lengths = f"{len(attrs.begin)} begin, {len(attrs.end)} end, {len(axes)} axes, {len(strides)} strides"
        raise TypeMismatch(f"strided_slice: the lists differ in length: {lengths}")
    if 0 in strides:
        raise TypeMismatch(f"strided_slice: a stride is 0 in {strides}")
    return axes, strides


def slices(attrs: StridedSliceAttrs, shape: Sequence[Dim]) -> list[tuple[Known, int, Dim]]:
    """First position, stride and number of elements, for every axis."""
    attrs = filled(attrs)
    axes, strides = _check(attrs, len(shape))
    result: list[tuple[Known, int, Dim]] = [(0, 1, dim) for dim in shape]
    for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, strides, strict=True):
        dim = shape[axis]
        if isinstance(dim, int | Extent) and any(isinstance(v, Extent) for v in (dim, begin, end)):
            result[axis] = _of_size(attrs, dim, begin, end, stride)
            continue
        if isinstance(dim, AnyDim) or isinstance(begin, Extent) or isinstance(end, Extent):
            first, last = (v if isinstance(v, int) else None for v in (begin, end))
            result[axis] = (begin or 0, stride, _of_unknown(attrs, first, last, stride))
            continue
        if attrs.slice_mode == "size":
            start = 0 if begin is None else begin + dim if begin < 0 else begin
            end = dim if end is None or end < 0 else start + end
            stride, begin = 1, start
        start, stop, step = slice(begin, end, stride).indices(dim)
        result[axis] = (start, step, len(range(start, stop, step)))
    return result


def _of_size(
    attrs: StridedSliceAttrs, dim: Known, begin: Known | None, end: Known | None, stride: int
) -> tuple[Known, int, Known]:
    """The same where the axis, or a limit, is an expression over sizes."""
    if attrs.slice_mode == "size":
        start = _position(dim, begin or 0, 0)
        is_all = end is None or (isinstance(end, int) and end < 0)
        return start, 1, least(dim - start, dim if is_all or end is None else end)
    if stride > 0:
        start, stop = (_position(dim, v, 0) for v in (begin or 0, dim if end is None else end))
        return start, stride, ceil_div(most(stop - start, 0), stride)
    start = _position(dim - 1, dim - 1 if begin is None else begin, -1, dim)
    stop = -1 if end is None else _position(dim - 1, end, -1, dim)
    return start, stride, ceil_div(most(start - stop, 0), -stride)


def _position(last: Known, at: Known, first: int, dim: Known | None = None) -> Known:
    """A limit counted from the front, no further than `last` and not before `first`."""
    if isinstance(at, int) and at < 0:
        at = (last if dim is None else dim) + at
    return most(least(at, last), first)


def _of_unknown(attrs: StridedSliceAttrs, begin: int | None, end: int | None, stride: int) -> Dim:
    """How much a cut leaves of an axis whose size is not known."""
    if attrs.slice_mode == "size":
        return ANY_DIM if end is None or end < 0 else end
    known = begin is not None and end is not None and stride == 1 and 0 <= begin <= end
    return end - begin if known and end is not None and begin is not None else ANY_DIM


@strided_slice.infer
def infer_strided_slice(attrs: StridedSliceAttrs, data: TensorType) -> TensorType:
    return TensorType(tuple(count for _, _, count in slices(attrs, data.shape)), data.dtype)


@strided_slice.reference
def strided_slice_reference(attrs: StridedSliceAttrs, data: Array) -> Array:
    for axis, (start, step, count) in enumerate(slices(attrs, data.shape)):
        if (start, step, count) != (0, 1, data.shape[axis]):
            assert isinstance(count, int) and isinstance(start, int), "array shapes are known"
            data = np.take(data, start + step * np.arange(count), axis=axis)
    return data


@strided_slice.compute
def strided_slice_compute(attrs: StridedSliceAttrs, data: te.Tensor) -> te.Tensor:
    plan = slices(attrs, te.extents(data))

    def element(*i: Index) -> Scalar:
        return data(*(T.add(v * step, start) for v, (start, step, _) in zip(i, plan, strict=True)))

    return elements(tuple(count for _, _, count in plan), element, name="strided_slice", tag="injective")


@strided_slice.samples
def strided_slice_samples() -> Iterator[Sample]:
    yield Sample(StridedSliceAttrs((1, 0), (3, 4), (1, 2)), (f32(4, 5),))
    yield Sample(StridedSliceAttrs((-1,), (-100,), (-1,), (1,)), (i32(2, 5),))
    yield Sample(StridedSliceAttrs((1, -2), (2, -1), slice_mode="size"), (f32(4, 5),))
    yield Sample(StridedSliceAttrs((3,), (1,)), (f32(4, 5),))
    yield Sample(StridedSliceAttrs((None,), (None,), (-2,), (-1,)), (f32(2, 7),))


@strided_slice.bad_samples
def strided_slice_bad_samples() -> Iterator[BadSample]:
    yield BadSample(StridedSliceAttrs((0,), (1,), (0,)), (f32(4),), "a stride is 0")
    yield BadSample(StridedSliceAttrs((0, 0), (1,), None, (0, 1)), (f32(4, 4),), "the lists differ in length")
    yield BadSample(StridedSliceAttrs((0,), (1,), None, (3,)), (f32(4),), "axis 3 is out of range")
    yield BadSample(StridedSliceAttrs((0,), (1,), slice_mode="x"), (f32(4),), "wanted 'end' or 'size'")


# --- slice_like ---------------------------------------------------------------------------------------------------


@record
class SliceLikeAttrs:
    """The axes to cut; None: all of shape_like."""

    axes: tuple[int, ...] | None = None


slice_like = Op(
    "slice_like", kind=Kind.INJECTIVE, inputs=("data", "shape_like"), doc="The leading part, as large as another."
)
slice_like.attrs(SliceLikeAttrs)


def _cut(attrs: SliceLikeAttrs, data: Sequence[Dim], like: Sequence[Dim]) -> tuple[Dim, ...]:
    if attrs.axes is None and len(like) > len(data):
        raise TypeMismatch(f"slice_like: shape_like has {len(like)} dimensions, data only {len(data)}")
    axes = range(len(like)) if attrs.axes is None else [axis_of("slice_like", a, len(data)) for a in attrs.axes]
    shape = list(data)
    for axis in axes:
        want = like[axis_of("slice_like", axis, len(like))]
        have = shape[axis]
        if isinstance(want, int) and isinstance(have, int) and want > have:
            raise TypeMismatch(f"slice_like: axis {axis} has {have} elements, shape_like wants {want}")
        note_at_most(want, have)
        shape[axis] = want
    return tuple(shape)


@slice_like.infer
def infer_slice_like(attrs: SliceLikeAttrs, data: TensorType, like: TensorType) -> TensorType:
    return TensorType(_cut(attrs, data.shape, like.shape), data.dtype)


@slice_like.reference
def slice_like_reference(attrs: SliceLikeAttrs, data: Array, like: Array) -> Array:
    return np.array(data[tuple(slice(0, int(str(d))) for d in _cut(attrs, data.shape, like.shape))])


@slice_like.compute
def slice_like_compute(attrs: SliceLikeAttrs, data: te.Tensor, like: te.Tensor) -> te.Tensor:
    shape = _cut(attrs, te.extents(data), te.extents(like))
    return elements(shape, lambda *i: data(*i), name="slice_like", tag="injective")


@slice_like.decompose
def slice_like_decompose(attrs: SliceLikeAttrs, data: Expr, like: Expr) -> Expr:
    types = data.checked_type, like.checked_type
    assert isinstance(types[0], TensorType) and isinstance(types[1], TensorType), "checked by infer"
    shape = _cut(attrs, types[0].known, types[1].known)
    return strided_slice(data, (0,) * len(shape), shape)


@slice_like.samples
def slice_like_samples() -> Iterator[Sample]:
    yield Sample(SliceLikeAttrs(), (f32(4, 5), f32(2, 3)))
    yield Sample(SliceLikeAttrs((-1,)), (f32(4, 5), f32(7, 3)))


@slice_like.bad_samples
def slice_like_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SliceLikeAttrs(), (f32(4, 5), f32(2, 6)), "has 5 elements, shape_like wants 6")
    yield BadSample(SliceLikeAttrs(), (f32(4), f32(2, 6)), "data only 1")


state("slice_like", Fact.PICKS, follows=Follows.SLICE_LIKE)
state("strided_slice", Fact.PICKS, precision=Precision.FOLLOW, follows=Follows.SLICE)
