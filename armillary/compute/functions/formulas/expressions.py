"""Parts that formulas are made of: weighted sums, saturation, reading between pixels.

In: expressions of pixels. Out: expressions. Invariant: sums are in the type that is named, results saturate
to theirs; nothing else overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.compute.core.compiled import Read
from armillary.tir import build as T
from armillary.tir.expr import Expr

Matrix = Sequence[Sequence[int]]
Options = tuple[Any, ...]  # Any: expressions of numbers
Pixel = Callable[[Read, Expr, Expr, Options], Sequence[Expr]]
LIMITS = {"uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535), "int32": (-(1 << 31), (1 << 31) - 1)}


def weighted(read: Read, y: Expr, x: Expr, matrix: Matrix, dtype: str, index: int = 0) -> Expr:
    """The sum of pixels around, times the matrix."""
    down, along = len(matrix) // 2, len(matrix[0]) // 2
    total: Expr = T.const(0, dtype)
    for dy, row in enumerate(matrix):
        for dx, weight in enumerate(row):
            if weight:
                pixel = T.cast(read(index, y + (dy - down), x + (dx - along)), dtype)
                total = T.add(total, pixel if weight == 1 else T.mul(pixel, T.const(weight, dtype)))
    return total


def five(values: Sequence[Expr]) -> Expr:
    """1 4 6 4 1 over values of uint16."""
    a, b, c, d, e = values
    four, six = T.const(4, "uint16"), T.const(6, "uint16")
    return T.add(T.add(T.add(a, e), T.mul(T.add(b, d), four)), T.mul(c, six))


def saturated(value: Expr, dtype: str) -> Expr:
    """A whole number in a narrower type: the nearest that it has."""
    low, high = LIMITS[dtype]
    have = str(value.dtype)
    return T.cast(T.minimum(T.maximum(value, T.const(low, have)), T.const(high, have)), dtype)


def truncated(value: Expr, dtype: str) -> Expr:
    """A real number without its fraction, saturated."""
    low, high = LIMITS[dtype]
    near = T.minimum(T.maximum(value, T.const(float(low), "float32")), T.const(float(high), "float32"))
    return T.cast(T.cast(near, "int32"), dtype)


def divided(total: Expr, reciprocal: Expr) -> Expr:
    """A quotient of whole numbers towards zero, by the float64 reciprocal of the divisor.

    (|total| + 1/2) / divisor is at least 1/2 divisor from the next whole number, float64's error is far below that.
    """
    size = T.cast(T.maximum(total, T.neg(total)), "float64")
    whole = T.cast(T.mul(T.add(size, T.const(0.5, "float64")), reciprocal), "int32")
    return T.select(T.less(total, T.const(0, "int32")), T.neg(whole), whole)


def f32(value: Expr | float) -> Expr:
    """The expression converted to float32."""
    return T.const(value, "float32") if isinstance(value, float | int) else T.cast(value, "float32")


def root(value: Expr) -> Expr:
    """The square root."""
    return T.call("sqrt", value)


def below(value: Expr) -> Expr:
    """The whole number at or below a real one."""
    return T.cast(T.call("floor", value), "int32")


def bits_as(value: Expr, dtype: str) -> Expr:
    """The same bits as another type."""
    return T.call("reinterpret", value, dtype=dtype)


def plain(rule: Callable[..., Expr], inputs: int = 1) -> Pixel:
    """A formula of the same pixel of each input; options follow the pixels."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        return [rule(*(read(n, y, x) for n in range(inputs)), *options)]

    return pixel
