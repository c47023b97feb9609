"""Load-time and size-time nodes: calls that depend on parameters alone, or on sizes, do not run in every inference.

In: the nodes of a graph and the names of its parameters. Out: the nodes that are marked (`load_time` in their
attributes), which `runtime/native/arm_load.c` runs once. Invariant: a marked node reads parameters and marked nodes
only, computes the same at every call and lies in no branch or loop. Most such calls never get here, because
fold-constant has evaluated them: what is left is what it leaves alone, operators that make a package larger
(`Op.expands`: weights for Winograd) and results beyond its limits (constants broadcast to hundreds of megabytes).
Calls that depend on parameters and on sizes of inputs (`size_time`: positions, their biases) run when sizes are bound
to other values (`runtime/native/arm_sizes.c`); their results stay from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from armillary.base.node import post_order
from armillary.relay.analysis.bind_sizes import sizes_in
from armillary.relay.expr import Call, Function
from armillary.relay.op import Op

LOAD_TIME, SIZE_TIME = "load_time", "size_time"


class Node(Protocol):
    """What this module needs of driver.graph_codegen.GraphNode."""

    name: str
    func: str | None
    inputs: list[tuple[int, int]]
    attrs: dict[str, str]
    state: int | None


class Kernel(Protocol):
    """Of driver.graph_codegen.Kernel, what its calls compute."""

    @property
    def function(self) -> Function: ...


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


def mark_size_time(
    nodes: Sequence[Node],
    kernels: Mapping[str, Kernel],
    params: Collection[str],
    heads: Collection[int],
    nop: str,
) -> None:
    """Mark the nodes that depend on parameters and sizes of inputs alone, but for the graph's outputs (`heads`)."""
    inside, bound = _in_regions(nodes), {node.attrs["size"] for node in nodes if "size" in node.attrs}
    early: set[int] = set()
    for index, node in enumerate(nodes):
        kernel = kernels.get(node.func or "")
        if (node.func is None and node.name in params) or is_load_time(node):
            early.add(index)
        elif index in inside or node.state is not None or any(source not in early for source, _ in node.inputs):
            continue
        elif node.func == nop and len(node.inputs) == 1:
            early.add(index)
        elif kernel is not None and index not in heads and _is_of_sizes(kernel.function, bound):
            early.add(index)
            node.attrs[SIZE_TIME] = "1"


def _is_of_sizes(function: Function, bound: Collection[str]) -> bool:
    """Whether a kernel has sizes, none of them from data, and no state."""
    sizes = sizes_in(function)
    return bool(sizes) and not any(name in bound for name in sizes) and not _has_state(function)


def is_load_time(node: Node) -> bool:
    """Whether the node is marked."""
    return LOAD_TIME in node.attrs


def is_before(node: Node) -> bool:
    """Whether it runs before an inference: when parameters are set, or sizes are bound."""
    return LOAD_TIME in node.attrs or SIZE_TIME in node.attrs


def _in_regions(nodes: Sequence[Node]) -> set[int]:
    """Indices of the nodes that a branch or a loop runs."""
    inside: set[int] = set()
    for index, node in enumerate(nodes):
        count = sum(int(node.attrs.get(key, "0")) for key in ("first_nodes", "second_nodes"))
        inside.update(range(index + 1, index + 1 + count))
    return inside


def is_pure(function: Function) -> bool:
    """Whether a kernel computes the same at every call: no state, and no size that inputs give."""
    return not sizes_in(function) and not _has_state(function)


def _has_state(function: Function) -> bool:
    calls = [n.op for n in post_order(function.body) if isinstance(n, Call)]
    return any(isinstance(op, Op) and op.stateful for op in calls)
