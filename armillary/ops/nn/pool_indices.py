"""nn.max_pool_with_indices: the maximum of each window and the place of its first occurrence.

In: data (N, C, spatial…) of any rank. Out: (maxima, int64 indices into the flattened data); storage_order 1 counts the
spatial axes column-major, as ONNX MaxPool may ask. Invariant: of equal elements the first counts, row by row; a NaN is
larger than all numbers, as in nn.max_pool*d; a window of padding alone has the place -1. TE is two reductions tagged
pool_max and pool_index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known, most
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import SPATIAL, Tensor, f32, lowest, need_tensor, pad_array, reduce_axes, te_pad, windows
from armillary.ops.nn.pool import Pool, infer_pool, normal, offsets, overhang
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type, tensor_type

LAST = 2**62  # behind every place


@record
class MaxPoolIndicesAttrs:
    """The layout says how many spatial axes there are; one number is that of each."""

    pool_size: tuple[int, ...] = (1,)
    strides: tuple[int, ...] = (1,)
    dilation: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    ceil_mode: bool = False
    storage_order: int = 0
    layout: str = "NCHW"
    out_layout: str = ""


NAME = "nn.max_pool_with_indices"
max_pool_with_indices = Op(NAME, kind=Kind.OPAQUE, doc="Maximum of each window and where it is.")
max_pool_with_indices.attrs(MaxPoolIndicesAttrs)


def _rank(attrs: MaxPoolIndicesAttrs) -> int:
    rank = len(attrs.layout) - 2
    if rank not in SPATIAL or attrs.layout != "NC" + SPATIAL[rank]:
        raise TypeMismatch(f"{NAME}: the layout is {attrs.layout}, wanted NCW, NCHW or NCDHW")
    return rank


@max_pool_with_indices.infer
def _infer(attrs: MaxPoolIndicesAttrs, data: Type) -> TupleType:
    x = need_tensor(NAME, data)
    out = infer_pool(NAME, attrs, _rank(attrs), x)
    return TupleType((out, TensorType(out.shape, tensor_type((), "int64").dtype)))


def _places(attrs: MaxPoolIndicesAttrs, shape: tuple[int, ...]) -> Array:
    """The index of every element of the data."""
    if not attrs.storage_order:
        return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    n, c, *spatial = shape
    places = np.arange(int(np.prod(spatial)), dtype=np.int64).reshape(spatial[::-1]).T
    return places + (np.arange(n * c, dtype=np.int64) * places.size).reshape(n, c, *(1,) * len(spatial))


@max_pool_with_indices.reference
def _reference(attrs: MaxPoolIndicesAttrs, x: Array) -> tuple[Array, Array]:
    rank = _rank(attrs)
    pool = normal(NAME, attrs, rank, x)
    counts = list(infer_pool(NAME, attrs, rank, tensor_type(x.shape, x.dtype.name)).static[2:])
    pads = overhang(pool, x.shape[2:], counts)
    best = np.full((*x.shape[:2], *counts), lowest(x.dtype.name), x.dtype)
    where = np.full(best.shape, LAST, np.int64)
    values = pad_array(x, pool.axes, pads, lowest(x.dtype.name))
    places = pad_array(_places(attrs, x.shape), pool.axes, pads, LAST)
    for begin, _ in offsets(pool):
        value = windows(values, pool.axes, begin, counts, pool.strides)
        place = windows(places, pool.axes, begin, counts, pool.strides)
        is_first = (value == best) & (where == LAST) | (value != value) & (best == best)
        better = (value > best) | is_first
        best, where = np.where(better, value, best), np.where(better, place, where)
    return best, np.where(where == LAST, -1, where)


@max_pool_with_indices.compute
def _compute(attrs: MaxPoolIndicesAttrs, x: Tensor) -> list[Tensor]:
    rank = _rank(attrs)
    pool = normal(NAME, attrs, rank, x)
    sizes = te.extents(x)
    counts = list(infer_pool(NAME, attrs, rank, TensorType(sizes, DType(x.dtype))).known[2:])
    padded = te_pad(x, [(0, 0), (0, 0), *overhang(pool, sizes[2:], counts)], lowest(x.dtype))
    shape = [*sizes[:2], *counts]

    def at(index: Sequence[te.Expr], axes: Sequence[te.Expr]) -> list[te.Expr]:
        spatial = (i * s + k * d for i, s, k, d in zip(index[2:], pool.strides, axes, pool.dilation, strict=True))
        return [*index[:2], *spatial]

    def is_best(value: te.Expr, best: te.Expr) -> te.Expr:
        """Whether the value is the maximum of its window; a NaN is one, and equals nothing."""
        is_equal = T.equal(value, best)
        return T.logical_or(is_equal, T.not_equal(value, value)) if DType(x.dtype).is_float else is_equal

    k_max = reduce_axes(pool.kernel, [f"k{n}" for n in range(rank)])
    best = te.compute(shape, lambda *i: te.max(padded(*at(i, k_max)), axis=k_max), name="pool_max", tag="pool_max")
    k_index = reduce_axes(pool.kernel, [f"j{n}" for n in range(rank)])

    def place(*index: te.Expr) -> te.ExprLike:
        here = at(index, k_index)
        source = [i - before for i, (before, _) in zip(here[2:], pool.pads, strict=True)]
        inside = [c for i, size in zip(source, x.shape[2:], strict=True) for c in (i >= 0, i < size)]
        flat = _flat([*index[:2], *source], sizes)
        is_place = T.all_of(is_best(padded(*here), best(*index)), *inside)
        return te.min(te.if_then_else(is_place, flat, T.const(LAST, "int64")), axis=k_index)

    first = te.compute(shape, place, name="pool_index", tag="pool_index")
    if not attrs.storage_order and not _has_empty_windows(pool, sizes[2:], counts):
        return [best, first]

    def placed(*index: te.Expr) -> te.Expr:
        flat = first(*index)
        counted = _column_major(flat, sizes) if attrs.storage_order else flat
        return T.select(T.equal(flat, T.const(LAST, "int64")), T.const(-1, "int64"), counted)

    return [best, te.compute(shape, placed, name="pool_place", tag="injective")]


def _has_empty_windows(pool: Pool, sizes: Sequence[Known], counts: Sequence[Known]) -> bool:
    """Whether a window may lie in the padding with all its elements: of an open size, whether there is any."""
    for n, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if not isinstance(size, int) or not isinstance(count, int):
            if pool.ceil or any(pool.pads[n]):
                return True
            continue
        starts = np.arange(count) * pool.strides[n] - pool.pads[n][0]
        at = starts[:, None] + np.arange(pool.kernel[n]) * pool.dilation[n]
        if not ((at >= 0) & (at < size)).any(axis=1).all():
            return True
    return False


def _long(size: Known) -> te.ExprLike:
    return T.const(size, "int64") if isinstance(size, int) else T.cast(T.convert(size), "int64")


def _flat(at: Sequence[te.Expr], sizes: tuple[Known, ...]) -> te.Expr:
    flat = T.const(0, "int64")
    for index, size in zip(at, sizes, strict=True):
        flat = flat * _long(size) + T.cast(index, "int64")
    return flat


def _column_major(flat: te.Expr, sizes: tuple[Known, ...]) -> te.Expr:
    """A row-major place, the last spatial axis fastest, as one with the first fastest."""
    sizes = tuple(most(1, size) for size in sizes)  # of padding alone every place is LAST: no size may divide by 0
    plane, rest = math.prod(sizes[2:], start=1), flat
    result = flat - T.floormod(flat, _long(plane))
    axes = []
    for size in reversed(sizes[2:]):
        axes.append(T.floormod(rest, _long(size)))
        rest = T.floordiv(rest, _long(size))
    inside = T.const(0, "int64")
    for index, size in zip(axes, reversed(sizes[2:]), strict=True):
        inside = inside * _long(size) + index
    return result + inside


@max_pool_with_indices.samples
def _samples() -> Iterator[Sample]:
    yield Sample(MaxPoolIndicesAttrs(pool_size=(2, 2), strides=(2, 2)), (f32(1, 2, 6, 5),))
    uneven = MaxPoolIndicesAttrs((3, 3), (2, 2), padding=(1, 1), ceil_mode=True, storage_order=1)
    yield Sample(uneven, (f32(2, 2, 6, 7),))
    yield Sample(uneven, (np.ones((1, 2, 5, 4), np.float32),))  # equal maxima: the first one, row by row
    yield Sample(uneven, (np.array([[[[1, np.nan, -2, 3], [np.nan, 2, 0, 1], [4, 1, np.nan, 5]]]], np.float32),))
    yield Sample(MaxPoolIndicesAttrs((2, 2), (2, 2)), (np.full((1, 1, 5, 4), np.nan, np.float32),))
    apart = MaxPoolIndicesAttrs((2,), (1,), (2,), (1,), layout="NCW")
    yield Sample(apart, (np.array([[[7]], [[np.nan]]], np.float32),))  # a window of padding alone


@max_pool_with_indices.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(MaxPoolIndicesAttrs(pool_size=(2,)), (f32(1, 2, 6),), "data has 3 dimensions, its layout NCHW")
    yield BadSample(MaxPoolIndicesAttrs(pool_size=(2, 2), layout="NCW"), (f32(1, 2, 6),), "must be 1 integers")
    yield BadSample(MaxPoolIndicesAttrs(pool_size=(2,), layout="NHWC"), (f32(1, 2, 6, 3),), "wanted NCW, NCHW or NCDHW")
