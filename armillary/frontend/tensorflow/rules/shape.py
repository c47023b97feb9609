"""TensorFlow's operators that move numbers about: shapes, slices, joins, indices, paddings.

In: nodes with typed inputs. Out: Relay's operators. Invariant: what decides a shape is known when compiling.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.frontend import slices
from armillary.frontend.tensorflow.node import TensorflowNode, tensorflow
from armillary.frontend.values import dtype_of, op, shape_of
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const


@tensorflow("Identity", "StopGradient", "CheckNumerics", "PreventGradient", "Snapshot", "PlaceholderWithDefault")
def identity(node: TensorflowNode) -> Expr:
    return node.x


@tensorflow("EnsureShape")
def ensure_shape(node: TensorflowNode) -> Expr:
    return node.x


@tensorflow("IdentityN")
def identity_n(node: TensorflowNode) -> list[Expr]:
    return list(node.inputs)


@tensorflow("Reshape")
def reshape(node: TensorflowNode) -> Expr:
    return op("reshape", node.x, newshape=node.numbers(1, "the shape"), allowzero=True)


@tensorflow("Squeeze")
def squeeze(node: TensorflowNode) -> Expr:
    axes = node.wholes("squeeze_dims") or tuple(k for k, size in enumerate(node.shape) if size == 1)
    return op("squeeze", node.x, axis=axes) if axes else node.x


@tensorflow("ExpandDims")
def expand_dims(node: TensorflowNode) -> Expr:
    (axis,) = node.numbers(1, "the axis")
    return op("expand_dims", node.x, axis=axis)


@tensorflow("Transpose")
def transpose(node: TensorflowNode) -> Expr:
    return op("transpose", node.x, axes=node.numbers(1, "the order of the axes"))


@tensorflow("ConcatV2", "Concat")
def concat(node: TensorflowNode) -> Expr:
    place = len(node.inputs) - 1 if node.op == "ConcatV2" else 0
    (axis,) = node.numbers(place, "the axis")
    parts = [x for k, x in enumerate(node.inputs) if k != place]
    return op("concatenate", Tuple(tuple(parts)), axis=axis)


@tensorflow("Pack")
def pack(node: TensorflowNode) -> Expr:
    return op("stack", Tuple(tuple(node.inputs)), axis=node.whole("axis"))


@tensorflow("Unpack")
def unpack(node: TensorflowNode) -> list[Expr]:
    return slices.unpacked(node, node.x, node.whole("axis"), node.whole("num"))


@tensorflow("Split")
def split(node: TensorflowNode) -> list[Expr]:
    (axis,) = node.numbers(0, "the axis")
    return slices.equal_parts(node, node.inputs[1], axis, node.whole("num_split"))


@tensorflow("SplitV")
def split_v(node: TensorflowNode) -> list[Expr]:
    (axis,) = node.numbers(2, "the axis")
    return slices.parts_of_lengths(node.x, axis, node.numbers(1, "the sizes"))


@tensorflow("Slice")
def slice_(node: TensorflowNode) -> Expr:
    return slices.from_begin(node.x, node.numbers(1, "the begin"), node.numbers(2, "the size"))


@tensorflow("StridedSlice")
def strided_slice(node: TensorflowNode) -> Expr:
    begin, end, steps = (node.numbers(k, what) for k, what in ((1, "the begin"), (2, "the end"), (3, "the steps")))
    begins, ends, ellipsis, new, shrink = (
        node.whole(f"{word}_mask") for word in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    )
    return slices.sliced(node.x, begin, end, steps, (begins, ends, ellipsis, new, shrink))


@tensorflow("Shape")
def shape(node: TensorflowNode) -> Expr:
    return const(np.array(node.shape, node.dtype("out_type", "int32")))


@tensorflow("Rank", "Size")
def rank_or_size(node: TensorflowNode) -> Expr:
    value = len(node.shape) if node.op == "Rank" else math.prod(node.shape)
    return const(np.array(value, node.dtype("out_type", "int32")))


@tensorflow("Fill")
def fill(node: TensorflowNode) -> Expr:
    return op("full", node.inputs[1], shape=node.numbers(0, "the shape"), dtype=dtype_of(node.inputs[1]))


@tensorflow("Range")
def range_(node: TensorflowNode) -> Expr:
    begin, end, step = (node.value(k, "a bound").item() for k in range(3))
    return op("arange", start=begin, stop=end, step=step, dtype=dtype_of(node.x))


@tensorflow("Pad", "PadV2")
def pad(node: TensorflowNode) -> Expr:
    pairs = tuple(map(tuple, node.value(1, "the padding").reshape(-1, 2).tolist()))
    value = float(node.value(2, "the value").reshape(())) if node.op == "PadV2" else 0.0
    return op("nn.pad", node.x, pad_width=pairs, pad_value=value)


@tensorflow("MirrorPad")
def mirror_pad(node: TensorflowNode) -> Expr:
    pairs = tuple(map(tuple, node.value(1, "the padding").reshape(-1, 2).tolist()))
    return op("nn.mirror_pad", node.x, pad_width=pairs, mode=node.text("mode", "REFLECT"))


@tensorflow("Tile")
def tile(node: TensorflowNode) -> Expr:
    return op("tile", node.x, reps=node.numbers(1, "the repeats"))


@tensorflow("BroadcastTo")
def broadcast_to(node: TensorflowNode) -> Expr:
    return op("broadcast_to", node.x, shape=node.numbers(1, "the shape"))


@tensorflow("ReverseV2")
def reverse(node: TensorflowNode) -> Expr:
    result = node.x
    for axis in node.numbers(1, "the axes"):
        result = op("reverse", result, axis=axis)
    return result


@tensorflow("ReverseSequence")
def reverse_sequence(node: TensorflowNode) -> Expr:
    axes = {"seq_axis": node.whole("seq_dim"), "batch_axis": node.whole("batch_dim")}
    return op("reverse_sequence", node.x, node.inputs[1], **axes)


@tensorflow("Gather", "GatherV2")
def gather(node: TensorflowNode) -> Expr:
    axis = node.numbers(2, "the axis")[0] if node.op == "GatherV2" else 0
    indices = node.inputs[1]
    batch = node.whole("batch_dims") % max(len(shape_of(indices)), 1)
    return op("take", node.x, indices, axis=axis % len(node.shape), batch_dims=batch)


def _columns(indices: Expr) -> Expr:
    """Indices with the axes that they count in front, as Relay has them."""
    rank = len(shape_of(indices))
    return op("transpose", indices, axes=(rank - 1, *range(rank - 1)))


@tensorflow("GatherNd")
def gather_nd(node: TensorflowNode) -> Expr:
    return op("gather_nd", node.x, _columns(node.inputs[1]))


@tensorflow("ScatterNd")
def scatter_nd(node: TensorflowNode) -> Expr:
    updates = node.inputs[1]
    empty = op("zeros", shape=node.numbers(2, "the shape"), dtype=dtype_of(updates))
    return op("scatter_nd", empty, _columns(node.x), updates, mode="add")


@tensorflow("OneHot")
def one_hot(node: TensorflowNode) -> Expr:
    (depth,) = node.numbers(1, "the depth")
    on, off = node.inputs[2], node.inputs[3]
    return op("one_hot", node.x, on, off, depth=depth, axis=node.whole("axis", -1), dtype=dtype_of(on))


@tensorflow("TopKV2", "TopK")
def topk(node: TensorflowNode) -> list[Expr]:
    count = node.numbers(1, "the count")[0] if node.op == "TopKV2" else node.whole("k")
    pair = op("topk", node.x, k=count, axis=-1, ret_type="both", dtype="int32")
    return [TupleGetItem(pair, 0), TupleGetItem(pair, 1)]


@tensorflow("SpaceToDepth", "DepthToSpace")
def space_and_depth(node: TensorflowNode) -> Expr:
    if node.text("data_format", "NHWC") != "NHWC":
        node.refuse("channels first")
    name = "nn.space_to_depth" if node.op == "SpaceToDepth" else "nn.depth_to_space"
    return op(name, node.x, block_size=node.whole("block_size", 2), layout="NHWC")


@tensorflow("SpaceToBatchND", "BatchToSpaceND")
def space_and_batch(node: TensorflowNode) -> Expr:
    block = node.numbers(1, "the block")
    pairs = tuple(map(tuple, node.value(2, "the margins").reshape(-1, 2).tolist()))
    if node.op == "SpaceToBatchND":
        return op("nn.space_to_batch_nd", node.x, block_shape=block, paddings=pairs)
    return op("nn.batch_to_space_nd", node.x, block_shape=block, crops=pairs)


@tensorflow("MatrixDiag", "MatrixDiagV3")
def matrix_diag(node: TensorflowNode) -> Expr:
    if node.op == "MatrixDiagV3" and node.numbers(1, "the diagonal") != (0,):
        node.refuse("other diagonals")
    *lead, size = node.shape
    empty = op("zeros", shape=(*lead, size, size), dtype=dtype_of(node.x))
    return op("matrix_set_diag", empty, node.x)


@tensorflow("BroadcastArgs")
def broadcast_args(node: TensorflowNode) -> Expr:
    shape = np.broadcast_shapes(node.numbers(0, "a shape"), node.numbers(1, "a shape"))
    return const(np.array(shape, dtype_of(node.x)))
