"""ATen's interpolation, sampling at a grid, and windows as columns.

In: images (batch, channels, spatial…), sizes or scales. Out: image.resize*d, image.grid_sample, slices. Invariant:
sizes are known; where scales are given, coordinates are by the scales, as ATen's are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.frontend.pytorch.rules.padding import padded
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import Value, op, rank_of, reshape_to, shape_of
from armillary.relay.expr import Expr, const

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear", "trilinear": "linear"} | {
    "bicubic": "cubic"
}
Scales = Sequence[float | None]


def _resized(x: Expr, size: Sequence[int], scales: Scales, method: str, corners: bool, **attrs: object) -> Expr:
    rank = rank_of(x) - 2
    if method == "nearest_neighbor":
        attrs |= {"coordinate_transformation_mode": attrs.pop("mode", "asymmetric"), "rounding_method": "floor"}
    else:
        attrs["coordinate_transformation_mode"] = "align_corners" if corners else "half_pixel"
    spatial = shape_of(x)[2:]
    rows = zip(size, spatial, scales, strict=True)
    factors = tuple(s / d if f is None or corners else f for s, d, f in rows)  # corners lie by the sizes alone
    attrs = {"cubic_alpha": -0.75, **attrs}
    return op(f"image.resize{rank}d", x, size=tuple(size), method=method, scales=factors, **attrs)


def _sizes(x: Expr, size: Sequence[int] | None, factors: Sequence[float] | None) -> tuple[tuple[int, ...], Scales]:
    spatial = shape_of(x)[2:]
    if size is not None:
        return tuple(int(s) for s in size), [None] * len(spatial)
    assert factors is not None, "a size or factors are given"
    return tuple(math.floor(d * f) for d, f in zip(spatial, factors, strict=True)), list(factors)


_LINEAR = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear"} | {
    "upsample_bicubic2d": "cubic"
}


@aten(*_LINEAR)
def upsample(call: AtenCall, x: Expr, size: Sequence[int], corners: bool, *scales: float | None) -> Expr:
    name = call.name.split(".")[1]
    return _resized(x, size, scales or [None] * len(size), _LINEAR[name], corners)


@aten(*(f"{name}.vec" for name in _LINEAR))
def upsample_vec(
    call: AtenCall, x: Expr, size: Sequence[int] | None, corners: bool, factors: Sequence[float] | None
) -> Expr:
    return _resized(x, *_sizes(x, size, factors), _LINEAR[call.name.split(".")[1]], corners)


_NEAREST = tuple(f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3))


def _nearest(call: AtenCall, x: Expr, size: Sequence[int], scales: Scales) -> Expr:
    """The exact kind takes the pixel whose middle is nearest, the other the one below."""
    mode = "half_pixel" if "exact" in call.name else "asymmetric"
    if mode == "asymmetric":
        return _resized(x, size, scales, "nearest_neighbor", False)
    places = [
        np.minimum(np.floor((np.arange(s) + 0.5) * np.float32(d / s if f is None else 1 / f)), d - 1)
        for s, d, f in zip(size, shape_of(x)[2:], scales, strict=True)
    ]
    for axis, rows in enumerate(places, 2):
        x = op("take", x, const(rows.astype(np.int64)), axis=axis)
    return x


@aten(*_NEAREST)
def upsample_nearest(call: AtenCall, x: Expr, size: Sequence[int], *scales: float | None) -> Expr:
    return _nearest(call, x, size, scales or [None] * len(size))


@aten(*(f"{name}.vec" for name in _NEAREST))
def upsample_nearest_vec(call: AtenCall, x: Expr, size: Sequence[int] | None, factors: Sequence[float] | None) -> Expr:
    return _nearest(call, x, *_sizes(x, size, factors))


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def upsample_antialiased(call: AtenCall, x: Expr, size: Sequence[int], corners: bool, *scales: float | None) -> Expr:
    """By weights of the pixels that there are, and Keys' cubic of -0.5, as Pillow has it."""
    if corners:
        call.refuse("antialias with align_corners", "leave out align_corners")
    method, attrs = "cubic" if "bicubic" in call.name else "linear", {"antialias": True, "cubic_exclude": True}
    return _resized(x, size, scales or [None] * len(size), method, corners, cubic_alpha=-0.5, **attrs)


@aten("_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec")
def upsample_antialiased_vec(
    call: AtenCall, x: Expr, size: Sequence[int] | None, corners: bool, factors: Sequence[float] | None
) -> Expr:
    sizes, scales = _sizes(x, size, factors)
    result: Expr = upsample_antialiased(call, x, sizes, corners, *scales)
    return result


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(call: AtenCall, x: Expr, grid: Expr, mode: int, border: int, corners: bool) -> Expr:
    method = ("bilinear", "nearest", "bicubic")[mode]
    rank = rank_of(x) - 2
    return op(
        "image.grid_sample",
        x,
        grid,
        method=method,
        layout="NCHW" if rank == 2 else "NCDHW",
        padding_mode=("zeros", "border", "reflection")[border],
        align_corners=bool(corners),
        grid_axis=-1,
    )


def _window_places(
    sizes: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> list[Value]:
    """For each axis the positions that windows read: (element of the window, window)."""
    rows = []
    for size, k, d, s in zip(sizes, kernel, dilation, stride, strict=True):
        count = (size - d * (k - 1) - 1) // s + 1
        rows.append(np.arange(k)[:, None] * d + np.arange(count)[None, :] * s)
    return rows


@aten("im2col")
def im2col(
    call: AtenCall, x: Expr, kernel: Sequence[int], dilation: Sequence[int], pad: Sequence[int], stride: Sequence[int]
) -> Expr:
    data = x if rank_of(x) == 4 else op("expand_dims", x, axis=0)
    data = padded(data, [(0, 0), (0, 0), *((p, p) for p in pad)], 0.0)
    n, c, h, w = shape_of(data)
    rows, columns = _window_places((h, w), kernel, dilation, stride)
    places = rows[:, None, :, None] * w + columns[None, :, None, :]
    flat = op("take", reshape_to(data, (n, c, h * w)), const(places.reshape(-1).astype(np.int64)), axis=2)
    result = reshape_to(flat, (n, c * rows.shape[0] * columns.shape[0], rows.shape[1] * columns.shape[1]))
    return result if rank_of(x) == 4 else op("squeeze", result, axis=(0,))


@aten("col2im")
def col2im(
    call: AtenCall,
    x: Expr,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    pad: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """Windows added up where they overlap."""
    data = x if rank_of(x) == 3 else op("expand_dims", x, axis=0)
    n, many, _ = shape_of(data)
    h, w = (s + 2 * p for s, p in zip(size, pad, strict=True))
    c = many // math.prod(kernel)
    rows, columns = _window_places((h, w), kernel, dilation, stride)
    places = (rows[:, None, :, None] * w + columns[None, :, None, :]).reshape(1, -1).astype(np.int64)
    flat = op("transpose", reshape_to(data, (n * c, places.shape[1])), axes=(1, 0))
    start = op("zeros", shape=(h * w, n * c), dtype=str(data.checked_type.dtype))  # type: ignore[attr-defined]
    total = op("transpose", op("scatter_nd", start, const(places), flat, mode="add"), axes=(1, 0))
    image = padded(reshape_to(total, (n, c, h, w)), [(0, 0), (0, 0), *((-p, -p) for p in pad)], 0.0)
    return image if rank_of(x) == 3 else op("squeeze", image, axis=(0,))
