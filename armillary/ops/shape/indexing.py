"""Reading at computed positions: take, gather, gather_nd, reverse_sequence.

In: data and an integer tensor of positions. Out: the elements read. Invariant: a position out of range never reads
outside the data: it wraps (counting from the end once) or is clamped. Writing at positions: scatter.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Known, most, note_at_most
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import (
    Index,
    as_index,
    axis_of,
    check_kind,
    check_to_read,
    dims_product,
    elements,
    f32,
    i32,
    ints,
    number,
    widened,
)
from armillary.ops.nn._windows import same_dim
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import AnyDim, Dim, TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar


def wrapped(position: Scalar, size: Known) -> Scalar:
    """A position in [-size, size) counted from the front, clamped into the axis; as an index."""
    position = widened(position, size)
    zero, limit = T.const(0, position.dtype), number(last_place(size), position.dtype)
    if position.dtype.code == "uint":
        return as_index(T.minimum(position, limit), size)
    front = T.select(T.less(position, zero), T.add(position, number(size, position.dtype)), position)
    return as_index(T.minimum(T.maximum(front, zero), limit), size)


def numpy_wrapped(position: Array, size: int) -> Array:
    """The same for arrays."""
    if position.dtype.kind == "u":  # of 64 bits, the upper half would be negative
        return np.minimum(position.astype(np.uint64), np.uint64(max(size - 1, 0))).astype(np.int64)
    wide = position.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, max(size - 1, 0))


# --- take ---------------------------------------------------------------------------------------------------------


@record
class TakeAttrs:
    """mode: clip (clamp), wrap (modulo the size) or fast (as clip). axis None: of the flattened data."""

    axis: int | None = None
    batch_dims: int = 0
    mode: str = "clip"


take = Op("take", kind=Kind.INJECTIVE, inputs=("data", "indices"), doc="Slices of data at the given positions.")
take.attrs(TakeAttrs)


@take.infer
def infer_take(attrs: TakeAttrs, data: TensorType, indices: TensorType) -> TensorType:
    check_kind("take", "indices", indices, "integer")
    if attrs.mode not in ("clip", "wrap", "fast"):
        raise TypeMismatch(f"take: mode {attrs.mode!r}, wanted clip, wrap or fast")
    if attrs.axis is None:
        check_to_read("take", data, range(data.ndim), indices.shape)
        return TensorType(indices.shape, data.dtype)
    axis, batch = axis_of("take", attrs.axis, data.ndim), _batch_dims(attrs, indices.ndim)
    check_to_read("take", data, (axis,), (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    if batch > axis:
        raise TypeMismatch(f"take: batch_dims {attrs.batch_dims} exceeds axis {axis}")
    return TensorType((*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :]), data.dtype)


def _batch_dims(attrs: TakeAttrs, ndim: int) -> int:
    batch = attrs.batch_dims + ndim if attrs.batch_dims < 0 else attrs.batch_dims
    if not 0 <= batch <= ndim:
        raise TypeMismatch(f"take: batch_dims {attrs.batch_dims} is out of range for indices of {ndim} dimensions")
    return batch


@take.reference
def take_reference(attrs: TakeAttrs, data: Array, indices: Array) -> Array:
    axis = 0 if attrs.axis is None else attrs.axis % data.ndim
    data = data.reshape(-1) if attrs.axis is None else data
    size = max(data.shape[axis], 1)
    wide = indices.astype(np.uint64 if indices.dtype.kind == "u" else np.int64)
    positions = wide % wide.dtype.type(size) if attrs.mode == "wrap" else np.clip(indices, 0, size - 1)
    batch = 0 if attrs.axis is None else _batch_dims(attrs, indices.ndim)
    if batch == 0:
        return np.asarray(np.take(data, positions.astype(np.int64), axis=axis))
    inner = [
        take_reference(TakeAttrs(axis - batch, 0, attrs.mode), data[b], indices[b])
        for b in np.ndindex(data.shape[:batch])
    ]
    shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
    return np.stack(inner).reshape(shape) if inner else np.zeros(shape, data.dtype)


@take.compute
def take_compute(attrs: TakeAttrs, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
    source, places = te.extents(data), te.extents(indices)
    flat = attrs.axis is None
    axis = 0 if attrs.axis is None else attrs.axis % len(source)
    batch = 0 if flat else _batch_dims(attrs, len(places))
    size = dims_product(source) if flat else source[axis]
    count = len(places) - batch

    def position(value: Scalar) -> Scalar:
        value = widened(value, size)
        if attrs.mode == "wrap":
            return as_index(T.floormod(value, number(most(size, 1), value.dtype)), size)
        return as_index(T.minimum(T.maximum(value, 0), last_place(size)), size)

    def element(*i: Index) -> Scalar:
        if flat:
            return data(*_unravel(position(indices(*i)), source))
        where = position(indices(*i[:batch], *i[axis : axis + count]))
        return data(*i[:axis], where, *i[axis + count :])

    shape = places if flat else (*source[:axis], *places[batch:], *source[axis + 1 :])
    return elements(shape, element, name="take", tag="injective")


def last_place(size: Known) -> Known:
    """The last position of an axis; 0 where it has none."""
    return most(size - 1, 0)


def _unravel(flat: Scalar, shape: Sequence[Known]) -> list[Scalar]:
    result: list[Scalar] = []
    for axis, size in reversed(list(enumerate(shape))):
        result.insert(0, flat if axis == 0 else T.floormod(flat, size))
        flat = T.floordiv(flat, size)
    return result


@take.samples
def take_samples() -> Iterator[Sample]:
    yield Sample(TakeAttrs(0), (f32(5, 3), ints([[1, 4], [0, 2]])))
    yield Sample(TakeAttrs(), (f32(200), ints([1, 127, 99], "int8")))
    yield Sample(TakeAttrs(mode="wrap"), (f32(256), ints([0, 255], "uint8")))
    yield Sample(TakeAttrs(1, mode="wrap"), (f32(2, 5), ints([-1, 7, 2], "int64")))
    yield Sample(TakeAttrs(), (f32(2, 5), ints([9, 0, 100, -3])))
    yield Sample(TakeAttrs(-1), (i32(2, 5), ints(3)))
    yield Sample(TakeAttrs(1, batch_dims=1), (f32(2, 5, 2), ints([[0, 4, 4], [1, 0, 2]])))


@take.bad_samples
def take_bad_samples() -> Iterator[BadSample]:
    yield BadSample(TakeAttrs(0), (f32(5), f32(2)), "indices has dtype float32, wanted integer")
    yield BadSample(TakeAttrs(2), (f32(5), i32(2)), "axis 2 is out of range")
    yield BadSample(TakeAttrs(0, mode="x"), (f32(5), i32(2)), "wanted clip, wrap or fast")
    yield BadSample(TakeAttrs(0, batch_dims=1), (f32(5, 2), i32(5)), "exceeds axis")


# --- gather -------------------------------------------------------------------------------------------------------


@record
class GatherAttrs:
    """The axis along which `indices` gives positions."""

    axis: int


gather = Op(
    "gather", kind=Kind.INJECTIVE, inputs=("data", "indices"), doc="data[.., indices[i, j, ..], ..] along an axis."
)
gather.attrs(GatherAttrs)


@gather.infer
def infer_gather(attrs: GatherAttrs, data: TensorType, indices: TensorType) -> TensorType:
    check_kind("gather", "indices", indices, "integer")
    axis = axis_of("gather", attrs.axis, data.ndim)
    if indices.ndim != data.ndim:
        raise TypeMismatch(f"gather: indices has {indices.ndim} dimensions, wanted {data.ndim}")
    for i, (have, want) in enumerate(zip(indices.shape, data.shape)):
        if i != axis:
            note_at_most(have, want)
        if i != axis and isinstance(have, int) and isinstance(want, int) and have > want:
            raise TypeMismatch(f"gather: indices {indices.shape} does not fit into data {data.shape} in dimension {i}")
    check_to_read("gather", data, (axis,), indices.shape)
    return TensorType(indices.shape, data.dtype)


@gather.reference
def gather_reference(attrs: GatherAttrs, data: Array, indices: Array) -> Array:
    axis = attrs.axis % data.ndim
    grid: list[Array] = list(np.indices(indices.shape))
    grid[axis] = numpy_wrapped(indices, data.shape[axis])
    return np.asarray(data[tuple(grid)])


@gather.compute
def gather_compute(attrs: GatherAttrs, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
    source = te.extents(data)
    axis = attrs.axis % len(source)
    return elements(
        te.extents(indices),
        lambda *i: data(*i[:axis], wrapped(indices(*i), source[axis]), *i[axis + 1 :]),
        name="gather",
        tag="injective",
    )


@gather.samples
def gather_samples() -> Iterator[Sample]:
    yield Sample(GatherAttrs(1), (f32(2, 3), ints([[0, 2], [-1, 1]])))
    yield Sample(GatherAttrs(0), (f32(3, 2), ints([[2, 0]], "int64")))


@gather.bad_samples
def gather_bad_samples() -> Iterator[BadSample]:
    yield BadSample(GatherAttrs(0), (f32(2, 3), i32(2)), "indices has 1 dimensions, wanted 2")
    yield BadSample(GatherAttrs(0), (f32(2, 3), i32(2, 4)), "does not fit into data")
    yield BadSample(GatherAttrs(2), (f32(2, 3), i32(2, 3)), "axis 2 is out of range")


# --- gather_nd ----------------------------------------------------------------------------------------------------


@record
class GatherNdAttrs:
    """`indices` is (M, Y..): position k of the M leading axes after batch_dims. index_rank is ignored: M is known."""

    batch_dims: int = 0
    index_rank: int | None = None


gather_nd = Op(
    "gather_nd", kind=Kind.INJECTIVE, inputs=("data", "indices"), doc="Slices at multi-dimensional positions."
)
gather_nd.attrs(GatherNdAttrs)


def _gathered(attrs: GatherNdAttrs, data: Sequence[Dim], indices: Sequence[Dim]) -> tuple[Dim, ...]:
    if not indices or isinstance(indices[0], AnyDim):
        raise TypeMismatch("gather_nd: the first dimension of indices, the number of axes, must be known")
    depth, batch = indices[0], attrs.batch_dims
    if batch < 0 or batch + depth > len(data) or batch >= len(indices):
        raise TypeMismatch(f"gather_nd: positions of {depth} axes after {batch} batch axes exceed data {tuple(data)}")
    if not all(map(same_dim, indices[1 : batch + 1], data[:batch])):
        raise TypeMismatch(f"gather_nd: batch axes differ: indices {tuple(indices)}, data {tuple(data)}")
    return (*indices[1:], *data[batch + depth :])


@gather_nd.infer
def infer_gather_nd(attrs: GatherNdAttrs, data: TensorType, indices: TensorType) -> TensorType:
    check_kind("gather_nd", "indices", indices, "integer")
    shape = _gathered(attrs, data.shape, indices.shape)
    check_to_read("gather_nd", data, range(data.ndim - len(shape) + indices.ndim - 1), shape)
    return TensorType(shape, data.dtype)


@gather_nd.reference
def gather_nd_reference(attrs: GatherNdAttrs, data: Array, indices: Array) -> Array:
    depth, batch = indices.shape[0], attrs.batch_dims
    grid = np.indices(indices.shape[1:])
    key = [*grid[:batch], *(numpy_wrapped(indices[k], data.shape[batch + k]) for k in range(depth))]
    shape = (*indices.shape[1:], *data.shape[batch + depth :])
    return np.asarray(data[tuple(key)]).reshape(shape)


@gather_nd.compute
def gather_nd_compute(attrs: GatherNdAttrs, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
    source, places = te.extents(data), te.extents(indices)
    batch, depth, count = attrs.batch_dims, places[0], len(places) - 1
    if not isinstance(depth, int):
        raise TypeMismatch(f"gather_nd: how many axes the indices name is {depth}, wanted a number")

    def element(*i: Index) -> Scalar:
        at = (wrapped(indices(k, *i[:count]), source[batch + k]) for k in range(depth))
        return data(*i[:batch], *at, *i[count:])

    return elements(_gathered(attrs, source, places), element, name="gather_nd", tag="injective")


@gather_nd.samples
def gather_nd_samples() -> Iterator[Sample]:
    yield Sample(GatherNdAttrs(), (f32(2, 3, 4), ints([[0, 1], [2, -1]])))
    yield Sample(GatherNdAttrs(), (f32(2, 3), ints([[0, 1, 1]])))
    yield Sample(GatherNdAttrs(1), (f32(2, 3), ints([[2, 0]])))


@gather_nd.bad_samples
def gather_nd_bad_samples() -> Iterator[BadSample]:
    yield BadSample(GatherNdAttrs(), (f32(2, 3), i32(3, 2)), "exceed data (2, 3)")
    yield BadSample(GatherNdAttrs(), (f32(2, 3), f32(2, 2)), "wanted integer")


# --- reverse_sequence ---------------------------------------------------------------------------------------------


@record
class ReverseSequenceAttrs:
    """Along seq_axis, the first seq_lengths[b] elements of batch b are reversed."""

    seq_axis: int = 1
    batch_axis: int = 0


_SEQUENCE = ("data", "seq_lengths")
reverse_sequence = Op("reverse_sequence", kind=Kind.INJECTIVE, inputs=_SEQUENCE, doc="Reverse a part of each sequence.")
reverse_sequence.attrs(ReverseSequenceAttrs)


@reverse_sequence.infer
def infer_reverse_sequence(attrs: ReverseSequenceAttrs, data: TensorType, seq_lengths: TensorType) -> TensorType:
    check_kind("reverse_sequence", "seq_lengths", seq_lengths, "integer")
    seq, batch = (axis_of("reverse_sequence", a, data.ndim) for a in (attrs.seq_axis, attrs.batch_axis))
    if seq == batch:
        raise TypeMismatch(f"reverse_sequence: seq_axis and batch_axis are both {seq}")
    if seq_lengths.shape != (data.shape[batch],):
        raise TypeMismatch(
            f"reverse_sequence: seq_lengths has shape {seq_lengths.shape}, wanted ({data.shape[batch]},)"
        )
    return data


@reverse_sequence.reference
def reverse_sequence_reference(attrs: ReverseSequenceAttrs, data: Array, seq_lengths: Array) -> Array:
    grid = np.indices(data.shape)
    seq, batch = attrs.seq_axis % data.ndim, attrs.batch_axis % data.ndim
    length = np.clip(seq_lengths.astype(np.int64), 0, data.shape[seq])[grid[batch]]
    key: list[Array] = list(grid)
    key[seq] = np.where(grid[seq] < length, length - 1 - grid[seq], grid[seq])
    return np.asarray(data[tuple(key)])


@reverse_sequence.compute
def reverse_sequence_compute(attrs: ReverseSequenceAttrs, data: te.Tensor, seq_lengths: te.Tensor) -> te.Tensor:
    shape = te.extents(data)
    seq, batch = attrs.seq_axis % len(shape), attrs.batch_axis % len(shape)

    def element(*i: Index) -> Scalar:
        own_length = widened(seq_lengths(i[batch]), shape[seq])
        length = as_index(T.minimum(T.maximum(own_length, 0), shape[seq]), shape[seq])
        at = T.select(T.less(i[seq], length), T.sub(T.sub(length, 1), i[seq]), i[seq])
        return data(*i[:seq], at, *i[seq + 1 :])

    return elements(shape, element, name="reverse_sequence", tag="injective")


@reverse_sequence.samples
def reverse_sequence_samples() -> Iterator[Sample]:
    yield Sample(ReverseSequenceAttrs(), (f32(2, 4), ints([3, 4])))
    yield Sample(ReverseSequenceAttrs(0, 1), (f32(4, 2, 3), ints([1, 0], "int64")))


@reverse_sequence.bad_samples
def reverse_sequence_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ReverseSequenceAttrs(), (f32(2, 4), i32(3)), "wanted (2,)")
    yield BadSample(ReverseSequenceAttrs(0, 0), (f32(2, 4), i32(2)), "are both 0")


state("gather", Fact.PICKS, precision=Precision.FOLLOW)
state("gather_nd", Fact.PICKS)
state("take", Fact.PICKS, precision=Precision.FOLLOW, follows=Follows.TAKE)
