"""Reductions along the contiguous axis: partial results in the lanes of a vector, then a tree over the lanes.

In: a reduction stage (sum, max, min, any combiner of te) with an axis that walks contiguous memory (access.py). Out: it
with that axis split by the lanes of a vector and factored (`rfactor`): one vector accumulates, and halves of it are
combined until one value is left; everything stays in registers. Invariant: te reductions are commutative and
associative (te/reduction.py), so the order is free; a float sum rounds differently from a serial one, usually less.
Users: the default schedule and rows.py. Where the data axis is the contiguous one, lanes go there instead.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.access import MIN_EXTENT
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.loops import fuse_all, static_extent
from armillary.target.cpu import CpuModel
from armillary.tir.expr import IterVar

LONG = 32  # times as many elements as are summed side by side


def reduce_in_lanes(
    schedule: te.Schedule,
    tensor: te.Tensor,
    axis: IterVar,
    cpu: CpuModel,
    is_parallel: bool = False,
    is_alone: bool = True,
) -> None:
    """Factor `axis` of the stage into lanes, and the lanes into a tree; the parts are computed at its last data axis.

        t[i] = sum(x[i, k])   ->   p[i, l] = sum(x[i, 16 * k + l]);  q[i, l] = p[i, l] + p[i, l + 8];  …

    One that is not alone has others beside it, a short loop of them: the processor then waits for none of its sums.
    """
    stage = schedule[tensor]
    extent, vector = static_extent(axis), lanes_of(cpu, tensor.dtype)
    chains = _chains(extent, vector, cpu) if is_alone else 1
    lanes = min(vector * chains, 1 << (extent.bit_length() - 1))
    parts = [_part(schedule, tensor, axis, lanes)]
    while lanes > 2:
        lanes //= 2
        parts.append(_part(schedule, tensor, stage.op.reduce_axis[0], lanes))
    for rest in stage.op.reduce_axis:
        stage.unroll(rest)
    if not stage.op.axis:
        return
    at = fuse_all(stage, stage.op.axis) if is_parallel else stage.op.axis[-1]
    if is_parallel:
        stage.parallel(at)
    for part in parts:
        schedule[part].compute_at(stage, at)


def _chains(extent: int, lanes: int, cpu: CpuModel) -> int:
    """Vectors that accumulate side by side, so that a sum need not wait for the one before.

    As many as an addition takes cycles, if each has at least two to sum up and what is left over is no full vector, or
    is little beside all: a part of several vectors costs more than it saves.
    """
    fitting = (n for n in (8, 4, 2) if n <= cpu.fma_latency and 2 * n * lanes <= extent)
    return next((n for n in fitting if extent % (n * lanes) < lanes or extent >= LONG * n * lanes), 1)


def _part(schedule: te.Schedule, tensor: te.Tensor, axis: IterVar, lanes: int) -> te.Tensor:
    """One vector of partial results of the stage, `lanes` apart along `axis`."""
    _, inner = schedule[tensor].split(axis, factor=lanes)
    result: te.Tensor = schedule.rfactor(tensor, inner, factor_axis=-1)
    part = schedule[result]
    *data, lane = part.op.axis
    part.set_scope("local")
    part.reorder(*data, *part.op.reduce_axis, lane)
    part.vectorize(lane)
    for rest in part.op.reduce_axis:  # a loop that ends inside a vector must stay one, to be cut there
        if static_extent(rest) <= MIN_EXTENT and static_extent(axis) % lanes == 0:
            part.unroll(rest)
    return result
