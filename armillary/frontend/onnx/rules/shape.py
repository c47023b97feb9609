"""ONNX import of shapes: Reshape, Transpose, Squeeze, Unsqueeze, Concat, Split, Tile, Expand, Shape, Size,
ConstantOfShape, Range, EyeLike, OneHot, Trilu.

In: an ONNX node; what decides a shape must be known when compiling. Out: calls of shape.py, transform.py, creation.py,
or constants. Invariant: every opset's form (attribute or input) of an operator comes to the same call.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent, ceil_div, least, note_meeting
from armillary.base.lazy import deferred
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.ops._deferred import by_name
from armillary.ops._types import axes_of, axis_of, dims_product, int_list, like_const
from armillary.ops.shape.shape import expand_dims, reshape, squeeze, transpose
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const
from armillary.relay.types import AnyDim, Dim

SMALL = 65_536  # elements of a computed constant that is kept as one
arange, full, sizes, strided_slice = map(by_name, ("arange", "full", "sizes", "strided_slice"))
add, less, where, cast = map(by_name, ("add", "less", "where", "cast"))
eye, one_hot, trilu = map(by_name, ("eye", "one_hot", "trilu"))
broadcast_to, concatenate, split, tile = map(by_name, ("broadcast_to", "concatenate", "split", "tile"))
with deferred():
    from armillary.ops.shape.creation import filled


@from_onnx("Reshape")
def from_onnx_reshape_attribute(node: OnnxNode) -> Expr:
    return reshape(node.input(0), int_list(node.ints("shape", default=())))


@from_onnx("Reshape", since=5)
def from_onnx_reshape(node: OnnxNode) -> Expr:
    shape = node.sizes(1, "shape")
    if any(isinstance(d, int) and d < -1 for d in shape):
        raise TypeMismatch(f"Reshape node {node.name!r}: the shape {shape} has a size below -1")
    return reshape(node.input(0), shape, node.flag("allowzero", False))  # a run compares the counts of elements


@from_onnx("Transpose")
def from_onnx_transpose(node: OnnxNode) -> Expr:
    perm = node.ints("perm", default=None)
    return transpose(node.input(0), None if perm is None else int_list(perm))


@from_onnx("Squeeze")
def from_onnx_squeeze_attribute(node: OnnxNode) -> Expr:
    axes = node.ints("axes", default=None)
    return squeeze(node.input(0), None if axes is None else int_list(axes))


@from_onnx("Squeeze", since=13)
def from_onnx_squeeze(node: OnnxNode) -> Expr:
    axes = node.optional_const(1, "axes")
    return squeeze(node.input(0), None if axes is None else int_list(axes))


def _unsqueeze(node: OnnxNode, axes: tuple[int, ...]) -> Expr:
    data, ndim = node.input(0), node.type_of(0).ndim + len(axes)
    for axis in sorted(axes_of("Unsqueeze", axes, ndim)):
        data = expand_dims(data, axis)
    return data


@from_onnx("Unsqueeze")
def from_onnx_unsqueeze_attribute(node: OnnxNode) -> Expr:
    return _unsqueeze(node, int_list(node.ints("axes", default=())))


@from_onnx("Unsqueeze", since=13)
def from_onnx_unsqueeze(node: OnnxNode) -> Expr:
    return _unsqueeze(node, int_list(node.const(1, "axes")))


@from_onnx("Concat")
def from_onnx_concat(node: OnnxNode) -> Expr:
    parts = node.present
    axis = node.int("axis", default=1)
    if len(parts) == 1:
        axis_of("Concat", axis, node.type_of(0).ndim)
        return parts[0]
    return concatenate(Tuple(tuple(parts)), axis)


def _split(node: OnnxNode, sizes: tuple[int, ...] | None, axis: int, count: int) -> list[Expr]:
    """Parts of the given sizes, or `count` parts of equal size of which the last may be smaller."""
    data = node.type_of(0)
    dim = data.shape[axis_of("Split", axis, data.ndim)]
    if sizes is None:
        if isinstance(dim, Extent):
            return _open_split(node, dim, axis, count)
        if isinstance(dim, AnyDim):
            raise TypeMismatch(f"Split node {node.name!r}: the axis has an unknown size")
        if node.opset < 18 and dim % max(1, count):
            raise TypeMismatch(f"Split node {node.name!r}: {dim} elements are no {count} equal parts")
        size = -(-dim // max(1, count))
        sizes = tuple(max(0, min(size, dim - k * size)) for k in range(count))
    if len(sizes) != len(node.outputs):
        raise TypeMismatch(f"Split node {node.name!r}: {len(sizes)} parts for {len(node.outputs)} outputs")
    if any(s < 0 for s in sizes) or (isinstance(dim, int) and sum(sizes) != dim):
        raise TypeMismatch(f"Split node {node.name!r}: sizes {sizes} do not add up to {dim}")
    if len(sizes) == 1:
        return [node.input(0)]
    call = split(node.input(0), int_list(np.cumsum(sizes)[:-1]), axis)
    return [TupleGetItem(call, k) for k in range(len(sizes))]


def _open_split(node: OnnxNode, dim: Extent, axis: int, count: int) -> list[Expr]:
    """Equal parts of an axis whose size is a name: a run refuses what does not divide, before version 18."""
    data, size = node.input(0), ceil_div(dim, max(1, count))
    if node.opset < 18:
        parts = split(data, count, axis)
        return [TupleGetItem(parts, k) for k in range(count)] if count > 1 else [data]
    ends = [least(size * k, dim) for k in range(count + 1)]
    cuts = itertools.pairwise(ends)
    return [strided_slice(data, begin=(a,), end=(b,), strides=(1,), axes=(axis,)) for a, b in cuts]


@from_onnx("Split")
def from_onnx_split_attribute(node: OnnxNode) -> list[Expr]:
    sizes = node.ints("split", default=None)
    if sizes is None and not node.missing(1):  # opset 1 allowed an input
        sizes = node.const(1, "split")
    parts = None if sizes is None else int_list(sizes)
    return _split(node, parts, node.int("axis", default=0), len(node.outputs))


@from_onnx("Split", since=13)
def from_onnx_split(node: OnnxNode) -> list[Expr]:
    sizes = node.optional_const(1, "split")
    count = node.int("num_outputs", default=None) or len(node.outputs)
    return _split(node, None if sizes is None else int_list(sizes), node.int("axis", default=0), count)


@from_onnx("Tile")
def from_onnx_tile_pair(node: OnnxNode) -> Expr:
    count, axis = int(node.const(1, "tiles").reshape(())), int(node.const(2, "axis").reshape(()))
    return tile(node.input(0), tuple(count if i == axis else 1 for i in range(node.type_of(0).ndim)))


@from_onnx("Tile", since=6)
def from_onnx_tile(node: OnnxNode) -> Expr:
    repeats, ndim = node.sizes(1, "repeats"), node.type_of(0).ndim
    if len(repeats) != ndim:
        raise TypeMismatch(f"Tile node {node.name!r}: {len(repeats)} repeats for {ndim} axes")
    return tile(node.input(0), repeats)


@from_onnx("Expand")
def from_onnx_expand(node: OnnxNode) -> Expr:
    data, shape = node.type_of(0), node.sizes(1, "shape")
    rank = max(data.ndim, len(shape))
    have, want = ((1,) * (rank - len(dims)) + tuple(dims) for dims in (data.shape, shape))
    target = tuple(
        d if _is_one(w) else w for d, w in zip(have, want, strict=True)
    )  # sizes that meet are compared in a run
    if target == data.shape:
        return node.input(0)
    return broadcast_to(node.input(0), target)


def _is_one(size: Dim) -> bool:
    """Whether a size is 1, or at most 1: exporters slice a row of what may have none, min(1, n), and expand by that."""
    if isinstance(size, Extent) and size.bounds[1] == 1:
        note_meeting(size, 1)
        return True
    return size == 1


@from_onnx("Shape")
def from_onnx_shape(node: OnnxNode) -> Expr:
    ty = node.type_of(0)
    part = ty.shape[slice(node.int("start", default=0), node.int("end", default=None))]
    known = tuple(d for d in part if isinstance(d, int | Extent))
    if len(known) < len(part):
        raise TypeMismatch(f"Shape node {node.name!r}: the shape {ty.shape} is not known", hint="bind it with shape=")
    return sizes(known, (len(known),))


@from_onnx("Size")
def from_onnx_size(node: OnnxNode) -> Expr:
    count = dims_product(node.type_of(0).shape)
    if not isinstance(count, int | Extent):
        raise TypeMismatch(f"Size node {node.name!r}: the shape is not known", hint="bind it with shape=")
    return sizes((count,))


@from_onnx("ConstantOfShape")
def from_onnx_constant_of_shape(node: OnnxNode) -> Expr:
    value = node.tensor("value", default=None)
    value = np.zeros((), np.float32) if value is None else np.asarray(value)
    shape = node.sizes(0, "shape")
    if value.size != 1 or any(isinstance(d, int) and d < 0 for d in shape):
        raise TypeMismatch(f"ConstantOfShape node {node.name!r}: value has {value.size} elements, shape is {shape}")
    fixed = tuple(d for d in shape if isinstance(d, int))
    return filled(value, fixed) if len(fixed) == len(shape) else full(const(value.reshape(())), shape)


@from_onnx("Range")
def from_onnx_range(node: OnnxNode) -> Expr:
    if node.type_of(0).dtype.is_int:
        limits = [node.sizes(i, what) for i, what in enumerate(("start", "limit", "delta"))]
        if any(isinstance(v, Extent) for values in limits for v in values):
            return arange(*(value for (value,) in limits), dtype=node.type_of(0).dtype)
    start, limit, step = (node.const(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta")))
    if step == 0:
        raise TypeMismatch(f"Range node {node.name!r}: delta is 0")
    dtype = start.dtype
    if dtype.kind in "iu":
        count = max(0, -((int(start) - int(limit)) // int(step)))
        node.check_elements(count)
        return const(start + np.arange(count, dtype=dtype) * step)
    first, last, by = float(start), float(limit), float(step)
    if not math.isfinite((last - first) / by):
        raise TypeMismatch(f"Range node {node.name!r}: from {first} to {last} by {by} is no finite number of elements")
    count = max(0, math.ceil((last - first) / by))
    node.check_elements(count)
    return const((first + np.arange(count) * by).astype(dtype))


@from_onnx("EyeLike")
def from_onnx_eye_like(node: OnnxNode) -> Expr:
    ty, code = node.type_of(0), node.int("dtype", default=None)
    if ty.ndim != 2:
        raise TypeMismatch(f"EyeLike node {node.name!r}: the input has shape {ty.shape}, wanted a matrix")
    rows, columns = ty.static
    dtype, k = ty.dtype if code is None else onnx_dtype(node, code), node.int("k", default=0)
    if rows * columns <= SMALL:
        return const(np.eye(rows, columns, k).astype(DType(dtype).numpy))
    return eye(rows, columns, k, dtype)


@from_onnx("OneHot")
def from_onnx_one_hot(node: OnnxNode) -> Expr:
    depth = int(node.const(1, "depth").reshape(()))
    values = node.type_of(2)
    if values.shape != (2,):
        raise TypeMismatch(f"OneHot node {node.name!r}: values has shape {values.shape}, wanted (2,)")
    off_on = split(node.input(2), 2, 0)
    off, on = TupleGetItem(off_on, 0), TupleGetItem(off_on, 1)
    indices, dtype = node.input(0), node.type_of(0).dtype
    if dtype.is_float or dtype.bits < 32:  # a narrow type need not hold the depth
        indices = cast(indices, "int64")
    if dtype.code != "uint":  # -1 is the last place; what is below -depth stays outside
        indices = where(less(indices, like_const(0, indices)), add(indices, like_const(depth, indices)), indices)
    return one_hot(indices, on, off, depth, node.int("axis", default=-1), values.dtype)


@from_onnx("Trilu")
def from_onnx_trilu(node: OnnxNode) -> Expr:
    k = node.optional_const(1, "k")
    return trilu(node.input(0), 0 if k is None else int(k.reshape(())), node.flag("upper", True))
