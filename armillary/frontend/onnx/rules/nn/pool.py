"""ONNX pooling: MaxPool, AveragePool, LpPool and the global ones.

In: nodes of any opset (auto_pad, ceil_mode, dilations, count_include_pad, indices as second output of MaxPool). Out:
nn.*_pool{1,2,3}d in NCHW; LpPool is |x|^p averaged over explicitly padded windows, times the window size. Invariant: a
kernel_shape that does not fit the spatial axes is refused. Operators: ops/nn/pool.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.frontend.onnx.rules.nn.conv import spatial_rank, window_attrs
from armillary.ops.nn._windows import SPATIAL, call, pad_pairs, reshape_to, window_count
from armillary.ops.nn.norm import narrowed, widened
from armillary.relay.expr import Expr, Var, const

Shape = tuple[int, ...]


def _attrs(node: OnnxNode) -> dict[str, Any]:
    rank = spatial_rank(node)
    kernel = tuple(node.ints("kernel_shape") or ())
    if len(kernel) != rank:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: kernel_shape {kernel} does not fit {rank} spatial axes")
    return {"pool_size": kernel, **window_attrs(node, kernel), "ceil_mode": node.flag("ceil_mode", False)}


@from_onnx("MaxPool")
def max_pool(node: OnnxNode) -> Expr:
    attrs, rank = _attrs(node), spatial_rank(node)
    if len(node.outputs) > 1 and node.outputs[1]:
        order, layout = node.flag("storage_order", False), "NC" + SPATIAL[rank]
        return call("nn.max_pool_with_indices", node.input(0), storage_order=order, layout=layout, **attrs)
    return call(f"nn.max_pool{rank}d", node.input(0), **attrs)


@from_onnx("AveragePool")
def average_pool(node: OnnxNode) -> Expr:
    count = node.flag("count_include_pad", False)
    return call(f"nn.avg_pool{spatial_rank(node)}d", node.input(0), count_include_pad=count, **_attrs(node))


@from_onnx("LpPool")
def lp_pool(node: OnnxNode) -> Expr:
    x, rank, p = node.input(0), spatial_rank(node), node.float("p", 2)
    attrs = _attrs(node)
    pads = list(pad_pairs("LpPool", attrs["padding"], rank))
    if attrs.pop("ceil_mode"):
        for n, size in enumerate(node.type_of(0).static[2:]):
            kernel, stride, dilation = attrs["pool_size"][n], attrs["strides"][n], attrs["dilation"][n]
            last = (window_count(size, pads[n], kernel, stride, dilation, True) - 1) * stride
            need = last + (kernel - 1) * dilation + 1 - size - pads[n][0]
            pads[n] = (pads[n][0], max(pads[n][1], need))
    powers = _power(widened(x), p)
    if any(b or a for b, a in pads):
        powers = call("nn.pad", powers, pad_width=((0, 0), (0, 0), *pads))
    attrs["padding"] = (0,) * rank
    mean = call(f"nn.avg_pool{rank}d", powers, **attrs)
    return narrowed(_root(mean * float(math.prod(attrs["pool_size"])), p), x)


def _power(x: Expr, p: float) -> Expr:
    return x * x if p == 2 else call("abs", x) if p == 1 else call("power", call("abs", x), float(p))


def _root(x: Expr, p: float) -> Expr:
    return call("sqrt", x) if p == 2 else x if p == 1 else call("power", x, 1.0 / p)


def _spatial(node: OnnxNode) -> tuple[int, ...]:
    return tuple(range(2, node.type_of(0).ndim))


@from_onnx("GlobalAveragePool")
def global_average_pool(node: OnnxNode) -> Expr:
    rank = node.type_of(0).ndim - 2
    if rank in SPATIAL:
        return call(f"nn.global_avg_pool{rank}d", node.input(0))
    return call("mean", node.input(0), axis=_spatial(node), keepdims=True)


@from_onnx("GlobalMaxPool")
def global_max_pool(node: OnnxNode) -> Expr:
    rank = node.type_of(0).ndim - 2
    if rank in SPATIAL:
        return call(f"nn.global_max_pool{rank}d", node.input(0))
    return call("max", node.input(0), axis=_spatial(node), keepdims=True)


@from_onnx("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> Expr:
    x, p = node.input(0), node.float("p", 2)
    return narrowed(_root(call("sum", _power(widened(x), p), axis=_spatial(node), keepdims=True), p), x)


@from_onnx("MaxUnpool", since=9)
def max_unpool(node: OnnxNode) -> Expr:
    """The values at the flat positions that MaxPool gave, zeros elsewhere.

    `output_shape` is what the positions count in, as in ONNX Runtime and PyTorch: the shape that was pooled.
    """
    ty = node.type_of(0)
    kernel = tuple(node.ints("kernel_shape"))
    rank = len(kernel)
    strides, pads = tuple(node.ints("strides") or (1,) * rank), tuple(node.ints("pads") or (0,) * 2 * rank)
    if rank != ty.ndim - 2 or len(strides) != rank or len(pads) != 2 * rank:
        raise TypeMismatch(f"MaxUnpool node {node.name!r}: a window of {rank} axes on {ty}")
    spatial = tuple((d - 1) * strides[a] - pads[a] - pads[rank + a] + kernel[a] for a, d in enumerate(ty.static[2:]))
    tiled = shape = (*ty.static[:2], *spatial)
    wanted = node.optional_const(2, "output_shape")
    if wanted is not None:
        shape = tuple(int(v) for v in wanted.reshape(-1))
        far = len(shape) != len(tiled) or any(t <= s - by for t, s, by in zip(shape, tiled, (1, 1, *strides)))
        if far or shape[:2] != tiled[:2]:
            message = f"MaxUnpool node {node.name!r}: output_shape {shape} does not fit what is unpooled, {tiled}"
            raise TypeMismatch(message, hint="it is less than a stride smaller, or larger, in the spatial axes alone")
    node.check_elements(math.prod(shape))
    at = checked(node, 1, [(0, max(math.prod(shape) - 1, 0))], "index", ty.size)
    if shape != tiled and ty.size and isinstance(node.input(1), Var):
        windows = tuple((s, -b, k - b) for s, b, k in zip(strides, pads, kernel))
        at = _counted_in(at, ty.static, windows, tiled, shape)
    values, places = (call("reshape", operand, newshape=(-1,)) for operand in (node.input(0), at))
    zeros = const(np.zeros(math.prod(shape), ty.dtype.numpy))
    return reshape_to(call("scatter_elements", zeros, places, values, axis=0), shape)


Windows = tuple[tuple[int, int, int], ...]  # per axis: the stride, where the first window begins, and where it ends


def _counted_in(at: Expr, pooled: Shape, windows: Windows, tiled: Shape, shape: Shape) -> Expr:
    """Places that a model is given, in `shape`.

    An example of the standard counts them in `tiled`, what the windows cover. Places lie in their own windows: where
    all do so when they are counted in `tiled`, and not when they are counted in `shape`, they are moved.
    """
    fits, fits_untiled = (_in_windows(at, pooled, windows, sizes) for sizes in (tiled, shape))
    is_tiled = call("logical_and", fits, call("logical_not", fits_untiled))
    moved: Expr = const(np.int64(0))
    for index, step in zip(_unravelled(at, tiled), _steps(shape)):
        moved = moved + index * const(np.int64(step))
    return call("where", is_tiled, moved, at)


def _steps(shape: Shape) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _unravelled(at: Expr, shape: Shape) -> list[Expr]:
    return [
        call("floor_mod", call("floor_divide", at, const(np.int64(step))), const(np.int64(max(size, 1))))
        for size, step in zip(shape, _steps(shape))
    ]


def _in_windows(at: Expr, pooled: Shape, windows: Windows, shape: Shape) -> Expr:
    """Whether every place, counted in `shape`, lies in the window of its value."""
    result: Expr = const(np.bool_(True))
    for axis, index in enumerate(_unravelled(at, shape)):
        stride, begin, end = windows[axis - 2] if axis >= 2 else (1, 0, 1)
        first = np.arange(pooled[axis], dtype=np.int64).reshape(-1, *(1,) * (len(pooled) - axis - 1)) * stride
        inside = call(
            "logical_and", call("greater_equal", index, const(first + begin)), call("less", index, const(first + end))
        )
        result = call("logical_and", result, inside)
    return call("all", result)
