"""The graph: layers in order become nodes, nodes functions of their targets, functions a pipeline.

In: hints, tensors with accessors, layers, branches. Out: `run()`: input accessor, stages, output accessor, until one
accessor says to end. Invariant: each node is configured when it is added, without memory, so what does not fit is
refused there; `configure` does it again with weights and memory. Values between stages are managed by target: two whose
lifetimes do not meet share bytes. A value that another target needs is copied once. The nodes: `nodes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from armillary.base.boundary import bounded_methods
from armillary.compute.cl.scheduler import CLScheduler
from armillary.compute.cl.tuner import CLTuner
from armillary.compute.core.kernel import Status
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.graph.branches import IBranches, StreamItem
from armillary.compute.graph.hints import GraphHints, Target
from armillary.compute.graph.memory import GraphMemory
from armillary.compute.graph.nodes import INode
from armillary.compute.graph.stages import Node, Stage, configured, stages_of
from armillary.compute.graph.tensor import Tensor, new_tensor
from armillary.compute.runtime.tensor import Tensor as ComputeTensor
from armillary.compute.runtime.tensor import shape_of
from armillary.errors import ArmillaryError, ExecutionError, Span, TypeMismatch


@bounded_methods("add_node", "add_tensor", "gives", "graph_init", "value", "__lshift__")
class Graph:
    """`graph << Target.NEON << Tensor(info, accessor) << ConvolutionLayer(…) << … << Tensor(accessor)`."""

    def __init__(self) -> None:
        self._current_hints = GraphHints()
        self._values: list[ComputeTensor] = []  # what each is, without memory
        self._producers: list[Target] = []
        self._nodes: list[Node] = []
        self._graph_input: Tensor | None = None
        self._graph_output: Tensor | None = None
        self._tail = -1
        self._pipeline: tuple[Stage, ...] = ()
        self._memory: GraphMemory | None = None
        self._tuner: tuple[CLTuner, Path, bool] | None = None

    def __lshift__(self, item: StreamItem | Tensor) -> Graph:
        if isinstance(item, Tensor):
            self.add_tensor(item)
        else:
            self._tail = self._add_item(item, self._tail)
        return self

    def validate(self, item: StreamItem | Tensor) -> Status:
        """Whether `<<` would take an item now, with the text that it would refuse it with; nothing is added."""
        before = (self._current_hints, self._graph_input, self._graph_output, self._tail)
        counts = (len(self._values), len(self._nodes))
        try:
            self << item
        except ArmillaryError as error:
            return Status(error.message)
        finally:
            self._current_hints, self._graph_input, self._graph_output, self._tail = before
            del self._values[counts[0] :], self._producers[counts[0] :], self._nodes[counts[1] :]
        return Status()

    def graph_init(self, use_cl_tuner: bool = False, tuner_file: str | Path = "acl_tuner.csv") -> None:
        """Prepare OpenCL: a tuner that measures and saves to a file, or one that only reads it, if it is there."""
        tuner, path = CLTuner(use_cl_tuner), Path(tuner_file)
        if path.exists():
            tuner.load_from_file(path)
        CLScheduler.get().default_init(tuner)
        self._tuner = (tuner, path, use_cl_tuner)

    def hints(self) -> GraphHints:
        """The hints that hold for the next layer."""
        return self._current_hints

    def set_hints(self, hints: GraphHints) -> None:
        """Set all of them."""
        self._current_hints = hints

    def add_tensor(self, tensor: Tensor) -> None:
        """The first one is where the graph begins, the second one where it ends."""
        if self._graph_output is not None:
            raise TypeMismatch("the graph has an output already")
        if self._graph_input is None:
            if not tensor.has_info():
                raise TypeMismatch("a graph begins with a Tensor that has information: Tensor(TensorInfo(…), accessor)")
            self._graph_input = tensor
            made = new_tensor(self._current_hints.target)
            made.allocator().init(tensor.info())
            self._tail = self._new_value(made, self._current_hints.target)
        elif not self._nodes:
            raise TypeMismatch("a graph has at least one layer between its input and its output")
        else:
            self._graph_output = tensor

    def add_node(self, layer: INode, inputs: Sequence[int] | None = None) -> int:
        """Add a layer behind values of the graph (the last one unless told); the number of its output."""
        self._tail = self._add_node(layer, tuple(inputs) if inputs is not None else (self._tail,))
        return self._tail

    def gives(self, layer: INode, inputs: Sequence[int], shape: tuple[int, ...]) -> bool:
        """Whether a layer fits behind values and makes of them so many elements, in numpy's order."""
        try:
            output = self._probe(layer, tuple(inputs))
        except ArmillaryError:
            return False
        made = (1, 1, 1, 1, 1, 1, *shape_of(output.info()))[-6:]
        return made == (1, 1, 1, 1, 1, 1, *shape)[-6:]

    def tail(self) -> int:
        """The number of the value that the next layer gets."""
        return self._tail

    def nodes(self) -> tuple[Node, ...]:
        """The layers in their places, without those that the last value does not need."""
        needed, live = {self._tail}, []
        for node in reversed(self._nodes):
            if node.output in needed:
                needed.update(node.inputs)
                live.append(node)
        return tuple(reversed(live))

    def value(self, number: int) -> ComputeTensor:
        """A value of the graph: its information."""
        return self._values[number]

    def _new_value(self, tensor: ComputeTensor, target: Target) -> int:
        self._values.append(tensor)
        self._producers.append(target)
        return len(self._values) - 1

    def _add_item(self, item: StreamItem, tail: int) -> int:
        if isinstance(item, Target):
            self._current_hints = replace(self._current_hints, target=item)
        elif isinstance(item, ConvolutionMethod):
            self._current_hints = replace(self._current_hints, convolution_method=item)
        elif isinstance(item, IBranches):
            return self._add_branches(item, tail)
        elif isinstance(item, INode):
            return self._add_node(item, (tail,))
        else:
            raise TypeMismatch(f"a graph takes tensors, layers and hints, got {type(item).__name__}")
        return tail

    def _add_branches(self, item: IBranches, tail: int) -> int:
        ends, before = [], self._current_hints
        for branch in item.branches:
            end = tail
            for inner in branch.items():
                end = self._add_item(inner, end)
            self._current_hints = before
            ends.append(end)
        return ends[0] if item.joint is None else self._add_node(item.joint, tuple(ends))

    def _add_node(self, layer: INode, inputs: tuple[int, ...]) -> int:
        if self._graph_input is None or self._graph_output is not None:
            where = "before the graph's input" if self._graph_input is None else "behind the graph's output"
            raise TypeMismatch(f"{layer.name()} is added {where}")
        if self._pipeline:
            raise ExecutionError(f"{layer.name()} is added to a graph that is configured already")
        if not all(0 <= n < len(self._values) for n in inputs):
            raise TypeMismatch(f"{layer.name()}: values {inputs}, there are {len(self._values)}")
        try:
            output = self._probe(layer, inputs)
        except ArmillaryError as error:
            error.span = error.span or Span(name=f"layer {len(self._nodes)} of the graph ({layer.name()})")
            raise
        number = self._new_value(output, self._current_hints.target)
        self._nodes.append(Node(layer, inputs, number, self._current_hints))
        return number

    def _probe(self, layer: INode, inputs: tuple[int, ...]) -> ComputeTensor:
        """What a layer gives, by its function without memory."""
        target = self._current_hints.target
        output, operands = new_tensor(target), [self._on(target, n) for n in inputs]
        weights = layer.weights([t.info() for t in operands])
        tensors = [new_tensor(target) if w is not None else None for w in weights]
        for tensor, weight in zip(tensors, weights, strict=True):
            if tensor is not None and weight is not None:
                tensor.allocator().init(weight[0])
        configured(layer, operands, tensors, output, self._current_hints)
        return output

    def _on(self, target: Target, number: int) -> ComputeTensor:
        """A value's information as a tensor of a target."""
        if self._producers[number] is target:
            return self._values[number]
        result = new_tensor(target)
        result.allocator().init(self._values[number].info())
        return result

    def configure(self) -> None:
        """Load weights, pack them, plan the memory; `run` does it the first time."""
        if self._pipeline:
            return
        if self._graph_input is None or not self._nodes:
            message = "graph << Tensor(info, accessor) << … << Tensor(accessor)"
            raise ExecutionError("a graph without layers", hint=message)
        self._graph_output = self._graph_output or Tensor()
        targets = self._producers
        first, last = self._graph_input.set_target(targets[0]), self._graph_output.set_target(targets[self._tail])
        pinned = {(0, targets[0]): first, (self._tail, targets[self._tail]): last}
        infos = [tensor.info() for tensor in self._values]
        self._pipeline, self._memory = stages_of(self.nodes(), infos, targets, pinned)
        self._graph_input.allocate()
        self._graph_output.allocate()

    def pipeline(self) -> tuple[Stage, ...]:
        """The stages, in order; configures the graph."""
        self.configure()
        return self._pipeline

    def memory(self) -> GraphMemory:
        """How much the values between the layers take; configures the graph."""
        self.configure()
        assert self._memory is not None, "configure makes it"
        return self._memory

    def input(self) -> ComputeTensor:
        """The input, to be filled where no accessor does."""
        self.configure()
        assert self._graph_input is not None, "configure checks it"
        return self._graph_input.tensor()

    def output(self) -> ComputeTensor:
        """The output of the last run."""
        self.configure()
        assert self._graph_output is not None, "configure makes it"
        return self._graph_output.tensor()

    def run(self) -> None:
        """Fill the input, run every stage, read the output, until an accessor says to end; without one, once."""
        self.configure()
        first, last, memory = self._graph_input, self._graph_output, self._memory
        assert first is not None and last is not None and memory is not None, "configure makes them"
        while True:
            if first.has_accessor() and not first.call_accessor():
                break
            with memory:
                for stage in self._pipeline:
                    stage.function.run()
            if not last.call_accessor() or not first.has_accessor():
                break
        if self._tuner is not None and self._tuner[2]:
            self._tuner[0].save_to_file(self._tuner[1])
