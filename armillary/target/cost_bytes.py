"""Estimated cycles of convolutions of bytes by matrix tiles (AMX): which block of tiles, and whether they pay.

In: sizes of a layer and a `CpuModel` with tiles. Out: blocks, the best first; whether tiles beat dot products by
vectors. Invariant: arithmetic on facts of the target, no operator in sight. The kernel: schedules/cpu/conv2d_tiles.py.
By vectors, the tile of cost.py applies: a step of the sum is one dot product instead of one multiplication.
"""

from __future__ import annotations

from functools import lru_cache

from armillary.record import record
from armillary.target.cpu import CpuModel

SIDE, DEPTH = 16, 64  # of a matrix tile: rows, and words in one; bytes in one
LOAD_CYCLES, START_CYCLES = 8.0, 30.0  # a tile from L1; each tile's scratch, there and back
COPY_CYCLES = 1.3  # sixteen channels of a pixel, put beside the others
BLOCKS = ((2, 2), (3, 1), (1, 3), (2, 1), (1, 2), (1, 1))  # tiles of pixels and of outputs; with operands at most eight


@record(slots=True)
class Shape:
    """What a choice depends on: lines and columns of the result, sixteens of outputs, products of a tile in a sum."""

    height: int
    width: int
    chunks: int
    steps: int


@record(slots=True)
class Block:
    """Tiles of `pixels` neighbouring pixels: `tall` lines times `beside` in a line times `columns` of outputs."""

    tall: int
    beside: int
    columns: int
    pixels: int

    def __str__(self) -> str:
        return f"{self.tall * self.beside}x{self.columns} of {self.pixels} pixels"

    @property
    def along(self) -> int:
        """Pixels of a line."""
        return self.beside * self.pixels


@lru_cache(maxsize=512)
def ranked_blocks(shape: Shape, cpu: CpuModel) -> tuple[tuple[Block, float], ...]:
    """Blocks with their cycles, the best first."""
    found = []
    for rows, columns in BLOCKS:
        if shape.chunks % columns:
            continue
        if shape.width > SIDE:
            count = -(-shape.width // (SIDE * rows)) * rows
            block = Block(1, rows, columns, -(-shape.width // count))
        else:
            block = Block(min(rows, shape.height), 1, columns, shape.width)
        if block.along > shape.width:
            continue
        tiles = block.tall * block.beside
        weights = columns * SIDE * DEPTH * shape.steps
        near = LOAD_CYCLES if weights <= cpu.l1 // 2 else SIDE * DEPTH / cpu.memory.l2
        loads = tiles * max(1.0, LOAD_CYCLES * block.pixels / SIDE) + columns * near
        step = max(float(tiles * columns * block.pixels), loads)
        blocks = -(-shape.height // block.tall) * -(-shape.width // block.along) * (shape.chunks // columns)
        found.append((block, blocks * (shape.steps * step + START_CYCLES * tiles * columns)))
    return tuple(sorted(found, key=lambda row: row[1]))


def tiled_channels(channels: int, outputs: int, taps: int, stride: int, cpu: CpuModel) -> int:
    """How many channels matrix tiles take together where they pay; 0 where vectors are as fast, or there are no tiles.

    In cycles for each vector of outputs.
    """
    if not cpu.has_tiles:
        return 0
    by_vectors = SIDE * channels * taps / cpu.dots_per_cycle
    copied = COPY_CYCLES * channels / outputs * stride
    by_tiles = -(-channels // DEPTH) * taps + START_CYCLES / SIDE + copied
    return DEPTH if by_tiles < by_vectors else 0
