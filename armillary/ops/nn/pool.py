"""nn.{max,avg}_pool{1,2,3}d, nn.global_{max,avg}_pool{1,2,3}d, nn.adaptive_{max,avg}_pool{1,2,3}d.

In: data in any layout whose spatial axes are whole (NCHW, NHWC, NCHW8c…). Out: the same layout. An average divides by
the number of elements inside the data or, with count_include_pad, inside the padded data. Invariant: what ceil_mode
adds at the end never counts. TE: one reduction tagged pool_max or pool_sum; averages divide in a stage tagged pool_avg.
Maxima with their places: pool_indices.py. Import: rules/nn/pool.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import mean_accumulator, unravelled
from armillary.ops.nn._windows import (
    SPATIAL,
    Pairs,
    Tensor,
    extent,
    f32,
    known,
    letters,
    lowest,
    need_tensor,
    out_dim,
    pad_array,
    pad_pairs,
    per_axis,
    reduce_axes,
    spatial_axes,
    te_pad,
    wide,
    window_count,
    windows,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Fact, Follows, Precision
from armillary.relay.types import ANY_DIM, TensorType, Type

if TYPE_CHECKING:
    from armillary.ops.nn._windows import AveragePoolAttrs, PoolAttrs


@record
class Pool:
    """A pooling in normal form: one entry per spatial axis."""

    axes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs
    ceil: bool


def _attrs_class(name: str, rank: int, average: bool) -> type:
    layout = "NC" + SPATIAL[rank]
    rows = [
        ("pool_size", tuple, (1,) * rank),
        ("strides", tuple, (1,) * rank),
        ("dilation", tuple, (1,) * rank),
        ("padding", tuple, (0,) * rank),
        ("layout", str, layout),
        ("out_layout", str, ""),
        ("ceil_mode", bool, False),
    ]
    if average:
        rows.append(("count_include_pad", bool, False))
    return _record_of(name, rows)


def _record_of(name: str, rows: Sequence[tuple[str, object, object]]) -> type:
    """A record of these fields: name, type, default."""
    own: dict[str, object] = {"__module__": __name__, "__annotations__": {field: kind for field, kind, _ in rows}}
    own["_written"] = ("pool_size",)
    return record(type(name, (), own | {field: default for field, _, default in rows}))


def normal(
    op: str, attrs: PoolAttrs, rank: int, x: Array | TensorType | te.Tensor
) -> Pool:  # Any: attrs classes differ by rank; x has a shape
    """Check the attributes against the data's rank."""
    layout = attrs.layout
    if len(letters(layout)) != len(x.shape):
        raise TypeMismatch(f"{op}: data has {len(x.shape)} dimensions, its layout {layout} has {len(letters(layout))}")
    if attrs.out_layout not in ("", layout):
        raise TypeMismatch(f"{op}: out_layout {attrs.out_layout!r} must equal layout {layout!r}")
    return Pool(
        spatial_axes(op, layout, rank),
        per_axis(op, "pool_size", attrs.pool_size, rank),
        per_axis(op, "strides", attrs.strides, rank),
        per_axis(op, "dilation", attrs.dilation, rank),
        pad_pairs(op, attrs.padding, rank),
        bool(attrs.ceil_mode),
    )


def has_empty_windows(pool: Pool) -> bool:
    """Whether a window may lie in the padding alone: its maximum is the least number, its mean 0."""
    axes = zip(pool.pads, pool.kernel, pool.dilation, strict=True)
    return any(max(pair) >= extent(kernel, dilation) for pair, kernel, dilation in axes)


def infer_pool(op: str, attrs: PoolAttrs, rank: int, data: Type) -> TensorType:
    """The type of a windowed pooling."""
    x = need_tensor(op, data)
    pool = normal(op, attrs, rank, x)
    shape = list(x.shape)
    for n, a in enumerate(pool.axes):
        size = out_dim(op, shape[a], pool.pads[n], pool.kernel[n], pool.strides[n], pool.dilation[n], pool.ceil)
        shape[a] = size
    return TensorType(tuple(shape), x.dtype)


def overhang(pool: Pool, sizes: Sequence[Any], counts: Sequence[Any]) -> Pairs:
    """The padding, with at the end what partial windows of ceil_mode need."""
    pads = []
    for n, (before, after) in enumerate(pool.pads):
        if pool.ceil:
            last = (counts[n] - 1) * pool.strides[n] + extent(pool.kernel[n], pool.dilation[n])
            if isinstance(last, int):
                after = max(after, last - sizes[n] - before)
            else:
                after = after + pool.strides[n] - 1
        pads.append((before, after))
    return tuple(pads)


@overload
def _counts(pool: Pool, shape: Sequence[int]) -> list[int]: ...


@overload
def _counts(pool: Pool, shape: Sequence[te.Expr]) -> list[te.Expr]: ...


def _counts(pool: Pool, shape: Sequence[Any]) -> list[Any]:  # Any: one of the above
    return [
        window_count(shape[a], pool.pads[n], pool.kernel[n], pool.strides[n], pool.dilation[n], pool.ceil)
        for n, a in enumerate(pool.axes)
    ]


def offsets(pool: Pool) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """(start of the view, position in the window) for every element of the window."""
    for at in itertools.product(*map(range, pool.kernel)):
        yield [k * d for k, d in zip(at, pool.dilation, strict=True)], at


def fold(pool: Pool, x: Array, start: object, step: Callable[[Array, Array], Array], fill: object) -> Array:
    """Combine all window elements of `x`, padded with `fill`, by `step`."""
    counts = _counts(pool, x.shape)
    sizes = [x.shape[a] for a in pool.axes]
    padded = pad_array(x, pool.axes, overhang(pool, sizes, counts), fill)
    shape = list(x.shape)
    for a, c in zip(pool.axes, counts, strict=True):
        shape[a] = c
    out = np.full(shape, start, x.dtype)
    for begin, _ in offsets(pool):
        out = step(out, windows(padded, pool.axes, begin, counts, pool.strides))
    return out


def _bottom(pool: Pool, dtype: str) -> float:
    """What padding is to a maximum; where windows hold nothing else, the least number, which is what comes out."""
    is_float = DType(dtype).is_float
    return float(np.finfo(DType(dtype).numpy).min) if is_float and has_empty_windows(pool) else lowest(dtype)


def _reference_max(pool: Pool, attrs: object, x: Array) -> Array:
    bottom = x.dtype.type(_bottom(pool, x.dtype.name))
    return fold(pool, x, bottom, np.maximum, bottom)


def _reference_avg(pool: Pool, attrs: AveragePoolAttrs, x: Array) -> Array:
    total = fold(pool, x.astype(mean_accumulator(DType(x.dtype.name)).numpy), 0, np.add, 0)
    ones = np.ones([x.shape[a] if n in pool.axes else 1 for n, a in enumerate(range(x.ndim))], total.dtype)
    if attrs.count_include_pad:
        inner = Pool(pool.axes, pool.kernel, pool.strides, pool.dilation, tuple((0, 0) for _ in pool.pads), pool.ceil)
        count = fold(inner, pad_array(ones, pool.axes, pool.pads, 1), 0, np.add, 0)
        count = count[tuple(slice(0, s) if n in pool.axes else slice(None) for n, s in enumerate(total.shape))]
    else:
        count = fold(pool, ones, 0, np.add, 0)
    count = np.maximum(count, 1)
    return _mean(total, count).astype(x.dtype)


def _mean(total: Array, count: Array) -> Array:
    """A sum divided by how many there are; of integers towards zero."""
    if np.issubdtype(total.dtype, np.integer):
        result: Array = np.sign(total) * (np.abs(total) // np.maximum(count, 1))
        return result
    return total / count


def _reduce(pool: Pool, x: Tensor, fill: float, combine: AnyFunction, tag: str) -> Tensor:
    counts = _counts(pool, x.shape)
    pads = [(0, 0)] * len(x.shape)
    sizes = [getattr(x.shape[a], "value", x.shape[a]) for a in pool.axes]
    ints = [getattr(c, "value", c) for c in counts]
    for a, pair in zip(pool.axes, overhang(pool, sizes, ints), strict=True):
        pads[a] = pair
    padded = te_pad(x, pads, fill)
    axes = reduce_axes(pool.kernel, [f"k{n}" for n in range(len(pool.kernel))])
    shape = list(x.shape)
    for a, c in zip(pool.axes, counts, strict=True):
        shape[a] = c

    def element(*index: te.Expr) -> te.Expr:
        at = list(index)
        for n, a in enumerate(pool.axes):
            at[a] = index[a] * pool.strides[n] + axes[n] * pool.dilation[n]
        result: te.Expr = combine(padded(*at), axis=axes)
        return result

    return te.compute(shape, element, name=tag, tag=tag)


def _compute_max(pool: Pool, attrs: object, x: Tensor) -> Tensor:
    return _reduce(pool, x, _bottom(pool, x.dtype), te.max, "pool_max")


def _compute_avg(pool: Pool, attrs: AveragePoolAttrs, x: Tensor) -> Tensor:
    return mean_of(pool, attrs.count_include_pad, x, _reduce(pool, x, 0, _wide_sum, "pool_sum"))


def _wide_sum(value: te.Expr, axis: Sequence[te.IterVar]) -> te.Expr:
    """The sum in a dtype that holds sums and counts."""
    return te.sum(T.cast(value, mean_accumulator(value.dtype)), axis=axis)


def mean_of(pool: Pool, include: bool, x: Tensor, total: Tensor) -> Tensor:
    """The sums of all windows over the number of their elements, with the padding or without."""

    def element(*index: te.Expr) -> te.Expr:
        count: te.Index = 1
        for n, a in enumerate(pool.axes):
            before, after = pool.pads[n]
            stride, dilation, kernel = pool.strides[n], pool.dilation[n], pool.kernel[n]
            if not (before or after or pool.ceil) or (include and not pool.ceil):
                count = count * kernel
                continue
            start = index[a] * stride - before
            first: te.Index = 0 if include else T.maximum((dilation - 1 - start) // dilation, 0)
            end = x.shape[a] + (after if include else 0)
            last = T.minimum((end - start + (dilation - 1)) // dilation, kernel)
            count = count * (T.maximum(last - first, 0) if has_empty_windows(pool) else last - first)
        divisor = count if isinstance(count, int) else T.maximum(count, 1)
        return T.cast(T.div(total(*index), T.cast(T.convert(divisor), total.dtype)), x.dtype)

    return te.compute(total.shape, element, name="pool_avg", tag="pool_avg")


def _samples(op: Op, rank: int, average: bool) -> Iterator[Sample]:
    make: Any = op.attrs_class
    size = (7, 6, 5)[:rank]
    yield Sample(make(pool_size=(2,) * rank, strides=(2,) * rank), (f32(1, 3, *size),))
    ceil = make(pool_size=(3,) * rank, strides=(2,) * rank, padding=(1,) * rank, ceil_mode=True)
    yield Sample(ceil, (f32(2, 2, *size),))
    yield Sample(make(pool_size=(2,) * rank, dilation=(2,) * rank, padding=(0, 1) * rank), (f32(1, 2, *size),))
    yield Sample(make(pool_size=(2,) * rank, padding=(2,) * rank + (3,) * rank), (f32(1, 2, *size),))
    if average:
        counted = make(pool_size=(3,) * rank, padding=(1,) * rank, count_include_pad=True)
        yield Sample(counted, (f32(1, 2, *size),))
    if rank == 2:
        blocked = make(pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout="NCHW4c")
        yield Sample(blocked, (f32(1, 2, 7, 7, 4),))
        yield Sample(make(pool_size=(2, 2), layout="NHWC"), (f32(1, 4, 5, 3),))


def _bad_samples(op: Op, rank: int) -> Iterator[BadSample]:
    make: Any = op.attrs_class
    yield BadSample(make(pool_size=(9,) * rank), (f32(1, 2, *(4,) * rank),), "the window does not fit")
    yield BadSample(make(), (f32(1, 2),), "data has 2 dimensions")


def _windowed(kind: str, rank: int) -> Op:
    name, average = f"nn.{kind}_pool{rank}d", kind == "avg"
    op = Op(name, kind=Kind.CONTRACTION, doc=f"The {'mean' if average else 'maximum'} of each window.")
    op.attrs(_attrs_class(f"{kind.title()}Pool{rank}DAttrs", rank, average))
    reference, compute = (_reference_avg, _compute_avg) if average else (_reference_max, _compute_max)
    op.infer(lambda attrs, data: infer_pool(name, attrs, rank, data))
    op.reference(lambda attrs, x: reference(normal(name, attrs, rank, x), attrs, x))
    op.compute(lambda attrs, x: compute(normal(name, attrs, rank, x), attrs, x))
    op.samples(lambda: _samples(op, rank, average))
    op.bad_samples(lambda: _bad_samples(op, rank))
    return op


max_pool1d, max_pool2d, max_pool3d = (_windowed("max", rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_windowed("avg", rank) for rank in (1, 2, 3))


# --- adaptive and global: the whole axis divided into output_size bins ----------------------------------------------


def _adaptive_attrs(name: str, rank: int, whole: bool) -> type:
    rows: list[tuple[str, object, object]] = [("layout", str, "NC" + SPATIAL[rank]), ("out_layout", str, "")]
    if not whole:
        rows.insert(0, ("output_size", tuple | None, None))
    return _record_of(name, rows)


def _bins(op: str, attrs: Any, rank: int, x: Array | TensorType | te.Tensor) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The pooled axes and their output sizes (None: keep the size)."""
    if len(letters(attrs.layout)) != len(x.shape):
        raise TypeMismatch(f"{op}: data has {len(x.shape)} dimensions, its layout is {attrs.layout}")
    axes = spatial_axes(op, attrs.layout, rank)
    if not any(f.name == "output_size" for f in fields(attrs)):
        return axes, (1,) * rank
    if attrs.output_size is None or attrs.output_size == ():
        return axes, tuple(x.shape[a] for a in axes)
    return axes, per_axis(op, "output_size", attrs.output_size, rank)


def _infer_bins(op: str, attrs: object, rank: int, data: Type) -> TensorType:
    x = need_tensor(op, data)
    shape = list(x.shape)
    for a, size in zip(*_bins(op, attrs, rank, x), strict=True):
        shape[a] = size if known(size) is not None else ANY_DIM
    return TensorType(tuple(shape), x.dtype)


def _reference_bins(op: str, attrs: object, rank: int, x: Array, average: bool) -> Array:
    y = x.astype(np.int64) if np.issubdtype(x.dtype, np.integer) else wide(x)
    count = np.ones([1] * y.ndim, np.int64)
    largest = partial(np.max, initial=y.dtype.type(lowest(y.dtype.name)))
    for a, size in zip(*_bins(op, attrs, rank, x), strict=True):
        bounds = [(i * y.shape[a] // size, -(-(i + 1) * y.shape[a] // size)) for i in range(size)]
        parts = [np.take(y, range(b, e), axis=a) for b, e in bounds]
        y = np.concatenate([(np.sum if average else largest)(p, axis=a, keepdims=True) for p in parts], axis=a)
        count = count * np.reshape([e - b for b, e in bounds], [-1 if n == a else 1 for n in range(y.ndim)])
    return (_mean(y, count) if average else y).astype(x.dtype)


def _compute_bins(op: str, attrs: object, rank: int, x: Tensor, average: bool) -> Tensor:
    axes, sizes = _bins(op, attrs, rank, x)
    places = [d for d in te.extents(x)[2:] if isinstance(d, int)]
    is_whole = set(sizes) == {1} and axes == tuple(range(2, len(x.shape))) and len(places) == len(axes)
    if is_whole and not average:
        return _largest(x, places)
    spans = [_widest(x.shape[a], s) for a, s in zip(axes, sizes, strict=True)]
    rk = reduce_axes(spans, [f"k{n}" for n in range(rank)])
    shape = list(x.shape)
    for a, s in zip(axes, sizes, strict=True):
        shape[a] = s
    fill, combine, tag = (0, _wide_sum, "pool_sum") if average else (lowest(x.dtype), te.max, "pool_max")

    def bounds(i: te.Expr, n: int) -> tuple[Any, Any]:
        size = x.shape[axes[n]]
        return i * size // sizes[n], ((i + 1) * size + (sizes[n] - 1)) // sizes[n]

    def element(*index: te.Expr) -> te.Expr:
        at, inside = list(index), []
        for n, a in enumerate(axes):
            if sizes[n] == 1:
                at[a] = rk[n]
            elif _divides(x.shape[a], sizes[n]):
                at[a] = index[a] * spans[n] + rk[n]
            else:
                begin, end = bounds(index[a], n)
                at[a] = begin + rk[n]
                inside.append(at[a] < end)
        value = x(*at)
        if inside:
            value = te.if_then_else(T.all_of(*inside), value, T.const(fill, x.dtype))
        return combine(value, axis=rk)

    total = te.compute(shape, element, name=tag, tag=tag)
    if not average:
        return total

    def divided(*index: te.Expr) -> te.Expr:
        count: te.Index = 1
        for n, a in enumerate(axes):
            begin, end = bounds(index[a], n)
            count = count * (x.shape[a] if sizes[n] == 1 else end - begin)
        return T.cast(T.div(total(*index), T.cast(count, total.dtype)), x.dtype)

    return te.compute(shape, divided, name="pool_avg", tag="pool_avg")


def _largest(x: Tensor, places: Sequence[int]) -> Tensor:
    """The largest element behind the first two axes, which are seen as one: more maxima side by side."""
    flat = te.compute(
        (*x.shape[:2], math.prod(places)), lambda b, c, k: x(b, c, *unravelled(k, places)), name="flat", tag="injective"
    )
    (k,) = reduce_axes(flat.shape[2:], ["k"])
    shape: list[te.Index] = [*x.shape[:2], *(1 for _ in places)]
    return te.compute(shape, lambda b, c, *_: te.max(flat(b, c, k), axis=[k]), name="pool_max", tag="pool_max")


def _divides(size: object, bins: int) -> bool:
    value = getattr(size, "value", size)
    return bins == 1 or (isinstance(value, int) and value % bins == 0)


def _widest(size: te.Index, bins: int) -> te.Index:
    """The size of the largest bin."""
    value = getattr(size, "value", size)
    if not isinstance(value, int):
        return size if bins == 1 else size // bins + 2
    return max(-(-(i + 1) * value // bins) - i * value // bins for i in range(bins))


def _binned(prefix: str, kind: str, rank: int) -> Op:
    name, average = f"nn.{prefix}_{kind}_pool{rank}d", kind == "avg"
    doc = f"The {'mean' if average else 'maximum'} of {'all positions' if prefix == 'global' else 'each bin'}."
    op = Op(name, kind=Kind.CONTRACTION, doc=doc)
    make = _adaptive_attrs(f"{prefix.title()}{kind.title()}Pool{rank}DAttrs", rank, prefix == "global")
    op.attrs(make)
    op.infer(lambda attrs, data: _infer_bins(name, attrs, rank, data))
    op.reference(lambda attrs, x: _reference_bins(name, attrs, rank, x, average))
    op.compute(lambda attrs, x: _compute_bins(name, attrs, rank, x, average))
    op.samples(lambda: _bin_samples(make, prefix, rank))
    return op


def _bin_samples(make: Callable[..., object], prefix: str, rank: int) -> Iterator[Sample]:
    size = (7, 6, 5)[:rank]
    if prefix == "global":
        yield Sample(make(), (f32(2, 3, *size),))
        if rank == 2:
            yield Sample(make(layout="NCHW4c"), (f32(1, 2, 5, 5, 4),))
        return
    yield Sample(make(output_size=(3,) * rank), (f32(2, 3, *size),))
    yield Sample(make(output_size=(1,) * rank), (f32(1, 2, *size),))
    yield Sample(make(output_size=size), (f32(1, 2, *size),))


global_max_pool1d, global_max_pool2d, global_max_pool3d = (_binned("global", "max", rank) for rank in (1, 2, 3))
global_avg_pool1d, global_avg_pool2d, global_avg_pool3d = (_binned("global", "avg", rank) for rank in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_binned("adaptive", "max", r) for r in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_binned("adaptive", "avg", r) for r in (1, 2, 3))

state("nn.adaptive_avg_pool1d nn.adaptive_avg_pool3d", precision=Precision.NEVER)
state("nn.adaptive_avg_pool2d", precision=Precision.NEVER)
state("nn.adaptive_max_pool1d nn.adaptive_max_pool3d", precision=Precision.FOLLOW)
state("nn.avg_pool1d nn.avg_pool3d nn.max_pool1d nn.max_pool3d", precision=Precision.FOLLOW)
state("nn.adaptive_max_pool2d", precision=Precision.FOLLOW)
state("nn.avg_pool2d", Fact.LINEAR, precision=Precision.FOLLOW)
state("nn.global_avg_pool2d", Fact.LINEAR, precision=Precision.NEVER)
state("nn.global_max_pool2d nn.max_pool2d", Fact.HOMOGENEOUS, precision=Precision.FOLLOW)
for _windows in ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool"):
    state(f"nn.{_windows}1d", follows=Follows.POOL, wider=f"nn.{_windows}2d")
    state(f"nn.{_windows}3d", follows=Follows.POOL)
    state(f"nn.{_windows}2d", follows=Follows.POOL, axes=Axes("NCHW"))
state("nn.global_avg_pool2d nn.global_max_pool2d", follows=Follows.POOL, axes=Axes("NCHW"))
state("nn.avg_pool2d", quantized="qnn.avg_pool2d")
