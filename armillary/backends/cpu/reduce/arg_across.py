"""Positions of extremes along axes that are not the last: the class of each pixel.

In: a fused function anchored at argmax or argmin of float32 whose axes are a run with others behind it. Out: a parallel
loop over tiles of what lies behind, a few vectors wide and as long as the reduced axes: the extreme of each column, and
then where it stands, while the tile is in the first-level cache. Invariant: the operator's own compute on data seen as
(before, reduced, behind). The last axis: default.py.
"""

from __future__ import annotations

import math
from functools import partial

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import dividing, lanes_of
from armillary.backends.cpu.elementwise.default import MIN_PARALLEL, schedule_default, schedule_injective
from armillary.backends.cpu.loops import fuse_all, static_extent
from armillary.backends.cpu.reduce.rows import raveled
from armillary.backends.cpu.reduce.rows_across import by_vectors, seen_around
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops.reduce.arg import ArgReduceAttrs, argmax, argmin
from armillary.ops.reduce.reduce import reduced_axes, reduced_shape
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model

MOST_VECTORS = 4  # of a tile: its extremes and positions stay in registers
MOST_ROWS = 4  # tiles side by side, where a tile is a vector: an extreme waits for the one before


def _is_across(workload: Workload) -> str | None:
    (data,) = workload.types
    if not isinstance(data, TensorType) or str(data.dtype) != "float32":
        return "only columns of float32 are walked by tiles"
    axes = reduced_axes(workload.op.name, workload.attrs.plain, data.ndim)
    if not axes or axes != tuple(range(axes[0], axes[-1] + 1)):
        return f"axes {axes} are not one run"
    behind, lanes = math.prod(data.static[axes[-1] + 1 :]), cpu_model(workload.target).lanes
    if 0 in data.static or behind < max(4, lanes // 2):
        return f"{behind} columns are fewer than half a vector"
    return None


def _flattened(op: Op, attrs: ArgReduceAttrs, data: te.Tensor) -> te.Tensor:
    """The operator over (before, reduced, behind), in the shape of its result."""
    shape = te.static_shape(data)
    axes = reduced_axes(op.name, attrs.plain, len(shape))
    flat, groups = seen_around(data, axes)
    assert op.compute_rule is not None, f"{op.name} is computed by te"
    places = op.compute_rule(ArgReduceAttrs(1, select_last_index=attrs.select_last_index), flat)
    count = len(groups[2])

    def back(*i: te.Expr) -> te.Expr:
        result: te.Expr = places(raveled(i[: axes[0]], groups[0]), raveled(i[len(i) - count :], groups[2]))
        return result

    result: te.Tensor = te.compute(reduced_shape(shape, axes, attrs.keepdims), back, name="columns", tag="injective")
    return result


def positions_across(schedule: te.Schedule, fused: Fused) -> None:
    """The extremes and the positions at the loop over tiles."""
    output = fused.outputs[0]
    retained = [t for t in schedule_injective(schedule, fused) if t.op is not output.op]
    if len(fused.outputs) > 1 or any(not t.op.reduce_axis or len(t.op.axis) != 2 for t in retained):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    stage, lanes = schedule[output], lanes_of(cpu, output.dtype)
    behind = static_extent(retained[0].op.axis[1])
    own = list(stage.op.axis)
    first = next(n for n in range(len(own), -1, -1) if math.prod(map(static_extent, own[n:])) == behind)
    work = math.prod(map(static_extent, (*own, *retained[0].op.reduce_axis)))
    column, width = fuse_all(stage, own[first:]), _width(behind, lanes)
    tiles, inside = stage.split(column, factor=width)
    outer = [fuse_all(stage, own[:first])] if first else []
    rows: list[te.IterVar] = []
    if outer and width <= lanes:
        count = next(n for n in (MOST_ROWS, 2, 1) if static_extent(outer[0]) % n == 0)
        outer[0], row = stage.split(outer[0], factor=count)
        rows = [row]
    stage.reorder(*outer, tiles, *rows, inside)
    at = fuse_all(stage, [*outer, tiles])
    if work >= MIN_PARALLEL:
        stage.parallel(at)
    for row in rows:
        stage.unroll(row)
    by_vectors(stage, inside, lanes, width)
    for tensor in reversed(retained):
        _schedule_sums(schedule[tensor], lanes, width)
        schedule[tensor].compute_at(stage, at)


def _schedule_sums(stage: te.Stage, lanes: int, width: int) -> None:
    """One reduction of a tile: its columns side by side in registers."""
    stage.set_scope("local")
    row, column = stage.op.axis
    stage.reorder(*stage.op.reduce_axis, row, column)
    stage.unroll(row)
    by_vectors(stage, column, lanes, width)


def _width(behind: int, lanes: int) -> int:
    """Columns of a tile: whole vectors that leave no rest, if some do."""
    most = MOST_VECTORS * lanes
    return behind if behind <= most else lanes * dividing(MOST_VECTORS, -(-behind // lanes))


for _op in (argmax, argmin):
    _candidate = Candidate(_op.name, f"{_op.name}_across", _is_across)
    implement(_candidate, family="cpu", compute=partial(_flattened, _op))(positions_across)
