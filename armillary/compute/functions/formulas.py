"""Vision kernels as formulas: one pixel, from pixels around it.

In: a function that reads pixels, the place, the options. Out: the expressions of the outputs' pixels. Invariant:
integer arithmetic as OpenVX 1.1 defines it; intermediate values fit the types they are cast to. Compiled by
`core/compiled.py`; a new formula is one row here and one name in `vision.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.compute.core.compiled import Formula, Read
from armillary.compute.core.tensor_info import DataType
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, S16 = DataType.U8, DataType.S16
Matrix = Sequence[Sequence[int]]
Options = tuple[Any, ...]  # Any: numbers, tuples of numbers

_GAUSSIAN_3 = ((1, 2, 1), (2, 4, 2), (1, 2, 1))
_ROW_5 = (1, 4, 6, 4, 1)
_GAUSSIAN_5 = tuple(tuple(a * b for b in _ROW_5) for a in _ROW_5)
_SOBEL_X = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
_SOBEL_Y = ((-1, -2, -1), (0, 0, 0), (1, 2, 1))
# The median of nine values: 19 exchanges (Smith 1996, implementing median filters in XC4000E FPGAs).
_MEDIAN_9 = (
    (1, 2),
    (4, 5),
    (7, 8),
    (0, 1),
    (3, 4),
    (6, 7),
    (1, 2),
    (4, 5),
    (7, 8),
    (0, 3),
    (5, 8),
    (4, 7),
    (3, 6),
    (1, 4),
    (2, 5),
    (4, 7),
    (4, 2),
    (6, 4),
    (4, 2),
)


def _weighted(read: Read, y: Expr, x: Expr, matrix: Matrix, dtype: str) -> Expr:
    half = len(matrix) // 2
    total: Expr = T.const(0, dtype)
    for dy, row in enumerate(matrix):
        for dx, weight in enumerate(row):
            if weight:
                pixel = T.cast(read(0, y + (dy - half), x + (dx - half)), dtype)
                total = T.add(total, pixel if weight == 1 else T.mul(pixel, T.const(weight, dtype)))
    return total


def _to_u8(value: Expr) -> Expr:
    dtype = str(value.dtype)
    return T.cast(T.minimum(T.maximum(value, T.const(0, dtype)), T.const(255, dtype)), "uint8")


def _smoothed(matrix: Matrix, divisor: int, dtype: str) -> Callable[..., Sequence[Expr]]:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [T.cast(T.floordiv(_weighted(read, y, x, matrix, dtype), T.const(divisor, dtype)), "uint8")]

    return pixel


def _neighbours(read: Read, y: Expr, x: Expr) -> list[Expr]:
    return [read(0, y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]


def _extreme(pick: Callable[[Any, Any], Expr]) -> Callable[..., Sequence[Expr]]:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        first, *rest = _neighbours(read, y, x)
        for value in rest:
            first = pick(first, value)
        return [first]

    return pixel


def _median(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    del options
    values = _neighbours(read, y, x)
    for low, high in _MEDIAN_9:
        a, b = values[low], values[high]
        values[low], values[high] = T.minimum(a, b), T.maximum(a, b)
    return [values[4]]


def _sobel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    del options
    return [_weighted(read, y, x, _SOBEL_X, "int16"), _weighted(read, y, x, _SOBEL_Y, "int16")]


def _convolution(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    matrix, scale = options
    total = _weighted(read, y, x, matrix, "int32")
    return [_to_u8(_truncated(total, scale))]


def _truncated(total: Expr, scale: int) -> Expr:
    """Towards zero; what is negative ends as 0 either way."""
    return T.floordiv(T.maximum(total, T.const(0, "int32")), T.const(scale, "int32"))


def _pairwise(rule: Callable[[Expr, Expr], Expr]) -> Callable[..., Sequence[Expr]]:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [rule(read(0, y, x), read(1, y, x))]

    return pixel


def _difference(a: Expr, b: Expr) -> Expr:
    return T.sub(T.maximum(a, b), T.minimum(a, b))


def _not(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    del options
    return [T.bitwise_not(read(0, y, x))]


def _threshold(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    limit, below, above = options
    pixel = read(0, y, x)
    return [T.select(T.greater(pixel, T.const(limit, "uint8")), T.const(above, "uint8"), T.const(below, "uint8"))]


def _scale_nearest(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    ratio_x, ratio_y, width, height = options

    def source(at: Expr, ratio: float, size: int) -> Expr:
        place = T.call("floor", (T.cast(at, "float32") + T.const(0.5, "float32")) * T.const(ratio, "float32"))
        return T.minimum(T.cast(place, "int32"), T.const(size - 1, "int32"))

    return [read(0, source(y, ratio_y, height), source(x, ratio_x, width))]


ONE, TWO = (U8,), (U8, U8)
GAUSSIAN_3X3 = Formula("gaussian3x3", ONE, ONE, _smoothed(_GAUSSIAN_3, 16, "int16"), 1)
GAUSSIAN_5X5 = Formula("gaussian5x5", ONE, ONE, _smoothed(_GAUSSIAN_5, 256, "int32"), 2)
BOX_3X3 = Formula("box3x3", ONE, ONE, _smoothed(((1, 1, 1),) * 3, 9, "int16"), 1)
MEDIAN_3X3 = Formula("median3x3", ONE, ONE, _median, 1)
ERODE = Formula("erode", ONE, ONE, _extreme(T.minimum), 1)
DILATE = Formula("dilate", ONE, ONE, _extreme(T.maximum), 1)
SOBEL_3X3 = Formula("sobel3x3", ONE, (S16, S16), _sobel, 1)
CONVOLUTION_3X3 = Formula("convolution3x3", ONE, ONE, _convolution, 1)
CONVOLUTION_5X5 = Formula("convolution5x5", ONE, ONE, _convolution, 2)
ABSOLUTE_DIFFERENCE = Formula("absolute_difference", TWO, ONE, _pairwise(_difference))
BITWISE_AND = Formula("bitwise_and", TWO, ONE, _pairwise(T.bitwise_and))
BITWISE_OR = Formula("bitwise_or", TWO, ONE, _pairwise(T.bitwise_or))
BITWISE_XOR = Formula("bitwise_xor", TWO, ONE, _pairwise(T.bitwise_xor))
BITWISE_NOT = Formula("bitwise_not", ONE, ONE, _not)
THRESHOLD = Formula("threshold", ONE, ONE, _threshold)
SCALE_NEAREST = Formula("scale_nearest", ONE, ONE, _scale_nearest, 0, same_size=False)
