"""ONNX Resize and Upsample, of any rank.

In: scales that are known when importing or sizes, which may be open, and the modes of every opset. Out:
image.resize{1,2,3}d over the axes that change. Invariant: an axis that keeps its size, scale and region is not
resampled. Other axes are folded, so up to three changing axes may be anywhere. keep_aspect_ratio_policy and antialias
are followed. Resize before opset 11 is what Upsample was: asymmetric. Sizes by scales are counted in float32, the type
of scales: 13 times float32(30 / 13) is 30.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from armillary.base.extent import Extent, Known
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import SPATIAL, axis_of, call, reshape_to, type_of
from armillary.relay.expr import Expr

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_DENOMINATOR = 64  # of a factor that an open size is multiplied by
_EXACT = 1e-6  # as near as float32 holds a ratio
Ratios = Sequence["float | None"]


def resized(x: Expr, axes: tuple[int, ...], size: tuple[Known, ...], scales: Ratios, **attrs: object) -> Expr:
    """`x` resized along `axes`, which are brought to the end as the spatial axes of a NCW, NCHW or NCDHW tensor."""
    ty = type_of(x)
    shape, ndim, rank = ty.known, ty.ndim, len(axes)
    if rank not in SPATIAL:
        raise UnsupportedError(f"Resize: {rank} axes change; at most 3 are supported")
    rest = tuple(a for a in range(ndim) if a not in axes)
    order = rest + axes
    moved = x if order == tuple(range(ndim)) else call("transpose", x, axes=order)
    retained = tuple(shape[a] for a in rest)
    flat = moved
    if len(rest) != 2:
        flat = reshape_to(moved, (1, math.prod(retained), *(shape[a] for a in axes)))
    stated = tuple(s for s in scales if s is not None)
    y = call(f"image.resize{rank}d", flat, size=size, scales=stated if len(stated) == rank else (), **attrs)
    if len(rest) != 2:
        y = reshape_to(y, (*retained, *size))
    return y if order == tuple(range(ndim)) else call("transpose", y, axes=tuple(order.index(a) for a in range(ndim)))


@from_onnx("Resize", since=11)
def resize(node: OnnxNode) -> Expr:
    x, shape, ndim = node.input(0), node.type_of(0).known, node.type_of(0).ndim
    chosen_axes = node.ints("axes")
    axes = tuple(axis_of("Resize", a, ndim) for a in chosen_axes) if chosen_axes else tuple(range(ndim))
    size, scales = _targets(node, tuple(shape[a] for a in axes))
    mode = node.string("coordinate_transformation_mode", "half_pixel") or "half_pixel"
    roi: tuple[float, ...] = (0.0,) * len(axes) + (1.0,) * len(axes)
    if mode == "tf_crop_and_resize":
        roi = tuple(float(v) for v in node.const(1, "roi").reshape(-1))
        if len(roi) != 2 * len(axes):
            raise TypeMismatch(f"Resize node {node.name!r}: roi needs {2 * len(axes)} values, got {len(roi)}")
    method = node.string("mode", "nearest") or "nearest"
    if method not in _METHODS:
        raise TypeMismatch(f"Resize node {node.name!r}: unknown mode {method!r}")
    attrs = {  # read even where nothing changes: exporters write them all
        "method": _METHODS[method],
        "coordinate_transformation_mode": mode,
        "rounding_method": node.string("nearest_mode", "round_prefer_floor") or "round_prefer_floor",
        "cubic_alpha": node.float("cubic_coeff_a", -0.75),
        "cubic_exclude": node.flag("exclude_outside", False),
        "extrapolation_value": node.float("extrapolation_value", 0.0),
        "antialias": node.flag("antialias", False),
    }
    changing = [
        n
        for n, a in enumerate(axes)
        if size[n] != shape[a] or scales[n] not in (None, 1.0) or (roi[n], roi[n + len(axes)]) != (0.0, 1.0)
    ]
    if not changing:
        return x
    return resized(
        x,
        tuple(axes[n] for n in changing),
        tuple(size[n] for n in changing),
        tuple(scales[n] for n in changing),
        roi=tuple(roi[n] for n in changing) + tuple(roi[n + len(axes)] for n in changing),
        **attrs,
    )


def _targets(node: OnnxNode, shape: tuple[Known, ...]) -> tuple[Sequence[Known], Ratios]:
    """Output sizes and exact scales of the named axes; None for a scale that is the quotient of two sizes."""
    if not node.missing(3):
        sizes = node.sizes(3, "sizes")
        if len(sizes) == len(shape):
            return _by_sizes(sizes, shape, node.string("keep_aspect_ratio_policy", "stretch") or "stretch")
    scales = [float(v) for v in node.const(2, "scales").reshape(-1)]
    if len(scales) != len(shape):
        raise TypeMismatch(f"Resize node {node.name!r}: {len(scales)} scales for {len(shape)} axes")
    return [_scaled(d, s) for d, s in zip(shape, scales, strict=True)], scales


def _scaled(extent: Known, scale: float) -> Known:
    """`extent` times `scale`, rounded down, in float32 as in ONNX Runtime: exporters write the ratio of two sizes, and
    in float64, as ONNX's own inference has it, the product is often just below the size that is meant."""
    if isinstance(extent, int):
        return math.floor(np.float32(extent) * np.float32(scale))
    ratio = Fraction(scale).limit_denominator(_DENOMINATOR)
    if abs(float(ratio) - scale) > _EXACT * scale:
        raise UnsupportedError(
            f"Resize: the size {extent} times {scale:g} has no form: the factor is no ratio of small numbers",
            hint="fix the size with shape=, or export the resize by sizes",
        )
    return extent * ratio.numerator // ratio.denominator


def _by_sizes(sizes: Sequence[Known], shape: tuple[Known, ...], policy: str) -> tuple[Sequence[Known], Ratios]:
    pairs = tuple(zip(sizes, shape, strict=True))
    if any(isinstance(v, Extent) for pair in pairs for v in pair):
        if policy != "stretch":
            raise UnsupportedError(f"Resize: keep_aspect_ratio_policy {policy!r} needs sizes that are numbers")
        return sizes, [1.0 if s == d else None for s, d in pairs]
    numbers, extents = [int(s) for s, _ in pairs], [int(d) for _, d in pairs]  # type: ignore[arg-type]  # none is open
    ratios = [s / d if d else 1.0 for s, d in zip(numbers, extents, strict=True)]  # of no elements nothing is read
    if policy == "stretch":
        return numbers, ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(np.float32(d) * np.float32(ratio) + np.float32(0.5)) for d in extents], [ratio] * len(shape)


@from_onnx("Upsample", since=1)
@from_onnx("Resize", since=10)
def upsample(node: OnnxNode) -> Expr:
    """Scales as attribute (opset 1: height_scale, width_scale; 7: scales) or input (9)."""
    x, shape = node.input(0), node.type_of(0).known
    if node.ints("scales"):
        scales = [float(s) for s in node.ints("scales")]
    elif node.float("height_scale") is not None:
        scales = [1.0, 1.0, node.float("height_scale"), node.float("width_scale", 1.0)]
    else:
        scales = [float(s) for s in node.const(1, "scales").reshape(-1)]
    if len(scales) != len(shape):
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: {len(scales)} scales for {len(shape)} axes")
    method = _METHODS[node.string("mode", "nearest") or "nearest"]
    axes = tuple(n for n, s in enumerate(scales) if s != 1.0)
    if not axes:
        return x
    size = tuple(_scaled(shape[a], scales[a]) for a in axes)
    return resized(
        x,
        axes,
        size,
        tuple(scales[a] for a in axes),
        method=method,
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )
