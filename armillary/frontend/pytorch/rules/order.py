"""ATen's sorting and searching: sort, argsort, topk, kth value, median, search in sorted rows.

In: a tensor and an axis. Out: sort, argsort, topk and what is picked from them. Invariant: positions are int64; equal
elements keep their order.
"""

from __future__ import annotations

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    axis_in,
    cast,
    dtype_of,
    is_float,
    op,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Expr, TupleGetItem


def _ordered(x: Expr, dim: int, descending: bool) -> list[Expr]:
    """Sorted values and where they were."""
    if not rank_of(x):
        return [x, scalar(0, "int64")]
    axis = axis_in(dim, rank_of(x))
    number = cast(x, "uint8") if dtype_of(x) == "bool" else x
    places = op("argsort", number, axis=axis, is_ascend=not descending, dtype="int64")
    return [op("gather", x, places, axis=axis), places]


@aten("sort")
def sort(call: AtenCall, x: Expr, dim: int, descending: bool) -> list[Expr]:
    return _ordered(x, dim, descending)


@aten("sort.stable")
def sort_stable(call: AtenCall, x: Expr, stable: bool | None, dim: int, descending: bool) -> list[Expr]:
    return _ordered(x, dim, descending)


@aten("argsort")
def argsort(call: AtenCall, x: Expr, dim: int, descending: bool) -> Expr:
    return _ordered(x, dim, descending)[1]


@aten("argsort.stable")
def argsort_stable(call: AtenCall, x: Expr, stable: bool, dim: int, descending: bool) -> Expr:
    return _ordered(x, dim, descending)[1]


@aten("msort")
def msort(call: AtenCall, x: Expr) -> Expr:
    return _ordered(x, 0, False)[0]


@aten("topk")
def topk(call: AtenCall, x: Expr, k: Value, dim: int, largest: bool, *_: object) -> list[Expr]:
    count = k if isinstance(k, int) else int(call.known(k, "k").item())
    if not rank_of(x):
        return [x, scalar(0, "int64")]
    axis = axis_in(dim, rank_of(x))
    both = op("topk", x, k=count, axis=axis, is_ascend=not largest, dtype="int64")
    return [TupleGetItem(both, 0), TupleGetItem(both, 1)]


def _picked(x: Expr, dim: int, place: int | Expr, keepdim: bool) -> list[Expr]:
    """The value at one place of the sorted axis, and where it was."""
    if not rank_of(x):
        return [x, scalar(0, "int64")]
    axis = axis_in(dim, rank_of(x))
    rows = _ordered(x, dim, False)
    if isinstance(place, int):
        rows = [op("strided_slice", v, begin=(place,), end=(place + 1,), axes=(axis,)) for v in rows]
    else:
        rows = [op("gather", v, place, axis=axis) for v in rows]
    shape = [d for k, d in enumerate(shape_of(x)) if k != axis]
    return rows if keepdim else [reshape_to(v, shape) for v in rows]


@aten("kthvalue")
def kthvalue(call: AtenCall, x: Expr, k: int, dim: int, keepdim: bool) -> list[Expr]:
    return _picked(x, dim, k - 1, keepdim)


@aten("median.dim", "nanmedian.dim")
def median_dim(call: AtenCall, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """The lower of two in the middle; where there is a NaN, the first one, or the middle of the others (nanmedian)."""
    size = shape_of(x)[axis_in(dim, rank_of(x))] if rank_of(x) else 1
    if not is_float(x) or not rank_of(x):
        return _picked(x, dim, (size - 1) // 2, keepdim)
    is_number = cast(op("logical_not", op("isnan", x)), "int64")  # NaNs are sorted behind the numbers
    count = op("sum", is_number, axis=(axis_in(dim, rank_of(x)),), keepdims=True)
    one, two, all_ = scalar(1, "int64"), scalar(2, "int64"), scalar(size, "int64")
    middle = op("floor_divide", op("maximum", op("subtract", count, one), scalar(0, "int64")), two)
    place = middle if "nanmedian" in call.name else op("where", op("less", count, all_), count, middle)
    return _picked(x, dim, place, keepdim)


@aten("median", "nanmedian")
def median(call: AtenCall, x: Expr) -> Expr:
    values: list[Expr] = median_dim(call, reshape_to(x, (-1,)), 0, False)
    return values[0]


@aten("searchsorted.Tensor")
def searchsorted(
    call: AtenCall, rows: Expr, x: Expr, out_int32: bool, right: bool, side: str | None, order: object
) -> Expr:
    if order is not None:
        call.refuse("a sorter", "sort the rows first")
    return op("searchsorted", rows, x, right=right or side == "right", dtype="int32" if out_int32 else "int64")


@aten("bucketize.Tensor")
def bucketize(call: AtenCall, x: Expr, bounds: Expr, out_int32: bool, right: bool) -> Expr:
    flat = op("searchsorted", bounds, reshape_to(x, (-1,)), right=right, dtype="int32" if out_int32 else "int64")
    return reshape_to(flat, shape_of(x))
