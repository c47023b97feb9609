"""The schedules of opencl.conv2d_winograd, three kernels, and of opencl.winograd_weight, one.

In: a fused function anchored at the operator. Out: a kernel that transforms a tile in each work-item, one that
multiplies by tiles of work-groups (schedules/tiled.py), one that transforms a tile back in each work-item and does what
follows to its m x m outputs. Invariant: neighbouring work-items have neighbouring tiles, so they read and write
together; the transforms are unrolled, so their matrices are constants in the code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.opencl.schedules.default import (
    schedule_default,
    schedule_stage,
    static_extent,
)
from armillary.backends.opencl.schedules.tiled import Place, tile_stage
from armillary.backends.opencl.space import WINOGRAD, chosen_tiling
from armillary.backends.opencl.tiles import Product
from armillary.backends.registry import Fused, implement
from armillary.base.node import post_order
from armillary.tir.expr import ProducerLoad, Reduce

GROUP = 128  # work-items of a group that transforms


@implement("winograd", family="opencl")
def schedule_winograd(schedule: te.Schedule, fused: Fused) -> None:
    """Three kernels; the default where what follows is no plain epilogue."""
    stages = {s.op.tag.removeprefix("winograd_"): s.op.output(0) for s in schedule.stages if _is_stage(s.op)}
    product, output = stages["product"], fused.outputs[0]
    tiling = chosen_tiling(fused.workload, WINOGRAD, product_of(product.op))
    if len(fused.outputs) != 1 or len(te.static_shape(output)) != 4 or not _is_plain(schedule, fused):
        schedule_default(schedule, fused)
        return
    own = {id(t.op) for t in stages.values()}
    for stage in schedule.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op is not output.op and id(stage.op) not in own:
            stage.compute_inline()
    _transform(schedule, stages)
    if tiling is None:
        schedule_stage(schedule, product)
    else:
        (over_o, _, over_p), (own_o, _, own_p) = tiling.tile.threads, tiling.tile.sums
        tile_stage(schedule, product, tiling, (Place(over_o, own_o, "y"), Place(over_p, own_p, "x")))
    _transform_back(schedule, stages, output, fused.workload.attrs.tile_size)


@implement(Candidate("opencl.winograd_weight", "winograd_weight"), family="opencl")
def schedule_winograd_weight(schedule: te.Schedule, fused: Fused) -> None:
    """A kernel of a weight in each work-item; one for each point would have all points' formulas in its text."""
    anchor, inputs = fused.anchor[0], fused.anchor[0].op.input_tensors
    if tuple(fused.outputs) != (anchor,) or len(inputs) != 1:
        schedule_default(schedule, fused)
        return
    (rows,) = inputs
    for stage in schedule.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op not in (anchor.op, rows.op):
            stage.compute_inline()
    stage = schedule[anchor]
    a, b, channel, unit = stage.op.axis
    stage.reorder(channel, unit, a, b)
    item = _bind(stage, [channel, unit])
    stage.unroll(a)
    stage.unroll(b)
    inside = schedule[rows]
    inside.set_scope("local")
    inside.compute_at(stage, item)
    for axis in inside.op.axis[:2]:
        inside.unroll(axis)


def _is_stage(op: te.Operation) -> bool:
    return isinstance(op, te.ComputeOp) and op.tag.startswith("winograd_")


def _is_plain(schedule: te.Schedule, fused: Fused) -> bool:
    """Whether all that follows is computed for each element of the output, of its own shape."""
    output, conv = fused.outputs[0], fused.anchor[0]
    if te.static_shape(output) != te.static_shape(conv):
        return False
    after: set[int] = {id(conv.op)}
    for stage in schedule.stages:
        op = stage.op
        if not isinstance(op, te.ComputeOp) or _is_stage(op):
            continue
        reads = [t for t in op.input_tensors if id(t.op) in after]
        if not reads:
            continue
        loads = [n for b in op.body for n in post_order(b) if isinstance(n, ProducerLoad | Reduce)]
        mine = [n for n in loads if isinstance(n, Reduce) or id(n.producer.op) in after]
        if any(isinstance(n, Reduce) or not _in_place(op, n) for n in mine):
            return False
        after.add(id(op))
    return True


def _in_place(op: te.ComputeOp, load: ProducerLoad) -> bool:
    return len(load.indices) == len(op.axis) and all(
        i is axis.var or static_extent(axis) == 1 for i, axis in zip(load.indices, op.axis, strict=True)
    )


def product_of(op: te.Operation) -> Product:
    """The products at all points as one batched product."""
    assert isinstance(op, te.ComputeOp)
    *points, units, tiles = map(static_extent, op.axis)
    (terms,) = map(static_extent, op.reduce_axis)
    return Product(math.prod(points), (units, 1, tiles), terms, (1, 1), (1, 1))


def _bind(stage: te.Stage, axes: list[te.IterVar]) -> te.IterVar:
    """A work-item for each iteration of `axes`; gives the axis of the work-items of a group."""
    return _bind_all(stage, axes, math.prod(map(static_extent, axes)))


def _bind_all(stage: te.Stage, axes: list[te.IterVar], count: int) -> te.IterVar:
    """The same for axes of `count` iterations in all."""
    flat = stage.fuse(*axes)
    group, item = stage.split(flat, factor=min(GROUP, count))
    stage.bind(group, te.thread_axis("blockIdx.x"))
    stage.bind(item, te.thread_axis("threadIdx.x"))
    return item


def _transform(schedule: te.Schedule, stages: dict[str, te.Tensor]) -> None:
    stage = schedule[stages["data"]]
    u, v, c, p = stage.op.axis
    stage.reorder(c, p, u, v)
    item = _bind(stage, [c, p])
    stage.unroll(u)
    stage.unroll(v)
    _hold(schedule, [stages["patch"], stages["rows"]], stage, item)


def _transform_back(schedule: te.Schedule, stages: dict[str, te.Tensor], output: te.Tensor, m: int) -> None:
    stage = schedule[output]
    n, o, y, x = stage.op.axis
    tile_y, own_y = stage.split(y, factor=m)
    tile_x, own_x = stage.split(x, factor=m)
    stage.reorder(n, o, tile_y, tile_x, own_y, own_x)
    extents = [static_extent(n), static_extent(o), -(-static_extent(y) // m), -(-static_extent(x) // m)]
    item = _bind_all(stage, [n, o, tile_y, tile_x], math.prod(extents))
    stage.unroll(own_y)
    stage.unroll(own_x)
    _hold(schedule, [stages["output"], stages["output_rows"]], stage, item)


def _hold(schedule: te.Schedule, tensors: Sequence[te.Tensor], stage: te.Stage, item: te.IterVar) -> None:
    """Keep what a work-item computes of these tensors in registers: their tiles are unrolled."""
    for tensor in tensors:
        inside = schedule[tensor]
        inside.set_scope("local")
        inside.compute_at(stage, item)
        for axis in inside.op.axis[2:]:
            inside.unroll(axis)
