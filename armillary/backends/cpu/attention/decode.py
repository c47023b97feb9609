"""Attention of a few query rows on the CPU: a step of a decoder, whose keys and values are read once, where they lie.

In: a fused function anchored at nn.attention or nn.masked_attention with fewer rows than pay for packing the keys. Out:
a parallel loop over batch and head: scores (sums in lanes where a key's features are contiguous), the softmax, the
product with the values (registers). Invariant: no operand is copied, so the bound is the bandwidth of keys and values.
More rows: prefill.py.
"""

from __future__ import annotations

import math

from armillary import te
from armillary.backends.cpu.access import contiguous_axis
from armillary.backends.cpu.attention.prefill import inline_between, tile_in_registers
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import schedule_default
from armillary.backends.cpu.loops import fuse_all, is_power_of_two, keeps_shape, static_extent
from armillary.backends.cpu.reduce.reduce import reduce_in_lanes
from armillary.backends.registry import Fused, implement
from armillary.target.cpu import CpuModel, cpu_model

MOST_VECTORS = 8  # of features in a tile

STAGES = ("attention_scores", "attention_max", "attention_exp", "attention_sum", "attention_mix")


@implement("attention_few_rows", "masked_attention_few_rows", family="cpu")
def attention_few_rows(schedule: te.Schedule, fused: Fused) -> None:
    """See the module."""
    output, attrs = fused.outputs[0], fused.workload.attrs
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    stages = {s.op.name: s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp)}
    inline_between(schedule, fused)
    stage = schedule[output]
    axis = dict(zip(attrs.out_layout, stage.op.axis, strict=True))
    stage.reorder(axis["B"], axis["H"], axis["T"], axis["D"])
    at = fuse_all(stage, [axis["B"], axis["H"]])
    stage.parallel(at)
    _vectorize(stage, axis["D"], lanes_of(cpu, output.dtype))
    _mix(schedule, stages["attention_mix"], cpu)
    for name in ("attention_sum", "attention_max"):
        reduce_in_lanes(schedule, stages[name], schedule[stages[name]].op.reduce_axis[0], cpu)
    powers = schedule[stages["attention_exp"]]
    _vectorize(powers, powers.op.axis[-1], lanes_of(cpu, output.dtype))
    _scores(schedule, stages["attention_scores"], cpu)
    for name in reversed(STAGES):
        schedule[stages[name]].compute_at(stage, at)


def _vectorize(stage: te.Stage, axis: te.IterVar, lanes: int) -> None:
    """An axis by vectors, or as one short vector."""
    if static_extent(axis) > lanes:
        _, axis = stage.split(axis, factor=lanes)
    elif not is_power_of_two(static_extent(axis)):
        return
    stage.vectorize(axis)


def _scores(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    """A key after the other, the sum over its features in lanes; or vectors of keys that lie side by side."""
    stage = schedule[tensor]
    features = contiguous_axis(schedule, stage.op)
    if features is not None:
        reduce_in_lanes(schedule, tensor, features, cpu)
        return
    *outer, key = stage.op.axis
    stage.reorder(*outer, *stage.op.reduce_axis, key)
    _vectorize(stage, key, lanes_of(cpu, tensor.dtype))


def _mix(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    """Several vectors of features of all rows at a time, summed up over the keys in registers."""
    features = static_extent(schedule[tensor].op.axis[-1])
    lanes = math.gcd(lanes_of(cpu, tensor.dtype), features)
    columns = min(MOST_VECTORS * lanes, features)
    accumulator = schedule.cache_write(tensor, "local")
    stage = schedule[tensor]
    *outer, row, column = stage.op.axis
    chunk, inner = stage.split(column, factor=columns)
    vector, lane = stage.split(inner, factor=lanes)
    stage.reorder(*outer, chunk, row, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)
    tile_in_registers(schedule, accumulator, columns, lanes)
    schedule[accumulator].compute_at(stage, chunk)
