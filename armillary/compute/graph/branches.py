"""Branches: parts of a graph that start at one value and come together again.

In: `SubGraph`s, streams of layers and hints without an input. Out: `IBranches`, which a graph unrolls into plain nodes.
Invariant: every branch starts at the value where the branching layer is added, with the hints that hold there; a branch
without layers is that value itself.
"""

from __future__ import annotations

from armillary.base.boundary import bounded
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.graph.hints import BranchMergeMethod, EltwiseOperation, Target
from armillary.compute.graph.nodes import DepthConcatenateNode, EltwiseNode, INode
from armillary.errors import TypeMismatch


@bounded
class SubGraph:
    """Layers and hints, streamed as into a graph."""

    def __init__(self) -> None:
        self._items: list[StreamItem] = []

    def __lshift__(self, item: StreamItem) -> SubGraph:
        if not isinstance(item, INode | IBranches | Target | ConvolutionMethod):
            raise TypeMismatch(f"a SubGraph takes layers and hints, got {type(item).__name__}")
        self._items.append(item)
        return self

    def items(self) -> tuple[StreamItem, ...]:
        """What was streamed."""
        return tuple(self._items)


class IBranches:
    """Branches and the node that joins them; `joint` None: the one branch goes on."""

    def __init__(self, branches: tuple[SubGraph, ...], joint: INode | None, least: int, most: int = 1 << 16) -> None:
        if not least <= len(branches) <= most or not all(isinstance(b, SubGraph) for b in branches):
            kinds = [type(b).__name__ for b in branches]
            raise TypeMismatch(f"{type(self).__name__} takes {least} or more SubGraphs, got {kinds}")
        self.branches, self.joint = branches, joint

    def set_name(self, name: str) -> IBranches:
        """Name the joint."""
        if self.joint is not None:
            self.joint.set_name(name)
        return self


@bounded
class BranchLayer(IBranches):
    """`BranchLayer(BranchMergeMethod.DEPTH_CONCATENATE, *sub_graphs)`, or one SubGraph that goes on."""

    def __init__(self, *given: BranchMergeMethod | SubGraph) -> None:
        graphs = tuple(g for g in given if isinstance(g, SubGraph))
        if len(given) == 1 and graphs:
            super().__init__(graphs, None, 1)
            return
        if not given or not isinstance(given[0], BranchMergeMethod):
            raise TypeMismatch(f"BranchLayer takes a BranchMergeMethod first, got {[type(g).__name__ for g in given]}")
        super().__init__(tuple(given[1:]), DepthConcatenateNode(), 2)  # type: ignore[arg-type]  # it checks them


@bounded
class ConcatLayer(IBranches):
    """Branches whose channels follow one another."""

    def __init__(self, *sub_graphs: SubGraph) -> None:
        super().__init__(sub_graphs, DepthConcatenateNode(), 2)


@bounded
class EltwiseLayer(IBranches):
    """Two branches, element by element."""

    def __init__(self, sub_graph0: SubGraph, sub_graph1: SubGraph, op: EltwiseOperation) -> None:
        super().__init__((sub_graph0, sub_graph1), EltwiseNode(op), 2, 2)


@bounded
class ResidualLayer(IBranches):
    """A branch added to the value it starts from, or to another branch."""

    def __init__(self, sub_graph0: SubGraph, sub_graph1: SubGraph | None = None) -> None:
        super().__init__((sub_graph0, sub_graph1 or SubGraph()), EltwiseNode(EltwiseOperation.Add), 2, 2)


StreamItem = INode | IBranches | Target | ConvolutionMethod
