"""MXNet's operators that move, cut, join, gather and make elements.

In: nodes with typed inputs of known shapes. Out: Relay's operators. Invariant: `reshape` resolves MXNet's codes (0, -1
to -4, and the reversed reading) here, so that what is built has plain sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.mxnet.rules.elementwise import dtype_attr
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const


@mxnet("Flatten", "flatten", "_npx_batch_flatten")
def flatten(node: MxnetNode) -> Expr:
    return reshape_to(node.x, (node.shape[0], math.prod(node.shape[1:])))


@mxnet("Reshape", "reshape")
def reshape(node: MxnetNode) -> Expr:
    codes = node.wholes("shape", ()) or node.wholes("target_shape")
    if node.flag("reverse"):
        groups = _grouped(node, codes)
        sizes = resolved(node, [code for group in groups[::-1] for code in group], node.shape[::-1], True)[::-1]
    else:
        sizes = resolved(node, codes, node.shape)
    return reshape_to(node.x, sizes)


def _grouped(node: MxnetNode, codes: Sequence[int]) -> list[list[int]]:
    """Codes with the two sizes that -4 has behind it."""
    groups, rest = [], list(codes)
    while rest:
        count = 3 if rest[0] == -4 else 1
        if len(rest) < count:
            node.refuse(f"shape {list(codes)}: -4 wants two sizes behind it")
        groups.append(rest[:count])
        rest = rest[count:]
    return groups


def resolved(node: MxnetNode, codes: Sequence[int], sizes: Sequence[int], is_reversed: bool = False) -> tuple[int, ...]:
    """Sizes for MXNet's codes: 0 keeps one, -1 is what is left, -2 the rest, -3 two together, -4 one in two."""
    result: list[int] = []
    at, total = 0, math.prod(sizes)
    try:
        for code, *parts in _grouped(node, codes):
            if code == -2:
                result += sizes[at:]
                at = len(sizes)
            elif code == -3:
                result.append(sizes[at] * sizes[at + 1])
                at += 2
            elif code == -4:
                known = next((part for part in parts if part > 0), 1)
                both = [part if part > 0 else sizes[at] // known for part in parts]
                result += both[::-1] if is_reversed else both
                at += 1
            else:
                result.append(sizes[at] if code == 0 else code)
                at += 1
    except IndexError:
        node.refuse(f"shape {list(codes)} for data of the shape {list(sizes)}")
    rest = math.prod(n for n in result if n != -1)
    return tuple(total // max(rest, 1) if n == -1 else n for n in result)


@mxnet("_np_reshape", "_npi_reshape")
def reshape_of_numpy(node: MxnetNode) -> Expr:
    return op("reshape", node.x, newshape=node.wholes("newshape"))


@mxnet("reshape_like")
def reshape_like(node: MxnetNode) -> Expr:
    if any(node.text(name) for name in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")):
        node.refuse("a part of the axes")
    return reshape_to(node.x, shape_of(node.inputs[1]))


@mxnet("transpose", "_np_transpose", "_npi_transpose")
def transpose(node: MxnetNode) -> Expr:
    return op("transpose", node.x, axes=node.wholes("axes", ()) or tuple(range(len(node.shape)))[::-1])


@mxnet("SwapAxis", "swapaxes")
def swap_axes(node: MxnetNode) -> Expr:
    order = list(range(len(node.shape)))
    a, b = node.whole("dim1", 0), node.whole("dim2", 0)
    order[a], order[b] = order[b], order[a]
    return op("transpose", node.x, axes=tuple(order))


@mxnet("expand_dims", "_npi_expand_dims")
def expand_dims(node: MxnetNode) -> Expr:
    return op("expand_dims", node.x, axis=node.whole("axis"))


@mxnet("squeeze", "_np_squeeze", "_npi_squeeze")
def squeeze(node: MxnetNode) -> Expr:
    return op("squeeze", node.x, axis=node.wholes("axis", ()) or None)


@mxnet("Concat", "concat", "_rnn_param_concat", "_npi_concatenate")
def concat(node: MxnetNode) -> Expr:
    return op("concatenate", Tuple(tuple(node.inputs)), axis=node.whole("axis" if "_np" in node.op else "dim", 1))


@mxnet("stack", "_npi_stack")
def stack(node: MxnetNode) -> Expr:
    return op("stack", Tuple(tuple(node.inputs)), axis=node.whole("axis", 0))


def _pieces(value: Expr, count: int, axis: int, is_squeezed: bool) -> list[Expr]:
    pieces: list[Expr] = [TupleGetItem(value, k) for k in range(count)]
    return [op("squeeze", piece, axis=(axis,)) for piece in pieces] if is_squeezed else pieces


@mxnet("SliceChannel", "split")
def split(node: MxnetNode) -> list[Expr]:
    count, axis = node.whole("num_outputs"), node.whole("axis", 1)
    return _pieces(op("split", node.x, indices_or_sections=count, axis=axis), count, axis, node.flag("squeeze_axis"))


@mxnet("_split_v2")
def split_at(node: MxnetNode) -> list[Expr]:
    axis, sections = node.whole("axis", 0), node.whole("sections", 0)
    begins = node.wholes("indices", ())[1:]  # the first is 0
    count = sections or len(begins) + 1
    pieces = op("split", node.x, indices_or_sections=sections or begins, axis=axis)
    return _pieces(pieces, count, axis, node.flag("squeeze_axis"))


@mxnet("slice", "crop")
def slice_axes(node: MxnetNode) -> Expr:
    steps = [step or 1 for step in node.axes("step", ())] or [1] * len(node.axes("begin"))
    begin, end = node.axes("begin"), node.axes("end")
    axes = tuple(range(len(begin)))
    first = tuple(
        (0 if step > 0 else node.shape[k] - 1) if at is None else at
        for k, (at, step) in enumerate(zip(begin, steps, strict=True))
    )
    last = tuple(
        (node.shape[k] if step > 0 else -node.shape[k] - 1) if at is None else at
        for k, (at, step) in enumerate(zip(end, steps, strict=True))
    )
    return op("strided_slice", node.x, begin=first, end=last, strides=tuple(steps), axes=axes)


@mxnet("slice_axis")
def slice_axis(node: MxnetNode) -> Expr:
    axis, (end,) = node.whole("axis"), node.axes("end", (None,))
    stop = node.shape[axis] if end is None else end
    return op("strided_slice", node.x, begin=(node.whole("begin"),), end=(stop,), axes=(axis % len(node.shape),))


@mxnet("slice_like")
def slice_like(node: MxnetNode) -> Expr:
    sizes = shape_of(node.inputs[1])
    axes = node.wholes("axes", ()) or tuple(range(len(sizes)))
    axes = tuple(axis % len(node.shape) for axis in axes)
    ends = tuple(sizes[axis] for axis in axes)
    return op("strided_slice", node.x, begin=(0,) * len(axes), end=ends, axes=axes)


@mxnet("Crop")
def crop(node: MxnetNode) -> Expr:
    size = node.wholes("h_w", (0, 0)) if len(node.inputs) == 1 else shape_of(node.inputs[1])[2:]
    offset = node.wholes("offset", (0, 0))
    if node.flag("center_crop"):
        offset = tuple((n - m) // 2 for n, m in zip(node.shape[2:], size, strict=True))
    ends = tuple(a + n for a, n in zip(offset, size, strict=True))
    return op("strided_slice", node.x, begin=offset, end=ends, axes=(2, 3))


@mxnet("tile", "_npi_tile")
def tile(node: MxnetNode) -> Expr:
    return op("tile", node.x, reps=node.wholes("reps"))


@mxnet("repeat", "_np_repeat")
def repeat(node: MxnetNode) -> Expr:
    (axis,) = node.axes("axis", (None,))
    flat = node.x if axis is not None else reshape_to(node.x, (math.prod(node.shape),))
    return op("repeat", flat, repeats=node.whole("repeats"), axis=axis or 0)


@mxnet("reverse", "flip")
def reverse(node: MxnetNode) -> Expr:
    result = node.x
    for axis in node.wholes("axis"):
        result = op("reverse", result, axis=axis)
    return result


@mxnet("broadcast_axis", "broadcast_axes")
def broadcast_axis(node: MxnetNode) -> Expr:
    sizes = list(node.shape)
    for axis, size in zip(node.wholes("axis", ()), node.wholes("size", ()), strict=True):
        sizes[axis] = size
    return op("broadcast_to", node.x, shape=tuple(sizes))


@mxnet("broadcast_to", "_npi_broadcast_to")
def broadcast_to(node: MxnetNode) -> Expr:
    wanted, behind = node.wholes("shape"), 0
    behind = len(wanted) - len(node.shape)
    sizes = tuple(n or node.shape[k - behind] for k, n in enumerate(wanted))
    return op("broadcast_to", node.x, shape=sizes)


@mxnet("broadcast_like")
def broadcast_like(node: MxnetNode) -> Expr:
    sizes, other = list(node.shape), shape_of(node.inputs[1])
    axes = node.wholes("lhs_axes", ()) or tuple(range(len(sizes)))
    for axis, from_axis in zip(axes, node.wholes("rhs_axes", ()) or axes, strict=True):
        sizes[axis] = other[from_axis]
    return op("broadcast_to", node.x, shape=tuple(sizes))


@mxnet("depth_to_space", "space_to_depth")
def depth_and_space(node: MxnetNode) -> Expr:
    return op(f"nn.{node.op}", node.x, block_size=node.whole("block_size"))


@mxnet("Embedding", "_npx_embedding", "_contrib_SparseEmbedding")
def embedding(node: MxnetNode) -> Expr:
    return op("take", node.inputs[1], cast(node.x, "int32"), axis=0, mode="clip")


@mxnet("take", "_npi_take")
def take(node: MxnetNode) -> Expr:
    mode, axis = node.one_of("mode", ("clip", "wrap"), "clip"), node.whole("axis", 0)
    return op("take", node.x, cast(node.inputs[1], "int32"), axis=axis, mode=mode)


@mxnet("pick")
def pick(node: MxnetNode) -> Expr:
    (axis,) = node.axes("axis", (-1,))
    if axis is None or node.one_of("mode", ("clip",), "clip") != "clip":
        node.refuse("positions in the flat tensor", "axis=-1")
    axis = axis % len(node.shape)
    index = cast(node.inputs[1], "int32")
    retained = tuple(1 if k == axis else n for k, n in enumerate(node.shape))
    index = op("clip", reshape_to(index, retained), a_min=0, a_max=node.shape[axis] - 1)
    result = op("gather", node.x, index, axis=axis)
    return result if node.flag("keepdims") else op("squeeze", result, axis=(axis,))


@mxnet("gather_nd")
def gather_nd(node: MxnetNode) -> Expr:
    return op("gather_nd", node.x, cast(node.inputs[1], "int32"))


@mxnet("one_hot", "_npx_one_hot")
def one_hot(node: MxnetNode) -> Expr:
    on, off, dtype = node.number("on_value", 1.0), node.number("off_value", 0.0), dtype_attr(node)
    index = cast(node.x, "int32")
    return op("one_hot", index, scalar(on, dtype), scalar(off, dtype), depth=node.whole("depth"), axis=-1, dtype=dtype)


@mxnet("_zeros", "_ones", "_full", "_npi_zeros", "_npi_ones")
def filled(node: MxnetNode) -> Expr:
    value = node.number("value") if node.op == "_full" else float(node.op.endswith("ones"))
    return const(np.full(node.wholes("shape"), value, np.dtype(dtype_attr(node))))


@mxnet("_arange", "_npi_arange")
def arange(node: MxnetNode) -> Expr:
    start, (stop,), step = node.number("start", 0.0), node.axes("stop", (None,)), node.number("step", 1.0)
    first, last = (0.0, start) if stop is None else (start, float(stop))
    values = np.arange(first, last, step).repeat(node.whole("repeat", 1))
    return const(values.astype(dtype_attr(node)))


@mxnet("_contrib_arange_like", "_npx_arange_like")
def arange_like(node: MxnetNode) -> Expr:
    (axis,) = node.axes("axis", (None,))
    count = math.prod(node.shape) if axis is None else node.shape[axis]
    times = node.whole("repeat", 1)
    values = node.number("start", 0.0) + node.number("step", 1.0) * np.arange(-(-count // times))
    repeated = values.repeat(times)[:count].astype(dtype_of(node.x))
    return const(repeated.reshape(node.shape) if axis is None else repeated)


@mxnet("shape_array")
def shape_array(node: MxnetNode) -> Expr:
    return const(np.array(node.shape, "int64"))


@mxnet("SequenceMask", "SequenceLast", "SequenceReverse")
def sequence(node: MxnetNode) -> Expr:
    axis = node.whole("axis", 0)
    has_length = node.flag("use_sequence_length")
    if node.op == "SequenceMask":
        if not has_length:
            return node.x
        length = cast(node.inputs[1], "int32")
        return op("sequence_mask", node.x, length, mask_value=node.number("value", 0.0), axis=axis)
    if node.op == "SequenceReverse":
        if not has_length:
            return op("reverse", node.x, axis=axis)
        return op("reverse_sequence", node.x, cast(node.inputs[1], "int32"), seq_axis=axis, batch_axis=1 - axis)
    if not has_length:
        return op("take", node.x, scalar(node.shape[axis] - 1, "int32"), axis=axis)
    batch = node.shape[1 - axis]
    last = op("subtract", cast(node.inputs[1], "int32"), scalar(1, "int32"))
    pair = [last, const(np.arange(batch, dtype="int32"))]
    return op("gather_nd", node.x, op("stack", Tuple(tuple(pair if axis == 0 else pair[::-1])), axis=0))
