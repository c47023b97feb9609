"""Products of rows in parts of bfloat16 with weights that are expanded for them, by matrix tiles (AMX).

In: rows as cpu.bfloat16_parts lays them out (row_parts.py), tile by tile; a function that writes the weights of some
terms of sixteen units as bfloat16, in as many parts. Out: statements for all rows and units. Threads share spans of
units. In a span a slice of the terms goes past all its pairs of sixteens: their weights are expanded, which fills the
first cache, and multiplied by all rows, whose slice stays in the second one; sums wait in scratch for the next slice.
Invariant: no weight is expanded beyond the slice and the pair that a thread computes. Users: operator_tiles.py,
operator_narrow_tiles.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from armillary.backends.cpu.gemm.low_bit.operator import asked_for
from armillary.base.record import record
from armillary.ops._deferred import S, T
from armillary.ops._loops import load, loop, scratch, store
from armillary.target import Target
from armillary.target.cpu import cpu_model

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

LANES, DEEP = 16, 32  # rows and columns of a tile, terms of one
# Pairs of parts of the data and the weight that are multiplied, the smallest first, by how many each side has: what is
# left out is below the last part.
PRODUCTS = {
    (1, 1): ((0, 0),),
    (2, 1): ((1, 0), (0, 0)),
    (2, 2): ((0, 1), (0, 0), (1, 0)),
    (3, 1): ((2, 0), (1, 0), (0, 0)),
    (3, 2): ((2, 0), (1, 1), (1, 0), (0, 0), (0, 1)),
}
_NEAR = 32768  # bytes of expanded weights: of the first cache
_SHORTEST = 128  # terms of a slice, else all terms are one: sums would be moved more than multiplied
_SPAN, _TASKS = 8, 16  # pairs of sixteens that share a slice of the rows at most; spans that there are at least
Expand: TypeAlias = "Callable[[Buffer, Scalar, Scalar, Scalar], Stmt]"


def has_tiles(target: Target) -> bool:
    """Whether code for a target has tiles of bfloat16."""
    return target.kind.name == "llvm" and cpu_model(target).has_bfloat16_tiles


@record
class PanelSizes:
    """Of a product: rows and units of the result, terms, parts of the data and of the weight.

    `step`: terms that are expanded together.
    """

    rows: int
    units: int
    inner: int
    parts: tuple[int, int]
    step: int

    @property
    def outer(self) -> int:
        """Sixteens of units."""
        return -(-self.units // LANES)

    @property
    def slice(self) -> int:
        """Terms whose expanded weights of 32 units are near."""
        most, unit = _NEAR // (2 * 2 * LANES * self.parts[1]), max(DEEP, self.step)
        fitting = (n for n in range(most // unit * unit, 0, -unit) if self.inner % n == 0)
        best = next(fitting, self.inner)
        return best if best >= _SHORTEST else self.inner

    @property
    def is_whole(self) -> bool:
        """Whether tiles of sums are stored where the result is."""
        return self.rows % LANES == 0 and self.units % LANES == 0

    @property
    def span(self) -> int:
        """Pairs of sixteens of a task."""
        return max(1, min(_SPAN, self.outer // 2 // _TASKS))


@record
class _Place:
    """A slice from the term `first` on, of the pair of a span that begins with a sixteen of units.

    `is_first`: sums begin here; `is_out`: they end here, and are stored where the result is.
    """

    sums: Buffer
    columns: int
    pair: Scalar
    sixteen: Scalar
    first: Scalar
    is_first: bool
    is_out: bool


class TilePanels:
    """Statements for all rows and units. `expand(into, sixteen, column, first)` writes `sizes.step` terms.

    `into` has, for each part of the weight and each of two columns, a slice of terms, two of a unit side by side;
    `place_of` says where.
    """

    def __init__(self, sizes: PanelSizes, data: Buffer, out: Buffer) -> None:
        self.sizes, self.data, self.out = sizes, data, out
        self.tiles = -(-sizes.rows // LANES)

    def place_of(self, part: int, column: Scalar, term: Scalar) -> Scalar:
        """The first lane of a pair of terms, counted in a slice, in expanded weights."""
        line = T.add(T.mul(column, T.const(self.sizes.slice // 2)), T.const(part * self.sizes.slice))
        return T.mul(T.add(line, T.floordiv(term, T.const(2))), T.const(LANES))

    def statement(self, expand: Expand) -> Stmt:
        """Spans of units, in parallel; the last ones may be shorter."""
        pairs, span = self.sizes.outer // 2, self.sizes.span
        full, rest = divmod(pairs, span)

        def task(t: Scalar) -> Stmt:
            return self._span(expand, T.mul(t, T.const(2 * span)), span, 2)

        steps = [loop("span", full, task, S.LoopKind.PARALLEL)] if full else []
        steps += [self._span(expand, T.const(full * span * 2), rest, 2)] if rest else []
        steps += [self._span(expand, T.const(2 * pairs), 1, 1)] if self.sizes.outer % 2 else []
        return S.seq(*steps)

    def _span(self, expand: Expand, sixteen: Scalar, pairs: int, columns: int) -> Stmt:
        """All slices of the terms, for some pairs of sixteens or the last sixteen alone."""
        size = self.sizes
        expanded = scratch("expanded", size.parts[1] * 2 * size.slice // 2 * LANES, "uint32")
        sums = scratch("sums", pairs * self.tiles * LANES * columns * LANES, "float32")

        count = size.inner // size.slice

        def slice_(n: Scalar, is_first: bool, is_last: bool) -> Stmt:
            first = T.mul(n, T.const(size.slice))

            def pair(p: Scalar) -> Stmt:
                at = T.add(sixteen, T.mul(p, T.const(2)))
                place = _Place(sums, columns, p, at, first, is_first, is_last and size.is_whole)
                steps = [self._expanded(expand, expanded, at, column, first) for column in range(columns)]
                steps += self._rows(expanded, place)
                if is_last and not size.is_whole:
                    steps.append(loop("r", size.rows, lambda r: self._stored(place, r)))
                return S.seq(*steps)

            return loop("pair", pairs, pair)

        steps = [slice_(T.const(0), True, count == 1)]
        if count > 2:
            steps.append(loop("slice", count - 2, lambda n: slice_(T.add(n, T.const(1)), False, False)))
        steps += [slice_(T.const(count - 1), False, True)] if count > 1 else []
        return S.Allocate(expanded, S.Allocate(sums, S.seq(*steps)))

    def _expanded(self, expand: Expand, into: Buffer, sixteen: Scalar, column: int, first: Scalar) -> Stmt:
        at = T.add(sixteen, T.const(column))

        def step(s: Scalar) -> Stmt:
            return expand(into, at, T.const(column), T.add(first, T.mul(s, T.const(self.sizes.step))))

        return loop("step", self.sizes.slice // self.sizes.step, step)

    def _rows(self, expanded: Buffer, place: _Place) -> Iterator[Stmt]:
        """A slice of all rows, two tiles of them at a time."""
        if self.tiles > 1:
            yield loop("rows", self.tiles // 2, lambda t: self._tiles(expanded, place, T.mul(t, T.const(2)), 2))
        if self.tiles % 2:
            yield self._tiles(expanded, place, T.const(self.tiles - 1), 1)

    def _tiles(self, expanded: Buffer, place: _Place, tile: Scalar, count: int) -> Stmt:
        """One or two tiles of rows: tiles 0 to 3 are sums, 4 and 5 of rows, 6 and 7 of weights."""
        columns = place.columns
        line = T.mul(T.add(T.mul(place.pair, T.const(self.tiles)), tile), T.const(LANES * columns * LANES))

        def moved(name: str, is_out: bool) -> Iterator[Stmt]:
            for i in range(count):
                for j in range(columns):
                    at = load(place.sums, T.add(line, T.const((i * LANES * columns + j) * LANES)))
                    if is_out:
                        row = T.mul(T.add(tile, T.const(i)), T.const(LANES))
                        at = load(self.out, row, T.mul(T.add(place.sixteen, T.const(j)), T.const(LANES)))
                    stride = self.sizes.units if is_out else columns * LANES
                    yield effect(name, i * columns + j, at, stride * 4, LANES)

        zeros = (effect("tile_zero", t, LANES) for t in range(count * columns))
        deep = T.floordiv(place.first, T.const(DEEP))
        step = loop(
            "step",
            self.sizes.slice // DEEP,
            lambda s: S.seq(*self._step(expanded, columns, tile, count, T.add(deep, s), s)),
        )
        begun = zeros if place.is_first else moved("tile_load", False)
        return S.seq(*begun, step, *moved("tile_store", place.is_out))

    def _step(
        self, expanded: Buffer, columns: int, tile: Scalar, count: int, deep: Scalar, step: Scalar
    ) -> Iterator[Stmt]:
        held: tuple[int | None, int | None] = None, None
        for left, right in PRODUCTS[self.sizes.parts]:
            for i in range(count if held[0] != left else 0):
                at = load(self.data, left, T.add(tile, T.const(i)), deep, 0, 0)
                yield effect("tile_load", 4 + i, at, DEEP * 2, LANES)
            for j in range(columns if held[1] != right else 0):
                at = load(expanded, self.place_of(right, T.const(j), T.mul(step, T.const(DEEP))))
                yield effect("tile_load", 6 + j, at, LANES * 4, LANES)
            for i in range(count):
                for j in range(columns):
                    yield effect("tile_dot_bf16", i * columns + j, 4 + i, 6 + j)
            held = left, right

    def _stored(self, place: _Place, r: Scalar) -> Stmt:
        """A row of sums, without units behind the last one."""
        units, columns = self.sizes.units, place.columns
        line = T.mul(T.add(T.mul(place.pair, T.const(self.tiles * LANES)), r), T.const(columns * LANES))

        def column(j: int) -> Stmt:
            first = T.mul(T.add(place.sixteen, T.const(j)), T.const(LANES))
            at = T.add(line, T.const(j * LANES))

            def one(n: Scalar) -> Stmt:
                return store(self.out, load(place.sums, T.add(at, n)), r, T.add(first, n))

            whole = loop("n", LANES, one, S.LoopKind.VECTORIZED)
            if units % LANES == 0:
                return whole
            few = loop("n", units % LANES, one)
            return S.IfThenElse(T.less_equal(first, T.const(units - LANES)), whole, few)

        return S.seq(*(column(j) for j in range(columns)))


def effect(name: str, *args: object) -> Stmt:
    """A call for what it does."""
    return S.Evaluate(T.call(name, *args, dtype="int32"))  # type: ignore[arg-type]


def requests(weight: Buffer, sixteen: Scalar, first: Scalar, count: int, each: int = 1) -> Iterator[Stmt]:
    """Prefetch of the weights of the next pair what is read of this one, `each` a line; there may be no next one."""
    for line in range(0, count, each):
        yield asked_for(weight, T.add(sixteen, T.const(2)), T.add(first, T.const(line)))
