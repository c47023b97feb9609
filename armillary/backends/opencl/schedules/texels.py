"""Convolutions on blocks of four channels: pixels of four numbers in registers, for GPUs that read textures.

In: the schedule of a fused nn.contrib_conv2d_NCHWc or nn.contrib_depthwise_conv2d_NCHWc with blocks of four, or of a
convolution with channels last (channels_last.py). Out: one kernel: a work-item sums four channels (or a few blocks of
them) of some neighbouring columns and rows; data of a row of taps and the weights of a tap are read once, into
registers, four numbers at a time. Invariant: what a work-item sums divides the result, so nothing beside it is
computed; no shared memory and no barrier, as textures have a cache of their own. Where images are of one pixel, as of a
dense layer, a work-group sums four channels: each of its work-items some of the blocks. The tiles: texel_points.py of
the back end.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.default import (
    inline_injective,
    is_one_kernel,
    schedule_default,
    schedule_stage,
    static_extent,
    sum_pixels,
)
from armillary.backends.opencl.space import TEXELS, Tiling, tiling_of
from armillary.backends.opencl.texel_tiles import Blocks, objection, usual_tile
from armillary.backends.opencl.tiles import Tile, divisors
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.errors import ConfigError
from armillary.target.choice import stored_choice
from armillary.target.texture import LAST_CHANNELS

MOST_PARTS, LEAST_PARTS = 64, 8  # work-items that share a sum


@implement("conv2d_texels", "depthwise_texels", family="opencl")
def conv2d_texels(schedule: te.Schedule, fused: Fused) -> None:
    """One kernel with what follows the convolution, where that reads each sum for its own element."""
    retained = inline_injective(schedule, fused)
    anchor, output = fused.anchor[0], fused.outputs[0]
    source = anchor.op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    is_last = output.op is source
    last = _is_last(fused.workload)
    parts = _parts(source, last=last)
    if parts and not tiling_of(stored_choice(fused.workload)):
        _splitsum_in_registers(schedule, anchor, parts, last=last)
        for tensor in retained:
            if tensor.op is not source:
                schedule_stage(schedule, tensor)
        return
    if not is_one_kernel(schedule, fused, retained):
        schedule_default(schedule, fused)
        return
    sums = anchor
    if is_last:
        sums = schedule.cache_write(anchor, "local")
    else:
        schedule[anchor].set_scope("local")
    tiling = _tiling(fused.workload, source)
    at = _bind(schedule[output], tiling.tile, last=last)
    sum_in_registers(schedule, sums, schedule[output], at, unroll=tiling.unroll)


def _is_last(workload: Workload) -> bool:
    return bool(workload.attrs.data_layout == LAST_CHANNELS)


def _in_order(op: te.Operation, *, last: bool) -> list[te.IterVar]:
    """Image, blocks of channels, rows, columns and lanes of a result; `last`: of one with channels last."""
    image, *axes, lane = op.axis
    return [image, axes[2], axes[0], axes[1], lane] if last else [image, *axes, lane]


def _parts(source: te.ComputeOp, *, last: bool) -> int:
    """How many work-items share each sum: of images of one pixel with many blocks of channels; else 0."""
    summed, *taps = (static_extent(axis) for axis in source.reduce_axis)
    if (
        any(static_extent(axis) > 1 for axis in _in_order(source, last=last)[2:4])
        or len(taps) != 3
        or taps[:2] != [1, 1]
    ):
        return 0
    result = max((n for n in divisors(summed, MOST_PARTS) if n < summed), default=0)
    return result if result >= LEAST_PARTS else 0


def _splitsum_in_registers(schedule: te.Schedule, tensor: te.Tensor, parts: int, *, last: bool) -> None:
    """A work-group for four channels: each work-item sums its blocks in registers, one of them what they found."""
    stage = schedule[tensor]
    _, part = stage.split(stage.op.reduce_axis[0], factor=parts)
    partial_sums = schedule.rfactor(tensor, part)
    sums_stage = schedule[partial_sums]
    sums = schedule.cache_write(partial_sums, "local")
    sums_stage.set_scope("shared")
    total = schedule.cache_write(tensor, "local")
    stage = schedule[tensor]
    image, blocks, *_, lane = _in_order(stage.op, last=last)
    group, item = stage.split(blocks, factor=1)
    for axis, place in ((image, "blockIdx.y"), (group, "blockIdx.x"), (item, "threadIdx.x")):
        stage.bind(axis, te.thread_axis(place))
    stage.vectorize(lane)
    sums_stage.compute_at(stage, group)
    schedule[total].compute_at(stage, item)
    sum_pixels(schedule[total])
    *axes, lane = sums_stage.op.axis
    place_of = sums_stage.fuse(*axes)
    sums_stage.bind(place_of, te.thread_axis("threadIdx.x"))
    sums_stage.vectorize(lane)
    sum_in_registers(schedule, sums, sums_stage, place_of, unroll=False)


def _tiling(workload: Workload, source: te.ComputeOp) -> Tiling:
    """The tiling that the call's choice names, which has to fit, else the usual one."""
    n, blocks, rows, columns = map(static_extent, _in_order(source, last=_is_last(workload))[:4])
    reduced = [static_extent(axis) for axis in source.reduce_axis]
    summed, taps = (reduced[0], reduced[1:3]) if len(reduced) > 2 else (0, reduced)
    (a, b), (c, d) = workload.attrs.strides, workload.attrs.dilation
    groups = workload.attrs.groups != 1
    work = Blocks(n, (blocks, rows, columns), summed, (taps[0], taps[1]), (a, b), (c, d), has_groups=groups)
    stored = tiling_of(stored_choice(workload))
    message = objection(work, stored.tile) if stored is not None else ""
    if message:
        raise ConfigError(
            f"nn.conv2d: the choice {TEXELS.name} does not fit: {message}", hint="leave it to the model, or tune"
        )
    return stored or Tiling(usual_tile(work))


def _bind(stage: te.Stage, tile: Tile, *, last: bool) -> te.IterVar:
    """Work-items over images and blocks of channels, rows, columns; gives the last of their axes."""
    image, *axes, lane = _in_order(stage.op, last=last)
    outer, own = zip(*(stage.split(axis, factor=part) for axis, part in zip(axes, tile.sums, strict=True)), strict=True)
    stage.reorder(image, *outer, *own, lane)
    plane = stage.fuse(image, outer[0])
    split = [stage.split(axis, factor=n) for axis, n in zip((plane, *outer[1:]), tile.threads, strict=True)]
    groups, items = zip(*split, strict=True)
    stage.reorder(*groups, *items, *own, lane)
    for tag, group, item in zip("zyx", groups, items, strict=True):
        stage.bind(group, te.thread_axis(f"blockIdx.{tag}"))
        stage.bind(item, te.thread_axis(f"threadIdx.{tag}"))
    for axis in own:
        stage.unroll(axis)
    stage.vectorize(lane)
    innermost: te.IterVar = items[-1]
    return innermost


def sum_in_registers(schedule: te.Schedule, sums: te.Tensor, stage: te.Stage, at: te.IterVar, *, unroll: bool) -> None:
    """Sums of a work-item at `at`: a row of taps of data, then the weights of a tap, in vectors of four."""
    inside = schedule[sums]
    inside.compute_at(stage, at)
    *axes, lane = inside.op.axis
    reduced = list(inside.op.reduce_axis)  # blocks of channels, rows of taps, taps of a row, channels of a block
    inside.reorder(*reduced, *axes, lane)
    inside.vectorize(lane)
    for axis in axes[-3:]:
        inside.unroll(axis)
    has_blocks = len(reduced) > 2
    row_of_taps, tap = (reduced[1], reduced[2]) if has_blocks else (reduced[0], reduced[1])
    inside.unroll(tap)
    if unroll:
        inside.unroll(row_of_taps)
    if has_blocks:
        inside.unroll(reduced[3])
    data, weight = inside.op.input_tensors
    if isinstance(data.op, te.PlaceholderOp) or schedule[data].relations:
        data = schedule.cache_read(data, "local", [sums])
    else:
        schedule[data].set_scope("local")
    weight = schedule.cache_read(weight, "local", [sums])
    for side, where in ((data, row_of_taps), (weight, tap)):
        part = schedule[side]
        part.compute_at(inside, where)
        part.vectorize(part.op.axis[-1])
        for axis in part.op.axis[:-1]:
            part.unroll(axis)
