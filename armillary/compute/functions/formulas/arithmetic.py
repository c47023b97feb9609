"""Pixel by pixel: sums, products, bits, thresholds, accumulation, length and angle of gradients.

In: the same pixel of each input. Out: one pixel. Invariant: rounding and overflow as OpenVX 1.1 and the library define
them; an accumulating formula reads its output as an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from armillary import tir
from armillary.base.once import once
from armillary.compute.core.compiled import WIDE, Formula, Read
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import (
    Options,
    Pixel,
    bits_as,
    f32,
    plain,
    root,
    saturated,
    truncated,
)
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32


def _pair(rule: Callable[[Expr, Expr], Expr]) -> Pixel:
    return plain(rule, 2)


def _difference(a: Expr, b: Expr) -> Expr:
    return T.sub(T.maximum(a, b), T.minimum(a, b))


def _wide_difference(a: Expr, b: Expr) -> Expr:
    wide = [T.cast(v, "int32") for v in (a, b)]
    return saturated(_difference(*wide), "int16")


def _byte(number: Expr) -> Expr:
    return T.cast(number, "uint8")


def _threshold(pixel: Expr, limit: Expr, below: Expr, above: Expr) -> Expr:
    return T.select(T.greater(pixel, _byte(limit)), _byte(above), _byte(below))


def _range(pixel: Expr, lower: Expr, upper: Expr, outside: Expr, inside: Expr) -> Expr:
    fits = T.all_of(T.greater_equal(pixel, _byte(lower)), T.less_equal(pixel, _byte(upper)))
    return T.select(fits, _byte(inside), _byte(outside))


def _accumulate(pixel: Expr, total: Expr) -> Expr:
    return saturated(T.add(T.cast(total, "int32"), T.cast(pixel, "int32")), "int16")


def _accumulate_squared(pixel: Expr, total: Expr, shift: Expr) -> Expr:
    wide = T.cast(pixel, "int32")
    return saturated(T.add(T.cast(total, "int32"), T.shift_right(T.mul(wide, wide), shift)), "int16")


def _accumulate_weighted(pixel: Expr, total: Expr, alpha: Expr) -> Expr:
    retained = T.mul(f32(total), T.sub(f32(1.0), alpha))
    return truncated(T.add(retained, T.mul(f32(pixel), alpha)), "uint8")


ONE, TWO = (U8,), (U8, U8)
INT, REAL = "int32", "float32"
ABSOLUTE_DIFFERENCE = Formula("absolute_difference", TWO, ONE, _pair(_difference), lanes=WIDE)
ABSOLUTE_DIFFERENCE_S16 = Formula("absolute_difference_s16", (S16, S16), (S16,), _pair(_wide_difference))
BITWISE_AND = Formula("bitwise_and", TWO, ONE, _pair(T.bitwise_and), lanes=WIDE)
BITWISE_OR = Formula("bitwise_or", TWO, ONE, _pair(T.bitwise_or), lanes=WIDE)
BITWISE_XOR = Formula("bitwise_xor", TWO, ONE, _pair(T.bitwise_xor), lanes=WIDE)
BITWISE_NOT = Formula("bitwise_not", ONE, ONE, plain(T.bitwise_not), lanes=WIDE)
THRESHOLD = Formula("threshold", ONE, ONE, plain(_threshold), numbers=(INT,) * 3, lanes=WIDE)
THRESHOLD_RANGE = Formula("threshold_range", ONE, ONE, plain(_range), numbers=(INT,) * 4, lanes=WIDE)
ACCUMULATE = Formula("accumulate", (U8, S16), (S16,), plain(_accumulate, 2))
ACCUMULATE_SQUARED = Formula("accumulate_squared", (U8, S16), (S16,), plain(_accumulate_squared, 2), numbers=(INT,))
ACCUMULATE_WEIGHTED = Formula("accumulate_weighted", TWO, ONE, plain(_accumulate_weighted, 2), numbers=(REAL,))


def _sum(sign: int, saturates: bool, kind: DataType) -> Pixel:
    def rule(a: Expr, b: Expr) -> Expr:
        wide = [T.cast(v, "float32" if kind is F32 else "int32") for v in (a, b)]
        total = T.add(*wide) if sign > 0 else T.sub(*wide)
        if kind is F32:
            return total
        return saturated(total, kind.dtype) if saturates else T.cast(total, kind.dtype)

    return plain(rule, 2)


@once
def arithmetic(sign: int, kinds: tuple[DataType, DataType], kind: DataType, saturates: bool) -> Formula:
    """Sum or difference, in the type of the output; too large: the nearest, or the low bits."""
    name = f"{'addition' if sign > 0 else 'difference'}_{'_'.join(k.name for k in (*kinds, kind))}_{saturates}"
    return Formula(name, kinds, (kind,), _sum(sign, saturates, kind))


def _product(kind: DataType, saturates: bool, is_real: bool) -> Pixel:
    """A product times 1/2^n (whole, towards zero) or 1/255 (float, to nearest); numbers: n, 2^n - 1, the scale."""

    def rule(a: Expr, b: Expr, shift: Expr, bias: Expr, scale: Expr) -> Expr:
        if kind is F32:
            return T.mul(T.mul(a, b), scale)
        product = T.mul(T.cast(a, "int32"), T.cast(b, "int32"))
        if is_real:
            rounded = T.cast(tir.nearbyint(T.mul(T.cast(product, "float32"), scale)), "int32")
        else:
            up = T.select(T.less(product, T.const(0, "int32")), bias, T.const(0, "int32"))
            rounded = T.shift_right(T.add(product, up), shift)
        return saturated(rounded, kind.dtype) if saturates else T.cast(rounded, kind.dtype)

    return plain(rule, 2)


@once
def multiplication(kinds: tuple[DataType, DataType], kind: DataType, saturates: bool, is_real: bool) -> Formula:
    """The product of two pixels, scaled."""
    name = f"multiply_{'_'.join(k.name for k in (*kinds, kind))}_{saturates}_{is_real}"
    return Formula(name, kinds, (kind,), _product(kind, saturates, is_real), numbers=(INT, INT, REAL))


def _length(norm: str) -> Pixel:
    def rule(a: Expr, b: Expr) -> Expr:
        if norm == "L1":
            sizes = [T.maximum(v, T.neg(v)) for v in (T.cast(a, "int32"), T.cast(b, "int32"))]
            return saturated(T.add(*sizes), "int16")
        squares = [T.mul(f32(v), f32(v)) for v in (a, b)]
        return truncated(T.add(root(T.add(*squares)), f32(0.5)), "int16")

    return plain(rule, 2)


MAGNITUDE_L1 = Formula("magnitude_l1", (S16, S16), (S16,), _length("L1"))
MAGNITUDE_L2 = Formula("magnitude_l2", (S16, S16), (S16,), _length("L2"))
# atan(t) on 0..1: t * (pi / 4 + (1 - t) * (0.2447 + 0.0663 * t))
_ATAN, _QUARTER_TURN = (0.2447, 0.0663), math.pi / 4


def _reciprocal(value: Expr) -> Expr:
    """1 / value as AArch64's FRECPE estimates it, to eight bits, and one step of Newton's: 1e-5 of it away."""
    bits = bits_as(value, "int32")
    fraction = T.bitwise_and(T.shift_right(bits, T.const(15)), T.const(255))
    whole = T.cast(T.div(f32(1 << 19), f32(T.add(T.mul(fraction, T.const(2)), T.const(513)))), "int32")
    exponent = T.shift_left(T.sub(T.const(245), T.shift_right(bits, T.const(23))), T.const(23))
    eighth = f32(T.shift_right(T.add(whole, T.const(1)), T.const(1)))
    estimate = T.mul(eighth, bits_as(exponent, "float32"))
    return T.mul(estimate, T.sub(f32(2.0), T.mul(value, estimate)))


def _angle(gx: Expr, gy: Expr, unit: float) -> Expr:
    """The direction of a gradient, from 0 to 360 degrees of so many units each; to the bit what the library gives."""
    x, y = f32(gx), f32(gy)
    along, down = (T.maximum(v, T.neg(v)) for v in (x, y))
    least, most = T.minimum(along, down), T.maximum(along, down)
    ratio = T.mul(least, _reciprocal(T.add(most, f32(1e-9))))
    bent = T.mul(ratio, T.sub(f32(1.0), ratio))
    bent = T.mul(T.add(f32(_ATAN[0]), T.mul(ratio, f32(_ATAN[1]))), bent)
    angle = T.mul(T.add(bent, T.mul(f32(_QUARTER_TURN), ratio)), f32(180 / math.pi * unit))
    angle = T.select(T.greater_equal(along, down), angle, T.sub(f32(90 * unit), angle))
    angle = T.select(T.less(x, f32(0.0)), T.sub(f32(180 * unit), angle), angle)
    return T.select(T.less(y, f32(0.0)), T.sub(f32(360 * unit), angle), angle)


def _phase(kind: str) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        turn = _angle(read(0, y, x), read(1, y, x), 1.0 if kind == "UNSIGNED" else 256 / 360)
        if kind == "UNSIGNED":
            turn = T.select(T.greater(turn, f32(180.0)), T.sub(turn, f32(180.0)), turn)
        whole = T.cast(T.add(turn, f32(0.5)), "int32")
        return [T.cast(T.bitwise_and(whole, T.const(255, "int32")), "uint8")]

    return pixel


PHASE_SIGNED = Formula("phase_signed", (S16, S16), ONE, _phase("SIGNED"))
PHASE_UNSIGNED = Formula("phase_unsigned", (S16, S16), ONE, _phase("UNSIGNED"))


def _looked_up(count: int, offset: int) -> Pixel:
    """A value of a table, which is an input of one row; a pixel beyond it stays."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        value = read(0, y, x)
        place = T.add(T.cast(value, "int32"), T.const(offset, "int32"))
        inside = T.all_of(T.greater_equal(place, T.const(0)), T.less(place, T.const(count)))
        near = T.minimum(T.maximum(place, T.const(0)), T.const(count - 1))
        entry = read(1, T.const(0), near)
        return [entry if (count, offset) == (256, 0) else T.select(inside, entry, value)]

    return pixel


@once
def table_lookup(kind: DataType, count: int, offset: int) -> Formula:
    """A table over pixels of a type; of signed ones the middle of the table is for 0."""
    name, pixel = f"table_{kind.name}_{count}", _looked_up(count, offset)
    return Formula(name, (kind, kind), (kind,), pixel, same_size=False, own_place=True)
