"""Products of matrices in stages: interleave the left side, transpose the right side once, multiply block by block.

In: a (rows, terms), b (terms, columns), row by row. Out: a * b in whole blocks. Invariant: the sums of a block stay
in registers over all terms; rows and columns that fill a last block are copies or zeros, which nobody reads.
Tiles: 8x12 and 4x16, as the text names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.functions.stages.stage import Body, Stage
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

_FOUR = 4
_TERMS = 8  # of a step, whose numbers of a row two vectors load: an eighth fewer instructions on AArch64


@record(slots=True)
class Tile:
    """A block of sums: rows of the left side by columns of the right side."""

    rows: int
    columns: int

    def vectors(self) -> Iterator[tuple[int, int]]:
        """First column and lanes of each vector: 16 lanes, or fours, which every machine has registers for."""
        lanes = self.columns if self.columns & (self.columns - 1) == 0 else _FOUR
        return ((first, lanes) for first in range(0, self.columns, lanes))

    def whole(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns filled up to whole blocks."""
        return -(-rows // self.rows) * self.rows, -(-columns // self.columns) * self.columns


TILES = (Tile(8, 12), Tile(4, 16))


def best_tile(rows: int, columns: int) -> Tile:
    """The tile that fills up least; of two that are equal the larger one, which loads less for each product."""
    return min(TILES, key=lambda tile: tile.whole(rows, columns)[0] * tile.whole(rows, columns)[1])


@once
def interleave(tile: Tile) -> Stage:
    """Rows in blocks, term by term: iteration n writes block n."""

    def emit(body: Body, block: Expr) -> None:
        a, out, n = body.tensors["a"], body.tensors["out"], body.numbers
        terms, last = n["terms"], T.sub(n["rows"], T.const(1))
        rows = [T.minimum(T.add(T.mul(block, T.const(tile.rows)), T.const(row)), last) for row in range(tile.rows)]
        firsts = [T.add(n["offset"], T.mul(row, n["pitch"])) for row in rows]
        with body.builder.for_range(0, terms, name="term") as term:
            for row, first in enumerate(firsts):
                out[(block * terms + term) * tile.rows + row] = a[T.add(first, term)]

    return Stage(f"interleave_{tile.rows}x4", ("a", "out"), ("rows", "terms", "offset", "pitch"), emit)


@once
def transpose(tile: Tile) -> Stage:
    """Columns in blocks, term by term, zeros behind the last column: iteration n writes block n."""

    def emit(body: Body, block: Expr) -> None:
        b, out, n = body.tensors["b"], body.tensors["out"], body.numbers
        terms, columns = n["terms"], n["columns"]
        loop = body.builder.for_range
        with loop(0, terms, name="term") as term, loop(0, tile.columns, name="column") as column:
            at = T.add(T.mul(block, tile.columns), column)
            value = b[T.add(T.add(n["offset"], T.mul(term, n["pitch"])), T.minimum(at, T.sub(columns, T.const(1))))]
            place = (block * terms + term) * tile.columns + column
            out[place] = T.select(T.less(at, columns), value, T.const(0.0, "float32"))

    return Stage(f"transpose_1x{tile.columns}", ("b", "out"), ("terms", "columns", "offset", "pitch"), emit)


def multiply_block(body: Body, tile: Tile, terms: Expr, a: tuple[Expr, Expr, Expr], b: Expr) -> BufferVar:
    """The sums of a block; `a`: where its first value is, and how far the next row and the next term are."""
    left, right, (first, next_row, next_term) = body.tensors["a"], body.tensors["b"], a
    sums = body.registers(tile.rows * tile.columns)
    for row, (column, lanes) in product(range(tile.rows), tile.vectors()):
        with body.lanes(lanes) as lane:
            sums[lane + (row * tile.columns + column)] = T.const(0.0, "float32")
    rows = [T.add(first, T.mul(next_row, T.const(row))) for row in range(tile.rows)]

    def add(term: Expr) -> None:
        for row, begin in enumerate(rows):
            value = left[T.add(begin, T.mul(term, next_term))]
            for column, lanes in tile.vectors():
                with body.lanes(lanes) as lane:
                    at = lane + (row * tile.columns + column)
                    sums[at] = sums[at] + value * right[T.add(b, term * tile.columns + (lane + column))]

    steps = T.floordiv(terms, T.const(_TERMS))
    with body.builder.for_range(0, steps, name="step") as step:
        for n in range(_TERMS):
            add(step * _TERMS + n)
    with body.builder.for_range(0, T.sub(terms, T.mul(steps, T.const(_TERMS))), name="rest") as rest:
        add(T.add(T.mul(steps, T.const(_TERMS)), rest))
    return sums


@once
def blocked_gemm(tile: Tile) -> Stage:
    """`BlockedGemm`: iteration n writes the rows of block n; rows of the output are whole blocks of columns."""

    def emit(body: Body, block: Expr) -> None:
        out, terms, columns = body.tensors["out"], body.numbers["terms"], body.numbers["columns"]
        with body.builder.for_range(0, T.floordiv(columns, T.const(tile.columns)), name="panel") as panel:
            start = (T.mul(T.mul(block, terms), T.const(tile.rows)), T.const(1), T.const(tile.rows))
            sums = multiply_block(body, tile, terms, start, T.mul(T.mul(panel, terms), T.const(tile.columns)))
            for row, (column, lanes) in product(range(tile.rows), tile.vectors()):
                with body.lanes(lanes) as lane:
                    place = (block * tile.rows + row) * columns + panel * tile.columns + (lane + column)
                    out[place] = sums[lane + (row * tile.columns + column)]

    return Stage(f"blocked_gemm_{tile.rows}x{tile.columns}", ("a", "b", "out"), ("terms", "columns"), emit)


def _add(body: Body, row: Expr) -> None:
    product, c, out, n = (body.tensors["product"], body.tensors["c"], body.tensors["out"], body.numbers)
    first, pitch, beta = T.add(n["offset"], T.mul(row, n["pitch"])), T.mul(row, n["whole"]), n["beta"]
    c_first = T.add(n["c_offset"], T.mul(row, n["c_pitch"]))

    def store(x: Expr) -> None:
        added = c[T.add(c_first, T.mul(x, n["c_step"]))] * beta
        value = product[T.add(pitch, x)] * n["alpha"] + added
        out[T.add(first, x)] = T.maximum(n["low"], T.minimum(n["high"], value))

    body.row(n["columns"], store)


MATRIX_ADDITION = Stage(
    "gemm_matrix_addition",
    ("product", "c", "out"),
    ("whole", "columns", "offset", "pitch", "c_offset", "c_pitch", "c_step"),
    _add,
    ("alpha", "beta", "low", "high"),
)
STAGES = (*(make(tile) for tile in TILES for make in (interleave, transpose, blocked_gemm)), MATRIX_ADDITION)
