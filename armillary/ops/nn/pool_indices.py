"""nn.max_pool_with_indices: the maximum of each window and the place of its first occurrence.

In: data (N, C, spatial…) of any rank. Out: (maxima, int64 indices into the flattened data); storage_order 1 counts the
spatial axes column-major, as ONNX MaxPool may ask. Invariant: of equal elements the first counts; TE is two reductions
tagged pool_max and pool_index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import SPATIAL, Tensor, f32, lowest, need_tensor, pad_array, reduce_axes, te_pad, windows
from armillary.ops.nn.pool import infer_pool, normal, offsets, overhang
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type, tensor_type

LAST = 2**62


@record
class MaxPoolIndicesAttrs:
    pool_size: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    ceil_mode: bool = False
    storage_order: int = 0
    layout: str = "NCHW"
    out_layout: str = ""


NAME = "nn.max_pool_with_indices"
max_pool_with_indices = Op(NAME, kind=Kind.OPAQUE, doc="Maximum of each window and where it is.")
max_pool_with_indices.attrs(MaxPoolIndicesAttrs)


def _rank(attrs: MaxPoolIndicesAttrs) -> int:
    rank = len(attrs.pool_size)
    if rank not in SPATIAL or attrs.layout != "NC" + SPATIAL[rank]:
        raise TypeMismatch(f"{NAME}: pool_size {attrs.pool_size} does not fit the layout {attrs.layout}")
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
        better = (value > best) | ((value == best) & (where == LAST))
        best, where = np.where(better, value, best), np.where(better, place, where)
    return best, where


@max_pool_with_indices.compute
def _compute(attrs: MaxPoolIndicesAttrs, x: Tensor) -> list[Tensor]:
    rank = _rank(attrs)
    pool = normal(NAME, attrs, rank, x)
    sizes = te.static_shape(x)
    counts = list(infer_pool(NAME, attrs, rank, tensor_type(sizes, x.dtype)).static[2:])
    padded = te_pad(x, [(0, 0), (0, 0), *overhang(pool, sizes[2:], counts)], lowest(x.dtype))
    shape = [*sizes[:2], *counts]

    def at(index: Sequence[te.Expr], axes: Sequence[te.Expr]) -> list[te.Expr]:
        spatial = (i * s + k * d for i, s, k, d in zip(index[2:], pool.strides, axes, pool.dilation, strict=True))
        return [*index[:2], *spatial]

    def number(value: te.Expr) -> te.ExprLike:
        """A NaN is no maximum: it equals nothing, and its place would be none."""
        is_float = DType(x.dtype).is_float
        return T.select(T.equal(value, value), value, lowest(x.dtype)) if is_float else value

    k_max = reduce_axes(pool.kernel, [f"k{n}" for n in range(rank)])
    best = te.compute(
        shape, lambda *i: te.max(number(padded(*at(i, k_max))), axis=k_max), name="pool_max", tag="pool_max"
    )
    k_index = reduce_axes(pool.kernel, [f"j{n}" for n in range(rank)])

    def place(*index: te.Expr) -> te.ExprLike:
        here = at(index, k_index)
        source = [i - before for i, (before, _) in zip(here[2:], pool.pads, strict=True)]
        inside = [c for i, size in zip(source, sizes[2:], strict=True) for c in (i >= 0, i < size)]
        flat = _flat([*index[:2], *source], sizes)
        found = T.all_of(T.equal(padded(*here), best(*index)), *inside)
        return te.min(te.if_then_else(found, flat, T.const(LAST, "int64")), axis=k_index)

    first = te.compute(shape, place, name="pool_index", tag="pool_index")
    if not attrs.storage_order:
        return [best, first]
    return [best, te.compute(shape, lambda *i: _column_major(first(*i), sizes), name="pool_place", tag="injective")]


def _flat(at: Sequence[te.Expr], sizes: tuple[int, ...]) -> te.Expr:
    flat = T.const(0, "int64")
    for index, size in zip(at, sizes, strict=True):
        flat = flat * size + T.cast(index, "int64")
    return flat


def _column_major(flat: te.Expr, sizes: tuple[int, ...]) -> te.Expr:
    """A row-major place, the last spatial axis fastest, as one with the first fastest. The first of equal maxima is
    the first of the rows, whatever the places are counted by."""
    sizes = tuple(max(1, size) for size in sizes)  # of padding alone every place is LAST: no size may divide by 0
    plane, rest = math.prod(sizes[2:]), flat
    result = flat - T.floormod(flat, T.const(plane, "int64"))
    axes = []
    for size in reversed(sizes[2:]):
        axes.append(T.floormod(rest, T.const(size, "int64")))
        rest = T.floordiv(rest, T.const(size, "int64"))
    inside = T.const(0, "int64")
    for index, size in zip(axes, reversed(sizes[2:]), strict=True):
        inside = inside * size + index
    return T.select(T.equal(flat, T.const(LAST, "int64")), flat, result + inside)


@max_pool_with_indices.samples
def _samples() -> Iterator[Sample]:
    yield Sample(MaxPoolIndicesAttrs(pool_size=(2, 2), strides=(2, 2)), (f32(1, 2, 6, 5),))
    uneven = MaxPoolIndicesAttrs((3, 3), (2, 2), padding=(1, 1), ceil_mode=True, storage_order=1)
    yield Sample(uneven, (f32(2, 2, 6, 7),))
    yield Sample(uneven, (np.ones((1, 2, 5, 4), np.float32),))  # equal maxima: the first one, row by row
    yield Sample(uneven, (np.array([[[[1, np.nan, -2, 3], [np.nan, 2, 0, 1], [4, 1, np.nan, 5]]]], np.float32),))


@max_pool_with_indices.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(MaxPoolIndicesAttrs(pool_size=(2,)), (f32(1, 2, 6),), "does not fit the layout NCHW")
