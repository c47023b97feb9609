"""Schedules of nn.contrib_conv2d_winograd_NCHWc: where the stages of Winograd convolution run.

In: a fused function anchored at the Winograd convolution. Out: one of two forms. *Strips*: a thread takes a row of
tiles, transforms it, multiplies it and transforms it back while all of it sits in its L2 cache. *Phases*: all tiles are
transformed, then multiplied, then transformed back, with a barrier between, so that each transformed weight is read
once. Invariant: the tile stages stay in registers or L1; consumers of the convolution run on the output tile before it
is stored.
"""

from __future__ import annotations

from armillary import te
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.conv2d_blocked import choose_tile
from armillary.schedules.registry import Fused, implement
from armillary.target.cpu import CpuModel, cpu_model

Stages = dict[str, te.Tensor]


@implement("nn.contrib_conv2d_winograd_NCHWc", family="cpu", name="winograd")
def schedule_winograd(schedule: te.Schedule, fused: Fused) -> None:
    """Strips where the transformed weight and a strip fit the L2 cache together, else phases."""
    cpu = cpu_model(fused.workload.target)
    (conv,) = fused.anchor
    stages = _stages(conv)
    output = fused.outputs[0]
    _inline_others(schedule, fused, {id(t.op) for t in stages.values()})
    strip = strip_width(stages, cpu)
    at = _schedule_output(schedule, output, stages, fused.workload.attrs.tile_size, strip)
    if at is not None:
        schedule[stages["data"]].compute_at(schedule[output], at)
        schedule[stages["product"]].compute_at(schedule[output], at)
    _schedule_data(schedule, stages, is_root=at is None)
    _schedule_product(schedule, stages["product"], cpu, strip)


def strip_width(stages: Stages, cpu: CpuModel) -> int:
    """Tiles of a strip: the widest even part of a row that fits 3/4 of L2 beside all weights; 0: use phases."""
    side, _, batch, rows, i_blocks, columns, ci = te.static_shape(stages["data"])
    o_blocks, co = te.static_shape(stages["product"])[4], te.static_shape(stages["product"])[6]
    channels = i_blocks * ci + o_blocks * co
    weights = 4 * side * side * i_blocks * ci * o_blocks * co
    room = 0.75 * max(cpu.l2, 1 << 18) - weights
    for parts in (p for p in range(1, columns + 1) if columns % p == 0):
        width = columns // parts
        if 4 * side * side * width * channels <= room:
            return width if batch * rows * parts >= 8 and width >= min(columns, 7) else 0
    return 0


def _stages(conv: te.Tensor) -> Stages:
    """The stages of the computation by their tags."""
    found: Stages = {}
    todo = [conv]
    while todo:
        op = todo.pop().op
        if isinstance(op, te.ComputeOp) and op.tag.startswith(("winograd_", "conv2d_winograd")):
            found[op.tag.removeprefix("winograd_")] = op.output(0)
            todo.extend(op.input_tensors)
    return found


def _inline_others(schedule: te.Schedule, fused: Fused, own: set[int]) -> None:
    outputs = {id(t.op) for t in fused.outputs}
    conv = fused.anchor[0].op
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, te.ComputeOp) and id(op) not in outputs and (id(op) not in own or op is conv):
            schedule[op].compute_inline()


def _schedule_output(
    schedule: te.Schedule, output: te.Tensor, stages: Stages, tile: int, strip: int
) -> te.IterVar | None:
    """Tiles of m x m outputs; the inverse transforms attach to a tile. Gives the axis of a strip, if there is one."""
    stage = schedule[output]
    batch, chunk, row, column, block = stage.op.axis
    row_tile, row_inner = stage.split(row, factor=tile)
    column_tile, column_inner = stage.split(column, factor=tile)
    at = None
    if strip:
        column_strip, column_tile = stage.split(column_tile, factor=strip)
        stage.reorder(batch, row_tile, column_strip, chunk, column_tile, row_inner, column_inner, block)
        at = stage.fuse(batch, row_tile, column_strip)
        stage.parallel(at)
    else:
        stage.reorder(batch, chunk, row_tile, column_tile, row_inner, column_inner, block)
        stage.parallel(fuse_all(stage, [batch, chunk, row_tile]))
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
    u, v, batch, row, chunk, column, lane = stage.op.axis
    stage.reorder(batch, row, chunk, column, u, v, lane)
    stage.unroll(u)
    stage.unroll(v)
    stage.vectorize(lane)
    if is_root:
        stage.parallel(fuse_all(stage, [batch, row, chunk]))
    for name in ("tile", "data_rows"):
        inside = schedule[stages[name]]
        inside.set_scope("local")
        inside.compute_at(stage, column)
        _unroll_tile(inside)


def _schedule_product(schedule: te.Schedule, product: te.Tensor, cpu: CpuModel, strip: int) -> None:
    """Per point a matrix product of tiles x input channels x output channels, by register tiles."""
    local = schedule.cache_write(product, "local")
    stage = schedule[product]
    u, v, batch, row, chunk, column, lane = stage.op.axis
    columns, chunks = strip or static_extent(column), static_extent(chunk)
    rows = 1 if strip else static_extent(row)
    wide = max(1, static_extent(lane) // lanes_of(cpu, product.dtype))
    tile = choose_tile(columns, chunks, max(4, cpu.vector_registers // wide))
    tall = next(r for r in (4, 3, 2, 1) if rows % r == 0 and (tile.rows * r + 1) * tile.vectors < cpu.vector_registers)
    tall = tall if tile.rows == columns else 1
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    column_outer, column_inner = stage.split(column, factor=tile.rows)
    row_outer, row_inner = stage.split(row, factor=tall)
    if not strip:
        stage.reorder(u, v, chunk_outer, batch, row_outer, column_outer, row_inner, chunk_inner, column_inner, lane)
        stage.parallel(stage.fuse(u, v, chunk_outer))
    else:
        stage.reorder(u, v, batch, row_outer, chunk_outer, column_outer, row_inner, chunk_inner, column_inner, lane)
    for axis in (row_inner, chunk_inner, column_inner):
        stage.unroll(axis)
    stage.vectorize(lane)
    inside = schedule[local]
    inside.compute_at(stage, column_outer)
    *_, row_tile, chunk_tile, column_tile, lane_tile = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, row_tile, column_tile, chunk_tile, lane_tile)
    for axis in (row_tile, column_tile, chunk_tile):
        inside.unroll(axis)
    inside.vectorize(lane_tile)


