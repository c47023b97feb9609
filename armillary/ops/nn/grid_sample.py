"""image.grid_sample: read an image at places that a tensor gives; and ONNX GridSample.

In: data (N, C, spatial…) and a grid of x, y[, z] in [-1, 1]: (N, rank, out spatial…) as in Relay, or with grid_axis=-1
(N, out spatial…, rank) as in ONNX. Out: (N, C, out spatial…). Methods nearest, bilinear (linear in 3-D too) and bicubic
(2-D); padding zeros, border or reflection. Out of range is decided per element read. Invariant: nothing outside of the
data is read. TE: one stage, which reads the first element in place of what lies outside; `sampled_rows` is the same in
stages: where each output reads and with what weight, once for all channels, from rows of channels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._convert import convert
from armillary.ops._deferred import T, te
from armillary.ops._types import accumulator
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_float,
    need_shape,
    need_tensor,
    numpy_within,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

V = TypeVar("V", Array, "te.Expr")
D = TypeVar("D")
METHODS = ("nearest", "bilinear", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
ALPHA = -0.75


@record
class GridSampleAttrs:
    """grid_axis: the axis of the grid that holds x, y[, z]: 1 or -1."""

    method: str = "bilinear"
    layout: str = "NCHW"
    padding_mode: str = "zeros"
    align_corners: bool = True
    grid_axis: int = 1


NAME = "image.grid_sample"
grid_sample = Op(NAME, kind=Kind.CONTRACTION, inputs=("data", "grid"), doc="Interpolation at given places.")
grid_sample.attrs(GridSampleAttrs)


@grid_sample.infer
def _infer(attrs: GridSampleAttrs, data: Type, grid: Type) -> TensorType:
    x, g = need_float(NAME, need_tensor(NAME, data)), need_float(NAME, need_tensor(NAME, grid, "grid"), "grid")
    need_dtype(NAME, x, g)
    if attrs.method not in METHODS or attrs.padding_mode not in PADDINGS:
        raise TypeMismatch(f"{NAME}: unknown method {attrs.method!r} or padding_mode {attrs.padding_mode!r}")
    if x.ndim not in (4, 5) or attrs.layout != {4: "NCHW", 5: "NCDHW"}[x.ndim]:
        raise TypeMismatch(f"{NAME}: data must be NCHW or NCDHW, got {x} in layout {attrs.layout}")
    if attrs.method == "bicubic" and x.ndim != 4:
        raise TypeMismatch(f"{NAME}: bicubic needs two spatial axes, got {x.ndim - 2}")
    if 0 in x.shape[2:]:
        raise TypeMismatch(f"{NAME}: {x} has no pixels to sample")
    if attrs.grid_axis not in (1, -1):
        raise TypeMismatch(f"{NAME}: grid_axis is {attrs.grid_axis}, wanted 1 or -1")
    spots = spots_of(attrs, g.shape)[1:]
    wanted = (x.ndim - 2, *spots) if attrs.grid_axis == 1 else (*spots, x.ndim - 2)
    need_shape(NAME, "grid", g, (x.shape[0], *wanted[: x.ndim - 1]))
    return TensorType((*x.shape[:2], *spots), x.dtype)


def spots_of(attrs: GridSampleAttrs, shape: Sequence[D]) -> tuple[D, ...]:
    """The sizes of a grid but for its axis of coordinates."""
    return tuple(d for axis, d in enumerate(shape) if axis != attrs.grid_axis % len(shape))


def _coordinate(attrs: GridSampleAttrs, grid: Tensor, spot: Sequence[te.Expr], k: int) -> te.Expr:
    """Coordinate k of a spot (n, place…)."""
    return grid(spot[0], k, *spot[1:]) if attrs.grid_axis == 1 else grid(*spot, k)


@record
class Arithmetic(Generic[V]):
    """The functions the formulas need, in numpy or in TE."""

    floor: Callable[[V], V]
    nearest: Callable[[V], V]
    minimum: Callable[[V, V | float], V]
    maximum: Callable[[V, V | float], V]
    select: Callable[[V, V, V], V]
    fabs: Callable[[V], V]


def _unnormalised(value: V, size: float | V, align: bool) -> V:
    result: V = (value + 1) * ((size - 1) * 0.5) if align else ((value + 1) * size - 1) * 0.5
    return result


def _bounded(m: Arithmetic[V], at: V, size: float | V, attrs: GridSampleAttrs) -> V:
    """A place brought back into the image, for border and reflection."""
    if attrs.padding_mode == "border":
        return m.minimum(m.maximum(at, 0.0), size - 1)
    if attrs.padding_mode == "reflection":
        low, span = (0.0, size - 1) if attrs.align_corners else (-0.5, size)
        if size == 1 and attrs.align_corners:
            return at * 0.0
        if not isinstance(span, float):  # one element between its own centres: any span gives it
            span = m.maximum(span, 1.0)
        distance = m.fabs(at - low)
        flips = m.floor(distance / span)
        rest = distance - flips * span
        odd = flips - m.floor(flips * 0.5) * 2
        mirrored = m.select(odd > 0.5, span - rest, rest) + low
        return m.minimum(m.maximum(mirrored, 0.0), size - 1)
    return at


def _cubic_weights(t: V) -> list[V]:
    """Weights of the four neighbours, for the fraction t."""

    def near(d: V) -> V:
        result: V = ((d * (ALPHA + 2) - (ALPHA + 3)) * d) * d + 1
        return result

    def far(d: V) -> V:
        result: V = ((d * ALPHA - 5 * ALPHA) * d + 8 * ALPHA) * d - 4 * ALPHA
        return result

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _neighbours(m: Arithmetic[V], at: V, size: float | V, attrs: GridSampleAttrs) -> list[tuple[V, V | None]]:
    """(place, weight) along one axis; places are whole numbers, still as reals."""
    if attrs.method == "nearest":
        return [(_bounded(m, m.nearest(at), size, attrs), None)]
    if attrs.method == "bilinear":
        at = _bounded(m, at, size, attrs)
        low = m.floor(at)
        fraction = at - low
        return [(low, 1 - fraction), (low + 1, fraction)]
    low = m.floor(at)
    places = [_bounded(m, low + (k - 1), size, attrs) for k in range(4)]
    return list(zip(places, _cubic_weights(at - low), strict=True))


def _sampled(
    m: Arithmetic[V],
    places: list[V],
    sizes: Sequence[float | V],
    attrs: GridSampleAttrs,
    read: Callable[[list[V]], V],
) -> V:
    """The weighted sum over all neighbours; `read` takes one place per spatial axis."""
    per_axis = [
        _neighbours(m, _unnormalised(p, s, attrs.align_corners), s, attrs) for p, s in zip(places, sizes, strict=True)
    ]
    total: V | None = None
    for corner in itertools.product(*per_axis):
        value = read([place for place, _ in corner])
        for _, weight in corner:
            value = value if weight is None else value * weight
        total = value if total is None else total + value
    assert total is not None, "a place has neighbours"
    return total


_NUMPY: Arithmetic[Array] = Arithmetic(np.floor, np.rint, np.minimum, np.maximum, np.where, np.abs)


@grid_sample.reference
def _reference(attrs: GridSampleAttrs, x: Array, grid: Array) -> Array:
    sizes, g = x.shape[2:], np.moveaxis(grid, attrs.grid_axis, -1).astype(np.float64)
    places = [g[..., k] for k in reversed(range(len(sizes)))]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * len(sizes))

    def read(at: list[Array]) -> Array:
        inside = np.logical_and.reduce([(p >= 0) & (p <= s - 1) for p, s in zip(at, sizes, strict=True)])
        index = tuple(numpy_within(p, s - 1).astype(np.int64) for p, s in zip(at, sizes, strict=True))
        values = np.moveaxis(x, 1, -1)[(batch, *index)]
        return np.moveaxis(np.where(inside[..., None], values, 0), -1, 0)

    result: Array = np.moveaxis(_sampled(_NUMPY, places, sizes, attrs, read), 0, 1).astype(x.dtype)
    return result


def _te_arithmetic() -> Arithmetic[te.Expr]:
    return Arithmetic(te.floor, te.nearbyint, T.minimum, T.maximum, T.select, lambda v: T.maximum(v, -v))


@grid_sample.compute
def _compute(attrs: GridSampleAttrs, x: Tensor, grid: Tensor) -> Tensor:
    sizes = te.extents(x)[2:]
    rank, ends = len(sizes), [float(s) if isinstance(s, int) else T.cast(s, "float32") for s in sizes]
    m, wide = _te_arithmetic(), accumulator(x.dtype)  # no 16-bit float holds the places of a long row

    def element(n: te.Expr, c: te.Expr, *at: te.Expr) -> te.Expr:
        places = [T.cast(_coordinate(attrs, grid, (n, *at), k), wide) for k in reversed(range(rank))]

        def read(where: list[te.Expr]) -> te.Expr:
            inside = T.all_of(*(t for p, end in zip(where, ends, strict=True) for t in (p >= 0.0, p <= end - 1.0)))
            index = [T.cast(T.select(inside, p, T.const(0, p.dtype)), "int32") for p in where]  # a vector of loads
            return T.select(inside, T.cast(x(n, c, *index), wide), T.const(0, wide))

        return convert(_sampled(m, places, ends, attrs, read), x.dtype)

    shape = [x.shape[0], x.shape[1], *spots_of(attrs, grid.shape)[1:]]
    result: Tensor = te.compute(shape, element, name="grid_sample", tag="injective")
    return result


def sampled_rows(attrs: GridSampleAttrs, x: Tensor, grid: Tensor) -> Tensor:
    """Rows of the channels of each element (and one of zeros, which is what lies outside), and weighted sums of them.

    Stages: `grid_rows` (N, elements + 1, C); of each neighbour `grid_place`, its row, and `grid_weight`.
    """
    batch, channels, *sizes = te.static_shape(x)
    m, elements, spots = _te_arithmetic(), math.prod(sizes), spots_of(attrs, te.static_shape(grid))

    def row(n: te.Expr, r: te.Expr, c: te.Expr) -> te.ExprLike:
        at = [r // math.prod(sizes[k + 1 :]) % size for k, size in enumerate(sizes)]
        return te.if_then_else(r < elements, x(n, c, *at), T.const(0, x.dtype))

    def neighbours(*at: te.Expr) -> list[list[tuple[te.Expr, te.Expr | None]]]:
        coordinates = [_coordinate(attrs, grid, at, k) for k in reversed(range(len(sizes)))]
        along = [
            _neighbours(m, _unnormalised(p, float(s), attrs.align_corners), float(s), attrs)
            for p, s in zip(coordinates, sizes, strict=True)
        ]
        return [list(corner) for corner in itertools.product(*along)]

    def place(k: int, *at: te.Expr) -> te.Expr:
        index = T.const(0, "int32")
        corner = neighbours(*at)[k]
        inside = T.all_of(*(c for (p, _), s in zip(corner, sizes, strict=True) for c in (p >= 0.0, p <= float(s - 1))))
        for (p, _), size in zip(corner, sizes, strict=True):
            index = index * size + T.cast(T.select(inside, p, T.const(0, p.dtype)), "int32")
        return T.select(inside, index, T.const(elements))

    def weight(k: int, *at: te.Expr) -> te.Expr:
        result: te.Expr = functools.reduce(T.mul, [w for _, w in neighbours(*at)[k] if w is not None])
        return result

    rows = te.compute((batch, elements + 1, channels), row, name="grid_rows", tag="packed")
    corners = range({"nearest": 1, "bilinear": 2, "bicubic": 4}[attrs.method] ** len(sizes))
    places = [te.compute(spots, functools.partial(place, k), name="grid_place", tag="grid_place") for k in corners]
    weights: list[Tensor] = []
    if attrs.method != "nearest":
        tag = "grid_weight"
        weights = [te.compute(spots, functools.partial(weight, k), name=tag, tag=tag) for k in corners]

    def element(n: te.Expr, c: te.Expr, *at: te.Expr) -> te.Expr:
        values = [rows(n, p(n, *at), c) for p in places]
        terms = [v * w(n, *at) for v, w in zip(values, weights, strict=False)] or values
        result: te.Expr = functools.reduce(T.add, terms)
        return result

    result: Tensor = te.compute((batch, channels, *spots[1:]), element, name="grid_sample", tag="grid_sample")
    return result


@grid_sample.samples
def _samples() -> Iterator[Sample]:
    for method, padding, align in itertools.product(METHODS, PADDINGS, (True, False)):
        attrs = GridSampleAttrs(method, "NCHW", padding, align)
        yield Sample(attrs, (f32(2, 3, 5, 4), f32(2, 2, 3, 5)), (-1.4, 1.4), 1e-4, 1e-4)
    last = GridSampleAttrs(grid_axis=-1)
    yield Sample(last, (f32(2, 3, 5, 4), f32(2, 3, 5, 2)), (-1.4, 1.4), 1e-4, 1e-4)
    yield Sample(GridSampleAttrs(layout="NCDHW"), (f32(1, 2, 3, 4, 3), f32(1, 3, 2, 3, 2)), (-1.2, 1.2), 1e-4, 1e-4)


@grid_sample.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(GridSampleAttrs("magic"), (f32(1, 2, 4, 4), f32(1, 2, 2, 2)), "unknown method 'magic'")
    yield BadSample(GridSampleAttrs(), (f32(1, 2, 4, 4), f32(1, 3, 2, 2)), "grid has shape")
    yield BadSample(GridSampleAttrs(grid_axis=-1), (f32(1, 2, 4, 4), f32(1, 2, 2, 3)), "grid has shape")
    yield BadSample(GridSampleAttrs(grid_axis=2), (f32(1, 2, 4, 4), f32(1, 2, 2, 3)), "wanted 1 or -1")
