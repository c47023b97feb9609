"""The `-symbol.json` files of MXNet: the nodes of a graph.

In: text that `symbol.save` or `net.export` wrote, by any version. Out: a `Symbol`. Invariant: a node reads only nodes
before it. What the operators mean: rules/.
"""

from __future__ import annotations

import json

from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.errors import ModelError, Span

_KEYS = ("attrs", "attr", "param")  # as versions called a node's attributes, the last first


@record
class SymbolNode:
    """One operator, or a variable (`op` is "null"); `inputs` are (number of the node, which of its results)."""

    name: str
    op: str
    attrs: dict[str, str]
    inputs: tuple[tuple[int, int], ...]


@record
class Symbol:
    """A graph in topological order; `heads` are its results."""

    nodes: tuple[SymbolNode, ...]
    heads: tuple[tuple[int, int], ...]

    def reached(self, reads: dict[str, int]) -> set[int]:
        """Numbers of the nodes that results depend on; `reads` has operators of which only the first inputs count."""
        result: set[int] = set()
        waiting = [number for number, _ in self.heads]
        while waiting:
            number = waiting.pop()
            if number not in result:
                result.add(number)
                node = self.nodes[number]
                waiting += [other for other, _ in node.inputs[: reads.get(node.op)]]
        return result


def read_symbol(text: str, path: str) -> Symbol:
    """The graph of a text; `path` is what errors call it."""
    try:
        graph = json.loads(text)
        nodes = tuple(map(_node, graph["nodes"]))
        heads = tuple((int(head[0]), int(head[1])) for head in graph["heads"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        hint = "net.export('net') writes net-symbol.json and net-0000.params"
        raise ModelError(f"it is no symbol of MXNet: {error!r:.120}", span=Span(path), hint=hint) from None
    for number, node in enumerate(nodes):
        if any(not 0 <= other < number for other, _ in node.inputs):
            raise ModelError(f"node {node.name!r} reads a node that is not before it", span=Span(path))
    if any(not 0 <= number < len(nodes) for number, _ in heads):
        raise ModelError("a result is a node that is not there", span=Span(path))
    return Symbol(nodes, heads)


def _node(node: JsonObject) -> SymbolNode:
    attrs: dict[str, str] = {}
    for key in reversed(_KEYS):
        attrs |= {str(name): str(value) for name, value in (node.get(key) or {}).items()}
    inputs = tuple((int(read[0]), int(read[1])) for read in node["inputs"])
    return SymbolNode(str(node["name"]), str(node["op"]), attrs, inputs)
