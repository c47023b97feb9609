"""Corners and edges as formulas: how much of a corner a pixel is, and whether it is the crest of an edge.

In: gradients, or the pixels on a circle. Out: a strength, or a class: 0, WEAK or STRONG. Invariant: strengths of FAST
are the largest threshold that still makes a corner; lengths of gradients are compared as whole numbers (L2: squares).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from armillary.compute.core.compiled import Formula, Read
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Options, Pixel, f32
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
WEAK, STRONG = 127, 255
# The circle of radius 3, clockwise from the top: (dy, dx).
_HALF = ((-3, 0), (-3, 1), (-2, 2), (-1, 3), (0, 3), (1, 3), (2, 2), (3, 1))
CIRCLE = (*_HALF, *((-dy, -dx) for dy, dx in _HALF))
_TAN_22, _TAN_67 = 0.41421356, 2.41421356


def _arc(values: Sequence[Expr]) -> Expr:
    """The largest of the least of nine neighbours on the circle."""
    count = len(values)

    def least(of: Sequence[Expr], distance: int) -> list[Expr]:
        return [T.minimum(of[n], of[(n + distance) % count]) for n in range(count)]

    eight = least(least(least(values, 1), 2), 4)
    nine = [T.minimum(eight[n], values[(n + 8) % count]) for n in range(count)]
    best = nine[0]
    for value in nine[1:]:
        best = T.maximum(best, value)
    return best


def _fast(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    (threshold,) = options
    centre = T.cast(read(0, y, x), "int16")
    around = [T.sub(T.cast(read(0, y + dy, x + dx), "int16"), centre) for dy, dx in CIRCLE]
    best = T.maximum(_arc(around), _arc([T.neg(v) for v in around]))
    score = T.maximum(T.sub(best, T.const(1, "int16")), T.const(0, "int16"))
    is_corner = T.greater(best, T.cast(threshold, "int16"))
    return [T.cast(T.select(is_corner, score, T.const(0, "int16")), "uint8")]


FAST = Formula("fast_corners", (U8,), (U8,), _fast, 3, numbers=("int32",), lanes=32)


def _harris(block: int) -> Pixel:
    half = block // 2

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        factor, sensitivity, threshold = options
        sums: list[Expr] = [f32(0.0)] * 3
        for dy in range(-half, half + 1):
            for dx in range(-half, half + 1):
                gx, gy = (f32(read(n, y + dy, x + dx)) for n in (0, 1))
                for n, product in enumerate((T.mul(gx, gx), T.mul(gx, gy), T.mul(gy, gy))):
                    sums[n] = T.add(sums[n], product)
        xx, xy, yy = (T.mul(v, factor) for v in sums)
        trace = T.add(xx, yy)
        strength = T.sub(T.sub(T.mul(xx, yy), T.mul(xy, xy)), T.mul(sensitivity, T.mul(trace, trace)))
        return [T.select(T.greater(strength, threshold), strength, f32(0.0))]

    return pixel


@cache
def harris(block: int, kind: DataType) -> Formula:
    """The corner response over a block of gradients, 0 up to the threshold."""
    numbers = ("float32",) * 3  # factor, sensitivity, threshold
    return Formula(f"harris_{block}_{kind.name}", (kind, kind), (F32,), _harris(block), block // 2, numbers=numbers)


def _length(is_sum: bool) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        gx, gy = (T.cast(read(n, y, x), "int32") for n in (0, 1))
        if is_sum:
            return [T.add(T.maximum(gx, T.neg(gx)), T.maximum(gy, T.neg(gy)))]
        return [T.add(T.mul(gx, gx), T.mul(gy, gy))]

    return pixel


@cache
def edge_length(is_sum: bool) -> Formula:
    """|gx| + |gy|, or the square of the length."""
    return Formula(f"edge_length_{'l1' if is_sum else 'l2'}", (S16, S16), (S32,), _length(is_sum))


def _crest(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    """Pixels longer than both neighbours along the gradient, by two thresholds."""
    lower, upper = options
    gx, gy, here = T.cast(read(0, y, x), "int32"), T.cast(read(1, y, x), "int32"), read(2, y, x)
    along, down = (f32(T.maximum(v, T.neg(v))) for v in (gx, gy))
    is_level = T.less_equal(down, T.mul(along, f32(_TAN_22)))
    is_steep = T.greater_equal(down, T.mul(along, f32(_TAN_67)))
    is_falling = T.less(T.mul(T.cast(gx, "float32"), T.cast(gy, "float32")), f32(0.0))

    def beside(sign: int) -> Expr:
        def at(dy: int, dx: int) -> Expr:
            return read(2, y + sign * dy, x + sign * dx)

        slanted = T.select(is_falling, at(1, -1), at(1, 1))
        return T.select(is_level, at(0, 1), T.select(is_steep, at(1, 0), slanted))

    is_crest = T.all_of(T.greater(here, beside(1)), T.greater_equal(here, beside(-1)))
    strong = T.select(T.greater(here, upper), T.const(STRONG), T.const(WEAK))
    found = T.select(T.all_of(is_crest, T.greater(here, lower)), strong, T.const(0))
    return [T.cast(found, "uint8")]


CREST = Formula("edge_crest", (S16, S16, S32), (U8,), _crest, 1, numbers=("int32", "int32"))
