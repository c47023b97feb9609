"""Memory of a graph: values between stages by lifetime, functions' temporaries, both shared through memory managers.

In: values in the order in which stages write and no longer need them. Out: tensors in memory groups, one group and two
managers for each target: one for values between functions, one for what functions need inside, which is never needed by
two at once. Invariant: a value lives from the stage that writes it to the last one that reads it.
"""

from __future__ import annotations

from contextlib import ExitStack

from armillary.compute.cl.tensor import CLBufferAllocator
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.graph.hints import Target
from armillary.compute.graph.tensor import new_tensor
from armillary.compute.runtime.memory.lifetime import OffsetLifetimeManager
from armillary.compute.runtime.memory.manager import MemoryGroup, MemoryManagerOnDemand
from armillary.compute.runtime.memory.pool import Allocator, PoolManager
from armillary.compute.runtime.tensor import Tensor


class GraphMemory:
    """The values of a graph; they have memory `with memory:`."""

    def __init__(self) -> None:
        self._between: dict[Target, MemoryManagerOnDemand] = {}
        self._groups: dict[Target, MemoryGroup] = {}
        self._within: dict[Target, MemoryManagerOnDemand] = {}
        self._sizes: list[int] = []
        self._held = ExitStack()

    def begin(self, target: Target, info: TensorInfo) -> Tensor:
        """A value whose lifetime starts."""
        if target not in self._groups:
            self._between[target] = MemoryManagerOnDemand(OffsetLifetimeManager(), PoolManager())
            self._groups[target] = MemoryGroup(self._between[target])
        result = new_tensor(target)
        result.allocator().init(info)
        self._groups[target].manage(result)
        return result

    def end(self, tensor: Tensor) -> None:
        """A value whose last reader is configured."""
        self._sizes.append(tensor.info().total_size())
        tensor.allocator().allocate()

    def within(self, target: Target) -> MemoryManagerOnDemand:
        """Where functions of a target get their temporaries."""
        if target not in self._within:
            self._within[target] = MemoryManagerOnDemand(OffsetLifetimeManager(), PoolManager())
        return self._within[target]

    def finalize(self) -> None:
        """Allocate what all values and functions share."""
        for managers in (self._between, self._within):
            for target, manager in managers.items():
                manager.populate(CLBufferAllocator() if target is Target.CL else Allocator(), 1)

    def values_bytes(self) -> int:
        """What the values between functions would take side by side."""
        return sum(self._sizes)

    def shared_bytes(self) -> int:
        """What they take together."""
        return sum(manager.lifetime_manager().total_size() for manager in self._between.values())

    def temporary_bytes(self) -> int:
        """What functions take inside, shared by all."""
        return sum(manager.lifetime_manager().total_size() for manager in self._within.values())

    def __enter__(self) -> GraphMemory:
        for group in self._groups.values():
            self._held.enter_context(group)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
