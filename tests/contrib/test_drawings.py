"""Modules and schedules as text and as DOT."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.contrib import relay_viz, tedd
from armillary.contrib.relay_viz.interface import VizEdge, VizNode, VizParser
from armillary.contrib.relay_viz.terminal import TermGraph, TermPlotter, TermVizParser
from armillary.errors import ModelError, TypeMismatch, UnsupportedError


def two_functions() -> armillary.IRModule:
    """`main` calls `inner` twice, and reads a value twice."""
    a, b = relay.var("a", shape=(2, 3)), relay.var("b", shape=(2, 3))
    inner = relay.GlobalVar("inner")
    x = relay.var('x "quoted"', shape=(2, 3))
    once = relay.Call(inner, [x, relay.const(np.ones((2, 3), np.float32))])
    main = relay.Function([x], relay.Call(inner, [once, relay.clip(once, 0.0, 6.0)]))
    module = armillary.IRModule({"inner": relay.Function([a, b], relay.add(a, b)), "main": main})
    return module


def test_functions_are_trees_in_which_shared_values_stand_once(capsys: pytest.CaptureFixture[str]) -> None:
    viz = relay_viz.RelayVisualizer(two_functions(), {"b": armillary.nd.array(np.zeros((2, 3), np.float32))})
    viz.render()
    out = capsys.readouterr().out
    inner, main = out.split("@main")
    assert re.search(r"@inner\n`--Function #\d params: 2\n", inner)
    assert re.search(
        r"--Var\(Input\) #(\d) name_hint: a shape: \[2, 3\](?s:.)*--Call add #\d+\n.*--Var\(Input\) #\1, above", inner
    )
    assert "Var(Param) " in inner and main.count("Call inner") == 3 and main.count(", above") == 2
    assert re.search(r"Call clip #\d a_min=0\.?0?f? a_max=6", main), main
    assert main.count("Const #") == 1 and "shape: [2, 3], dtype: float32" in main


def test_a_script_may_replace_parser_graph_and_plotter(tmp_path: Path) -> None:
    class Parser(VizParser):
        def get_node_edges(self, node: Any, relay_param: Any, node_to_id: Any) -> tuple[VizNode | None, list[VizEdge]]:
            if isinstance(node, relay.Var):
                return VizNode(node_to_id[node], "Own", node.name_hint), []
            return TermVizParser().get_node_edges(node, relay_param, node_to_id)

    class Graph(TermGraph):
        def node(self, viz_node: VizNode) -> None:
            super().node(viz_node)
            if viz_node.type_name == "Own":
                super().node(VizNode(f"copy_{viz_node.identity}", "Copy", ""))
                super().edge(VizEdge(f"copy_{viz_node.identity}", viz_node.identity))

    class Own(TermPlotter):
        def create_graph(self, name: str) -> TermGraph:
            self._name_to_graph[name] = Graph(name)
            return self._name_to_graph[name]

    path = tmp_path / "viz.txt"
    relay_viz.RelayVisualizer(two_functions(), {}, Own(), Parser()).render(str(path))
    text = path.read_text()
    assert text.count("Own #") - text.count(", above") <= 3 and text.count("Copy #copy_") == 3
    with pytest.raises(TypeMismatch, match="wanted an IRModule"):
        relay_viz.RelayVisualizer(relay.var("x", shape=(1,)))
    broken = TermGraph("f")
    broken.node(VizNode("1", "Call", ""))
    broken.edge(VizEdge("7", "1"))
    with pytest.raises(ModelError, match="names '7', which is no node"):
        broken.render()


def _is_dot(text: str) -> bool:
    """What can be checked without Graphviz; with it, that it reads the text."""
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tcanon"], input=text.encode(), check=True, capture_output=True)
    outside = re.sub(r'"(\\.|[^"\\])*"', "", text)
    return text.startswith("digraph") and '"' not in outside and outside.count("{") == outside.count("}")


def test_dot_quotes_what_names_hold(tmp_path: Path) -> None:
    plotter = relay_viz.DotPlotter(node_attr={"shape": "oval"})
    relay_viz.RelayVisualizer(two_functions(), {}, plotter, relay_viz.DotVizParser()).render(str(tmp_path / "net"))
    text = (tmp_path / "net.dot").read_text()
    assert _is_dot(text) and r"x \"quoted\"" in text and text.count("subgraph") == 2
    assert '"main:0" -> ' in text or '-> "main:1"' in text


def test_schedules_are_drawn(tmp_path: Path) -> None:
    a = te.placeholder((64, 32), name="a")
    b = te.compute((64, 32), lambda i, j: a[i, j] * 2.0, name="b")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((64,), lambda i: te.sum(b[i, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 8)
    s[b].compute_at(s[c], outer)
    s[b].fuse(*b.op.axis)
    flow = tedd.viz_dataflow_graph(s, False, "", True)
    assert _is_dot(flow) and flow.startswith('digraph "Dataflow Graph"')
    lines = flow.replace(";", "").split("\n")
    for edge in ("Stage_0:O_0 -> Tensor_0_0", "Tensor_0_0 -> Stage_1:I_0", "Tensor_1_0 -> Stage_2:I_0"):
        assert f"  {edge}" in lines
    tedd.viz_schedule_tree(s, dot_file_path=str(tmp_path / "tree.dot"))
    tree = (tmp_path / "tree.dot").read_text()
    assert _is_dot(tree) and 'Stage_2 -> Stage_1 [label="i.outer"]' in tree and "ROOT -> Stage_2" in tree
    axes = tedd.viz_itervar_relationship_graph(s, output_dot_string=True)
    assert _is_dot(axes) and axes.count("Split_") == axes.count("Fuse_") == 4
    with pytest.raises(UnsupportedError, match="nothing draws DOT here"):
        tedd.viz_schedule_tree(s, show_svg=True)
    with pytest.raises(TypeMismatch, match="wanted a schedule"):
        tedd.viz_schedule_tree(c)
