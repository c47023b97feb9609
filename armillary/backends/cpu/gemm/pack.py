"""Copies of operands in blocks of lanes, as register tiles read them: keys of attention, right-hand sides of products.

In: a stage with the axes (…, block, step of the sum, lane). Out: its loops, blocks inside, so that the last one, which
may not be full, is a loop of its own. Invariant: what lies the other way round is transposed in registers.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.access import STRETCHES, transposed_axis
from armillary.backends.cpu.elementwise.register_transpose import transpose_tiles
from armillary.backends.cpu.loops import CACHE_LINE, fuse_all, static_extent


def pack_blocks(
    schedule: te.Schedule, tensor: te.Tensor, lanes: int, at: tuple[te.Stage, te.IterVar] | None = None
) -> None:
    """Threads share the batch and short runs of steps; vectors are transposed in registers.

    `at` a loop of a reader: what that reads there, in the thread that does.
    """
    stage = schedule[tensor]
    *batch, block, step, lane = stage.op.axis
    if length := _transposed(schedule, tensor, lanes):
        transpose_tiles(schedule, tensor, len(batch) + 1, length, lanes)
        outer, *inside = (axis for axis in stage.leaf_iter_vars if axis not in (*batch, block))
    else:
        outer, *inside = stage.split(step, factor=CACHE_LINE)
        if static_extent(lane) > lanes:
            _, lane = stage.split(lane, factor=lanes)
        stage.vectorize(lane)
        inside = [axis for axis in stage.leaf_iter_vars if axis not in (*batch, block, outer)]
    stage.reorder(*batch, outer, block, *inside)
    if at is not None:
        stage.compute_at(*at)
    else:
        stage.parallel(fuse_all(stage, [*batch, outer]))


def _transposed(schedule: te.Schedule, tensor: te.Tensor, lanes: int) -> int:
    """How many steps a tile turns, 0 if steps do not lie side by side or no tile divides them."""
    axis = transposed_axis(schedule, tensor.op) if tensor.dtype.bits == 32 else None
    step = tensor.op.axis[-2]
    if axis is None or axis[0] is not step:
        return 0
    return next((n for n in STRETCHES if n <= min(axis[1], lanes) and static_extent(step) % n == 0), 0)
