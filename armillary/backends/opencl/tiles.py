"""Tiles of sums of products on a GPU: which part of the result a work-group and a work-item compute.

In: extents of the result's channels, rows and columns, terms of the sum, bytes that a tile reads. Out: the `Tile` of
the least estimated cost. Invariant: tiles divide the result, so that all work-items of a group pass the same barriers;
what they share fits. The estimate counts, for each multiply-add, reads of shared memory and of global memory, and
weighs them by how many work-items there are to hide them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cache
from itertools import product

from armillary.base.record import record
from armillary.transform import register_config_option

GROUP = register_config_option("opencl.group", int, 64, "work-items of a group of a kernel that has no tiles")
FLOATS = ("float32", "float16")  # of what is computed by tiles
ITEMS = (64, 128, 192, 224, 256)  # upper bounds of work-items that are tried; at least a third of the least
MAX_SUMS = 64  # of a work-item
SHARED_BYTES = 12 * 1024
FULL = 132 * 256  # work-items from which on a large GPU is busy
MOST_OWN_ROWS, MOST_TAPS = 7, 25  # of a channel's sums by tiles
SHARED_READ, GLOBAL_READ, BARRIER = 3.0, 16.0, 24.0  # cost of a read, and of a step, in multiply-adds


@record(slots=True)
class Tile:
    """`threads` work-items along (channel, row, column), each with `sums` results; `step` channels at a time."""

    threads: tuple[int, int, int]
    sums: tuple[int, int, int]
    step: int

    @property
    def items(self) -> int:
        """Work-items of a group."""
        a, b, c = self.threads
        return a * b * c


@record(slots=True)
class Product:
    """A convolution: images, the result's channels, rows and columns, channels that are summed, taps, strides."""

    images: int
    result: tuple[int, int, int]
    channels: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)


@cache
def choose_tile(work: Product) -> Tile | None:
    """The tile of least cost; None where none divides the result well."""
    return next(iter(best_tiles(work, 1)), None)


@cache
def choose_depthwise_tile(work: Product) -> Tile | None:
    """Rows of results of a channel for each work-item, as many as leave a large GPU busy: what rows share is read once.

    None where that is one row, or plain loops do as well: groups of several channels, windows of one row or very large.
    On an H200 32 images of 144 channels take 42 us of 75, stored in half 38 of 75 (56x56, 3x3).
    """
    channels, rows, columns = work.result
    busy = work.images * channels * rows * columns // (2 * FULL)
    own = max((n for n in divisors(rows, MOST_OWN_ROWS) if n <= busy), default=1)
    if own == 1 or work.channels > 1 or work.taps[0] == 1 or work.taps[0] * work.taps[1] > MOST_TAPS:
        return None
    most = max(ITEMS)
    over_x = divisors(columns, 64)[-1]
    over_y = divisors(rows // own, most // over_x)[-1]
    over_c = divisors(channels, most // (over_x * over_y))[-1]
    is_enough = over_c * over_y * over_x >= min(ITEMS) // 2
    return Tile((over_c, over_y, over_x), (1, own, 1), 1) if is_enough else None


def best_tiles(work: Product, count: int) -> list[Tile]:
    """The tiles of least cost, the least first."""
    best = heapq.nsmallest(count, ((cost(work, tile), n, tile) for n, tile in enumerate(_tiles(work))))
    return [tile for _, _, tile in best]


def _tiles(work: Product) -> Iterator[Tile]:
    channels, rows, columns = work.result
    for in_x, in_y in product(divisors(columns, 8), divisors(rows, 8)):
        if in_x * in_y > 16:
            continue
        for over_x, over_y in product(divisors(columns // in_x, 128), divisors(rows // in_y, 32)):
            pixels = over_x * over_y
            if pixels > max(ITEMS):
                continue
            for over_f in divisors(channels, 64):
                if not min(ITEMS) // 3 <= pixels * over_f <= max(ITEMS):
                    continue
                for in_f in divisors(channels // over_f, 8):
                    if in_f * in_y * in_x <= MAX_SUMS:
                        yield from _with_steps(work, (over_f, over_y, over_x), (in_f, in_y, in_x))


def _with_steps(work: Product, threads: tuple[int, int, int], sums: tuple[int, int, int]) -> Iterator[Tile]:
    fitting = [s for s in divisors(work.channels, 32) if shared_bytes(work, Tile(threads, sums, s)) <= SHARED_BYTES]
    for step in fitting[-2:]:
        yield Tile(threads, sums, step)


def divisors(n: int, most: int) -> list[int]:
    """Divisors of n up to `most`."""
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def _sides(work: Product, tile: Tile) -> tuple[int, int]:
    """Elements of data and of weights that a group reads in one step."""
    (f, y, x), (tf, ty, tx) = tile.sums, tile.threads
    patch = x  # results of a work-item along a row lie apart: each has columns of its own
    for count, stride, taps, dilation in zip((y * ty, tx), work.strides, work.taps, work.dilation, strict=True):
        patch *= (count - 1) * stride + (taps - 1) * dilation + 1
    return patch * tile.step, f * tf * tile.step * work.taps[0] * work.taps[1]


def shared_bytes(work: Product, tile: Tile) -> int:
    """What a group keeps in shared memory."""
    return 4 * sum(_sides(work, tile))


def cost(work: Product, tile: Tile) -> float:
    """Estimated time in multiply-adds of one work-item, all of them together, of a device that is full."""
    f, y, x = tile.sums
    own = f * y * x
    data, weights = _sides(work, tile)
    taps = work.taps[0] * work.taps[1]
    macs = tile.step * taps * own  # of a work-item in one step
    shared = tile.step * taps * (f + y * x)
    loads = (data + weights) / tile.items
    a_step = macs + SHARED_READ * shared + GLOBAL_READ * loads + BARRIER
    channels, rows, columns = work.result
    total = work.images * channels * rows * columns / own  # work-items
    return a_step * (work.channels / tile.step) * max(total, FULL)
