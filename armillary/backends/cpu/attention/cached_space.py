"""Blocks and tiles of attention over caches for many rows: what cached.py computes with, and for whom it does.

In: shapes of query, keys and values, a `CpuModel`; or a workload. Out: a `BlockPlan`; None, or why blocks do not
compute a workload. Invariant: no tensor expression is imported. There is nothing to tune: sums of a tile fill the
registers, and enough rows share a block of keys that transposing it takes a twentieth of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model

MIN_LINES = 16  # heads of rows from which on transposing the keys pays
MOST_LINES = 256  # that share a block of keys: their query and result are 128 KB, in the second cache
MIN_TASKS = 16  # below which blocks have fewer rows, for threads
KEYS = 128  # of a block: with their values 64 KB
HEIGHT = 8  # lines of a tile
_SPARE = 4  # registers that are no sums


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Sizes, `rows` of a block, `lines` of it (a head of a row each) in `tiles` of `height` by `width` vectors."""

    batch: int
    count: int
    groups: int
    shared: int
    features: int
    values: int
    capacity: int
    lanes: int
    rows: int
    height: int
    width: int
    keys: int = KEYS

    @property
    def blocks(self) -> int:
        """Of rows."""
        return -(-self.count // self.rows)

    @property
    def lines(self) -> int:
        """Of a block."""
        return self.rows * self.shared

    @property
    def tiles(self) -> int:
        """Of a block, the last one filled up."""
        return -(-self.lines // self.height)


def block_plan(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], cpu: CpuModel) -> BlockPlan:
    """As many rows to a block as share keys well and leave work for threads; two vectors a tile, where they fit."""
    (batch, count, heads, features), (_, groups, capacity, _), values = query, key, value[3]
    shared, lanes = heads // groups, _lanes(values, cpu)
    rows = max(1, min(count, MOST_LINES // shared))
    while rows > 1 and batch * groups * -(-count // rows) < MIN_TASKS and rows * shared > MOST_LINES // 4:
        rows = -(-rows // 2)
    width = 2 if values // lanes > 1 else 1
    height = min(HEIGHT, max(1, (cpu.vector_registers - _SPARE) // width))
    return BlockPlan(batch, count, groups, shared, features, values, capacity, lanes, rows, height, width)


def _lanes(values: int, cpu: CpuModel) -> int:
    return math.gcd(cpu.lanes, values)


def refuses(workload: Workload) -> str | None:
    """None, or why blocks of keys do not compute it."""
    query, key, value = (workload.tensor(n) for n in range(3))
    if query.dtype.bits > 32:
        return "only float32 and narrower is computed by blocks"
    if not all(x.size for x in (query, key, value)):
        return "there is nothing to read"
    lines = query.static[1] * query.static[2] // key.static[1]
    if lines < MIN_LINES:
        return f"{lines} heads of rows do not pay for transposing the keys"
    lanes = _lanes(value.static[3], cpu_model(workload.target))
    return None if lanes >= 4 else "too few features"
