"""Caches with new rows: each work-item stores four neighbours of the result, or, in place, of the new rows.

In: a function anchored at nn.cache_update (ops/decoder/cache_update.py). Out: one kernel. Invariant: new
rows outside the capacity are not written. Who reads caches: cached.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.opencl.extents import product, shape_of, unravel
from armillary.backends.opencl.gemm.tile import LANES
from armillary.backends.opencl.schedules.default import schedule_default
from armillary.backends.opencl.tiles import FLOATS
from armillary.backends.opencl.written.elements import Elements, computed_between
from armillary.backends.registry import Fused, implement
from armillary.base.extent import ceil_div, divides
from armillary.ops.decoder.cache_update import NAME, CacheUpdateAttrs
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr

ITEMS = 128  # of a group


@implement(Candidate(NAME, "cache_update", sizes="any"), family="opencl")
def cache_update(schedule: te.Schedule, fused: Fused) -> S.PrimFunc | None:
    """One kernel, also with what makes the new rows; where more is fused with the operator, loops by elements."""
    (anchor, *_), (cache, new, start) = fused.anchor, fused.anchor[0].op.input_tensors
    is_last = tuple(fused.outputs) == (anchor,) and computed_between([new], frozenset()) is not None
    is_alone = is_last and all(isinstance(t.op, te.PlaceholderOp) for t in (cache, start))
    attrs = fused.workload.attrs
    if not is_alone or not isinstance(attrs, CacheUpdateAttrs):
        schedule_default(schedule, fused)
        return None
    elements = Elements(fused)
    shape = shape_of(new if attrs.in_place else anchor)
    lanes = LANES if divides(LANES, shape[-1]) and str(anchor.dtype) in FLOATS else 1
    group, item, lane = (E.Var(name, E.INT32) for name in ("group", "item", "lane"))
    number = T.add(T.mul(group, ITEMS), item)
    batch, head, row, vector = unravel(number, (*shape[:3], ceil_div(shape[-1], lanes)))
    feature = T.add(T.mul(vector, lanes), lane)
    first, capacity = T.cast(elements.at(start, (batch,)), "int64"), T.cast(to_expr(shape_of(cache)[2]), "int64")
    wide = T.cast(row, "int64")
    if attrs.in_place:
        place = T.add(first, wide)
        value = elements.at(new, (batch, head, row, feature))
        store = elements.store(anchor, (batch, head, T.cast(place, "int32"), feature), value)
        test: E.Expr = T.all_of(T.greater_equal(place, T.const(0, "int64")), T.less(place, capacity))
    else:
        place = T.sub(wide, first)
        is_new = T.all_of(
            T.greater_equal(place, T.const(0, "int64")),
            T.less(place, T.cast(to_expr(shape_of(new)[2]), "int64")),
        )
        fresh = elements.at(new, (batch, head, T.cast(place, "int32"), feature))
        value = T.if_then_else(is_new, fresh, elements.at(cache, (batch, head, row, feature)))
        store, test = elements.store(anchor, (batch, head, row, feature), value), T.const(True, "bool")
    kind = S.LoopKind.VECTORIZED if lanes > 1 else S.LoopKind.UNROLLED
    body: S.Stmt = S.For(lane, T.const(0), T.const(lanes), kind, store)
    body = S.IfThenElse(test, body) if attrs.in_place else body
    count = product(shape[:3]) * ceil_div(shape[-1], lanes)
    if not divides(ITEMS, count):
        body = S.IfThenElse(T.less(number, to_expr(count)), body)
    inside = S.For(item, T.const(0), T.const(ITEMS), S.LoopKind.THREAD, body, "threadIdx.x")
    return elements.function(
        S.For(group, T.const(0), to_expr(ceil_div(count, ITEMS)), S.LoopKind.THREAD, inside, "blockIdx.x")
    )
