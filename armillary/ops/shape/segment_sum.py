"""segment_sum: sums of the rows of a tensor that have the same number.

In: data (rows, …), the numbers of the first of its rows, how many segments there are. Out: (segments, …). Invariant:
the number of segments is an attribute where the numbers are not constant; what a number out of range would add to is
checked as for scatter_nd.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.extent import note_at_most
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._types import f32, ints
from armillary.ops.nn._windows import call, need_rank, need_tensor, reshape_to, type_of
from armillary.ops.shape.indexing import numpy_wrapped
from armillary.relay.expr import Constant, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import ANY_DIM, AnyDim, TensorType, Type

NAME = "segment_sum"


@record
class SegmentSumAttrs:
    num_segments: int | None = None


segment_sum = Op(NAME, kind=Kind.OPAQUE, inputs=("data", "segment_ids"), doc="Sums of the rows of each segment.")
segment_sum.attrs(SegmentSumAttrs)


@segment_sum.infer
def _infer(attrs: SegmentSumAttrs, data: Type, segment_ids: Type) -> TensorType:
    x, ids = need_tensor(NAME, data), need_rank(NAME, segment_ids, 1, "segment_ids")
    if not x.shape or not ids.dtype.is_int:
        raise TypeMismatch(f"{NAME}: data {x} with numbers {ids}, wanted rows and integers")
    rows, count = x.shape[0], ids.shape[0]
    note_at_most(count, rows)
    if not isinstance(rows, AnyDim) and not isinstance(count, AnyDim) and count > rows:
        raise TypeMismatch(f"{NAME}: {count} numbers for {rows} rows")
    return TensorType((ANY_DIM if attrs.num_segments is None else attrs.num_segments, *x.shape[1:]), x.dtype)


@segment_sum.reference
def _reference(attrs: SegmentSumAttrs, data: Array, segment_ids: Array) -> Array:
    count = int(segment_ids.max(initial=-1)) + 1 if attrs.num_segments is None else attrs.num_segments
    out = np.zeros((count, *data.shape[1:]), data.dtype)
    if count:
        np.add.at(out, numpy_wrapped(segment_ids, count), data[: len(segment_ids)])
    return out


@segment_sum.decompose
def _decompose(attrs: SegmentSumAttrs, data: Expr, segment_ids: Expr) -> Expr:
    ty, (count,), number = type_of(data), type_of(segment_ids).known, attrs.num_segments
    if number is None and isinstance(segment_ids, Constant):
        number = int(segment_ids.data.max(initial=-1)) + 1
    if number is None:
        raise UnsupportedError(f"{NAME}: the size of the result would be a value", hint="give num_segments")
    rows = data
    if count != ty.known[0]:
        rows = call("strided_slice", data, begin=(0,), end=(count,), strides=(1,), axes=(0,))
    start = call("zeros", shape=(number, *ty.known[1:]), dtype=str(ty.dtype))
    return call("scatter_nd", start, reshape_to(segment_ids, (1, count)), rows, mode="add")


@segment_sum.samples
def _samples() -> Iterator[Sample]:
    yield Sample(SegmentSumAttrs(4), (f32(6, 3), ints([0, 0, 1, 3, 3, 1])))
    yield Sample(SegmentSumAttrs(7), (f32(6, 2, 2), ints([0, 5, 1, 5])))


@segment_sum.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(SegmentSumAttrs(4), (f32(2, 3), ints([0, 0, 1])), "3 numbers for 2 rows")
    yield BadSample(SegmentSumAttrs(4), (f32(2, 3), f32(2)), "wanted rows and integers")
