"""Graphs of a module as text: on the terminal, or in DOT for Graphviz.

In: a module, its parameters, who draws and who reads. Out: what the plotter makes. Invariant: every function of the
module is one graph. Classes to derive from: `interface.py`; a picture that needs neither: `relay.visualize`.
"""

from __future__ import annotations

from armillary.base.boundary import boundary
from armillary.contrib.relay_viz.dot import DotPlotter, DotVizParser
from armillary.contrib.relay_viz.interface import Parameters, Plotter, VizParser
from armillary.contrib.relay_viz.terminal import TermPlotter, TermVizParser
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.op import Op
from armillary.relay.walk import post_order

__all__ = ["DotPlotter", "DotVizParser", "RelayVisualizer", "TermPlotter", "TermVizParser"]


class RelayVisualizer:
    """The functions of a module, read by `parser` and shown by `plotter` (on the terminal by default)."""

    @boundary("RelayVisualizer", arguments=True)
    def __init__(
        self,
        relay_mod: IRModule,
        relay_param: Parameters | None = None,
        plotter: Plotter | None = None,
        parser: VizParser | None = None,
    ) -> None:
        if not isinstance(relay_mod, IRModule):
            raise TypeMismatch(f"RelayVisualizer: got {type(relay_mod).__name__}, wanted an IRModule")
        self._plotter: Plotter = plotter if plotter is not None else TermPlotter()
        parser, params = parser or TermVizParser(), dict(relay_param or {})
        for name, function in relay_mod.functions.items():
            if isinstance(function, Function):
                self._add(str(getattr(name, "name_hint", name)), function, params, parser)

    def _add(self, name: str, function: Function, params: Parameters, parser: VizParser) -> None:
        graph = self._plotter.create_graph(name)
        order = [item for item in post_order(function) if not isinstance(item, Op)]
        names = {item: str(place) for place, item in enumerate(order)}
        for item in order:
            node, edges = parser.get_node_edges(item, params, names)
            if node is not None:
                graph.node(node)
            for edge in edges:
                graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Show the module, or write it to a file, as the plotter does."""
        self._plotter.render(filename)
