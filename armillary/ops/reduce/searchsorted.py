"""searchsorted: where values would be put into sorted rows.

In: rows that are sorted along their last axis (or one row for all values), and values. Out: for each value how many
elements of its row are less (`right`: not greater). Invariant: the rows are trusted to be sorted; the count is the
place in any case. Decomposed: one comparison of all with all, added up.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, need_dtype, need_tensor, same_dim, type_of
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "searchsorted"


@record
class SearchSortedAttrs:
    right: bool = False
    dtype: str = "int32"


searchsorted = Op(
    NAME, kind=Kind.OPAQUE, inputs=("sorted_sequence", "values"), doc="Where values would be put into sorted rows."
)
searchsorted.attrs(SearchSortedAttrs)


@searchsorted.infer
def _infer(attrs: SearchSortedAttrs, rows: Type, values: Type) -> TensorType:
    row, value = need_tensor(NAME, rows, "sorted_sequence"), need_tensor(NAME, values, "values")
    need_dtype(NAME, row, value)
    fits = row.ndim == 1 or (row.ndim == value.ndim and all(map(same_dim, row.shape[:-1], value.shape[:-1])))
    if not row.ndim or not value.ndim or not fits:
        raise TypeMismatch(f"{NAME}: rows {row} do not fit values {value}", hint="all axes but the last are the same")
    if attrs.dtype not in ("int32", "int64"):
        raise TypeMismatch(f"{NAME}: dtype is {attrs.dtype!r}, wanted int32 or int64")
    return TensorType(value.shape, DType(attrs.dtype))


@searchsorted.reference
def _reference(attrs: SearchSortedAttrs, rows: Array, values: Array) -> Array:
    compared = rows[..., None, :] <= values[..., None] if attrs.right else rows[..., None, :] < values[..., None]
    return np.asarray(compared.sum(-1)).astype(attrs.dtype)


@searchsorted.decompose
def _decompose(attrs: SearchSortedAttrs, rows: Expr, values: Expr) -> Expr:
    ndim = type_of(rows).ndim
    pair = call("expand_dims", rows, axis=ndim - 1), call("expand_dims", values, axis=type_of(values).ndim)
    below = call("less_equal" if attrs.right else "less", *pair)
    return call("sum", call("cast", below, dtype=attrs.dtype), axis=(-1,))


@searchsorted.samples
def _samples() -> Iterator[Sample]:
    rows, values = np.array([0, 1, 1, 3], np.float32), np.array([[1, 2], [-1, 5]], np.float32)
    yield Sample(SearchSortedAttrs(), (rows, values))
    yield Sample(SearchSortedAttrs(right=True, dtype="int64"), (np.stack([rows, rows + 1]), values))


@searchsorted.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(SearchSortedAttrs(), (np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)), "do not fit")
    yield BadSample(SearchSortedAttrs(dtype="int8"), (np.zeros(3, np.float32), np.zeros(3, np.float32)), "dtype is")
