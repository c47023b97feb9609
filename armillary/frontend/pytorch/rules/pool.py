"""ATen's pooling: maxima (with positions), means, adaptive ones, of one to three axes.

In: data with or without a batch. Out: nn.*_pool*. Invariant: positions count within a plane, as ATen's do; data without
a batch gets one and loses it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    cast,
    dtype_of,
    is_float,
    op,
    rank_of,
    repeated,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.ops.nn._windows import window_count
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const

Numbers = int | Sequence[int]
_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _batched(x: Expr, rank: int, function: Callable[[Expr], Expr]) -> Expr:
    """A function of data with a batch."""
    if rank_of(x) == rank + 2:
        return function(x)
    return op("squeeze", function(op("expand_dims", x, axis=0)), axis=(0,))


def _windows(
    rank: int, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, up: bool
) -> dict[str, Value]:
    size = repeated(kernel, rank)
    return {
        "pool_size": size,
        "strides": repeated(stride, rank, size),
        "padding": repeated(padding, rank),
        "dilation": repeated(dilation, rank),
        "ceil_mode": up,
    }


def _rank(call: AtenCall) -> int:
    return next(int(c) for c in call.name.split(".")[1] if c.isdigit())


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    call: AtenCall, x: Expr, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, up: bool
) -> Expr:
    rank = _rank(call)
    attrs = _windows(rank, kernel, stride, padding, dilation, up)
    return _batched(x, rank, lambda data: op(f"nn.max_pool{rank}d", data, **attrs))


@aten("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    call: AtenCall, x: Expr, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, up: bool
) -> list[Expr]:
    rank = _rank(call)
    attrs = _windows(rank, kernel, stride, padding, dilation, up)
    values: Expr = max_pool(call, x, kernel, stride, padding, dilation, up)
    plane = scalar(math.prod(shape_of(x)[-rank:]), "int64")

    def places(data: Expr) -> Expr:
        both = op("nn.max_pool_with_indices", data, layout=_LAYOUT[rank], **attrs)
        return op("floor_mod", cast(TupleGetItem(both, 1), "int64"), plane)

    return [values, _batched(x, rank, places)]


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    call: AtenCall,
    x: Expr,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    up: bool,
    include_pad: bool,
    divisor: int | None = None,
) -> Expr:
    if not is_float(x):  # sums divided in integers: towards 0
        whole: Expr = avg_pool(call, cast(x, "float64"), kernel, stride, padding, up, include_pad, divisor)
        nudge = op("multiply", op("sign", whole), scalar(1e-9, "float64"))
        return cast(op("trunc", op("add", whole, nudge)), dtype_of(x))
    rank = _rank(call)
    attrs = _windows(rank, kernel, stride, padding, 1, up)
    attrs["count_include_pad"] = include_pad
    if divisor is None:
        return _batched(x, rank, lambda data: op(f"nn.avg_pool{rank}d", data, **attrs))
    return _batched(x, rank, lambda data: _summed(data, rank, attrs, divisor))


def _summed(x: Expr, rank: int, attrs: dict[str, Value], divisor: int) -> Expr:
    """Sums of windows by a number: means of windows times how many elements each mean divides by."""
    plain = {**attrs, "count_include_pad": False}
    counts = _counts(shape_of(x)[2:], plain)
    mean = op(f"nn.avg_pool{rank}d", x, **plain)
    return op("multiply", mean, cast(const((counts / divisor).astype(np.float32)), dtype_of(x)))


def _counts(sizes: Sequence[int], attrs: dict[str, Value]) -> Array:
    """How many elements of the data each window has."""
    counts = np.ones((1, 1))
    for size, kernel, stride, pad in zip(sizes, *(attrs[n] for n in ("pool_size", "strides", "padding")), strict=True):
        number = window_count(size, (pad, pad), kernel, stride, 1, attrs["ceil_mode"])
        begins = np.arange(number) * stride - pad
        inside = np.minimum(begins + kernel, size) - np.maximum(begins, 0)
        counts = counts[..., None] * inside
    return counts


@aten(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"
)
def adaptive_avg_pool(call: AtenCall, x: Expr, size: Sequence[int | None]) -> Expr:
    return _adaptive(call, "avg", x, size)


def _adaptive(call: AtenCall, kind: str, x: Expr, size: Sequence[int | None]) -> Expr:
    rank = _rank(call)
    spatial = shape_of(x)[-rank:]
    wanted = tuple(d if s is None else int(s) for s, d in zip(size, spatial, strict=True))
    if wanted == (1,) * rank:
        axes = tuple(range(rank_of(x) - rank, rank_of(x)))
        return op("mean" if kind == "avg" else "max", x, axis=axes, keepdims=True)
    return _batched(x, rank, lambda data: op(f"nn.adaptive_{kind}_pool{rank}d", data, output_size=wanted))


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(call: AtenCall, x: Expr, size: Sequence[int | None]) -> list[Expr]:
    """Maxima and where they are; windows of one size are those of plain pooling."""
    rank = _rank(call)
    spatial = shape_of(x)[-rank:]
    wanted = tuple(d if s is None else int(s) for s, d in zip(repeated_size(size, rank), spatial, strict=True))
    if all(d % w == 0 for d, w in zip(spatial, wanted, strict=True)):
        kernel = tuple(d // w for d, w in zip(spatial, wanted, strict=True))
        both: list[Expr] = max_pool_with_indices(call, x, kernel, kernel, 0, 1, False)
        return both
    values = _adaptive(call, "max", x, wanted)
    return [values, _places(x, wanted, rank)]


def repeated_size(size: Sequence[int | None], rank: int) -> Sequence[int | None]:
    """One size for each axis."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * rank if len(sizes) == 1 else sizes


def _places(x: Expr, wanted: Sequence[int], rank: int) -> Expr:
    """Positions of the maxima of windows that differ in size: one argmax each."""
    spatial, lead = shape_of(x)[-rank:], shape_of(x)[:-rank]
    positions = np.arange(math.prod(spatial)).reshape(spatial)
    flat = reshape_to(x, (*lead, -1))
    rows = []
    for index in np.ndindex(*wanted):
        window = tuple(slice(i * d // w, -(-(i + 1) * d // w)) for i, d, w in zip(index, spatial, wanted, strict=True))
        here = const(np.ascontiguousarray(positions[window]).reshape(-1).astype(np.int64))
        best = op("argmax", op("take", flat, here, axis=-1), axis=(-1,), keepdims=True)
        rows.append(op("take", here, cast(best, "int64"), axis=0))
    together = op("concatenate", Tuple(tuple(rows)), axis=-1) if len(rows) > 1 else rows[0]
    return reshape_to(together, (*lead, *wanted))
