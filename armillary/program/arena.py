"""Memory that values share which are never alive together: an arena of bytes, and images.

In: lifetimes (bytes, first and last step in which a buffer is alive, both inclusive). Out: an offset per buffer and the
arena's size. Invariant: two buffers alive in the same step never overlap; offsets are multiples of ALIGNMENT.
The algorithm is greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020):
the largest buffer first, each at the lowest offset where it fits among the placed ones that live at the same time.
Time grows with the pairs of buffers that live together; beyond _MOST_WORK pairs the rest is placed by size alone.
Images that share memory are equally wide, so that reading beside a row reads beside the image, which gives zeros; the
highest of them is what is allocated.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from armillary.base.record import record

ALIGNMENT = 64
_MOST_WORK = 20_000_000


@record(slots=True)
class Buffer:
    """A buffer of `nbytes` that is written in step `first` and last read in step `last`."""

    nbytes: int
    first: int
    last: int


@record(slots=True)
class Plan:
    """`offsets[i]` is where buffer i starts; `total` is the arena's size in bytes."""

    offsets: tuple[int, ...]
    total: int


def plan_memory(lifetimes: Sequence[Buffer]) -> Plan:
    """Assign an offset to every buffer."""
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i))
    offsets = [0] * len(lifetimes)
    placed = _Placed(max((life.last for life in lifetimes), default=0) + 1)
    total = work = 0
    for at, index in enumerate(order):
        life = lifetimes[index]
        size = _aligned(life.nbytes)
        neighbours = placed.beside(life)
        work += len(neighbours)
        start = _lowest_gap(neighbours, size)
        offsets[index] = start
        placed.add(start, start + size, life)
        total = max(total, start + size)
        if work > _MOST_WORK:
            rest = order[at + 1 :]
            return Plan(*_by_size(lifetimes, rest, offsets, total))
    return Plan(tuple(offsets), total)


class _Placed:
    """Buffers that have their place, found by the steps in which they are alive.

    A tree over the steps: a buffer is at the few nodes that make up its lifetime, and in the list of its first step.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._nodes: dict[int, list[tuple[int, int]]] = {}
        self._begun: dict[int, list[tuple[int, int]]] = {}

    def add(self, start: int, end: int, life: Buffer) -> None:
        """The buffer lies at [start, end)."""
        place = (start, end)
        self._begun.setdefault(life.first, []).append(place)
        low, high = life.first + self._steps, life.last + self._steps + 1
        while low < high:
            if low & 1:
                self._nodes.setdefault(low, []).append(place)
                low += 1
            if high & 1:
                high -= 1
                self._nodes.setdefault(high, []).append(place)
            low, high = low >> 1, high >> 1

    def beside(self, life: Buffer) -> list[tuple[int, int]]:
        """Places of the buffers that are alive at the same time, lowest first."""
        result: list[tuple[int, int]] = []
        node = life.first + self._steps
        while node:
            result += self._nodes.get(node, ())
            node >>= 1
        if life.last - life.first < len(self._begun):
            later = [self._begun[step] for step in range(life.first + 1, life.last + 1) if step in self._begun]
        else:
            later = [places for step, places in self._begun.items() if life.first < step <= life.last]
        for places in later:
            result += places
        result.sort()
        return result


def _lowest_gap(placed: Sequence[tuple[int, int]], size: int) -> int:
    position = 0
    for start, end in placed:
        if start - position >= size:
            return position
        position = max(position, end)
    return position


def _by_size(
    lifetimes: Sequence[Buffer], rest: Sequence[int], offsets: list[int], base: int
) -> tuple[tuple[int, ...], int]:
    """Places behind `base` for what is left of very many buffers: a place is used again by buffers of the same size."""
    free: dict[int, list[int]] = {}
    alive: list[tuple[int, int, int]] = []  # last step, size, offset
    for index in sorted(rest, key=lambda i: lifetimes[i].first):
        life, size = lifetimes[index], _aligned(lifetimes[index].nbytes)
        while alive and alive[0][0] < life.first:
            _, gone, offset = heapq.heappop(alive)
            free.setdefault(gone, []).append(offset)
        places = free.get(size)
        offsets[index] = places.pop() if places else base
        base += size if offsets[index] == base else 0
        heapq.heappush(alive, (life.last, size, offsets[index]))
    return tuple(offsets), base


def _aligned(nbytes: int) -> int:
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


@record(slots=True)
class Image:
    """An image that is written in step `first` and last read in step `last`."""

    width: int
    bits: int
    height: int
    first: int
    last: int


def share_images(images: Sequence[Image]) -> tuple[int, ...]:
    """For each image the first one in whose memory it lies: the one whose height is nearest, of those that are free."""
    owner = list(range(len(images)))
    ends: dict[int, int] = {}  # of a memory: the last step in which somebody uses it
    heights: dict[int, int] = {}
    for index in sorted(range(len(images)), key=lambda i: (images[i].first, i)):
        image = images[index]
        free = [
            o
            for o, end in ends.items()
            if end < image.first and (images[o].width, images[o].bits) == (image.width, image.bits)
        ]
        nearest = min(free, key=lambda o: (abs(heights[o] - image.height), o), default=index)
        owner[index] = nearest
        ends[nearest] = max(ends.get(nearest, 0), image.last)
        heights[nearest] = max(heights.get(nearest, 0), image.height)
    return tuple(owner)
