"""Histograms of gradients as loops: the votes of a cell's pixels for the directions of their gradients.

In: lengths (S16) and directions (U8) of gradients. Out: for each cell, one value for each bin. Invariant: a pixel's
length is shared by two neighbouring bins by where its direction lies between them; the last bin is beside the first.
Source: Dalal and Triggs 2005, "Histograms of oriented gradients for human detection".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from armillary.compute.core.loops import Loops, Plane
from armillary.compute.functions.formulas.expressions import f32
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder


@cache
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
