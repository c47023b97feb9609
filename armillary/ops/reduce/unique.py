"""unique: the different elements of a vector.

In: one vector. Out: the different elements, where each is first, which of them each element is, how many there are
(one number), and with `return_counts` how often each is. They are in order, or (not `is_sorted`) as they come first.
Invariant: results are as long as the vector, zeros behind the elements that count; NaN differs from everything.
The loops sort positions (sort.py) and walk over groups of equal elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import Index, load, loop, scratch, store
from armillary.ops._types import check_kind, f32, i32, ints
from armillary.ops.reduce._order import allocate
from armillary.ops.reduce.sort import ArgsortAttrs, argsort
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer, Stmt

NAME = "unique"


@record
class UniqueAttrs:
    """Whether the elements are in order, not as they come first; whether they are counted."""

    is_sorted: bool = True
    return_counts: bool = False


unique = Op(NAME, kind=Kind.OPAQUE, doc="The different elements of a vector, zeros behind them.")
unique.attrs(UniqueAttrs)


@unique.infer
def _infer(attrs: UniqueAttrs, data: TensorType) -> TupleType:
    check_kind(NAME, "its input", data, "numeric")
    if data.ndim != 1:
        raise TypeMismatch(f"{NAME}: got {data}, wanted a vector")
    whole = DType("int32")
    places = TensorType(data.shape, whole)
    return TupleType((data, places, places, TensorType((1,), whole), *([places] if attrs.return_counts else [])))


@unique.reference
def _reference(attrs: UniqueAttrs, data: Array) -> tuple[Array, ...]:
    _, first, group, count = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = np.arange(len(first)) if attrs.is_sorted else np.argsort(first)
    behind = (0, len(data) - len(first))
    places = [np.pad(v[order], behind).astype(np.int32) for v in (first, count)]
    distinct = np.pad(data[first[order]], behind)
    number = np.argsort(order)[group.reshape(-1)].astype(np.int32)
    return (
        distinct,
        places[0],
        number,
        np.array([len(first)], np.int32),
        *([places[1]] if attrs.return_counts else []),
    )


@unique.compute
def _compute(attrs: UniqueAttrs, data: te.Tensor) -> list[te.Tensor]:
    (size,) = te.extents(data)
    order = argsort.compute_rule(ArgsortAttrs(0, True), data)  # type: ignore[misc]  # it has one

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return _groups(attrs, size, ins, outs)

    shapes = [(size,), (size,), (size,), (1,)] + [(size,)] * attrs.return_counts
    types = [str(data.dtype), *["int32"] * (len(shapes) - 1)]
    result: list[te.Tensor] = te.extern(shapes, [data, order], body, name=NAME, dtype=types)
    return result


def _groups(attrs: UniqueAttrs, size: Known, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
    """Number the groups of equal elements in order; give them their places; write what each holds."""
    data, order = ins
    distinct, where, inverse, total = outs[:4]
    count, next_place = (scratch(name, 1, "int32", "local") for name in ("count", "next"))
    first, often, place, opens = (scratch(name, size, "int32") for name in ("first", "often", "place", "opens"))

    def walk(i: Index) -> Stmt:
        at, before = load(order, i), load(order, T.maximum(T.sub(i, 1), 0))
        differs = T.any_of(T.equal(i, 0), T.not_equal(load(data, at), load(data, before)))
        start = S.seq(
            store(first, at, load(count, 0)),
            store(often, 0, load(count, 0)),
            store(count, T.add(load(count, 0), 1), 0),
        )
        group = T.sub(load(count, 0), 1)
        join = S.seq(
            store(first, T.minimum(load(first, group), at), group),
            store(often, T.add(load(often, group), 1), group),
            store(inverse, group, at),
        )
        return S.seq(S.IfThenElse(differs, start), join)

    def put(group: Index) -> Stmt:
        to = load(place, group)
        rest = [store(outs[4], load(often, group), to)] if attrs.return_counts else []
        value = store(distinct, load(data, load(first, group)), to)
        return S.seq(value, store(where, load(first, group), to), *rest)

    def clear(i: Index) -> Stmt:
        return S.seq(store(distinct, T.const(0, data.dtype), i), *(store(out, 0, i) for out in (where, *outs[4:])))

    return allocate(
        [count, next_place, first, often, place, opens],
        store(count, 0, 0),
        loop("i", size, walk),
        _places(attrs.is_sorted, size, count, next_place, first, place, opens),
        loop("i", size, clear),
        loop("g", load(count, 0), put),
        loop("i", size, lambda i: store(inverse, load(place, load(inverse, i)), i)),
        store(total, load(count, 0), 0),
    )


def _places(in_order: bool, size: Known, count: Buffer, following: Buffer, *rest: Buffer) -> Stmt:
    """Where each group goes: to its number, or behind those that come first before it."""
    first, place, opens = rest
    if in_order:
        return loop("g", load(count, 0), lambda g: store(place, g, g))

    def number(i: Index) -> Stmt:
        take = S.seq(
            store(place, load(following, 0), T.sub(load(opens, i), 1)),
            store(following, T.add(load(following, 0), 1), 0),
        )
        return S.IfThenElse(T.greater(load(opens, i), 0), take)

    return S.seq(
        store(following, 0, 0),
        loop("i", size, lambda i: store(opens, 0, i)),
        loop("g", load(count, 0), lambda g: store(opens, T.add(g, 1), load(first, g))),
        loop("i", size, number),
    )


@unique.samples
def _samples() -> Iterator[Sample]:
    numbers = ints([3, 1, 3, 2, 1, 9, 3, 0])
    yield Sample(UniqueAttrs(), (numbers,))
    yield Sample(UniqueAttrs(False, True), (numbers.astype(np.int64),))
    yield Sample(UniqueAttrs(True, True), (np.array([0.5, -1, 0.5, np.inf, -1, 2], np.float32),))
    yield Sample(UniqueAttrs(False), (ints([7, 7, 7], "int8"),))


@unique.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(UniqueAttrs(), (i32(3, 1),), "wanted a vector")
    yield BadSample(UniqueAttrs(), (f32(),), "wanted a vector")
