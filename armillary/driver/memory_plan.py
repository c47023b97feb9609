"""Plan one arena for all intermediate tensors of a graph.

In: lifetimes (bytes, first and last step in which a buffer is alive, both inclusive). Out: an offset per buffer and the
arena's size. Invariant: two buffers alive in the same step never overlap; offsets are multiples of ALIGNMENT.
The algorithm is greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020):
the largest buffer first, each at the lowest offset where it fits among the placed ones that live at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.record import record

ALIGNMENT = 64


@record(slots=True)
class Lifetime:
    """A buffer of `nbytes` that is written in step `first` and last read in step `last`."""

    nbytes: int
    first: int
    last: int


@record(slots=True)
class Plan:
    """`offsets[i]` is where buffer i starts; `total` is the arena's size in bytes."""

    offsets: tuple[int, ...]
    total: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> Plan:
    """Assign an offset to every buffer."""
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i))
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # start, end, first, last; sorted by start
    total = 0
    for index in order:
        life = lifetimes[index]
        size = _aligned(life.nbytes)
        start = _lowest_gap(placed, life, size)
        offsets[index] = start
        placed.append((start, start + size, life.first, life.last))
        placed.sort()
        total = max(total, start + size)
    return Plan(tuple(offsets), total)


def _lowest_gap(placed: Sequence[tuple[int, int, int, int]], life: Lifetime, size: int) -> int:
    position = 0
    for start, end, first, last in placed:
        if last < life.first or first > life.last:
            continue
        if start - position >= size:
            return position
        position = max(position, end)
    return position


def _aligned(nbytes: int) -> int:
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
