"""The statement that asks for a region of a tensor before it is needed.

In: reads of the region's first and of its last element, and how near to bring it. Out: loops over the region's rows,
each asking for the run of elements from its first to its last: `prefetch(A[row, first], A[row, last])`, with the
locality as a third argument unless it is 3, every cache. Invariant: nothing is read; the pass `inject-prefetch` turns
each run into cache lines. A row count that is not constant asks for the first row only.
"""

from __future__ import annotations

from armillary.tir import build as T
from armillary.tir.expr import INT32, BufferLoad, Call, Expr, Var
from armillary.tir.simplify import Simplifier
from armillary.tir.stmt import Evaluate, For, LoopKind, Stmt


def request_region(first: Expr, last: Expr, locality: int) -> Stmt:
    """Ask for everything between two elements of one buffer."""
    assert isinstance(first, BufferLoad) and isinstance(last, BufferLoad), "prefetch reads a tensor in memory"
    lows: list[Expr] = list(first.indices)
    loops: list[tuple[Var, int]] = []
    for place, (low, high) in enumerate(zip(first.indices[:-1], last.indices[:-1], strict=True)):
        span = T.as_int(Simplifier()(T.sub(high, low)))
        if span:
            row = Var(f"row{place}", low.dtype)
            loops.append((row, abs(span) + 1))
            lows[place] = T.add(low if span > 0 else high, row)
    ends = _ordered(lows[-1], last.indices[-1]) if lows else ((), ())
    rows = tuple(lows[:-1])
    run = [BufferLoad(first.buffer, (*rows, *end)) for end in ends]
    asked = () if locality == T.EVERY_CACHE else (T.const(locality, "int32"),)
    body: Stmt = Evaluate(Call(INT32, "prefetch", (*run, *asked)))
    for var, extent in reversed(loops):
        body = For(var, T.const(0, var.dtype), T.const(extent, var.dtype), LoopKind.SERIAL, body)
    return body


def _ordered(low: Expr, high: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    span = T.as_int(Simplifier()(T.sub(high, low)))
    return ((high,), (low,)) if span is not None and span < 0 else ((low,), (high,))
