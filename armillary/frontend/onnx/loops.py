"""ONNX If, Loop and Scan that stay in the program: what is decided when it runs.

In: a node, and a function that imports its sub-graph for given inputs. Out: expressions around a Relay `If` or `Loop`.
A body is imported once, with variables in place of the iteration number, the states and what it reads from outside;
values known when importing stay constants. Invariant: a loop's states keep their types but for those that it only
appends rows to, which are collected as scan outputs are; a branch's results have the types of the other's; anything
else is refused with a reason. Rows of a loop that may stop early are cut to their number, a size that the data says
(data_sizes.py). What is unrolled instead is decided in control.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.extent import Extent, Known, bounds, most, sizes_of, typical
from armillary.base.record import record
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.bounded import Opsets, Scope, Values, Walk, as_number, cut
from armillary.frontend.onnx.load import outer_names, reads
from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.proto import onnx
from armillary.ops._iota import splat
from armillary.ops.elementwise.broadcast import subtract
from armillary.ops.shape.creation import arange
from armillary.ops.shape.indexing import take
from armillary.ops.shape.shape import reshape, transpose
from armillary.ops.shape.transform import concatenate, reverse, stack
from armillary.relay.expr import Constant, Expr, Function, If, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import TensorType, TupleType, Type, scalar_type, tensor_fields

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

_FOREVER = np.array(np.iinfo(np.int64).max)


@record(frozen=False)
class Inside:
    """Variables of a body for what it reads from outside: by name, and with the outer values in order."""

    scope: dict[str, Expr]
    variables: list[Var]
    values: list[Expr]


def graph_of(view: OnnxNode, name: str) -> GraphProto:
    """A sub-graph of a node."""
    graph = view.attributes.get(name)
    if not isinstance(graph, onnx.GraphProto):
        raise ModelError(f"{view.op_type} lacks a {name.removesuffix('_branch') if 'branch' in name else name}")
    return graph


# --- If ---------------------------------------------------------------------------------------------------------------


def branches(walk: Walk, view: OnnxNode, scope: Scope, opsets: Opsets) -> Values:
    """If whose condition is computed at run time: both branches, one of which runs."""
    condition = as_scalar(view.input(0))
    names = ("then_branch", "else_branch")
    results = [walk.body(graph_of(view, name), scope, opsets)(()) for name in names]
    results = _of_common_sizes(walk, view, condition, results)
    types = [tuple(r.checked_type for r in row) for row in results]
    if types[0] != types[1]:
        walk.ask(condition)
        texts = [", ".join(map(str, row)) for row in types]
        raise UnsupportedError(
            f"If: the condition is computed at run time, and the branches give ({texts[0]}) and ({texts[1]})",
            hint="fix the inputs that the condition depends on with static_inputs=, or simplify the model",
        )
    yes, no = (Tuple(tuple(p for r in row for p in parts_of(r))) for row in results)
    choice = If(condition, yes, no, walk.span(view))
    return _unpacked(choice, types[0])


def _of_common_sizes(walk: Walk, view: OnnxNode, condition: Expr, results: list[Values]) -> list[Values]:
    """The results of branches whose axes differ: such an axis gets a size that is the one of the branch that runs."""
    sizes, rows = walk.folder.data_sizes, [list(row) for row in results]
    for pair in range(min(map(len, rows)) if sizes.is_outside(condition) else 0):
        types = [row[pair].checked_type for row in rows]
        first, second = types
        if not isinstance(first, TensorType) or not isinstance(second, TensorType) or first.ndim != second.ndim:
            continue
        for axis, (one, other) in enumerate(zip(first.known, second.known)):
            if one == other:
                continue
            count = If(condition, as_number(one), as_number(other), walk.span(view))
            most = max(bounds(one)[1], bounds(other)[1])
            extent = sizes.size(count, view.op_type, 0, most, max(typical(one), typical(other)))
            for row in rows:
                row[pair] = _as_long(row[pair], axis, extent)
    return rows


def _as_long(value: Expr, axis: int, extent: Extent) -> Expr:
    """A tensor whose axis has, when it runs, the length that a size says: none at all where it has no elements."""
    ty = value.checked_type
    assert isinstance(ty, TensorType), "branches give tensors here"
    if ty.shape[axis] == 0:
        return splat((*ty.known[:axis], extent, *ty.known[axis + 1 :]), 0, ty.dtype)
    return take(value, arange(0, extent, 1, dtype="int64"), axis=axis)


def parts_of(value: Expr) -> list[Expr]:
    """The tensors of a value: one, or the elements of a sequence."""
    ty = value.checked_type
    if not isinstance(ty, TupleType):
        return [value]
    fields = value.fields if isinstance(value, Tuple) else [TupleGetItem(value, k) for k in range(len(ty.fields))]
    return [part for field in fields for part in parts_of(field)]


def _unpacked(loop: Expr, types: Sequence[Type]) -> Values:
    """The fields of a tuple of tensors, as values of these types (sequences are tuples of elements)."""
    result: Values = []
    used = 0
    for ty in types:
        items = [TupleGetItem(loop, used + k) for k in range(len(tensor_fields(ty)))]
        used += len(items)
        result.append(Tuple(tuple(items)) if isinstance(ty, TupleType) else items[0])
    return result


def as_scalar(value: Expr) -> Expr:
    """A tensor of one element without dimensions."""
    ty = value.checked_type
    if not isinstance(ty, TensorType) or ty.size != 1:
        raise UnsupportedError(f"a condition or trip count is {ty}, wanted one element")
    return reshape(value, ()) if ty.ndim else value


# --- Loop -------------------------------------------------------------------------------------------------------------


def running_loop(walk: Walk, view: OnnxNode, scope: Any, opsets: Any) -> Values:
    """Loop: its body once, called at run time."""
    graph, grown = _with_growth_collected(graph_of(view, "body"))
    first = [view.input(k) for k in range(2, len(view.inputs)) if k - 2 not in grown]
    limit = None if view.missing(0) else walk.folder.value(view.input(0))
    number, flag = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
    inside = _stand_ins(walk, outer_names(graph), scope)
    states, variables = _states(walk, graph.input[2:], first)
    if len(graph.input) != 2 + len(first) or len(graph.output) < 1 + len(first):
        raise ModelError(f"Loop: the body has {len(graph.input)} inputs, the node passes {2 + len(first)}")
    body = walk.body(graph, {**scope, **inside.scope}, opsets)
    formals = [_as_formal(number, graph.input[0]), _as_formal(flag, graph.input[1])]
    again, *results = body([*formals, *states])
    again = flag if view.missing(1) else as_scalar(again)
    rows = _rows(walk, view, results[len(first) :], [view.input(2 + k) for k in grown])
    trips = _trips(walk, view, limit) if rows else -1
    carried = _next_states(walk, view, first, results[: len(first)])
    params = (number, flag, *variables, *inside.variables)
    ends = Tuple((again, *carried, *rows))
    loop = Loop(
        Function(params, ends),
        _limit(view, limit),
        Constant(np.array(True)) if view.missing(1) else as_scalar(view.input(1)),
        (*(p for v in first for p in parts_of(v)), *inside.values),
        len(variables),
        trips,
        walk.span(view),
    )
    scans: Values = [TupleGetItem(loop, len(variables) + k) for k in range(len(rows))]
    if not _is_steady(walk, view, again, flag):
        count = TupleGetItem(loop, len(variables) + len(rows))
        scans = [cut(walk, view, scan, 0, count) for scan in scans]
    values = _unpacked(loop, [value.checked_type for value in first])
    for k, scan in zip(grown, scans[len(scans) - len(grown) :], strict=True):
        values.insert(k, _appended(view.input(2 + k), scan))
    return [*values, *scans[: len(scans) - len(grown)]]


def _with_growth_collected(graph: GraphProto) -> tuple[GraphProto, list[int]]:
    """The body in which states that it only appends rows to are scan outputs of these rows, and which states these are.

    out = Concat(state, row, axis=0)   ->   row is collected, if nothing else reads the state
    out = SequenceInsert(state, row)   ->   likewise
    """
    makers = {name: node for node in graph.node for name in node.output}
    read = Counter(name for node in graph.node for name in reads(node))
    read.update(value.name for value in graph.output)
    grown, rows = [], []
    for k, (before, after) in enumerate(zip(graph.input[2:], graph.output[1:], strict=False)):
        maker = makers.get(after.name)
        if maker is None or before.name not in maker.input[:1] or read[before.name] != 1:
            continue
        axis = next((a.i for a in maker.attribute if a.name == "axis"), None)
        is_joined = (maker.op_type, axis) in (("Concat", 0), ("SequenceInsert", None))
        if is_joined and len([name for name in maker.input if name]) == 2:
            grown.append(k)
            rows.append(maker.input[1])
    if not grown:
        return graph, grown
    result = onnx.GraphProto()
    result.CopyFrom(graph)
    for k in reversed(grown):
        del result.input[2 + k], result.output[1 + k]
    result.output.extend(onnx.ValueInfoProto(name=name) for name in rows)
    return result, grown


def _appended(first: Expr, scan: Expr) -> Expr:
    """Rows of all iterations behind those that a state had at first; of a sequence, a tensor of its elements."""
    if isinstance(first.checked_type, TupleType):
        elements = tuple(parts_of(first))
        return concatenate((stack(elements, 0), scan), axis=0) if elements else scan
    (before,), (ty,) = tensor_fields(first.checked_type), tensor_fields(scan.checked_type)
    rows = reshape(scan, (ty.known[0] * ty.known[1], *ty.known[2:]))
    return rows if before.shape[0] == 0 else concatenate((first, rows), axis=0)


def _trips(walk: Walk, view: OnnxNode, limit: Any) -> Known:  # Any: an array or None
    """How many rows are collected at most: the trip count, known or a size."""
    if limit is not None:
        return max(0, int(np.reshape(np.asarray(limit), -1)[0]))
    asked = None if view.missing(0) else walk.folder.data_sizes.elements(view.input(0), view.op_type)
    if asked is None:
        raise UnsupportedError(
            f"{view.op_type}: it collects rows, and its trip count is not known when compiling, nor a size",
            hint="make the trip count a constant: it bounds the outputs",
        )
    return most(asked.reshape(-1)[0], 0)


def _limit(view: OnnxNode, known: Any) -> Expr:  # Any: an array or None
    if known is not None:
        return Constant(np.array(int(np.reshape(known, -1)[0]), np.int64))
    return Constant(_FOREVER) if view.missing(0) else as_scalar(view.input(0))


def _is_steady(walk: Walk, view: OnnxNode, again: Expr, flag: Var) -> bool:
    """Whether only the trip count ends the loop."""
    if view.missing(1):
        return True
    first = walk.folder.value(view.input(1))
    later = walk.folder.value(again)
    holds = again is flag or (later is not None and bool(np.all(later)))
    return holds and first is not None and bool(np.all(first))


def _as_formal(value: Expr, formal: ValueInfoProto) -> Expr:
    """The iteration number or condition as the body declares it: some exporters give it one dimension."""
    shape = formal.type.tensor_type.shape
    return reshape(value, (1,)) if len(shape.dim) == 1 else value


def _states(walk: Walk, formals: Sequence[ValueInfoProto], first: Values) -> tuple[Values, list[Var]]:
    """For each state a value made of fresh variables, and the variables."""
    variables: list[Var] = []
    values = [_stand_in(walk, formal.name, value, variables) for formal, value in zip(formals, first, strict=False)]
    return values, variables


def _stand_in(walk: Walk, name: str, value: Expr, variables: list[Var]) -> Expr:
    many = isinstance(value.checked_type, TupleType)
    fields = []
    for k, part in enumerate(parts_of(value)):
        var = Var(f"{name}.{k}" if many else name, part.checked_type)
        walk.folder.stand_ins[id(var)] = (var, part)
        if id(part) in walk.folder.weights:
            walk.folder.weights[id(var)] = walk.folder.weights[id(part)]
        fields.append(var)
    variables.extend(fields)
    return Tuple(tuple(fields)) if many else fields[0]


def _stand_ins(walk: Walk, names: Sequence[str], scope: Any) -> Inside:
    """Variables for what a body reads from outside and what is not known when importing."""
    inside = Inside({}, [], [])
    for name in dict.fromkeys(names):
        value = scope.get(name)
        if value is None or walk.folder.is_known(value):
            continue
        inside.values += parts_of(value)
        inside.scope[name] = _stand_in(walk, name, value, inside.variables)
    return inside


def _next_states(walk: Walk, view: OnnxNode, first: Values, results: Values) -> list[Expr]:
    """The states after an iteration, which must have the types they had before."""
    for k, (before, after) in enumerate(zip(first, results, strict=True)):
        if before.checked_type != after.checked_type:
            change = f"from {before.checked_type} to {after.checked_type}"
            raise UnsupportedError(
                f"{view.op_type}: carried value {k} changes its type {change}",
                hint="give it its largest size from the start, or a trip count known when importing, to be unrolled",
            )
    return [part for value in results for part in parts_of(value)]


def _rows(walk: Walk, view: OnnxNode, rows: Values, grown: Sequence[Expr] = ()) -> Values:
    """Rows to collect, whose sizes are those of every iteration; the last ones have the lengths of `grown` states."""
    result = list(rows)
    for k, state in enumerate(grown, len(rows) - len(grown)):
        if isinstance(state.checked_type, TupleType):
            continue
        (before,), (row,) = tensor_fields(state.checked_type), tensor_fields(rows[k].checked_type)
        shape = (row.known[0], *before.known[1:])
        result[k] = rows[k] if row.known == shape or row.ndim != before.ndim else reshape(rows[k], shape)
    for ty in (row.checked_type for row in result):
        if not isinstance(ty, TensorType):
            raise UnsupportedError(f"{view.op_type}: a scan output of {ty}; only tensors can be collected")
        own = sorted(walk.folder.data_sizes.inner.intersection(sizes_of(ty.shape)))
        if own:
            raise UnsupportedError(
                f"{view.op_type}: rows of {ty} have another size ({own[0]}) in each iteration",
                hint="pad them to one length before they are collected",
            )
    return result


# --- Scan -------------------------------------------------------------------------------------------------------------


@record
class ScanParts:
    """A Scan node, read: states and scanned inputs, and along which axes and in which directions they are scanned."""

    states: Values
    scanned: Values
    axes: Sequence[int]
    backwards: Sequence[int]
    out_axes: Sequence[int]
    out_backwards: Sequence[int]
    length: int


def running_scan(walk: Walk, view: OnnxNode, parts: ScanParts, scope: Any, opsets: Any) -> Values:
    """Scan: a loop of as many iterations as the scanned inputs are long."""
    graph = graph_of(view, "body")
    number, flag = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
    inside = _stand_ins(walk, outer_names(graph), scope)
    states, variables = _states(walk, graph.input, parts.states)
    whole, sources = _states(walk, graph.input[len(states) :], parts.scanned)
    last = Constant(np.array(parts.length - 1, np.int64))
    slices = [
        take(x, subtract(last, number) if back else number, axis=axis)
        for x, axis, back in zip(whole, parts.axes, parts.backwards, strict=True)
    ]
    results = walk.body(graph, {**scope, **inside.scope}, opsets)([*states, *slices])
    carried = _next_states(walk, view, parts.states, results[: len(states)])
    rows = _rows(walk, view, results[len(states) :])
    params = (number, flag, *variables, *sources, *inside.variables)
    loop = Loop(
        Function(params, Tuple((flag, *carried, *rows))),
        Constant(np.array(parts.length, np.int64)),
        Constant(np.array(True)),
        (*parts.states, *parts.scanned, *inside.values),
        len(variables),
        parts.length,
        walk.span(view),
    )
    scans = [
        _placed(TupleGetItem(loop, len(variables) + k), axis, back)
        for k, (axis, back) in enumerate(zip(parts.out_axes, parts.out_backwards, strict=True))
    ]
    return [*_unpacked(loop, [s.checked_type for s in parts.states]), *scans]


def _placed(scan: Expr, axis: int, backwards: int) -> Expr:
    """Rows as the node wants them: in which order, along which axis."""
    ty = scan.checked_type
    assert isinstance(ty, TensorType), "rows are tensors"
    value = reverse(scan, 0) if backwards else scan
    position = axis % ty.ndim
    if position == 0:
        return value
    order = [*range(1, position + 1), 0, *range(position + 1, ty.ndim)]
    return transpose(value, tuple(order))
