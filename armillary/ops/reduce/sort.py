"""Order: argsort, sort, topk.

In: one tensor, an axis. Out: positions and values in order. Invariant: sorting is stable (of equal values the earlier
comes first, ascending or descending), NaN counts as the largest value, and every row costs n log n; a topk of few
elements costs one pass that keeps the best so far, one of more a threshold, a pass that collects what reaches it, and a
sort of k elements. The loops are those of _order.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import LANES, load, loop, rows, scratch, store
from armillary.ops._types import Index, axis_of, check_holds, check_kind, elements, f32, i32, ints, of_type, unravelled
from armillary.ops.reduce._order import (
    Collector,
    Pairs,
    allocate,
    fill_keys,
    key_dtype,
    key_of,
    kth_largest,
    let,
    lowest_behind,
    lowest_key,
    pairs_of,
    select_largest,
    sort_pairs,
    sorted_size,
)
from armillary.ops.reduce._order_across import keep_best
from armillary.ops.reduce.open_order import ordered_places
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows
from armillary.relay.types import Dim, TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.expr import Var
    from armillary.tir.stmt import Buffer, Stmt

SMALL_K = 16  # up to this k of a short row, keeping the best k in order beats finding a threshold
SHORT = 128  # elements of such a row, at most
ACROSS = 16  # of short rows that are as many as a vector has lanes, up to so many are found for all of them together
_BLOCKS = (16, 32, 64, 128, 256)  # lengths of blocks
_BLOCKS_FOR_EACH = 2  # blocks for each of the k values, at least: else they lie in most blocks
_COUNT, _LOOK = 2.6, 4.0  # cycles: to count one maximum for every bit, to look at one element of a block

At: TypeAlias = "Callable[[te.Expr], list[te.Expr]]"  # position along the axis -> index


def _tensor(name: str, data: Type, axis: int) -> tuple[TensorType, int]:
    if not isinstance(data, TensorType):
        raise TypeMismatch(f"{name}: got {data}, wanted a tensor")
    check_kind(name, "its input", data, "numeric")
    if data.ndim == 0:
        raise TypeMismatch(f"{name}: a scalar has no axis to sort along")
    return data, axis_of(name, axis, data.ndim)


def numpy_argsort(data: Array, axis: int, ascending: bool) -> Array:
    """The stable order."""
    if ascending:
        return np.argsort(data, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
    return np.asarray(data.shape[axis] - 1 - np.flip(backwards, axis))


def _before(a: Scalar, b: Scalar, ascending: bool) -> Scalar:
    """Whether value a must come before value b (false for equal ones)."""
    low, high = (a, b) if ascending else (b, a)
    smaller = T.less(low, high)
    if not a.dtype.is_float:
        return smaller
    return T.logical_or(smaller, T.logical_and(T.not_equal(high, high), T.equal(low, low)))


def _keep_best(data: Buffer, best: Buffer, size: int, k: int, at: At, ascending: bool) -> Stmt:
    """Fill best[:k] with the positions of the k first values in order, by insertion."""
    open_place = scratch("place", 1, "int32", "local")

    def one(i: Scalar) -> Stmt:
        def shift(step: Scalar) -> Stmt:
            slot = T.sub(k - 1, step)  # from the last slot down to slot 1
            previous = load(best, T.sub(slot, 1))
            filled = T.less_equal(slot, i)
            moves = T.logical_and(filled, T.greater_equal(load(open_place, 0), slot))
            goes = T.if_then_else(moves, _before(load(data, *at(i)), load(data, *at(previous)), ascending), False)
            return S.IfThenElse(goes, S.seq(store(best, previous, slot), store(open_place, T.sub(slot, 1), 0)))

        last = load(data, *at(load(best, k - 1)))
        enters = T.if_then_else(T.less(i, k), True, _before(load(data, *at(i)), last, ascending))
        insert = S.seq(
            store(open_place, T.minimum(i, k - 1), 0), loop("step", k - 1, shift), store(best, i, load(open_place, 0))
        )
        return S.IfThenElse(enters, insert)

    return S.Allocate(open_place, loop("i", size, one))


def _block_length(size: int, k: int) -> int:
    """Elements of the blocks whose maxima give a first threshold; 1 where there would be too few blocks.

    Maxima are counted for every bit, and the blocks that reach the threshold, k or few more, are looked through.
    """
    lengths = [n for n in _BLOCKS if -(-size // n) >= _BLOCKS_FOR_EACH * k]
    return min(lengths, key=lambda n: _COUNT * size / n + _LOOK * k * n, default=1)


def _row_keys(data: te.Tensor, axis: int, block: int, ascending: bool) -> te.Tensor:
    """The largest key of each block along an axis."""
    shape = te.static_shape(data)
    size, lowest = shape[axis], lowest_key(key_dtype(data.dtype))
    inside = te.reduce_axis((0, block), name="inside")

    def element(*i: Index) -> te.Expr:
        place = i[axis] * block + inside
        key = key_of(data(*i[:axis], T.minimum(place, size - 1) if size % block else place, *i[axis + 1 :]), ascending)
        return te.max(T.select(place < size, key, lowest) if size % block else key, axis=inside)

    return elements((*shape[:axis], -(-size // block), *shape[axis + 1 :]), element, name="block_keys")


def _best_of_blocks(
    row: Callable[[Scalar], Scalar], maximum: Callable[[Scalar], Scalar], size: int, block: int, k: int, best: Pairs
) -> Stmt:
    """The k first keys of a row, of which `maximum` gives the largest of each block, with their places."""
    blocks, dtype = -(-size // block), str(best.keys.dtype)
    maxima, reached = scratch("maxima", blocks + LANES, dtype), scratch("reached", 2, dtype, "local")
    pool = pairs_of("pool", (k - 1) * block + k + LANES, dtype)

    def look(low: Var) -> Stmt:
        taken = Collector(pool, low, k)

        def block_of(b: Var) -> Stmt:
            def one(n: Var) -> Stmt:
                place = T.add(T.mul(b, block), n)
                offer = taken.offer(row(place), place)
                return S.IfThenElse(T.less(place, size), offer) if size % block else offer

            return S.IfThenElse(T.greater_equal(load(maxima, b), low), loop("n", block, one))

        count = load(taken.count, 0)
        best_of_pool = select_largest(pool.keys, lambda i: load(pool.places, i), count, k, best)
        return taken.around(loop("b", blocks, block_of), lowest_behind(pool.keys, count), best_of_pool)

    steps = fill_keys(maxima, maximum, blocks), kth_largest(maxima, blocks, k, reached), let(load(reached, 0), look)
    return allocate([maxima, reached, pool.keys, pool.places], *steps)


def _first_pairs(
    row: Callable[[Scalar], Scalar], maximum: AnyFunction, size: int, block: int, k: int, best: Pairs
) -> Stmt:
    """The pairs of the k first values of a row, in the order of the row."""
    if k == size:
        return loop("i", size, lambda i: S.seq(store(best.keys, row(i), i), store(best.places, i, i)))
    if block > 1:
        return _best_of_blocks(row, maximum, size, block, k, best)
    keys = scratch("keys", size + LANES, str(best.keys.dtype))
    return allocate([keys], fill_keys(keys, row, size), select_largest(keys, lambda i: i, size, k, best))


def _emit(
    data: Buffer, outs: list[Buffer], wanted: str, at: At, k: Known, place_of: Callable[[Scalar], Scalar]
) -> Stmt:
    """The values at k places, the places, or both."""

    def one(j: Scalar) -> Stmt:
        def values(place: Scalar) -> Stmt:
            sources = {"values": load(data, *at(place)), "indices": place}
            chosen = sources.values() if wanted == "both" else (sources[wanted],)
            return S.seq(*(store(out, value, *at(j)) for out, value in zip(outs, chosen, strict=True)))

        return let(place_of(j), values)

    return loop("j", T.convert(k), one)


def _ordered_across(
    data: te.Tensor, axis: int, k: int, ascending: bool, dtypes: list[str], wanted: str, name: str
) -> Any:  # Any: as below
    """`ordered` for short rows: LANES of them side by side, from keys that lie so; the last ones may be done twice."""
    shape = te.static_shape(data)
    size, before, behind = shape[axis], shape[:axis], shape[axis + 1 :]
    groups, width = (before, behind) if math.prod(behind) >= LANES else ((), (*before, *behind))
    count, lanes = math.prod(groups), math.prod(width)

    def at_row(group: Index, lane: Index, position: Index) -> list[Index]:
        index = [*unravelled(group, groups), *unravelled(lane, width)]
        return [*index[:axis], position, *index[axis:]]

    keys = elements(
        (count, size, lanes), lambda g, p, n: key_of(data(*at_row(g, n, p)), ascending), name="keys", tag="injective"
    )

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def block(i: list[Scalar]) -> Stmt:
            places = scratch("found", k * LANES, "int32")
            start = T.minimum(T.mul(i[1], LANES), lanes - LANES)
            best = keep_best(lambda p, n: load(ins[1], i[0], p, T.add(start, n)), size, k, str(keys.dtype), places)

            def row(n: Scalar) -> Stmt:
                def at(position: te.Expr) -> list[te.Expr]:
                    return at_row(i[0], T.add(start, n), position)

                return _emit(ins[0], outs, wanted, at, k, lambda j: load(places, T.add(T.mul(j, LANES), n)))

            return allocate([places], best, loop("n", LANES, row))

        return rows([count, -(-lanes // LANES)], block)

    result = (*before, k, *behind)
    return te.extern([result] * len(dtypes), [data, keys], body, name=name, dtype=dtypes)


def ordered(
    data: te.Tensor,
    axis: int,
    k: Known,
    ascending: bool,
    index_dtype: str,
    wanted: str,
    name: str,
    by_lanes: bool = True,
) -> Any:  # Any: a tensor, or a list of them
    """The first k values ("values"), positions ("indices") or "both", in order along the axis; `by_lanes`: many short
    rows side by side in vectors, in code that is k * k long."""
    value_dtype = [str(data.dtype)] if wanted != "indices" else []
    dtypes = value_dtype + ([index_dtype] if wanted != "values" else [])
    if not isinstance(k, int) or not all(isinstance(n, int) for n in te.extents(data)):
        return _ordered_open(data, axis, k, ascending, dtypes, wanted, name)
    shape = te.static_shape(data)
    size, result = shape[axis], (*shape[:axis], k, *shape[axis + 1 :])
    is_few = 0 < k <= SMALL_K and k < size <= SHORT
    is_many = math.prod(shape) >= LANES * size and key_dtype(data.dtype) == "int32"
    if by_lanes and is_many and 0 < k <= ACROSS and size <= SHORT:
        across: list[te.Tensor] = _ordered_across(data, axis, k, ascending, dtypes, wanted, name)
        return across
    block = 1 if is_few or k in (0, size) else _block_length(size, k)
    inputs = [data] if block == 1 else [data, _row_keys(data, axis, block, ascending)]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(i: list[Scalar]) -> Stmt:
            def at(position: te.Expr) -> list[te.Expr]:
                return [*i[:axis], position, *i[axis:]]

            def emit(source: Buffer) -> Stmt:
                return _emit(ins[0], outs, wanted, at, k, lambda j: load(source, j))

            if is_few:
                order = scratch("order", k, "int32")
                return allocate([order], _keep_best(ins[0], order, size, k, at, ascending), emit(order))
            room = max(k + 1, sorted_size(k))
            best, spare = (pairs_of(name, room, key_dtype(data.dtype)) for name in ("best", "spare"))
            results = _first_pairs(
                lambda p: key_of(load(ins[0], *at(p)), ascending), lambda b: load(ins[-1], *at(b)), size, block, k, best
            )
            in_order, where = sort_pairs(best, spare, k)
            scratches = [best.keys, best.places, spare.keys, spare.places]
            return allocate(scratches, results, in_order, emit(where.places))

        return rows([*shape[:axis], *shape[axis + 1 :]], row)

    results: list[te.Tensor] = te.extern([result] * len(dtypes), inputs, body, name=name, dtype=dtypes)
    return results


def _ordered_open(
    data: te.Tensor, axis: int, k: Known, ascending: bool, dtypes: list[str], wanted: str, name: str
) -> list[te.Tensor]:
    """`ordered` where sizes are known when the kernel runs: whole rows are sorted, by merges."""
    shape = te.extents(data)
    result = (*shape[:axis], k, *shape[axis + 1 :])

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(i: list[Scalar]) -> Stmt:
            def at(position: te.Expr) -> list[te.Expr]:
                return [*i[:axis], position, *i[axis:]]

            def emit(where: Pairs) -> Stmt:
                return _emit(ins[0], outs, wanted, at, k, lambda j: load(where.places, j))

            dtype = key_dtype(data.dtype)
            return ordered_places(lambda p: key_of(load(ins[0], *at(p)), ascending), shape[axis], dtype, emit)

        return rows([*shape[:axis], *shape[axis + 1 :]], row)

    results: list[te.Tensor] = te.extern([result] * len(dtypes), [data], body, name=name, dtype=dtypes)
    return results


# --- argsort, sort ------------------------------------------------------------------------------------------------


@record
class ArgsortAttrs:
    """The axis, the direction and the dtype of the positions."""

    axis: int = -1
    is_ascend: bool = True
    dtype: str = "int32"


argsort = Op("argsort", kind=Kind.OPAQUE, doc="The positions that sort an axis; stable.")
argsort.attrs(ArgsortAttrs)


@argsort.infer
def infer_argsort(attrs: ArgsortAttrs, data: Type) -> TensorType:
    ty, axis = _tensor("argsort", data, attrs.axis)
    check_holds("argsort", attrs.dtype, _last(ty.shape[axis]))
    return TensorType(ty.shape, DType(attrs.dtype))


@argsort.reference
def argsort_reference(attrs: ArgsortAttrs, data: Array) -> Array:
    return numpy_argsort(data, attrs.axis, bool(attrs.is_ascend)).astype(DType(attrs.dtype).numpy)


@argsort.compute
def argsort_compute(attrs: ArgsortAttrs, data: te.Tensor, by_lanes: bool = True) -> te.Tensor:
    shape = te.extents(data)
    axis = attrs.axis % len(shape)
    ascending = bool(attrs.is_ascend)
    result: te.Tensor = ordered(data, axis, shape[axis], ascending, attrs.dtype, "indices", "argsort", by_lanes)
    return result


_TIES = ints([[3, 1, 3, 2, 1, 1, 0], [5, 5, 4, 4, 5, 6, 6]])


@argsort.samples
def argsort_samples() -> Iterator[Sample]:
    yield Sample(ArgsortAttrs(), (np.tile(_TIES, (20, 1)),))
    yield Sample(ArgsortAttrs(0, False), (f32(16, 40),))
    yield Sample(ArgsortAttrs(), (f32(3, 5),))
    yield Sample(ArgsortAttrs(0, False, "int64"), (f32(4, 3),))
    yield Sample(ArgsortAttrs(), (_TIES,))
    yield Sample(ArgsortAttrs(-1, False), (_TIES,))
    yield Sample(ArgsortAttrs(0), (np.array([1.0, np.nan, -1.0, np.nan, 0.5], np.float32),))


@argsort.bad_samples
def argsort_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ArgsortAttrs(2), (f32(2, 3),), "axis 2 is out of range")
    yield BadSample(ArgsortAttrs(), (of_type("bool", 2),), "wanted numeric")
    yield BadSample(ArgsortAttrs(), (f32(),), "no axis to sort along")


@record
class SortAttrs:
    """The axis and the direction."""

    axis: int = -1
    is_ascend: bool = True


sort = Op("sort", kind=Kind.OPAQUE, doc="The values of an axis in order.")
sort.attrs(SortAttrs)


@sort.infer
def infer_sort(attrs: SortAttrs, data: Type) -> TensorType:
    return _tensor("sort", data, attrs.axis)[0]


@sort.reference
def sort_reference(attrs: SortAttrs, data: Array) -> Array:
    return np.take_along_axis(data, numpy_argsort(data, attrs.axis, bool(attrs.is_ascend)), attrs.axis)


@sort.compute
def sort_compute(attrs: SortAttrs, data: te.Tensor, by_lanes: bool = True) -> te.Tensor:
    shape = te.extents(data)
    axis = attrs.axis % len(shape)
    result: te.Tensor = ordered(data, axis, shape[axis], bool(attrs.is_ascend), "int32", "values", "sort", by_lanes)
    return result


@sort.samples
def sort_samples() -> Iterator[Sample]:
    yield Sample(SortAttrs(), (f32(3, 8),))
    yield Sample(SortAttrs(0, False), (i32(5, 2),))


@sort.bad_samples
def sort_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SortAttrs(2), (f32(2, 3),), "axis 2 is out of range")


# --- topk ---------------------------------------------------------------------------------------------------------


@record
class TopkAttrs:
    """The k first values (k < 1: all) along the axis; ret_type both, values or indices."""

    k: int = 1
    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: str = "int32"


topk = Op("topk", kind=Kind.OPAQUE, doc="The k largest (is_ascend: smallest) values and their positions, in order.")
topk.attrs(TopkAttrs)


def _top_shape(attrs: TopkAttrs, shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    size = shape[axis]
    if attrs.ret_type not in ("both", "values", "indices"):
        raise TypeMismatch(f"topk: ret_type {attrs.ret_type!r}, wanted both, values or indices")
    if isinstance(size, int) and attrs.k > size:
        raise TypeMismatch(f"topk: k is {attrs.k}, but axis {axis} has {size} elements")
    return (*shape[:axis], attrs.k if attrs.k >= 1 else size, *shape[axis + 1 :])


def _last(size: Dim) -> Dim:
    """The last position of an axis."""
    return max(size - 1, 0) if isinstance(size, int) else size


@topk.infer
def infer_topk(attrs: TopkAttrs, data: Type) -> Type:
    ty, axis = _tensor("topk", data, attrs.axis)
    shape = _top_shape(attrs, ty.shape, axis)
    check_holds("topk", attrs.dtype, _last(ty.shape[axis]))
    values, indices = TensorType(shape, ty.dtype), TensorType(shape, DType(attrs.dtype))
    return {"both": TupleType((values, indices)), "values": values, "indices": indices}[attrs.ret_type]


@topk.reference
def topk_reference(attrs: TopkAttrs, data: Array) -> Any:
    axis = attrs.axis % data.ndim
    count = _top_shape(attrs, data.shape, axis)[axis]
    order = np.take(numpy_argsort(data, axis, bool(attrs.is_ascend)), range(int(str(count))), axis=axis)
    values, indices = np.take_along_axis(data, order, axis), order.astype(DType(attrs.dtype).numpy)
    return {"both": (values, indices), "values": values, "indices": indices}[attrs.ret_type]


@topk.compute
def topk_compute(attrs: TopkAttrs, data: te.Tensor, by_lanes: bool = True) -> list[te.Tensor]:
    shape = te.extents(data)
    axis = attrs.axis % len(shape)
    count, ascending = attrs.k if attrs.k >= 1 else shape[axis], bool(attrs.is_ascend)
    result: list[te.Tensor] = ordered(data, axis, count, ascending, attrs.dtype, attrs.ret_type, "topk", by_lanes)
    return result


@topk.samples
def topk_samples() -> Iterator[Sample]:
    yield Sample(TopkAttrs(3), (f32(2, 7),))
    yield Sample(TopkAttrs(2, 0, "values", True), (f32(5, 3),))
    yield Sample(TopkAttrs(3, 1, "indices", False, "int64"), (_TIES,))
    yield Sample(TopkAttrs(0), (i32(2, 4),))
    yield Sample(TopkAttrs(5), (f32(2, 40),))
    yield Sample(TopkAttrs(16, is_ascend=True), (np.tile(_TIES, (1, 4)),))
    yield Sample(TopkAttrs(1), (f32(3, 20),))
    yield Sample(TopkAttrs(17), (f32(2, 300),))
    yield Sample(TopkAttrs(20, 0, "indices", True, "int64"), (np.tile(_TIES.T, (37, 1)),))
    yield Sample(TopkAttrs(7), (np.tile(_TIES, (20, 1)),))
    yield Sample(TopkAttrs(1, 1), (f32(5, 1, 8),))
    yield Sample(TopkAttrs(13, 1, is_ascend=True), (f32(2, 30, 19),))


@topk.bad_samples
def topk_bad_samples() -> Iterator[BadSample]:
    yield BadSample(TopkAttrs(4), (f32(2, 3),), "but axis 1 has 3 elements")
    yield BadSample(TopkAttrs(1, ret_type="x"), (f32(2, 3),), "wanted both, values or indices")


state("argsort", Fact.FLAT, Fact.ORDER_ONLY)
state("topk", follows=Follows.TOPK)
