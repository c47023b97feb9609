"""Operators about positions: sequence_mask, unravel_index, invert_permutation, adv_index, sliding_window.

In: data, integer tensors of positions or lengths. Out: elements of the data, or positions. Invariant: nothing outside
the data is read; a position out of range is clamped as in indexing.py. Semantics: Relay's operators of these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, loop, store
from armillary.ops._types import (
    Index,
    axis_of,
    broadcast_index,
    broadcast_shapes,
    check_holds,
    check_kind,
    check_to_read,
    elements,
    f32,
    i32,
    ints,
    tuple_fields,
    widened,
)
from armillary.ops.nn._windows import out_dim
from armillary.ops.shape.indexing import numpy_wrapped, wrapped
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import AnyDim, Dim, TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt


# --- sequence_mask --------------------------------------------------------------------------------------------------


@record
class SequenceMaskAttrs:
    """axis: 0 or 1, the axis of steps; the other one is the batch."""

    mask_value: float = 0.0
    axis: int = 0


sequence_mask = Op(
    "sequence_mask", kind=Kind.INJECTIVE, inputs=("data", "valid_length"), doc="A number behind each sequence's end."
)
sequence_mask.attrs(SequenceMaskAttrs)


@sequence_mask.infer
def infer_sequence_mask(attrs: SequenceMaskAttrs, data: TensorType, lengths: TensorType) -> TensorType:
    if data.ndim < 2 or attrs.axis not in (0, 1, -data.ndim, 1 - data.ndim):
        raise TypeMismatch(f"sequence_mask: axis {attrs.axis} of {data}, wanted axis 0 or 1 of at least two")
    if data.dtype.is_int:
        check_holds("sequence_mask", str(data.dtype), int(attrs.mask_value))
    if lengths.shape != (data.shape[1 - attrs.axis % data.ndim],):
        raise TypeMismatch(f"sequence_mask: valid_length has shape {lengths.shape}, wanted one for each sequence")
    return data


@sequence_mask.reference
def sequence_mask_reference(attrs: SequenceMaskAttrs, data: Array, lengths: Array) -> Array:
    axis = attrs.axis % data.ndim
    steps = np.arange(data.shape[axis])
    inside = steps[:, None] < lengths[None, :] if axis == 0 else steps[None, :] < lengths[:, None]
    return np.where(inside.reshape(*inside.shape, *[1] * (data.ndim - 2)), data, np.array(attrs.mask_value, data.dtype))


@sequence_mask.compute
def sequence_mask_compute(attrs: SequenceMaskAttrs, data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    axis = attrs.axis % len(data.shape)

    def element(*i: Index) -> Scalar:
        end = widened(lengths(i[1 - axis]))
        return T.if_then_else(T.less(T.cast(i[axis], end.dtype), end), data(*i), T.const(attrs.mask_value, data.dtype))

    return elements(te.extents(data), element, name="sequence_mask", tag="injective")


@sequence_mask.samples
def sequence_mask_samples() -> Iterator[Sample]:
    yield Sample(SequenceMaskAttrs(), (f32(5, 3), ints([1, 5, 0])))
    yield Sample(SequenceMaskAttrs(-1.5, 1), (f32(3, 4, 2), ints([9, 2, -1], "int64")))
    yield Sample(SequenceMaskAttrs(2.0, 1), (i32(1, 40), ints([17], "int8")))


@sequence_mask.bad_samples
def sequence_mask_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SequenceMaskAttrs(axis=2), (f32(5, 3, 2), i32(3)), "axis 2")
    yield BadSample(SequenceMaskAttrs(), (f32(5, 3), i32(5)), "valid_length has shape (5,)")


# --- unravel_index --------------------------------------------------------------------------------------------------

unravel_index = Op(
    "unravel_index", kind=Kind.INJECTIVE, inputs=("indices", "shape"), doc="Coordinates of positions in a flat array."
)


@unravel_index.infer
def infer_unravel_index(attrs: None, indices: TensorType, shape: TensorType) -> TensorType:
    for what, ty in (("indices", indices), ("shape", shape)):
        check_kind("unravel_index", what, ty, "integer")
    if shape.ndim != 1 or indices.ndim > 1:
        raise TypeMismatch(f"unravel_index: got indices {indices} and shape {shape}, wanted vectors")
    return TensorType((*shape.shape, *indices.shape), indices.dtype)


@unravel_index.reference
def unravel_index_reference(attrs: None, indices: Array, shape: Array) -> Array:
    rest = indices.astype(np.int64)
    columns: list[Array] = []
    for size in reversed([int(v) for v in shape]):
        columns.insert(0, rest % max(size, 1))
        rest = rest // max(size, 1)
    return np.stack(columns).astype(indices.dtype) if columns else np.zeros((0, *indices.shape), indices.dtype)


@unravel_index.compute
def unravel_index_compute(attrs: None, indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
    rank, places = te.static_shape(shape)[0], te.extents(indices)

    def coordinate(axis: int, *i: Index) -> Scalar:
        rest = T.cast(indices(*i), "int64")
        for k in reversed(range(axis + 1, rank)):
            rest = T.floordiv(rest, _at_least_one(shape(k)))
        return T.cast(T.floormod(rest, _at_least_one(shape(axis))), indices.dtype)

    def element(axis: Index, *i: Index) -> Scalar:
        value = coordinate(rank - 1, *i)
        for k in reversed(range(rank - 1)):
            value = T.if_then_else(T.equal(axis, k), coordinate(k, *i), value)
        return value

    return elements((rank, *places), element, name="unravel_index", tag="injective")


def _at_least_one(size: Scalar) -> Scalar:
    return T.maximum(T.cast(size, "int64"), T.const(1, "int64"))


@unravel_index.samples
def unravel_index_samples() -> Iterator[Sample]:
    yield Sample(None, (ints([22, 41, 37]), ints([7, 6])))
    yield Sample(None, (ints([1621], "int64"), ints([6, 7, 8, 9], "int64")))
    yield Sample(None, (ints(5), ints([2, 3])))


@unravel_index.bad_samples
def unravel_index_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(3), i32(2)), "indices has dtype float32")
    yield BadSample(None, (i32(3), i32(2, 2)), "wanted vectors")


# --- invert_permutation ---------------------------------------------------------------------------------------------

invert_permutation = Op("invert_permutation", kind=Kind.OPAQUE, doc="Where each number of a permutation stands.")


@invert_permutation.infer
def infer_invert_permutation(attrs: None, data: TensorType) -> TensorType:
    check_kind("invert_permutation", "data", data, "integer")
    if data.ndim != 1:
        raise TypeMismatch(f"invert_permutation: got {data}, wanted a vector")
    return data


@invert_permutation.reference
def invert_permutation_reference(attrs: None, data: Array) -> Array:
    result = np.zeros_like(data)
    result[numpy_wrapped(data, data.size)] = np.arange(data.size, dtype=data.dtype)
    return result


@invert_permutation.compute
def invert_permutation_compute(attrs: None, data: te.Tensor) -> te.Tensor:
    (size,) = te.extents(data)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return S.seq(
            loop("i", size, lambda i: store(outs[0], 0, i)),
            loop("i", size, lambda i: store(outs[0], i, wrapped(load(ins[0], i), size))),
        )

    result: te.Tensor = te.extern([(size,)], [data], body, name="invert_permutation", dtype=[data.dtype])
    return result


@invert_permutation.samples
def invert_permutation_samples() -> Iterator[Sample]:
    yield Sample(None, (ints([3, 4, 0, 2, 1]),))
    yield Sample(None, (np.random.default_rng(0).permutation(100).astype(np.int64),))


@invert_permutation.bad_samples
def invert_permutation_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(3),), "data has dtype float32")
    yield BadSample(None, (i32(3, 1),), "wanted a vector")


# --- adv_index ------------------------------------------------------------------------------------------------------

adv_index = Op("adv_index", kind=Kind.INJECTIVE, inputs=("*inputs",), doc="Numpy's indexing with tensors: data[i, j…].")


@adv_index.infer
def infer_adv_index(attrs: None, inputs: TensorType) -> TensorType:
    data, *indices = tuple_fields("adv_index", inputs)
    if not indices or len(indices) > data.ndim:
        raise TypeMismatch(f"adv_index: {len(indices)} tensors of positions for {data.ndim} dimensions")
    for ty in indices:
        check_kind("adv_index", "a tensor of positions", ty, "integer")
    places: tuple[Dim, ...] = broadcast_shapes("adv_index", *(ty.shape for ty in indices))
    check_to_read("adv_index", data, range(len(indices)), (*places, *data.shape[len(indices) :]))
    return TensorType((*places, *data.shape[len(indices) :]), data.dtype)


@adv_index.reference
def adv_index_reference(attrs: None, inputs: Sequence[Array]) -> Array:
    data, *indices = inputs
    where = tuple(numpy_wrapped(i, data.shape[axis]) for axis, i in enumerate(indices))
    return np.asarray(data[where])


@adv_index.compute
def adv_index_compute(attrs: None, inputs: Sequence[te.Tensor]) -> te.Tensor:
    data, *indices = inputs
    sizes, shapes = te.extents(data), [te.extents(t) for t in indices]
    places = broadcast_shapes("adv_index", *shapes)

    def element(*i: Index) -> Scalar:
        head = i[: len(places)]
        where = [
            wrapped(t(*broadcast_index(shape, head)), size) for t, shape, size in zip(indices, shapes, sizes)
        ]  # one position along each of the first axes
        return data(*where, *i[len(places) :])

    return elements((*places, *sizes[len(indices) :]), element, name="adv_index", tag="injective")


@adv_index.samples
def adv_index_samples() -> Iterator[Sample]:
    yield Sample(None, ((f32(5, 4, 3), ints([[1, 4], [0, -1]]), ints([3, 0])),))
    yield Sample(None, ((f32(6, 2), ints([[5], [2]], "int64")),))


@adv_index.bad_samples
def adv_index_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, ((f32(5, 4), f32(2)),), "a tensor of positions has dtype float32")
    yield BadSample(None, ((f32(5), i32(2), i32(2)),), "2 tensors of positions for 1 dimensions")


# --- sliding_window -------------------------------------------------------------------------------------------------


@record
class SlidingWindowAttrs:
    """The first axis that the window slides over, its shape and its steps along that axis and all behind it."""

    axis: int
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]


sliding_window = Op("sliding_window", kind=Kind.INJECTIVE, doc="All windows of a shape, as further axes.")
sliding_window.attrs(SlidingWindowAttrs)


@sliding_window.infer
def infer_sliding_window(attrs: SlidingWindowAttrs, data: TensorType) -> TensorType:
    axis = axis_of("sliding_window", attrs.axis, data.ndim)
    rank, sizes = data.ndim - axis, data.shape[axis:]
    if len(attrs.window_shape) != rank or len(attrs.strides) != rank:
        raise TypeMismatch(
            f"sliding_window: window_shape {attrs.window_shape} and strides {attrs.strides}, wanted {rank} of each"
        )
    is_fit = all(w > 0 and (isinstance(size, AnyDim) or w <= size) for w, size in zip(attrs.window_shape, sizes))
    if min(attrs.strides) < 1 or not is_fit:
        raise TypeMismatch(
            f"sliding_window: windows of {attrs.window_shape} by steps of {attrs.strides} do not fit {sizes}"
        )
    counts = [
        out_dim("sliding_window", n, (0, 0), w, s, 1) for n, w, s in zip(sizes, attrs.window_shape, attrs.strides)
    ]
    return TensorType((*data.shape[:axis], *counts, *attrs.window_shape), data.dtype)


@sliding_window.reference
def sliding_window_reference(attrs: SlidingWindowAttrs, data: Array) -> Array:
    axis = attrs.axis % data.ndim
    view = np.lib.stride_tricks.sliding_window_view(data, attrs.window_shape, tuple(range(axis, data.ndim)))
    steps = (slice(None),) * axis + tuple(slice(None, None, s) for s in attrs.strides)
    return np.ascontiguousarray(view[steps])


@sliding_window.compute
def sliding_window_compute(attrs: SlidingWindowAttrs, data: te.Tensor) -> te.Tensor:
    sizes = te.extents(data)
    axis = attrs.axis % len(sizes)
    rank = len(sizes) - axis
    counts = [(size - w) // s + 1 for size, w, s in zip(sizes[axis:], attrs.window_shape, attrs.strides)]

    def element(*i: Index) -> Scalar:
        starts, inner = i[axis : axis + rank], i[axis + rank :]
        return data(*i[:axis], *(a * s + b for a, s, b in zip(starts, attrs.strides, inner)))

    return elements((*sizes[:axis], *counts, *attrs.window_shape), element, name="sliding_window", tag="injective")


@sliding_window.samples
def sliding_window_samples() -> Iterator[Sample]:
    yield Sample(SlidingWindowAttrs(1, (3, 4, 5), (1, 2, 3)), (f32(2, 3, 10, 11),))
    yield Sample(SlidingWindowAttrs(-1, (4,), (4,)), (i32(3, 17),))


@sliding_window.bad_samples
def sliding_window_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SlidingWindowAttrs(0, (3, 4), (1, 1)), (f32(2, 9),), "do not fit (2, 9)")
    yield BadSample(SlidingWindowAttrs(0, (2,), (1,)), (f32(2, 9),), "wanted 2 of each")
