"""Pools: memory that one thread at a time uses for the tensors of one memory group.

In: an allocator and sizes. Out: for each tensor, the bytes at its place. Invariant: a pool is held by one acquirer;
`PoolManager` hands out free pools and lets others wait. Sizes and places come from `lifetime.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from armillary.base.aligned import aligned_empty
from armillary.base.boundary import bounded
from armillary.compute.core.tensor_info import READ_BEHIND
from armillary.errors import ExecutionError

Bytes = npt.NDArray[np.uint8]


class IAllocator(Protocol):
    """Who gives memory; users' own have the same methods."""

    def allocate(self, size: int, alignment: int) -> Bytes:
        """So many bytes."""

    def free(self, memory: Bytes) -> None:
        """Take memory back."""


class Allocator:
    """Memory of the host; a pool's blocks are `READ_BEHIND` bytes longer than its tensors need, whoever gives them."""

    def allocate(self, size: int, alignment: int = 64) -> Bytes:
        """So many bytes, at a multiple of up to 64."""
        if alignment > 64:
            raise ExecutionError(f"memory is aligned to 64 bytes, {alignment} were asked for")
        return aligned_empty((size,), np.dtype(np.uint8))

    def free(self, memory: Bytes) -> None:
        """Python takes it back when nobody uses it."""
        del memory


@bounded
class BlobMemoryPool:
    """One block for each blob; a place is a blob's index."""

    def __init__(self, allocator: IAllocator, sizes: Sequence[int]) -> None:
        self._allocator = allocator
        self._sizes = tuple(sizes)
        self._blocks = [allocator.allocate(size + READ_BEHIND, 64) for size in sizes]

    def size(self) -> int:
        """Bytes for tensors in all blocks."""
        return sum(self._sizes)

    def at(self, place: int, size: int) -> Bytes:
        """The bytes of a tensor."""
        return self._blocks[place][:size]

    def free(self) -> None:
        """Give all blocks back."""
        for block in self._blocks:
            self._allocator.free(block)
        self._blocks, self._sizes = [], ()


@bounded
class OffsetMemoryPool:
    """One block; a place is an offset."""

    def __init__(self, allocator: IAllocator, size: int) -> None:
        self._allocator, self._size = allocator, size
        self._block = allocator.allocate(size + READ_BEHIND, 64)

    def size(self) -> int:
        """Bytes of the block for tensors."""
        return self._size

    def at(self, place: int, size: int) -> Bytes:
        """The bytes of a tensor."""
        return self._block[place : place + size]

    def free(self) -> None:
        """Give the block back."""
        self._allocator.free(self._block)
        self._block, self._size = self._block[:0], 0


IMemoryPool = BlobMemoryPool | OffsetMemoryPool


class PoolManager:
    """Hands out pools, one for each acquirer."""

    def __init__(self) -> None:
        self._free: list[IMemoryPool] = []
        self._occupied: list[IMemoryPool] = []
        self._changed = threading.Condition()

    def num_pools(self) -> int:
        """How many pools there are."""
        return len(self._free) + len(self._occupied)

    def register_pool(self, pool: IMemoryPool) -> None:
        """Add a pool."""
        with self._changed:
            self._free.append(pool)
            self._changed.notify()

    def lock_pool(self) -> IMemoryPool:
        """A pool that nobody else has until it is unlocked; waits for one."""
        with self._changed:
            if not self.num_pools():
                raise ExecutionError("there is no memory pool", hint="finalize the memory manager before running")
            while not self._free:
                self._changed.wait()
            pool = self._free.pop()
            self._occupied.append(pool)
            return pool

    def unlock_pool(self, pool: IMemoryPool) -> None:
        """Give a pool back."""
        with self._changed:
            if pool not in self._occupied:
                raise ExecutionError("a memory pool is unlocked that is not locked")
            self._occupied.remove(pool)
            self._free.append(pool)
            self._changed.notify()

    def clear_pools(self) -> None:
        """Free all pools; refused while one is used."""
        with self._changed:
            if self._occupied:
                raise ExecutionError(f"{len(self._occupied)} memory pools are in use", hint="release the groups first")
            for pool in self._free:
                pool.free()
            self._free = []
