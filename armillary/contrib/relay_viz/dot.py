"""A module as text in DOT, the language of Graphviz: each function a cluster.

In: nodes and edges. Out: a file that `dot -Tsvg` draws; the program itself is not needed to write it. Invariant: what
a model's names hold is quoted. As a picture without Graphviz: `relay.visualize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from armillary.base.files import write_atomic
from armillary.contrib.relay_viz.interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode


class DotVizParser(DefaultVizParser):
    """The default parser: nothing of a drawing's own."""


def quoted(text: str) -> str:
    """A text as DOT writes it: its line ends become left-justified lines."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("\n", "\\l") + ("\\l" if "\n" in text else "") + '"'


def attributes(pairs: Mapping[str, str]) -> str:
    """Attributes in brackets; nothing for none."""
    message = ", ".join(f"{name}={quoted(value)}" for name, value in pairs.items())
    return f" [{message}]" if message else ""


class DotGraph(VizGraph):
    """One function: statements of its cluster. The mappings are attributes of all of it, of nodes, of edges."""

    def __init__(
        self,
        name: str,
        graph_attr: Mapping[str, str] | None = None,
        node_attr: Mapping[str, str] | None = None,
        edge_attr: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._attrs = [("graph", graph_attr or {}), ("node", node_attr or {"shape": "box"}), ("edge", edge_attr or {})]
        self._lines: list[str] = []

    def node(self, viz_node: VizNode) -> None:
        """Take a node."""
        label = f"{viz_node.type_name}\n{viz_node.detail}" if viz_node.detail else viz_node.type_name
        self._lines.append(f"{self._place(viz_node.identity)}{attributes({'label': label})};")

    def edge(self, viz_edge: VizEdge) -> None:
        """Take an edge."""
        self._lines.append(f"{self._place(viz_edge.start)} -> {self._place(viz_edge.end)};")

    def _place(self, identity: str) -> str:
        return quoted(f"{self._name}:{identity}")

    def render(self) -> str:
        """The cluster as text of the DOT language."""
        own = [f"{what}{attributes(settings)};" for what, settings in self._attrs if settings]
        lines = [f"label={quoted(self._name)};", *own, *self._lines]
        return "\n".join([f"subgraph {quoted('cluster_' + self._name)} {{", *(f"  {line}" for line in lines), "}"])


class DotPlotter(Plotter):
    """Writes one digraph with a cluster for each function."""

    def __init__(
        self,
        graph_attr: Mapping[str, str] | None = None,
        node_attr: Mapping[str, str] | None = None,
        edge_attr: Mapping[str, str] | None = None,
    ) -> None:
        self._attrs = (graph_attr, node_attr, edge_attr)
        self._name_to_graph: dict[str, DotGraph] = {}

    def create_graph(self, name: str) -> DotGraph:
        """An empty graph for a function."""
        self._name_to_graph[name] = DotGraph(name, *self._attrs)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        """Print the text, or write it to `filename` (with the suffix .dot if it has none)."""
        inner = "\n".join(graph.render() for graph in self._name_to_graph.values())
        text = "digraph {\n" + inner + "\n}\n"
        if filename is None:
            print(text, end="")
        else:
            path = Path(filename)
            write_atomic(path if path.suffix else path.with_suffix(".dot"), text.encode())
