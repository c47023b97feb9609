"""ATen's reductions: sums, means, extremes, norms, variances, truth; running sums and products.

In: a tensor, dimensions (none: all), keepdim. Out: reductions of Relay. Invariant: sums and products of integers and
booleans are int64 unless a dtype is asked for; means of small floats are computed by Relay in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.extent import most
from armillary.frontend.pytorch.rules.elementwise import logical_not
from armillary.frontend.pytorch.sizes import has_open
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    as_float,
    axes_in,
    axis_in,
    broadcast,
    cast,
    category,
    dtype_of,
    is_float,
    op,
    promoted,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Expr, Tuple, const

Dims = int | Sequence[int] | None


def _reduced(name: str, x: Expr, dims: Dims, keepdim: bool, **attrs: object) -> Expr:
    axes = axes_in(dims, rank_of(x))
    return op(name, x, axis=axes, keepdims=keepdim, **attrs) if axes else x


def _summed(call: AtenCall, name: str, x: Expr, dims: Dims, keepdim: bool, dtype: str | None) -> Expr:
    wanted = dtype or ("int64" if category(dtype_of(x)) < 2 else dtype_of(x))
    return _reduced(name, cast(x, wanted), dims, keepdim)


@aten("sum")
def sum_all(call: AtenCall, x: Expr, dtype: str | None) -> Expr:
    return _summed(call, "sum", x, None, False, dtype)


@aten("sum.dim_IntList")
def sum_dims(call: AtenCall, x: Expr, dims: Dims, keepdim: bool, dtype: str | None) -> Expr:
    return _summed(call, "sum", x, dims, keepdim, dtype)


@aten("prod")
def prod_all(call: AtenCall, x: Expr, dtype: str | None) -> Expr:
    return _summed(call, "prod", x, None, False, dtype)


@aten("prod.dim_int")
def prod_dim(call: AtenCall, x: Expr, dim: int, keepdim: bool, dtype: str | None) -> Expr:
    return _summed(call, "prod", x, dim, keepdim, dtype)


@aten("mean")
def mean_all(call: AtenCall, x: Expr, dtype: str | None) -> Expr:
    return _reduced("mean", cast(x, dtype or dtype_of(x)), None, False)


@aten("mean.dim")
def mean_dims(call: AtenCall, x: Expr, dims: Dims, keepdim: bool, dtype: str | None) -> Expr:
    return _reduced("mean", cast(x, dtype or dtype_of(x)), dims, keepdim)


@aten("nansum")
def nansum(call: AtenCall, x: Expr, dims: Dims, keepdim: bool, dtype: str | None) -> Expr:
    clean = op("where", op("isnan", x), scalar(0, dtype_of(x)), x) if is_float(x) else x
    return _summed(call, "sum", clean, dims, keepdim, dtype)


def _extreme(name: str, x: Expr, dims: Dims, keepdim: bool) -> Expr:
    if dtype_of(x) == "bool":
        name = {"max": "any", "min": "all"}[name]
    return _reduced(name, x, dims, keepdim)


@aten("amax", "amin")
def extremes(call: AtenCall, x: Expr, dims: Dims, keepdim: bool) -> Expr:
    return _extreme(call.name.split(".")[1][1:], x, dims, keepdim)


@aten("max", "min")
def extreme(call: AtenCall, x: Expr) -> Expr:
    return _extreme(call.name.split(".")[1], x, None, False)


@aten("aminmax")
def both_extremes(call: AtenCall, x: Expr, dim: int | None, keepdim: bool) -> list[Expr]:
    return [_extreme(name, x, dim, keepdim) for name in ("min", "max")]


@aten("max.dim", "min.dim")
def extreme_and_place(call: AtenCall, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    name = call.name.split(".")[1]
    return [_extreme(name, x, dim, keepdim), _place(name, x, dim, keepdim)]


def _place(name: str, x: Expr, dim: int, keepdim: bool) -> Expr:
    if not rank_of(x):
        return scalar(0, "int64")
    number = cast(x, "int32") if dtype_of(x) == "bool" else x
    index = op(f"arg{name}", number, axis=(axis_in(dim, rank_of(x)),), keepdims=keepdim)
    return cast(index, "int64")


@aten("argmax", "argmin")
def place(call: AtenCall, x: Expr, dim: int | None, keepdim: bool) -> Expr:
    name = call.name.split(".")[1][3:]
    if dim is not None:
        return _place(name, x, dim, keepdim)
    flat = _place(name, reshape_to(x, (-1,)), 0, False)
    return reshape_to(flat, (1,) * rank_of(x)) if keepdim else flat


@aten("any", "all")
def truth_all(call: AtenCall, x: Expr) -> Expr:
    return _truth(call, x, None, False)


@aten("any.dim", "all.dim", "any.dims", "all.dims")
def truth_dims(call: AtenCall, x: Expr, dims: Dims, keepdim: bool) -> Expr:
    return _truth(call, x, dims, keepdim)


def _truth(call: AtenCall, x: Expr, dims: Dims, keepdim: bool) -> Expr:
    result = _reduced(call.name.split(".")[1], cast(x, "bool"), dims, keepdim)
    return cast(result, "uint8") if dtype_of(x) == "uint8" else result


def _variance(x: Expr, dims: Dims, correction: float, keepdim: bool) -> Expr:
    axes = axes_in(dims, rank_of(x))
    wide = cast(x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x
    count = math.prod(shape_of(x)[a] for a in axes)
    centred = op("subtract", wide, op("mean", wide, axis=axes, keepdims=True)) if axes else op("subtract", wide, wide)
    total = _reduced("sum", op("multiply", centred, centred), axes, keepdim)
    left = most(count - int(correction), 0) if has_open([count]) else max(0.0, count - correction)
    divisor = scalar(left, dtype_of(wide))
    return cast(op("divide", total, divisor), dtype_of(x))


def _spread(call: AtenCall, x: Expr, dims: Dims, correction: float, keepdim: bool) -> Expr | list[Expr]:
    """What `var`, `std`, `var_mean` and `std_mean` give."""
    name = call.name.split(".")[1]
    variance = _variance(x, dims, correction, keepdim)
    result = op("sqrt", variance) if name.startswith("std") else variance
    return [result, _reduced("mean", x, dims, keepdim)] if name.endswith("_mean") else result


_SPREADS = ("var", "std", "var_mean", "std_mean")


@aten(*(f"{name}.correction" for name in _SPREADS))
def spread_corrected(call: AtenCall, x: Expr, dims: Dims, correction: Value, keepdim: bool) -> Expr | list[Expr]:
    return _spread(call, x, dims, 1.0 if correction is None else float(correction), keepdim)


@aten(*(f"{name}.dim" for name in _SPREADS))
def spread_dims(call: AtenCall, x: Expr, dims: Dims, unbiased: bool, keepdim: bool) -> Expr | list[Expr]:
    return _spread(call, x, dims, float(unbiased), keepdim)


@aten(*_SPREADS)
def spread_all(call: AtenCall, x: Expr, unbiased: bool) -> Expr | list[Expr]:
    return _spread(call, x, None, float(unbiased), False)


@aten("logsumexp", "special_logsumexp")
def logsumexp(call: AtenCall, x: Expr, dims: Dims, keepdim: bool) -> Expr:
    """Taken apart from the maximum, which may be infinite."""
    value = as_float(x)
    axes = axes_in(dims, rank_of(x))
    if not axes:
        return value
    high = op("max", value, axis=axes, keepdims=True)
    finite = op("where", op("isfinite", high), high, scalar(0, dtype_of(value)))
    total = op("sum", op("exp", op("subtract", value, finite)), axis=axes, keepdims=True)
    result = op("add", op("log", total), finite)
    return result if keepdim else op("squeeze", result, axis=axes)


def norm_of(x: Expr, p: float, dims: Dims, keepdim: bool) -> Expr:
    """The p-norm over dimensions."""
    size = op("abs", x)
    if p == math.inf or p == -math.inf:
        return _reduced("max" if p > 0 else "min", size, dims, keepdim)
    if p == 0:
        return _reduced("sum", cast(op("not_equal", x, scalar(0, dtype_of(x))), dtype_of(x)), dims, keepdim)
    if p == 1:
        return _reduced("sum", size, dims, keepdim)
    if p == 2:
        return op("sqrt", _reduced("sum", op("multiply", x, x), dims, keepdim))
    powers = op("power", size, scalar(p, dtype_of(x)))
    return op("power", _reduced("sum", powers, dims, keepdim), scalar(1 / p, dtype_of(x)))


@aten("linalg_vector_norm")
def vector_norm(call: AtenCall, x: Expr, p: Value, dims: Dims, keepdim: bool, dtype: str | None) -> Expr:
    return norm_of(cast(x, dtype) if dtype else as_float(x), float(p), dims, keepdim)


@aten("_weight_norm")
def weight_norm(call: AtenCall, v: Expr, g: Expr, dim: int) -> Expr:
    """v by its own length over all dimensions but one, times g."""
    others = tuple(k for k in range(rank_of(v)) if k != dim % rank_of(v))
    return op("multiply", v, op("divide", g, norm_of(v, 2.0, others, True)))


@aten("_cdist_forward", "cdist")
def cdist(call: AtenCall, a: Expr, b: Expr, p: Value, mode: int | None = None) -> Expr:
    """The p-norm of the difference of each row of `a` and each row of `b`."""
    rows = op("expand_dims", a, axis=rank_of(a) - 1), op("expand_dims", b, axis=rank_of(b) - 2)
    return norm_of(op("subtract", *rows), float(p), (-1,), False)


@aten("_pdist_forward", "pdist")
def pdist(call: AtenCall, x: Expr, p: Value = 2.0) -> Expr:
    """The p-norm of the difference of each row and each row behind it."""
    upper = np.triu_indices(shape_of(x)[0], 1)
    first, second = (op("take", x, const(k.astype(np.int64)), axis=0) for k in upper)
    return norm_of(op("subtract", first, second), float(p), (-1,), False)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def norm_dims(call: AtenCall, x: Expr, p: Value, dims: Dims, keepdim: bool, dtype: str | None = None) -> Expr:
    return norm_of(cast(x, dtype) if dtype else x, 2.0 if p is None else float(p), dims, keepdim)


@aten("norm")
def norm_all(call: AtenCall, x: Expr, p: Value, dtype: str | None = None) -> Expr:
    return norm_of(cast(x, dtype) if isinstance(dtype, str) else x, 2.0 if p is None else float(p), None, False)


def _running(name: str, x: Expr, dim: int, dtype: str | None) -> Expr:
    wanted = dtype or ("int64" if category(dtype_of(x)) < 2 else dtype_of(x))
    data = cast(x, wanted)
    if name == "cumsum" and has_open(list(shape_of(x))):
        return _running_open(data, axis_in(dim, rank_of(x)))
    return op(name, data, axis=axis_in(dim, rank_of(x))) if rank_of(x) else data


def _running_open(x: Expr, axis: int) -> Expr:
    """Running sums over open sizes: of each element, a sum over those up to it. The kernel of `cumsum` takes none."""
    size, rank = shape_of(x)[axis], rank_of(x)
    across, down = (
        reshape_to(op("arange", 0, size, 1, dtype="int64"), [size if k == at else 1 for k in range(rank + 1)])
        for at in (axis + 1, axis)
    )
    rows = op("where", op("less_equal", across, down), op("expand_dims", x, axis=axis), scalar(0, dtype_of(x)))
    return op("sum", rows, axis=(axis + 1,))


@aten("cumsum", "cumprod")
def running(call: AtenCall, x: Expr, dim: int, dtype: str | None) -> Expr:
    return _running(call.name.split(".")[1], x, dim, dtype)


@aten("logcumsumexp")
def running_logsumexp(call: AtenCall, x: Expr, dim: int) -> Expr:
    if not rank_of(x):
        return x
    axis = axis_in(dim, rank_of(x))
    high = op("max", x, axis=(axis,), keepdims=True)
    return op("add", op("log", op("cumsum", op("exp", op("subtract", x, high)), axis=axis)), high)


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(call: AtenCall, x: Expr, dims: Dims) -> Expr:
    return _reduced("sum", cast(cast(x, "bool"), "int64"), dims, False)


@aten("histc")
def histogram(call: AtenCall, x: Expr, bins: int, low: Value, high: Value) -> Expr:
    """How many elements lie in each of equal cells; the last has its upper end, too. Equal ends: those of the data."""
    dtype, flat = dtype_of(x), cast(reshape_to(x, (-1,)), "float32")
    least, largest = _ends(flat, low, high)
    share = op("divide", op("subtract", flat, least), op("subtract", largest, least))
    cell = op("floor", op("multiply", share, scalar(bins, "float32")))
    cell = op("minimum", cell, scalar(bins - 1, "float32"))
    is_outside = op("logical_or", op("less", flat, least), op("greater", flat, largest))
    cell = op("where", is_outside, scalar(-1, "float32"), cell)
    numbers = const(np.arange(bins, dtype=np.float32).reshape(1, bins))
    hits = op("equal", op("expand_dims", cell, axis=1), numbers)
    return cast(op("sum", cast(hits, "int64"), axis=(0,)), dtype)


def _ends(flat: Expr, low: Value, high: Value) -> tuple[Expr, Expr]:
    """The ends of a histogram; of data that are all equal, one less and one more."""
    if low != high:
        return scalar(low, "float32"), scalar(high, "float32")
    least, largest = op("min", flat, axis=(0,)), op("max", flat, axis=(0,))
    step = cast(op("equal", least, largest), "float32")
    return op("subtract", least, step), op("add", largest, step)


@aten("trace")
def trace(call: AtenCall, x: Expr) -> Expr:
    rows, columns = shape_of(x)
    places = const([k * columns + k for k in range(min(rows, columns))], "int64")
    return _summed(call, "sum", op("take", reshape_to(x, (-1,)), places, axis=0), None, False, None)


@aten("isclose")
def isclose(call: AtenCall, x: Expr, y: Expr, rtol: float, atol: float, equal_nan: bool) -> Expr:
    a, b = promoted(x, y)
    same = op("equal", a, b)
    if not is_float(a):
        a, b = cast(a, "float64"), cast(b, "float64")
    limit = op("add", op("multiply", op("abs", b), scalar(rtol, dtype_of(a))), scalar(atol, dtype_of(a)))
    gap = op("abs", op("subtract", a, b))
    near = op("logical_and", op("less_equal", gap, limit), op("isfinite", gap))
    result = op("logical_or", same, near)
    return op("logical_or", result, op("logical_and", op("isnan", a), op("isnan", b))) if equal_nan else result


@aten("equal")
def equal(call: AtenCall, x: Expr, y: Expr) -> Expr:
    if shape_of(x) != shape_of(y):
        return scalar(False, "bool")
    different = op("not_equal", *promoted(x, y))
    result: Expr = logical_not(call, _reduced("any", different, None, False))
    return result


@aten("dist")
def distance(call: AtenCall, x: Expr, y: Expr, p: Value) -> Expr:
    a, b = promoted(x, y)
    return norm_of(op("subtract", a, b), float(p), None, False)


@aten("cummax", "cummin")
def running_extreme(call: AtenCall, x: Expr, dim: int) -> list[Expr]:
    """By comparing every element with those before it, along axes of up to 256 elements."""
    if not rank_of(x):
        return [x, scalar(0, "int64")]
    if dtype_of(x) == "bool":
        truths, positions = running_extreme(call, cast(x, "uint8"), dim)
        return [cast(truths, "bool"), positions]
    axis = axis_in(dim, rank_of(x))
    size = shape_of(x)[axis]
    if size > 256:
        call.refuse(f"an axis of {size} elements; up to 256 are supported")
    is_max = "cummax" in call.name
    slices = [op("strided_slice", x, begin=(k,), end=(k + 1,), axes=(axis,)) for k in range(size)]
    values, places = [slices[0]], [broadcast(scalar(0, "int64"), shape_of(slices[0]))]
    for k, part in enumerate(slices[1:], 1):
        wins = op("greater_equal" if is_max else "less_equal", part, values[-1])
        values.append(op("where", wins, part, values[-1]))
        places.append(op("where", wins, scalar(k, "int64"), places[-1]))
    joined = [op("concatenate", Tuple(tuple(row)), axis=axis) if size > 1 else row[0] for row in (values, places)]
    return joined
