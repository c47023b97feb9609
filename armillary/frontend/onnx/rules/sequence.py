"""ONNX sequences and optionals, which exist at import only: a sequence is a Tuple of its elements' expressions.

In: nodes whose sequences have a length known when importing, and constant positions; or a tensor of the elements, where
a loop of as many iterations as a size says has appended them. Out: Tuples, elements, lengths. Invariant: no sequence
reaches a kernel; a position in a Tuple that is computed at run time is refused. An optional that holds something is
that thing; one that holds nothing is NOTHING. Loops over sequences: frontend/onnx/control.py.
"""

from __future__ import annotations

import numpy as np

from armillary.budgets import EXPANDED_NODES
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.bounded import as_number
from armillary.frontend.onnx.node import NOTHING, OnnxNode, from_onnx
from armillary.ops._types import axis_of, int_list
from armillary.ops.shape.indexing import take
from armillary.ops.shape.shape import reshape, squeeze, transpose
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import concatenate, stack
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem
from armillary.relay.types import TensorType, TupleType


def sequence_fields(node: OnnxNode, index: int = 0) -> tuple[Expr, ...]:
    """The elements of input `index`, which must be a sequence."""
    value = node.input(index)
    ty = value.checked_type
    if value is NOTHING or not isinstance(ty, TupleType):
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: input {index} is no sequence but {ty}")
    if isinstance(value, Tuple):
        return value.fields
    return tuple(TupleGetItem(value, k) for k in range(len(ty.fields)))


def _position(node: OnnxNode, index: int, length: int, default: int, past_end: bool = False) -> int:
    """A constant position, counted from the front."""
    place = node.optional_const(index, "position")
    position = default if place is None else int(place.reshape(-1)[0])
    if not -length <= position < length + past_end:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: position {position} of a sequence of {length}")
    return position + length if position < 0 else position


@from_onnx("SequenceConstruct")
def sequence_construct(node: OnnxNode) -> list[Expr]:
    return [Tuple(tuple(node.present))]


@from_onnx("SequenceEmpty")
def sequence_empty(node: OnnxNode) -> list[Expr]:
    node.int("dtype", default=1)  # an empty sequence is the same for every type
    return [Tuple(())]


@from_onnx("SequenceInsert")
def sequence_insert(node: OnnxNode) -> list[Expr]:
    fields = sequence_fields(node)
    at = _position(node, 2, len(fields), len(fields), past_end=True)
    return [Tuple((*fields[:at], node.input(1), *fields[at:]))]


@from_onnx("SequenceErase")
def sequence_erase(node: OnnxNode) -> list[Expr]:
    fields = sequence_fields(node)
    at = _position(node, 1, len(fields), -1)
    return [Tuple((*fields[:at], *fields[at + 1 :]))]


def _stacked(node: OnnxNode) -> TensorType | None:
    """The type of a sequence that is a tensor of its elements, which are all of one type."""
    ty = node.input(0).checked_type
    return ty if isinstance(ty, TensorType) else None


@from_onnx("SequenceAt")
def sequence_at(node: OnnxNode) -> list[Expr]:
    if _stacked(node):
        return [take(node.input(0), node.input(1), axis=0)]
    fields = sequence_fields(node)
    return [fields[_position(node, 1, len(fields), 0)]]


@from_onnx("SequenceLength")
def sequence_length(node: OnnxNode) -> list[Expr]:
    if stacked := _stacked(node):
        return [as_number(stacked.known[0])]
    return [Constant(np.array(len(sequence_fields(node)), np.int64))]


@from_onnx("ConcatFromSequence")
def concat_from_sequence(node: OnnxNode) -> list[Expr]:
    if stacked := _stacked(node):
        return [_joined(node, stacked)]
    fields = sequence_fields(node)
    if not fields:
        raise UnsupportedError(f"ConcatFromSequence node {node.name!r}: the sequence is empty")
    join = stack if node.flag("new_axis", False) else concatenate
    return [join(fields, int(node.int("axis")))]


def _joined(node: OnnxNode, stacked: TensorType) -> Expr:
    """The elements of a tensor side by side along an axis, of their own or of its own."""
    is_new = node.flag("new_axis", False)
    axis = axis_of("ConcatFromSequence", int(node.int("axis")), stacked.ndim - (not is_new))
    moved = transpose(node.input(0), (*range(1, axis + 1), 0, *range(axis + 1, stacked.ndim)))
    if is_new:
        return moved
    count, *shape = stacked.known
    return reshape(moved, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))


@from_onnx("SplitToSequence")
def split_to_sequence(node: OnnxNode) -> list[Expr]:
    """Parts of size 1 (without `split`), of one size, or of the sizes listed; keepdims counts only without `split`."""
    data, ty = node.input(0), node.type_of(0)
    axis = axis_of("SplitToSequence", int(node.int("axis", default=0)), ty.ndim)
    extent = ty.static[axis]
    keep = node.flag("keepdims", True)
    split = node.optional_const(1, "split")
    if split is not None and split.ndim == 1:
        sizes = int_list(split)
    else:
        step = 1 if split is None else max(int(split), 1)
        sizes = tuple(min(step, extent - start) for start in range(0, extent, step))
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise TypeMismatch(f"SplitToSequence node {node.name!r}: sizes {sizes} do not add up to {extent}")
    EXPANDED_NODES.check(len(sizes), f"SplitToSequence node {node.name!r}")
    parts: list[Expr] = []
    start = 0
    for size in sizes:
        part = strided_slice(data, begin=(start,), end=(start + size,), strides=(1,), axes=(axis,))
        parts.append(part if keep or split is not None else squeeze(part, (axis,)))
        start += size
    return [Tuple(tuple(parts))]


@from_onnx("Optional")
def optional(node: OnnxNode) -> list[Expr]:
    node.attributes.get("type")
    return [NOTHING if node.missing(0) else node.input(0)]


@from_onnx("OptionalHasElement")
def optional_has_element(node: OnnxNode) -> list[Expr]:
    return [Constant(np.array(not node.missing(0) and node.input(0) is not NOTHING))]


@from_onnx("OptionalGetElement")
def optional_get_element(node: OnnxNode) -> list[Expr]:
    if node.missing(0) or node.input(0) is NOTHING:
        raise TypeMismatch(f"OptionalGetElement node {node.name!r}: the optional holds nothing")
    return [node.input(0)]
