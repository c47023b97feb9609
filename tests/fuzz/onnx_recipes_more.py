"""Recipes for control flow, sequences and optionals: blocks of several nodes.

In: a Draw. Out: the nodes added to its graph, or Unfit. Invariant: as in onnx_recipes.py; conditions and what
bodies read are run-time values or constants, trip counts are small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper
from onnx_kit import Draw, Unfit, Value, value_info
from onnx_recipes import recipe

_UNARY = ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Identity")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")


def _info(name: str, value: Value) -> onnx.ValueInfoProto:
    return value_info(name, value.array)


def _small(d: Draw) -> Value:
    return d.data(("float32",), 0, 4, 0, lambda v: bool(np.all(np.abs(v.array) < 1e4)))


@recipe("If")
def branch(d: Draw) -> None:
    x = _small(d)
    y = d.like(x)
    arms = []
    for k in range(2):
        inner, result = f"inner{k}_{d.count}", f"result{k}_{d.count}"
        nodes = [helper.make_node(d.one(_UNARY), [d.one((x, y)).name], [inner])]
        nodes.append(helper.make_node(d.one(_BINARY), [inner, d.one((x, y)).name], [result]))
        arms.append(helper.make_graph(nodes, f"arm{k}", [], [_info(result, x)]))
    condition = d.give(d.array("bool", ()))
    node = helper.make_node("If", [condition.name], ["out"], then_branch=arms[0], else_branch=arms[1])
    d.emit_block([node], _named(x, y, condition), ["out"])


def _named(*values: Value) -> dict[str, Value]:
    return {v.name: v for v in values}


@recipe("Loop")
def loop(d: Draw) -> None:
    x = _small(d)
    y = d.like(x)
    trips = d.give(np.asarray(d.integer(0, 5), "int64"), True if d.chance(0.8) else None)
    go = d.give(np.asarray(d.chance(0.9)), True if d.chance(0.8) else None)
    state, following, scanned = "state_in", "state_out", "scanned"
    nodes = [
        helper.make_node("Identity", ["go_in"], ["go_out"]),
        helper.make_node(d.one(("Add", "Sub", "Max", "Min")), [state, y.name], ["sum"]),
        helper.make_node(d.one(("Tanh", "Identity", "Neg", "Relu")), ["sum"], [following]),
        helper.make_node(d.one(_UNARY), [d.one((state, "sum"))], [scanned]),
    ]
    whole = helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, ())
    flag, flag_out = (helper.make_tensor_value_info(n, onnx.TensorProto.BOOL, ()) for n in ("go_in", "go_out"))
    body = helper.make_graph(
        nodes, "body", [whole, flag, _info(state, x)], [flag_out, _info(following, x), _info(scanned, x)]
    )
    node = helper.make_node("Loop", [trips.name, go.name, x.name], ["last", "all"], body=body)
    d.emit_block([node], _named(x, y, trips, go), ["last", "all"])


@recipe("Scan")
def scan(d: Draw) -> None:
    if d.opset < 9:
        raise Unfit("another form")
    steps = d.integer(1, 5)
    x = d.give(d.array("float32", (steps, *d.shape(0, 2, 0, 64)), special=0))
    part = Value("", x.array[0])
    state = d.like(part)
    nodes = [
        helper.make_node(d.one(_BINARY), ["state_in", "part"], ["mixed"]),
        helper.make_node(d.one(("Tanh", "Identity", "Relu")), ["mixed"], ["state_out"]),
        helper.make_node(d.one(_UNARY), ["mixed"], ["scanned"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [_info("state_in", part), _info("part", part)],
        [_info("state_out", part), _info("scanned", part)],
    )
    more = {}
    if d.chance(0.4):
        more["scan_input_directions"] = [1]
    if d.chance(0.3):
        more["scan_output_directions"] = [1]
    node = helper.make_node("Scan", [state.name, x.name], ["last", "all"], body=body, num_scan_inputs=1, **more)
    d.emit_block([node], _named(x, state), ["last", "all"])


@recipe(
    "SequenceConstruct",
    "SequenceAt",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "ConcatFromSequence",
    "SplitToSequence",
    "SequenceMap",
)
def sequence(d: Draw) -> None:
    if d.opset < 11:
        raise Unfit("since opset 11")
    x = d.data(("float32", "int64"), 1, 4, 0)
    values, nodes, made = [x], [], "s0"
    if d.chance(0.4):
        nodes.append(helper.make_node("SplitToSequence", [x.name], [made], axis=0, keepdims=1))
        length = x.shape[0]
    else:
        values += [d.like(x) for _ in range(d.integer(0, 2))]
        nodes.append(helper.make_node("SequenceConstruct", [v.name for v in values], [made]))
        length = len(values)
    if d.opset >= 17 and d.chance(0.3) and x.dtype == "float32":
        kind = helper.np_dtype_to_tensor_dtype(x.array.dtype)
        ends = [helper.make_tensor_value_info(n, kind, None) for n in ("element", "mapped")]
        body = helper.make_graph([helper.make_node(d.one(_UNARY), ["element"], ["mapped"])], "each", ends[:1], ends[1:])
        nodes.append(helper.make_node("SequenceMap", [made], ["s1"], body=body))
        made = "s1"
    if d.chance(0.4) and length > 1:
        place = d.fixed(d.integer(-length, length - 1))
        values.append(place)
        nodes.append(helper.make_node("SequenceErase", [made, place.name], ["s2"]))
        made, length = "s2", length - 1
    _take(d, x, values, nodes, made, length)


def _take(d: Draw, x: Value, values: list[Value], nodes: list[onnx.NodeProto], made: str, length: int) -> None:
    """A tensor of a sequence."""
    if length and d.chance(0.4):
        place = d.fixed(d.integer(-length, length - 1))
        values.append(place)
        nodes.append(helper.make_node("SequenceAt", [made, place.name], ["out"]))
    elif length and d.chance(0.8):
        new = d.integer(0, 1)
        nodes.append(
            helper.make_node("ConcatFromSequence", [made], ["out"], axis=0 if new else x.rank - 1, new_axis=new)
        )
    else:
        nodes.append(helper.make_node("SequenceLength", [made], ["out"]))
    d.emit_block(nodes, _named(*values), ["out"])


@recipe("Optional", "OptionalGetElement", "OptionalHasElement")
def optional(d: Draw) -> None:
    if d.opset < 18:
        raise Unfit("since opset 18")
    x = d.data(("float32", "int64"))
    last = d.one(("OptionalGetElement", "OptionalHasElement"))
    nodes: Sequence[onnx.NodeProto] = [
        helper.make_node("Optional", [x.name], ["o"]),
        helper.make_node(last, ["o"], ["out"]),
    ]
    d.emit_block(nodes, _named(x), ["out"])
