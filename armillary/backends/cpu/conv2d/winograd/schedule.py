"""Schedules of cpu.conv2d_winograd_NCHWc: where the stages of Winograd convolution run.

In: a fused function anchored at the Winograd convolution. Out: one of two forms. *Strips*: a thread takes a row of
tiles of a group, transforms it, multiplies it and transforms it back while all of it sits in its L2 cache. *Phases*:
all tiles are transformed, then multiplied, then transformed back, with a barrier between, so that each transformed
weight is read once. Invariant: the tile stages stay in registers or L1; consumers of the convolution run on the output
tile before it is stored.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import te
from armillary.backends.cpu.conv2d.direct.space import IMAGE
from armillary.backends.cpu.conv2d.winograd.cost import (
    Layer,
    Plan,
    has_prefetch,
)
from armillary.backends.cpu.conv2d.winograd.space import chosen_form, layer_of_call
from armillary.backends.cpu.cost.model import Tile
from armillary.backends.cpu.loops import (
    Stages,
    accumulators,
    fuse_all,
    inline_others,
    lane_axes,
    prefetch_weights,
    tagged_stages,
)
from armillary.backends.registry import Fused, implement
from armillary.target.cpu import cpu_model

FLAT_RANK = 5  # of products whose tiles have one axis
SHORT_SUM = 32  # terms: the transforms back enlarge the rounding error of the products about tenfold


@implement("winograd", family="cpu")
def schedule_winograd(schedule: te.Schedule, fused: Fused) -> None:
    """Strips or phases, as the cost model says."""
    cpu, layer = cpu_model(fused.workload.target), layer_of_call(fused.workload)
    plan, tile = chosen_form(fused.workload)
    (conv,) = fused.anchor
    stages = tagged_stages(conv, "winograd")
    output = fused.outputs[0]
    inline_others(schedule, fused, stages.values())
    if is_flat(stages["product"]):
        plan = replace(plan, strip=0)
    if plan.strip and fused.workload.named & IMAGE:  # so that the loop over its tiles is one that can be cut
        plan = replace(plan, strip=max(2, -(-plan.strip // tile.rows)) * tile.rows)
    at = _schedule_output(schedule, output, stages, plan, layer)
    if at is not None:
        schedule[stages["data"]].compute_at(schedule[output], at)
        schedule[stages["product"]].compute_at(schedule[output], at)
    _schedule_data(schedule, stages, is_root=at is None)
    inner = _schedule_product(schedule, stages["product"], tile, lane_axes(cpu), is_strip=at is not None)
    if (
        has_prefetch(layer, plan, cpu) and not cpu.multiplies_lanes
    ):  # a line is four vectors there: four requests for it
        prefetch_weights(inner, tile.vectors * (layer.inputs // layer.groups))


def is_flat(product: te.Tensor) -> bool:
    """Whether all tiles are one axis, not in lines of images."""
    return len(product.shape) == FLAT_RANK


def _schedule_output(
    schedule: te.Schedule, output: te.Tensor, stages: Stages, plan: Plan, layer: Layer
) -> te.IterVar | None:
    """Tiles of m x m outputs; the inverse transforms attach to a tile. Gives the axis of a strip, if there is one."""
    stage = schedule[output]
    batch, chunk, row, column, block = stage.op.axis
    row_tile, row_inner = stage.split(row, factor=plan.tile, step=layer.dilation[0])
    column_tile, column_inner = stage.split(column, factor=plan.tile, step=layer.dilation[1])
    at = None
    if plan.strip:
        column_strip, column_tile = stage.split(column_tile, factor=plan.strip)
        group, chunk = stage.split(chunk, nparts=layer.groups)
        stage.reorder(batch, group, row_tile, column_strip, chunk, column_tile, row_inner, column_inner, block)
        at = fuse_all(stage, [batch, group, row_tile, column_strip])
        stage.parallel(at)
    else:  # threads share rows, not channels: the next layer's threads read theirs from their own caches (14x14: 0.92)
        stage.reorder(batch, row_tile, chunk, column_tile, row_inner, column_inner, block)
        stage.parallel(fuse_all(stage, [batch, row_tile, chunk]))
    stage.unroll(row_inner)
    stage.unroll(column_inner)
    stage.vectorize(block)
    for name in ("output", "output_rows"):
        inside = schedule[stages[name]]
        inside.set_scope("local")
        inside.compute_at(stage, column_tile)
        _unroll_tile(inside)
    return at


def _unroll_tile(stage: te.Stage) -> None:
    *_, y, x, lane = stage.op.axis
    stage.unroll(y)
    stage.unroll(x)
    stage.vectorize(lane)


def _schedule_data(schedule: te.Schedule, stages: Stages, *, is_root: bool) -> None:
    """One tile at a time: load it, transform rows, transform columns, store a*a vectors."""
    stage = schedule[stages["data"]]
    u, v, *places, lane = stage.op.axis
    if is_flat(stages["product"]):
        chunk, column = places
        stage.reorder(column, chunk, u, v, lane)  # so that a tile's place is computed once
        outer, column = [column], chunk
    else:
        batch, row, chunk, column = places
        stage.reorder(batch, row, chunk, column, u, v, lane)
        outer = [batch, row, chunk]
    stage.unroll(u)
    stage.unroll(v)
    stage.vectorize(lane)
    if is_root:
        stage.parallel(fuse_all(stage, outer))
    for name in ("tile", "data_rows"):
        inside = schedule[stages[name]]
        inside.set_scope("local")
        inside.compute_at(stage, column)
        _unroll_tile(inside)


def _schedule_product(
    schedule: te.Schedule, product: te.Tensor, tile: Tile, spelled: tuple[str, ...], *, is_strip: bool
) -> te.Stage:
    """Per point a product of tiles x input channels x output channels, by register tiles; gives the inner sum."""
    local = schedule.cache_write(product, "local")
    stage = schedule[product]
    u, v, *images, chunk, column, lane = stage.op.axis
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    column_outer, column_inner = stage.split(column, factor=tile.rows)
    inner = [chunk_inner, column_inner]
    if images:
        row_outer, row_inner = stage.split(images[1], factor=tile.tall)
        images, inner = [images[0], row_outer], [row_inner, *inner]
    outer = [*images, chunk_outer] if is_strip else [chunk_outer, *images]
    stage.reorder(u, v, *outer, column_outer, *inner, lane)
    if not is_strip:
        stage.parallel(stage.fuse(u, v, chunk_outer))
    for axis in inner:
        stage.unroll(axis)
    stage.vectorize(lane)
    schedule[local].compute_at(stage, column_outer)
    sums = accumulators(schedule, local, SHORT_SUM)
    for inside in sums:
        *blocks, chunk_tile, column_tile, lane_tile = inside.op.axis
        tile_axes = [*(blocks[-1:] if images else ()), column_tile, chunk_tile]
        inside.reorder(*blocks[: -2 - len(images)], *inside.op.reduce_axis, *tile_axes, lane_tile)
        for axis in (*(r for r in inside.op.reduce_axis if r.var.name in spelled), *tile_axes):
            inside.unroll(axis)
        inside.vectorize(lane_tile)
    return sums[-1]
