"""Tiles of convolutions on blocks of four channels, for GPUs that read textures.

In: the extents of a convolution. Out: the tile that a build takes by itself, why another one cannot be, what it costs:
how many blocks of channels, rows and columns a work-item sums, how many work-items a group has along each. Invariant:
what a work-item sums divides the result. The cost counts vector multiply-adds and reads of textures, and weighs them by
what is beside the result and by registers. The schedule: schedules/texels.py; all choices: texel_points.py.
"""

from __future__ import annotations

import math

from armillary.backends.opencl.space import MOST_ITEMS, Tiling
from armillary.backends.opencl.tiles import Tile, divisors
from armillary.base.record import record
from armillary.target.texture import PIXEL

COLUMNS = 8  # of a work-item
REGISTERS = 18  # vectors of four that data and sums may take: six waves of 64 on Adreno's 730, by Mesa's compiler
DEPTHWISE_REGISTERS = 10  # of a depthwise convolution, which waits for memory: eight waves
USUAL_ITEMS, LEAST_ITEMS = 128, 32  # of a work-group
READ = 4.0  # of a texture, in multiply-adds of vectors
BUSY = 64 * 64  # work-items from which on such a GPU is busy


@record(slots=True)
class Blocks:
    """A convolution on blocks of four channels: images, blocks, rows and columns of the result; blocks that are summed
    (0: depthwise), taps, strides, dilation; whether there are several groups of whole blocks."""

    images: int
    result: tuple[int, int, int]
    summed: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    has_groups: bool = False

    @property
    def most_blocks(self) -> int:
        """Blocks of channels that one work-item can sum: those that read the same data."""
        return 4 if self.summed and not self.has_groups else 1

    def patch(self, own: tuple[int, int, int]) -> tuple[int, int]:
        """Rows and columns of the data that a row of taps of a work-item reads."""
        _, rows, columns = own
        across = (columns - 1) * self.strides[1] + (self.taps[1] - 1) * self.dilation[1] + 1
        return (rows - 1) * self.strides[0] + 1, across

    def vectors(self, own: tuple[int, int, int]) -> int:
        """Vectors of four that sums, data and weights of a work-item take."""
        return math.prod(own) + math.prod(self.patch(own)) + (4 if self.summed else 1)


def usual_tile(work: Blocks) -> Tile:
    """The tile that a build takes by itself."""
    limit = REGISTERS if work.summed else DEPTHWISE_REGISTERS
    wide = (n for n in divisors(work.result[2], COLUMNS) if n + work.patch((1, 1, n))[1] <= limit)
    columns = max(wide, default=1)
    left, counts = USUAL_ITEMS, []
    for size in (work.result[2] // columns, work.result[1], work.images * work.result[0]):
        counts.append(_items(size, min(left, 16)))
        left //= counts[-1]
    x, y, c = counts
    return Tile((c, y, x), (1, 1, columns), 1)


def _items(size: int, most: int) -> int:
    """Work-items along an axis: the most that leave few without work."""
    return min(range(1, min(size, most) + 1), key=lambda n: (-(-size // n) * n / size / min(n, 4) ** 0.5, -n))


def objection(work: Blocks, tile: Tile) -> str:
    """Why a tile cannot compute a convolution; "" where it can."""
    if any(extent % own for extent, own in zip(work.result, tile.sums, strict=True)):
        return f"what a work-item sums, {list(tile.sums)}, does not divide {list(work.result)} blocks, rows and columns"
    if tile.sums[0] > work.most_blocks:
        return f"a work-item sums {work.most_blocks} blocks of channels at most, not {tile.sums[0]}"
    return "" if tile.items <= MOST_ITEMS else f"a group of it has {tile.items} work-items, at most {MOST_ITEMS} are"


def cost(work: Blocks, tiling: Tiling) -> float:
    """Multiply-adds of vectors, of all work-items together."""
    tile = tiling.tile
    own = math.prod(tile.sums)
    lanes = PIXEL if work.summed else 1
    reads = math.prod(work.patch(tile.sums)) + work.taps[1] * lanes * tile.sums[0]
    steps = max(work.summed, 1) * work.taps[0]
    each = steps * (own * work.taps[1] * lanes + READ * reads) + own
    groups, items = 1, tile.items
    extents = (work.images * work.result[0], *work.result[1:])
    for extent, part, count in zip(extents, tile.sums, tile.threads, strict=True):
        groups *= -(-extent // part // count)
    limit = REGISTERS if work.summed else DEPTHWISE_REGISTERS
    crowded = max(1.0, work.vectors(tile.sums) / (limit + 4)) * math.sqrt(max(1.0, LEAST_ITEMS * 2 / items))
    return each * max(groups * items, BUSY) * crowded * (1.0001 if tiling.unroll else 1.0)
