"""ATen's reading and writing at positions: index, gather, embedding, scatter, masks.

In: data, positions, values. Out: take, gather, adv_index, scatter. Invariant: negative positions count from the end
where ATen says so; a mask whose number of hits is not known is refused where it decides a shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.extent import Known, bounds
from armillary.frontend.pytorch.rules.arithmetic import times
from armillary.frontend.pytorch.rules.shape import bounds_of
from armillary.frontend.pytorch.sizes import has_open
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    axis_in,
    broadcast,
    broadcast_sizes,
    cast,
    category,
    dtype_of,
    op,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def wrapped(index: Expr, size: int) -> Expr:
    """Positions of which negative ones count from the end."""
    place = cast(index, "int64")
    is_below = op("less", place, scalar(0, "int64"))
    return op("where", is_below, op("add", place, scalar(size, "int64")), place)


def _positions(call: AtenCall, x: Expr, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """Indices of which masks, whose values are known, are positions."""
    places: list[Expr | None] = []
    for index in indices:
        if index is None or dtype_of(index) not in ("bool", "uint8"):
            places.append(index)
            continue
        places += _hits(call, index)
    return places + [None] * (rank_of(x) - len(places))


def _hits(call: AtenCall, x: Expr) -> list[Expr]:
    """Where elements are not 0, by axis; of computed ones as many as the data say."""
    known = call.value(x)
    if known is not None:
        return [const(np.ascontiguousarray(h).astype(np.int64)) for h in np.nonzero(np.atleast_1d(known))]
    x = x if rank_of(x) else reshape_to(x, (1,))
    both = op("bounded_nonzero", x)
    count = reshape_to(TupleGetItem(both, 1), ())
    rows = call.folder.data_sizes.cut(TupleGetItem(both, 0), 1, count, "nonzero")
    return [op("take", rows, scalar(k, "int64"), axis=0) for k in range(rank_of(x))]


@aten("index", "_unsafe_index")
def index_(call: AtenCall, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """numpy's indexing with tensors; where they stand apart, their axes come first."""
    places = _positions(call, x, indices)
    used = [k for k, p in enumerate(places) if p is not None]
    if not used:
        return x
    tensors = [wrapped(p, shape_of(x)[k]) for k, p in enumerate(places) if p is not None]
    if len(used) == 1:
        return op("take", x, tensors[0], axis=used[0])
    others = [k for k in range(rank_of(x)) if k not in used]
    front = x if used == list(range(len(used))) else op("transpose", x, axes=(*used, *others))
    shape = broadcast_sizes(*(shape_of(t) for t in tensors))
    rows = [broadcast(t, shape) for t in tensors]
    is_open = has_open([*shape, *shape_of(x)])
    result = _taken_rows(front, rows) if is_open else op("adv_index", Tuple((front, *rows)))
    is_together = used == list(range(used[0], used[0] + len(used)))
    before = used[0] if is_together else 0
    if not before:
        return result
    count = len(shape)
    axes = (*range(count, count + before), *range(count), *range(count + before, rank_of(result)))
    return op("transpose", result, axes=axes)


def _taken_rows(x: Expr, places: Sequence[Expr]) -> Expr:
    """Elements of the first axes, as one axis; `adv_index` takes no open sizes."""
    sizes, count = shape_of(x), len(places)
    flat = _one_place(sizes, places)
    return op("take", reshape_to(x, (math.prod(sizes[:count]), *sizes[count:])), flat, axis=0)


def _one_place(sizes: Sequence[Known], places: Sequence[Expr]) -> Expr:
    """Positions on the first axes as ones on an axis of them all."""
    flat = cast(places[0], "int64")
    for size, place in zip(sizes[1:], places[1:], strict=False):
        flat = op("add", op("multiply", flat, scalar(size, "int64")), cast(place, "int64"))
    return flat


def _put_rows(x: Expr, places: Sequence[Expr], updates: Expr, mode: str) -> Expr:
    """Elements of the first axes written, as one axis; `scatter_nd` takes no open sizes."""
    sizes, count = shape_of(x), len(places)
    many, wide = math.prod(shape_of(places[0])), math.prod(sizes[count:])
    flat = broadcast(reshape_to(_one_place(sizes, places), (many, 1)), (many, wide))
    front = reshape_to(x, (math.prod(sizes[:count]), wide))
    return reshape_to(
        op("scatter_elements", front, flat, reshape_to(updates, (many, wide)), axis=0, reduction=mode), sizes
    )


@aten("index_put", "_unsafe_index_put")
def index_put(
    call: AtenCall, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False, *_: object
) -> Expr:
    if dtype_of(x) == "bool":
        bytes_: Expr = index_put(call, cast(x, "uint8"), indices, cast(values, "uint8"), accumulate)
        return cast(bytes_, "bool")
    masks = [p for p in indices if p is not None and dtype_of(p) == "bool"]
    if len(masks) == 1 and len(indices) == 1 and call.value(masks[0]) is None:
        return _put_masked(call, x, masks[0], values, accumulate)
    places = _positions(call, x, indices)
    used = [k for k, p in enumerate(places) if p is not None]
    tensors = [wrapped(p, shape_of(x)[k]) for k, p in enumerate(places) if p is not None]
    if not used:
        return copy_into(x, values)
    others = [k for k in range(rank_of(x)) if k not in used]
    order = (*used, *others)
    front = op("transpose", x, axes=order)
    shape = broadcast_sizes(*(shape_of(t) for t in tensors))
    rest = tuple(shape_of(x)[k] for k in others)
    is_together = used == list(range(used[0], used[0] + len(used)))
    before = used[0] if is_together else 0
    wanted = (*rest[:before], *shape, *rest[before:])
    updates = broadcast(cast(values, dtype_of(x)), wanted)
    if before:
        count = len(shape)
        axes = (*range(before, before + count), *range(before), *range(before + count, len(wanted)))
        updates = op("transpose", updates, axes=axes)
    mode = "add" if accumulate else "update"
    if has_open([*shape, *shape_of(x)]):
        result = _put_rows(front, [broadcast(t, shape) for t in tensors], updates, mode)
    else:
        rows = [op("expand_dims", broadcast(t, shape), axis=0) for t in tensors]
        points = op("concatenate", Tuple(tuple(rows)), axis=0) if len(rows) > 1 else rows[0]
        result = op("scatter_nd", front, points, updates, mode=mode)
    return op("transpose", result, axes=tuple(order.index(k) for k in range(rank_of(x))))


@aten("put")
def put(call: AtenCall, x: Expr, index: Expr, values: Expr, accumulate: bool) -> Expr:
    """Values at positions of the flat tensor."""
    flat, place, rows = (reshape_to(v, (-1,)) for v in (x, index, values))
    return reshape_to(index_put(call, flat, [place], rows, accumulate), shape_of(x))


def _put_masked(call: AtenCall, x: Expr, mask: Expr, values: Expr, accumulate: bool) -> Expr:
    """Values where a mask over the first axes of x holds: one for all hits, or one after another for each."""
    rest, data = shape_of(x)[rank_of(mask) :], cast(values, dtype_of(x))
    flags = broadcast(reshape_to(mask, (*shape_of(mask), *[1] * len(rest))), shape_of(x))
    front = shape_of(data)[: rank_of(data) - len(rest)]
    if math.prod(front) == 1:  # math.prod(()) is 1
        put = broadcast(reshape_to(data, shape_of(data)[len(front) :]), shape_of(x))
        put = op("add", x, put) if accumulate else put
        return op("where", flags, put, x)
    rows = broadcast(data, (*front, *rest))
    if not accumulate:
        return masked_scatter(call, x, flags, rows)  # type: ignore[no-any-return]  # a rule of this file
    return op("add", x, masked_scatter(call, broadcast(scalar(0, dtype_of(x)), shape_of(x)), flags, rows))


def copy_into(x: Expr, values: Expr) -> Expr:
    """Values in place of all elements."""
    return broadcast(cast(values, dtype_of(x)), shape_of(x))


@aten("masked_fill")
def masked_fill(call: AtenCall, x: Expr, mask: Expr, value: Value) -> Expr:
    shape = broadcast_sizes(shape_of(x), shape_of(mask))
    return op("where", broadcast(mask, shape), cast(value, dtype_of(x)), broadcast(x, shape))


@aten("masked_select")
def masked_select(call: AtenCall, x: Expr, mask: Expr) -> Expr:
    shape = broadcast_sizes(shape_of(x), shape_of(mask))
    (hits,) = _hits(call, reshape_to(broadcast(mask, shape), (-1,)))
    return op("take", reshape_to(broadcast(x, shape), (-1,)), hits, axis=0)


@aten("masked_scatter")
def masked_scatter(call: AtenCall, x: Expr, mask: Expr, source: Expr) -> Expr:
    """Elements of the source, one after another, where the mask is set."""
    shape = broadcast_sizes(shape_of(x), shape_of(mask))
    x, flags = broadcast(x, shape), reshape_to(broadcast(mask, shape), (-1,))
    number = op("subtract", op("cumsum", cast(flags, "int64"), axis=0), scalar(1, "int64"))
    values = op("take", reshape_to(source, (-1,)), op("maximum", number, scalar(0, "int64")), axis=0)
    return reshape_to(op("where", flags, values, reshape_to(x, (-1,))), shape_of(x))


@aten("nonzero", "argwhere")
def nonzero(call: AtenCall, x: Expr) -> Expr:
    known = call.value(x)
    if known is not None:
        return const(np.argwhere(known).astype(np.int64))
    if not rank_of(x):  # as many rows without columns
        (hits,) = _hits(call, x)
        return op("strided_slice", op("expand_dims", hits, axis=1), begin=(0,), end=(0,), axes=(1,))
    return op("stack", Tuple(tuple(_hits(call, x))), axis=1)


@aten("where.default", "nonzero_numpy")
def nonzero_by_axis(call: AtenCall, x: Expr) -> list[Expr]:
    """Where elements are not 0: positions along each axis."""
    return _hits(call, x)


@aten("gather")
def gather(call: AtenCall, x: Expr, dim: int, index: Expr, *_: object) -> Expr:
    if not rank_of(x):
        return broadcast(x, shape_of(index))
    axis = axis_in(dim, rank_of(x))
    for k in range(rank_of(x)):  # positions may cover a part of the other axes
        part, size = shape_of(index)[k], shape_of(x)[k]
        if k != axis and part != size and bounds(part - size)[0] < 0:
            x = op("strided_slice", x, begin=(0,), end=(shape_of(index)[k],), axes=(k,))
    return op("gather", x, cast(index, "int64"), axis=axis)


@aten("take_along_dim")
def take_along_dim(call: AtenCall, x: Expr, index: Expr, dim: int | None) -> Expr:
    if dim is None:
        flat: Expr = gather(call, reshape_to(x, (-1,)), 0, reshape_to(index, (-1,)))
        return flat
    axis = axis_in(dim, rank_of(x))
    sizes = zip(shape_of(x), shape_of(index), strict=True)
    both = [(a, b) if k == axis else (max(a, b),) * 2 for k, (a, b) in enumerate(sizes)]
    data, places = broadcast(x, (a for a, _ in both)), broadcast(index, (b for _, b in both))
    result: Expr = gather(call, data, axis, wrapped(places, shape_of(x)[axis]))
    return result


@aten("take")
def take(call: AtenCall, x: Expr, index: Expr) -> Expr:
    flat = reshape_to(x, (-1,))
    return op("take", flat, wrapped(index, shape_of(flat)[0]), axis=0)


@aten("index_select", "index_select_backward")
def index_select(call: AtenCall, x: Expr, dim: int, index: Expr) -> Expr:
    if not rank_of(x):
        return x
    flat = index if rank_of(index) else reshape_to(index, (1,))
    return op("take", x, cast(flat, "int64"), axis=axis_in(dim, rank_of(x)))


@aten("embedding")
def embedding(call: AtenCall, weight: Expr, index: Expr, *_: object) -> Expr:
    return op("take", weight, index, axis=0)


@aten("embedding_renorm")
def embedding_renorm(call: AtenCall, weight: Expr, index: Expr, most: float, power: float) -> Expr:
    """The rows that the index names scaled down to a norm of `most` where theirs is larger."""
    count, dtype = shape_of(weight)[0], dtype_of(weight)
    sizes = op("abs", weight)
    if math.isinf(power):
        norms = op("max", sizes, axis=(1,), keepdims=True)
    else:
        total = op("sum", op("power", sizes, scalar(power, dtype)), axis=(1,), keepdims=True)
        norms = op("power", total, scalar(1 / power, dtype))
    places = reshape_to(cast(index, "int64"), (-1,))
    ones = broadcast(scalar(1, dtype), shape_of(places))
    is_named = op("scatter_elements", broadcast(scalar(0, dtype), (count,)), places, ones, axis=0)
    is_long = op(
        "logical_and", op("greater", norms, scalar(most, dtype)), cast(reshape_to(is_named, (count, 1)), "bool")
    )
    scaled = op("divide", scalar(most, dtype), op("add", norms, scalar(1e-7, dtype)))  # as PyTorch has it
    return op("multiply", weight, op("where", is_long, scaled, scalar(1, dtype)))


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: AtenCall, weight: Expr, index: Expr, offsets: Expr, *rest: Value) -> list[Expr]:
    """The sum, mean or maximum of the rows that each bag names; bags of one known size are an axis."""
    _, mode, _, factors, has_last, padding = rest
    known, total = call.value(offsets), shape_of(index)[0]
    count = shape_of(offsets)[0] - int(has_last)
    bags: Expr | None = None
    if known is not None and not has_open([total]) and padding < 0:
        starts = [*np.asarray(known).tolist()[:count], total]
        size = starts[1] - starts[0] if count > 0 else 0
        if size and starts == list(range(0, count * size + 1, size)):
            rows = op("take", weight, reshape_to(index, (count, size)), axis=0)
            if factors is not None:
                rows = op("multiply", rows, reshape_to(factors, (count, size, 1)))
            bags = op(("sum", "mean", "max")[mode], rows, axis=(1,))
    if bags is None:
        begins = op("strided_slice", offsets, begin=(0,), end=(count,)) if has_last else offsets
        bags = _bags(weight, index, begins, (mode, factors, padding))
    is_short = mode == 0 and padding < 0 and dtype_of(weight) in ("float32", "float16")
    counts = shape_of(offsets) if "forward_only" in call.name else (count,)
    of_gradients = (0,) if is_short else (total,), counts, shape_of(bags) if mode == 2 else (count,)
    return [bags, *(broadcast(scalar(0, dtype_of(index)), shape) for shape in of_gradients)]


def _bags(weight: Expr, index: Expr, starts: Expr, how: tuple[int, Expr | None, int]) -> Expr:
    """Bags that begin at computed places: rows are written to the bag that is the last to begin at or before them."""
    mode, factors, padding = how
    (total,), (count,), dtype = shape_of(index), shape_of(starts), dtype_of(weight)
    numbers = op("arange", 0, total, 1, dtype="int64")
    begun = op("greater_equal", reshape_to(numbers, (total, 1)), reshape_to(cast(starts, "int64"), (1, count)))
    bag = op("subtract", op("sum", cast(begun, "int64"), axis=(1,)), scalar(1, "int64"))
    counted = broadcast(scalar(1, dtype), (total,))
    if padding >= 0:
        counted = cast(op("not_equal", index, scalar(padding, dtype_of(index))), dtype)
    rows = op("take", weight, index, axis=0)
    wide = shape_of(rows)[1]
    if factors is not None:
        rows = op("multiply", rows, reshape_to(factors, (total, 1)))
    here = op("greater", broadcast(reshape_to(counted, (total, 1)), (total, wide)), scalar(0, dtype))
    least = scalar(-math.inf if mode == 2 else 0, dtype)
    rows = op("where", here, rows, least)
    places = broadcast(reshape_to(bag, (total, 1)), (total, wide))
    start = broadcast(least, (count, wide))
    result = op("scatter_elements", start, places, rows, axis=0, reduction="max" if mode == 2 else "add")
    sizes = op("scatter_elements", broadcast(scalar(0, dtype), (count,)), bag, counted, axis=0, reduction="add")
    held = reshape_to(op("maximum", sizes, scalar(1, dtype)), (count, 1))
    if mode == 1:
        return op("divide", result, held)
    is_empty = broadcast(op("equal", reshape_to(sizes, (count, 1)), scalar(0, dtype)), (count, wide))
    return op("where", is_empty, scalar(0, dtype), result) if mode == 2 else result


def _scattered(x: Expr, dim: int, index: Expr, source: Expr, reduction: str) -> Expr:
    """Write the part of the source that the index covers."""
    if not rank_of(x):
        flat = _scattered(reshape_to(x, (1,)), 0, reshape_to(index, (-1,)), reshape_to(source, (-1,)), reduction)
        return reshape_to(flat, ())
    sizes = shape_of(index)
    if shape_of(source) != sizes:
        source = op("strided_slice", source, begin=(0,) * len(sizes), end=sizes)
    if 0 in sizes:
        return x
    data, updates = x, source
    if dtype_of(x) == "bool":
        data, updates = cast(x, "uint8"), cast(source, "uint8")
    axis = axis_in(dim, rank_of(x))
    result = op("scatter_elements", data, cast(index, "int64"), updates, axis=axis, reduction=reduction)
    return cast(result, dtype_of(x))


@aten("scatter", "scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(call: AtenCall, x: Expr, dim: int, index: Expr, source: Value, reduce: str | None = None) -> Expr:
    values = cast(source, dtype_of(x))
    updates = values if rank_of(values) or not rank_of(index) else broadcast(values, shape_of(index))
    return _scattered(x, dim, index, updates, "update" if reduce is None else _REDUCTIONS[reduce])


@aten("scatter_add")
def scatter_add(call: AtenCall, x: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    return _scattered(x, dim, index, source, "add")


@aten("scatter_reduce")
def scatter_reduce(
    call: AtenCall, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, include_self: bool
) -> Expr:
    """With the elements that are there, or without them where something is written."""
    if reduce == "mean":
        return _scattered_mean(x, dim, index, source, include_self)
    base = x
    if not include_self:
        neutral = {"sum": 0, "prod": 1}.get(reduce)
        if neutral is None:
            base = _scattered(x, dim, index, source, "update")
        else:
            start = broadcast(scalar(neutral, dtype_of(x)), shape_of(index))
            base = _scattered(x, dim, index, start, "update")
    return _scattered(base, dim, index, source, _REDUCTIONS[reduce])


def _scattered_mean(x: Expr, dim: int, index: Expr, source: Expr, include_self: bool) -> Expr:
    dtype = dtype_of(x)
    ones = broadcast(scalar(1, dtype), shape_of(index))
    none = broadcast(scalar(0, dtype), shape_of(x))
    count = _scattered(broadcast(scalar(1, dtype), shape_of(x)) if include_self else none, dim, index, ones, "add")
    total = _scattered(x if include_self else none, dim, index, source, "add")
    divisor = op("maximum", count, scalar(1, dtype))
    mean = op("divide" if category(dtype) == 2 else "floor_divide", total, divisor)
    return mean if include_self else op("where", op("greater", count, scalar(0, dtype)), mean, x)


def _at_index(x: Expr, dim: int, index: Expr) -> Expr:
    """Positions along one axis, for whole slices."""
    axis = axis_in(dim, rank_of(x))
    shape = tuple(shape_of(index)[0] if k == axis else d for k, d in enumerate(shape_of(x)))
    return broadcast(reshape_to(index, tuple(-1 if k == axis else 1 for k in range(rank_of(x)))), shape)


@aten("index_reduce")
def index_reduce(call: AtenCall, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, include_self: bool) -> Expr:
    result: Expr = scatter_reduce(call, x, dim, _at_index(x, dim, index), source, reduce, include_self)
    return result


@aten("index_add", "index_copy", "index_fill")
def index_write(call: AtenCall, x: Expr, dim: int, index: Expr, source: Value, alpha: Value = 1) -> Expr:
    if not rank_of(x):
        whole: Expr = index_write(call, reshape_to(x, (1,)), 0, index, source, alpha)
        return reshape_to(whole, ())
    places = _at_index(x, dim, index if rank_of(index) else reshape_to(index, (1,)))
    values = cast(source, dtype_of(x))
    if "index_add" in call.name:
        values = times(values, alpha)
    updates = broadcast(values, shape_of(places)) if rank_of(values) != rank_of(x) else values
    return _scattered(x, dim, places, updates, "add" if "index_add" in call.name else "update")


def _placed(x: Expr, source: Expr, axis: int, begin: int, end: int, step: int) -> Expr:
    """The source in place of a regular part of one axis."""
    size = shape_of(x)[axis]
    places = np.arange(begin, end, step)
    rows = broadcast(
        cast(source, dtype_of(x)), tuple(len(places) if k == axis else d for k, d in enumerate(shape_of(x)))
    )
    if len(places) == 0:
        return x
    if step == 1:
        ends = [(0, begin), (end, size)]
        around = [op("strided_slice", x, begin=(b,), end=(e,), axes=(axis,)) if e > b else None for b, e in ends]
        parts = [p for p in (around[0], rows, around[1]) if p is not None]
        return op("concatenate", Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else rows
    order = np.arange(size)
    order[places] = size + np.arange(len(places))
    both = op("concatenate", Tuple((x, rows)), axis=axis)
    return op("take", both, const(order.astype(np.int64)), axis=axis)


@aten("slice_scatter")
def slice_scatter(
    call: AtenCall, x: Expr, source: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expr:
    axis = axis_in(dim, rank_of(x))
    return _placed(x, source, axis, *bounds_of(shape_of(x)[axis], start, end), step)


@aten("select_scatter")
def select_scatter(call: AtenCall, x: Expr, source: Expr, dim: int, index: int) -> Expr:
    axis = axis_in(dim, rank_of(x))
    position = index % shape_of(x)[axis]
    return _placed(x, op("expand_dims", source, axis=axis), axis, position, position + 1, 1)


@aten("diagonal_scatter")
def diagonal_scatter(call: AtenCall, x: Expr, source: Expr, offset: int, first: int, second: int) -> Expr:
    positions = np.arange(math.prod(shape_of(x))).reshape(shape_of(x))
    places = np.diagonal(positions, offset, axis_in(first, rank_of(x)), axis_in(second, rank_of(x))).reshape(-1)
    order = np.arange(positions.size)
    order[places] = positions.size + np.arange(len(places))
    both = op("concatenate", Tuple((reshape_to(x, (-1,)), reshape_to(source, (-1,)))), axis=0)
    return reshape_to(op("take", both, const(order.astype(np.int64)), axis=0), shape_of(x))


@aten("one_hot")
def one_hot(call: AtenCall, x: Expr, classes: int) -> Expr:
    if classes < 0:
        classes = int(call.known(x, "number of classes").max()) + 1
    return op("one_hot", x, scalar(1, "int64"), scalar(0, "int64"), depth=classes, axis=-1, dtype="int64")
