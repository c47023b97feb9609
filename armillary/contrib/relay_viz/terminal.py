"""A module as text: each function a tree from its result down to what it reads.

In: nodes and edges. Out: lines, printed or written to a file. Invariant: a node that several others read is written
out once, and by its identity from then on, so a text is as long as its graph. As a picture: `relay.visualize`.
"""

from __future__ import annotations

from pathlib import Path

from armillary.base.files import write_atomic
from armillary.contrib.relay_viz.interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode
from armillary.errors import ModelError


class TermVizParser(DefaultVizParser):
    """The default parser: nothing of a text's own."""


class TermGraph(VizGraph):
    """The nodes and edges of one function, rendered as a tree."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, VizNode] = {}
        self._read: dict[str, list[str]] = {}  # reader -> what it reads, in order
        self._is_read: set[str] = set()

    def node(self, viz_node: VizNode) -> None:
        """Take a node; one of the same identity replaces it."""
        self._nodes[viz_node.identity] = viz_node

    def edge(self, viz_edge: VizEdge) -> None:
        """Take an edge; its nodes may come later."""
        self._read.setdefault(viz_edge.end, []).append(viz_edge.start)
        self._is_read.add(viz_edge.start)

    def render(self) -> str:
        """The text; ModelError where an edge names a node that never came."""
        lines, written = [f"@{self._name}"], set[str]()
        roots = [(name, "") for name in self._nodes if name not in self._is_read]
        work = [(name, prefix, place == len(roots) - 1) for place, (name, prefix) in enumerate(roots)][::-1]
        while work:
            name, prefix, is_last = work.pop()
            lines.append(f"{prefix}{'`' if is_last else '|'}--{self._shown(name, name in written)}")
            if name in written:
                continue
            written.add(name)
            below = self._read.get(name, [])
            inner = prefix + ("   " if is_last else "|  ")
            work += [(item, inner, place == len(below) - 1) for place, item in enumerate(below)][::-1]
        return "\n".join(lines) + "\n"

    def _shown(self, name: str, is_again: bool) -> str:
        node = self._nodes.get(name)
        if node is None:
            raise ModelError(f"graph {self._name}: an edge names {name!r}, which is no node", hint="add the node too")
        if is_again:
            return f"{node.type_name} #{name}, above"
        detail = " ".join(node.detail.split("\n"))
        return f"{node.type_name} #{name}{' ' + detail if detail else ''}"


class TermPlotter(Plotter):
    """Prints the graphs, or writes them to a file."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        """An empty graph for a function."""
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        """Print all functions, or write them to `filename`."""
        text = "".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text, end="")
        else:
            write_atomic(Path(filename), text.encode())
