"""Places and weights of a resize along an axis whose size, or result, is open: computed when the network runs.

In: an axis and its sizes, one of them an extent. Out: for each tap a vector of places and one of weights, as
expressions, which one kernel computes for an axis. Invariant: the formulas are those of `taps` over numbers, in
float64. What needs as many taps as a size says (antialias), and regions of images, have no such form and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Known, least, most
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.ops.nn._windows import call
from armillary.relay.expr import Expr, Tuple, const

if TYPE_CHECKING:
    from armillary.ops.nn.resize import ResizeAttrs

_ROUNDED = 5e-10  # places this close to the next are taken to be there, as rounding to nine digits does
_ZERO, _ONE, _TWO = (const(np.array(value, np.float64)) for value in (0, 1, 2))


@record
class OpenAxis:
    """An axis where one of two sizes is an expression over sizes; a scale that is not stated is their quotient."""

    size: Known
    out: Known
    scale: float | None
    attrs: ResizeAttrs

    @property
    def keeps(self) -> bool:
        """Whether every element keeps its place, whatever the size is."""
        moves = self.attrs.coordinate_transformation_mode in ("tf_crop_and_resize", "tf_half_pixel_for_nn")
        return not moves and self.size == self.out and self.scale in (None, 1.0)


def number(extent: Known) -> Expr:
    """A size as a float64."""
    if isinstance(extent, int):
        return const(np.array(extent, np.float64))
    return call("cast", call("sizes", values=(extent,)), dtype="float64")


def coordinates(axis: OpenAxis) -> Expr:
    """Where each element of the result lies in the input: `_coordinates` of resize.py."""
    mode, out, size = axis.attrs.coordinate_transformation_mode, number(axis.out), number(axis.size)
    if mode == "tf_crop_and_resize" or (axis.attrs.antialias and (axis.scale is None or axis.scale < 1)):
        what = "antialias" if axis.attrs.antialias else mode
        raise UnsupportedError(
            f"image.resize of {axis.size} to {axis.out} elements: {what} needs numbers",
            hint="fix the size of the images with shape=, or compile several with variants=",
        )
    i = call("cast", call("arange", start=0, stop=axis.out, step=1, dtype="int32"), dtype="float64")
    scale = const(np.array(axis.scale, np.float64)) if axis.scale is not None else out / size
    if mode == "align_corners":
        spans = number(most(axis.out - 1, 1)) if axis.scale is None else call("maximum", scale * size - 1.0, _ONE)
        return i * (number(axis.size - 1) / spans)
    if mode == "asymmetric":
        return i / scale
    x = (i + 0.5) / scale
    if mode == "tf_half_pixel_for_nn":
        return x
    if mode == "pytorch_half_pixel":
        return (x - 0.5) * number(least(axis.out - 1, 1))
    if mode == "half_pixel_symmetric":
        return x - 0.5 + size * 0.5 * (1.0 - out / (scale * size))
    return x - 0.5


def nearest(axis: OpenAxis, rounding: str) -> Expr:
    """The place of each element of the result."""
    x = coordinates(axis)
    if rounding == "floor":
        place = call("floor", x + _ROUNDED)
    elif rounding == "ceil":
        place = call("ceil", x - _ROUNDED)
    elif rounding == "round_prefer_floor":
        place = call("ceil", x - (0.5 + _ROUNDED))
    else:
        place = call("floor", x + (0.5 + _ROUNDED))
    return _stored([_inside(place, axis)], [])[0][0]


def taps(axis: OpenAxis, reach: int, weight: Callable[[Expr], Expr]) -> tuple[list[Expr], list[Expr]]:
    """Places and weights of the 2 * reach taps around each element; `weight` is of a distance."""
    x = coordinates(axis)
    first = call("floor", x) - float(reach - 1)
    places = [first + float(k) for k in range(2 * reach)]
    weights = [weight(place - x) for place in places]
    if axis.attrs.cubic_exclude and reach > 1:
        end = number(axis.size - 1)
        within = [call("logical_and", call("greater_equal", p, _ZERO), call("less_equal", p, end)) for p in places]
        weights = [call("where", inside, w, _ZERO) for inside, w in zip(within, weights, strict=True)]
        total = weights[0]
        for w in weights[1:]:
            total = total + w
        weights = [w / total for w in weights]
    return _stored([_inside(p, axis) for p in places], [call("cast", w, dtype="float32") for w in weights])


def _stored(places: list[Expr], weights: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The same vectors as rows of one tensor, which is not fused into its readers: there each pixel would compute its
    places and weights again, in float64."""
    bits = [call("reinterpret", w, dtype="int32") for w in weights]
    table = call("annotation.stop_fusion", call("stack", Tuple((*places, *bits)), axis=0))
    rows = [call("take", table, const(np.array(k, np.int32)), axis=0) for k in range(len(places) + len(weights))]
    return rows[: len(places)], [call("reinterpret", row, dtype="float32") for row in rows[len(places) :]]


def linear(distance: Expr) -> Expr:
    """The weight of a place at this distance."""
    return call("maximum", 1.0 - call("abs", distance), _ZERO)


def cubic(a: float) -> Callable[[Expr], Expr]:
    """The weight of a place at a distance, by a cubic of coefficient `a`."""

    def weight(distance: Expr) -> Expr:
        t = call("abs", distance)
        near = ((a + 2) * t - (a + 3)) * t * t + 1.0
        far = call("where", call("less", t, _TWO), ((t - 5.0) * t + 8.0) * t * a - 4 * a, _ZERO)
        return call("where", call("less_equal", t, _ONE), near, far)

    return weight


def _inside(place: Expr, axis: OpenAxis) -> Expr:
    place = call("minimum", call("maximum", place, _ZERO), number(axis.size - 1))
    return call("cast", place, dtype="int32")
