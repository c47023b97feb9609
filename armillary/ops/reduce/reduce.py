"""Reductions: sum, prod, max, min, mean, all, any, variance, std, logsumexp.

In: one tensor, the axes. Out: the tensor without them (keepdims: with size 1). Invariant: float16 and bfloat16 sums are
accumulated in float32; an empty reduction gives the neutral element (the mean of nothing is NaN).
Positions of extremes: arg.py. ONNX rules: rules/reduce.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Known, most
from armillary.base.record import record
from armillary.ops._deferred import T, reduction, te
from armillary.ops._types import (
    Index,
    accumulator,
    axes_of,
    check_broadcasts_to,
    check_kind,
    check_same_dtype,
    dims_product,
    elements,
    f32,
    i32,
    like_const,
    mean_accumulator,
    number,
    of_type,
    quiet,
)
from armillary.ops.elementwise.broadcast import add, divide, multiply, subtract, where
from armillary.ops.elementwise.elementwise import exp, isfinite, log, sqrt
from armillary.ops.shape.shape import squeeze
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

D = TypeVar("D")  # a number, or an expression of one


@record
class ReduceAttrs:
    """The axes (None: all); with `exclude`, all others. () reduces nothing."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False


def reduced_axes(name: str, attrs: ReduceAttrs, ndim: int) -> tuple[int, ...]:
    """The axes to reduce, ascending."""
    if attrs.axis is None:
        return tuple(range(ndim)) if not attrs.exclude else ()
    reduced = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    axes = axes_of(name, reduced, ndim)
    return tuple(a for a in range(ndim) if (a in axes) != attrs.exclude)


def reduced_shape(shape: Sequence[D], axes: Sequence[int], keepdims: bool) -> tuple[D | int, ...]:
    """The shape after reducing."""
    return tuple(1 if a in axes else d for a, d in enumerate(shape) if keepdims or a not in axes)


def full_index(
    index: Sequence[te.Expr], axes: Sequence[int], inner: Sequence[te.IterVar], ndim: int, keepdims: bool
) -> list[te.Expr]:
    """The input index of an output index and one variable per reduced axis."""
    retained, reduced = iter(index), iter(inner)
    result = []
    for axis in range(ndim):
        if axis not in axes:
            result.append(next(retained))
            continue
        result.append(next(reduced))
        if keepdims:
            next(retained)
    return result


def reduce_tensor(
    data: te.Tensor, axes: Sequence[int], keepdims: bool, reducer: AnyFunction, dtype: str, name: str
) -> te.Tensor:
    """`reducer` over the axes, accumulated in `dtype`; a single value as a vector of one, for which there are lanes."""
    shape = tuple(extent if (known := T.as_int(extent)) is None else known for extent in data.shape)
    result = reduced_shape(shape, axes, keepdims)
    inner = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]

    def element(*i: Index) -> Scalar:
        value = T.cast(data(*full_index(i[: len(result)], axes, inner, len(shape), keepdims)), dtype)
        reduced: Scalar = reducer(value, inner) if inner else value
        return reduced

    is_single = not result and bool(inner)
    result_tensor: te.Tensor = elements((1,) if is_single else result, element, name=name, tag="comm_reduce")
    return elements((), lambda: result_tensor(0), name=f"{name}_value", tag="elemwise") if is_single else result_tensor


def _numpy_sum(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    wide = accumulator(DType(data.dtype.name)).numpy
    return np.asarray(np.sum(data.astype(wide), axis=axes, keepdims=keepdims, dtype=wide))


def _numpy_prod(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    wide = accumulator(DType(data.dtype.name)).numpy
    return np.asarray(np.prod(data.astype(wide), axis=axes, keepdims=keepdims, dtype=wide))


def _numpy_mean(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    wide, count = mean_accumulator(DType(data.dtype.name)).numpy, math.prod(data.shape[a] for a in axes)
    total = np.asarray(np.sum(data.astype(wide), axis=axes, keepdims=keepdims, dtype=wide))
    if data.dtype.kind in "iu":
        return np.asarray(np.sign(total) * (np.abs(total) // max(count, 1))).astype(data.dtype)
    return np.asarray(total / np.array(count, total.dtype))


def _numpy_extreme(ufunc: np.ufunc, largest: bool) -> Callable[[Array, tuple[int, ...], bool], Array]:
    def reduce(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        if data.size:
            return np.asarray(ufunc.reduce(data, axis=axes, keepdims=keepdims))
        kind = DType(data.dtype.name)
        neutral = (
            (-math.inf if largest else math.inf) if kind.is_float else kind.min_value if largest else kind.max_value
        )
        return np.full([int(str(d)) for d in reduced_shape(data.shape, axes, keepdims)], neutral, data.dtype)

    return reduce


@record
class Row:
    """One reduction: its name, the types it takes, its reducer, its meaning in numpy; `wide` sums in a wider type."""

    name: str
    accepts: str
    reducer: AnyFunction
    numpy: Callable[[Array, tuple[int, ...], bool], Array]
    wide: bool = False


_TABLE = (
    Row("sum", "numeric", reduction("sum"), _numpy_sum, wide=True),
    Row("prod", "numeric", reduction("prod"), _numpy_prod, wide=True),
    Row("max", "numeric", reduction("max"), _numpy_extreme(np.maximum, True)),
    Row("min", "numeric", reduction("min"), _numpy_extreme(np.minimum, False)),
    Row(
        "all",
        "bool",
        lambda value, axes: te.all(value, axis=axes),
        lambda x, a, k: np.asarray(np.all(x, a, keepdims=k)),
    ),
    Row(
        "any",
        "bool",
        lambda value, axes: te.any(value, axis=axes),
        lambda x, a, k: np.asarray(np.any(x, a, keepdims=k)),
    ),
    Row("mean", "numeric", reduction("sum"), _numpy_mean, wide=True),
)
_TYPES = {"numeric": ("float32", "int32"), "bool": ("bool", "bool")}
_USES = (
    ((3, 4), ReduceAttrs()),
    ((2, 3, 4), ReduceAttrs(1)),
    ((2, 3, 4), ReduceAttrs((0, -1), keepdims=True)),
    ((2, 3, 4), ReduceAttrs((1,), exclude=True)),
    ((3,), ReduceAttrs(0)),
    ((2, 3), ReduceAttrs(())),
    ((), ReduceAttrs()),
)


def _finish(row: Row, total: te.Tensor, count: Known, dtype: DType) -> te.Tensor:
    """Divide by the count (mean) and convert to the result's dtype, in one more stage where that does anything."""
    if row.name != "mean" and total.dtype == dtype:
        return total

    def element(*i: Index) -> Scalar:
        value = total(*i)
        if row.name == "mean":
            value = T.div(value, number(count if total.dtype.is_float else most(count, 1), total.dtype))
        return T.cast(value, dtype)

    result: te.Tensor = elements(total.shape, element, name=row.name, tag="elemwise")
    return result


def _define(row: Row) -> Op:
    op = Op(row.name, kind=Kind.REDUCE, doc=f"{row.name} over axes.")
    op.attrs(ReduceAttrs)

    @op.infer
    def infer(attrs: ReduceAttrs, data: TensorType) -> TensorType:
        check_kind(row.name, "its input", data, row.accepts)
        return TensorType(
            reduced_shape(data.shape, reduced_axes(row.name, attrs, data.ndim), attrs.keepdims), data.dtype
        )

    @op.reference
    @quiet
    def reference(attrs: ReduceAttrs, data: Array) -> Array:
        result = row.numpy(data, reduced_axes(row.name, attrs, data.ndim), attrs.keepdims)
        return np.asarray(result).astype(data.dtype)

    @op.compute
    def compute(attrs: ReduceAttrs, data: te.Tensor) -> te.Tensor:
        dtype, axes = DType(data.dtype), reduced_axes(row.name, attrs, len(data.shape))
        wide = mean_accumulator(dtype) if row.name == "mean" else accumulator(dtype) if row.wide else dtype
        total = reduce_tensor(data, axes, attrs.keepdims, row.reducer, wide, row.name)
        count = dims_product(te.extents(data)[a] for a in axes) if row.name == "mean" else 0  # the one that divides
        return _finish(row, total, count, dtype)

    @op.samples
    def samples() -> Iterator[Sample]:
        first, second = _TYPES[row.accepts]
        for shape, attrs in _USES:
            yield Sample(attrs, (of_type(first, *shape),))
        yield Sample(ReduceAttrs(-1), (of_type(second, 2, 5),))
        if row.accepts == "numeric":
            yield Sample(ReduceAttrs(1), (of_type("float16", 3, 7),))
        if row.name == "mean":
            yield Sample(ReduceAttrs(), (of_type("int8", 9, 24),), domain=(0, 9))
            yield Sample(ReduceAttrs(1), (np.full((2, 40), 200, np.uint8),))
        else:
            yield Sample(ReduceAttrs(1), (of_type(first, 3, 0),))

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        yield BadSample(ReduceAttrs(2), (of_type(_TYPES[row.accepts][0], 2, 3),), "axis 2 is out of range")
        yield BadSample(ReduceAttrs((0, 0)), (of_type(_TYPES[row.accepts][0], 2, 3),), "given twice")
        yield BadSample(
            ReduceAttrs(), (of_type("bool", 2) if row.accepts == "numeric" else f32(2),), f"wanted {row.accepts}"
        )

    return op


REDUCTIONS = {row.name: _define(row) for row in _TABLE}
sum_, prod, max_, min_ = (REDUCTIONS[n] for n in ("sum", "prod", "max", "min"))
mean, all_, any_ = (REDUCTIONS[n] for n in ("mean", "all", "any"))


# --- variance -----------------------------------------------------------------------------------------------------


@record
class VarianceAttrs:
    """As ReduceAttrs; `unbiased` divides by the count less one."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False
    unbiased: bool = False


variance = Op("variance", kind=Kind.REDUCE, inputs=("data", "mean"), doc="Mean squared distance from the given mean.")
variance.attrs(VarianceAttrs)


def _plain(attrs: VarianceAttrs) -> ReduceAttrs:
    return ReduceAttrs(attrs.axis, attrs.keepdims, attrs.exclude)


def _divisor(attrs: VarianceAttrs, shape: Sequence[int]) -> int:
    count = math.prod(shape[a] for a in reduced_axes("variance", _plain(attrs), len(shape)))
    return count - 1 if attrs.unbiased else count


@variance.infer
def infer_variance(attrs: VarianceAttrs, data: TensorType, mean_type: TensorType) -> TensorType:
    check_kind("variance", "its input", data, "float")
    check_same_dtype("variance", (data, mean_type))
    check_broadcasts_to("variance", mean_type.shape, data.shape)
    axes = reduced_axes("variance", _plain(attrs), data.ndim)
    return TensorType(reduced_shape(data.shape, axes, attrs.keepdims), data.dtype)


@variance.reference
@quiet
def variance_reference(attrs: VarianceAttrs, data: Array, mean_value: Array) -> Array:
    axes = reduced_axes("variance", _plain(attrs), data.ndim)
    wide = accumulator(DType(data.dtype.name)).numpy
    total = _numpy_sum((data.astype(wide) - mean_value.astype(wide)) ** 2, axes, attrs.keepdims)
    return np.asarray(total / np.array(_divisor(attrs, data.shape), total.dtype)).astype(data.dtype)


@variance.decompose
def variance_decompose(attrs: VarianceAttrs, data: Expr, mean_expr: Expr) -> Expr:
    ty = data.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    wide = accumulator(ty.dtype)
    if wide != ty.dtype:  # neither squares nor counts need fit a narrow type
        data, mean_expr = (get_op("cast")(x, dtype=str(wide)) for x in (data, mean_expr))
    centred = subtract(data, mean_expr)
    total = sum_(multiply(centred, centred), attrs.axis, attrs.keepdims, attrs.exclude)
    axes = reduced_axes("variance", _plain(attrs), ty.ndim)
    if all(isinstance(ty.shape[a], int) for a in axes):
        counts = [size if isinstance(size, int) else 1 for size in ty.shape]
        result: Expr = divide(total, like_const(float(_divisor(attrs, counts)), data))
    else:
        result = _divided_by_count(attrs, total, axes, data, str(wide))
    return result if wide == ty.dtype else get_op("cast")(result, dtype=str(ty.dtype))


def _divided_by_count(attrs: VarianceAttrs, total: Expr, axes: Sequence[int], data: Expr, dtype: str) -> Expr:
    """A sum over open axes by the number of its terms, which is there when the network runs."""
    sizes = get_op("take")(get_op("shape_of")(data, dtype="int64"), const(np.array(axes, np.int64)))
    count = get_op("cast")(get_op("prod")(sizes), dtype=dtype)
    return divide(total, subtract(count, const(1.0, dtype)) if attrs.unbiased else count)


@variance.samples
def variance_samples() -> Iterator[Sample]:
    yield Sample(VarianceAttrs(1), (f32(3, 5), f32(3, 1)))
    yield Sample(VarianceAttrs((0,), True, unbiased=True), (f32(3, 5), f32(1, 5)))
    yield Sample(VarianceAttrs(), (of_type("float16", 2, 35_000), np.float16(0).reshape(())))


@variance.bad_samples
def variance_bad_samples() -> Iterator[BadSample]:
    yield BadSample(VarianceAttrs(), (i32(3), i32(1)), "wanted float")
    yield BadSample(VarianceAttrs(1), (f32(3, 5), f32(1, 4)), "the shapes do not broadcast: got (1, 4) and (3, 5)")


# --- logsumexp ----------------------------------------------------------------------------------------------------

logsumexp = Op("logsumexp", kind=Kind.REDUCE, doc="log(sum(exp(x))), without overflow.")
logsumexp.attrs(ReduceAttrs)


@logsumexp.infer
def infer_logsumexp(attrs: ReduceAttrs, data: TensorType) -> TensorType:
    check_kind("logsumexp", "its input", data, "float")
    axes = reduced_axes("logsumexp", attrs, data.ndim)
    return TensorType(reduced_shape(data.shape, axes, attrs.keepdims), data.dtype)


@logsumexp.reference
@quiet
def logsumexp_reference(attrs: ReduceAttrs, data: Array) -> Array:
    axes = reduced_axes("logsumexp", attrs, data.ndim)
    top = _numpy_extreme(np.maximum, True)(data, axes, True)
    top = np.where(np.isfinite(top), top, 0).astype(data.dtype)
    total = np.log(_numpy_sum(np.exp(data - top), axes, True)) + top
    return (
        np.asarray(total)
        .reshape([int(str(d)) for d in reduced_shape(data.shape, axes, attrs.keepdims)])
        .astype(data.dtype)
    )


@logsumexp.decompose
def logsumexp_decompose(attrs: ReduceAttrs, data: Expr) -> Expr:
    """In the dtype of sums: that of many exponentials is more than a 16-bit float holds, its logarithm is not."""
    ty = data.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    narrow = ty.dtype
    if narrow != accumulator(narrow):
        wide = get_op("cast")(data, dtype=str(accumulator(narrow)))
        return get_op("cast")(logsumexp_decompose(attrs, wide), dtype=str(narrow))
    top = max_(data, attrs.axis, True, attrs.exclude)
    top = where(isfinite(top), top, like_const(0.0, data))
    total = sum_(exp(subtract(data, top)), attrs.axis, attrs.keepdims, attrs.exclude)
    axes = reduced_axes("logsumexp", attrs, ty.ndim)
    if not attrs.keepdims and axes:
        top = squeeze(top, axes)
    return add(log(total), top)


@logsumexp.samples
def logsumexp_samples() -> Iterator[Sample]:
    yield Sample(ReduceAttrs(1), (f32(3, 5),))
    yield Sample(ReduceAttrs(None, True), (f32(3, 5),), domain=(50.0, 200.0))


@logsumexp.bad_samples
def logsumexp_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ReduceAttrs(), (i32(3),), "wanted float")


@boundary("std", arguments=True)
def std(data: Expr, axis: object = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False) -> Expr:
    """The standard deviation: the root of the variance about the mean."""
    ty = data.checked_type
    if isinstance(ty, TensorType) and accumulator(ty.dtype) != ty.dtype:  # which need not hold the variance
        wide = get_op("cast")(data, dtype=str(accumulator(ty.dtype)))
        return get_op("cast")(std(wide, axis, keepdims, exclude, unbiased), dtype=str(ty.dtype))
    centre = mean(data, axis, True, exclude)
    return sqrt(variance(data, centre, axis, keepdims, exclude, unbiased))


state("logsumexp variance", precision=Precision.NEVER)
state("max min", precision=Precision.FOLLOW, follows=Follows.REDUCTION)
state("mean prod sum", precision=Precision.NEVER, follows=Follows.REDUCTION)
state("all any", Fact.FLAT)
state("all any variance", follows=Follows.STATISTIC)
