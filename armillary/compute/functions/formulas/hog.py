"""Histograms of gradients as loops: votes of a cell's pixels, descriptors of blocks of cells, scores of windows.

In: lengths (S16) and directions (U8) of gradients; votes; descriptors and the factors of a classifier; each with a row
of settings. Out: a value for each bin of a cell; for each bin of a block's cells; for each window. Invariant: a pixel's
length is shared by two neighbouring bins by where its direction lies between them; the last bin is beside the first.
Source: Dalal and Triggs 2005, "Histograms of oriented gradients for human detection".
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.compute.core.loops import Loops, Plane
from armillary.compute.functions.formulas.expressions import f32, root
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

_ZERO, _ONE = T.const(0), T.const(1)
_LANES = 8


def _numbers(ib: IRBuilder, settings: Plane, *names: str) -> list[Expr]:
    """The first settings, as whole numbers."""
    return [ib.let(name, T.cast(settings[_ZERO, T.const(n)], "int32")) for n, name in enumerate(names)]


def _vote(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    votes, lengths, directions, settings = planes
    width, height, bins = _numbers(ib, settings, "width", "height", "bins")
    ratio = ib.let("ratio", settings[_ZERO, T.const(3)])
    with ib.for_range(0, rows, "row") as row, ib.for_range(0, T.floordiv(columns, bins), "cell") as cell:
        y, first = ib.let("y", T.add(y0, row)), ib.let("first", T.mul(cell, bins))
        with ib.for_range(0, bins, "bin") as each:
            votes[y, T.add(first, each)] = f32(0.0)
        with ib.for_range(0, height, "down") as down, ib.for_range(0, width, "along") as along:
            at_y, at_x = T.add(T.mul(y, height), down), T.add(T.mul(cell, width), along)
            place = ib.let("place", T.add(T.mul(f32(directions[at_y, at_x]), ratio), f32(0.5)))
            whole, length = ib.let("whole", T.cast(place, "int32")), ib.let("length", f32(lengths[at_y, at_x]))
            share = ib.let("share", T.sub(place, f32(whole)))
            low = ib.let("low", T.add(first, _turned(whole, bins)))
            votes[y, low] = T.add(votes[y, low], T.mul(length, T.sub(f32(1.0), share)))
            high = ib.let("high", T.add(first, _turned(T.add(_turned(whole, bins), _ONE), bins)))
            votes[y, high] = T.add(votes[y, high], T.mul(length, share))


def _turned(at: Expr, bins: Expr) -> Expr:
    """A bin; the one behind the last is the first."""
    return T.select(T.equal(at, bins), _ZERO, at)


def _normalise(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    """A tenth of a block's size is added to its length, and 0.001 after clipping, as Dalal and Triggs do.

    L1 takes the root of the sum, as the library does.
    """
    blocks, votes, settings = planes
    width, height, step_x, step_y = _numbers(ib, settings, "width", "height", "step_x", "step_y")
    limit, is_sum = ib.let("limit", settings[_ZERO, T.const(4)]), T.greater(settings[_ZERO, T.const(5)], f32(0.0))
    count, total = ib.let("values", T.mul(width, height)), ib.allocate("float32", (1,), "total", scope="local")
    with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "block") as block:
        y, first = ib.let("y", T.add(y0, row)), ib.let("first", T.mul(block, count))
        top, left = ib.let("top", T.mul(y, step_y)), ib.let("left", T.mul(block, step_x))
        total[0] = f32(0.0)
        with ib.for_range(0, height, "down") as down, ib.for_range(0, width, "along") as along:
            value = ib.let("value", votes[T.add(top, down), T.add(left, along)])
            blocks[y, T.add(first, T.add(T.mul(down, width), along))] = value
            total[0] = T.add(total[0], T.select(is_sum, value, T.mul(value, value)))
        length = T.add(root(total[0]), T.mul(f32(count), f32(0.1)))
        factor = ib.let("factor", T.div(f32(1.0), length))
        total[0] = f32(0.0)
        with ib.for_range(0, count, "each") as each:
            place = (y, T.add(first, each))
            value = ib.let("scaled", T.minimum(T.mul(blocks[place], factor), limit))
            blocks[place] = value
            total[0] = T.add(total[0], T.mul(value, value))
        with ib.if_scope(T.less(limit, f32(_UNLIMITED))):
            again = ib.let("again", T.div(f32(1.0), T.add(root(total[0]), f32(1e-3))))
            with ib.for_range(0, count, "other") as each:
                place = (y, T.add(first, each))
                blocks[place] = T.mul(blocks[place], again)


def _score(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    """A window is `height` rows of `width` values; the next one is `step_x` values or `step_y` rows away."""
    scores, blocks, factors, settings = planes
    width, height, step_x, step_y = _numbers(ib, settings, "width", "height", "step_x", "step_y")
    steps, total = (
        ib.let("steps", T.floordiv(width, T.const(_LANES))),
        ib.allocate("float32", (_LANES,), "total", "local"),
    )
    with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "window") as window:
        y = ib.let("y", T.add(y0, row))
        top, left = T.mul(y, step_y), ib.let("left", T.mul(window, step_x))
        for n in range(_LANES):
            total[n] = f32(0.0)
        with ib.for_range(0, height, "down") as down:
            first, line = ib.let("first", T.mul(down, width)), ib.let("line", T.add(top, down))

            def product(at: Expr, line: Expr = line, left: Expr = left, first: Expr = first) -> Expr:
                return T.mul(blocks[line, T.add(left, at)], factors[_ZERO, T.add(first, at)])

            with ib.for_range(0, steps, "step") as step, ib.for_range(0, _LANES, "lane") as lane:
                total[lane] = T.add(total[lane], product(T.add(T.mul(step, T.const(_LANES)), lane)))
            with ib.for_range(T.mul(steps, T.const(_LANES)), width, "rest") as at:
                total[0] = T.add(total[0], product(at))
        score: Expr = factors[_ZERO, T.mul(width, height)]
        for n in range(_LANES):
            score = T.add(score, total[n])
        scores[y, window] = score


_UNLIMITED = 3.0e38  # a limit of blocks that are not clipped
# Histograms of cells; planes: histograms, lengths, directions, settings.
VOTES = Loops("hog_votes", ("float32", "int16", "uint8", "float32"), _vote)
# Descriptors of blocks; planes: descriptors, votes, settings.
BLOCKS = Loops("hog_blocks", ("float32", "float32", "float32"), _normalise)
# Scores of windows; planes: scores, descriptors, a row of factors with the bias behind them, settings.
SCORES = Loops("hog_scores", ("float32",) * 4, _score)


def vote_settings(width: int, height: int, bins: int, whole_turn: bool) -> tuple[float, ...]:
    """Of cells of a size."""
    return (width, height, bins, bins / 255 if whole_turn else bins / 180)


def block_settings(
    cells: tuple[int, int], stride: tuple[int, int], bins: int, is_sum: bool, limit: float
) -> tuple[float, ...]:
    """Of blocks of cells, `stride` cells apart; `is_sum`: by the root of the sum rather than by the length.

    `limit`: larger values are clipped, then all is normalised again; 0: not.
    """
    return (cells[0] * bins, cells[1], stride[0] * bins, stride[1], limit or _UNLIMITED, float(is_sum))
