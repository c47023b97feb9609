"""Operators that walk each row of memory several times: softmax, log_softmax, nn.standardize (layer and RMS norm).

In: a fused function whose anchor reduces the last axes and reads them again. Out: one parallel loop over rows; inside
it every stage of the row, vectorised, while the row is in the first-level cache; reductions in lanes (reduce.py).
Several reduced axes are seen as one, so that a row of images ends in one vector that is not full, not in one a line.
Invariant: works for any number of leading axes; where the reduced axes are not the last ones, the default schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary import te
from armillary.backends.candidate import Candidate, Sizes
from armillary.backends.cpu.access import contiguous_axis
from armillary.backends.cpu.contiguous import axes_of_run
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import (
    MIN_PARALLEL,
    keep_row_values,
    schedule_default,
    schedule_injective,
)
from armillary.backends.cpu.loops import fuse_all, is_power_of_two, static_extent
from armillary.backends.cpu.reduce.reduce import reduce_in_lanes
from armillary.backends.registry import Fused, ScheduleRule, implement
from armillary.backends.workload import Reason, Workload
from armillary.ops._types import unravelled
from armillary.ops.nn.softmax import log_softmax, softmax
from armillary.ops.nn.standardize import standardize
from armillary.relay.op import Op
from armillary.target.cpu import CpuModel, cpu_model

if TYPE_CHECKING:
    from armillary.ops.nn.softmax import SoftmaxAttrs
    from armillary.ops.nn.standardize import StandardizeAttrs

IN_REGISTERS = 64  # elements of an intermediate that need no memory


OPERATORS = (softmax, log_softmax, standardize)
Compute = Callable[[Op, Any, te.Tensor], te.Tensor]  # of an operator, its attributes and its data


def implement_rows(
    kind: str, when: Callable[[Workload], Reason], compute: Compute, priority: int = 10, sizes: Sizes = "fixed"
) -> Callable[[ScheduleRule], ScheduleRule]:
    """Decorator: register a schedule, and a way to compute, for every operator that walks rows."""

    def register(rule: ScheduleRule) -> ScheduleRule:
        for op in OPERATORS:
            name = f"{op.name.removeprefix('nn.')}_{kind}"
            candidate = Candidate(op.name, name, when, sizes=sizes, priority=priority)
            implement(candidate, family="cpu", compute=partial(compute, op))(rule)
        return rule

    return register


def computed(op: Op, attrs: Any, data: te.Tensor, **changes: object) -> te.Tensor:  # Any: attributes differ
    """The operator's own compute, with some attributes changed."""
    assert op.compute_rule is not None, f"{op.name} is computed by te"
    result: te.Tensor = op.compute_rule(replace(attrs, **changes), data)
    return result


def raveled(indices: Sequence[te.Expr], sizes: Sequence[int]) -> te.Expr:
    """The index over all axes of these sizes."""
    total: Any = 0  # Any: operators take it for an expression once there is one
    for index, size in zip(indices, sizes, strict=True):
        total = total * size + index
    result: te.Expr = total
    return result


def reduced_axes(workload: Workload) -> tuple[int, ...]:
    """The axes of the row, counted from 0."""
    axis, ndim = workload.attrs.axis, len(workload.types[0].shape)  # type: ignore[attr-defined]
    axes = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % ndim for a in axes))


def _is_last(workload: Workload) -> str | None:
    """The row is contiguous, and there is more than one."""
    axes, sizes = reduced_axes(workload), workload.types[0].static  # type: ignore[attr-defined]
    ndim = len(sizes)
    while ndim > 1 and sizes[ndim - 1] == 1 and ndim - 1 not in axes:
        ndim -= 1
    if axes != tuple(range(ndim - len(axes), ndim)):
        return f"axes {axes} of {ndim} are not the last"
    return None if len(axes) < ndim else "there is a single row"


def _as_one_axis(op: Op, attrs: SoftmaxAttrs | StandardizeAttrs, data: te.Tensor) -> te.Tensor:
    """The operator over the last axes seen as one, in the shape of the data; over open sizes as they are."""
    count = 1 if isinstance(attrs.axis, int) else len(attrs.axis)
    leading = len(data.shape) - count
    sizes_are_known = all(isinstance(size, int) for size in te.extents(data))
    if count == 1 or not sizes_are_known or (leading and te.extents(data)[-1] == 1):
        return computed(op, attrs, data)
    shape = te.static_shape(data)
    sizes = shape[leading:]
    flat = te.compute(
        (*shape[:leading], math.prod(sizes)),
        lambda *i: data(*i[:-1], *unravelled(i[-1], sizes)),
        name="flat",
        tag="injective",
    )
    result = computed(op, attrs, flat, axis=leading)
    joined: te.Tensor = te.compute(
        shape, lambda *i: result(*i[:leading], raveled(i[leading:], sizes)), name="rows", tag="injective"
    )
    return joined


@implement_rows("rows", _is_last, _as_one_axis, sizes="any")
def rows(schedule: te.Schedule, fused: Fused) -> None:
    """Every stage at the loop over rows."""
    output = fused.outputs[0]
    leading = reduced_axes(fused.workload)[0]
    if len(fused.outputs) > 1 or len(output.op.axis) != len(fused.anchor[0].op.axis):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    retained = [t for t in keep_row_values(schedule, schedule_injective(schedule, fused)) if t.op is not output.op]
    stage = schedule[output]
    axes = list(stage.op.axis)
    at = fuse_all(stage, axes[:leading])
    if math.prod(static_extent(axis) for axis in axes) >= MIN_PARALLEL:
        stage.parallel(at)
    run = min(len(axes) - leading, axes_of_run(schedule, output))
    _vectorize_last(stage, [fuse_all(stage, axes[-run:])], lanes_of(cpu, output.dtype))
    for tensor in reversed(retained):
        _schedule_stage(schedule, tensor, leading, cpu)
        schedule[tensor].compute_at(stage, at)


def _is_all(workload: Workload) -> str | None:
    """There is a single row, of several axes."""
    axes, ndim = reduced_axes(workload), len(workload.types[0].shape)  # type: ignore[attr-defined]
    return None if 1 < len(axes) == ndim else f"{len(axes)} of {ndim} axes"


@implement_rows("all", _is_all, _as_one_axis)
def all_axes(schedule: te.Schedule, fused: Fused) -> None:
    """Every stage on its own: sums over all axes seen as one go in lanes, not element by element."""
    schedule_default(schedule, fused)


def _schedule_stage(schedule: te.Schedule, tensor: te.Tensor, leading: int, cpu: CpuModel) -> None:
    """The loops of one intermediate, inside a row."""
    stage = schedule[tensor]
    if math.prod(static_extent(axis) for axis in stage.op.axis[leading:]) <= IN_REGISTERS:
        stage.set_scope("local")
    contiguous = contiguous_axis(schedule, stage.op)
    if contiguous is not None:
        reduce_in_lanes(schedule, tensor, contiguous, cpu)
    elif len(stage.op.axis) > leading and not stage.op.reduce_axis:
        _vectorize_last(stage, stage.op.axis[leading:], lanes_of(cpu, tensor.dtype))


def _vectorize_last(stage: te.Stage, axes: Sequence[te.IterVar], lanes: int) -> None:
    """The last axis of a row that is longer than 1, by vectors."""
    axis = next((axis for axis in reversed(axes) if static_extent(axis) > 1), axes[-1])
    extent = static_extent(axis)
    if extent > lanes:
        _, axis = stage.split(axis, factor=lanes)
    elif not is_power_of_two(extent):
        return
    stage.vectorize(axis)
