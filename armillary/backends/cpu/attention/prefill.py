"""Attention on the CPU: a block of query rows at a time, its scores never in main memory.

In: a fused function anchored at nn.attention or nn.masked_attention. Out: one phase that packs the keys in blocks of
lanes, then a parallel loop over batch, head and blocks of `rows` query rows: scores (a register tile), their maximum,
exponentials and sums (lanes), the product with the values (a register tile), division and store. Invariant: rows and
keys are padded inside, so that no inner loop has a condition; padded keys take no part in the softmax. How many rows,
which tiles: attention/space.py. Fewer rows than pay for packing the keys: attention/decode.py.
"""

from __future__ import annotations

import math
from typing import cast

from armillary import te
from armillary.backends.cpu.access import contiguous_axis
from armillary.backends.cpu.attention.space import Plan, plan_of, sizes_here, stated_config, typical_sizes
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_default
from armillary.backends.cpu.gemm.pack import pack_blocks
from armillary.backends.cpu.loops import UNKNOWN_EXTENT, fuse_all, keeps_shape, static_extent
from armillary.backends.cpu.reduce.reduce import reduce_in_lanes
from armillary.backends.registry import Fused, implement
from armillary.base.extent import typical
from armillary.ops.nn._windows import reduce_axes
from armillary.ops.nn.attention import (
    AttentionAttrs,
    Read,
    Sizes,
    mask_reader,
    of_rows,
    placed,
    reader,
    sizes_of,
    softmax_stages,
)
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T
from armillary.tir.extents import to_expr

MASK_USES = 4  # of each element from which on a mask is copied to end with whole vectors
STAGES = ("keys", "end", "products", "scores", "max", "exp", "sum", "inverse", "mix")


def _compute(
    attrs: AttentionAttrs, query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None
) -> te.Tensor:
    size = sizes_of(attrs, cast("list[tuple[int, ...]]", [te.extents(x) for x in (query, key, value)]))
    cpu = cpu_model(Target.current() or Target("llvm"))
    plan = plan_of(typical_sizes(size), cpu, lanes_of(cpu, T.convert(query(0, 0, 0, 0)).dtype), stated_config(attrs))
    return tiled(attrs, size, plan, query, key, value, mask)


def tiled(
    attrs: AttentionAttrs,
    size: Sizes,
    plan: Plan,
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    mask: te.Tensor | None,
) -> te.Tensor:
    """The stages over padded rows and keys."""
    q, v = reader(attrs, 0, query), reader(attrs, 2, value)
    lanes = plan.lanes
    rows, keys = _up(size.t, plan.rows), _up(size.s, lanes)
    packed = _packed_keys(attrs, size, lanes, key)
    (d,), (s,) = reduce_axes([size.d], ["d"]), reduce_axes([size.s], ["s"])

    def row(t: te.Expr) -> te.Expr:
        return t if rows == size.t else te.min(t, to_expr(size.t - 1))

    def product(b: te.Expr, h: te.Expr, t: te.Expr, j: te.Expr) -> te.Expr:
        return te.sum(q(b, h, row(t), d) * packed(b, h // attrs.shared, j // lanes, d, j % lanes), axis=[d])

    products = te.compute((size.b, size.h, rows, keys), product, name="attention_products")

    added = _added(size, keys, mask)

    def scaled(b: te.Expr, h: te.Expr, t: te.Expr, j: te.Expr) -> te.Expr:
        value = products(b, h, t, j) * T.const(attrs.scale, "float32")
        return value if added is None else value + added(b, h, row(t), j)

    stored = te.compute((size.b, size.h, rows, keys), scaled, name="attention_scores")
    added_later = mask_reader(mask) if added is None else None

    def scores(b: te.Expr, h: te.Expr, t: te.Expr, j: te.Expr) -> te.Expr:
        return stored(b, h, t, j) if added_later is None else stored(b, h, t, j) + added_later(b, h, row(t), j)

    # a padded key has no weight; with a mask that cannot be read past its end, the softmax stops at the last key
    powers, total = softmax_stages(size, scores, rows, keys if added_later is None else size.s)
    mixed = te.compute(
        (size.b, size.h, rows, size.e),
        lambda b, h, t, e: te.sum(powers(b, h, t, s) * v(b, h, s, e), axis=[s]),
        name="attention_mix",
    )
    return _divided(attrs, size, mixed, total)


def _packed_keys(attrs: AttentionAttrs, size: Sizes, lanes: int, key: te.Tensor) -> te.Tensor:
    """Keys in blocks of lanes, zeros behind the last one, by the heads of keys and values."""
    keys, heads = _up(size.s, lanes), _up(size.h, attrs.shared) // attrs.shared
    read = reader(AttentionAttrs(**{**attrs.__dict__, "shared": 1}), 1, key)

    def element(b: te.Expr, h: te.Expr, block: te.Expr, d: te.Expr, lane: te.Expr) -> te.Expr:
        at = block * lanes + lane
        inside, zero = read(b, h, at, d), T.const(0.0, "float32")
        return inside if keys == size.s else te.if_then_else(te.likely(at < to_expr(size.s)), inside, zero)

    packed: te.Tensor = te.compute(
        (size.b, heads, keys // lanes, size.d, lanes), element, name="attention_keys", tag=PACKED
    )
    return packed


def _divided(attrs: AttentionAttrs, size: Sizes, mixed: te.Tensor, total: te.Tensor) -> te.Tensor:
    """Sums of weighted values by the sums of their weights."""
    one, zero = T.const(1.0, "float32"), T.const(0.0, "float32")

    def inverted(*index: te.Expr) -> te.Expr:
        sums = total(*index)
        if isinstance(size.s, int):
            return one / sums
        return te.select(sums == zero, zero, one / sums)  # there may be no keys

    inverse = te.compute(total.shape, inverted, name="attention_inverse")

    def element(*index: te.Expr) -> te.Expr:
        factor = inverse(*index[:3])
        return of_rows(attrs, factor, mixed(*index) * factor)

    return placed(attrs, size, element, "attention")


def _up(size: int, step: int) -> int:
    """The least multiple of `step` that is no less."""
    return (size + step - 1) // step * step


def _added(size: Sizes, keys: int, mask: te.Tensor | None) -> Read | None:
    """What is added to the scores of all keys, a function (b, h, t, j): -inf beyond the last one, and a mask.

    So no vector has a condition. None if that is nothing, or for a mask that is too large to copy for so few uses.
    """
    bias = mask_reader(mask)
    if keys == size.s:
        return bias
    usual = typical_sizes(size)
    if mask is not None:
        elements = math.prod(map(typical, te.extents(mask)))
        if MASK_USES * elements > usual.b * usual.h * usual.t * usual.s:
            return None
    shape = te.extents(mask)[:3] if mask is not None else (1, 1, 1)
    low = T.const(-math.inf, "float32")

    def inside(b: te.Expr, h: te.Expr, t: te.Expr, j: te.Expr) -> te.Expr:
        if bias is None:
            return te.select(j < to_expr(size.s), T.const(0.0, "float32"), low)
        return te.if_then_else(te.likely(j < to_expr(size.s)), bias(b, h, t, j), low)

    return mask_reader(te.compute((*shape, keys), inside, name="attention_end", tag=PACKED))


@implement("attention_rows", "masked_attention_rows", family="cpu", compute=_compute)
def attention_rows(schedule: te.Schedule, fused: Fused) -> None:
    """See the module."""
    output, attrs = fused.outputs[0], fused.workload.attrs
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    plan = plan_of(  # the lanes are not the output's: a cast may follow
        sizes_here(fused.workload), cpu, lanes_of(cpu, fused.anchor[0].dtype), stated_config(attrs)
    )
    stages = {s.op.name: s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp)}
    if output.op is not fused.anchor[0].op:
        inline_between(schedule, fused)
    pack_blocks(schedule, stages["attention_keys"], plan.lanes)
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
    tile_in_registers(schedule, stages["attention_mix"], plan.features * plan.feature_lanes, plan.feature_lanes)
    schedule[stages["attention_mix"]].compute_at(stage, chunk)
    for name in ("attention_sum", "attention_max"):
        _reduce(schedule, stages[name], cpu)
    schedule[stages["attention_inverse"]].set_scope("local")
    powers = schedule[stages["attention_exp"]]
    if static_extent(powers.op.axis[-1]) != UNKNOWN_EXTENT:  # open ones end with whole vectors, or are read as they lie
        powers.storage_align(powers.op.axis[-2], plan.lanes, 0)
    _vectorize(powers, plan.lanes)
    _scores(schedule, stages["attention_scores"], stages["attention_products"], plan)
    for name in ("attention_inverse", "attention_sum", "attention_exp", "attention_max", "attention_scores"):
        schedule[stages[name]].compute_at(stage, at)


def inline_between(schedule: te.Schedule, fused: Fused) -> None:
    """Inline all but the stages of attention and the output: the result and what reads it, masks and scales."""
    known = {f"attention_{name}" for name in STAGES}
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


def _scores(schedule: te.Schedule, tensor: te.Tensor, products: te.Tensor, plan: Plan) -> None:
    """Tiles of `rows` x `keys` vectors, the last one narrower; complete sums are scaled and stored."""
    stage = schedule[tensor]
    *outer, row, column = stage.op.axis
    chunk, inner = stage.split(column, factor=plan.keys * plan.lanes)
    vector, lane = stage.split(inner, factor=plan.lanes)
    stage.reorder(*outer, chunk, row, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)
    tile_in_registers(schedule, products, plan.keys * plan.lanes, plan.lanes)
    schedule[products].compute_at(stage, chunk)


def tile_in_registers(schedule: te.Schedule, tensor: te.Tensor, columns: int, lanes: int) -> None:
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
