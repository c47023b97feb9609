"""Estimated cycles of convolutions by matrix tiles (AMX), of bytes or bfloat16: which block of tiles, whether they pay.

In: sizes of a layer and a `CpuModel` with tiles. Out: blocks, the best first; whether tiles beat dot products by
vectors. Invariant: arithmetic on facts of the target, no operator in sight. The kernel: conv2d/amx/schedule.py.
By vectors, the tile of cost/model.py applies: a step of the sum is one dot product instead of one multiplication.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from armillary.base.record import record
from armillary.target.cpu import TILE_BYTES, CpuModel

SIDE, DEPTH = 16, TILE_BYTES  # of a matrix tile: rows, and bytes in one
TILE_DWORDS = DEPTH // 4  # in a row, of four bytes or two bfloat16
LOAD_CYCLES, START_CYCLES = 8.0, 30.0  # a tile from L1; each tile's scratch, there and back
COPY_CYCLES = 1.3  # sixteen channels of a pixel, put beside the others
MOST_ASKING = 8  # blocks of pixels that ask for weights
MORE = 2  # times as many tiles of a line, if they divide it
BLOCKS = ((2, 2), (3, 1), (1, 3), (2, 1), (1, 2), (1, 1))  # tiles of pixels or rows, and of outputs; with operands 8


@record(slots=True)
class Shape:
    """What a choice depends on: lines and columns of the result, sixteens of outputs, products of a tile in a sum.

    `side`: sixteens of outputs in a block of the result. `copy`: cycles to make the copy that tiles read, which they
    need if `is_padded`, or where a block reaches beyond the result.
    """

    height: int
    width: int
    chunks: int
    steps: int
    side: int = 1
    copy: float = 0.0
    is_padded: bool = True

    def fits(self, block: Block) -> bool:
        """Whether blocks cover the result without a rest."""
        return self.height % block.tall == 0 and self.width % block.along == 0


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
    blocks = [(block, _cycles(shape, block, cpu)) for block in _blocks(shape)]
    return tuple(sorted(blocks, key=lambda row: row[1]))


def _blocks(shape: Shape) -> Iterator[Block]:
    """Blocks whose operands and sums are eight tiles at most."""
    for rows, columns in BLOCKS:
        if shape.chunks % columns or columns % shape.side:
            continue
        if shape.width <= SIDE:
            yield Block(min(rows, shape.height), 1, columns, shape.width)
            continue
        least = -(-shape.width // (SIDE * rows)) * rows
        whole = next((n for n in range(least, MORE * least, rows) if shape.width % n == 0), least)
        for count in {least, whole}:
            block = Block(1, rows, columns, -(-shape.width // count))
            if block.along <= shape.width:
                yield block


def _cycles(shape: Shape, block: Block, cpu: CpuModel) -> float:
    tiles, columns = block.tall * block.beside, block.columns
    weights = columns * SIDE * DEPTH * shape.steps
    near = LOAD_CYCLES if weights <= cpu.l1 // 2 else SIDE * DEPTH / cpu.memory.l2
    loads = tiles * max(1.0, LOAD_CYCLES * block.pixels / SIDE) + columns * near
    step = max(float(tiles * columns * block.pixels), loads)
    blocks = -(-shape.height // block.tall) * -(-shape.width // block.along) * (shape.chunks // columns)
    copied = shape.copy if shape.is_padded or not shape.fits(block) else 0.0
    return copied + blocks * (shape.steps * step + START_CYCLES * tiles * columns)


def has_prefetch(shape: Shape, block: Block, cpu: CpuModel) -> bool:
    """Whether to ask for the weights of the next group of outputs while the pixels go through those of this one.

    Tiles wait for what comes from beyond L2. Every block of pixels asks, which pays where they are few.
    """
    weights = shape.chunks * SIDE * DEPTH * shape.steps
    blocks = -(-shape.height // block.tall) * -(-shape.width // block.along)
    return weights > cpu.l2 // 8 and blocks <= MOST_ASKING


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
