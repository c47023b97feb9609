"""Optical flow of one level of two pyramids as loops over points.

In: points, a row each (`OLD` and `NEW` places, `IS_FOUND`), work space, both images, the gradients of the first, and a
row of `SETTINGS`. Out: `NEW` places, and whether each point was found. Invariant: pixels between pixels have weights of
14 bits and keep 5 bits of fraction, sums over windows are whole numbers, as in the library. Source: Bouguet 2001,
"Pyramidal implementation of the affine Lucas Kanade feature tracker".
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.compute.core.loops import Loops, Plane
from armillary.compute.functions.formulas.expressions import below, f32, root
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar, IRBuilder

OLD, NEW, IS_FOUND, WIDTH = 0, 2, 4, 5  # of a point's row of float32: x and y, x and y, 0 or 1
SETTINGS = ("divisor", "scale", "side", "steps", "epsilon", "watches", "is_last", "left", "top", "right", "bottom")
_BITS, _FRACTION = 14, 5
_UNIT = 1.0 / (1 << 20)
_LEAST_EIGENVALUE, _LEAST_DETERMINANT = 1e-4, 1e-7
_STILL = 0.01  # two steps that take each other back, up to this, end the iterations
_ZERO, _ONE, _HALF = T.const(0), T.const(1), f32(0.5)
Settings = dict[str, Expr]


def _less(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b - c, rounded once: near 0 the library's determinants are what its fused instructions make of them."""
    return T.call("fma", a, b, T.neg(c))


class _Spot:
    """A place between pixels: the corner of the window around it, and the weights of four neighbours."""

    def __init__(self, ib: IRBuilder, name: str, at: tuple[Expr, Expr], side: Expr) -> None:
        whole = [ib.let(f"{name}_{n}", T.cast(v, "int32")) for n, v in zip("xy", at, strict=True)]
        part_x, part_y = (T.sub(v, f32(w)) for v, w in zip(at, whole, strict=True))
        far_x, far_y = T.sub(f32(1.0), part_x), T.sub(f32(1.0), part_y)
        weights: list[Expr] = []
        for n, share in enumerate((T.mul(far_x, far_y), T.mul(part_x, far_y), T.mul(far_x, part_y))):
            rounded = T.cast(T.add(T.mul(share, f32(1 << _BITS)), _HALF), "int32")
            weights.append(ib.let(f"{name}_weight{n}", rounded))
        rest = T.sub(T.const(1 << _BITS), T.add(T.add(*weights[:2]), weights[2]))
        self._weights = [*weights, ib.let(f"{name}_weight3", rest)]
        half = T.floordiv(side, T.const(2))
        self._x, self._y = (ib.let(f"{name}_first_{n}", T.sub(w, half)) for n, w in zip("xy", whole, strict=True))

    def pixel(self, plane: Plane, down: Expr, along: Expr, shift: int) -> Expr:
        """A pixel of the window, less `shift` bits."""
        y, x = T.add(self._y, down), T.add(self._x, along)
        places = ((y, x), (y, T.add(x, _ONE)), (T.add(y, _ONE), x), (T.add(y, _ONE), T.add(x, _ONE)))
        total: Expr = T.const(1 << (shift - 1))
        for weight, place in zip(self._weights, places, strict=True):
            total = T.add(total, T.mul(T.cast(plane[place], "int32"), weight))
        return T.shift_right(total, T.const(shift))


class _Point:
    """What emits the work for one point: its row, the planes, its local variables."""

    def __init__(self, ib: IRBuilder, planes: Sequence[Plane], y: Expr, settings: Settings) -> None:
        self._ib, self._settings, self._y = ib, settings, y
        self._points, self._windows, self._old, self._new, self._gx, self._gy, _ = planes
        self._sums: BufferVar = ib.allocate("int32", (3,), "sums")
        self._going: BufferVar = ib.allocate("int32", (1,), "going")
        self._before: BufferVar = ib.allocate("float32", (2,), "before")

    def _at(self, which: int) -> tuple[Expr, Expr]:
        return self._points[self._y, T.const(which)], self._points[self._y, T.const(which + 1)]

    def _stops_outside(self, which: int) -> None:
        """End the work unless the window around a place is inside the valid region."""
        half = T.floordiv(self._settings["side"], T.const(2))
        checks = []
        for value, low, high in zip(self._at(which), ("left", "top"), ("right", "bottom"), strict=True):
            place = below(value)
            checks.append(T.greater_equal(T.sub(place, half), self._settings[low]))
            checks.append(T.less(T.add(place, half), T.sub(self._settings[high], _ONE)))
        with self._ib.if_scope(T.logical_not(T.all_of(*checks))):
            self._stop()

    def _stop(self) -> None:
        """The point is lost; on the last level for good."""
        self._going[0] = _ZERO
        with self._ib.if_scope(T.not_equal(self._settings["is_last"], _ZERO)):
            self._points[self._y, T.const(IS_FOUND)] = f32(0.0)

    def _window(self, down: Expr, along: Expr) -> list[tuple[Expr, Expr]]:
        """Where the gradients along x and y and the first image's pixel of a window are kept."""
        side = self._settings["side"]
        first = T.add(T.mul(down, side), along)
        area = T.mul(side, side)
        return [(self._y, T.add(first, T.mul(area, T.const(n)))) for n in range(3)]

    def measure(self) -> list[Expr]:
        """Keep the window's gradients and pixels; the matrix of the two equations (xx, xy, yy) and its determinant."""
        ib, side = self._ib, self._settings["side"]
        for n in range(3):
            self._sums[n] = _ZERO
        with ib.if_scope(T.not_equal(self._going[0], _ZERO)):
            spot = _Spot(ib, "old", self._at(OLD), side)
            with ib.for_range(0, side, "down") as down, ib.for_range(0, side, "along") as along:
                gx, gy = (
                    ib.let(f"g{n}", spot.pixel(plane, down, along, _BITS))
                    for n, plane in (("x", self._gx), ("y", self._gy))
                )
                retained = (gx, gy, spot.pixel(self._old, down, along, _BITS - _FRACTION))
                for place, value in zip(self._window(down, along), retained, strict=True):
                    self._windows[place] = value
                for n, (a, b) in enumerate(((gx, gx), (gx, gy), (gy, gy))):
                    self._sums[n] = T.add(self._sums[n], T.mul(a, b))
        xx, xy, yy = (ib.let(f"total{n}", T.mul(f32(self._sums[n]), f32(_UNIT))) for n in range(3))
        determinant = ib.let("determinant", _less(xx, yy, T.mul(xy, xy)))
        trace = T.add(xx, yy)
        spread = root(T.maximum(_less(trace, trace, T.mul(f32(4.0), determinant)), f32(0.0)))
        least = T.div(T.sub(trace, spread), f32(T.mul(T.const(2), T.mul(side, side))))
        is_flat = T.any_of(
            T.less(least, f32(_LEAST_EIGENVALUE)),
            T.less(T.cast(determinant, "float64"), T.const(_LEAST_DETERMINANT, "float64")),
        )
        with ib.if_scope(T.all_of(T.not_equal(self._going[0], _ZERO), is_flat)):
            self._stop()
        return [xx, xy, yy, determinant]

    def step(self, matrix: Sequence[Expr], turn: Expr) -> None:
        """Move by the solution of the two equations; end where the step is small, or takes the last one back."""
        ib, side = self._ib, self._settings["side"]
        spot = _Spot(ib, "new", self._at(NEW), side)
        self._sums[0] = self._sums[1] = _ZERO
        with ib.for_range(0, side, "down") as down, ib.for_range(0, side, "along") as along:
            gx, gy, pixel = (self._windows[place] for place in self._window(down, along))
            moved = ib.let("moved", T.sub(spot.pixel(self._new, down, along, _BITS - _FRACTION), pixel))
            for n, slope in enumerate((gx, gy)):
                self._sums[n] = T.add(self._sums[n], T.mul(moved, slope))
        xx, xy, yy, determinant = (T.cast(v, "float64") for v in matrix)
        b1, b2 = (T.cast(T.mul(f32(self._sums[n]), f32(_UNIT)), "float64") for n in (0, 1))
        exact = (_less(xy, b2, T.mul(yy, b1)), _less(xy, b1, T.mul(xx, b2)))
        by = [ib.let(f"by_{n}", T.cast(T.div(v, determinant), "float32")) for n, v in zip("xy", exact, strict=True)]
        for n, distance in enumerate(by):
            place = (self._y, T.const(NEW + n))
            self._points[place] = T.add(self._points[place], distance)
        is_small = T.less_equal(T.call("fma", by[1], by[1], T.mul(by[0], by[0])), self._settings["epsilon"])
        is_done = T.all_of(T.not_equal(self._settings["watches"], _ZERO), is_small)
        sums = [T.add(v, self._before[n]) for n, v in enumerate(by)]
        is_back = [T.less(T.maximum(v, T.neg(v)), f32(_STILL)) for v in sums]
        turns_back = T.all_of(T.logical_not(is_done), T.greater(turn, _ZERO), *is_back)
        with ib.if_scope(turns_back):
            for n, distance in enumerate(by):
                place = (self._y, T.const(NEW + n))
                self._points[place] = T.call("fma", T.neg(distance), self._settings["scale"], self._points[place])
        with ib.if_scope(T.any_of(is_done, turns_back)):
            self._going[0] = _ZERO
        for n, distance in enumerate(by):
            self._before[n] = distance

    def track(self) -> None:
        """All of a level."""
        ib = self._ib
        for n in range(IS_FOUND):
            place = (self._y, T.const(n))
            self._points[place] = T.div(self._points[place], self._settings["divisor"])
        self._going[0] = _ONE
        self._before[0] = self._before[1] = f32(0.0)
        self._stops_outside(OLD)
        matrix = self.measure()
        with ib.for_range(0, self._settings["steps"], "turn") as turn:
            with ib.if_scope(T.not_equal(self._going[0], _ZERO)):
                self._stops_outside(NEW)
            with ib.if_scope(T.not_equal(self._going[0], _ZERO)):
                self.step(matrix, turn)


_REAL = ("divisor", "scale", "epsilon")


def _emit(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    del columns
    settings: Settings = {}
    for n, name in enumerate(SETTINGS):
        value = planes[-1][_ZERO, T.const(n)]
        settings[name] = ib.let(name, value if name in _REAL else T.cast(value, "int32"))
    with ib.for_range(0, rows, "row") as row:
        _Point(ib, planes, ib.let("y", T.add(y0, row)), settings).track()


# Planes: points, windows, images, gradients, settings.
TRACK = Loops("track_points", ("float32", "int32", "uint8", "uint8", "int16", "int16", "float32"), _emit)
