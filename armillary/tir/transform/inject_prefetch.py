"""`inject-prefetch`: requests for regions become requests for cache lines.

In: `prefetch(first, last)` of two elements of one row: everything between them is asked for. Out: a loop of
`prefetch(element, 0, 3, 1)`, one per cache line of LINE_BYTES (0: to read, 3: keep in every cache, unless the request
has another locality as its third argument, 1: data). Emitters
make the processor's prefetch instruction of it. Invariant: results stay; an address outside the buffer is allowed, as
the processor ignores it. At most MAX_LINES lines are asked for: more would only drive out what is in use.
"""

from __future__ import annotations

from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body

LINE_BYTES = 64
MAX_LINES = 64


def inject_prefetch(func: S.PrimFunc) -> S.PrimFunc:
    """Ask line by line.

    eval prefetch:int32(A[n], A[n + 31])
    ->
    for line in range(2) { eval prefetch:int32(A[n + line * 16], 0, 3, 1) }
    """

    def visit(item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.Evaluate) and isinstance(item.value, E.Call) and item.value.name == "prefetch":
            return _lines(item, item.value)
        return map_stmt(item, lambda e: e, visit)

    return with_body(func, visit(func.body))


def _lines(item: S.Stmt, call: E.Call) -> S.Stmt:
    if len(call.args) > 3:
        return item
    loads = [a for a in call.args if isinstance(a, E.BufferLoad)]
    locality = build.as_int(call.args[-1]) if len(call.args) > len(loads) else build.EVERY_CACHE
    if not loads or locality is None:
        return item
    first, last = loads[0], loads[-1]
    if not first.indices:
        return _request(first, locality)
    low, high = first.indices[-1], last.indices[-1]
    per_line = max(1, LINE_BYTES // first.buffer.dtype.bytes)
    span = build.as_int(Simplifier()(build.sub(high, low)))
    count = 1 if span is None or span <= 0 else -(-(span + 1) // per_line)
    if count == 1:
        return _request(first, locality)
    var = E.Var("line", low.dtype)
    element = E.BufferLoad(first.buffer, (*first.indices[:-1], build.add(low, build.mul(var, per_line))))
    lines = build.const(min(count, MAX_LINES), low.dtype)
    return S.For(var, build.const(0, low.dtype), lines, S.LoopKind.SERIAL, _request(element, locality))


def _request(load: E.BufferLoad, locality: int) -> S.Stmt:
    return S.Evaluate(E.Call(E.INT32, "prefetch", (load, *(build.int32(k) for k in (0, locality, 1)))))


InjectPrefetch = prim_pass("inject-prefetch", "tir.InjectPrefetch")(inject_prefetch)
