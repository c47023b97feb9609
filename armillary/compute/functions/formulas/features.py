"""Corners and edges as formulas: how much of a corner a pixel is, and whether it is the crest of an edge.

In: gradients, or the pixels on a circle. Out: a strength, or a class: 0, WEAK or STRONG. Invariant: strengths of FAST
are the largest threshold that still makes a corner; lengths of gradients are compared as whole numbers (L2: squares).
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.once import once
from armillary.compute.core.compiled import STEP, WIDE, Formula, Read
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Options, Pixel, f32
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
WEAK, STRONG = 127, 255
# The circle of radius 3, clockwise from the top: (dy, dx).
_HALF = ((-3, 0), (-3, 1), (-2, 2), (-1, 3), (0, 3), (1, 3), (2, 2), (3, 1))
CIRCLE = (*_HALF, *((-dy, -dx) for dy, dx in _HALF))
_TAN_22 = 27146  # of 65536


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
    """As Arm's library: gradients are scaled, squares added one by one, each product and sum rounded.

    Negative sums, as a difference takes in no product: a fused multiply-add would round once.
    """
    half = block // 2

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        factor, sensitivity, threshold = options
        sums: list[Expr] = [f32(0.0)] * 3
        for dy in range(-half, half + 1):
            for dx in range(-half, half + 1):
                gx, gy = (T.mul(f32(read(n, y + dy, x + dx)), factor) for n in (0, 1))
                for n, product in enumerate((T.mul(gx, gx), T.mul(gx, gy), T.mul(gy, gy))):
                    sums[n] = T.sub(sums[n], product)
        xx, xy, yy = sums
        trace = T.add(xx, yy)
        strength = T.sub(T.sub(T.mul(xx, yy), T.mul(xy, xy)), T.mul(sensitivity, T.mul(trace, trace)))
        return [T.select(T.greater(strength, threshold), strength, f32(0.0))]

    return pixel


@once
def harris(block: int, kind: DataType) -> Formula:
    """The corner response over a block of gradients, 0 up to the threshold."""
    numbers = ("float32",) * 3  # factor, sensitivity, threshold
    return Formula(f"harris_{block}_{kind.name}", (kind, kind), (F32,), _harris(block), block // 2, numbers=numbers)


def _length(gx: Expr, gy: Expr, is_sum: bool) -> Expr:
    """|gx| + |gy| in 16 bits, or the square of the length in 32."""
    if is_sum:
        return T.add(T.maximum(gx, T.neg(gx)), T.maximum(gy, T.neg(gy)))
    wide_x, wide_y = T.cast(gx, "int32"), T.cast(gy, "int32")
    return T.add(T.mul(wide_x, wide_x), T.mul(wide_y, wide_y))


@once
def edge_gradients(sobel: Formula, is_sum: bool) -> Formula:
    """The gradients of a Sobel filter and their length."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        gx, gy = sobel.pixel(read, y, x, options)
        return [gx, gy, _length(gx, gy, is_sum)]

    name = f"edge_{sobel.name}_{'l1' if is_sum else 'l2'}"
    return Formula(name, (U8,), (S16, S16, S16 if is_sum else S32), pixel, sobel.reach, lanes=WIDE if is_sum else STEP)


def _slopes(gx: Expr, gy: Expr) -> tuple[Expr, Expr]:
    """Whether a gradient is within 22.5 degrees of a row, of a column (of both: of a row).

    tan(22.5) is a number of 16 bits, so that every processor, and OpenCV, takes the same side.
    """
    along, down = (T.maximum(v, T.neg(v)) for v in (gx, gy))
    part = T.shift_right(T.mul(T.cast(along, "uint32"), T.const(_TAN_22, "uint32")), T.const(16, "uint32"))
    bound = T.cast(part, "int16")  # gradients are at most 12240 (5x5), so twice one and this fit
    return T.less_equal(down, bound), T.greater(down, T.add(T.add(along, along), bound))


def _crest(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    """Pixels longer than both neighbours along the gradient, by two thresholds.

    Of two equal ones in a row or a column the first one counts, along a diagonal none: as in OpenCV.
    """
    gx, gy, here = read(0, y, x), read(1, y, x), read(2, y, x)
    lower, upper = (T.cast(v, str(here.dtype)) for v in options)
    is_level, is_steep = _slopes(gx, gy)
    is_falling = T.less(T.bitwise_xor(gx, gy), T.const(0, "int16"))

    def beside(sign: int) -> Expr:
        def at(dy: int, dx: int) -> Expr:
            return read(2, y + sign * dy, x + sign * dx)

        slanted = T.select(is_falling, at(1, -1), at(1, 1))
        return T.select(is_level, at(0, 1), T.select(is_steep, at(1, 0), slanted))

    is_straight, behind = T.any_of(is_level, is_steep), beside(1)
    is_not_less = T.any_of(T.greater(here, behind), T.all_of(is_straight, T.equal(here, behind)))
    is_crest = T.all_of(T.greater(here, beside(-1)), is_not_less)
    strong = T.select(T.greater(here, upper), T.const(STRONG, "uint8"), T.const(WEAK, "uint8"))
    return [T.select(T.all_of(is_crest, T.greater(here, lower)), strong, T.const(0, "uint8"))]


@once
def crest(kind: DataType) -> Formula:
    """Classes of pixels from gradients and lengths of a type."""
    name, lanes = f"edge_crest_{kind.name}", WIDE if kind is S16 else STEP
    return Formula(name, (S16, S16, kind), (U8,), _crest, 1, numbers=("int32", "int32"), lanes=lanes)


def _spread(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    """Weak pixels beside strong ones become strong; and which did."""
    del options
    here = most = read(0, y, x)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            most = T.maximum(most, read(0, y + dy, x + dx))
    weak, strong, zero = (T.const(v, "uint8") for v in (WEAK, STRONG, 0))
    changes = T.all_of(T.equal(here, weak), T.equal(most, strong))
    return [T.select(changes, strong, here), T.select(changes, strong, zero)]


def _strong(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    del options
    here = read(0, y, x)
    return [T.select(T.equal(here, T.const(STRONG, "uint8")), here, T.const(0, "uint8"))]


SPREAD = Formula("edge_spread", (U8,), (U8, U8), _spread, 1, lanes=WIDE)
STRONG_ONLY = Formula("edge_strong", (U8,), (U8,), _strong, lanes=WIDE)
