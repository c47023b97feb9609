"""A function as a list of nodes, and which tuned operators read each other's results: `autotvm.graph_tuner.utils`.

In: a Relay function with typed inputs, the operators that are tuned, a target. Out: a dictionary for each node: "op",
"node", "inputs" ([node, output, 0] for each), "types", "name", and for a tuned operator "workloads" and "topi_op".
Invariant: numbers of nodes are places of the list, operands first. A layout is chosen for tuned operators and for what
joins several values; what lies between has theirs. The tuners themselves read the graph of a build: graph_tuner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import TypedDict

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.network import extract_from_program
from armillary.base.boundary import boundary
from armillary.base.dispatch import Workload
from armillary.base.dtype import DType
from armillary.ir import IRModule
from armillary.ops.nn.shape import layout_transform
from armillary.relay.binding import with_types
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Kind, Op
from armillary.relay.op.facts import Follows
from armillary.relay.types import TensorType, TupleType, Type
from armillary.relay.walk import post_order
from armillary.target import Target

__path__: list[str] = []  # modules of old scripts lie below: base/old_modules/table.txt

OPT_OUT_OP = (layout_transform.name,)  # an operand behind one of these is looked at through it
_MOVED = (Follows.TRANSPOSE, Follows.SHUFFLE, Follows.SLICE)


class Node(TypedDict, total=False):
    """A node of the list."""

    node: Expr
    op: Op | Expr | None
    name: str | None
    inputs: list[list[int]]
    types: list[Type]
    workloads: list[Workload]
    topi_op: list[str]


Nodes = Sequence[Node]
Links = dict[int, list[int]]  # nodes that a node reads from, through what has no layout of its own


@boundary("bind_inputs", arguments=True)
def bind_inputs(
    expr: Function,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_dtypes: str | Mapping[str, str] = "float32",
) -> Function:
    """The function with types for the inputs of `input_shapes`; `input_dtypes` is of all, or by name."""
    shapes = input_shapes or {}
    kinds = dict.fromkeys(shapes, input_dtypes) if isinstance(input_dtypes, str) else input_dtypes
    types = [
        TensorType(tuple(shapes[p.name_hint]), DType(kinds.get(p.name_hint, "float32")))
        if p.name_hint in shapes
        else p.checked_type
        for p in expr.params
    ]
    return with_types(expr, types)


@boundary("expr2graph")
def expr2graph(
    expr: Function, target_ops: Collection[Op], node_dict: dict[Expr, int], node_list: list[Node], tvm_target: Target
) -> None:
    """Fill the list with the nodes of a function, and the dictionary with their places.

    Raises TuningError for what a graph of tensors has not, such as branches and nested tuples.
    """
    for node in post_order(expr):
        if node is expr or node in node_dict:
            continue
        entry = Node(node=node, op=None, name=None, inputs=[], types=_types(node.checked_type))
        if isinstance(node, Call):
            entry["op"] = node.op
            entry["inputs"] = [place for arg in node.args for place in _places(arg, node_dict, node_list)]
            if node.op in target_ops:
                _add_workload(entry, node, tvm_target)
        elif isinstance(node, Tuple):
            if any(isinstance(field, Tuple) for field in node.fields):
                raise TuningError("a graph with nested tuples has no list of nodes", hint="flatten the tuple")
            entry["inputs"] = [place for field in node.fields for place in _places(field, node_dict, node_list)]
        elif isinstance(node, TupleGetItem):
            entry["inputs"] = [[node_dict[node.tuple_value], node.index, 0]]
        elif isinstance(node, Var | Constant):
            entry["name"] = node.name_hint if isinstance(node, Var) else f"Constant_{len(node_list)}"
        else:
            raise TuningError(f"a graph with {type(node).__name__} has no list of nodes")
        node_dict[node] = len(node_list)
        node_list.append(entry)


def _types(ty: Type) -> list[Type]:
    return list(ty.fields) if isinstance(ty, TupleType) else [ty]


def _places(arg: Expr, known: Mapping[Expr, int], nodes: Nodes) -> list[list[int]]:
    """Where an operand comes from: what is in a tuple, else itself."""
    place = known[arg]
    return nodes[place]["inputs"] if isinstance(arg, Tuple | TupleGetItem) else [[place, 0, 0]]


def _add_workload(entry: Node, node: Call, target: Target) -> None:
    """The task of an operator by itself, with weights of any value; none where it is not tuned."""
    variables = [Var(f"var_{k}", arg.checked_type) for k, arg in enumerate(node.args)]
    weights = {v.name_hint: v.checked_type for v in variables[1:]}
    params = {n: np.full(t.concrete_shape, 0.5, t.dtype.numpy) for n, t in weights.items() if isinstance(t, TensorType)}
    module = IRModule.from_expr(Function(variables, Call(node.op, tuple(variables), node.attrs)))
    tasks = extract_from_program(module, params, target)
    entry["workloads"] = [task.workload for task in tasks]
    entry["topi_op"] = [task.name for task in tasks]


def has_multiple_inputs(
    node_list: Nodes, node_idx: int, input_names: Container[str], opt_out_op: Container[str] = OPT_OUT_OP
) -> bool:
    """Whether a node joins several values, parameters and constants not counted."""
    joined = 0
    for place, *_ in node_list[node_idx]["inputs"]:
        operand = node_list[place]
        if isinstance(operand["op"], Op) and operand["op"].name in opt_out_op:
            joined += any(has_multiple_inputs(node_list, k, input_names, opt_out_op) for k, *_ in operand["inputs"])
        else:
            joined += operand["op"] is not None or operand["name"] in input_names
    return joined > 1


def is_boundary_node(node_entry: Node, input_names: Container[str]) -> bool:
    """Whether layouts end at a node: an input of the graph, or an operator whose meaning depends on the layout."""
    op = node_entry["op"]
    return node_entry["name"] in input_names or (isinstance(op, Op) and _needs_axes(op))


def _needs_axes(op: Op) -> bool:
    if op.name in OPT_OUT_OP:
        return False
    moves = op.layout_follows is None and op.kind in (Kind.INJECTIVE, Kind.OPAQUE)
    return moves or op.layout_follows in _MOVED


def is_skipped_node(node_entry: Node) -> bool:
    """Whether a node computes nothing: a tuple, or a part of one."""
    return not isinstance(node_entry["node"], Call)


def get_direct_ancestor(
    node_list: Nodes, visited_dict: Links, target_ops: Container[Op], node_idx: int, input_names: Container[str]
) -> list[int]:
    """The nearest nodes before one that have a layout of their own, or at which layouts end."""
    if node_idx in visited_dict:
        return visited_dict[node_idx]
    if is_boundary_node(node_list[node_idx], input_names):
        return [node_idx]
    nearest: list[int] = []
    for place, *_ in node_list[node_idx]["inputs"]:
        if _has_layout(node_list, place, target_ops, input_names):
            nearest.append(place)
        else:
            nearest += get_direct_ancestor(node_list, visited_dict, target_ops, place, input_names)
    visited_dict[node_idx] = list(dict.fromkeys(nearest))
    return visited_dict[node_idx]


def _has_layout(nodes: Nodes, place: int, target_ops: Container[Op], input_names: Container[str]) -> bool:
    return nodes[place]["op"] in target_ops or has_multiple_inputs(nodes, place, input_names)


def get_in_nodes(node_list: Nodes, target_ops: Container[Op], input_names: Container[str]) -> Links:
    """For each node with a layout of its own those that it reads; what reads only boundaries is left out, unless it is
    tuned."""
    ancestors: Links = {}
    for place, entry in enumerate(node_list):
        if not is_boundary_node(entry, input_names) and not is_skipped_node(entry):
            get_direct_ancestor(node_list, ancestors, target_ops, place, input_names)
    links = {k: list(v) for k, v in ancestors.items() if _has_layout(node_list, k, target_ops, input_names)}
    _leave_out(links, lambda k: node_list[k]["op"] not in target_ops and not any(j in links for j in links[k]))
    _leave_out(links, lambda k: not links[k])
    return links


def _leave_out(links: Links, is_left_out: Callable[[int], bool]) -> None:
    """Take out nodes, and what reads them of those that are left, until there are none."""
    while gone := [k for k in links if is_left_out(k)]:
        for k in gone:
            del links[k]
        for k in links:
            links[k] = [j for j in links[k] if j not in gone]


def get_out_nodes(in_node_dict: Mapping[int, Sequence[int]]) -> Links:
    """The other way around: for each node those that read it."""
    places = sorted({*in_node_dict, *(k for read in in_node_dict.values() for k in read)})
    return {k: [reader for reader, read in sorted(in_node_dict.items()) if k in read] for k in places}
