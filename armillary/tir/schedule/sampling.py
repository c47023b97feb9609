"""Numbers that a schedule draws: tile sizes, one of several values, where a block is computed.

In: a loop or a block. Out: `ExprRV`s that primitives take, or a loop. Invariant: a number is drawn once, stands in
the trace as a decision, and a trace repeats it; every draw goes through `_draw`, so that who tunes may decide instead.
Tiles are perfect: their product is the length of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import TypeVar

from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir.schedule.handles import INLINE, ROOT, BlockRV, ExprRV, LoopRV
from armillary.tir.schedule.places import BlockPrimitives
from armillary.tir.schedule.trace import primitive

_T = TypeVar("_T")
_MOST_TILES = 1 << 14


class Sampling(BlockPrimitives):
    """What is drawn at random."""

    def _draw(self, what: str, candidates: Sequence[_T], weights: Sequence[float] | None = None) -> int:
        """The number of one of the candidates."""
        del what  # names the choice where someone else decides
        return self._random.choices(range(len(candidates)), weights)[0]

    def _number(self, name: str, value: int) -> ExprRV:
        var = build.var(name)
        self.drawn[var] = build.const(value)
        return var

    @primitive
    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of some numbers, by their probabilities; `decision` is its place among them."""
        if not candidates or len(candidates) != len(probs) or any(p < 0 for p in probs) or sum(probs) <= 0:
            message = f"{len(candidates)} candidates with probabilities {list(probs)}"
            raise ScheduleError(f"sample_categorical: got {message}, wanted as many, and a sum above 0")
        place = self._draw("categorical", candidates, probs) if decision is None else build.as_int(decision)
        if place is None or not 0 <= place < len(candidates):
            raise ScheduleError(f"sample_categorical: there is no candidate {decision} of {len(candidates)}")
        self.decision = place
        return self._number("v", int(candidates[place]))

    @primitive
    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """`n` tile sizes whose product is the length of a loop, the innermost at most `max_innermost_factor`."""
        length = self._length("sample_perfect_tile", loop)
        if decision is None:
            tiles = tilings(length, n, max_innermost_factor)
            decision = tiles[self._draw(f"tile of {n}", tiles)]
        return self._tile("sample_perfect_tile", loop, n, decision)

    @primitive
    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """`n` tile sizes as above; the product of those from `partition_pos` on is a multiple of `innerpart_factor`."""
        length = self._length("sample_partitioned_tile", loop)
        if decision is None:
            whole = [t for t in tilings(length, n, length) if _product(t[partition_pos:]) % innerpart_factor == 0]
            tiles = whole or tilings(length, n, length)
            decision = tiles[self._draw(f"tile of {n}", tiles)]
        return self._tile("sample_partitioned_tile", loop, n, decision)

    def _length(self, message: str, loop: LoopRV) -> int:
        item = self._loop(message, loop)
        length = build.as_int(item.extent)
        if length is None or length < 1:
            raise ScheduleError(f"{message}: the length of {item.var.name} is {item.extent}, wanted a known one")
        return length

    def _tile(self, message: str, loop: LoopRV, n: int, decision: Sequence[int]) -> list[ExprRV]:
        sizes = [build.as_int(size) or 0 for size in decision]
        length = self._length(message, loop)
        if len(sizes) != n or _product(sizes[1:]) < 1 or length % max(_product(sizes[1:]), 1):
            raise ScheduleError(f"{message}: tiles {sizes} do not make a loop of {length}")
        sizes[0] = length // _product(sizes[1:])
        self.decision = sizes
        return [self._number(f"v{k}", size) for k, size in enumerate(sizes)]

    @primitive
    def sample_compute_location(self, block: BlockRV, decision: int | None = None) -> LoopRV:
        """A loop of the reader to compute a block at; a decision is its number, -1 for none, -2 for inline."""
        places = dict(self._places(block))
        if decision is None:
            numbers = list(places)
            decision = numbers[self._draw("location", numbers)]
        if decision not in places:
            raise ScheduleError(f"sample_compute_location: block {block.name} cannot be at {decision}: {list(places)}")
        self.decision = decision
        return places[decision]

    def _places(self, block: BlockRV) -> list[tuple[int, LoopRV]]:
        """Where a block may be computed; each place is tried on a copy."""
        places = [(-1, LoopRV(block.function, ROOT))]
        readers = self.get_consumers(block)
        loops = self.get_loops(readers[0]) if len(readers) == 1 else []
        for number, loop in [(-2, LoopRV(block.function, INLINE)), *enumerate(loops)]:
            with suppress(ScheduleError):
                self.copy().compute_at(block, loop)
                places.append((number, loop))
        return places


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def tilings(length: int, n: int, most: int) -> list[tuple[int, ...]]:
    """All ways to write a length as a product of `n` factors, the last at most `most`; thinned evenly where many."""
    if n < 1 or most < 1:
        raise ScheduleError(f"tiles: got {n} of them, the innermost at most {most}; wanted 1 or more")
    if n == 1:
        return [(length,)]
    divisors = [d for d in range(1, length + 1) if length % d == 0]
    rows: list[tuple[int, ...]] = [()]
    for k in range(n - 1):
        limit = most if k == 0 else length
        rows = [(d, *row) for row, d in product(rows, divisors) if d <= limit and length % (d * _product(row)) == 0]
        rows = rows[:: -(-len(rows) // _MOST_TILES)]
    return [(length // _product(row), *row) for row in rows]
