"""Convolutions of plain layout by tiles: data and weights through shared memory, sums in registers.

In: the schedule of a fused convolution (NCHW, OIHW, one group). Out: one kernel: a work-group computes channels times
rows times columns, step by step over the channels that are summed; what follows the convolution is done on the sums.
Invariant: the tile divides the result (`backends/opencl/tiles.py`); where none does, the default schedule computes.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.default import (
    inline_injective,
    reads_in_place,
    schedule_default,
    static_extent,
)
from armillary.backends.opencl.tiles import Product, Tile, choose_tile
from armillary.backends.registry import Fused, Workload, implement
from armillary.relay.types import tensor_fields

MIN_CHANNELS = 4  # fewer make no tile


def _objection(workload: Workload) -> str | None:
    attrs = workload.attrs
    if attrs.groups != 1:
        return "it has groups"
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return f"its layouts are {attrs.data_layout} and {attrs.kernel_layout}"
    if any(field.dtype != "float32" for ty in workload.types for field in tensor_fields(ty)):
        return "it is not in float32"
    return None


@implement("nn.conv2d", family="opencl", name="conv2d_tiled", when=_objection)
def conv2d_tiled(schedule: te.Schedule, fused: Fused) -> None:
    """A convolution by tiles, with what follows it."""
    kept = inline_injective(schedule, fused)
    (anchor,), (output,) = fused.anchor, fused.outputs[:1]
    source = anchor.op
    assert isinstance(source, te.ComputeOp), "a convolution is computed"
    is_last = output.op is source
    fits = is_last or (kept[-2:] == [anchor, output] and reads_in_place(schedule, output.op, source)[1] is True)
    tile = choose_tile(product_of(fused.workload, source)) if fits and len(fused.outputs) == 1 else None
    if tile is None or (len(kept) > 1 if is_last else len(kept) > 2):
        schedule_default(schedule, fused)
        return
    sums = schedule.cache_write(anchor, "local") if is_last else anchor
    if not is_last:
        schedule[sums].set_scope("local")
    schedule_tiles(schedule, output, sums, tile)


def product_of(workload: Workload, op: te.ComputeOp) -> Product:
    """The extents of a convolution."""
    images, channels, rows, columns = (static_extent(axis) for axis in op.axis)
    depth, height, width = (static_extent(axis) for axis in op.reduce_axis)
    strides, dilation = workload.attrs.strides, workload.attrs.dilation
    return Product(
        images, (channels, rows, columns), depth, (height, width), (strides[0], strides[1]), (dilation[0], dilation[1])
    )


def schedule_tiles(schedule: te.Schedule, output: te.Tensor, sums: te.Tensor, tile: Tile) -> None:
    """Bind the loops of the output, put the sums into them, and what they read into shared memory."""
    stage, inside = schedule[output], schedule[sums]
    image, *axes = stage.op.axis
    outer, threads, inner = [], [], []
    for axis, over, own in zip(axes, tile.threads, tile.sums, strict=True):
        block, rest = stage.split(axis, factor=over * own)
        part, one = stage.split(rest, factor=own) if axis is not axes[-1] else _interleaved(stage, rest, over)
        outer.append(block)
        threads.append(part)
        inner.append(one)
    stage.reorder(image, *outer, *threads, *inner)
    first = stage.fuse(image, outer[0])
    for axis, tag in zip((first, outer[1], outer[2]), "zyx", strict=True):
        stage.bind(axis, te.thread_axis(f"blockIdx.{tag}"))
    for axis, tag in zip(threads, "zyx", strict=True):
        stage.bind(axis, te.thread_axis(f"threadIdx.{tag}"))
    for axis in inner:
        stage.unroll(axis)
    inside.compute_at(stage, threads[-1])
    channel, *taps = inside.op.reduce_axis
    step, one = inside.split(channel, factor=tile.step)
    inside.reorder(step, one, *taps, *inside.op.axis)
    for axis in inside.op.axis:
        inside.unroll(axis)
    for side in inside.op.input_tensors:
        _share(schedule, side, sums, step, tile)


def _interleaved(stage: te.Stage, axis: te.IterVar, over: int) -> tuple[te.IterVar, te.IterVar]:
    """Neighbouring work-items have neighbouring columns, so that they read and write together."""
    one, part = stage.split(axis, factor=over)
    return part, one


def _share(schedule: te.Schedule, side: te.Tensor, sums: te.Tensor, at: te.IterVar, tile: Tile) -> None:
    """Load what a step reads: work-items take neighbouring elements."""
    if isinstance(side.op, te.PlaceholderOp):
        side = schedule.cache_read(side, "shared", [sums])
    else:
        schedule[side].set_scope("shared")
    stage = schedule[side]
    stage.compute_at(schedule[sums], at)
    flat = stage.fuse(*stage.op.axis)
    _, place = stage.split(flat, factor=tile.items)
    for count, tag in zip(tile.threads[:0:-1], "xy", strict=True):
        place, part = stage.split(place, factor=count)
        stage.bind(part, te.thread_axis(f"threadIdx.{tag}"))
    stage.bind(place, te.thread_axis("threadIdx.z"))
