"""Products with few columns, convolutions to few channels: whether lanes hold parts of the result or terms of the sum.

In: rows, columns and terms of a product, a CPU. Out: the tile of sums that a kernel keeps in registers, and which of
the two ways takes less time; the same of pixels, outputs, inputs and taps of a convolution. Invariant: figures of the
CPU model alone. Users: gemm/narrow.py and narrow_output/schedule.py, and the graph passes that pack weights in
blocks of columns or choose layouts, which must agree.

With 7 columns in lanes half a vector works and every product takes a load of one element.
With terms in lanes a tile of R x C sums takes R + C loads of whole vectors for R * C products; what it
costs is to add up the lanes of each sum at the end.
"""

from __future__ import annotations

import math
from functools import lru_cache

from armillary.backends.cpu.cost.model import bandwidth_of
from armillary.base.record import record
from armillary.target.cpu import CpuModel

MOST_COLUMNS = 15
LONG_SUM, FEW_COLUMNS = 1 << 16, 4  # terms that by columns would be added up one by one, and lose more digits so
MAX_ROWS = 8  # lines of the left side that a tile reads; more share sets of the first cache
LANES_CYCLES = 0.7  # for each halving of a vector of partial sums: a shuffle, on one port, beside an addition
STORE_CYCLES = 1.0  # of one sum
SLICE_CYCLES = 1.0  # for an element of a result that is cut out of whole vectors: 0.4 in the same kernel, 3 in another
MIN_TERMS = 2  # vectors of the sum
MIN_PIXELS = 64  # of a convolution
GAIN = 0.94  # of the time with columns in lanes, below which terms go there


@record(slots=True)
class NarrowTile:
    """`rows` x `columns` sums, a vector of terms each."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def has_terms_in_lanes(rows: int, columns: int, terms: int, cpu: CpuModel) -> bool:
    """Whether a product of float32 takes less time with the terms of its sums in lanes than with columns there."""
    if not 0 < columns <= MOST_COLUMNS or rows < 1 or terms < MIN_TERMS * cpu.lanes or cpu.lanes < 4:
        return False
    if terms >= LONG_SUM and columns <= FEW_COLUMNS:
        return True
    return _by_terms(rows, columns, terms, cpu)[1] < GAIN * _by_columns(rows, columns, terms, cpu)


def narrow_tile(rows: int, columns: int, terms: int, cpu: CpuModel) -> NarrowTile:
    """The tile of sums with the least cycles."""
    return _by_terms(rows, columns, terms, cpu)[0]


def narrow_cycles(rows: int, columns: int, terms: int, cpu: CpuModel) -> float:
    """What the product takes with that tile."""
    return _by_terms(rows, columns, terms, cpu)[1]


@lru_cache(maxsize=256)
def _by_terms(rows: int, columns: int, terms: int, cpu: CpuModel) -> tuple[NarrowTile, float]:
    """A step loads a vector of each row, and one of each column in turn, beside the sums."""
    registers = cpu.vector_registers - 1
    tiles = [
        NarrowTile(r, c)
        for c in range(1, columns + 1)
        for r in range(1, min(rows, MAX_ROWS) + 1)
        if r * c + r + 1 <= registers or r == c == 1
    ]
    vectors = -(-terms // cpu.lanes)
    ends = rows * columns * (LANES_CYCLES * math.log2(cpu.lanes) + STORE_CYCLES)
    data = 4.0 * rows * terms
    shown = data / bandwidth_of(data, cpu) if data > cpu.l1 else 0.0  # nothing is computed long enough to hide it

    def cycles(tile: NarrowTile) -> float:
        (high, low), (wide, narrow) = divmod(rows, tile.rows), divmod(columns, tile.columns)
        parts = (high * wide, tile.rows, tile.columns), (high, tile.rows, narrow), (wide, low, tile.columns)
        return vectors * sum(n * _step(r, c, cpu) for n, r, c in (*parts, (1, low, narrow)) if r and c) + ends + shown

    best = min(tiles, key=lambda t: (cycles(t), -t.columns, -t.rows))
    return best, cycles(best)


def _step(rows: int, columns: int, cpu: CpuModel) -> float:
    """Cycles of a vector of terms in a tile of sums."""
    return max(rows * columns / cpu.fma_ports, (rows + columns) / cpu.loads_per_cycle, float(cpu.fma_latency))


def has_inputs_in_lanes(pixels: int, outputs: int, inputs: int, taps: int, cpu: CpuModel) -> bool:
    """Whether a convolution to few channels takes less time with its inputs in lanes than with its outputs there.

    Gates of one pixel follow and precede layers of whole blocks, and are left to these.
    """
    lanes, few = cpu.lanes, 0 < 2 * outputs <= cpu.lanes
    if lanes < 4 or inputs % lanes or not few or inputs // lanes * taps < MIN_TERMS or pixels < MIN_PIXELS:
        return False
    return pixel_cycles(outputs, inputs, taps, cpu) < GAIN * inputs * taps / min(cpu.fma_ports, cpu.memory.load_ports)


def pixel_cycles(outputs: int, inputs: int, taps: int, cpu: CpuModel) -> float:
    """Cycles of a pixel: its products, a vector of inputs each, and the sums of lanes; 20 to 50 % too few."""
    ends = outputs * (LANES_CYCLES * math.log2(cpu.lanes) + STORE_CYCLES)
    return inputs // cpu.lanes * taps * outputs / cpu.fma_ports + ends


def pixel_tile(width: int, outputs: int, cpu: CpuModel) -> int:
    """Columns of a tile: as many sums as registers hold, beside a vector of data and the weights of each output."""
    most = max(1, (cpu.vector_registers - outputs - 1) // outputs)
    tiles = -(-width // most)
    return -(-width // tiles)


def _by_columns(rows: int, columns: int, terms: int, cpu: CpuModel) -> float:
    """The same with columns in lanes: half a vector, if that is enough, and a load of one element for each product."""
    block = cpu.lanes // 2 if 2 * columns <= cpu.lanes else cpu.lanes
    vectors = -(-columns // block)
    halves = cpu.vector_bits == 512 and block < cpu.lanes
    ports = max(2, cpu.fma_ports) if halves else cpu.fma_ports
    full, rest = divmod(rows, MAX_ROWS)

    def tile(height: int) -> float:
        loads = height / cpu.memory.load_ports + vectors / cpu.loads_per_cycle
        busy = max(height * vectors / ports, float(cpu.fma_latency))
        return max(busy, loads) + cpu.memory.beside * min(busy, loads) if height else 0.0

    cut = SLICE_CYCLES * rows * columns if columns % block else 0.0
    return terms * (full * tile(MAX_ROWS) + tile(rest)) + cut
