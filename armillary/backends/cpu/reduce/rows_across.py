"""Softmax, log_softmax and nn.standardize along axes that are not the last: channels of an image, keys before heads.

In: a fused function whose anchor reduces a run of axes with others behind it. Out: a parallel loop over tiles of what
lies behind; a tile is a few vectors wide and as long as the reduced axes, and every stage of it runs while it is in the
first-level cache, with the reductions in registers. The reduced axes are seen as one, and so are those behind them.
Invariant: no vector holds two elements of one sum, so that nothing is added across lanes. The last axis: rows.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from armillary import te
from armillary.backends.cpu.cost.vectors import dividing, lanes_of
from armillary.backends.cpu.elementwise.default import (
    MIN_PARALLEL,
    keep_row_values,
    schedule_default,
    schedule_injective,
)
from armillary.backends.cpu.loops import fuse_all, keeps_shape, static_extent
from armillary.backends.cpu.reduce.rows import computed, implement_rows, raveled, reduced_axes
from armillary.backends.registry import Fused
from armillary.backends.workload import Workload
from armillary.ops._types import unravelled
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel, cpu_model

MOST_VECTORS = 8  # of a tile: its sums stay in registers
MOST_CHAINS = 4  # sums side by side that keep the adders busy
COPIES = 2  # of a tile that are in use at a time: what is read and what was made of it


def _is_across(workload: Workload) -> str | None:
    (data,) = workload.types
    if not isinstance(data, TensorType) or str(data.dtype) != "float32":
        return "only columns of float32 are walked by tiles"
    axes, sizes = reduced_axes(workload), data.static
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        return f"axes {axes} are not one run"
    return None if math.prod(sizes[axes[-1] + 1 :]) > 1 else f"nothing lies behind axes {axes}"


def seen_around(data: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, list[tuple[int, ...]]]:
    """Data as (before, axes, behind), for axes that are a run; and the sizes of each of the three."""
    shape = te.static_shape(data)
    groups = [tuple(shape[: axes[0]]), tuple(shape[axes[0] : axes[-1] + 1]), tuple(shape[axes[-1] + 1 :])]
    flat: te.Tensor = te.compute(
        tuple(map(math.prod, groups)),
        lambda *i: data(*(v for one, sizes in zip(i, groups, strict=True) for v in unravelled(one, sizes))),
        name="flat",
        tag="injective",
    )
    return flat, groups


def _flattened(op: Op, attrs: Any, data: te.Tensor) -> te.Tensor:
    """The operator over (before, reduced, behind), in the shape of the data."""
    shape, given = te.static_shape(data), (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    axes = sorted(a % len(shape) for a in given)
    flat, groups = seen_around(data, axes)
    result = computed(op, attrs, flat, axis=1)

    def back(*i: te.Expr) -> te.Expr:
        parts = (i[: axes[0]], i[axes[0] : axes[-1] + 1], i[axes[-1] + 1 :])
        return result(*(raveled(part, sizes) for part, sizes in zip(parts, groups, strict=True)))

    columns_of_rows: te.Tensor = te.compute(shape, back, name="columns", tag="injective")
    return columns_of_rows


@implement_rows("across", _is_across, _flattened, priority=9)
def columns(schedule: te.Schedule, fused: Fused) -> None:
    """Every stage at the loop over tiles."""
    output, axes = fused.outputs[0], reduced_axes(fused.workload)
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    lanes = lanes_of(cpu, output.dtype)
    retained = [t for t in keep_row_values(schedule, schedule_injective(schedule, fused)) if t.op is not output.op]
    stage = schedule[output]
    own = list(stage.op.axis)
    work = math.prod(map(static_extent, own))
    behind = fuse_all(stage, own[axes[-1] + 1 :])
    length = math.prod(static_extent(own[a]) for a in axes)
    width = _width(static_extent(behind), length, lanes, cpu)
    tiles, inside = stage.split(behind, factor=width)
    before: Sequence[te.IterVar] = ()
    if axes[0]:
        fused_rows = fuse_all(stage, own[: axes[0]])
        before = stage.split(fused_rows, factor=_rows(static_extent(fused_rows), -(-width // lanes)))
    stage.reorder(*before[:1], tiles, *(own[a] for a in axes), *before[1:], inside)
    at = fuse_all(stage, [*before[:1], tiles])
    if work >= MIN_PARALLEL:
        stage.parallel(at)
    for row in before[1:]:
        stage.unroll(row)
    by_vectors(stage, inside, lanes, width)
    for tensor in reversed(retained):
        _schedule_stage(schedule[tensor], lanes, width)
        schedule[tensor].compute_at(stage, at)


def _width(behind: int, length: int, lanes: int, cpu: CpuModel) -> int:
    """Elements a tile is wide: whole vectors that leave no rest, as many as the first-level cache holds."""
    room = cpu.l1 // 2 // (COPIES * length * 4 * lanes)
    most = lanes * max(1, min(MOST_VECTORS, room))
    if behind <= most:
        return behind
    return next((n for n in range(most, 0, -lanes) if behind % n == 0), most)


def _rows(before: int, vectors: int) -> int:
    """Tiles that are walked together, so that a sum of one need not wait for the one before."""
    return next((n for n in (4, 2) if n * vectors <= MOST_CHAINS and before % n == 0), 1)


def _schedule_stage(stage: te.Stage, lanes: int, width: int) -> None:
    """The loops of one intermediate: its last axis is the width of the tile."""
    *others, last = stage.op.axis
    if len(others) < 2:
        stage.set_scope("local")
    stage.reorder(*others[1:], *stage.op.reduce_axis, others[0], last)
    stage.unroll(others[0])
    by_vectors(stage, last, lanes, width)


def by_vectors(stage: te.Stage, axis: te.IterVar, lanes: int, width: int = 0) -> None:
    """An innermost loop as a few vectors side by side, that divide its `width` if they can.

    50 columns are five vectors of ten: behind three whole ones of sixteen the last one would be scalars.
    """
    size = dividing(lanes, width) if width > lanes else lanes
    if static_extent(axis) > size:
        chunk, axis = stage.split(axis, factor=size)
        stage.unroll(chunk)
    stage.vectorize(axis)
