"""Lifetimes of tensors, and where each lies in memory that they share.

In: `start_lifetime` and `end_lifetime` in the order in which a pipeline is configured. Out: for each group, the place
of each tensor, and for all groups together the sizes that a pool has. Invariant: two tensors of a group share memory
only if one's lifetime ended before the other's began. Places are chosen when all lifetimes of a group have ended, so
sizes are known: the largest tensors first (Pisarchyk and Lee, "Efficient memory management for deep neural net
inference", 2020). Pools: `pool.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from armillary.base.record import record
from armillary.compute.runtime.memory.pool import BlobMemoryPool, IAllocator, OffsetMemoryPool
from armillary.errors import ExecutionError

ALIGNMENT = 64


class Managed(Protocol):
    """A tensor as lifetime managers see it: an identity."""

    def describe(self) -> str:
        """The tensor in an error."""


class Group(Protocol):
    """Who gets the places of its tensors."""

    def set_places(self, places: dict[int, int]) -> None:
        """`id` of each tensor to its place in a pool."""


@record(slots=True)
class Lifetime:
    """A tensor's bytes, needed from event `start` to event `end`, both included."""

    key: int
    size: int
    start: int
    end: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed at once."""
        return self.start <= other.end and other.start <= self.end


class ILifetimeManager:
    """Collects the lifetimes of one group at a time; subclasses choose places and make pools."""

    def __init__(self) -> None:
        self._group: Group | None = None
        self._event = 0
        self._started: dict[int, tuple[Managed, int]] = {}
        self._ended: list[Lifetime] = []

    def register_group(self, group: Group) -> None:
        """Lifetimes that follow are this group's; those of another one must have ended."""
        if self._group is not None and self._group is not group:
            alive = ", ".join(tensor.describe() for tensor, _ in self._started.values())
            message = f"a memory group starts while another one has lifetimes that have not ended: {alive}"
            raise ExecutionError(message, hint="allocate the tensors of one group before another group manages some")
        self._group = group

    def start_lifetime(self, tensor: Managed) -> None:
        """A tensor is needed from here on."""
        if id(tensor) in self._started:
            raise ExecutionError(f"the lifetime of {tensor.describe()} has started already")
        self._event += 1
        self._started[id(tensor)] = (tensor, self._event)

    def end_lifetime(self, tensor: Managed, size: int) -> None:
        """A tensor of so many bytes is not needed any more; with the last one the group's places are chosen."""
        if id(tensor) not in self._started:
            raise ExecutionError(f"the lifetime of {tensor.describe()} ends before it has started")
        _, start = self._started.pop(id(tensor))
        self._event += 1
        self._ended.append(Lifetime(id(tensor), size, start, self._event))
        if not self._started and self._group is not None:
            self._group.set_places(self._place(tuple(self._ended)))
            self._group, self._ended = None, []

    def are_all_finalized(self) -> bool:
        """Whether every lifetime has ended."""
        return not self._started

    def unfinished(self) -> list[str]:
        """The tensors whose lifetimes have not ended."""
        return [tensor.describe() for tensor, _ in self._started.values()]

    def total_size(self) -> int:
        """Bytes of one pool."""
        raise ExecutionError(f"{type(self).__name__} has no pools")

    def create_pool(self, allocator: IAllocator) -> BlobMemoryPool | OffsetMemoryPool:
        """Allocate one pool."""
        raise ExecutionError(f"{type(self).__name__} has no pools")

    def _place(self, lifetimes: Sequence[Lifetime]) -> dict[int, int]:
        raise ExecutionError(f"{type(self).__name__} has no places")


class BlobLifetimeManager(ILifetimeManager):
    """Memory as several blobs; a tensor lies in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self._blobs: list[int] = []

    def blobs(self) -> tuple[int, ...]:
        """Bytes of each blob."""
        return tuple(self._blobs)

    def total_size(self) -> int:
        """Bytes of one pool."""
        return sum(self._blobs)

    def create_pool(self, allocator: IAllocator) -> BlobMemoryPool:
        """Allocate one pool."""
        return BlobMemoryPool(allocator, self._blobs)

    def _place(self, lifetimes: Sequence[Lifetime]) -> dict[int, int]:
        orders = (sorted(lifetimes, key=lambda one: -one.size), sorted(lifetimes, key=lambda one: one.start))
        blobs = min((_in_blobs(order) for order in orders), key=lambda made: sum(map(_largest, made)))
        sizes = [_aligned(_largest(blob)) for blob in blobs]
        common = max(len(sizes), len(self._blobs))
        old, new = (have + [0] * (common - len(have)) for have in (self._blobs, sizes))
        self._blobs = [max(a, b) for a, b in zip(old, new, strict=True)]
        return {life.key: index for index, blob in enumerate(blobs) for life in blob}


def _in_blobs(lifetimes: Sequence[Lifetime]) -> list[list[Lifetime]]:
    """Lifetimes by blob, the largest blob first: each in the smallest free one that holds it, else the largest free."""
    blobs: list[list[Lifetime]] = []
    for life in lifetimes:
        free = [blob for blob in blobs if not any(life.meets(other) for other in blob)]
        fitting = [blob for blob in free if _largest(blob) >= life.size]
        if not free:
            blobs.append([life])
        else:
            (min(fitting, key=_largest) if fitting else max(free, key=_largest)).append(life)
    return sorted(blobs, key=_largest, reverse=True)


def _largest(blob: Sequence[Lifetime]) -> int:
    return max(life.size for life in blob)


class OffsetLifetimeManager(ILifetimeManager):
    """Memory as one blob; a tensor lies at an offset."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def total_size(self) -> int:
        """Bytes of one pool."""
        return self._size

    def create_pool(self, allocator: IAllocator) -> OffsetMemoryPool:
        """Allocate one pool."""
        return OffsetMemoryPool(allocator, self._size)

    def _place(self, lifetimes: Sequence[Lifetime]) -> dict[int, int]:
        placed: list[tuple[int, Lifetime]] = []
        for life in sorted(lifetimes, key=lambda one: -one.size):
            offset = 0
            for at, other in sorted(placed, key=lambda one: one[0]):
                if life.meets(other):
                    if at - offset >= _aligned(life.size):
                        break
                    offset = max(offset, at + _aligned(other.size))
            placed.append((offset, life))
        self._size = max([self._size, *(at + _aligned(life.size) for at, life in placed)])
        return {life.key: at for at, life in placed}


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
