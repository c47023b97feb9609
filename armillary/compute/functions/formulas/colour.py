"""Colours: from RGB to YUV and back by BT.709, and between packed, planar and half-sized chroma.

In: the planes of a format. Out: the planes of another one. Invariant: the coefficients are OpenVX's; results lose their
fraction; chroma of half size is the mean of four pixels' going in, and holds for four pixels coming out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.compute.core.compiled import Read
from armillary.compute.functions.formulas.expressions import f32, truncated
from armillary.tir import build as T
from armillary.tir.expr import Expr

Triple = tuple[Expr, Expr, Expr]
Reader = Callable[[Read, Expr, Expr], Triple]
_LUMA = (0.2126, 0.7152, 0.0722)
_TO_U, _TO_V = 0.5389, 0.6350
_RED_V, _GREEN_U, _GREEN_V, _BLUE_U = 1.5748, -0.1873, -0.4681, 1.8556


def packed_rgb(channels: int) -> Reader:
    """Red, green and blue of RGB888 or RGBA8888."""

    def reader(read: Read, y: Expr, x: Expr) -> Triple:
        first = T.mul(x, T.const(channels))
        return read(0, y, first), read(0, y, T.add(first, T.const(1))), read(0, y, T.add(first, T.const(2)))

    return reader


def packed_yuv(luma_first: bool) -> Reader:
    """Y, U and V of YUYV422 (luma first) or UYVY422."""
    luma, chroma = (0, 1) if luma_first else (1, 0)

    def reader(read: Read, y: Expr, x: Expr) -> Triple:
        pair = T.mul(T.floordiv(x, T.const(2)), T.const(4))
        value = read(0, y, T.add(T.mul(x, T.const(2)), T.const(luma)))
        return value, read(0, y, T.add(pair, T.const(chroma))), read(0, y, T.add(pair, T.const(chroma + 2)))

    return reader


def two_planes(u_first: bool) -> Reader:
    """Y, U and V of NV12 (U first) or NV21."""

    def reader(read: Read, y: Expr, x: Expr) -> Triple:
        half_y, pair = T.floordiv(y, T.const(2)), T.mul(T.floordiv(x, T.const(2)), T.const(2))
        chroma = read(1, half_y, pair), read(1, half_y, T.add(pair, T.const(1)))
        return read(0, y, x), *(chroma if u_first else chroma[::-1])

    return reader


def three_planes(read: Read, y: Expr, x: Expr) -> Triple:
    """Y, U and V of IYUV."""
    half_y, half_x = (T.floordiv(v, T.const(2)) for v in (y, x))
    return read(0, y, x), read(1, half_y, half_x), read(2, half_y, half_x)


def luma(rgb: Sequence[Expr]) -> Expr:
    """Y, with its fraction."""
    red, green, blue = (f32(v) for v in rgb)
    parts = [T.mul(v, f32(w)) for v, w in zip((red, green, blue), _LUMA, strict=True)]
    return T.add(T.add(parts[0], parts[1]), parts[2])


def to_yuv(rgb: Triple) -> tuple[Expr, Expr, Expr]:
    """Y, U and V, with their fractions."""
    y = luma(rgb)
    u = T.add(T.mul(T.sub(f32(rgb[2]), y), f32(_TO_U)), f32(128.0))
    v = T.add(T.mul(T.sub(f32(rgb[0]), y), f32(_TO_V)), f32(128.0))
    return y, u, v


def to_rgb(yuv: Triple) -> list[Expr]:
    """Red, green and blue."""
    y = f32(yuv[0])
    u, v = (T.sub(f32(c), f32(128.0)) for c in yuv[1:])
    red = T.add(y, T.mul(v, f32(_RED_V)))
    green = T.add(T.add(y, T.mul(u, f32(_GREEN_U))), T.mul(v, f32(_GREEN_V)))
    blue = T.add(y, T.mul(u, f32(_BLUE_U)))
    return [truncated(value, "uint8") for value in (red, green, blue)]


def mean_of_four(values: Sequence[Expr]) -> Expr:
    """The mean of four real numbers, without its fraction."""
    total = values[0]
    for value in values[1:]:
        total = T.add(total, value)
    return truncated(T.mul(total, f32(0.25)), "uint8")
