"""Memory managers and the groups that users hold.

In: `MemoryGroup.manage(tensor)`, then the tensor's `allocate`, in the order of the pipeline; `finalize` when all is
configured. Out: memory for the group's tensors between `acquire` and `release`. Invariant: each thread that acquires a
group has a pool of its own, and tensors of the group mean that pool's bytes there (and in the scheduler's threads
that work for it). Source: the architecture text, "MemoryManager". Lifetimes: `lifetime.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from armillary.compute.runtime.memory.lifetime import ILifetimeManager
from armillary.compute.runtime.memory.pool import Bytes, IAllocator, IMemoryPool, PoolManager
from armillary.errors import ConfigError, ExecutionError

_MOST_POOLS = 65_536
_HELD: ContextVar[Mapping[int, IMemoryPool]] = ContextVar("_HELD", default={})  # noqa: B039 - never written in place


class ManagedTensor(Protocol):
    """A tensor as a group sees it."""

    def describe(self) -> str:
        """The tensor in an error."""

    def join_group(self, group: MemoryGroup) -> None:
        """Take memory from a group from now on."""


class MemoryManagerOnDemand:
    """Joins a lifetime manager and a pool manager."""

    def __init__(self, lifetime_manager: ILifetimeManager, pool_manager: PoolManager) -> None:
        self._lifetimes, self._pools = lifetime_manager, pool_manager
        self._allocator: IAllocator | None = None
        self._num_pools, self._is_finalized = 1, False

    def lifetime_manager(self) -> ILifetimeManager:
        """Who knows when tensors are needed."""
        return self._lifetimes

    def pool_manager(self) -> PoolManager:
        """Who hands out pools."""
        return self._pools

    def set_allocator(self, allocator: IAllocator) -> None:
        """Where pools get their memory."""
        self._allocator = allocator

    def set_num_pools(self, num_pools: int) -> None:
        """How many runs can go on at once; 1 unless set."""
        if not 1 <= num_pools <= _MOST_POOLS:
            raise ConfigError(f"set_num_pools: {num_pools} pools, wanted 1 to {_MOST_POOLS}")
        self._num_pools = num_pools

    set_set_num_pools = set_num_pools  # as the architecture text spells it

    def is_finalized(self) -> bool:
        """Whether there are pools."""
        return self._is_finalized

    def finalize(self) -> None:
        """Check that all lifetimes have ended and allocate the pools."""
        if self._is_finalized:
            raise ExecutionError("the memory manager is finalized already", hint="clear() frees its pools")
        if self._allocator is None:
            raise ExecutionError("the memory manager has no allocator", hint="call set_allocator(Allocator()) first")
        if not self._lifetimes.are_all_finalized():
            alive = ", ".join(self._lifetimes.unfinished())
            hint = "call allocator().allocate() on each managed tensor once it is configured"
            raise ExecutionError(f"lifetimes have not ended: {alive}", hint=hint)
        for _ in range(self._num_pools):
            self._pools.register_pool(self._lifetimes.create_pool(self._allocator))
        self._is_finalized = True

    def populate(self, allocator: IAllocator, num_pools: int) -> None:
        """`set_allocator`, `set_num_pools` and `finalize` in one call."""
        self.set_allocator(allocator)
        self.set_num_pools(num_pools)
        self.finalize()

    def clear(self) -> None:
        """Free the pools; `finalize` makes new ones."""
        self._pools.clear_pools()
        self._is_finalized = False


IMemoryManager = MemoryManagerOnDemand


class MemoryGroup:
    """Tensors that get their memory together. Without a manager they allocate at once and the group does nothing."""

    def __init__(self, memory_manager: MemoryManagerOnDemand | None = None) -> None:
        self._manager = memory_manager
        self._places: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def manage(self, tensor: ManagedTensor) -> None:
        """Start a tensor's lifetime; its `allocate` ends it."""
        if self._manager is None:
            return
        if self._manager.is_finalized():
            message = f"{tensor.describe()} is managed after the memory manager was finalized"
            raise ExecutionError(message, hint="configure everything first, or clear() the manager")
        tensor.join_group(self)
        self._manager.lifetime_manager().register_group(self)
        self._manager.lifetime_manager().start_lifetime(tensor)

    def finalize_memory(self, tensor: ManagedTensor, size: int) -> None:
        """A tensor's lifetime has ended; its `allocate` says so."""
        if self._manager is not None:
            self._sizes[id(tensor)] = size
            self._manager.lifetime_manager().end_lifetime(tensor, size)

    def set_places(self, places: dict[int, int]) -> None:
        """The lifetime manager tells where tensors lie."""
        self._places |= places

    def acquire(self) -> None:
        """Get memory for the group's tensors, for this thread; waits for a pool."""
        if self._manager is None or not self._sizes:
            return
        if id(self) in _HELD.get():
            raise ExecutionError("the memory group is acquired already", hint="release() it first")
        if not self._manager.is_finalized():
            raise ExecutionError("the memory manager is not finalized", hint="call finalize() before running")
        _HELD.set({**_HELD.get(), id(self): self._manager.pool_manager().lock_pool()})

    def release(self) -> None:
        """Give the memory back; what the tensors held is lost."""
        if self._manager is None or not self._sizes:
            return
        pool = _HELD.get().get(id(self))
        if pool is None:
            raise ExecutionError("the memory group is not acquired", hint="call acquire() first, in the same thread")
        _HELD.set({key: held for key, held in _HELD.get().items() if key != id(self)})
        self._manager.pool_manager().unlock_pool(pool)

    def memory_of(self, tensor: ManagedTensor) -> Bytes:
        """The bytes of one of the group's tensors, in the pool that this thread has acquired."""
        pool = _HELD.get().get(id(self))
        if pool is None:
            message = f"{tensor.describe()} has memory only while its memory group is acquired"
            raise ExecutionError(message, hint="call memory_group.acquire() before running, in the same thread")
        return pool.at(self._places[id(tensor)], self._sizes[id(tensor)])

    def __enter__(self) -> MemoryGroup:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


CLMemoryGroup = MemoryGroup
