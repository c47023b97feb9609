"""TFLite's operators that move numbers about: shapes, slices, joins, indices, paddings.

In: nodes with typed inputs. Out: Relay's operators. Invariant: what decides a shape is known when compiling. Affine
integers are moved as they are; what is put beside them is their zero point.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.frontend import slices
from armillary.frontend.tflite.node import TfliteNode, in_integers, tflite
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const


@tflite("RESHAPE", options="shape:[i")
@in_integers("RESHAPE")
def reshape(node: TfliteNode) -> Expr:
    shape = node.wholes(1, "the shape") if node.has(1) else node.vector("shape")
    if shape is None:
        shape = node.writes[0].shape
    shape = () if shape == (0,) and math.prod(node.shape) == 1 else shape
    return op("reshape", node.x, newshape=shape)


@tflite("TRANSPOSE")
@in_integers("TRANSPOSE")
def transpose(node: TfliteNode) -> Expr:
    return op("transpose", node.x, axes=node.wholes(1, "the order of the axes"))


@tflite("SQUEEZE", options="axes:[i")
@in_integers("SQUEEZE")
def squeeze(node: TfliteNode) -> Expr:
    axes = node.vector("axes") or tuple(k for k, size in enumerate(node.shape) if size == 1)
    return op("squeeze", node.x, axis=axes) if axes else node.x


@tflite("EXPAND_DIMS")
@in_integers("EXPAND_DIMS")
def expand_dims(node: TfliteNode) -> Expr:
    (axis,) = node.wholes(1, "the axis")
    return op("expand_dims", node.x, axis=axis)


@tflite("SHAPE", options="type:b")
@in_integers("SHAPE")
def shape(node: TfliteNode) -> Expr:
    return const(np.array(node.shape, node.writes[0].dtype))


@tflite("RANK")
@in_integers("RANK")
def rank(node: TfliteNode) -> Expr:
    return const(np.array(len(node.shape), node.writes[0].dtype))


@tflite("FILL")
@in_integers("FILL")
def fill(node: TfliteNode) -> Expr:
    return op("full", node.input(1), shape=node.wholes(0, "the shape"), dtype=dtype_of(node.input(1)))


@tflite("RANGE")
def range_(node: TfliteNode) -> Expr:
    begin, end, step = (node.value(k, "a bound").item() for k in range(3))
    return op("arange", start=begin, stop=end, step=step, dtype=node.writes[0].dtype)


@tflite("CONCATENATION", options="axis:i activation:b")
def concatenation(node: TfliteNode) -> Expr:
    return node.activated(op("concatenate", Tuple(tuple(node.present)), axis=node.whole("axis")))


@tflite("PACK", options="count:i axis:i")
@in_integers("PACK")
def pack(node: TfliteNode) -> Expr:
    return op("stack", Tuple(tuple(node.present)), axis=node.whole("axis"))


@tflite("UNPACK", options="count:i axis:i")
@in_integers("UNPACK")
def unpack(node: TfliteNode) -> list[Expr]:
    return slices.unpacked(node, node.x, node.whole("axis"), node.whole("count"))


@tflite("SPLIT", options="count:i")
@in_integers("SPLIT")
def split(node: TfliteNode) -> list[Expr]:
    (axis,) = node.wholes(0, "the axis")
    return slices.equal_parts(node, node.input(1), axis, node.whole("count"))


@tflite("SPLIT_V", options="count:i")
@in_integers("SPLIT_V")
def split_v(node: TfliteNode) -> list[Expr]:
    (axis,) = node.wholes(2, "the axis")
    return slices.parts_of_lengths(node.x, axis, node.wholes(1, "the sizes"))


@tflite("SLICE")
@in_integers("SLICE")
def slice_(node: TfliteNode) -> Expr:
    return slices.from_begin(node.x, node.wholes(1, "the begin"), node.wholes(2, "the size"))


@tflite("STRIDED_SLICE", options="begin:i end:i ellipsis:i new:i shrink:i offset:?")
@in_integers("STRIDED_SLICE")
def strided_slice(node: TfliteNode) -> Expr:
    begin, end, steps = (node.wholes(k, what) for k, what in ((1, "the begin"), (2, "the end"), (3, "the steps")))
    if node.option("offset"):
        end = tuple(b + e for b, e in zip(begin, end, strict=True))
    begins, ends, ellipsis, new, shrink = (node.whole(k) for k in ("begin", "end", "ellipsis", "new", "shrink"))
    return slices.sliced(node.x, begin, end, steps, (begins, ends, ellipsis, new, shrink))


def _zero_point(node: TfliteNode, index: int = 0) -> int:
    values = node.read(index)
    return int(values.zero[0]) if values.is_quantised else 0


@tflite("PAD", "PADV2")
@in_integers("PAD", "PADV2")
def pad(node: TfliteNode) -> Expr:
    pairs = node.value(1, "the padding").reshape(-1, 2).tolist()
    value = float(node.value(2, "the value").reshape(())) if node.op == "PADV2" else float(_zero_point(node))
    return op("nn.pad", node.x, pad_width=tuple(map(tuple, pairs)), pad_value=value)


@tflite("MIRROR_PAD", options="mode:b")
@in_integers("MIRROR_PAD")
def mirror_pad(node: TfliteNode) -> Expr:
    pairs = tuple(map(tuple, node.value(1, "the padding").reshape(-1, 2).tolist()))
    return op("nn.mirror_pad", node.x, pad_width=pairs, mode=node.one_of("mode", ("REFLECT", "SYMMETRIC")))


@tflite("TILE")
@in_integers("TILE")
def tile(node: TfliteNode) -> Expr:
    return op("tile", node.x, reps=node.wholes(1, "the repeats"))


@tflite("BROADCAST_TO")
@in_integers("BROADCAST_TO")
def broadcast_to(node: TfliteNode) -> Expr:
    return op("broadcast_to", node.x, shape=node.wholes(1, "the shape"))


@tflite("BROADCAST_ARGS")
def broadcast_args(node: TfliteNode) -> Expr:
    shape = np.broadcast_shapes(node.wholes(0, "a shape"), node.wholes(1, "a shape"))
    return const(np.array(shape, node.writes[0].dtype))


@tflite("REVERSE_V2")
@in_integers("REVERSE_V2")
def reverse(node: TfliteNode) -> Expr:
    result = node.x
    for axis in node.wholes(1, "the axes"):
        result = op("reverse", result, axis=axis)
    return result


@tflite("REVERSE_SEQUENCE", options="seq_axis:i batch_axis:i")
def reverse_sequence(node: TfliteNode) -> Expr:
    axes = {name: node.whole(name) for name in ("seq_axis", "batch_axis")}
    return op("reverse_sequence", node.x, node.input(1), **axes)


@tflite("GATHER", options="axis:i batch_axes:i")
@in_integers("GATHER")
def gather(node: TfliteNode) -> Expr:
    axis, batch = node.whole("axis"), node.whole("batch_axes")
    indices = node.input(1)
    return op("take", node.x, indices, axis=axis % len(node.shape), batch_dims=batch % max(len(shape_of(indices)), 1))


@tflite("EMBEDDING_LOOKUP")
def embedding_lookup(node: TfliteNode) -> Expr:
    return op("take", node.input(1), node.x, axis=0)


@tflite("GATHER_ND")
@in_integers("GATHER_ND")
def gather_nd(node: TfliteNode) -> Expr:
    indices = node.input(1)
    rank = len(shape_of(indices))
    return op("gather_nd", node.x, op("transpose", indices, axes=(rank - 1, *range(rank - 1))))


@tflite("SCATTER_ND")
@in_integers("SCATTER_ND")
def scatter_nd(node: TfliteNode) -> Expr:
    """Updates added up in a tensor of zeros."""
    indices, updates, size = node.x, node.input(1), node.wholes(2, "the shape")
    rank = len(shape_of(indices))
    empty = op("zeros", shape=size, dtype=dtype_of(updates))
    return op("scatter_nd", empty, op("transpose", indices, axes=(rank - 1, *range(rank - 1))), updates, mode="add")


@tflite("ONE_HOT", options="axis:i")
def one_hot(node: TfliteNode) -> Expr:
    (depth,) = node.wholes(1, "the depth")
    on, off = node.input(2), node.input(3)
    return op("one_hot", node.x, on, off, depth=depth, axis=node.whole("axis"), dtype=dtype_of(on))


@tflite("TOPK_V2")
@in_integers("TOPK_V2")
def topk(node: TfliteNode) -> list[Expr]:
    (count,) = node.wholes(1, "the count")
    pair = op("topk", node.x, k=count, axis=-1, ret_type="both", dtype="int32")
    return [TupleGetItem(pair, 0), TupleGetItem(pair, 1)]


@tflite("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", options="block:i")
@in_integers("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def space_and_depth(node: TfliteNode) -> Expr:
    return op(f"nn.{node.op.lower()}", node.x, block_size=node.whole("block"), layout="NHWC")


@tflite("SPACE_TO_BATCH_ND")
@in_integers("SPACE_TO_BATCH_ND")
def space_to_batch(node: TfliteNode) -> Expr:
    block, pairs = node.wholes(1, "the block"), node.value(2, "the padding").reshape(-1, 2).tolist()
    attrs = {"paddings": tuple(map(tuple, pairs)), "pad_value": float(_zero_point(node))}
    return op("nn.space_to_batch_nd", node.x, block_shape=block, **attrs)


@tflite("BATCH_TO_SPACE_ND")
@in_integers("BATCH_TO_SPACE_ND")
def batch_to_space(node: TfliteNode) -> Expr:
    block, pairs = node.wholes(1, "the block"), node.value(2, "the crops").reshape(-1, 2).tolist()
    return op("nn.batch_to_space_nd", node.x, block_shape=block, crops=tuple(map(tuple, pairs)))


@tflite("MATRIX_DIAG")
def matrix_diag(node: TfliteNode) -> Expr:
    *lead, size = node.shape
    empty = op("zeros", shape=(*lead, size, size), dtype=dtype_of(node.x))
    return op("matrix_set_diag", empty, node.x)


@tflite("DYNAMIC_UPDATE_SLICE")
@in_integers("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: TfliteNode) -> Expr:
    """A tensor with a part replaced, at a place that may be computed; it is moved so that the part fits."""
    part, whole = shape_of(node.input(1)), node.shape
    depth = max((k + 1 for k, (a, b) in enumerate(zip(part, whole, strict=True)) if a != b), default=0)
    count = math.prod(part[:depth])
    if not count or not depth:
        return node.x if not math.prod(part) else node.input(1)
    places = op("strided_slice", cast(node.input(2), "int64"), begin=(0,), end=(depth,), strides=(1,))
    room = np.array([b - a for a, b in zip(part[:depth], whole[:depth], strict=True)], np.int64)
    first = op("maximum", op("minimum", places, const(room)), scalar(0, "int64"))
    grid = np.stack(np.unravel_index(np.arange(count), part[:depth]), 0)
    indices = op("add", const(grid.astype(np.int64)), op("expand_dims", first, axis=1))
    return op("scatter_nd", node.x, indices, reshape_to(node.input(1), (count, *part[depth:])))
