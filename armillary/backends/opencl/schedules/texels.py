"""Convolutions on blocks of four channels: pixels of four numbers in registers, for GPUs that read textures.

In: the schedule of a fused nn.contrib_conv2d_NCHWc or nn.contrib_depthwise_conv2d_NCHWc with blocks of four. Out: one
kernel: a work-item sums four channels of some neighbouring columns; data of a row of taps and the weights of a tap are
read once, into registers, four numbers at a time. Invariant: columns of a work-item divide the row, so nothing beside
the result is computed; no shared memory and no barrier, as textures have a cache of their own.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.default import (
    inline_injective,
    reads_in_place,
    schedule_default,
    static_extent,
)
from armillary.backends.opencl.tiles import FLOATS, divisors
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.relay.types import TensorType
from armillary.target.texture import PIXEL

COLUMNS = 8  # of a work-item
REGISTERS = 18  # vectors of four that data and sums may take: six waves of 64 on Adreno's 730, by Mesa's compiler
DEPTHWISE_REGISTERS = 10  # of a depthwise convolution, which waits for memory: eight waves
ITEMS = 128  # of a work-group


def _objection(workload: Workload) -> str | None:
    types = [t for t in workload.types if isinstance(t, TensorType)]
    if any(str(t.dtype) not in FLOATS for t in types):
        return "it is in neither float32 nor float16"
    if any(t.shape[-1] != PIXEL for t in types):
        return f"its blocks are not of {PIXEL} channels"
    return "it has groups" if workload.op.name == "nn.contrib_conv2d_NCHWc" and workload.attrs.groups != 1 else None


def conv2d_texels(schedule: te.Schedule, fused: Fused) -> None:
    """One kernel with what follows the convolution, where that reads each sum for its own element."""
    kept = inline_injective(schedule, fused)
    anchor, output = fused.anchor[0], fused.outputs[0]
    source = anchor.op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    is_last = output.op is source
    alone = len(kept) == (1 if is_last else 2) and len(fused.outputs) == 1
    if not alone or not (is_last or reads_in_place(schedule, output.op, source)[1] is True):
        schedule_default(schedule, fused)
        return
    sums = anchor
    if is_last:
        sums = schedule.cache_write(anchor, "local")
    else:
        schedule[anchor].set_scope("local")
    width = static_extent(source.axis[3])
    has_blocks = len(source.reduce_axis) > 2
    taps = static_extent(source.reduce_axis[2 if has_blocks else 1])
    stride, dilation = fused.workload.attrs.strides[1], fused.workload.attrs.dilation[1]
    columns = columns_of(width, taps, stride, dilation, REGISTERS if has_blocks else DEPTHWISE_REGISTERS)
    at = _bind(schedule[output], columns)
    _sum(schedule, sums, schedule[output], at)


implement("nn.contrib_conv2d_NCHWc", family="opencl", name="conv2d_texels", when=_objection)(conv2d_texels)
implement("nn.contrib_depthwise_conv2d_NCHWc", family="opencl", name="depthwise_texels", when=_objection)(conv2d_texels)


def columns_of(width: int, taps: int, stride: int, dilation: int, registers: int) -> int:
    """How many neighbouring columns a work-item sums."""

    def vectors(columns: int) -> int:
        return columns + (columns - 1) * stride + (taps - 1) * dilation + 1

    return max((n for n in divisors(width, COLUMNS) if vectors(n) <= registers), default=1)


def _bind(stage: te.Stage, columns: int) -> te.IterVar:
    """Work-items over images and blocks of channels, rows, groups of columns; gives the last of their axes."""
    image, block, row, column, lane = stage.op.axis
    plane = stage.fuse(image, block)
    outer, inner = stage.split(column, factor=columns)
    sizes = [static_extent(stage.op.axis[0]) * static_extent(stage.op.axis[1]), static_extent(row)]
    sizes.append(static_extent(column) // columns)
    groups, items, left = [], [], ITEMS
    for axis, size in zip((outer, row, plane), reversed(sizes), strict=True):
        count = _items(size, min(left, 16))
        left //= count
        group, item = stage.split(axis, factor=count)
        groups.append(group)
        items.append(item)
    stage.reorder(*reversed(groups), *reversed(items), inner, lane)
    for tag, group, item in zip("xyz", groups, items, strict=True):
        stage.bind(group, te.thread_axis(f"blockIdx.{tag}"))
        stage.bind(item, te.thread_axis(f"threadIdx.{tag}"))
    stage.unroll(inner)
    stage.vectorize(lane)
    return items[0]


def _items(size: int, most: int) -> int:
    """Work-items along an axis: the most that leave few without work."""
    return min(range(1, min(size, most) + 1), key=lambda n: (-(-size // n) * n / size / min(n, 4) ** 0.5, -n))


def _sum(schedule: te.Schedule, sums: te.Tensor, stage: te.Stage, at: te.IterVar) -> None:
    inside = schedule[sums]
    inside.compute_at(stage, at)
    *axes, lane = inside.op.axis
    reduced = list(inside.op.reduce_axis)  # blocks of channels, rows of taps, taps of a row, channels of a block
    inside.reorder(*reduced, *axes, lane)
    inside.vectorize(lane)
    inside.unroll(axes[-1])
    has_blocks = len(reduced) > 2
    row_of_taps, tap = (reduced[1], reduced[2]) if has_blocks else (reduced[0], reduced[1])
    inside.unroll(tap)
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
        part.unroll(part.op.axis[-2])
