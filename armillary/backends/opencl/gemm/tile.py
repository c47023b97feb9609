"""Tiles of the product kernel, and which of them a product gets.

In: batches, rows, columns and terms. Out: a `Tile`, and its estimated cost. Its `threads` are (along rows, those that
share a sum, along columns), its `sums` (rows of a work-item, groups that share a sum, columns). Invariant: tiles need
not divide anything; what a group shares fits. A work-item sums rows in chunks of up to four and columns in chunks of
four, which lie apart, so that neighbours read neighbouring vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from armillary.backends.opencl.tiles import Tile
from armillary.base.record import record

LANES = 4  # of a vector
SHARED_BYTES = 32 * 1024  # of a group, on any device from OpenCL 1.1 on; targets may say more
MOST_ITEMS, MOST_SUMS = 256, 64  # work-items of a group, sums of each
SUMS_ADRENO = 32  # the same of Adreno GPUs: 64 spill
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)  # groups that share a sum, by way of memory
LEAST_TERMS = 128  # of each of them
# What follows is of an H200 (1.755 GHz), fitted to 460 measured kernels by least squares of relative errors: half of
# them are within 5 %, and what it picks takes 2 % longer than the best. Cycles, of a processor of 128 lanes.
PROCESSORS, LANES_OF_PROCESSOR = 132, 128
LAUNCH = 6260.0  # of a kernel, the first loads in it
FMA, TERM, LOAD = 0.608, 3.58, 19.4  # of a multiply-add, of a term's reads of shared memory, of a load
STEP, GROUP = 323.0, 257.0  # of a step that waits for its loads, of a group
ITEMS_OF_PROCESSOR, REGISTERS, SHARED_OF_PROCESSOR = 2048, 65536, 228 * 1024
FEW_REGISTERS, CROWDED, SHARED_SUMS = 1.15, 1.1, 1.1  # factors where many sums leave few registers, as below
NEXT_LAUNCH, BYTES_PER_CYCLE = 4850.0, 16000.0  # of a kernel behind another, and what memory moves


@record
class Size:
    """Of a product."""

    batches: int
    rows: int
    columns: int
    terms: int
    load: int = 1  # cost of loading a column's element, relative to one of four neighbours


@cache
def choose_tile(size: Size, shared: int = SHARED_BYTES, sums: int = MOST_SUMS) -> Tile:
    """The tile of least cost, of up to `sums` of a work-item."""
    return best_tiles(size, 1, shared, sums)[0]


def best_tiles(size: Size, most: int, shared: int = SHARED_BYTES, sums: int = MOST_SUMS) -> list[Tile]:
    """The tiles of least cost, the least first."""
    fitting = (tile for tile in tiles(size, shared) if tile.sums[0] * tile.sums[2] <= sums)
    ordered = sorted((cost(size, tile), n, tile) for n, tile in enumerate(fitting))
    return [tile for _, _, tile in ordered[:most]]


def tiles(size: Size, shared: int = SHARED_BYTES) -> Iterator[Tile]:
    """All that the kernel has for a product."""
    for (own_rows, own_columns), down, across, slices, step in product(
        ((8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (1, 4)), (4, 8, 16), (8, 16), (1, 2, 4, 8), (8, 16)
    ):
        plain = Tile((down, slices, across), (own_rows, 1, own_columns), step)
        if objection(plain, shared) or plain.items < 64:
            continue
        for parts in PARTS if groups_of(size, plain) < PROCESSORS * 2 else (1,):
            if parts == 1 or size.terms // parts >= LEAST_TERMS:
                yield Tile(plain.threads, (own_rows, parts, own_columns), step)


def groups_of(size: Size, tile: Tile) -> int:
    """Work-groups, those that share a sum counted once."""
    rows, columns = tile.threads[0] * tile.sums[0], tile.threads[2] * tile.sums[2]
    return size.batches * -(-size.rows // rows) * -(-size.columns // columns)


def objection(tile: Tile, shared: int = SHARED_BYTES) -> str:
    """Why the kernel has no such tile; "" where it has."""
    (down, slices, across), (own_rows, parts, own_columns) = tile.threads, tile.sums
    if parts not in PARTS:
        return f"{parts} groups share a sum of it: {', '.join(map(str, PARTS))} may"
    if own_rows not in (1, 2, 4, 8) or own_columns not in (4, 8):
        return f"a work-item of it sums {own_rows}x{own_columns} results: rows are 1, 2, 4 or 8, columns 4 or 8"
    if tile.step % LANES or slices & (slices - 1):
        return f"its step of {tile.step} terms is no multiple of {LANES}, or {slices} work-items share a sum"
    if tile.items > MOST_ITEMS:
        return f"a group of it has {tile.items} work-items, at most {MOST_ITEMS} are"
    if any(side * tile.step % (down * across) for side in (own_rows * down, own_columns * across)):
        return "the work-items of a group do not load equal parts of a step"
    used = shared_bytes(tile)
    return f"a group of it shares {used} bytes, at most {shared} are" if used > shared else ""


def line(side: int) -> int:
    """Places in shared memory for the terms of a step of one row after another: rows apart meet other banks."""
    return side + LANES


def shared_bytes(tile: Tile) -> int:
    """What a group keeps in shared memory: two stages of each side, then sums of the other slices."""
    (down, slices, across), (own_rows, _, own_columns) = tile.threads, tile.sums
    rows, columns = down * own_rows, across * own_columns
    stages = 2 * slices * tile.step * (line(rows) + line(columns))
    return 4 * (stages + slices // 2 * rows * columns)


def cost(size: Size, tile: Tile) -> float:
    """Estimated cycles of a large GPU."""
    (down, slices, across), (own_rows, parts, own_columns) = tile.threads, tile.sums
    own, staged = own_rows * own_columns, (down * own_rows + size.load * across * own_columns) * tile.step
    steps = -(-size.terms // (tile.step * slices * parts))
    turns = -(-groups_of(size, tile) * parts // PROCESSORS)
    registers = tile.items * (1.5 * own + 48)
    together = min(32, ITEMS_OF_PROCESSOR // tile.items, int(REGISTERS / registers))
    together = max(1, min(together, SHARED_OF_PROCESSOR // (shared_bytes(tile) + 1024)))
    weight = tile.items / LANES_OF_PROCESSOR
    a_step = weight * tile.step * (FMA * own + TERM) + LOAD * staged * slices / LANES_OF_PROCESSOR
    total = steps * (turns * a_step + -(-turns // together) * STEP) + turns * GROUP
    if own == MOST_SUMS and (tile.items > LANES_OF_PROCESSOR or tile.step > 8):
        total *= FEW_REGISTERS
    if own == MOST_SUMS // 2 and tile.items > LANES_OF_PROCESSOR:
        total *= CROWDED
    if own == MOST_SUMS and slices > 1:
        total *= SHARED_SUMS
    if parts > 1:
        moved = 4 * size.batches * size.rows * size.columns * (2 * parts + 1)
        total += NEXT_LAUNCH + moved / BYTES_PER_CYCLE
    return LAUNCH + total
