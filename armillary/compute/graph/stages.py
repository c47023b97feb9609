"""From nodes to a pipeline: each node's function on its target, with weights, memory, and copies between targets.

In: nodes in order, what their values are, which tensors are the graph's own. Out: `Stage`s and the memory that they
share. Invariant: a value that another target needs is copied once, before its first reader there; weights are loaded,
packed and freed one layer after another, so that no two layers' plain weights are in memory at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.record import record
from armillary.compute.cl.tensor import CLTensor
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.graph import operations
from armillary.compute.graph.hints import GraphHints, Target
from armillary.compute.graph.memory import GraphMemory
from armillary.compute.graph.nodes import INode
from armillary.compute.graph.registry import IFunction, NodeContext
from armillary.compute.graph.tensor import accessed, new_tensor
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand
from armillary.compute.runtime.tensor import Tensor

Slot = tuple[int, Target]  # a value's number, and where it is


@record(slots=True)
class Node:
    """A layer in its place: numbers of its input values and of its output."""

    layer: INode
    inputs: tuple[int, ...]
    output: int
    hints: GraphHints


@record(slots=True)
class Stage:
    """One step of the pipeline."""

    name: str
    target: Target
    function: IFunction


class Transfer:
    """A function that copies a value from one target to another."""

    def __init__(self, source: Tensor, target: Tensor) -> None:
        self._source, self._target = source, target

    def run(self) -> None:
        """Copy the values; waits for the device."""
        mapped = [t for t in (self._source, self._target) if isinstance(t, CLTensor)]
        for tensor in mapped:
            tensor.map()
        try:
            self._target.array()[...] = self._source.array()
        finally:
            for tensor in mapped:
                tensor.unmap()


def configured(
    layer: INode,
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    output: Tensor,
    hints: GraphHints,
    manager: MemoryManagerOnDemand | None = None,
) -> IFunction:
    """A layer's function over tensors."""
    parameters = layer.parameters([t.info() for t in inputs])
    return operations.configure(NodeContext(layer.operation, (*inputs, *weights), output, parameters, hints, manager))


def loaded_weights(layer: INode, infos: Sequence[TensorInfo], target: Target) -> list[Tensor | None]:
    """A layer's weights, filled by their accessors."""
    result: list[Tensor | None] = []
    for weight in layer.weights(infos):
        if weight is None:
            result.append(None)
            continue
        tensor = new_tensor(target)
        tensor.allocator().init(weight[0])
        tensor.allocator().allocate()
        accessed(tensor, weight[1])
        tensor.mark_as_constant()
        result.append(tensor)
    return result


_Step = tuple[Node | None, tuple[Slot, ...], Slot]  # no node: a copy


def _steps(nodes: Sequence[Node], producers: Sequence[Target]) -> list[_Step]:
    """Nodes, with copies where a value is needed on another target."""
    steps: list[_Step] = []
    copied: set[Slot] = set()
    for node in nodes:
        target = node.hints.target
        for number in node.inputs:
            slot = (number, target)
            if producers[number] is not target and slot not in copied:
                copied.add(slot)
                steps.append((None, ((number, producers[number]),), slot))
        steps.append((node, tuple((n, target) for n in node.inputs), (node.output, target)))
    return steps


def stages_of(
    nodes: Sequence[Node],
    infos: Sequence[TensorInfo],
    producers: Sequence[Target],
    pinned: Mapping[Slot, Tensor],
) -> tuple[tuple[Stage, ...], GraphMemory]:
    """The pipeline, and the memory that it runs in."""
    steps, memory = _steps(nodes, producers), GraphMemory()
    last_use = {slot: at for at, (_, inputs, output) in enumerate(steps) for slot in (output, *inputs)}
    tensors, stages = dict(pinned), []
    for at, (node, inputs, output) in enumerate(steps):
        if output not in tensors:
            tensors[output] = memory.begin(output[1], infos[output[0]])
        operands = [tensors[slot] for slot in inputs]
        if node is None:
            stages.append(Stage(f"copy to {output[1].name}", output[1], Transfer(operands[0], tensors[output])))
        else:
            function = _function(node, operands, tensors[output], memory)
            stages.append(Stage(node.layer.name(), output[1], function))
        for slot in dict.fromkeys((*inputs, output)):
            if last_use[slot] == at and slot not in pinned:
                memory.end(tensors[slot])
    memory.finalize()
    return tuple(stages), memory


def _function(node: Node, given: Sequence[Tensor], output: Tensor, memory: GraphMemory) -> IFunction:
    """A node's function with its weights packed, which are freed then."""
    weights = loaded_weights(node.layer, [t.info() for t in given], node.hints.target)
    manager = memory.within(node.hints.target)
    function = configured(node.layer, given, weights, output, node.hints, manager)
    for tensor in weights:
        if tensor is not None:
            tensor.allocator().free()
    return function
