"""ONNX control flow, resolved at import: If takes one branch; Loop, Scan and SequenceMap are unrolled.

In: a node, a function that imports a sub-graph with given inputs, and the folder of constants. Out: expressions, one
per output. Invariant: conditions and trip counts are known when importing (the backend fixes inputs they depend on), at
most MAX_ITERATIONS are unrolled, and everything else is refused with an UnsupportedError. Sequences: ops/sequence_onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import GraphProto

from armillary.errors import ModelError, UnsupportedError
from armillary.ops.sequence_onnx import sequence_fields
from armillary.ops.shape import squeeze
from armillary.ops.transform import stack
from armillary.ops.transform_slice import strided_slice
from armillary.relay.expr import Constant, Expr, Tuple
from armillary.relay.op import OnnxNode
from armillary.relay.types import TensorType, TupleType

MAX_ITERATIONS = 256
Values = list[Expr]
Body = Callable[[Sequence[Expr]], Values]


class Walk(Protocol):
    """What control flow needs of the import in progress."""

    def body(self, graph: GraphProto, scope: Any, opsets: Any) -> Body:
        """A function that imports the sub-graph for given inputs."""

    def known(self, view: OnnxNode, value: Expr, what: str) -> Any:
        """The value of an expression, which must be known when importing."""


def branch_taken(walk: Walk, view: OnnxNode, scope: Any, opsets: Any) -> Values:
    """If: only the branch that is taken is imported."""
    condition = view.constants[0]
    if condition is None:
        raise UnsupportedError(
            "If: the condition is computed at run time, and control flow is not supported",
            hint="fix the inputs it depends on with static_inputs=, or simplify the model before import",
        )
    name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return walk.body(_graph(view, name), scope, opsets)(())


def _graph(view: OnnxNode, name: str) -> GraphProto:
    graph = view.attributes.get(name)
    if not isinstance(graph, GraphProto):
        raise ModelError(f"{view.op_type} lacks a {name.removesuffix('_branch') if 'branch' in name else name}")
    return graph


def _refuse_more(view: OnnxNode, count: int) -> None:
    if count > MAX_ITERATIONS:
        raise UnsupportedError(f"{view.op_type}: more than {MAX_ITERATIONS} iterations would be unrolled")


def unrolled_loop(walk: Walk, view: OnnxNode, scope: Any, opsets: Any) -> Values:
    """Loop: carried values, then what each iteration adds to the scan outputs, stacked."""
    graph = _graph(view, "body")
    body = walk.body(graph, scope, opsets)
    limit = None if view.missing(0) else int(view.const(0, "trip count").reshape(-1)[0])
    conditional = not view.missing(1)
    going = bool(view.const(1, "condition").reshape(-1)[0]) if conditional else True
    carried = [view.input(k) for k in range(2, len(view.inputs))]
    collected: list[Values] = []
    count = 0
    while going and (limit is None or count < limit):
        _refuse_more(view, count + 1)
        results = _iteration(view, graph, body, count, carried)
        going = bool(walk.known(view, results[0], "condition").reshape(-1)[0]) if conditional else True
        carried = results[1 : 1 + len(carried)]
        collected.append(results[1 + len(carried) :])
        count += 1
    if not collected and len(graph.output) > 1 + len(carried):
        scanned = _iteration(view, graph, body, 0, carried)[1 + len(carried) :]
        return carried + [_empty(view, value) for value in scanned]
    return carried + [stack(tuple(column), 0) for column in zip(*collected, strict=True)]


def _iteration(view: OnnxNode, graph: GraphProto, body: Body, number: int, carried: Values) -> Values:
    inputs = [Constant(np.array(number, np.int64)), Constant(np.array(True)), *carried]
    if len(graph.input) != len(inputs) or len(graph.output) < 1 + len(carried):
        raise ModelError(f"{view.op_type}: the body has {len(graph.input)} inputs, the node passes {len(inputs)}")
    return body(inputs)


def _empty(view: OnnxNode, value: Expr) -> Expr:
    """A scan output without iterations."""
    ty = value.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"{view.op_type}: a scan output that is no tensor, {ty}")
    return Constant(np.zeros((0, *ty.static), ty.dtype.numpy))


def unrolled_scan(walk: Walk, view: OnnxNode, scope: Any, opsets: Any) -> Values:
    """Scan (opset 9 and later): slices of the scanned inputs go in, states go around, results are stacked."""
    if view.opset < 9:
        raise UnsupportedError("Scan of opset 8 (with batches and sequence lengths) is not supported")
    graph, scans = _graph(view, "body"), int(view.int("num_scan_inputs"))
    states = view.present[: len(view.inputs) - scans]
    scanned = view.present[len(states) :]
    outputs = len(graph.output) - len(states)
    if len(graph.input) != len(view.present) or outputs < 0:
        raise ModelError(f"Scan: the body has {len(graph.input)} inputs, the node passes {len(view.present)}")
    axes = [_axis(view, x, a) for x, a in zip(scanned, _per(view, "scan_input_axes", scans), strict=True)]
    backwards = _per(view, "scan_input_directions", scans)
    lengths = {_type(view, x).static[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"Scan: the scanned inputs have different lengths: {sorted(lengths)}")
    (length,) = lengths
    _refuse_more(view, length)
    body = walk.body(graph, scope, opsets)
    collected: list[Values] = []
    for step in range(length):
        parts = [
            _slice(x, a, length - 1 - step if back else step)
            for x, a, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = body([*states, *parts])
        states = results[: len(states)]
        collected.append(results[len(states) :])
    if not collected and outputs:
        raise UnsupportedError("Scan over nothing is not supported")
    columns = [list(column) for column in zip(*collected, strict=True)]
    reverse, out_axes = _per(view, "scan_output_directions", outputs), _per(view, "scan_output_axes", outputs)
    made = [stack(tuple(c[::-1] if r else c), a) for c, r, a in zip(columns, reverse, out_axes, strict=True)]
    return [*states, *made]


def _per(view: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    values = tuple(view.ints(name, default=None) or (0,) * count)
    if len(values) != count:
        raise ModelError(f"{view.op_type}: {name} has {len(values)} values, wanted {count}")
    return values


def _type(view: OnnxNode, value: Expr) -> TensorType:
    ty = value.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"{view.op_type}: scans a {ty}, only tensors are supported")
    return ty


def _axis(view: OnnxNode, value: Expr, axis: int) -> int:
    ndim = _type(view, value).ndim
    if not -ndim <= axis < ndim:
        raise ModelError(f"{view.op_type}: axis {axis} of a tensor of {ndim} dimensions")
    return axis % ndim


def _slice(value: Expr, axis: int, index: int) -> Expr:
    part = strided_slice(value, begin=(index,), end=(index + 1,), strides=(1,), axes=(axis,))
    return squeeze(part, (axis,))


def mapped_sequence(walk: Walk, view: OnnxNode, scope: Any, opsets: Any) -> Values:
    """SequenceMap: the body for each element; further inputs are sequences of that length, or the same each time."""
    graph = _graph(view, "body")
    body, length = walk.body(graph, scope, opsets), len(sequence_fields(view))
    _refuse_more(view, length)
    columns: list[Values] = []
    for index, value in enumerate(view.present):
        many = isinstance(value.checked_type, TupleType)
        fields = list(sequence_fields(view, index)) if many else [value] * length
        if len(fields) != length:
            raise ModelError(f"SequenceMap: sequences of {length} and {len(fields)} elements")
        columns.append(fields)
    results = [body(row) for row in zip(*columns, strict=True)]
    return [Tuple(tuple(row[k] for row in results)) for k in range(len(graph.output))]
