"""Histograms of gradients as loops: votes of a cell's pixels, descriptors of blocks of cells, scores of windows.

In: lengths (S16) and directions (U8) of gradients; votes; descriptors and the factors of a classifier. Out: a value for
each bin of a cell; for each bin of a block's cells; for each window. Invariant: a pixel's length is shared by two
neighbouring bins by where its direction lies between them; the last bin is beside the first.
Source: Dalal and Triggs 2005, "Histograms of oriented gradients for human detection".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.core.loops import Loops, Plane
from armillary.compute.functions.formulas.expressions import f32, root
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder


@once
def binning(width: int, height: int, bins: int, whole_turn: bool) -> Loops:
    """The histograms of cells of a size; planes: histograms, lengths, directions."""
    ratio = bins / 255 if whole_turn else bins / 180

    def emit(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
        found, lengths, directions = planes
        with ib.for_range(0, rows, "row") as row, ib.for_range(0, T.floordiv(columns, T.const(bins)), "cell") as cell:
            y, first = ib.let("y", T.add(y0, row)), ib.let("first", T.mul(cell, T.const(bins)))
            with ib.for_range(0, bins, "bin") as each:
                found[y, T.add(first, each)] = f32(0.0)
            with ib.for_range(0, height, "down") as down, ib.for_range(0, width, "along") as along:
                at_y, at_x = T.add(T.mul(y, T.const(height)), down), T.add(T.mul(cell, T.const(width)), along)
                place = ib.let("place", T.add(T.mul(f32(directions[at_y, at_x]), f32(ratio)), f32(0.5)))
                whole, length = ib.let("whole", T.cast(place, "int32")), ib.let("length", f32(lengths[at_y, at_x]))
                share = ib.let("share", T.sub(place, f32(whole)))
                low = ib.let("low", T.add(first, _turned(whole, bins)))
                found[y, low] = T.add(found[y, low], T.mul(length, T.sub(f32(1.0), share)))
                high = ib.let("high", T.add(first, _turned(T.add(_turned(whole, bins), T.const(1)), bins)))
                found[y, high] = T.add(found[y, high], T.mul(length, share))

    name = f"vote_{width}x{height}_{bins}_{whole_turn}".lower()
    return Loops(name, ("float32", "int16", "uint8"), emit)


def _turned(at: Expr, bins: int) -> Expr:
    """A bin; the one behind the last is the first."""
    return T.select(T.equal(at, T.const(bins)), T.const(0), at)


@record(slots=True)
class Blocks:
    """What a descriptor is made of: cells of a block, the stride of blocks in cells, bins, how it is normalised."""

    cells: tuple[int, int]
    stride: tuple[int, int]
    bins: int
    is_sum: bool = False  # by the root of the sum rather than by the length
    limit: float = 0.0  # larger values are clipped, then all is normalised again; 0: not

    def values(self) -> int:
        """Of a block."""
        return self.cells[0] * self.cells[1] * self.bins


@once
def normalising(blocks: Blocks) -> Loops:
    """The descriptors of blocks; planes: descriptors, votes.

    A tenth of a block's size is added to its length, and 0.001 after clipping, as Dalal and Triggs do; L1 takes the
    root of the sum, as the library does.
    """
    count, width = blocks.values(), blocks.cells[0] * blocks.bins

    def emit(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
        found, votes = planes
        total = ib.allocate("float32", (1,), "total")
        with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "block") as block:
            y, first = ib.let("y", T.add(y0, row)), ib.let("first", T.mul(block, T.const(count)))
            top = ib.let("top", T.mul(y, T.const(blocks.stride[1])))
            left = ib.let("left", T.mul(block, T.const(blocks.stride[0] * blocks.bins)))
            total[0] = f32(0.0)
            with ib.for_range(0, blocks.cells[1], "down") as down, ib.for_range(0, width, "along") as along:
                value = ib.let("value", votes[T.add(top, down), T.add(left, along)])
                found[y, T.add(first, T.add(T.mul(down, T.const(width)), along))] = value
                total[0] = T.add(total[0], value if blocks.is_sum else T.mul(value, value))
            length = T.add(root(total[0]), f32(count * 0.1))
            factor = ib.let("factor", T.div(f32(1.0), length))
            total[0] = f32(0.0)
            with ib.for_range(0, count, "each") as each:
                place = (y, T.add(first, each))
                scaled = T.mul(found[place], factor)
                value = ib.let("scaled", T.minimum(scaled, f32(blocks.limit)) if blocks.limit else scaled)
                found[place] = value
                total[0] = T.add(total[0], T.mul(value, value))
            if blocks.limit:
                again = ib.let("again", T.div(f32(1.0), T.add(root(total[0]), f32(1e-3))))
                with ib.for_range(0, count, "other") as each:
                    place = (y, T.add(first, each))
                    found[place] = T.mul(found[place], again)

    how = f"{'l1' if blocks.is_sum else 'l2'}_{struct.pack('>f', blocks.limit).hex()}"
    sizes = "_".join(map(str, (*blocks.cells, *blocks.stride, blocks.bins)))
    return Loops(f"normalise_{sizes}_{how}", ("float32", "float32"), emit)


@once
def scoring(width: int, height: int, step_x: int, step_y: int) -> Loops:
    """The scores of windows; planes: scores, descriptors, and a row of factors with the bias behind them.

    A window is `height` rows of `width` values; the next one is `step_x` values or `step_y` rows away.
    """

    def emit(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
        found, blocks, factors = planes
        zero, lanes, total = T.const(0), 8, ib.allocate("float32", (8,), "total")
        with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "window") as window:
            y = ib.let("y", T.add(y0, row))
            top, left = T.mul(y, T.const(step_y)), ib.let("left", T.mul(window, T.const(step_x)))
            for n in range(lanes):
                total[n] = f32(0.0)
            with ib.for_range(0, height, "down") as down:
                first = ib.let("first", T.mul(down, T.const(width)))
                line = ib.let("line", T.add(top, down))
                with ib.for_range(0, width // lanes, "step") as step, ib.for_range(0, lanes, "lane") as lane:
                    at = T.add(T.mul(step, T.const(lanes)), lane)
                    product = T.mul(blocks[line, T.add(left, at)], factors[zero, T.add(first, at)])
                    total[lane] = T.add(total[lane], product)
                with ib.for_range(width // lanes * lanes, width, "rest") as at:
                    product = T.mul(blocks[line, T.add(left, at)], factors[zero, T.add(first, at)])
                    total[0] = T.add(total[0], product)
            score: Expr = factors[zero, T.const(width * height)]
            for n in range(lanes):
                score = T.add(score, total[n])
            found[y, window] = score

    return Loops(f"score_{width}x{height}_{step_x}x{step_y}", ("float32",) * 3, emit)
