"""Attention on the CPU: a block of query rows at a time, its scores never in main memory.

In: a fused function anchored at nn.attention or nn.masked_attention. Out: one phase that packs the keys in blocks of
lanes, then a parallel loop over batch, head and blocks of `rows` query rows: scores (a register tile), their maximum,
exponentials and sums (lanes), the product with the values (a register tile), division and store. Invariant: rows and
keys are padded inside, so that no inner loop has a condition; padded keys take no part in the softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from armillary import te
from armillary.ops.nn_attention import (
    AttentionAttrs,
    Sizes,
    mask_reader,
    placed,
    reader,
    sizes_of,
    softmax_stages,
)  # fmt: skip
from armillary.ops.nn_common import reduce_axes
from armillary.schedules.cpu.access import contiguous_axis
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.default import PACKED, schedule_default
from armillary.schedules.cpu.reduce import reduce_in_lanes
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T

_CACHE_LINE = 16  # float32 of one cache line


@dataclass(frozen=True)
class Plan:
    """`rows` query rows at a time; `keys` and `features` vectors wide tiles of scores and of the result."""

    rows: int
    keys: int
    features: int
    lanes: int
    feature_lanes: int


def plan_of(size: Sizes, cpu: CpuModel, lanes: int) -> Plan:
    """The block of rows with the least padding, and tiles that fit the registers."""
    width = next(w for w in (lanes, lanes // 2, lanes // 4) if w and size.e % w == 0)
    limit = (cpu.vector_registers - 3) // 2
    rows = min(range(min(size.t, limit // 2), min(size.t, limit) + 1), key=lambda r: (-(-size.t // r) * r, -r))
    widest = max(1, (cpu.vector_registers - 1) // (rows + 1))
    features = max(v for v in range(1, widest + 1) if size.e // width % v == 0)
    blocks = -(-size.s // lanes)
    keys = min(range(1, min(widest, blocks) + 1), key=lambda v: (-(-blocks // v) * v - 0.4 * min(rows * v, 8), -v))
    return Plan(rows, keys, features, lanes, width)


def _fits(workload: Workload) -> str | None:
    query, _, value, *_ = workload.types
    features = value.static[workload.attrs.value_layout.index("D")]  # type: ignore[attr-defined]
    lanes = cpu_model(workload.target).lanes
    if str(query.dtype) != "float32":  # type: ignore[attr-defined]
        return "only float32 is tiled"
    return None if lanes >= 4 and features % (lanes // 4) == 0 and features >= lanes // 4 > 0 else "too few features"


def _compute(attrs: AttentionAttrs, query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: Any = None) -> te.Tensor:
    size = sizes_of(attrs, [te.static_shape(x) for x in (query, key, value)])
    cpu = cpu_model(Target.current() or Target("llvm"))
    plan = plan_of(size, cpu, lanes_of(cpu, T.convert(query(0, 0, 0, 0)).dtype))
    return tiled(attrs, size, plan, query, key, value, mask)


def tiled(attrs: AttentionAttrs, size: Sizes, plan: Plan, query: Any, key: Any, value: Any, mask: Any) -> te.Tensor:
    """The stages over padded rows and keys."""
    q, k, v = (reader(attrs, n, x) for n, x in enumerate((query, key, value)))
    bias, lanes = mask_reader(mask), plan.lanes
    step = plan.keys * lanes
    rows, keys = -(-size.t // plan.rows) * plan.rows, -(-size.s // step) * step

    def packed_key(b: Any, h: Any, block: Any, d: Any, lane: Any) -> Any:
        at = block * lanes + lane
        inside = k(b, h, at, d)
        return inside if keys == size.s else te.if_then_else(te.likely(at < size.s), inside, T.const(0.0, "float32"))

    heads = -(-size.h // attrs.shared)
    whole = (size.b, heads, keys // lanes, size.d, lanes)
    by_kv_head = AttentionAttrs(**{**attrs.__dict__, "shared": 1})
    k = reader(by_kv_head, 1, key)
    packed = te.compute(whole, packed_key, name="attention_keys", tag=PACKED)
    (d,), (s,) = reduce_axes([size.d], ["d"]), reduce_axes([size.s], ["s"])

    def row(t: Any) -> Any:
        return t if rows == size.t else te.min(t, size.t - 1)

    def product(b: Any, h: Any, t: Any, j: Any) -> Any:
        return te.sum(q(b, h, row(t), d) * packed(b, h // attrs.shared, j // lanes, d, j % lanes), axis=[d])

    products = te.compute((size.b, size.h, rows, keys), product, name="attention_scores")

    def limit(j: Any) -> Any:
        return te.select(j < size.s, T.const(0.0, "float32"), T.const(-math.inf, "float32"))

    end = te.compute((keys,), limit, name="attention_end", tag=PACKED)  # added, so that no vector has a condition

    def scores(b: Any, h: Any, t: Any, j: Any) -> Any:
        scaled = products(b, h, t, j) * T.const(attrs.scale, "float32")
        if bias is not None:
            return scaled + bias(b, h, row(t), j)
        return scaled if keys == size.s else scaled + end(j)

    # a padded key has no weight; with a mask, which cannot be read past its end, the softmax stops at the last key
    powers, total = softmax_stages(size, scores, rows, keys if bias is None else size.s)
    mixed = te.compute(
        (size.b, size.h, rows, size.e), lambda b, h, t, e: te.sum(powers(b, h, t, s) * v(b, h, s, e), axis=[s]),
        name="attention_mix",
    )  # fmt: skip
    one = T.const(1.0, "float32")
    result: te.Tensor = placed(attrs, size, lambda *i: mixed(*i) * (one / total(*i[:3])), "attention")
    return result


@implement("nn.attention", family="cpu", name="attention_rows", when=_fits, compute=_compute)
@implement("nn.masked_attention", family="cpu", name="masked_attention_rows", when=_fits, compute=_compute)
def attention_rows(schedule: te.Schedule, fused: Fused) -> None:
    """See the module."""
    output, attrs = fused.outputs[0], fused.workload.attrs
    if len(fused.outputs) > 1 or te.static_shape(output) != te.static_shape(fused.anchor[0]):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    size = sizes_of(attrs, [ty.static for ty in fused.workload.types[:3]])  # type: ignore[attr-defined]
    plan = plan_of(size, cpu, lanes_of(cpu, fused.anchor[0].dtype))  # not the output's: a cast may follow
    stages = {s.op.name: s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp)}
    if output.op is not fused.anchor[0].op:
        _inline_between(schedule, fused)
    _pack_keys(schedule[stages["attention_keys"]])
    if "attention_end" in stages:
        _vectorize(schedule[stages["attention_end"]], plan.lanes)
    stage = schedule[output]
    axis = dict(zip(attrs.out_layout, stage.op.axis, strict=True))
    block, row = stage.split(axis["T"], factor=plan.rows)
    chunk, column = stage.split(axis["D"], factor=plan.features * plan.feature_lanes)
    vector, lane = stage.split(column, factor=plan.feature_lanes)
    stage.reorder(axis["B"], axis["H"], block, chunk, row, vector, lane)
    at = fuse_all(stage, [axis["B"], axis["H"], block])
    stage.parallel(at)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)
    _tile(schedule, stages["attention_mix"], plan.features * plan.feature_lanes, plan.feature_lanes)
    schedule[stages["attention_mix"]].compute_at(stage, chunk)
    for name in ("attention_sum", "attention_max"):
        _reduce(schedule, stages[name], cpu)
    _vectorize(schedule[stages["attention_exp"]], plan.lanes)
    _scores(schedule, stages["attention_scores"], plan)
    for name in ("attention_sum", "attention_exp", "attention_max", "attention_scores"):
        schedule[stages[name]].compute_at(stage, at)


def _pack_keys(stage: te.Stage) -> None:
    """Blocks of keys inside, so that the last one, which may not be full, is a loop of its own."""
    batch, head, block, feature, lane = stage.op.axis
    outer, inner = stage.split(feature, factor=_CACHE_LINE)
    stage.reorder(batch, head, outer, block, inner, lane)
    stage.parallel(fuse_all(stage, [batch, head, outer]))
    stage.vectorize(lane)


def _inline_between(schedule: te.Schedule, fused: Fused) -> None:
    """The result and what reads it, up to the output."""
    known = {f"attention_{name}" for name in ("keys", "end", "scores", "max", "exp", "sum", "mix")}
    for stage in schedule.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op.name not in known and stage.op is not fused.outputs[0].op:
            stage.compute_inline()


def _reduce(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    schedule[tensor].set_scope("local")
    axis = contiguous_axis(schedule, schedule[tensor].op)
    if axis is not None:
        reduce_in_lanes(schedule, tensor, axis, cpu, is_alone=False)


def _vectorize(stage: te.Stage, lanes: int) -> None:
    if static_extent(stage.op.axis[-1]) > lanes:
        _, inner = stage.split(stage.op.axis[-1], factor=lanes)
        stage.vectorize(inner)


def _scores(schedule: te.Schedule, tensor: te.Tensor, plan: Plan) -> None:
    """Tiles of `rows` x `keys` vectors; the tile is written back when its sums are complete."""
    accumulator = schedule.cache_write(tensor, "local")
    stage = schedule[tensor]
    *outer, row, column = stage.op.axis
    chunk, inner = stage.split(column, factor=plan.keys * plan.lanes)
    vector, lane = stage.split(inner, factor=plan.lanes)
    stage.reorder(*outer, chunk, row, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)
    _tile(schedule, accumulator, plan.keys * plan.lanes, plan.lanes)
    schedule[accumulator].compute_at(stage, chunk)


def _tile(schedule: te.Schedule, tensor: te.Tensor, columns: int, lanes: int) -> None:
    """A product whose region is one register tile: the reduction outside, rows and vectors written out."""
    stage = schedule[tensor]
    stage.set_scope("local")
    *outer, row, column = stage.op.axis
    _, inner = stage.split(column, factor=columns)
    vector, lane = stage.split(inner, factor=lanes)
    stage.reorder(*outer, *stage.op.reduce_axis, row, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)
