"""Filters as formulas: one pixel, from pixels around it.

In: a function that reads pixels, the place, the options. Out: the expressions of the outputs' pixels. Invariant:
integer arithmetic as OpenVX 1.1 defines it; intermediate values fit the types they are cast to. Compiled by
`core/compiled.py`; a new formula is one row here and one name in `functions/vision/filters.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.base.once import once
from armillary.compute.core.compiled import STEP, WIDE, Formula, Numbers, Read, RowPlanes
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Matrix, Options, Pixel, divided, five, saturated, weighted
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32

_STEPS = 16  # of a row whose sums over rows are kept together
_GAUSSIAN_3 = ((1, 2, 1), (2, 4, 2), (1, 2, 1))
_ROW_5 = (1, 4, 6, 4, 1)
_GAUSSIAN_5 = tuple(tuple(a * b for b in _ROW_5) for a in _ROW_5)
_SOBEL_X = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
_SCHARR_X = ((-3, 0, 3), (-10, 0, 10), (-3, 0, 3))
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


def _smoothed(matrix: Matrix, divisor: int) -> Pixel:
    """A mean by weights, which add up to no more than 256: the sum fits 16 bits."""
    dtype = "uint16"

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [T.cast(T.floordiv(weighted(read, y, x, matrix, dtype), T.const(divisor, dtype)), "uint8")]

    return pixel


def _rows_then_columns(ib: IRBuilder, planes: RowPlanes, y: Expr, x0: Expr, steps: Expr, numbers: Numbers) -> None:
    """1 4 6 4 1 over rows, kept for some steps of a row, then over columns; the last vector overlaps the one before."""
    del numbers
    reach, wide = 2, 2 * STEP
    sums = ib.allocate("uint16", (_STEPS * STEP + 2 * reach,), "sums", scope="local")

    def add_rows(at: Expr, lanes: int) -> None:
        with ib.for_range(0, lanes, kind="vectorize") as lane:
            x = T.add(at, lane)
            rows = [planes.read(0, T.add(y, T.const(n)), T.add(left, x)) for n in range(-reach, reach + 1)]
            sums[x] = five([T.cast(v, "uint16") for v in rows])

    def add_columns(at: Expr, lanes: int) -> None:
        with ib.for_range(0, lanes, kind="vectorize") as lane:
            x = T.add(at, lane)
            total = five([sums[T.add(x, T.const(n))] for n in range(2 * reach + 1)])
            planes.write(ib, 1, y, T.add(first, x), T.cast(T.shift_right(total, T.const(8, "uint16")), "uint8"))

    with ib.for_range(0, T.floordiv(T.add(steps, T.const(_STEPS - 1)), T.const(_STEPS)), "part_of_row") as tile:
        count = ib.let("count", T.minimum(T.const(_STEPS), T.sub(steps, T.mul(tile, T.const(_STEPS)))))
        first = ib.let("first", T.add(x0, T.mul(tile, T.const(_STEPS * STEP))))
        left = ib.let("left", T.sub(first, T.const(reach)))
        pairs, odd = T.floordiv(count, T.const(2)), T.floormod(count, T.const(2))
        for add in (add_rows, add_columns):
            with ib.for_range(0, pairs, "pair") as pair:
                add(T.mul(pair, T.const(wide)), wide)
            with ib.for_range(0, odd, "odd") as k:
                add(T.mul(T.add(pairs, k), T.const(wide)), STEP)
            if add is add_rows:
                add(T.add(T.mul(count, T.const(STEP)), T.const(2 * reach - STEP)), STEP)


def _neighbours(read: Read, y: Expr, x: Expr) -> list[Expr]:
    return [read(0, y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]


def _extreme(pick: Callable[[Any, Any], Expr]) -> Pixel:
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


def _gradients(*matrices: Matrix, dtype: str = "int16") -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [weighted(read, y, x, matrix, dtype) for matrix in matrices]

    return pixel


def _product(column: Sequence[int], row: Sequence[int]) -> Matrix:
    return tuple(tuple(a * b for b in row) for a in column)


def _convolution(columns: int, rows: int, dtype: str) -> Pixel:
    """Numbers: the matrix by rows, the reciprocal of the scale."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        *weights, reciprocal = options
        total: Expr = T.const(0)
        for n, weight in enumerate(weights):
            at_y, at_x = y + (n // columns - rows // 2), x + (n % columns - columns // 2)
            total = T.add(total, T.mul(T.cast(read(0, at_y, at_x), "int32"), weight))
        return [saturated(divided(total, reciprocal), dtype)]

    return pixel


def _rank(which: str, offsets: Sequence[tuple[int, int]]) -> Pixel:
    """The least, the greatest or the middle one of pixels around."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        values = [read(0, y + dy, x + dx) for dy, dx in offsets]
        if which != "median":
            first, *rest = values
            for value in rest:
                first = T.minimum(first, value) if which == "least" else T.maximum(first, value)
            return [first]
        return [_middle(values)]

    return pixel


def _middle(values: list[Expr]) -> Expr:
    """The median by dropping least and greatest of what is left, one new value at a time."""
    half = len(values) // 2 + 1
    retained, rest = values[: half + 1], values[half + 1 :]
    while True:
        for n in range(len(retained) - 1):  # the greatest goes last
            retained[n], retained[n + 1] = (
                T.minimum(retained[n], retained[n + 1]),
                T.maximum(retained[n], retained[n + 1]),
            )
        for n in reversed(range(1, len(retained) - 1)):  # the least goes first
            retained[n - 1], retained[n] = (
                T.minimum(retained[n - 1], retained[n]),
                T.maximum(retained[n - 1], retained[n]),
            )
        retained = retained[1:-1]
        if not rest:
            return retained[0]
        retained, rest = [*retained, rest[0]], rest[1:]


def _is_largest(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    """The pixel where none around is larger (before it: as large), else 0."""
    del options
    centre = read(0, y, x)
    rules = []
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if (dy, dx) != (0, 0):
                other = read(0, y + dy, x + dx)
                rules.append(T.greater_equal(centre, other) if (dy, dx) < (0, 0) else T.greater(centre, other))
    return [T.select(T.all_of(*rules), centre, T.const(0, str(centre.dtype)))]


ONE = (U8,)


def _filter(name: str, pixel: Pixel, reach: int, *outputs: DataType) -> Formula:
    """U8 in, U8 out unless another type is named; arithmetic of 16 bits takes wide vectors."""
    return Formula(name, ONE, outputs or ONE, pixel, reach, lanes=STEP if S32 in outputs else WIDE)


SMOOTH_5, SMOOTH_7 = _ROW_5, (1, 6, 15, 20, 15, 6, 1)
SLOPE_5, SLOPE_7 = (-1, -2, 0, 2, 1), (-1, -4, -5, 0, 5, 4, 1)
_SOBEL_5 = (_product(SMOOTH_5, SLOPE_5), _product(SLOPE_5, SMOOTH_5))
_SOBEL_7 = (_product(SMOOTH_7, SLOPE_7), _product(SLOPE_7, SMOOTH_7))
GAUSSIAN_3X3 = _filter("gaussian3x3", _smoothed(_GAUSSIAN_3, 16), 1)
GAUSSIAN_5X5 = Formula("gaussian5x5", ONE, ONE, _smoothed(_GAUSSIAN_5, 256), 2, row=_rows_then_columns)
BOX_3X3 = _filter("box3x3", _smoothed(((1, 1, 1),) * 3, 9), 1)
MEDIAN_3X3 = _filter("median3x3", _median, 1)
ERODE = _filter("erode", _extreme(T.minimum), 1)
DILATE = _filter("dilate", _extreme(T.maximum), 1)
SOBEL_3X3 = _filter("sobel3x3", _gradients(_SOBEL_X, _SOBEL_Y), 1, S16, S16)
SCHARR_3X3 = _filter("scharr3x3", _gradients(_SCHARR_X, tuple(zip(*_SCHARR_X, strict=True))), 1, S16, S16)
SOBEL_5X5 = _filter("sobel5x5", _gradients(*_SOBEL_5), 2, S16, S16)
SOBEL_7X7 = _filter("sobel7x7", _gradients(*_SOBEL_7, dtype="int32"), 3, S32, S32)
DERIVATIVE = _filter("derivative", _gradients(((-1, 0, 1),), ((-1,), (0,), (1,))), 1, S16, S16)


@once
def convolution(columns: int, rows: int, kind: DataType) -> Formula:
    """A matrix over the pixels around, to U8 or S16; numbers: the matrix, then the reciprocal of the scale."""
    pixel, numbers = _convolution(columns, rows, kind.dtype), ("int32",) * (columns * rows) + ("float64",)
    name = f"convolution{columns}x{rows}_{kind.name}"
    return Formula(name, ONE, (kind,), pixel, columns // 2, rows // 2, numbers=numbers)


@once
def non_linear(which: str, offsets: tuple[tuple[int, int], ...]) -> Formula:
    """The least, greatest or middle one of the pixels at offsets."""
    reach = max((abs(n) for pair in offsets for n in pair), default=0)
    side = 2 * reach + 1
    places = sum(1 << ((dy + reach) * side + dx + reach) for dy, dx in offsets)
    return _filter(f"non_linear_{which}_{side}_{places:x}", _rank(which, offsets), reach)


@once
def non_maxima_suppression(kind: DataType) -> Formula:
    """Pixels that no neighbour exceeds."""
    lanes = WIDE if kind is U8 else STEP
    return Formula(f"non_maxima_{kind.name}", (kind,), (kind,), _is_largest, 1, lanes=lanes)
