"""The schedule of cpu.conv2d_fourier_NCHWc: where the stages of convolution by Fourier transforms run.

In: a fused function anchored at that convolution. Out: three phases with a barrier between: tiles to points; products,
for which a thread first transforms the weights of a group of output channels for an eighth of the points, into its own
cache; products to outputs. Where the points of all tiles would take much memory, a thread takes a strip of rows of
tiles through all three. Invariant: a row or a column stays in registers, a tile between rows and columns in L1;
consumers of the convolution run on the output row before it is stored. Which tile: backends/cpu/conv2d/fourier/cost.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.conv2d.fourier.cost import FourierLayer
from armillary.backends.cpu.conv2d.fourier.space import chosen_tile, layer_of
from armillary.backends.cpu.cost.model import Tile
from armillary.backends.cpu.loops import Stages, accumulators, fuse_all, inline_others, tagged_stages
from armillary.backends.registry import Fused, implement

STEPS = range(3)  # of a transform


@implement("fourier", family="cpu")
def schedule_fourier(schedule: te.Schedule, fused: Fused) -> None:
    """Three phases, or strips."""
    layer, tile = layer_of(fused.workload), chosen_tile(fused.workload)
    (conv,) = fused.anchor
    stages = tagged_stages(conv, "fourier")
    output = fused.outputs[0]
    inline_others(schedule, fused, stages.values())
    strip = _schedule_output(schedule, output, stages, layer)
    if strip is not None:
        schedule[stages["data"]].compute_at(schedule[output], strip)
        schedule[stages["product"]].compute_at(schedule[output], strip)
    _schedule_data(schedule, stages, is_root=strip is None)
    _schedule_product(schedule, stages, tile, is_root=strip is None)


def _in_registers(schedule: te.Schedule, tensors: list[te.Tensor], stage: te.Stage, at: te.IterVar) -> None:
    """Compute transforms at a loop of their reader, every element and the lanes unrolled."""
    for tensor in tensors:
        inside = schedule[tensor]
        inside.set_scope("local")
        inside.compute_at(stage, at)
        inside.unroll(inside.op.axis[-2])
        inside.vectorize(inside.op.axis[-1])


def _schedule_data(schedule: te.Schedule, stages: Stages, *, is_root: bool) -> None:
    """A tile of a block of channels: each row to eight complex numbers, then each column of those to points."""
    stage = schedule[stages["data"]]
    v, u, f, chunk, tile, lane = stage.op.axis
    stage.reorder(tile, chunk, v, u, f, lane)
    at = stage.fuse(tile, chunk)
    if is_root:
        stage.parallel(at)
    stage.unroll(u)
    stage.unroll(f)
    stage.vectorize(lane)
    _in_registers(schedule, [stages[f"data_columns_{n}"] for n in STEPS], stage, v)
    held = schedule[stages["data_held"]]
    held.compute_at(stage, at)
    *_, y, s, lane = held.op.axis
    held.unroll(s)
    held.vectorize(lane)
    _in_registers(schedule, [stages[n] for n in ("tile", "data_twist", *(f"data_rows_{n}" for n in STEPS))], held, y)


def _schedule_product(schedule: te.Schedule, stages: Stages, tile: Tile, *, is_root: bool) -> None:
    """Eighths of the points, for each groups of output channels: transform weights, then products by tiles."""
    product = stages["product"]
    local = schedule.cache_write(product, "local")
    stage = schedule[product]
    v, u, f, chunk, spot, lane = stage.op.axis
    group, chunk_inner = stage.split(chunk, factor=tile.vectors)
    spot_outer, spot_inner = stage.split(spot, factor=tile.rows)
    stage.reorder(v, group, u, f, spot_outer, chunk_inner, spot_inner, lane)
    at = stage.fuse(v, group)
    if is_root:
        stage.parallel(at)
    for axis in (chunk_inner, spot_inner):
        stage.unroll(axis)
    stage.vectorize(lane)
    schedule[local].compute_at(stage, spot_outer)
    for inside in accumulators(schedule, local):
        *blocks, _, _, _, chunk_tile, spot_tile, lane_tile = inside.op.axis
        inside.reorder(*blocks, *inside.op.reduce_axis, spot_tile, chunk_tile, lane_tile)
        inside.unroll(spot_tile)
        inside.unroll(chunk_tile)
        inside.vectorize(lane_tile)
    _schedule_weights(schedule, stages, stage, at)


def _schedule_weights(schedule: te.Schedule, stages: Stages, stage: te.Stage, at: te.IterVar) -> None:
    weights = schedule[stages["weight"]]
    weights.compute_at(stage, at)
    v, u, f, o, c, p, q = weights.op.axis
    weights.reorder(v, o, c, p, u, f, q)
    weights.unroll(u)
    weights.unroll(f)
    weights.vectorize(q)
    names = ["weight_rows", *(f"weight_columns_{n}" for n in STEPS)]
    _in_registers(schedule, [stages[n] for n in names], weights, p)
    roots = schedule[stages["roots"]]
    roots.unroll(roots.op.axis[0])


def _schedule_output(
    schedule: te.Schedule, output: te.Tensor, stages: Stages, layer: FourierLayer
) -> te.IterVar | None:
    """A tile of a block of channels: columns back, then each row back, its consumers, and the store.

    Gives the axis of a strip, if there is one.
    """
    stage = schedule[output]
    batch, chunk, row, column, block = stage.op.axis
    m_h, m_w = layer.outputs
    row_tile, row_inner = stage.split(row, factor=m_h)
    column_tile, column_inner = stage.split(column, factor=m_w)
    at = None
    if layer.strip:
        row_strip, row_tile = stage.split(row_tile, factor=layer.strip)
        stage.reorder(batch, row_strip, chunk, row_tile, column_tile, row_inner, column_inner, block)
        at = stage.fuse(batch, row_strip)
        stage.parallel(at)
    else:
        stage.reorder(batch, chunk, row_tile, column_tile, row_inner, column_inner, block)
        stage.parallel(fuse_all(stage, [batch, chunk, row_tile]))
    stage.unroll(column_inner)
    stage.vectorize(block)
    held = schedule[stages["output_held"]]
    held.compute_at(stage, column_tile)
    _, _, v, y, part, lane = held.op.axis
    held.unroll(y)
    held.unroll(part)
    held.vectorize(lane)
    _in_registers(schedule, [stages[n] for n in ("sums", *(f"output_columns_{n}" for n in STEPS))], held, v)
    names = [*(f"output_rows_{n}" for n in STEPS), "output"]
    _in_registers(schedule, [stages[n] for n in names], stage, row_inner)
    return at
