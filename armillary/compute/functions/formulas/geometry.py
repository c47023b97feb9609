"""Other sizes and places: scaling, remapping, affine and perspective warps.

In: an image, and numbers (a constant, what is valid, ratios or a matrix) or two maps of places. Out: the pixel there:
the nearest one, between four, or the mean of a box. Invariant: no pixel beside the valid ones is read: what lies there
is the constant or, where the border is not "constant", the nearest valid pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.once import once
from armillary.compute.core.compiled import STEP, WIDE, EmitRow, Formula, Numbers, Read, RowPlanes
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.expressions import Options, Pixel, below, f32, truncated
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.intrinsics import four_bytes
from armillary.tir.ir_builder import IRBuilder

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32
Place = Callable[[Read, Expr, Expr, Options], tuple[Expr, Expr]]  # to the place in the input: x, y
MOST_BOX = 9  # rows or columns that a mean of AREA adds up
# The numbers: the constant, the first column and row of the valid pixels and those behind the last, then a place's
_CONSTANT, _LEFT, _TOP, _RIGHT, _BOTTOM, _FIRST = range(6)
_SIDES = ((0, 0), (0, 1), (1, 0), (1, 1))  # rows and columns of the pixels around a place
_PART = 16  # steps of a row whose places are kept together


def _whole(value: Expr) -> Expr:
    """Without its fraction; -0.5 is 0."""
    return T.cast(value, "int32")


class _Image:
    """The input, with what lies beside its valid pixels."""

    def __init__(self, read: Read, border: str, options: Options) -> None:
        self._read, self._border, self._constant = read, border, options[_CONSTANT]
        self.left, self.top, self.right, self.bottom = options[_LEFT:_FIRST]
        self._first_x, self._first_y = (T.cast(n, "int32") for n in (self.left, self.top))
        self._last_x, self._last_y = (T.sub(T.cast(n, "int32"), T.const(1)) for n in (self.right, self.bottom))

    def at(self, x: Expr, y: Expr) -> Expr:
        """A pixel."""
        near_x = T.minimum(T.maximum(x, self._first_x), self._last_x)
        near_y = T.minimum(T.maximum(y, self._first_y), self._last_y)
        result = self._read(0, near_y, near_x)
        if self._border != "constant":
            return result
        inside = T.all_of(
            T.greater_equal(x, self._first_x),
            T.less_equal(x, self._last_x),
            T.greater_equal(y, self._first_y),
            T.less_equal(y, self._last_y),
        )
        return T.select(inside, result, T.cast(self._constant, str(result.dtype)))

    def between(self, x: Expr, y: Expr) -> Expr:
        """The mean of four pixels, by nearness; a place beside the image counts as one beside its edge."""
        x = T.maximum(T.sub(self.left, f32(1.0)), T.minimum(x, self.right))
        y = T.maximum(T.sub(self.top, f32(1.0)), T.minimum(y, self.bottom))
        left, top = below(x), below(y)
        pixels = [self.at(T.add(left, T.const(along)), T.add(top, T.const(down))) for down, along in _SIDES]
        return _mean(pixels, T.sub(x, f32(left)), T.sub(y, f32(top)))


def _mean(pixels: Sequence[Expr], dx: Expr, dy: Expr) -> Expr:
    """Of the four pixels of `_SIDES`, by how near they are."""
    ex, ey = T.sub(f32(1.0), dx), T.sub(f32(1.0), dy)
    parts = [T.mul(f32(p), w) for p, w in zip(pixels, [T.mul(a, b) for b in (ey, dy) for a in (ex, dx)], strict=True)]
    return T.add(T.add(T.add(parts[0], parts[1]), parts[2]), parts[3])


def _scaled(offset: float) -> Place:
    def place(read: Read, y: Expr, x: Expr, options: Options) -> tuple[Expr, Expr]:
        del read

        def along(at: Expr, number: int) -> Expr:
            middle = T.add(f32(at), f32(0.5))
            # rounded once, as the library's compiler has it: rounded twice, a place at the edge of a pixel is beyond it
            return T.call("fma", middle, options[number], f32(-offset)) if offset else T.mul(middle, options[number])

        return along(x, _FIRST), along(y, _FIRST + 1)

    return place


def _mapped(read: Read, y: Expr, x: Expr, options: Options) -> tuple[Expr, Expr]:
    del options
    return read(1, y, x), read(2, y, x)


def _moved(is_perspective: bool) -> Place:
    """By a matrix of three rows, given by columns, as OpenVX has it: x, y (and a divisor) of a column's factors."""
    rows = 3 if is_perspective else 2

    def place(read: Read, y: Expr, x: Expr, options: Options) -> tuple[Expr, Expr]:
        del read

        def row(at: int) -> Expr:
            factors = [options[_FIRST + at + rows * n] for n in range(3)]
            return T.add(T.add(T.mul(factors[0], f32(x)), T.mul(factors[1], f32(y))), factors[2])

        if not is_perspective:
            return row(0), row(1)
        divisor = row(2)
        return T.div(row(0), divisor), T.div(row(1), divisor)

    return place


def _nearest(place: Place, border: str, whole: Callable[[Expr], Expr] = below) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        image = _Image(read, border, options)
        at_x, at_y = place(read, y, x, options)
        return [image.at(whole(at_x), whole(at_y))]

    return pixel


def _bilinear(place: Place, border: str, kind: DataType) -> Pixel:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        value = _Image(read, border, options).between(*place(read, y, x, options))
        return [value if kind is F32 else truncated(value, kind.dtype)]

    return pixel


def _bilinear_row(place: Place, border: str) -> EmitRow:
    """A row of U8 whose places go one way: parts of it that lie inside the image read two pixels as one word.

    The places are kept, so that a part is computed from the same ones whichever way it is.
    """

    def row(ib: IRBuilder, planes: RowPlanes, y: Expr, x0: Expr, steps: Expr, numbers: Numbers) -> None:
        at_x, at_y = (ib.allocate("float32", (_PART * STEP,), name, scope="local") for name in ("at_x", "at_y"))
        words = [ib.allocate("int32", (_PART * STEP,), f"words{n}", scope="local") for n in (0, 1)]
        spots = ib.allocate("int32", (_PART * STEP,), "spots", scope="local")
        left, top, right, bottom = numbers[_LEFT:_FIRST]

        def vectors(count: Expr, emit: Callable[[Expr], None]) -> None:
            with ib.for_range(0, count, "step") as n, ib.for_range(0, STEP, kind="vectorize") as lane:
                emit(T.add(T.mul(n, T.const(STEP)), lane))

        def set_places(k: Expr) -> None:
            at_x[k], at_y[k] = place(planes.read, y, T.add(first, k), numbers)

        def set_spots(k: Expr) -> None:
            spots[k] = T.add(T.mul(below(at_y[k]), planes.pitch(0)), below(at_x[k]))

        def from_words(k: Expr) -> None:
            pixels = [T.bitwise_and(T.shift_right(words[n][k], T.const(8 * side)), T.const(255)) for n, side in _SIDES]
            parts = [T.sub(at, f32(below(at))) for at in (at_x[k], at_y[k])]
            planes.write(ib, 1, y, T.add(first, k), truncated(_mean(pixels, *parts), "uint8"))

        def anywhere(k: Expr) -> None:
            value = _Image(planes.read, border, numbers).between(at_x[k], at_y[k])
            planes.write(ib, 1, y, T.add(first, k), truncated(value, "uint8"))

        with ib.for_range(0, T.floordiv(T.add(steps, T.const(_PART - 1)), T.const(_PART)), "part_of_row") as part:
            count = ib.let("count", T.minimum(T.const(_PART), T.sub(steps, T.mul(part, T.const(_PART)))))
            first = ib.let("first", T.add(x0, T.mul(part, T.const(_PART * STEP))))
            vectors(count, set_places)
            pixels = ib.let("pixels", T.mul(count, T.const(STEP)))
            last = T.sub(pixels, T.const(1))
            rules = []
            # A word has four bytes.
            for at, low, high, behind in ((at_x, left, right, 4.0), (at_y, top, bottom, 2.0)):
                for end in (at[0], at[last]):
                    rules += [T.greater_equal(end, low), T.less(end, T.sub(high, f32(behind)))]
            with ib.if_scope(T.all_of(*rules)):
                vectors(count, set_spots)
                with ib.for_range(0, pixels, "pixel") as k:
                    for n, row_of in enumerate(words):
                        spot = T.add(spots[k], T.mul(planes.pitch(0), T.const(n)))
                        taps = four_bytes(*(planes.read(0, T.const(0), T.add(spot, T.const(b))) for b in range(4)))
                        row_of[k] = T.cast(taps, "int32")
                vectors(count, from_words)
            with ib.else_scope():
                vectors(count, anywhere)

    return row


def _places_inside(box: tuple[int, int], at: Expr, size: Expr) -> tuple[list[tuple[int, Expr]], Expr]:
    """The places of a box with whether each counts, and how many do: a box ends one pixel beside the image."""
    begin, end = _ends_inside(T.const(box[0]), T.const(box[1]), at, size)
    places = [
        (n, T.all_of(T.less_equal(begin, T.const(n)), T.less_equal(T.const(n), end))) for n in range(box[0], box[1] + 1)
    ]
    return places, _count(begin, end)


def _ends_inside(low: Expr, high: Expr, at: Expr, size: Expr) -> tuple[Expr, Expr]:
    """The first and the last place of a box that count."""
    begin = T.select(T.less(T.add(at, f32(low)), f32(-1.0)), T.const(-1), low)
    return begin, T.select(T.greater(T.add(at, f32(high)), size), T.cast(T.sub(size, at), "int32"), high)


def _count(begin: Expr, end: Expr) -> Expr:
    return T.maximum(T.add(T.sub(end, begin), T.const(1)), T.const(1))


def _area(columns: tuple[int, int], rows: tuple[int, int], border: str) -> Pixel:
    """The mean of the pixels from floor(-ratio / 2) to ceil(ratio / 2) around the place, towards zero."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        image = _Image(read, border, options)
        at_x, at_y = _scaled(0.5)(read, y, x, options)
        left, top = below(at_x), below(at_y)
        along, wide = _places_inside(columns, T.sub(at_x, image.left), T.sub(image.right, image.left))
        down, high = _places_inside(rows, T.sub(at_y, image.top), T.sub(image.bottom, image.top))
        total: Expr = T.const(0)
        for dy, has_row in down:
            for dx, has_column in along:
                pixel = T.cast(image.at(T.add(left, T.const(dx)), T.add(top, T.const(dy))), "int32")
                total = T.add(total, T.select(T.all_of(has_row, has_column), pixel, T.const(0)))
        return [T.cast(T.floordiv(total, T.mul(wide, high)), "uint8")]

    return pixel


def _area_row(columns: tuple[int, int], rows: tuple[int, int], border: str, ratio: int) -> EmitRow:
    """A row of means: where the boxes of a step lie inside the image, sums over rows are kept, then added up.

    `ratio`: that of the widths, if it is a whole number, else 0.
    """
    anywhere, count = _area(columns, rows, border), (columns[1] - columns[0] + 1) * (rows[1] - rows[0] + 1)

    def row(ib: IRBuilder, planes: RowPlanes, y: Expr, x0: Expr, steps: Expr, numbers: Numbers) -> None:
        sums = ib.allocate("uint16", (MOST_BOX * STEP + 2 * MOST_BOX + STEP,), "sums", scope="local")
        spots = ib.allocate("int32", (STEP,), "spots", scope="local")
        first_x, first_y, end_x, end_y = (T.cast(n, "int32") for n in numbers[_LEFT:_FIRST])
        top = ib.let("top", below(_scaled(0.5)(planes.read, y, x0, numbers)[1]))
        first_row, last_row = T.add(top, T.const(rows[0])), T.add(top, T.const(rows[1]))
        with ib.for_range(0, steps, "step") as step:
            first = ib.let("first", T.add(x0, T.mul(step, T.const(STEP))))
            with ib.for_range(0, STEP, kind="vectorize") as lane:
                spots[lane] = below(_scaled(0.5)(planes.read, y, T.add(first, lane), numbers)[0])
            left = ib.let("left", T.add(spots[0], T.const(columns[0])))
            beyond = T.add(T.sub(T.add(spots[STEP - 1], T.const(columns[1])), left), T.const(STEP))
            strips = ib.let("strips", T.floordiv(beyond, T.const(STEP)))
            is_inside = T.all_of(
                T.greater_equal(left, first_x),
                T.less_equal(T.add(left, T.mul(strips, T.const(STEP))), end_x),
                T.greater_equal(first_row, first_y),
                T.less(last_row, end_y),
            )
            with ib.if_scope(is_inside):
                with ib.for_range(0, strips, "strip") as strip, ib.for_range(0, STEP, kind="vectorize") as lane:
                    at = T.add(T.mul(strip, T.const(STEP)), lane)
                    lines = [planes.read(0, T.add(first_row, T.const(n)), T.add(left, at)) for n in _range(rows)]
                    sums[at] = _total([T.cast(v, "uint16") for v in lines])
                with ib.for_range(0, STEP, kind="vectorize") as lane:
                    at = T.mul(lane, T.const(ratio)) if ratio else T.sub(spots[lane], spots[0])
                    total = _total([sums[T.add(at, T.const(n))] for n in _range(columns)])
                    mean = T.cast(T.floordiv(total, T.const(count, "uint16")), "uint8")
                    planes.write(ib, 1, y, T.add(first, lane), mean)
            with ib.else_scope(), ib.for_range(0, STEP, kind="vectorize") as lane:
                x = T.add(first, lane)
                planes.write(ib, 1, y, x, anywhere(planes.read, y, x, numbers)[0])

    return row


def _boxes_row(border: str) -> EmitRow:
    """A row of means of boxes whose halves are numbers, pixel by pixel."""

    def row(ib: IRBuilder, planes: RowPlanes, y: Expr, x0: Expr, steps: Expr, numbers: Numbers) -> None:
        image, totals = _Image(planes.read, border, numbers), ib.allocate("int32", (STEP,), "totals", scope="local")
        halves = [T.cast(n, "int32") for n in numbers[_FIRST + 2 :]]
        ends = [(T.sub(T.const(0), half), half) for half in halves]
        extents = [T.add(T.mul(half, T.const(2)), T.const(1)) for half in halves]
        with ib.for_range(0, steps, "step") as step:
            first = ib.let("first", T.add(x0, T.mul(step, T.const(STEP))))

            def box(x: Expr) -> tuple[Expr, Expr, list[tuple[Expr, Expr]]]:
                at_x, at_y = _scaled(0.5)(planes.read, y, x, numbers)
                sizes = (T.sub(image.right, image.left), T.sub(image.bottom, image.top))
                places = (T.sub(at_x, image.left), T.sub(at_y, image.top))
                inside = [_ends_inside(*ends[n], places[n], sizes[n]) for n in (0, 1)]
                return below(at_x), below(at_y), inside

            with ib.for_range(0, STEP, kind="vectorize") as lane:
                totals[lane] = T.const(0)
            with (
                ib.for_range(0, extents[1], "down") as down,
                ib.for_range(0, extents[0], "along") as along,
                ib.for_range(0, STEP, kind="vectorize") as lane,
            ):
                left, top, inside = box(T.add(first, lane))
                away = (T.sub(along, halves[0]), T.sub(down, halves[1]))
                pixel = T.cast(image.at(T.add(left, away[0]), T.add(top, away[1])), "int32")
                limits = [
                    T.all_of(T.less_equal(begin, at), T.less_equal(at, end))
                    for at, (begin, end) in zip(away, inside, strict=True)
                ]
                totals[lane] = T.add(totals[lane], T.select(T.all_of(*limits), pixel, T.const(0)))
            with ib.for_range(0, STEP, kind="vectorize") as lane:
                wide, high = (_count(*each) for each in box(T.add(first, lane))[2])
                mean = T.cast(T.floordiv(totals[lane], T.mul(wide, high)), "uint8")
                planes.write(ib, 1, y, T.add(first, lane), mean)

    return row


def _range(box: tuple[int, int]) -> range:
    return range(box[1] - box[0] + 1)


def _total(values: Sequence[Expr]) -> Expr:
    total = values[0]
    for value in values[1:]:
        total = T.add(total, value)
    return total


def _formula(name: str, kind: DataType, pixel: Pixel, more: int, maps: int = 0, row: EmitRow | None = None) -> Formula:
    """`more`: numbers behind the constant and what is valid."""
    constant = "float32" if kind is F32 else "int32"
    inputs, numbers = (kind, *((F32,) * maps)), (constant, *(("float32",) * (4 + more)))
    return Formula(f"{name}_{kind.name}", inputs, (kind,), pixel, same_size=False, numbers=numbers, row=row)


@once
def scale(policy: str, kind: DataType, border: str) -> Formula:
    """The nearest pixel, or between four; numbers: the ratios."""
    is_nearest = policy == "nearest"
    pixel = _nearest(_scaled(0.0), border) if is_nearest else _bilinear(_scaled(0.5), border, kind)
    return _formula(f"scale_{policy}_{border}", kind, pixel, 2)


@once
def scale_area(columns: tuple[int, int], rows: tuple[int, int], border: str, ratio: int) -> Formula:
    """The mean of a box of U8; numbers: the ratios; `ratio`: that of the widths, if it is a whole number, else 0."""
    row = _area_row(columns, rows, border, ratio)
    return _formula(f"scale_area_{border}", U8, _area(columns, rows, border), 2, row=row)


@once
def scale_boxes(border: str) -> Formula:
    """Means of boxes of any size, for what is built before sizes are known; numbers: ratios, halves of the boxes."""
    return _formula(f"scale_boxes_{border}", U8, _area((-1, 1), (-1, 1), border), 4, row=_boxes_row(border))


@once
def halved(policy: str) -> Formula:
    """Every second pixel (odd ones), or the mean of four, towards zero: what scaling an even size by half gives."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        places = [(T.add(T.mul(y, T.const(2)), dy), T.add(T.mul(x, T.const(2)), dx)) for dy in (0, 1) for dx in (0, 1)]
        if policy == "nearest":
            return [read(0, *places[3])]
        a, b, c, d = (T.cast(read(0, *place), "uint16") for place in places)
        return [T.cast(T.shift_right(T.add(T.add(a, b), T.add(c, d)), T.const(2, "uint16")), "uint8")]

    return Formula(f"halved_{policy}", (U8,), (U8,), pixel, same_size=False, lanes=WIDE)


@once
def remap(policy: str, border: str) -> Formula:
    """Places from two maps."""
    is_nearest = policy == "nearest"
    pixel = _nearest(_mapped, border, _whole) if is_nearest else _bilinear(_mapped, border, U8)
    return _formula(f"remap_{policy}_{border}", U8, pixel, 0, 2)


@once
def warp(policy: str, is_perspective: bool, border: str) -> Formula:
    """Places by a matrix, whose numbers it takes."""
    place, name = _moved(is_perspective), "perspective" if is_perspective else "affine"
    pixel = _nearest(place, border) if policy == "nearest" else _bilinear(place, border, U8)
    row = _bilinear_row(place, border) if policy != "nearest" and not is_perspective else None
    return _formula(f"warp_{policy}_{name}_{border}", U8, pixel, 9 if is_perspective else 6, row=row)
