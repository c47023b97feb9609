"""The order in which a C++ library's `std::sort` puts equal values: what Arm's library sorts corners by.

In: values, greatest first. Out: their indices, equal ones as libstdc++'s introsort leaves them. Invariant: equal values
decide nothing else, so where all values differ the order is that of any sort. Algorithm: D. R. Musser, Introspective
Sorting and Selection Algorithms (1997); thresholds, pivots and the heap are those of libstdc++.
"""

from __future__ import annotations

import numpy as np

from armillary.compute.runtime.tensor import Array

_SHORT = 16  # parts that are not partitioned any more; a stable sort of all ends it


def descending_order(values: Array) -> list[int]:
    """Indices of values, the greatest first, equal ones as `std::sort` does with `>` on the values in this order."""
    if np.unique(values).size == values.size:
        stable: list[int] = np.argsort(-values, kind="stable").tolist()
        return stable
    keys = values.tolist()
    order = list(range(len(keys)))
    _partition(keys, order)
    return sorted(order, key=lambda n: -keys[n])


def _partition(keys: list[float], order: list[int]) -> None:
    """Parts of at most 16, each greater than those behind it."""
    parts = [(0, len(order), 2 * (len(order).bit_length() - 1))]
    while parts:
        first, last, depth = parts.pop()
        while last - first > _SHORT:
            if depth == 0:
                _heap_sort(keys, order, first, last)
                break
            depth -= 1
            cut = _cut(keys, order, first, last)
            parts.append((cut, last, depth))
            last = cut


def _cut(keys: list[float], order: list[int], first: int, last: int) -> int:
    """Put the median of three in front, and what is greater than it before the rest; returns where that begins."""
    a, b, c = first + 1, first + (last - first) // 2, last - 1
    ka, kb, kc = (keys[order[n]] for n in (a, b, c))
    if ka > kb:
        middle = b if kb > kc else c if ka > kc else a
    else:
        middle = a if ka > kc else c if kb > kc else b
    order[first], order[middle] = order[middle], order[first]
    pivot, low, high = keys[order[first]], first + 1, last
    while True:
        while keys[order[low]] > pivot:
            low += 1
        high -= 1
        while pivot > keys[order[high]]:
            high -= 1
        if low >= high:
            return low
        order[low], order[high] = order[high], order[low]
        low += 1


def _heap_sort(keys: list[float], order: list[int], first: int, last: int) -> None:
    """Sort a part that partitions do not make smaller fast enough."""
    part = order[first:last]
    for root in range((len(part) - 2) // 2, -1, -1):
        _sift(keys, part, root, len(part), part[root])
    for end in range(len(part) - 1, 0, -1):
        item, part[end] = part[end], part[0]
        _sift(keys, part, 0, end, item)
    order[first:last] = part


def _sift(keys: list[float], heap: list[int], hole: int, size: int, item: int) -> None:
    """Fill a hole from below to the end of the heap, then move an item up from there."""
    top, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * child + 2
        if keys[heap[child]] > keys[heap[child - 1]]:
            child -= 1
        heap[hole], hole = heap[child], child
    if size % 2 == 0 and child == (size - 2) // 2:
        child = 2 * child + 1
        heap[hole], hole = heap[child], child
    while hole > top and keys[heap[(hole - 1) // 2]] > keys[item]:
        heap[hole], hole = heap[(hole - 1) // 2], (hole - 1) // 2
    heap[hole] = item
