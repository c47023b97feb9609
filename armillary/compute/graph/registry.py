"""The registry of operations: which function computes a node on a target.

In: `register_simple_operation(name, target, type)` over a function that takes a `NodeContext`. Out: that function, when
a graph configures a node. Invariant: one operation for each type and target, the last one registered; a type that a
target lacks is refused by name. The library's own: `operations.py`. Users may register theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from armillary.base.boundary import boundary, bounded, bounded_methods
from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.graph.hints import GraphHints, OperationType, Target
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError, UnsupportedError


class IFunction(Protocol):
    """What an operation configures."""

    def run(self) -> None:
        """Compute the output."""


@bounded
class NodeContext:
    """A node, as an operation sees it: tensors, parameters, hints."""

    def __init__(
        self,
        operation: OperationType,
        inputs: Sequence[Tensor | None],
        output: Tensor,
        parameters: Mapping[str, object],
        hints: GraphHints,
        memory_manager: MemoryManagerOnDemand | None = None,
    ) -> None:
        self._operation, self._inputs, self._output = operation, tuple(inputs), output
        self._parameters, self._hints, self._manager = dict(parameters), hints, memory_manager

    def operation(self) -> OperationType:
        """What is computed."""
        return self._operation

    def target(self) -> Target:
        """Where the nodes of this back end run."""
        return self._hints.target

    def hints(self) -> GraphHints:
        """All hints that hold for the node."""
        return self._hints

    def memory_manager(self) -> MemoryManagerOnDemand | None:
        """Where the function gets its temporaries from."""
        return self._manager

    def num_inputs(self) -> int:
        """Values and weights."""
        return len(self._inputs)

    def num_outputs(self) -> int:
        """How many tensors the node gives: one."""
        return 1

    def input(self, index: int) -> Tensor:
        """An input, values first, then weights."""
        result = self._inputs[index] if 0 <= index < len(self._inputs) else None
        if result is None:
            raise ExecutionError(f"{self._operation.name} has no input {index}")
        return result

    def optional_input(self, index: int) -> Tensor | None:
        """An input that a layer may lack."""
        return self._inputs[index] if index < len(self._inputs) else None

    def output(self, index: int = 0) -> Tensor:
        """The output; the function gives it its information."""
        del index
        return self._output

    def parameter(self, name: str) -> Any:  # Any: whatever a layer was made with
        """A parameter of the layer."""
        if name not in self._parameters:
            raise ExecutionError(f"{self._operation.name} has no parameter {name!r}, only {sorted(self._parameters)}")
        return self._parameters[name]


Configure = Callable[[NodeContext], IFunction]


@record(slots=True)
class Operation:
    """One row of the registry."""

    name: str
    target: Target
    configure: Configure


@bounded_methods("add_operation", "contains", "find_operation")
class OperationRegistry:
    """`OperationRegistry.get()`: the one of this process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[OperationType, Target], Operation] = {}

    @classmethod
    @once
    def get(cls) -> OperationRegistry:
        """The registry that all graphs of the process share."""
        return cls()

    def add_operation(self, operation_type: OperationType, operation: Operation) -> None:
        """Register an operation; it replaces the one of its type and target."""
        self._rows[operation_type, operation.target] = operation

    def contains(self, operation_type: OperationType, target: Target) -> bool:
        """Whether a target has an operation."""
        return (operation_type, target) in self._rows

    def find_operation(self, operation_type: OperationType, target: Target) -> Operation:
        """The operation of a type and target."""
        result = self._rows.get((operation_type, target))
        if result is None:
            there = [t.name for t in Target if self.contains(operation_type, t)]
            message = f"no operation {operation_type.name} is registered for {target.name}"
            raise UnsupportedError(message, hint=f"it is for {', '.join(there) or 'no target'}")
        return result


@bounded
class OperationRegistrar:
    """Registers an operation by being made, as the text's static objects do."""

    def __init__(self, operation_type: OperationType, operation: Operation) -> None:
        OperationRegistry.get().add_operation(operation_type, operation)


@boundary("register_simple_operation", arguments=True)
def register_simple_operation(
    name: str, target: Target, operation_type: OperationType
) -> Callable[[Configure], Configure]:
    """Register the function below as an operation (the text's REGISTER_SIMPLE_OPERATION)."""

    def register(configure: Configure) -> Configure:
        OperationRegistrar(operation_type, Operation(name, target, configure))
        return configure

    return register
