"""Other sizes and places: scaling, remapping, affine and perspective warps.

In: an image, and a row of real numbers (ratios, a matrix) or two maps of places. Out: the pixel there: the nearest one,
between four, or the mean of a box. Invariant: no pixel beside the image is read: what lies there is a constant or the
nearest pixel, by the options (kind of border, constant).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from armillary.compute.core.compiled import Formula, Read
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Options, Pixel, f32, truncated
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32
Place = Callable[[Read, Expr, Expr], tuple[Expr, Expr]]  # (read, y, x) to the place in the input: x, y
MOST_BOX = 9  # rows or columns that a mean of AREA adds up
# The row of numbers: width and height of the input first
WIDTH, HEIGHT, FIRST = 0, 1, 2


def _number(read: Read, at: int) -> Expr:
    return read(1, T.const(0), T.const(at))


def _floor(value: Expr) -> Expr:
    return T.cast(T.call("floor", value), "int32")


def _whole(value: Expr) -> Expr:
    """Without its fraction; -0.5 is 0."""
    return T.cast(value, "int32")


class _Image:
    """The input, with what lies beside it."""

    def __init__(self, read: Read, options: Options) -> None:
        self._read, (self._border, self._constant) = read, options
        self.width, self.height = (_number(read, at) for at in (WIDTH, HEIGHT))
        self._last_x, self._last_y = (T.sub(T.cast(n, "int32"), T.const(1)) for n in (self.width, self.height))

    def at(self, x: Expr, y: Expr) -> Expr:
        """A pixel."""
        near_x = T.minimum(T.maximum(x, T.const(0)), self._last_x)
        near_y = T.minimum(T.maximum(y, T.const(0)), self._last_y)
        found = self._read(0, near_y, near_x)
        if self._border != "constant":
            return found
        inside = T.all_of(
            T.greater_equal(x, T.const(0)),
            T.less_equal(x, self._last_x),
            T.greater_equal(y, T.const(0)),
            T.less_equal(y, self._last_y),
        )
        return T.select(inside, found, T.const(self._constant, str(found.dtype)))

    def between(self, x: Expr, y: Expr) -> Expr:
        """The mean of four pixels, by nearness; a place beside the image counts as one beside its edge."""
        x = T.maximum(f32(-1.0), T.minimum(x, self.width))
        y = T.maximum(f32(-1.0), T.minimum(y, self.height))
        left, top = _floor(x), _floor(y)
        dx, dy = T.sub(x, f32(left)), T.sub(y, f32(top))
        ex, ey = T.sub(f32(1.0), dx), T.sub(f32(1.0), dy)
        total: Expr | None = None
        for down, along, weight in (
            (0, 0, T.mul(ex, ey)),
            (0, 1, T.mul(dx, ey)),
            (1, 0, T.mul(ex, dy)),
            (1, 1, T.mul(dx, dy)),
        ):
            part = T.mul(f32(self.at(T.add(left, T.const(along)), T.add(top, T.const(down)))), weight)
            total = part if total is None else T.add(total, part)
        assert total is not None, "there are four"
        return total


def _scaled(offset: float) -> Place:
    def place(read: Read, y: Expr, x: Expr) -> tuple[Expr, Expr]:
        def along(at: Expr, number: int) -> Expr:
            return T.sub(T.mul(T.add(f32(at), f32(0.5)), _number(read, number)), f32(offset))

        return along(x, FIRST), along(y, FIRST + 1)

    return place


def _mapped(read: Read, y: Expr, x: Expr) -> tuple[Expr, Expr]:
    return read(2, y, x), read(3, y, x)


def _moved(is_perspective: bool) -> Place:
    """By a matrix of three rows, given by columns, as OpenVX has it: x, y (and a divisor) of a column's factors."""
    rows = 3 if is_perspective else 2

    def place(read: Read, y: Expr, x: Expr) -> tuple[Expr, Expr]:
        def row(at: int) -> Expr:
            factors = [_number(read, FIRST + at + rows * n) for n in range(3)]
            return T.add(T.add(T.mul(factors[0], f32(x)), T.mul(factors[1], f32(y))), factors[2])

        if not is_perspective:
            return row(0), row(1)
        divisor = row(2)
        return T.div(row(0), divisor), T.div(row(1), divisor)

    return place


def _nearest(place: Place, whole: Callable[[Expr], Expr] = _floor) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        image = _Image(read, options)
        at_x, at_y = place(read, y, x)
        return [image.at(whole(at_x), whole(at_y))]

    return pixel


def _bilinear(place: Place, kind: DataType) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        value = _Image(read, options).between(*place(read, y, x))
        return [value if kind is F32 else truncated(value, kind.dtype)]

    return pixel


def _kept(box: tuple[int, int], at: Expr, size: Expr) -> tuple[list[tuple[int, Expr]], Expr]:
    """The places of a box with whether each counts, and how many do: a box ends one pixel beside the image."""
    low, high = (T.const(n) for n in box)
    begin = T.select(T.less(T.add(at, f32(low)), f32(-1.0)), T.const(-1), low)
    end = T.select(T.greater(T.add(at, f32(high)), size), T.cast(T.sub(size, at), "int32"), high)
    places = [
        (n, T.all_of(T.less_equal(begin, T.const(n)), T.less_equal(T.const(n), end))) for n in range(box[0], box[1] + 1)
    ]
    return places, T.maximum(T.add(T.sub(end, begin), T.const(1)), T.const(1))


def _area(columns: tuple[int, int], rows: tuple[int, int]) -> Pixel:
    """The mean of the pixels from floor(-ratio / 2) to ceil(ratio / 2) around the place, towards zero."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        image = _Image(read, options)
        at_x, at_y = _scaled(0.5)(read, y, x)
        left, top = _floor(at_x), _floor(at_y)
        along, wide = _kept(columns, at_x, image.width)
        down, high = _kept(rows, at_y, image.height)
        total: Expr = T.const(0)
        for dy, has_row in down:
            for dx, has_column in along:
                pixel = T.cast(image.at(T.add(left, T.const(dx)), T.add(top, T.const(dy))), "int32")
                total = T.add(total, T.select(T.all_of(has_row, has_column), pixel, T.const(0)))
        return [T.cast(T.floordiv(total, T.mul(wide, high)), "uint8")]

    return pixel


def _formula(name: str, kind: DataType, pixel: Pixel, maps: int = 0) -> Formula:
    inputs = (kind, F32, *((F32,) * maps))
    return Formula(f"{name}_{kind.name}", inputs, (kind,), pixel, same_size=False)


@cache
def scale(policy: str, kind: DataType) -> Formula:
    """The nearest pixel, or between four."""
    pixel = _nearest(_scaled(0.0)) if policy == "nearest" else _bilinear(_scaled(0.5), kind)
    return _formula(f"scale_{policy}", kind, pixel)


@cache
def scale_area(columns: tuple[int, int], rows: tuple[int, int]) -> Formula:
    """The mean of a box of U8."""
    return _formula("scale_area", U8, _area(columns, rows))


@cache
def remap(policy: str) -> Formula:
    """Places from two maps."""
    pixel = _nearest(_mapped, _whole) if policy == "nearest" else _bilinear(_mapped, U8)
    return _formula(f"remap_{policy}", U8, pixel, 2)


@cache
def warp(policy: str, is_perspective: bool) -> Formula:
    """Places by a matrix."""
    place = _moved(is_perspective)
    pixel = _nearest(place) if policy == "nearest" else _bilinear(place, U8)
    return _formula(f"warp_{policy}_{'perspective' if is_perspective else 'affine'}", U8, pixel)
