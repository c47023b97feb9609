"""Operators that join, cut and repeat: concatenate, stack, split, tile, repeat, reverse, broadcast_to.

In: one tensor, or a tuple of them. Out: tensors of which each element is one element of an input. Invariant: sizes are
checked before anything is built. Slices: shape/slice.py. ONNX rules: rules/shape.py.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Extent, Known, bounds, note_meeting
from armillary.base.record import record
from armillary.budgets import KERNEL_SIZE
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import (
    Index,
    axis_of,
    broadcast_index,
    check_broadcasts_to,
    check_same_dtype,
    dims_product,
    elements,
    f32,
    fixed_shape,
    i32,
    tuple_fields,
)
from armillary.ops.shape.shape import reshape_compute
from armillary.relay.expr import Call, Expr, tensor_of
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import AnyDim, Dim, TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar


@record
class AxisAttrs:
    """The axis to work along."""

    axis: int = 0


# --- concatenate, stack -------------------------------------------------------------------------------------------

_WHOLE = 16  # elements: where parts of rows meet at a multiple of them, no vector has elements of two parts
_MOST_CUTS = 8  # parts of a row whose loops are told apart
_MOST_LINKS = 64  # parts chosen one after another; of more, each choice halves what is left
concatenate = Op("concatenate", kind=Kind.INJECTIVE, inputs=("*data",), doc="Tensors one after another, along an axis.")
concatenate.attrs(AxisAttrs)


@concatenate.infer
def infer_concatenate(attrs: AxisAttrs, data: Type) -> TensorType:
    parts = tuple_fields("concatenate", data)
    dtype, ndim = check_same_dtype("concatenate", parts), parts[0].ndim
    if ndim == 0:
        raise TypeMismatch("concatenate: scalars cannot be joined", hint="use stack")
    axis = axis_of("concatenate", attrs.axis, ndim)
    shape = list(parts[0].shape)
    total: Dim = 0
    for part in parts:
        if part.ndim != ndim:
            raise TypeMismatch(f"concatenate: {part.shape} beside {parts[0].shape}: different numbers of dimensions")
        for i, (have, want) in enumerate(zip(part.shape, shape)):
            if i == axis:
                total = total + have
            elif isinstance(want, AnyDim):
                note_meeting(want, have)
                shape[i] = have
            elif isinstance(have, AnyDim):
                note_meeting(want, have)
            elif have != want:
                raise TypeMismatch(f"concatenate along axis {axis}: got {part.shape}, wanted {want} in dimension {i}")
    shape[axis] = total
    return TensorType(tuple(shape), dtype)


@concatenate.reference
def concatenate_reference(attrs: AxisAttrs, data: Sequence[Array]) -> Array:
    return np.concatenate(list(data), axis=attrs.axis)


@concatenate.compute
def concatenate_compute(attrs: AxisAttrs, data: Sequence[te.Tensor]) -> te.Tensor:
    shapes = [te.extents(t) for t in data]
    axis = axis_of("concatenate", attrs.axis, len(shapes[0]))
    parts = [(t, shape[axis]) for t, shape in zip(data, shapes, strict=True) if shape[axis] != 0]
    ends = list(itertools.accumulate((size for _, size in parts), operator.add))
    total, starts = ends[-1] if ends else 0, [0, *ends[:-1]]
    shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])

    def part(k: int, i: Sequence[Index]) -> Scalar:
        return parts[k][0](*i[:axis], i[axis] - starts[k], *i[axis + 1 :])

    def element(*i: Index) -> Scalar:
        if len(parts) > _MOST_LINKS:
            return _halved(i[axis], starts, lambda k: part(k, i), 0, len(parts))
        value = part(len(parts) - 1, i)
        for k in reversed(range(len(parts) - 1)):
            end, first = starts[k + 1], part(k, i)
            if axis == len(shape) - 1 and end % _WHOLE != 0 and len(parts) <= _MOST_CUTS:
                value = T.if_then_else(T.likely(T.greater_equal(i[axis], end)), value, first)
            else:
                value = T.if_then_else(T.less(i[axis], end), first, value)
        return value

    if not parts:
        return elements(shape, lambda *i: data[0](*i), name="concatenate", tag="injective")
    return elements(shape, element, name="concatenate", tag="injective")


def _halved(i: Index, starts: Sequence[int], at: Callable[[int], Scalar], begin: int, end: int) -> Scalar:
    """The value of the part that holds position i, among parts [begin, end): choices as deep as their logarithm."""
    if end - begin == 1:
        return at(begin)
    middle = (begin + end) // 2
    halves = [_halved(i, starts, at, *ends) for ends in ((begin, middle), (middle, end))]
    return T.if_then_else(i < starts[middle], *halves)


@concatenate.samples
def concatenate_samples() -> Iterator[Sample]:
    yield Sample(AxisAttrs(), ((f32(2, 3), f32(1, 3)),))
    yield Sample(AxisAttrs(-1), ((i32(2, 3), i32(2, 0), i32(2, 1), i32(2, 4)),))
    yield Sample(AxisAttrs(1), ((f32(2, 3, 2),),))


@concatenate.bad_samples
def concatenate_bad_samples() -> Iterator[BadSample]:
    yield BadSample(AxisAttrs(), ((f32(2, 3), f32(2, 4)),), "wanted 3 in dimension 1")
    yield BadSample(AxisAttrs(2), ((f32(2, 3), f32(2, 3)),), "axis 2 is out of range")
    yield BadSample(AxisAttrs(), ((f32(2, 3), i32(2, 3)),), "got int32, wanted float32")
    yield BadSample(AxisAttrs(), ((f32(2, 3), f32(2)),), "different numbers of dimensions")
    yield BadSample(AxisAttrs(), ((f32(), f32()),), "scalars cannot be joined")


stack = Op("stack", kind=Kind.INJECTIVE, inputs=("*data",), doc="Tensors of one shape along a new axis.")
stack.attrs(AxisAttrs)


@stack.infer
def infer_stack(attrs: AxisAttrs, data: Type) -> TensorType:
    parts = tuple_fields("stack", data)
    dtype = check_same_dtype("stack", parts)
    for part in parts[1:]:
        if part.shape != parts[0].shape:
            raise TypeMismatch(f"stack: got {part.shape} beside {parts[0].shape}, wanted equal shapes")
    axis = axis_of("stack", attrs.axis, parts[0].ndim + 1)
    return TensorType((*parts[0].shape[:axis], len(parts), *parts[0].shape[axis:]), dtype)


@stack.reference
def stack_reference(attrs: AxisAttrs, data: Sequence[Array]) -> Array:
    return np.stack(list(data), axis=attrs.axis)


@stack.compute
def stack_compute(attrs: AxisAttrs, data: Sequence[te.Tensor]) -> te.Tensor:
    inner = te.extents(data[0])
    axis = axis_of("stack", attrs.axis, len(inner) + 1)

    def element(*i: Index) -> Scalar:
        rest = (*i[:axis], *i[axis + 1 :])
        if len(data) > _MOST_LINKS:
            return _halved(i[axis], range(len(data)), lambda k: data[k](*rest), 0, len(data))
        value = data[-1](*rest)
        for position in reversed(range(len(data) - 1)):
            value = T.if_then_else(T.equal(i[axis], position), data[position](*rest), value)
        return value

    return elements((*inner[:axis], len(data), *inner[axis:]), element, name="stack", tag="injective")


@stack.samples
def stack_samples() -> Iterator[Sample]:
    yield Sample(AxisAttrs(), ((f32(2, 3), f32(2, 3), f32(2, 3)),))
    yield Sample(AxisAttrs(-1), ((i32(2), i32(2)),))
    yield Sample(AxisAttrs(0), ((f32(), f32()),))


@stack.bad_samples
def stack_bad_samples() -> Iterator[BadSample]:
    yield BadSample(AxisAttrs(), ((f32(2), f32(3)),), "wanted equal shapes")
    yield BadSample(AxisAttrs(2), ((f32(2), f32(2)),), "axis 2 is out of range")


# --- split --------------------------------------------------------------------------------------------------------


@record
class SplitAttrs:
    """A number of equal parts, or the positions to cut at."""

    indices_or_sections: int | tuple[int, ...]
    axis: int = 0


split = Op("split", kind=Kind.INJECTIVE, doc="Cut along an axis into a tuple of tensors.")
split.attrs(SplitAttrs)


def _cuts(attrs: SplitAttrs, size: Dim) -> list[tuple[Dim, Dim]]:
    """Start and size of each part; a run refuses an open size that does not divide into equal ones."""
    parts = attrs.indices_or_sections
    if isinstance(parts, int):
        if parts < 1 or (isinstance(size, int) and size % parts):
            raise TypeMismatch(f"split: {size} elements do not divide into {parts} equal parts")
        KERNEL_SIZE.check(parts, f"split into {parts} parts")
        if isinstance(size, AnyDim) and not isinstance(size, Extent):
            return [(0, size // parts)] * parts
        note_meeting(size // parts * parts, size)
        return [(k * (size // parts), size // parts) for k in range(parts)]
    if list(parts) != sorted(parts) or any(p < 0 for p in parts):
        raise TypeMismatch(f"split: the positions {parts} are not ascending")
    if isinstance(size, AnyDim):
        last = parts[-1] if parts else 0
        return [*((a, b - a) for a, b in zip((0, *parts), parts)), (last, size - last)]
    edges = (0, *(min(p, size) for p in parts), size)
    return [(a, b - a) for a, b in itertools.pairwise(edges)]


@split.infer
def infer_split(attrs: SplitAttrs, data: TensorType) -> TupleType:
    axis = axis_of("split", attrs.axis, data.ndim)
    head, tail = data.shape[:axis], data.shape[axis + 1 :]
    return TupleType(tuple(TensorType((*head, n, *tail), data.dtype) for _, n in _cuts(attrs, data.shape[axis])))


@split.reference
def split_reference(attrs: SplitAttrs, data: Array) -> tuple[Array, ...]:
    cuts = _cuts(attrs, data.shape[attrs.axis])
    starts = (int(str(start)) for start, _ in cuts)
    return tuple(np.take(data, np.arange(s, s + int(str(n))), axis=attrs.axis) for s, (_, n) in zip(starts, cuts))


@split.compute
def split_compute(attrs: SplitAttrs, data: te.Tensor) -> list[te.Tensor]:
    shape = te.extents(data)
    axis = axis_of("split", attrs.axis, len(shape))

    def part(start: Dim, size: Dim) -> te.Tensor:
        assert isinstance(size, int | Extent) and isinstance(start, int | Extent), "all axes have numbers or names"
        return elements(
            (*shape[:axis], size, *shape[axis + 1 :]),
            lambda *i: data(*i[:axis], T.add(i[axis], start), *i[axis + 1 :]),
            name="split",
            tag="injective",
        )

    return [part(start, size) for start, size in _cuts(attrs, shape[axis])]


@split.samples
def split_samples() -> Iterator[Sample]:
    yield Sample(SplitAttrs(2), (f32(4, 3),))
    yield Sample(SplitAttrs((1, 3), -1), (i32(2, 5),))
    yield Sample(SplitAttrs((), 1), (f32(2, 5),))


@split.bad_samples
def split_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SplitAttrs(2), (f32(5),), "5 elements do not divide into 2 equal parts")
    yield BadSample(SplitAttrs((3, 1)), (f32(5),), "not ascending")
    yield BadSample(SplitAttrs(2, 4), (f32(4),), "axis 4 is out of range")


# --- tile, repeat, reverse ----------------------------------------------------------------------------------------


@record
class TileAttrs:
    """How often each axis is repeated, aligned to the last axis."""

    reps: tuple[Known, ...]


tile = Op("tile", kind=Kind.INJECTIVE, doc="The whole tensor repeated along each axis.")
tile.attrs(TileAttrs)


def _tiled(attrs: TileAttrs, shape: Sequence[Dim]) -> tuple[tuple[Dim, ...], tuple[Known, ...]]:
    """The input shape and the repetitions, made equally long."""
    if any(bounds(r)[1] < 0 if isinstance(r, Extent) else r < 0 for r in attrs.reps):
        raise TypeMismatch(f"tile: negative repetitions in {attrs.reps}")
    ndim = max(len(shape), len(attrs.reps))
    return (1,) * (ndim - len(shape)) + tuple(shape), (1,) * (ndim - len(attrs.reps)) + attrs.reps


@tile.infer
def infer_tile(attrs: TileAttrs, data: TensorType) -> TensorType:
    shape, reps = _tiled(attrs, data.shape)
    return TensorType(tuple(d * r for d, r in zip(shape, reps)), data.dtype)


@tile.reference
def tile_reference(attrs: TileAttrs, data: Array) -> Array:
    return np.tile(data, [int(r) for r in attrs.reps if isinstance(r, int)])


@tile.compute
def tile_compute(attrs: TileAttrs, data: te.Tensor) -> te.Tensor:
    own = te.extents(data)
    _, reps = _tiled(attrs, own)
    shape = (1,) * (len(reps) - len(own)) + own
    result = tuple(d * r for d, r in zip(shape, reps, strict=True))

    def element(*i: Index) -> Scalar:
        wrapped = (
            0 if d in (0, 1) else v if r == 1 else T.floormod(v, d) for v, d, r in zip(i, shape, reps, strict=True)
        )
        return data(*list(wrapped)[len(reps) - len(own) :])

    return elements(result, element, name="tile", tag="injective")


@tile.samples
def tile_samples() -> Iterator[Sample]:
    yield Sample(TileAttrs((2, 3)), (f32(2, 3),))
    yield Sample(TileAttrs((2,)), (f32(2, 3),))
    yield Sample(TileAttrs((2, 1, 2)), (i32(3),))


@tile.bad_samples
def tile_bad_samples() -> Iterator[BadSample]:
    yield BadSample(TileAttrs((-1,)), (f32(2),), "negative repetitions")


@record
class RepeatAttrs:
    """Each element `repeats` times along `axis`; axis None: of the flattened tensor."""

    repeats: int
    axis: int | None = None


repeat = Op("repeat", kind=Kind.INJECTIVE, doc="Each element repeated along an axis.")
repeat.attrs(RepeatAttrs)


@repeat.infer
def infer_repeat(attrs: RepeatAttrs, data: TensorType) -> TensorType:
    if attrs.repeats < 0:
        raise TypeMismatch(f"repeat: repeats is {attrs.repeats}, wanted at least 0")
    shape: tuple[Dim, ...] = data.shape if attrs.axis is not None else (data.size,)
    axis = axis_of("repeat", attrs.axis or 0, len(shape))
    dim = shape[axis]
    size = dim * attrs.repeats
    return TensorType((*shape[:axis], size, *shape[axis + 1 :]), data.dtype)


@repeat.reference
def repeat_reference(attrs: RepeatAttrs, data: Array) -> Array:
    return np.repeat(data, attrs.repeats, axis=attrs.axis)


@repeat.compute
def repeat_compute(attrs: RepeatAttrs, data: te.Tensor) -> te.Tensor:
    if attrs.axis is None:
        data = reshape_compute(data, (dims_product(te.extents(data)),), "flatten")
    shape = te.extents(data)
    axis = axis_of("repeat", attrs.axis or 0, len(shape))
    result = (*shape[:axis], shape[axis] * attrs.repeats, *shape[axis + 1 :])
    count = max(1, attrs.repeats)
    return elements(
        result, lambda *i: data(*i[:axis], T.floordiv(i[axis], count), *i[axis + 1 :]), name="repeat", tag="injective"
    )


@repeat.samples
def repeat_samples() -> Iterator[Sample]:
    yield Sample(RepeatAttrs(2, 0), (f32(2, 3),))
    yield Sample(RepeatAttrs(3, -1), (f32(2, 3),))
    yield Sample(RepeatAttrs(2), (i32(2, 2),))


@repeat.bad_samples
def repeat_bad_samples() -> Iterator[BadSample]:
    yield BadSample(RepeatAttrs(-2, 0), (f32(2),), "wanted at least 0")


reverse = Op("reverse", kind=Kind.INJECTIVE, doc="The elements of an axis in reverse order.")
reverse.attrs(AxisAttrs)


@reverse.infer
def infer_reverse(attrs: AxisAttrs, data: TensorType) -> TensorType:
    axis_of("reverse", attrs.axis, data.ndim)
    return data


@reverse.reference
def reverse_reference(attrs: AxisAttrs, data: Array) -> Array:
    return np.ascontiguousarray(np.flip(data, attrs.axis))


@reverse.compute
def reverse_compute(attrs: AxisAttrs, data: te.Tensor) -> te.Tensor:
    shape = te.extents(data)
    axis = axis_of("reverse", attrs.axis, len(shape))
    last = shape[axis] - 1
    return elements(shape, lambda *i: data(*i[:axis], last - i[axis], *i[axis + 1 :]), name="reverse", tag="injective")


@reverse.samples
def reverse_samples() -> Iterator[Sample]:
    yield Sample(AxisAttrs(0), (f32(3, 2),))
    yield Sample(AxisAttrs(-1), (f32(3, 2),))


@reverse.bad_samples
def reverse_bad_samples() -> Iterator[BadSample]:
    yield BadSample(AxisAttrs(1), (f32(3),), "axis 1 is out of range")


# --- broadcast_to -------------------------------------------------------------------------------------------------


@record
class ShapeAttrs:
    """The shape of the result."""

    shape: tuple[Known, ...]


def broadcast_tensor(data: te.Tensor, shape: Sequence[Known]) -> te.Tensor:
    """The tensor repeated to a shape."""
    own = te.extents(data)
    return elements(shape, lambda *i: data(*broadcast_index(own, i)), name="broadcast_to", tag="broadcast")


broadcast_to = Op("broadcast_to", kind=Kind.BROADCAST, doc="Repeat along axes of size 1 until the shape is reached.")
broadcast_to.attrs(ShapeAttrs)


@broadcast_to.infer
def infer_broadcast_to(attrs: ShapeAttrs, data: TensorType) -> TensorType:
    check_broadcasts_to("broadcast_to", data.shape, attrs.shape)
    return TensorType(attrs.shape, data.dtype)


@broadcast_to.reference
def broadcast_to_reference(attrs: ShapeAttrs, data: Array) -> Array:
    shape = fixed_shape("broadcast_to", attrs.shape)
    return np.ascontiguousarray(np.broadcast_to(data, shape)).reshape(shape)


@broadcast_to.compute
def broadcast_to_compute(attrs: ShapeAttrs, data: te.Tensor) -> te.Tensor:
    return broadcast_tensor(data, attrs.shape)


@broadcast_to.samples
def broadcast_to_samples() -> Iterator[Sample]:
    yield Sample(ShapeAttrs((2, 3)), (f32(3),))
    yield Sample(ShapeAttrs((2, 3, 4)), (i32(2, 1, 4),))
    yield Sample(ShapeAttrs((2,)), (f32(),))


@broadcast_to.bad_samples
def broadcast_to_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ShapeAttrs((2, 1)), (f32(2, 3),), "(2, 3) does not broadcast to (2, 1)")
    yield BadSample(ShapeAttrs((2, 4)), (f32(2, 3),), "do not broadcast")


_LIKE = ("data", "broadcast_type")
broadcast_to_like = Op("broadcast_to_like", kind=Kind.BROADCAST, inputs=_LIKE, doc="Broadcast to another's shape.")


@broadcast_to_like.infer
def infer_broadcast_to_like(attrs: None, data: TensorType, like: TensorType) -> TensorType:
    check_broadcasts_to("broadcast_to_like", data.shape, like.shape)
    return TensorType(like.shape, data.dtype)


@broadcast_to_like.reference
def broadcast_to_like_reference(attrs: None, data: Array, like: Array) -> Array:
    return np.array(np.broadcast_to(data, like.shape))


@broadcast_to_like.compute
def broadcast_to_like_compute(attrs: None, data: te.Tensor, like: te.Tensor) -> te.Tensor:
    return broadcast_tensor(data, te.extents(like))


@broadcast_to_like.decompose
def broadcast_to_like_decompose(attrs: None, data: Expr, like: Expr) -> Expr:
    ty = like.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    return broadcast_to(data, ty.static)


@broadcast_to_like.samples
def broadcast_to_like_samples() -> Iterator[Sample]:
    yield Sample(None, (f32(3, 1), i32(2, 3, 4)))


@broadcast_to_like.bad_samples
def broadcast_to_like_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(2, 3), f32(3)), "does not broadcast to (3,)")


def same_shape(expr: Call) -> Expr | None:
    """broadcast_to(x, shape of x)  ->  x"""
    data = expr.args[0]
    return data if tensor_of(data) is not None and data.checked_type == expr.checked_type else None


broadcast_to.simplify(same_shape)

state("broadcast_to repeat reverse tile", Fact.PICKS, precision=Precision.FOLLOW)
state("broadcast_to_like", Fact.LIKE, precision=Precision.FOLLOW)
state("concatenate", precision=Precision.FOLLOW, follows=Follows.JOIN)
state("split stack", precision=Precision.FOLLOW)
state("split", follows=Follows.SPLIT)
