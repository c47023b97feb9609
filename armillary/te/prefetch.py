"""The statement that asks for a region of a tensor before it is needed.

In: a `Request`, reads of the region's first and of its last element, and, where tiles share the request, which of them
this is. Out: loops over the region's rows, each asking for the run of elements from its first to its last:
`prefetch(A[row, first], A[row, last])`, with the locality as a third argument unless it is 3, every cache. Invariant:
nothing is read; the pass `inject-prefetch` turns each run into cache lines. A row count that is not constant asks for
the first row only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import INT32, BufferLoad, Call, Expr, IterVar, Var
from armillary.tir.simplify import Simplifier
from armillary.tir.stmt import Evaluate, For, LoopKind, Stmt

MAX_UNROLLED_ROWS = 32  # that are asked for one after another, without a loop


@dataclass(frozen=True, slots=True)
class Sharer:
    """Tiles that share a request: `count` of them follow one another along an axis, `step` elements apart."""

    axis: IterVar
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class Term:
    """`by * floor((sum + shift) / parts)` elements, of a sum of axes times integers.

    An axis is a data axis of the stage, or the loop that asks.
    """

    of: tuple[tuple[IterVar, int], ...]
    by: int
    parts: int = 1
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """How many elements further on an iteration asks: the sum of the terms."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a loop asks for: the data of `tensor` it needs `offset` iterations later; see `Stage.prefetch`."""

    tensor: Tensor
    offset: int
    locality: int = T.EVERY_CACHE
    shared: tuple[Sharer, ...] = ()
    spread: Spread | None = None

    @property
    def tiles(self) -> int:
        """How many share it."""
        return math.prod(sharer.count for sharer in self.shared)


def request_region(first: Expr, last: Expr, request: Request, tile: Expr | None = None) -> Stmt:
    """Ask for everything between two elements of one buffer, or for the share of it that is this tile's.

    Of a shared region, tile k of n asks for rows k * m to k * m + m - 1, m being the n-th part rounded up; counting
    goes on at the first row after the last.
    """
    assert isinstance(first, BufferLoad) and isinstance(last, BufferLoad), "prefetch reads a tensor in memory"
    lows: list[Expr] = list(first.indices)
    spans: list[tuple[int, int]] = []  # dimensions with several rows, and how many
    for place, (low, high) in enumerate(zip(first.indices[:-1], last.indices[:-1], strict=True)):
        span = T.as_int(Simplifier()(T.sub(high, low)))
        if span:
            spans.append((place, abs(span) + 1))
            lows[place] = low if span > 0 else high
    ends = _ordered(lows[-1], last.indices[-1]) if lows else ((), ())
    rows = math.prod(count for _, count in spans)
    if tile is None:
        loops = [(Var(f"row{place}", lows[place].dtype), count) for place, count in spans]
        for (place, _), (var, _) in zip(spans, loops, strict=True):
            lows[place] = T.add(lows[place], var)
    else:
        part = -(-rows // request.tiles)
        loops = [(Var("row", tile.dtype), part)]
        row = T.floormod(T.add(T.mul(tile, part), loops[0][0]), rows)
        for place, count in reversed(spans):
            lows[place] = T.add(lows[place], T.cast(T.floormod(row, count), lows[place].dtype))
            row = T.floordiv(row, count)
    run = [BufferLoad(first.buffer, (*lows[:-1], *end)) for end in ends]
    asked = () if request.locality == T.EVERY_CACHE else (T.const(request.locality, "int32"),)
    body: Stmt = Evaluate(Call(INT32, "prefetch", (*run, *asked)))
    kind = LoopKind.UNROLLED if math.prod(count for _, count in loops) <= MAX_UNROLLED_ROWS else LoopKind.SERIAL
    for var, extent in reversed(loops):
        body = For(var, T.const(0, var.dtype), T.const(extent, var.dtype), kind, body)
    return body


def request_further(first: Expr, elements: Expr, request: Request) -> Stmt:
    """Ask for the element so many behind another along the last dimension, perhaps in a row further on."""
    assert isinstance(first, BufferLoad), "prefetch reads a tensor in memory"
    asked = BufferLoad(first.buffer, (*first.indices[:-1], T.add(first.indices[-1], elements)))
    return request_region(asked, asked, request)


def _ordered(low: Expr, high: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    span = T.as_int(Simplifier()(T.sub(high, low)))
    return ((high,), (low,)) if span is not None and span < 0 else ((low,), (high,))
