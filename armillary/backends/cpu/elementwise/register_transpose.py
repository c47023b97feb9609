"""Transpositions by tiles in registers: read along one axis, written along another, both by vectors.

In: a map that is contiguous in memory along `position` where it reads and along the last axis where it writes. Out: its
loops over tiles; a tile is a local stage, written by columns and read by rows (codegen/llvm/register_transpose.py).
Invariant: a tile is one vector of the last axis times a stretch of the other; where the axes do not end with a tile,
the loops over tiles stay loops that loop-partition cuts. Users: the default schedule, rows_short.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.loops import static_extent
from armillary.tir.expr import IterVar


def transpose_tiles(schedule: te.Schedule, tensor: te.Tensor, position: int, length: int, lanes: int) -> list[IterVar]:
    """The loops around a row of tiles, from the outside; the loop over tiles across is the last if it has a tail."""
    local = schedule.cache_write(tensor, "local")
    stage = schedule[tensor]
    *rows, last = stage.op.axis
    is_even = static_extent(rows[position]) % length == 0
    columns, column = stage.split(rows.pop(position), factor=length)
    pieces, piece = stage.split(last, factor=min(lanes, static_extent(last)))
    rows.insert(position if is_even else len(rows), columns)
    stage.reorder(*rows, pieces, column, piece)
    stage.vectorize(piece)
    stage.unroll(column)
    transpose_at(schedule[local], stage, pieces, position)
    return rows


def transpose_at(tile: te.Stage, stage: te.Stage, at: te.IterVar, position: int = 1) -> None:
    """Compute a local stage at a loop of its reader: a vector of axis `position` for every element of the last one."""
    tile.compute_at(stage, at)
    *others, along = tile.op.axis
    across = others.pop(position)
    tile.reorder(*others, along, across)
    tile.unroll(along)
    tile.vectorize(across)
