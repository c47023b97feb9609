"""ATen's changes of shape: views, permutations, slices, joins, repeats, diagonals.

In: a tensor and Python numbers. Out: calls of the shape operators. Invariant: a view is a value like any other; nothing
is shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from armillary.base.aliases import Array
from armillary.base.extent import Extent, bounds, least, most
from armillary.frontend.pytorch.sizes import has_open
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    axes_in,
    axis_in,
    broadcast,
    broadcast_sizes,
    cast,
    dtype_of,
    joined,
    op,
    promoted,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const


@aten("sym_size")
def sym_size(call: AtenCall, x: Expr, dim: int) -> int:
    return shape_of(x)[dim]


@aten("sym_numel")
def sym_numel(call: AtenCall, x: Expr) -> int:
    return math.prod(shape_of(x))


@aten("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "_reshape_copy", "reshape_as", "view_as")
def view(call: AtenCall, x: Expr, size: Value, *_: object) -> Expr:
    sizes = shape_of(size) if isinstance(size, Expr) else tuple(size)
    if -1 in sizes:
        rest = math.prod(s for s in sizes if s != -1)
        sizes = tuple((math.prod(shape_of(x)) // (rest or 1)) if s == -1 else s for s in sizes)
    return x if sizes == shape_of(x) else reshape_to(x, sizes)


@aten("view.dtype")
def view_dtype(call: AtenCall, x: Expr, dtype: str) -> Expr:
    return x if dtype == dtype_of(x) else op("reinterpret", x, dtype=dtype)


@aten("flatten")
def flatten(call: AtenCall, x: Expr, start: int, end: int) -> Expr:
    shape, rank = shape_of(x), rank_of(x)
    if not rank:
        return reshape_to(x, (1,))
    first, last = axis_in(start, rank), axis_in(end, rank)
    if first == last:
        return x
    return reshape_to(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@aten("unflatten")
def unflatten(call: AtenCall, x: Expr, dim: int, sizes: Sequence[int]) -> Expr:
    shape, axis = shape_of(x), axis_in(dim, rank_of(x))
    result: Expr = view(call, x, [*shape[:axis], *_filled(sizes, shape[axis]), *shape[axis + 1 :]])
    return result


def _filled(sizes: Sequence[int], total: int) -> list[int]:
    """Sizes of which one may be -1: what is left of the total."""
    rest = math.prod(s for s in sizes if s != -1)
    return [total // (rest or 1) if s == -1 else s for s in sizes]


@aten("permute", "permute_copy")
def permute(call: AtenCall, x: Expr, dims: Sequence[int]) -> Expr:
    axes = tuple(axis_in(d, rank_of(x)) for d in dims)
    return x if axes == tuple(range(len(axes))) else op("transpose", x, axes=axes)


@aten("t", "t_copy", "numpy_T")
def transpose_matrix(call: AtenCall, x: Expr) -> Expr:
    return x if rank_of(x) < 2 else op("transpose", x, axes=tuple(range(rank_of(x)))[::-1])


@aten("mT", "adjoint", "mH")
def transpose_last(call: AtenCall, x: Expr) -> Expr:
    result: Expr = transpose(call, x, -1, -2)
    return result


@aten("transpose", "transpose_copy", "swapaxes", "swapdims")
def transpose(call: AtenCall, x: Expr, first: int, second: int) -> Expr:
    axes = list(range(rank_of(x)))
    if not axes:
        return x
    a, b = axis_in(first, len(axes)), axis_in(second, len(axes))
    axes[a], axes[b] = axes[b], axes[a]
    return x if a == b else op("transpose", x, axes=tuple(axes))


@aten("movedim", "moveaxis")
def movedim(call: AtenCall, x: Expr, source: Value, target: Value) -> Expr:
    rank = rank_of(x)
    pairs = dict(zip(axes_in(target, rank), axes_in(source, rank), strict=True))
    others = iter(a for a in range(rank) if a not in pairs.values())
    result: Expr = permute(call, x, [pairs[k] if k in pairs else next(others) for k in range(rank)])
    return result


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(call: AtenCall, x: Expr, dim: int) -> Expr:
    return op("expand_dims", x, axis=dim % (rank_of(x) + 1))


@aten("squeeze", "squeeze_copy")
def squeeze(call: AtenCall, x: Expr, dims: Value = None) -> Expr:
    axes = range(rank_of(x)) if dims is None else () if dims == [] else axes_in(dims, rank_of(x))
    gone = [a for a in axes if shape_of(x)[a] == 1]
    return reshape_to(x, [d for a, d in enumerate(shape_of(x)) if a not in gone]) if gone else x


@aten("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(call: AtenCall, x: Expr, size: Value, *_: object) -> Expr:
    sizes = shape_of(size) if isinstance(size, Expr) else list(size)
    missing = len(sizes) - rank_of(x)
    return broadcast(x, (d if s == -1 else s for s, d in zip(sizes, (*[1] * missing, *shape_of(x)), strict=True)))


@aten("broadcast_tensors", "meshgrid", "meshgrid.indexing")
def together(call: AtenCall, tensors: Sequence[Expr], indexing: str | None = None) -> list[Expr]:
    if "meshgrid" not in call.name:
        shape = broadcast_sizes(*(shape_of(x) for x in tensors))
        return [broadcast(x, shape) for x in tensors]
    flat = [reshape_to(x, (-1,)) for x in tensors]
    order = list(range(len(flat)))
    if indexing == "xy" and len(flat) > 1:
        order[:2] = [1, 0]
    shape = tuple(shape_of(flat[order.index(k)])[0] for k in range(len(flat)))
    rank = len(flat)
    return [
        broadcast(reshape_to(x, tuple(-1 if k == order[n] else 1 for k in range(rank))), shape)
        for n, x in enumerate(flat)
    ]


def sliced(x: Expr, axis: int, begin: int, end: int, step: int = 1) -> Expr:
    """A regular part of one axis."""
    size = shape_of(x)[axis]
    if begin == 0 and step == 1 and bounds(end - size)[0] >= 0:
        return x
    return op("strided_slice", x, begin=(begin,), end=(most(begin, end),), strides=(step,), axes=(axis,))


def bounds_of(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Begin and end of a slice within an axis."""
    if has_open([size, start, end]):
        ends = [size + v if bounds(v)[1] < 0 else v for v in (start or 0, size if end is None else end)]
        first, last = (most(least(v, size), 0) for v in ends)
        return first, most(first, last)  # type: ignore[return-value]  # see shape_of
    begin, stop, _ = slice(start, end).indices(size)
    return begin, max(begin, stop)


@aten("slice", "slice_copy")
def slice_(
    call: AtenCall, x: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expr:
    axis = axis_in(dim, rank_of(x))
    return sliced(x, axis, *bounds_of(shape_of(x)[axis], start, end), step)


@aten("narrow", "narrow_copy")
def narrow(call: AtenCall, x: Expr, dim: int, start: Value, length: int) -> Expr:
    axis = axis_in(dim, rank_of(x))
    begin = int(call.known(start, "start")) if isinstance(start, Expr) else start
    begin += shape_of(x)[axis] if bounds(begin)[1] < 0 else 0
    return sliced(x, axis, begin, begin + length)


@aten("select", "select_copy")
def select(call: AtenCall, x: Expr, dim: int, index: Value) -> Expr:
    axis = axis_in(dim, rank_of(x))
    if isinstance(index, Expr):
        return op("take", x, index, axis=axis, mode="wrap")
    position = index + shape_of(x)[axis] if bounds(index)[1] < 0 else index
    return reshape_to(sliced(x, axis, position, position + 1), [d for a, d in enumerate(shape_of(x)) if a != axis])


@aten("cat", "concat", "concatenate")
def cat(call: AtenCall, tensors: Sequence[Expr], dim: int) -> Expr:
    dtype = dtype_of(tensors[0])
    for x in tensors[1:]:
        dtype = joined(dtype, dtype_of(x))
    parts = [cast(x, dtype) for x in tensors if shape_of(x) != (0,)] or [cast(tensors[0], dtype)]
    rank = rank_of(parts[0])
    return op("concatenate", Tuple(tuple(parts)), axis=axis_in(dim, rank)) if len(parts) > 1 else parts[0]


@aten("stack")
def stack(call: AtenCall, tensors: Sequence[Expr], dim: int) -> Expr:
    axis = dim % (rank_of(tensors[0]) + 1)
    parts = [op("expand_dims", x, axis=axis) for x in promoted_all(tensors)]
    return op("concatenate", Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else parts[0]


def promoted_all(tensors: Sequence[Expr]) -> list[Expr]:
    """Tensors in one dtype."""
    return list(tensors) if len({dtype_of(x) for x in tensors}) == 1 else promoted(*tensors)


@aten("hstack", "vstack", "dstack", "column_stack")
def stack_named(call: AtenCall, tensors: Sequence[Expr]) -> Expr:
    name = call.name.split(".")[1]
    least = {"hstack": 1, "vstack": 2, "dstack": 3, "column_stack": 2}[name]
    rows = [_at_least(x, least, name == "column_stack") for x in tensors]
    axis = {"hstack": min(1, rank_of(rows[0]) - 1), "vstack": 0, "dstack": 2, "column_stack": 1}[name]
    result: Expr = cat(call, rows, axis)
    return result


def _at_least(x: Expr, rank: int, behind: bool) -> Expr:
    """A tensor of at least so many axes: new ones in front (of matrices behind, too)."""
    shape = list(shape_of(x))
    while len(shape) < rank:
        is_behind = (behind and len(shape) == 1) or len(shape) == 2
        shape = [*shape, 1] if is_behind else [1, *shape]
    return reshape_to(x, shape) if len(shape) != rank_of(x) else x


@aten("atleast_1d", "atleast_2d", "atleast_3d")
def at_least(call: AtenCall, x: Expr) -> Expr:
    return _at_least(x, int(call.name.split(".")[1].split("_")[1][0]), False)


@aten("split_with_sizes", "split_with_sizes_copy", "split.sizes")
def split_with_sizes(call: AtenCall, x: Expr, sizes: Sequence[int], dim: int = 0) -> list[Expr]:
    axis = axis_in(dim, rank_of(x))
    if len(sizes) == 1:
        return [x]
    ends = [0, *accumulate(sizes)]
    if has_open([*ends, shape_of(x)[axis]]) or 0 in sizes:
        return [sliced(x, axis, b, e) for b, e in pairwise(ends)]
    parts = op("split", x, indices_or_sections=tuple(ends[1:-1]), axis=axis)
    return [TupleGetItem(parts, k) for k in range(len(sizes))]


@aten("split", "split_copy")
def split(call: AtenCall, x: Expr, size: Value, dim: int = 0) -> list[Expr]:
    if isinstance(size, list):
        several: list[Expr] = split_with_sizes(call, x, size, dim)
        return several
    total = shape_of(x)[axis_in(dim, rank_of(x))]
    if has_open([size, total]):  # PyTorch fixes how many parts there are
        ends: list[Value] = [least(k * size, total) for k in range(len(call.outputs) + 1)]
        return [sliced(x, axis_in(dim, rank_of(x)), b, e) for b, e in pairwise(ends)]
    sizes = [min(size, total - k) for k in range(0, total, max(size, 1))] or [0]
    result: list[Expr] = split_with_sizes(call, x, sizes, dim)
    return result


@aten("chunk", "unsafe_chunk")
def chunk(call: AtenCall, x: Expr, count: int, dim: int) -> list[Expr]:
    total = shape_of(x)[axis_in(dim, rank_of(x))]
    result: list[Expr] = split(call, x, max(1, -(-total // count)), dim)
    return result


@aten("tensor_split", "tensor_split.indices")
def tensor_split(call: AtenCall, x: Expr, cuts: Value, dim: int) -> list[Expr]:
    axis = axis_in(dim, rank_of(x))
    total = shape_of(x)[axis]
    if isinstance(cuts, int):
        sizes = [total // cuts + (k < total % cuts) for k in range(cuts)]
        ends = [int(v) for v in np.cumsum([0, *sizes])]
    else:
        ends = [0, *(bounds_of(total, 0, c)[1] for c in cuts), total]
    return [sliced(x, axis, b, max(b, e)) for b, e in pairwise(ends)]


@aten("unbind", "unbind_copy")
def unbind(call: AtenCall, x: Expr, dim: int) -> list[Expr]:
    return [select(call, x, dim, k) for k in range(shape_of(x)[axis_in(dim, rank_of(x))])]


@aten("repeat")
def repeat(call: AtenCall, x: Expr, repeats: Sequence[int]) -> Expr:
    missing = len(repeats) - rank_of(x)
    data = reshape_to(x, (*[1] * missing, *shape_of(x))) if missing else x
    if 0 in repeats:
        shape = tuple(d * r for d, r in zip(shape_of(data), repeats, strict=True))
        return op("zeros", shape=shape, dtype=dtype_of(x))
    if any(isinstance(r, Extent) for r in repeats):  # a copy along an axis of its own, which joins the next
        sizes = shape_of(data)
        pairs = [part for pair in zip(repeats, sizes, strict=True) for part in pair]
        apart = reshape_to(data, [part for size in sizes for part in (1, size)])
        copies = op("broadcast_to", apart, shape=tuple(pairs))
        return reshape_to(copies, [r * d for r, d in zip(repeats, sizes, strict=True)])
    return op("tile", data, reps=tuple(repeats)) if any(r != 1 for r in repeats) else data


@aten("tile")
def tile(call: AtenCall, x: Expr, repeats: Sequence[int]) -> Expr:
    result: Expr = repeat(call, x, [*[1] * (rank_of(x) - len(repeats)), *repeats])
    return result


@aten("repeat_interleave.self_int")
def repeat_interleave(call: AtenCall, x: Expr, count: int, dim: int | None, *_: object) -> Expr:
    data = reshape_to(x, (-1,)) if dim is None else x
    return op("repeat", data, repeats=count, axis=axis_in(dim or 0, rank_of(data)))


@aten("flip", "fliplr", "flipud")
def flip(call: AtenCall, x: Expr, dims: Sequence[int] | None = None) -> Expr:
    wanted = {"fliplr": (1,), "flipud": (0,)}.get(call.name.split(".")[1], dims or ())
    for axis in (axis_in(d, rank_of(x)) for d in wanted):
        x = op("reverse", x, axis=axis) if rank_of(x) else x
    return x


@aten("roll")
def roll(call: AtenCall, x: Expr, shifts: Value, dims: Value) -> Expr:
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims or ())
    if not axes:
        flat: Expr = roll(call, reshape_to(x, (-1,)), moves, [0])
        return reshape_to(flat, shape_of(x))
    for shift, dim in zip(moves, axes, strict=True):
        axis = axis_in(dim, rank_of(x))
        size = shape_of(x)[axis]
        place = shift % (size or 1)
        if place:
            parts = (sliced(x, axis, size - place, size), sliced(x, axis, 0, size - place))
            x = op("concatenate", Tuple(parts), axis=axis)
    return x


@aten("rot90")
def rot90(call: AtenCall, x: Expr, k: int, dims: Sequence[int]) -> Expr:
    a, b = (axis_in(d, rank_of(x)) for d in dims)
    turned: Expr = x
    for _ in range(k % 4):
        turned = op("reverse", transpose(call, turned, a, b), axis=a)
    return turned


def taken_flat(x: Expr, positions: Array) -> Expr:
    """Elements at positions of the flat tensor, in the shape of the positions."""
    return op("take", reshape_to(x, (-1,)), const(np.ascontiguousarray(positions).astype(np.int64)), axis=0)


@aten("diagonal", "diagonal_copy", "linalg_diagonal")
def diagonal(call: AtenCall, x: Expr, offset: int, first: int, second: int) -> Expr:
    a, b = axis_in(first, rank_of(x)), axis_in(second, rank_of(x))
    others = [k for k in range(rank_of(x)) if k not in (a, b)]
    sizes, rows, columns = [shape_of(x)[k] for k in others], shape_of(x)[a], shape_of(x)[b]
    flat = reshape_to(op("transpose", x, axes=(*others, a, b)), (*sizes, rows * columns))
    places = np.diagonal(np.arange(rows * columns).reshape(rows, columns), offset)
    return op("take", flat, const(places.astype(np.int64)), axis=len(others))


@aten("diag_embed")
def diag_embed(call: AtenCall, x: Expr, offset: int, first: int, second: int) -> Expr:
    size, rank = shape_of(x)[-1] + abs(offset), rank_of(x) + 1
    a, b = axis_in(first, rank), axis_in(second, rank)
    mask = np.eye(size, k=offset, dtype=bool)
    before, after = max(0, -offset), max(0, offset)
    rows = op("expand_dims", _bordered(x, before, after), axis=rank - 1)
    square = op("where", const(mask), rows, scalar(0, dtype_of(x)))
    others = iter(range(rank - 2))
    order = [rank - 2 if k == a else rank - 1 if k == b else next(others) for k in range(rank)]
    return op("transpose", square, axes=tuple(order)) if order != list(range(rank)) else square


def _bordered(x: Expr, before: int, after: int) -> Expr:
    """Zeros around the last axis."""
    if not before and not after:
        return x
    parts = [op("zeros", shape=(*shape_of(x)[:-1], n), dtype=dtype_of(x)) if n else None for n in (before, after)]
    row = [p for p in (parts[0], x, parts[1]) if p is not None]
    return op("concatenate", Tuple(tuple(row)), axis=rank_of(x) - 1)


@aten("diag")
def diag(call: AtenCall, x: Expr, offset: int) -> Expr:
    rule = diag_embed if rank_of(x) == 1 else diagonal
    result: Expr = rule(call, x, offset, 0, 1)
    return result


@aten("as_strided", "as_strided_copy")
def as_strided(call: AtenCall, x: Expr, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Expr:
    """Elements by their place in memory; a tensor here lies in order."""
    if not offset and _is_in_order(size, stride) and math.prod(size) == math.prod(shape_of(x)):
        return reshape_to(x, tuple(size))
    positions = np.full(tuple(size), offset or 0)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        positions = positions + (np.arange(extent) * step).reshape([-1 if k == axis else 1 for k in range(len(size))])
    return taken_flat(x, positions)


def _is_in_order(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether strides are those of a tensor that lies in order; axes of one element have any."""
    step = 1
    for extent, distance in zip(reversed(size), reversed(stride), strict=True):
        if extent != 1 and distance != step:
            return False
        step *= extent
    return True


@aten("diff")
def diff(call: AtenCall, x: Expr, count: int, dim: int, before: Expr | None = None, after: Expr | None = None) -> Expr:
    """Differences of neighbours, `count` times."""
    axis = axis_in(dim, rank_of(x))
    around = [part for part in (before, x, after) if part is not None]
    result: Expr = cat(call, around, axis) if len(around) > 1 else x
    name = "logical_xor" if dtype_of(x) == "bool" else "subtract"
    for _ in range(count):
        size = shape_of(result)[axis]
        result = op(name, sliced(result, axis, 1, size), sliced(result, axis, 0, size - 1))
    return result


@aten("unfold", "unfold_copy")
def unfold(call: AtenCall, x: Expr, dim: int, size: int, step: int) -> Expr:
    """Windows along one axis; a window's elements are a new last axis."""
    if not rank_of(x):
        return reshape_to(x, (1,)) if size == 1 else op("zeros", shape=(0,), dtype=dtype_of(x))
    axis = axis_in(dim, rank_of(x))
    count = (shape_of(x)[axis] - size) // step + 1
    within = np.arange(size)[None, :]
    if has_open([count]):
        begins = op("expand_dims", op("arange", 0, count * step, step, dtype="int64"), axis=1)
        taken = op("take", x, op("add", begins, const(within.astype(np.int64))), axis=axis)
    else:
        places = np.arange(count)[:, None] * step + within
        taken = op("take", x, const(places.astype(np.int64)), axis=axis)
    order = [*range(axis + 1), *range(axis + 2, rank_of(x) + 1), axis + 1]
    return op("transpose", taken, axes=tuple(order)) if order != sorted(order) else taken


@aten("tril", "triu")
def triangle(call: AtenCall, x: Expr, diagonal_: int) -> Expr:
    is_upper = "triu" in call.name
    if has_open(list(shape_of(x))):
        return op("trilu", x, k=diagonal_, upper=is_upper)
    mask = (np.triu if is_upper else np.tril)(np.ones(shape_of(x)[-2:], bool), diagonal_)
    return op("where", const(mask), x, scalar(0, dtype_of(x)))


@aten("pixel_shuffle")
def pixel_shuffle(call: AtenCall, x: Expr, factor: int) -> Expr:
    *lead, c, h, w = shape_of(x)
    split_ = reshape_to(x, (math.prod(lead), c // factor**2, factor, factor, h, w))
    moved = op("transpose", split_, axes=(0, 1, 4, 2, 5, 3))
    return reshape_to(moved, (*lead, c // factor**2, h * factor, w * factor))


@aten("pixel_unshuffle")
def pixel_unshuffle(call: AtenCall, x: Expr, factor: int) -> Expr:
    *lead, c, h, w = shape_of(x)
    split_ = reshape_to(x, (math.prod(lead), c, h // factor, factor, w // factor, factor))
    moved = op("transpose", split_, axes=(0, 1, 3, 5, 2, 4))
    return reshape_to(moved, (*lead, c * factor**2, h // factor, w // factor))


@aten("channel_shuffle")
def channel_shuffle(call: AtenCall, x: Expr, groups: int) -> Expr:
    n, c, *rest = shape_of(x)
    split_ = reshape_to(x, (n, groups, c // groups, *rest))
    moved = op("transpose", split_, axes=(0, 2, 1, *range(3, rank_of(x) + 1)))
    return reshape_to(moved, (n, c, *rest))
