"""Functions as lists of nodes, as scripts that tune layouts themselves read them."""

from __future__ import annotations

import importlib

import pytest

from armillary import relay
from armillary.autotvm import graph_nodes as utils
from armillary.autotvm.errors import TuningError
from armillary.target import Target

CONV = relay.op.get("nn.conv2d")
SHAPES = {"data": (1, 16, 8, 8), "w0": (16, 16, 1, 1), "w1": (32, 16, 1, 1)}


def nodes_of(body: relay.Expr) -> list[utils.Node]:
    function = relay.Function(relay.analysis.free_vars(body), body)
    nodes: list[utils.Node] = []
    utils.expr2graph(utils.bind_inputs(function, SHAPES), [CONV], {}, nodes, Target("llvm -mcpu=x86-64-v3"))
    return nodes


def residual() -> relay.Expr:
    """Two convolutions, the input added to the first one's result."""
    data = relay.var("data")
    first = relay.nn.conv2d(data, relay.var("w0"))
    joined = relay.nn.relu(relay.add(first, data))
    return relay.nn.conv2d(joined, relay.var("w1"))


def test_tuned_operators_have_their_workloads_and_others_none() -> None:
    nodes = nodes_of(residual())
    assert [node["name"] or str(getattr(node["op"], "name", "")) for node in nodes] == [
        *("data", "w0", "w1", "nn.conv2d", "add", "nn.relu", "nn.conv2d")
    ]
    assert [node["inputs"] for node in nodes][3:6] == [[[0, 0, 0], [1, 0, 0]], [[3, 0, 0], [0, 0, 0]], [[4, 0, 0]]]
    first, second = (node["workloads"][0] for node in nodes if "workloads" in node)
    assert first[0] == nodes[3]["topi_op"][0] == "conv2d_NCHWc.cpu" and first != second
    assert str(nodes[6]["types"][0]) == "Tensor[(1, 32, 8, 8), float32]"


def test_scripts_find_them_below_the_graph_tuner() -> None:
    for name in ("utils", "utils.traverse_graph", "_base"):
        assert importlib.import_module(f"armillary.autotvm.graph_tuner.{name}") is utils


def test_layouts_run_between_tuned_operators_and_what_joins_values() -> None:
    nodes = nodes_of(residual())
    links = utils.get_in_nodes(nodes, [CONV], ["data"])
    assert links == {3: [0], 4: [3, 0], 6: [4]}
    assert utils.get_out_nodes(links) == {0: [3, 4], 3: [4], 4: [6], 6: []}
    assert utils.has_multiple_inputs(nodes, 4, ["data"], ()) and not utils.has_multiple_inputs(nodes, 3, ["data"], ())


def test_layouts_end_at_what_depends_on_them() -> None:
    data = relay.var("data")
    first = relay.nn.conv2d(data, relay.var("w0"))
    body = relay.add(relay.transpose(first, (0, 2, 3, 1)), relay.transpose(data, (0, 2, 3, 1)))
    nodes = nodes_of(body)
    assert utils.get_in_nodes(nodes, [CONV], ["data"]) == {2: [0]}


def test_parts_of_tuples_are_what_they_come_from_and_nested_ones_are_refused() -> None:
    data = relay.var("data")
    parts = relay.split(data, 2, axis=1)
    nodes = nodes_of(relay.concatenate([parts[0], relay.nn.relu(parts[1])], axis=1))
    assert nodes[-1]["op"] is relay.op.get("concatenate") and [1, 0, 0] in nodes[-1]["inputs"]
    with pytest.raises(TuningError, match="nested tuples"):
        nodes_of(relay.Tuple([relay.Tuple([data, data]), data]))
