"""Estimated cycles of depthwise convolutions: which register tile, and what it holds.

In: a `DepthwiseNest`, a `CpuModel`. Out: register tiles and their `Estimate`s. Invariant: a tile is `rows` columns of
an output line times `vectors` blocks of channels. Beside its sums it holds the columns of the data that further taps of
a line of the window will read - the sums slide along them, so that each is loaded once - and a weight of each block: a
full tile loads less than once for three products, and the FMA units are its limit. Or it holds the weights of the line
and no columns (`goes_by_column`).
Who asks: backends/cpu/conv2d/depthwise/schedule.py. Products with one number for all lanes: cost/model.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from armillary.backends.cpu.cost.model import START, STORE, VECTORS, Estimate, Tile, asked_tile
from armillary.target.cpu import CpuModel

MOVING = "reading and writing"
MOVING_SHARE = 1.5  # reading and writing are the bound from two thirds of the cycles of the tiles on
MOVING_COLUMNS = 8  # of a tile, where that is the bound
SLACK = 1.125  # chains of sums, in those that hide the latency: a few more are better
SHARE = 0.5  # of the cycles of loads, which shows beside the arithmetic
HELD_WEIGHTS = 7  # of a line of the window, that lie in registers beside the sums


@dataclass(frozen=True, slots=True)
class DepthwiseNest:
    """`lines` lines of `width` outputs, each for a block of `wide` registers; `chunks` blocks may share a tile.

    Of `kernel` taps a line and a column meet `met` on the data, the mean over the image; the rest is padding.
    """

    width: int
    lines: int
    chunks: int
    kernel: tuple[int, int]
    met: tuple[float, float]
    stride: int
    dilation: int
    wide: int = 1
    is_narrow: bool = False  # blocks fill at most half a vector
    moved: float = 0.0  # cycles to read the data and to write the results, which show in full
    max_rows: int = 1 << 30

    @property
    def held_columns(self) -> int:
        """Columns of the data that a column of outputs holds for later taps: one per phase of the stride met twice."""
        step = self.stride // math.gcd(self.stride, self.dilation)
        return min(step, max(0, self.kernel[1] - step))


def goes_by_column(nest: DepthwiseNest, cpu: CpuModel) -> bool:
    """Whether a tile takes all taps of a line for one column of results before the next, with the line's weights held.

    A data column serves neighbouring results at once, so a tile may have twice as many sums: two Arm units that wait
    for their last result need eight and more. With stride 1 there is room for that anyway.
    """
    waits = cpu.multiplies_lanes and cpu.fma_ports > 1
    return waits and nest.dilation == 1 < nest.stride < nest.kernel[1] <= HELD_WEIGHTS


def depthwise_tiles(nest: DepthwiseNest, cpu: CpuModel) -> list[Tile]:
    """The tiles whose sums, columns and weights fit the vector registers; at least 1 x 1."""
    result = []
    for vectors in (v for v in VECTORS if nest.chunks % v == 0):
        room = (cpu.vector_registers - 1) // (vectors * nest.wide) - 1  # one for each block's weight, one to load into
        most = min(nest.width, nest.max_rows, room // (1 + nest.held_columns))
        result += [Tile(rows, vectors) for rows in range(1, most + 1)]
    return result or [Tile(1, 1)]


@lru_cache(maxsize=4096)
def ranked_depthwise(nest: DepthwiseNest, cpu: CpuModel) -> tuple[tuple[Tile, Estimate], ...]:
    """Every tile, the cheapest first; of equal ones that of fewest vectors, that divides a line, with most columns."""
    estimates = [(tile, depthwise_estimate(nest, tile, cpu)) for tile in depthwise_tiles(nest, cpu)]
    ranked = sorted(estimates, key=lambda row: _rank(nest, *row))
    if ranked[0][1].bound == MOVING and not goes_by_column(nest, cpu):  # sorting is stable
        ranked.sort(key=lambda row: row[0].rows * row[0].vectors > MOVING_COLUMNS)
    return tuple(ranked)


def _rank(nest: DepthwiseNest, tile: Tile, estimate: Estimate) -> tuple[float, ...]:
    """What tiles are sorted by; cycles to a part in a million, as sums of the same terms differ in the last bit."""
    return float(f"{estimate.cycles:.6g}"), tile.vectors, nest.width % tile.rows > 0, -tile.rows


def choose_depthwise(nest: DepthwiseNest, cpu: CpuModel) -> Tile:
    """The tile with the least estimated cycles (or the one the pass context asks for, where it fits)."""
    return asked_tile(depthwise_tiles(nest, cpu)) or ranked_depthwise(nest, cpu)[0][0]


def depthwise_estimate(nest: DepthwiseNest, tile: Tile, cpu: CpuModel) -> Estimate:
    """Cycles of all lines with a tile, and the bound; the last tile of a line may be narrower."""
    full, rest = divmod(nest.width, tile.rows)
    body, bound = _tile(nest, tile.rows, tile.vectors, cpu)
    line = full * body + (_tile(nest, rest, tile.vectors, cpu)[0] if rest else 0.0)
    cycles = nest.lines / tile.vectors * line
    if MOVING_SHARE * nest.moved > cycles:
        bound = MOVING
    return Estimate(f"tile {tile}", cycles + nest.moved, bound)


def _tile(nest: DepthwiseNest, rows: int, vectors: int, cpu: CpuModel) -> tuple[float, str]:
    """Cycles of a tile of `rows` columns, and its bound."""
    registers = vectors * nest.wide
    ports, loads_per_cycle = cpu.fma_ports, cpu.loads_per_cycle
    if nest.is_narrow and cpu.vector_bits == 512:  # half vectors: two ports where one does whole ones, and full loads
        ports, loads_per_cycle = max(2, ports), cpu.memory.load_ports
    taps = nest.kernel[1]
    columns = min(rows * taps, (rows - 1) * nest.stride + (taps - 1) * nest.dilation + 1)
    busy = nest.met[1] * rows * registers / ports
    latency = nest.met[1] * SLACK * cpu.fma_latency
    loads = registers * (columns + taps) / loads_per_cycle
    line = max(busy, latency, loads) + SHARE * min(loads, max(busy, latency))
    bound = "load ports" if loads > max(busy, latency) else "FMA units" if busy >= latency else "FMA latency"
    return nest.met[0] * line + START * vectors + STORE * rows * registers, bound
