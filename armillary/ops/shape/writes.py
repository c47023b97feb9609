"""Writing a part of a tensor: strided_set, matrix_set_diag, sparse_to_dense, collapse_sum_to, nn.dilate.

In: data and what is written over it. Out: the data with that part replaced (or, for the sums, the axes that were
broadcast added up). Invariant: each element of the result is one formula of its index, but for sparse_to_dense, whose
positions are data. Semantics: Relay's operators of these names. By computed positions: scatter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from armillary.base.extent import LARGEST, Extent, Known, bounds, ceil_div, evaluate, least, most
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import S, T, by_name, te
from armillary.ops._loops import load, loop, nest_apart, rows, store
from armillary.ops._types import (
    Index,
    check_broadcasts_to,
    check_kind,
    check_same_dtype,
    check_to_read,
    elements,
    f32,
    i32,
    int_list,
    ints,
)
from armillary.ops.nn._windows import same_dim, type_of, wide
from armillary.ops.shape.indexing import numpy_wrapped, wrapped
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import AnyDim, Dim, TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt


# --- strided_set ----------------------------------------------------------------------------------------------------


@record
class StridedSetAttrs:
    """One begin, end and stride an axis, as in a Python slice; axes behind the last one are taken whole."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] = (1,)


strided_set = Op("strided_set", kind=Kind.INJECTIVE, inputs=("data", "v"), doc="data[begin:end:strides] = v.")
strided_set.attrs(StridedSetAttrs)


@record
class _Positions:
    """Which positions of an axis are written: so many from the lowest on, a step apart, in this or the other order."""

    low: Known
    count: Known
    step: int
    is_reversed: bool
    is_whole: bool


def _positions(where: range, size: int) -> _Positions:
    """Those of a slice of an axis whose size is known."""
    return _Positions(min(where, default=0), len(where), abs(where.step), where.step < 0, where == range(size))


def _open_positions(begin: int, end: int, stride: int, size: Extent) -> _Positions:
    """Those of a slice of an axis whose size is a name."""
    if stride < 0:
        raise UnsupportedError(f"strided_set: an axis of {size} is written backwards", hint="fix that size: shape=")
    first, behind = (least(size, at) if at >= 0 else most(size + at, 0) for at in (begin, end))
    count = most(ceil_div(behind - first, stride), 0)
    return _Positions(first, count, stride, False, (first, count) == (0, size))


def _slices(attrs: StridedSetAttrs, shape: Sequence[Dim]) -> list[_Positions]:
    """The positions that are written, along every axis."""
    begin, end, strides = (int_list(v) for v in (attrs.begin, attrs.end, attrs.strides))
    strides = strides if len(strides) > 1 else strides * len(begin)
    if not len(begin) == len(end) == len(strides) <= len(shape) or 0 in strides:
        raise TypeMismatch(f"strided_set: begin {begin}, end {end} and strides {strides} do not fit shape {shape}")
    result = []
    for n, size in enumerate(shape):
        b, e, s = (begin[n], end[n], strides[n]) if n < len(begin) else (0, LARGEST, 1)
        if isinstance(size, Extent):
            result.append(_open_positions(b, e, s, size))
        else:
            known = cast("int", size)
            result.append(_positions(range(*slice(b, e, s).indices(known)), known))
    return result


@strided_set.infer
def infer_strided_set(attrs: StridedSetAttrs, data: TensorType, v: TensorType) -> TensorType:
    check_same_dtype("strided_set", (data, v))
    wanted = tuple(where.count for where in _slices(attrs, data.known))
    if v.ndim != len(wanted) or not all(map(same_dim, v.shape, wanted)):
        raise TypeMismatch(f"strided_set: v has shape {v.shape}, the slice {wanted}")
    return data


@strided_set.reference
def strided_set_reference(attrs: StridedSetAttrs, data: Array, v: Array) -> Array:
    result = np.array(data)
    places = []
    for where in _slices(attrs, data.shape):
        ascending = evaluate(where.low, {}) + where.step * np.arange(evaluate(where.count, {}))
        places.append(ascending[::-1] if where.is_reversed else ascending)
    result[np.ix_(*places)] = v
    return result


@strided_set.compute
def strided_set_compute(attrs: StridedSetAttrs, data: te.Tensor, v: te.Tensor) -> te.Tensor:
    shape = te.extents(data)
    places = _slices(attrs, shape)

    def element(*i: Index) -> Scalar:
        inside, at = T.const(True, "bool"), []
        for index, where in zip(i, places):
            offset = index - where.low
            place = T.floordiv(offset, where.step) if where.step > 1 else offset
            at.append(where.count - 1 - place if where.is_reversed else place)
            if not where.is_whole:
                inside = T.logical_and(inside, T.greater_equal(offset, 0))
                inside = T.logical_and(inside, T.less(place, where.count))
                if where.step > 1:
                    inside = T.logical_and(inside, T.equal(T.floormod(offset, where.step), 0))
        return T.if_then_else(inside, v(*at), data(*i)) if all(w.count != 0 for w in places) else data(*i)

    return elements(shape, element, name="strided_set", tag="injective")


@strided_set.samples
def strided_set_samples() -> Iterator[Sample]:
    yield Sample(StridedSetAttrs((0, 1), (4, 4), (2, 1)), (f32(5, 6), f32(2, 3)))
    yield Sample(StridedSetAttrs((-1, 0), (0, 9), (-2, 3)), (f32(6, 7, 2), f32(3, 3, 2)))
    yield Sample(StridedSetAttrs((1,), (3,)), (i32(4, 3), i32(2, 3)))
    yield Sample(StridedSetAttrs((3,), (3,)), (i32(4), i32(0)))


@strided_set.bad_samples
def strided_set_bad_samples() -> Iterator[BadSample]:
    yield BadSample(StridedSetAttrs((0,), (2,)), (f32(4), f32(3)), "the slice (2,)")
    yield BadSample(StridedSetAttrs((0,), (2,), (0,)), (f32(4), f32(2)), "do not fit shape (4,)")


# --- matrix_set_diag ------------------------------------------------------------------------------------------------


@record
class MatrixSetDiagAttrs:
    """The diagonals k1 to k2 (above 0: right of the main one); which short ones of the upper and the lower start at
    the left of a row of `diagonal`."""

    k1: int = 0
    k2: int = 0
    super_diag_right_align: bool = True
    sub_diag_right_align: bool = False


matrix_set_diag = Op(
    "matrix_set_diag", kind=Kind.INJECTIVE, inputs=("data", "diagonal"), doc="Matrices with some diagonals replaced."
)
matrix_set_diag.attrs(MatrixSetDiagAttrs)


def _longest(attrs: MatrixSetDiagAttrs, height: Known, width: Known) -> Known:
    return most(0, least(height + min(attrs.k2, 0), width - max(attrs.k1, 0)))


@matrix_set_diag.infer
def infer_matrix_set_diag(attrs: MatrixSetDiagAttrs, data: TensorType, diagonal: TensorType) -> TensorType:
    check_same_dtype("matrix_set_diag", (data, diagonal))
    if data.ndim < 2:
        raise TypeMismatch(f"matrix_set_diag: got {data}, wanted matrices")
    *batch, height, width = data.known
    low, high = -bounds(height)[1], bounds(width)[1]
    if not low < attrs.k1 <= attrs.k2 < high:
        raise TypeMismatch(f"matrix_set_diag: diagonals {attrs.k1} to {attrs.k2} of matrices of {height}x{width}")
    count = (attrs.k2 - attrs.k1 + 1,) if attrs.k1 != attrs.k2 else ()
    wanted = (*batch, *count, _longest(attrs, height, width))
    if diagonal.ndim != len(wanted) or not all(map(same_dim, diagonal.shape, wanted)):
        raise TypeMismatch(f"matrix_set_diag: diagonal has shape {diagonal.shape}, wanted {wanted}")
    return data


@matrix_set_diag.reference
def matrix_set_diag_reference(attrs: MatrixSetDiagAttrs, data: Array, diagonal: Array) -> Array:
    result, (height, width) = np.array(data), data.shape[-2:]
    longest = _longest(attrs, height, width)
    lines = diagonal if attrs.k1 != attrs.k2 else diagonal[..., None, :]
    for k in range(attrs.k1, attrs.k2 + 1):
        i = np.arange(max(0, -k), min(height, width - k))
        right = attrs.super_diag_right_align if k >= 0 else attrs.sub_diag_right_align
        start = longest - len(i) if right else 0
        result[..., i, i + k] = lines[..., attrs.k2 - k, start : start + len(i)]
    return result


@matrix_set_diag.compute
def matrix_set_diag_compute(attrs: MatrixSetDiagAttrs, data: te.Tensor, diagonal: te.Tensor) -> te.Tensor:
    shape = te.extents(data)
    height, width = shape[-2:]
    longest = _longest(attrs, height, width)

    def element(*i: Index) -> Scalar:
        row, column = i[-2:]
        k = column - row
        first = T.minimum(row, column)
        length = T.minimum(height + T.minimum(k, 0), width - T.maximum(k, 0))
        missing = longest - length
        above = missing if attrs.super_diag_right_align else T.const(0)
        below = missing if attrs.sub_diag_right_align else T.const(0)
        at = first + T.select(T.greater_equal(k, 0), above, below)
        line = (attrs.k2 - k,) if attrs.k1 != attrs.k2 else ()
        inside = T.logical_and(T.greater_equal(k, attrs.k1), T.less_equal(k, attrs.k2))
        return T.if_then_else(inside, diagonal(*i[:-2], *line, at), data(*i))

    return elements(shape, element, name="matrix_set_diag", tag="injective")


@matrix_set_diag.samples
def matrix_set_diag_samples() -> Iterator[Sample]:
    yield Sample(MatrixSetDiagAttrs(), (f32(2, 3, 4), f32(2, 3)))
    yield Sample(MatrixSetDiagAttrs(-1, 2), (f32(4, 5), f32(4, 4)))
    yield Sample(MatrixSetDiagAttrs(-1, 1, False, True), (f32(2, 4, 3), f32(2, 3, 3)))
    yield Sample(MatrixSetDiagAttrs(2, 2), (i32(4, 5), i32(3)))


@matrix_set_diag.bad_samples
def matrix_set_diag_bad_samples() -> Iterator[BadSample]:
    yield BadSample(MatrixSetDiagAttrs(), (f32(3, 4), f32(4)), "wanted (3,)")
    yield BadSample(MatrixSetDiagAttrs(2, 1), (f32(3, 4), f32(3)), "diagonals 2 to 1")


# --- sparse_to_dense ------------------------------------------------------------------------------------------------


@record
class SparseToDenseAttrs:
    """The shape of the result."""

    output_shape: tuple[int, ...]


_SPARSE = ("sparse_indices", "sparse_values", "default_value")
sparse_to_dense = Op(
    "sparse_to_dense", kind=Kind.OPAQUE, inputs=_SPARSE, doc="Values at positions, a number elsewhere."
)
sparse_to_dense.attrs(SparseToDenseAttrs)


@sparse_to_dense.infer
def infer_sparse_to_dense(attrs: SparseToDenseAttrs, where: Type, values: Type, default: Type) -> TensorType:
    places, numbers, rest = (ty for ty in (where, values, default) if isinstance(ty, TensorType))
    check_kind("sparse_to_dense", "sparse_indices", places, "integer")
    check_same_dtype("sparse_to_dense", (numbers, rest))
    rank = len(attrs.output_shape)
    if places.ndim > 2 or rest.ndim or rank != (places.static[1] if places.ndim == 2 else 1):
        raise TypeMismatch(f"sparse_to_dense: positions {places} and default {rest} for {rank} axes")
    if numbers.ndim > 1 or (numbers.ndim and numbers.shape != (places.shape[:1] or (1,))):
        raise TypeMismatch(f"sparse_to_dense: values {numbers} for positions {places}")
    dense = TensorType(attrs.output_shape, numbers.dtype)
    check_to_read("sparse_to_dense", dense, range(rank), places.shape)
    return dense


def _columns(where: Array, rank: int) -> Array:
    return where.reshape(-1, rank)


@sparse_to_dense.reference
def sparse_to_dense_reference(attrs: SparseToDenseAttrs, where: Array, values: Array, default: Array) -> Array:
    result = np.full(attrs.output_shape, default, values.dtype)
    for n, place in enumerate(_columns(where, len(attrs.output_shape))):
        at = tuple(numpy_wrapped(p, size) for p, size in zip(place, attrs.output_shape))
        result[at] = values.reshape(-1)[n] if values.ndim else values
    return result


@sparse_to_dense.compute
def sparse_to_dense_compute(
    attrs: SparseToDenseAttrs, where: te.Tensor, values: te.Tensor, default: te.Tensor
) -> te.Tensor:
    shape, places = attrs.output_shape, te.static_shape(where)
    count = places[0] if places else 1

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def one(i: Sequence[Scalar]) -> Stmt:
            head = i if places else ()
            at = [wrapped(load(ins[0], *head, *((k,) if len(places) == 2 else ())), n) for k, n in enumerate(shape)]
            return store(outs[0], load(ins[1], *(i if ins[1].shape else ())), *at)

        fill = rows(shape[:-1], lambda i: nest_apart(shape[-1:], lambda j: store(outs[0], load(ins[2]), *i, *j)))
        return S.seq(fill, nest_serial(count, one))

    result: te.Tensor = te.extern([shape], [where, values, default], body, name="sparse_to_dense", dtype=[values.dtype])
    return result


def nest_serial(count: int, one: Callable[[Sequence[Scalar]], Stmt]) -> Stmt:
    """One position after another: the last one of equal ones stays."""
    return loop("n", count, lambda n: one([n]))


@sparse_to_dense.samples
def sparse_to_dense_samples() -> Iterator[Sample]:
    zero = np.float32(0)
    yield Sample(SparseToDenseAttrs((5, 2)), (ints([[0, 0], [3, 1]]), f32(2), zero))
    yield Sample(SparseToDenseAttrs((7,)), (ints([1, 4, 4], "int64"), f32(3), np.float32(-1)))
    yield Sample(SparseToDenseAttrs((4,)), (ints(2), i32(), np.int32(9)))


@sparse_to_dense.bad_samples
def sparse_to_dense_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SparseToDenseAttrs((5,)), (i32(3, 2), f32(3), f32()), "for 1 axes")
    yield BadSample(SparseToDenseAttrs((5,)), (i32(3), f32(2), f32()), "for positions")


# --- collapse_sum_to, collapse_sum_like -----------------------------------------------------------------------------


@record
class CollapseSumAttrs:
    """The shape of the result, which broadcasts to the data's."""

    shape: tuple[int, ...]


collapse_sum_to = Op("collapse_sum_to", kind=Kind.REDUCE, doc="Sums over the axes along which a shape would broadcast.")
collapse_sum_to.attrs(CollapseSumAttrs)
collapse_sum_like = Op(
    "collapse_sum_like", kind=Kind.REDUCE, inputs=("data", "collapse_type"), doc="collapse_sum_to another's shape."
)


def _collapsed(shape: Sequence[Dim], to: Sequence[Dim]) -> tuple[int, ...]:
    lead = len(shape) - len(to)
    return (*range(lead), *(lead + n for n, size in enumerate(to) if size == 1 and shape[lead + n] != 1))


def _infer_collapse(name: str, data: TensorType, to: Sequence[int]) -> TensorType:
    check_kind(name, "data", data, "numeric")
    check_broadcasts_to(name, tuple(to), data.shape)
    return TensorType(tuple(to), data.dtype)


def _collapse(data: Expr, shape: Sequence[Dim], to: Sequence[Known]) -> Expr:
    axes = _collapsed(shape, to)
    summed = by_name("sum")(data, axis=axes, keepdims=True) if axes else data
    return by_name("reshape")(summed, newshape=tuple(to), allowzero=True)


def _numpy_collapse(data: Array, to: Sequence[int]) -> Array:
    terms = wide(data)
    summed = np.sum(terms, axis=_collapsed(data.shape, to), keepdims=True, dtype=terms.dtype)
    return np.asarray(summed).reshape(to).astype(data.dtype)


@collapse_sum_to.infer
def infer_collapse_sum_to(attrs: CollapseSumAttrs, data: TensorType) -> TensorType:
    return _infer_collapse("collapse_sum_to", data, int_list(attrs.shape))


@collapse_sum_to.reference
def collapse_sum_to_reference(attrs: CollapseSumAttrs, data: Array) -> Array:
    return _numpy_collapse(data, int_list(attrs.shape))


@collapse_sum_to.decompose
def collapse_sum_to_rule(attrs: CollapseSumAttrs, data: Expr) -> Expr:
    return _collapse(data, type_of(data).shape, int_list(attrs.shape))


@collapse_sum_like.infer
def infer_collapse_sum_like(attrs: None, data: TensorType, like: TensorType) -> TensorType:
    if all(isinstance(d, int) for d in (*data.shape, *like.shape)):
        return _infer_collapse("collapse_sum_like", data, like.static)
    check_kind("collapse_sum_like", "data", data, "numeric")
    return TensorType(like.shape, data.dtype)


@collapse_sum_like.reference
def collapse_sum_like_reference(attrs: None, data: Array, like: Array) -> Array:
    return _numpy_collapse(data, like.shape)


@collapse_sum_like.decompose
def collapse_sum_like_rule(attrs: None, data: Expr, like: Expr) -> Expr:
    return _collapse(data, type_of(data).shape, type_of(like).known)


def _to_known_shape(call: Call) -> Expr | None:
    """collapse_sum_like(x, y)  ->  collapse_sum_to(x, shape of y)   if that is known"""
    data, like = call.args
    ty = like.checked_type
    if not isinstance(ty, TensorType) or not all(isinstance(d, int) for d in ty.shape):
        return None
    result: Expr = collapse_sum_to(data, shape=ty.static)
    return result


collapse_sum_like.simplify(_to_known_shape)


@collapse_sum_to.samples
def collapse_sum_to_samples() -> Iterator[Sample]:
    yield Sample(CollapseSumAttrs((3, 1)), (f32(2, 3, 4),))
    yield Sample(CollapseSumAttrs(()), (i32(2, 3),))
    yield Sample(CollapseSumAttrs((2, 3)), (f32(2, 3),))


@collapse_sum_like.samples
def collapse_sum_like_samples() -> Iterator[Sample]:
    yield Sample(None, (f32(2, 3, 4), f32(1, 4)))


@collapse_sum_to.bad_samples
def collapse_sum_to_bad_samples() -> Iterator[BadSample]:
    yield BadSample(CollapseSumAttrs((2,)), (f32(2, 3),), "do not broadcast")


# --- nn.dilate ------------------------------------------------------------------------------------------------------


@record
class DilateAttrs:
    """One stride an axis, and what stands between the elements."""

    strides: tuple[int, ...]
    dilation_value: float = 0.0


dilate = Op("nn.dilate", kind=Kind.INJECTIVE, doc="A number between neighbouring elements.")
dilate.attrs(DilateAttrs)


@dilate.infer
def infer_dilate(attrs: DilateAttrs, data: TensorType) -> TensorType:
    if len(attrs.strides) != data.ndim or min(attrs.strides, default=1) < 1:
        raise TypeMismatch(f"nn.dilate: strides {attrs.strides} for {data}, wanted one of at least 1 an axis")
    return TensorType(tuple(map(_spread, data.shape, attrs.strides)), data.dtype)


def _spread(size: Dim, stride: int) -> Dim:
    if isinstance(size, AnyDim):
        return (size - 1) * stride + 1
    return (size - 1) * stride + 1 if size else 0


@dilate.reference
def dilate_reference(attrs: DilateAttrs, data: Array) -> Array:
    shape = [(size - 1) * s + 1 if size else 0 for size, s in zip(data.shape, attrs.strides, strict=True)]
    result = np.full(shape, attrs.dilation_value, data.dtype)
    result[tuple(slice(None, None, s) for s in attrs.strides)] = data
    return result


@dilate.compute
def dilate_compute(attrs: DilateAttrs, data: te.Tensor) -> te.Tensor:
    def element(*i: Index) -> Scalar:
        inside = T.const(True, "bool")
        for index, s in zip(i, attrs.strides):
            if s > 1:
                inside = T.logical_and(inside, T.equal(T.floormod(index, s), 0))
        value = data(*(T.floordiv(index, s) if s > 1 else index for index, s in zip(i, attrs.strides)))
        return T.if_then_else(inside, value, T.const(attrs.dilation_value, data.dtype))

    return elements(tuple(map(_spread, te.extents(data), attrs.strides)), element, name="dilate", tag="injective")


@dilate.samples
def dilate_samples() -> Iterator[Sample]:
    yield Sample(DilateAttrs((1, 2, 3)), (f32(2, 3, 4),))
    yield Sample(DilateAttrs((2,), -3.0), (i32(5),))


@dilate.bad_samples
def dilate_bad_samples() -> Iterator[BadSample]:
    yield BadSample(DilateAttrs((1, 0)), (f32(2, 3),), "wanted one of at least 1 an axis")
