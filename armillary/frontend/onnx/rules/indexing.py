"""ONNX reading and writing at positions: Slice, Gather*, Scatter*, TensorScatter, ReverseSequence, Compress, NonZero,
Unique.

In: nodes of any opset. Out: calls of slice.py, indexing.py and scatter.py, or constants. Invariant: positions are
checked against the axes they go along: when importing if they are known, else by check_values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.extent import Known
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import along, checked, checked_points
from armillary.ops._deferred import by_name
from armillary.ops._iota import iota
from armillary.ops._types import axis_of, int_list
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array
from armillary.relay.types import AnyDim, Dim, TensorType

add, floor_mod, broadcast_to, reshape, transpose = map(
    by_name, ("add", "floor_mod", "broadcast_to", "reshape", "transpose")
)
gather, gather_nd, reverse_sequence, strided_slice, take = map(
    by_name, ("gather", "gather_nd", "reverse_sequence", "strided_slice", "take")
)
cache_update, scatter_elements, scatter_nd = map(by_name, ("nn.cache_update", "scatter_elements", "scatter_nd"))


@from_onnx("Slice")
def from_onnx_slice_attributes(node: OnnxNode) -> Expr:
    starts, ends = node.ints("starts", default=()), node.ints("ends", default=())
    axes = node.ints("axes", default=None)
    return strided_slice(
        node.input(0), int_list(starts), int_list(ends), None, None if axes is None else int_list(axes)
    )


@from_onnx("Slice", since=10)
def from_onnx_slice_inputs(node: OnnxNode) -> Expr:
    axes, steps = node.optional_const(3, "axes"), node.optional_const(4, "steps")
    begin, end = node.sizes(1, "starts"), node.sizes(2, "ends")
    strides = None if steps is None else int_list(steps)
    along_axes = None if axes is None else int_list(axes)
    if strides is not None:
        begin = _first_positions(begin, strides, along_axes or tuple(range(len(begin))), node.type_of(0).shape)
    return strided_slice(node.input(0), begin, end, strides, along_axes)


def _first_positions(
    begin: tuple[Known, ...], strides: tuple[int, ...], axes: tuple[int, ...], shape: Sequence[Dim]
) -> tuple[Known, ...]:
    """Where slices begin: ONNX clamps a start before the first element to it also where a step is negative.

    A Relay slice has nothing there, as in numpy. What does not fit is left to the operator's own check.
    """
    result = list(begin)
    for place, (start, stride, axis) in enumerate(zip(begin, strides, axes, strict=False)):
        dim = shape[axis] if -len(shape) <= axis < len(shape) else None
        if stride < 0 and isinstance(dim, int) and isinstance(start, int) and start < -dim:
            result[place] = -dim
    return tuple(result)


@from_onnx("Gather")
def from_onnx_gather(node: OnnxNode) -> Expr:
    axis, data = node.int("axis", default=0), node.type_of(0)
    known = node.constants[1] if len(node.constants) > 1 else None
    size = data.shape[axis_of("Gather", axis, data.ndim)]
    if isinstance(size, AnyDim):
        return take(node.input(0), node.input(1), axis, 0, "wrap")
    moved = math.prod(data.typical) // max(size, 1) * math.prod(node.type_of(1).typical)
    indices = checked(node, 1, [along(size)], "index", moved)
    if known is None:
        return take(node.input(0), indices, axis, 0, "wrap")
    fixed = np.where(known < 0, known + size, known).astype(known.dtype)
    return take(node.input(0), const(fixed), axis, 0, "clip")


@from_onnx("GatherElements")
def from_onnx_gather_elements(node: OnnxNode) -> Expr:
    axis = node.int("axis", default=0)
    size = node.type_of(0).known[axis_of("GatherElements", axis, node.type_of(0).ndim)]
    return gather(node.input(0), checked(node, 1, [along(size)], "index", node.type_of(1).typical_size), axis)


@from_onnx("GatherND")
def from_onnx_gather_nd(node: OnnxNode) -> Expr:
    ndim, batch_dims = node.type_of(1).ndim, node.int("batch_dims", default=0)
    indices = transpose(checked_points(node, batch_dims), (ndim - 1, *range(ndim - 1)))
    return gather_nd(node.input(0), indices, batch_dims)


@from_onnx("ReverseSequence")
def from_onnx_reverse_sequence(node: OnnxNode) -> Expr:
    axis, data = node.int("time_axis", default=0), node.type_of(0)
    longest = data.static[axis_of("ReverseSequence", axis, data.ndim)]
    lengths = checked(node, 1, [(0, longest)], "length of a sequence", data.size)
    return reverse_sequence(node.input(0), lengths, axis, node.int("batch_axis", default=1))


@from_onnx("Compress")
def from_onnx_compress(node: OnnxNode) -> Expr:
    condition = node.const(1, "condition").reshape(-1)
    axis, data = node.int("axis", default=None), node.input(0)
    ty = data.checked_type
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"Compress takes a tensor, got {ty}")
    extent = int(np.prod(ty.static)) if axis is None else ty.static[axis_of("Compress", axis, len(ty.static))]
    if axis is None:
        axis, data = 0, reshape(data, (-1,))
    chosen = np.flatnonzero(condition[:extent]).astype(np.int64)
    return take(data, const(chosen), axis)


def _known_input(node: OnnxNode) -> Array:
    """The input of an operator whose result has a data-dependent shape: it must be known."""
    known = node.constants[0] if node.constants else None
    if known is None:
        raise UnsupportedError(
            f"{node.op_type} node {node.name!r}: the shape of its result depends on the values of its input",
            hint="give its input in static_inputs= when importing, or take the node out of the model",
        )
    return known


@from_onnx("NonZero")
def from_onnx_nonzero(node: OnnxNode) -> Expr:
    return const(np.array(np.nonzero(np.atleast_1d(_known_input(node))), np.int64))


@from_onnx("Unique")
def from_onnx_unique(node: OnnxNode) -> list[Expr]:
    data, axis = _known_input(node), node.int("axis", default=None)
    node.check_elements(4 * data.size)
    values, first, inverse, counts = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.flag("sorted", True):
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return [const(np.ascontiguousarray(values)), *(const(v.astype(np.int64)) for v in (first, inverse, counts))]


@from_onnx("ScatterElements", "Scatter")
def from_onnx_scatter_elements(node: OnnxNode) -> Expr:
    reduction = node.string("reduction", default="none")
    axis, data = node.int("axis", default=0), node.type_of(0)
    size = data.known[axis_of(node.op_type, axis, data.ndim)]
    indices = checked(node, 1, [along(size)], "index", data.typical_size)
    return scatter_elements(node.input(0), indices, node.input(2), axis, _reduction(reduction))


def _reduction(onnx_name: str) -> str:
    return "update" if onnx_name == "none" else onnx_name


@from_onnx("ScatterND")
def from_onnx_scatter_nd(node: OnnxNode) -> Expr:
    ndim = node.type_of(1).ndim
    indices = transpose(checked_points(node), (ndim - 1, *range(ndim - 1)))
    reduction = node.string("reduction", default="none")
    return scatter_nd(node.input(0), indices, node.input(2), _reduction(reduction))


@from_onnx("TensorScatter")
def from_onnx_tensor_scatter(node: OnnxNode) -> Expr:
    """A cache written from a per-batch start position on; mode circular wraps round."""
    cache, update = node.type_of(0), node.type_of(1)
    axis = axis_of("TensorScatter", node.int("axis", default=-2), cache.ndim)
    length, batch = update.static[axis], cache.static[0]
    beside = [cache.static[:axis] + cache.static[axis + 1 :], update.static[:axis] + update.static[axis + 1 :]]
    if update.ndim != cache.ndim or beside[0] != beside[1]:
        raise TypeMismatch(f"TensorScatter node {node.name!r}: an update of shape {update.shape} for {cache.shape}")
    mode = node.string("mode", default="linear")
    if mode not in ("linear", "circular") or axis == 0:
        raise TypeMismatch(
            f"TensorScatter node {node.name!r}: got mode {mode!r} and axis {axis}, wanted linear or circular"
        )
    steps = reshape_to(iota(length), tuple(length if i == axis else 1 for i in range(cache.ndim)))
    places: Expr = steps
    if not node.missing(2):
        last = cache.static[axis] - (length if mode == "linear" else 1)
        first = checked(node, 2, [(0, last)], "write position", update.size)
        if (mode, axis, cache.ndim) == ("linear", 2, 4):
            return cache_update(node.input(0), node.input(1), first)
        start = reshape_to(first, (batch, *(1,) * (cache.ndim - 1)))
        places = add(start, steps)
    if mode == "circular":
        places = floor_mod(places, const(cache.static[axis], "int64"))
    return scatter_elements(node.input(0), broadcast_to(places, update.static), node.input(1), axis)
