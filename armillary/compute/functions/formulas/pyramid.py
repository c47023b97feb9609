"""Pyramids as formulas: copies, halves of a smoothed image, changes of type.

In: an image. Out: an image of the same size, or of half of it. Invariant: halving adds up five rows into 16 bits, then
five columns of that, every second one; the whole sum is below 2^16. Source: Burt and Adelson 1983, "The Laplacian
pyramid as a compact image code".
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.once import once
from armillary.compute.core.compiled import STEP, WIDE, Formula, Numbers, Read, RowPlanes
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Options, five, saturated
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

U8 = DataType.U8
_LANES, _STEPS = 32, 8  # columns of a sum of rows at once; steps of a row whose sums are kept together
OVERSHOOT = _LANES  # columns behind the last one that are read with it


def _copied(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    del options
    return [read(0, y, x)]


def _halved(ib: IRBuilder, planes: RowPlanes, y: Expr, x0: Expr, steps: Expr, numbers: Numbers) -> None:
    """Numbers: 1 where odd columns stay, 1 where odd rows do."""
    odd_x, odd_y = numbers
    sums = ib.allocate("uint16", (2 * _STEPS * STEP + _LANES,), "sums", scope="local")
    middle = T.add(T.mul(y, T.const(2)), odd_y)
    with ib.for_range(0, T.floordiv(T.add(steps, T.const(_STEPS - 1)), T.const(_STEPS)), "part_of_row") as tile:
        count = ib.let("count", T.minimum(T.const(_STEPS), T.sub(steps, T.mul(tile, T.const(_STEPS)))))
        first = ib.let("first", T.add(x0, T.mul(tile, T.const(_STEPS * STEP))))
        left = ib.let("left", T.add(T.mul(first, T.const(2)), T.sub(odd_x, T.const(2))))
        with (
            ib.for_range(0, T.add(count, T.const(1)), "part") as part,
            ib.for_range(0, _LANES, kind="vectorize") as lane,
        ):
            at = T.add(T.mul(part, T.const(_LANES)), lane)
            rows = [planes.read(0, T.add(middle, T.const(n)), T.add(left, at)) for n in range(-2, 3)]
            sums[at] = five([T.cast(v, "uint16") for v in rows])
        with ib.for_range(0, count, "step") as step, ib.for_range(0, STEP, kind="vectorize") as lane:
            x = T.add(T.mul(step, T.const(STEP)), lane)
            total = five([sums[T.add(T.mul(x, T.const(2)), T.const(n))] for n in range(5)])
            value = T.cast(T.shift_right(total, T.const(8, "uint16")), "uint8")
            planes.write(ib, 1, y, T.add(first, x), value)


def _halved_pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
    """As `_halved`, for one pixel."""
    odd_x, odd_y = options
    middle, left = T.add(T.mul(y, T.const(2)), odd_y), T.add(T.mul(x, T.const(2)), odd_x)
    rows = []
    for dy in range(-2, 3):
        row = [T.cast(read(0, T.add(middle, T.const(dy)), T.add(left, T.const(dx))), "uint16") for dx in range(-2, 3)]
        rows.append(five(row))
    return [T.cast(T.shift_right(five(rows), T.const(8, "uint16")), "uint8")]


COPY = Formula("copy_image", (U8,), (U8,), _copied, lanes=WIDE)
HALVED = Formula(
    "gaussian_half", (U8,), (U8,), _halved_pixel, 2, same_size=False, numbers=("int32", "int32"), row=_halved
)


@once
def converted(source: DataType, target: DataType) -> Formula:
    """The same values in another type, saturated."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [saturated(T.cast(read(0, y, x), "int32"), target.dtype)]

    return Formula(f"convert_{source.name}_{target.name}", (source,), (target,), pixel)
