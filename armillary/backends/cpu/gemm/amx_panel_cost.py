"""Panels of rows that matrix tiles (AMX) compute for a group of columns: which there are, and their cycles.

In: sizes of a product, a `CpuModel` with tiles. Out: panels with their cycles, the best first. Invariant: a panel is
whole blocks of tiles, and nothing here makes loops: graph passes rank panels without them (amx_panels.py emits one).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from armillary.backends.cpu.conv2d.amx.cost import BLOCKS, DEPTH, LOAD_CYCLES, SIDE, TILE_DWORDS
from armillary.target.cpu import CpuModel

ROWS, COLUMNS = SIDE, TILE_DWORDS  # of a tile: rows, words in one
ROW_CYCLES = 1.0  # of a product
START_CYCLES, PART_CYCLES = 120.0, 80.0  # of 2 x 2 tiles: setup, scratch and what follows; sums to scratch and back
MOST_BLOCKS = 4  # of a panel: their sums, beside a part of the weights, stay near
PART_BYTES = 16 * 1024  # of the weights of a group that wait in the first cache


@dataclass(frozen=True, slots=True)
class Panel:
    """`blocks` blocks of `rows` x `columns` tiles of sums, each of `height` rows, one below another."""

    rows: int
    columns: int
    height: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} of {self.height} rows"

    @property
    def lines(self) -> int:
        """Rows of one block."""
        return self.rows * self.height

    @property
    def whole(self) -> int:
        """Rows of the panel."""
        return self.blocks * self.lines


def _panel(rows: int, columns: int, lines: int) -> Panel:
    """Panels of tiles as high as `lines` rows, divided evenly, need; two where one would be longer than that."""
    blocks = -(-lines // (ROWS * rows))
    panels = -(-blocks // MOST_BLOCKS)
    if panels == 1 and lines % (blocks * rows):
        panels = min(2, blocks)
    each = -(-blocks // panels)
    return Panel(rows, columns, -(-lines // (panels * each * rows)), each)


def part_of(panel: Panel, steps: int) -> int:
    """Steps of the sum that are computed for all rows of a panel before the next ones."""
    if panel.blocks == 1:
        return steps
    most = max(1, PART_BYTES // (panel.columns * ROWS * DEPTH))
    return -(-steps // -(-steps // most))


@lru_cache(maxsize=512)
def ranked(rows: int, chunks: int, steps: int, cpu: CpuModel) -> tuple[tuple[Panel, float], ...]:
    """Panels with the cycles of the product, the best first."""
    afar, costs = ROWS * DEPTH / cpu.memory.l2, []

    def load(count: int) -> float:
        """Cycles to load a tile of so many tiles of rows or columns, which are all read before it is again."""
        return LOAD_CYCLES if count * ROWS * steps * DEPTH <= cpu.l1 // 2 else afar

    panels = (_panel(*b, rows) for b in BLOCKS if chunks % b[1] == 0)
    for panel in (p for p in panels if p.whole <= rows):  # a loop that is shorter than a panel would cut it
        weight = LOAD_CYCLES if panel.blocks > 1 else load(panel.columns)
        loads = panel.rows * load(-(-rows // ROWS)) + panel.columns * weight
        step, share = max(panel.rows * panel.columns * panel.height * ROW_CYCLES, loads), panel.rows * panel.columns / 4
        parts = -(-steps // part_of(panel, steps))
        each = step * steps + (START_CYCLES + PART_CYCLES * (parts - 1)) * share
        costs.append((panel, -(-rows // panel.whole) * panel.blocks * (chunks // panel.columns) * each))
    return tuple(sorted(costs, key=lambda row: row[1]))
