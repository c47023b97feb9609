"""nn.cache_update: a cache of keys or values with new rows written from a position on, one position for each sequence.

In: cache (batch, heads, capacity, features); new (batch, heads, rows, features); start (batch,), integers. Out: the
cache with new row t of sequence b at start[b] + t. Invariant: rows outside the capacity are not written. `in_place`:
the result is the memory of the cache (driver/program_codegen.py), and the kernel writes the new rows alone; what the
operator means does not change. Readers: cached_attention.py. Import: TensorScatter, GroupQueryAttention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.record import record
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, nest_apart, rows, store
from armillary.ops._types import check_kind
from armillary.ops.nn._windows import Tensor, f32, need_dtype, need_rank, need_shape, need_tensor, tensor
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "nn.cache_update"


@record
class CacheUpdateAttrs:
    """`in_place`: the result lies where the cache does."""

    in_place: bool = False


cache_update = Op(
    NAME, kind=Kind.OPAQUE, inputs=("cache", "new", "start"), doc="A cache with new rows from a position on."
)
cache_update.attrs(CacheUpdateAttrs)
state(NAME, Fact.READS_NARROW)


@cache_update.infer
def _infer(attrs: CacheUpdateAttrs, cache: Type, new: Type, start: Type) -> TensorType:
    held, rows_ = need_rank(NAME, cache, 4, "cache"), need_rank(NAME, new, 4, "new")
    need_dtype(NAME, held, rows_)
    need_shape(NAME, "new", rows_, (held.shape[0], held.shape[1], rows_.shape[2], held.shape[3]))
    check_starts(NAME, start, held)
    return held


def check_starts(op: str, start: Type, data: TensorType, what: str = "start") -> None:
    """Refuse positions that are not one integer for each sequence of `data`."""
    places = need_tensor(op, start, what)
    check_kind(op, what, places, "integer")
    need_shape(op, what, places, (data.shape[0],))


@cache_update.reference
def _reference(attrs: CacheUpdateAttrs, cache: Array, new: Array, start: Array) -> Array:
    result, capacity = np.array(cache), cache.shape[2]
    for b, first in enumerate(int(s) for s in start):
        for t in range(new.shape[2]):
            if 0 <= first + t < capacity:
                result[b, :, first + t] = new[b, :, t]
    return result


@cache_update.compute
def _compute(attrs: CacheUpdateAttrs, cache: Tensor, new: Tensor, start: Tensor) -> Tensor:
    shape = batch, heads, capacity, features = te.extents(cache)
    count = te.extents(new)[2]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        held, fresh, starts = ins

        def copied(at: list[Scalar]) -> Stmt:
            return nest_apart((features,), lambda d: store(outs[0], load(held, *at, *d), *at, *d))

        def written(at: list[Scalar]) -> Stmt:
            b, h, t = at
            place = T.add(T.cast(load(starts, b), "int64"), T.cast(t, "int64"))
            inside = T.all_of(
                T.greater_equal(place, T.const(0, "int64")), T.less(place, T.cast(T.convert(capacity), "int64"))
            )
            row = T.cast(place, "int32")
            put = nest_apart((features,), lambda d: store(outs[0], load(fresh, *at, *d), b, h, row, *d))
            return S.IfThenElse(inside, put)

        update = rows((batch, heads, count), written)
        return update if attrs.in_place else S.seq(rows((batch, heads, capacity), copied), update)

    result: Tensor = te.extern([shape], [cache, new, start], body, name="cache_update", dtype=[cache.dtype])
    return result


@cache_update.samples
def _samples() -> Iterator[Sample]:
    yield Sample(CacheUpdateAttrs(), (f32(2, 3, 9, 8), f32(2, 3, 2, 8), np.array([3, 0], np.int32)))
    yield Sample(CacheUpdateAttrs(), (f32(3, 1, 5, 19), f32(3, 1, 2, 19), np.array([4, -1, 7], np.int64)))
    halves = tensor("float16", 1, 2, 6, 16), tensor("float16", 1, 2, 1, 16)
    yield Sample(CacheUpdateAttrs(), (*halves, np.array([5], np.int32)))


@cache_update.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    start = tensor("int32", 2)
    yield BadSample(CacheUpdateAttrs(), (f32(2, 3, 9, 8), f32(2, 4, 2, 8), start), "new has shape")
    yield BadSample(CacheUpdateAttrs(), (f32(2, 3, 9, 8), f32(2, 3, 2, 8), tensor("int32", 3)), "start has shape")
    yield BadSample(CacheUpdateAttrs(), (f32(2, 3, 9, 8), f32(2, 3, 2, 8), f32(2)), "wanted integer")
