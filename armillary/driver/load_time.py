"""Load-time nodes: calls that depend on parameters alone run when parameters are set, not in every inference.

In: the nodes of a graph and the names of its parameters. Out: the nodes that are marked (`load_time` in their
attributes), which `runtime/native/arm_load.c` runs once. Invariant: a marked node reads parameters and marked nodes
only, computes the same at every call and lies in no branch or loop. Most such calls never get here, because
fold-constant has evaluated them: what is left is what it leaves alone, operators that make a package larger
(`Op.expands`: weights for Winograd) and results beyond its limits (constants broadcast to hundreds of megabytes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from armillary.base.node import post_order
from armillary.relay.analysis.bind_sizes import sizes_in
from armillary.relay.expr import Call, Function
from armillary.relay.op import Op

LOAD_TIME = "load_time"


class Node(Protocol):
    """What this module needs of driver.graph_codegen.GraphNode."""

    name: str
    func: str | None
    inputs: list[tuple[int, int]]
    attrs: dict[str, str]
    state: int | None


def mark_load_time(nodes: Sequence[Node], params: Collection[str], is_pure: Callable[[str], bool]) -> None:
    """Mark the nodes that depend on parameters alone; `is_pure` says it of a kernel's name."""
    inside = _in_regions(nodes)
    early: set[int] = set()
    for index, node in enumerate(nodes):
        if node.func is None:
            if node.name in params:
                early.add(index)
            continue
        is_plain = index not in inside and "first_nodes" not in node.attrs and node.state is None
        if is_plain and is_pure(node.func) and all(source in early for source, _ in node.inputs):
            early.add(index)
            node.attrs[LOAD_TIME] = "1"


def is_load_time(node: Node) -> bool:
    """Whether the node is marked."""
    return LOAD_TIME in node.attrs


def _in_regions(nodes: Sequence[Node]) -> set[int]:
    """Indices of the nodes that a branch or a loop runs."""
    inside: set[int] = set()
    for index, node in enumerate(nodes):
        count = sum(int(node.attrs.get(key, "0")) for key in ("first_nodes", "second_nodes"))
        inside.update(range(index + 1, index + 1 + count))
    return inside


def is_pure(function: Function) -> bool:
    """Whether a kernel computes the same at every call: no state, and no size that inputs give."""
    if sizes_in(function):
        return False
    calls = [n.op for n in post_order(function.body) if isinstance(n, Call)]
    return not any(isinstance(op, Op) and op.stateful for op in calls)
