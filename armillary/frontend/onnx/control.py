"""ONNX control flow: what is known when importing is resolved then, the rest runs (onnx/loops.py).

In: a node, a function that imports a sub-graph with given inputs, and the folder of constants. Out: expressions, one
per output. An If on a known condition is the branch taken. A loop is unrolled where it is short, where all it reads is
known, or where its body cannot run as it is (a state that grows, a position that must be a constant); SequenceMap
always. Invariant: no more are unrolled than the budget allows, and what neither unrolls nor runs is refused with the
reason why it cannot run. Sequences: frontend/onnx/rules/sequence.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import BudgetError, ModelError, UnsupportedError
from armillary.frontend.folding.fold import NeedsValue
from armillary.frontend.onnx.bounded import Body, Opsets, Scope, Values, Walk
from armillary.frontend.onnx.load import outer_names
from armillary.frontend.onnx.loops import (
    ScanParts,
    branches,
    graph_of,
    running_loop,
    running_scan,
)
from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.rules.sequence import sequence_fields
from armillary.ops.shape.shape import squeeze
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import stack
from armillary.relay.expr import Constant, Expr, Tuple
from armillary.relay.types import TensorType, TupleType

if TYPE_CHECKING:
    from onnx import GraphProto

_NO_LOOP = "it cannot run as a loop"
SHORT = 8  # iterations: as many are unrolled though they could run, docs/decisions/control-flow.md


def branch_taken(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """If: the branch that is taken where that is known, else both."""
    condition = view.constants[0]
    if condition is None:
        return branches(walk, view, scope, opsets)
    name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return walk.body(graph_of(view, name), scope, opsets)(())


def loop(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """Loop: unrolled or run."""
    limit = None if view.missing(0) else walk.folder.value(view.input(0))
    short = limit is not None and int(limit.reshape(-1)[0]) <= SHORT
    outside = [scope[name] for name in outer_names(graph_of(view, "body")) if name in scope]
    control = [value for value in view.inputs[:2] if value is not None]
    ways = (
        lambda: unrolled_loop(walk, view, scope, opsets),
        lambda: running_loop(walk, view, scope, opsets),
    )
    if short or all(map(walk.folder.is_known, [*view.present, *outside])):
        return _first_that_works(walk, control, *ways, tell_first=False)
    return _first_that_works(walk, control, ways[1], ways[0], tell_first=True)


def _first_that_works(
    walk: Walk, control: Sequence[Expr], first: Callable[[], Values], second: Callable[[], Values], tell_first: bool
) -> Values:
    """The first way, else the second. Where neither works: why the run-time way does not, and what would help.

    `control` decides how often the body runs: with its value known, the loop unrolls.
    """
    calls = list(walk.calls)
    try:
        return first()
    except UnsupportedError as error:
        walk.calls[:] = calls
        try:
            return second()
        except BudgetError as beyond:  # why it is unrolled at all says more than that it is long
            if tell_first and _NO_LOOP not in beyond.message:
                beyond.message += f"; {_NO_LOOP}: {error.message}"
            raise
        except UnsupportedError as other:
            needed = walk.folder.variables([e for e in control if not walk.folder.is_known(e)])
            for failed in (error, other):
                needed |= failed.inputs if isinstance(failed, NeedsValue) else frozenset()
            message = error if tell_first else other
            raise (NeedsValue(message, needed) if needed else message) from None


def unrolled_loop(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """Loop: carried values, then what each iteration adds to the scan outputs, stacked."""
    graph = graph_of(view, "body")
    body = walk.body(graph, scope, opsets)
    limit = None if view.missing(0) else int(view.const(0, "trip count").reshape(-1)[0])
    conditional = not view.missing(1)
    going = bool(view.const(1, "condition").reshape(-1)[0]) if conditional else True
    carried = [view.input(k) for k in range(2, len(view.inputs))]
    collected: list[Values] = []
    count = 0
    while going and (limit is None or count < limit):
        walk.unroll(view)
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


def _empty(view: OnnxNode, value: Expr, axis: int = 0) -> Expr:
    """A scan output without iterations."""
    ty = value.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"{view.op_type}: a scan output that is no tensor, {ty}")
    place = axis % (ty.ndim + 1)
    return Constant(np.zeros((*ty.static[:place], 0, *ty.static[place:]), ty.dtype.numpy))


def _nothing(view: OnnxNode, scanned: Expr, axis: int) -> Expr:
    """A slice of an input without any, for the types of what the body makes of it."""
    ty = _type(view, scanned)
    shape = ty.static
    return Constant(np.zeros((*shape[:axis], *shape[axis + 1 :]), ty.dtype.numpy))


def unrolled_scan(walk: Walk, view: OnnxNode, parts: ScanParts, scope: Scope, opsets: Opsets) -> Values:
    """Slices of the scanned inputs go in, states go around, results are stacked."""
    walk.unroll(view, parts.length)
    body = walk.body(graph_of(view, "body"), scope, opsets)
    states = parts.states
    collected: list[Values] = []
    for step in range(parts.length):
        slices = [
            _slice(x, a, parts.length - 1 - step if back else step)
            for x, a, back in zip(parts.scanned, parts.axes, parts.backwards, strict=True)
        ]
        results = body([*states, *slices])
        states = results[: len(states)]
        collected.append(results[len(states) :])
    if not collected:
        rows = body([*states, *(_nothing(view, x, a) for x, a in zip(parts.scanned, parts.axes, strict=True))])
        return [*states, *(_empty(view, r, a) for r, a in zip(rows[len(states) :], parts.out_axes, strict=True))]
    columns = [list(column) for column in zip(*collected, strict=True)]
    outputs = zip(columns, parts.out_backwards, parts.out_axes, strict=True)
    return [*states, *(stack(tuple(c[::-1] if back else c), a) for c, back, a in outputs)]


def scan(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """Scan: unrolled or run; in opset 8 once for each member of a batch."""
    parts = _scan_parts(view)
    if view.opset < 9:
        return _batched_scan(walk, view, parts, scope, opsets)
    return _one_scan(walk, view, parts, scope, opsets)


def _one_scan(walk: Walk, view: OnnxNode, parts: ScanParts, scope: Scope, opsets: Opsets) -> Values:
    ways = (
        lambda: unrolled_scan(walk, view, parts, scope, opsets),
        lambda: running_scan(walk, view, parts, scope, opsets),
    )
    if parts.length <= SHORT:
        return _first_that_works(walk, (), *ways, tell_first=False)
    return _first_that_works(walk, (), ways[1], ways[0], tell_first=True)


def _scan_parts(view: OnnxNode) -> ScanParts:
    graph, scans = graph_of(view, "body"), int(view.int("num_scan_inputs"))
    inputs = view.inputs[1:] if view.opset < 9 else view.inputs
    if view.opset < 9 and view.inputs[0] is not None:
        raise UnsupportedError("Scan of opset 8 with sequence lengths is not supported")
    if not 1 <= scans <= len(inputs):
        raise ModelError(f"Scan: num_scan_inputs is {scans}, wanted 1 to {len(inputs)}, as many as the node passes")
    values = [v for v in inputs if v is not None]
    states, scanned = values[: len(inputs) - scans], values[len(inputs) - scans :]
    outputs = len(graph.output) - len(states)
    if len(graph.input) != len(values) or outputs < 0:
        raise ModelError(f"Scan: the body has {len(graph.input)} inputs, the node passes {len(values)}")
    axes: Sequence[int] = (1,) * scans
    backwards = _per(view, "directions" if view.opset < 9 else "scan_input_directions", scans)
    out_axes, out_backwards = (0,) * outputs, (0,) * outputs
    if view.opset >= 9:
        axes = [_axis(view, x, a) for x, a in zip(scanned, _per(view, "scan_input_axes", scans), strict=True)]
        out_axes, out_backwards = (_per(view, f"scan_output_{k}", outputs) for k in ("axes", "directions"))
    lengths = {_type(view, x).static[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"Scan: the scanned inputs have different lengths: {sorted(lengths)}")
    return ScanParts(states, scanned, axes, backwards, out_axes, out_backwards, lengths.pop())


def _batched_scan(walk: Walk, view: OnnxNode, parts: ScanParts, scope: Scope, opsets: Opsets) -> Values:
    """Opset 8: every input has a batch in front, and a scan of its own for each member."""
    batch = _type(view, parts.scanned[0]).static[0]
    rows = []
    for member in range(batch):
        states = [_slice(x, 0, member) for x in parts.states]
        scanned = [_slice(x, 0, member) for x in parts.scanned]
        one = dataclasses.replace(parts, states=states, scanned=scanned, axes=(0,) * len(scanned))
        rows.append(_one_scan(walk, view, one, scope, opsets))
    return [stack(tuple(column), 0) for column in zip(*rows, strict=True)]


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


def mapped_sequence(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """SequenceMap: the body for each element; further inputs are sequences of that length, or the same each time."""
    graph = graph_of(view, "body")
    body, length = walk.body(graph, scope, opsets), len(sequence_fields(view))
    walk.unroll(view, length)
    columns: list[Values] = []
    for index, value in enumerate(view.present):
        many = isinstance(value.checked_type, TupleType)
        fields = list(sequence_fields(view, index)) if many else [value] * length
        if len(fields) != length:
            raise ModelError(f"SequenceMap: sequences of {length} and {len(fields)} elements")
        columns.append(fields)
    results = [body(row) for row in zip(*columns, strict=True)]
    return [Tuple(tuple(row[k] for row in results)) for k in range(len(graph.output))]
