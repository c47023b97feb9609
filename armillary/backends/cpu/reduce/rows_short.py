"""Softmax, log_softmax and nn.standardize over rows of a few elements: as many rows at a time as a vector has lanes.

In: a fused function whose anchor works on the last axis, no longer than `MAX_VECTORS` vectors. Out: a parallel loop
over blocks of rows. A block is transposed in registers (elements by rows), every stage is vectors of rows - no sum over
lanes, no vector that is part empty - and the result is turned back. Invariant: a block is a part of the last leading
axis; its end may lie inside a vector, and is then a narrower version of the body. Longer rows: rows.py.

500 rows of 7 take 24 cycles a row for log_softmax, 236 one by one; of 17 softmax 32 and 220; whole vectors stay rows.
"""

from __future__ import annotations

import math

from armillary import te
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import (
    MIN_PARALLEL,
    PACKED,
    keep_row_values,
    schedule_default,
    schedule_injective,
)
from armillary.backends.cpu.elementwise.register_transpose import transpose_tiles
from armillary.backends.cpu.loops import fuse_all, keeps_shape, static_extent
from armillary.backends.cpu.reduce.rows import computed, implement_rows
from armillary.backends.registry import Fused
from armillary.backends.workload import Workload
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model

MAX_VECTORS = 2  # of a row; from there on a row alone fills its vectors well enough


def _is_short(workload: Workload) -> str | None:
    (data,) = workload.types
    lanes = cpu_model(workload.target).lanes
    if not isinstance(data, TensorType) or str(data.dtype) != "float32" or data.ndim < 2:
        return "only rows of float32 are turned"
    axis = workload.attrs.axis
    (last, *others) = (axis,) if isinstance(axis, int) else axis
    *_, rows, length = data.static
    if others or last % data.ndim != data.ndim - 1:
        return "not the last axis alone"
    if not 1 < length <= MAX_VECTORS * lanes or (length > lanes and length % lanes == 0):
        return f"rows of {length} fill vectors of {lanes}"
    return None if 2 * rows >= lanes > 1 else f"{rows} rows in a run are fewer than half of {lanes} lanes"


def _transposed(op: Op, attrs: object, data: te.Tensor) -> te.Tensor:
    """The operator over a copy with the last two axes swapped, swapped back."""
    *leading, rows, length = te.static_shape(data)
    across = te.compute((*leading, length, rows), lambda *i: data(*i[:-2], i[-1], i[-2]), name="turned", tag=PACKED)
    result = computed(op, attrs, across, axis=len(leading))
    back: te.Tensor = te.compute(
        te.static_shape(data), lambda *i: result(*i[:-2], i[-1], i[-2]), name="rows", tag="injective"
    )
    return back


@implement_rows("short", _is_short, _transposed, priority=11)
def short_rows(schedule: te.Schedule, fused: Fused) -> None:
    """Every stage at the loop over blocks of rows."""
    output = fused.outputs[0]
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    lanes = lanes_of(cpu_model(fused.workload.target), output.dtype)
    retained = [t for t in keep_row_values(schedule, schedule_injective(schedule, fused)) if t.op is not output.op]
    stage = schedule[output]
    work = math.prod(static_extent(axis) for axis in stage.op.axis)
    outer = transpose_tiles(schedule, output, len(stage.op.axis) - 2, lanes, lanes)
    at = fuse_all(stage, outer)
    if work >= MIN_PARALLEL:
        stage.parallel(at)
    for tensor in reversed(retained):
        _by_rows(schedule, tensor, lanes)
        schedule[tensor].compute_at(stage, at)


def _by_rows(schedule: te.Schedule, tensor: te.Tensor, lanes: int) -> None:
    """The loops of one intermediate: its last axis is that of the rows."""
    stage = schedule[tensor]
    stage.set_scope("local")
    if tensor.op.tag == PACKED:
        transpose_tiles(schedule, tensor, len(stage.op.axis) - 2, lanes, lanes)
        return
    *others, rows = stage.op.axis
    stage.reorder(*others, *stage.op.reduce_axis, rows)
    for axis in (*others[-1:], *stage.op.reduce_axis):
        stage.unroll(axis)
    stage.vectorize(rows)
