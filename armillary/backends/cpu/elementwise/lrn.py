"""nn.lrn over (outer, channels, inner): vectors along the inner axis, channels one after another.

In: a fused function anchored at nn.lrn with three axes (its decomposition makes them). Out: one parallel loop over
vectors of the inner axis; in it the channels, whose window of squares is found in the first-level cache. Invariant:
conditions on the window are likely, so that only the first and the last channels have them.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import MIN_PARALLEL, schedule_default, schedule_injective
from armillary.backends.cpu.loops import fuse_all, keeps_shape, static_extent
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.target.cpu import cpu_model

MAX_WINDOW = 16  # squares of a window that are written out


def _applies(workload: Workload) -> str | None:
    """(outer, channels, inner) with the window along the channels."""
    attrs, (data,) = workload.attrs, workload.types
    if len(data.shape) != 3 or attrs.axis % 3 != 1:  # type: ignore[attr-defined]
        return "not three axes with the channels in the middle"
    inner = data.static[-1]  # type: ignore[attr-defined]
    lanes = cpu_model(workload.target).lanes
    if inner < lanes:
        return f"{inner} elements side by side are fewer than a vector"
    return None if attrs.size <= MAX_WINDOW else f"a window of {attrs.size}"


@implement(Candidate("nn.lrn", "lrn_channels", _applies), family="cpu")
def lrn_channels(schedule: te.Schedule, fused: Fused) -> None:
    """A vector of positions at a time, through all channels."""
    output = fused.outputs[0]
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    lanes = lanes_of(cpu_model(fused.workload.target), output.dtype)
    sums = next(s.op.output(0) for s in schedule.stages if getattr(s.op, "tag", "") == "lrn_sum")
    for tensor in schedule_injective(schedule, fused):
        if tensor.op is not output.op and tensor.op is not sums.op:
            schedule[tensor].compute_inline()
    stage = schedule[output]
    outer, channel, inner = stage.op.axis
    chunk, lane = stage.split(inner, factor=lanes)
    stage.reorder(outer, chunk, channel, lane)
    stage.vectorize(lane)
    if static_extent(outer) * static_extent(channel) * static_extent(inner) >= MIN_PARALLEL:
        stage.parallel(fuse_all(stage, [outer, chunk]))
    local = schedule[sums]
    local.set_scope("local")
    local.compute_at(stage, channel)
    *_, last = local.op.axis
    local.reorder(*local.op.reduce_axis, last)
    local.vectorize(last)
    for axis in local.op.reduce_axis:
        local.unroll(axis)
