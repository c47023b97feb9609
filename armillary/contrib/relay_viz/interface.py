"""What a visualizer is made of: nodes and edges, a parser that makes them, a graph and a plotter that show them.

In: the expressions of a function. Out: what a plotter draws. Invariant: these classes draw nothing; a script replaces
any of them by a class of its own. Those that write text: `terminal.py`; that write DOT: `dot.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping

from armillary.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.printer import attribute_text
from armillary.relay.types import TensorType
from armillary.relay.walk import children
from armillary.runtime.ndarray import NDArray

UNKNOWN_TYPE = "unknown"
Parameters = Mapping[str, NDArray]
Names = Mapping[Expr, str]


class VizNode:
    """A node: its identity in the graph, what it is, and a text of details."""

    def __init__(self, node_id: str, node_type: str, node_detail: str) -> None:
        self._id, self._type, self._detail = node_id, node_type, node_detail

    @property
    def identity(self) -> str:
        """Unique among the nodes of a graph."""
        return self._id

    @property
    def type_name(self) -> str:
        """What it is: `Call nn.relu`, `Var(Input)`, `Const`."""
        return self._type

    @property
    def detail(self) -> str:
        """Lines about it."""
        return self._detail

    def __repr__(self) -> str:
        return f"VizNode({self._id}, {self._type}, {self._detail!r})"


class VizEdge:
    """From the node whose value is read to the one that reads it."""

    def __init__(self, start_node: str, end_node: str) -> None:
        self._start, self._end = start_node, end_node

    @property
    def start(self) -> str:
        """The identity of the node that is read."""
        return self._start

    @property
    def end(self) -> str:
        """The identity of the reader."""
        return self._end

    def __repr__(self) -> str:
        return f"VizEdge({self._start} -> {self._end})"


class VizParser(abc.ABC):
    """How an expression becomes a node and edges."""

    @abc.abstractmethod
    def get_node_edges(
        self, node: Expr, relay_param: Parameters, node_to_id: Names
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """The node (None: it is not shown) and the edges that end in it."""


class VizGraph(abc.ABC):
    """What collects the nodes and edges of one function."""

    @abc.abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Take a node."""

    @abc.abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Take an edge."""


class Plotter(abc.ABC):
    """What shows the graphs of a module."""

    @abc.abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """The graph that takes the function of a name."""

    @abc.abstractmethod
    def render(self, filename: str | None = None) -> None:
        """Show all graphs, or write them to a file."""


class DefaultVizParser(VizParser):
    """Every expression is a node that its operands lead to."""

    def get_node_edges(
        self, node: Expr, relay_param: Parameters, node_to_id: Names
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """The node and the edges from its operands."""
        name = node_to_id[node]
        if isinstance(node, Op):
            return None, []
        kind, detail = _description(node, relay_param)
        edges = [VizEdge(node_to_id[item], name) for item in children(node) if item in node_to_id]
        return VizNode(name, kind, detail), edges


def _description(node: Expr, params: Parameters) -> tuple[str, str]:
    """What an expression is, and its details."""
    match node:
        case Var():
            known = params.get(node.name_hint)
            shape = f"\nshape: {list(known.shape)}" if known is not None else _type_of(node)
            return f"Var({'Param' if known is not None else 'Input'})", f"name_hint: {node.name_hint}{shape}"
        case Constant():
            return "Const", f"shape: {list(node.data.shape)}, dtype: {node.data.dtype}"
        case Call():
            called = node.op.name if isinstance(node.op, Op) else getattr(node.op, "name_hint", type(node.op).__name__)
            return f"Call {called}", "\n".join(attribute_text(node.attrs)) if isinstance(node.op, Op) else ""
        case Function():
            return "Function", f"params: {len(node.params)}"
        case Tuple():
            return "Tuple", f"{len(node.fields)} fields"
        case TupleGetItem():
            return "TupleGetItem", f"index: {node.index}"
        case Let():
            return "Let", f"var: {node.var.name_hint}"
    return type(node).__name__, str(getattr(node, "name_hint", ""))


def _type_of(node: Var) -> str:
    ty = node.type_annotation
    return f"\nshape: {list(ty.shape)}, dtype: {ty.dtype}" if isinstance(ty, TensorType) else ""
