"""Convolutions to few channels: the input channels of a block lie along the lanes, which are added up at the end.

In: a fused function anchored at nn.contrib_conv2d_NCHWc whose block of outputs is all there are, few of them (3 for an
image, 1 for a mask), and whose blocks of inputs fill vectors. Out: lines of pixels; a tile of columns x outputs is in
registers, a vector of partial sums each, and reads vectors of the data and of the weights, which are turned first. What
follows is computed by vectors, a line at a time. Invariant: the order of a sum is free (reduce.py).
Which convolutions are computed so, and by what tile: backends/cpu/cost/narrow.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.backends.cpu.conv2d.direct.schedule import lies_inside
from armillary.backends.cpu.cost.narrow import pixel_tile
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.narrow import halved_to_two
from armillary.backends.cpu.loops import followers, fuse_all, static_extent, stored_or_fused
from armillary.backends.registry import Fused, implement
from armillary.ops.nn.conv import Conv2DAttrs, window
from armillary.ops.nn.conv_blocked import output_shape
from armillary.target.cpu import CpuModel, cpu_model

SUMS = ("pixel_sums", "lane_halves")
MAX_LINE = 256  # columns of a line that a thread takes at a time


def _compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """A vector of partial sums for each output of a pixel, its halves added up until two are left, and their sum."""
    win = window("nn.contrib_conv2d_NCHWc", attrs, 2)
    _, blocks, kh, kw, lanes, outputs = te.static_shape(weight)
    by_lanes = (blocks, kh, kw, outputs, lanes)
    turned = te.compute(by_lanes, lambda b, y, x, o, lane: weight(0, b, y, x, lane, o), name="turned", tag=PACKED)
    extents = {"ic_outer": blocks, "kh": kh, "kw": kw}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places = [axis.var for axis in axes]  # the operators of variables are installed by tir.build
    ico, ry, rx = places
    (sy, sx), (dy, dx), pads = win.strides, win.dilation, win.pads

    def element(n: te.Expr, y: te.Expr, x: te.Expr, o: te.Expr, lane: te.Expr) -> te.Expr:
        row, column = y * sy + ry * dy, x * sx + rx * dx
        on_row, on_column = (lies_inside(at, data.shape[2 + a], pads[a]) for a, at in enumerate((row, column)))
        pixel = data(n, ico, row - pads[0][0], column - pads[1][0], lane)
        inside = te.all(on_row, te.likely(on_column))
        return te.sum(pixel * turned(ico, ry, rx, o, lane), axis=axes, where=inside)

    shape = output_shape(attrs, data, weight)
    batch, _, height, width, _ = shape
    sums: te.Tensor = te.compute((batch, height, width, outputs, lanes), element, name="pixel_sums")
    pairs = halved_to_two(sums)

    def pixel_sum(n: te.Expr, _: te.Expr, y: te.Expr, x: te.Expr, o: te.Expr) -> te.Expr:
        return pairs(n, y, x, o, 0) + pairs(n, y, x, o, 1)

    result: te.Tensor = te.compute(shape, pixel_sum, name="pixels")
    return result


@implement("narrow_output", family="cpu", compute=_compute)
def narrow_output(schedule: te.Schedule, fused: Fused) -> None:
    """Tiles of sums, their terms in lanes; lines of what follows, by vectors."""
    cpu = cpu_model(fused.workload.target)
    (pixels,) = fused.anchor
    output, retained = stored_or_fused(schedule, fused, schedule_injective(schedule, fused))
    turned = next(s.op.output(0) for s in schedule.stages if s.op.name == "turned")
    after = [t for t in followers(schedule, pixels, retained) if t.op is not output.op and output.op is not pixels.op]
    own = [s.op.output(0) for s in schedule.stages if s.op.name in SUMS]
    for tensor in retained:
        if all(tensor.op is not t.op for t in (output, pixels, turned, *own, *after)):
            schedule_stage(schedule, tensor, cpu)
    schedule[turned].vectorize(turned.op.axis[-1])
    stage = schedule[output]
    batch, chunk, row, column, channel = stage.op.axis
    part, column = stage.split(column, factor=min(static_extent(column), MAX_LINE))
    line = fuse_all(stage, [batch, chunk, row, part])
    stage.parallel(line)
    width = static_extent(column)
    if output.op is not pixels.op:
        _by_vectors(stage, column, channel, cpu)
        for tensor in (*after, pixels):
            schedule[tensor].compute_at(stage, line)
        for tensor in after:
            *_, behind, last = tensor.op.axis
            _by_vectors(schedule[tensor], behind, last, cpu)
        stage, (*_, column, channel) = schedule[pixels], pixels.op.axis
    tile, inner = stage.split(column, factor=pixel_tile(width, static_extent(channel), cpu))
    stage.unroll(inner)
    stage.unroll(channel)
    _in_registers(schedule, own, stage, tile)


def _by_vectors(stage: te.Stage, column: te.IterVar, channel: te.IterVar, cpu: CpuModel) -> None:
    """The pixels of a line and their channels as one run."""
    _, lane = stage.split(fuse_all(stage, [column, channel]), factor=cpu.lanes)
    stage.vectorize(lane)


def _in_registers(schedule: te.Schedule, own: Sequence[te.Tensor], stage: te.Stage, tile: te.IterVar) -> None:
    """The sums of a tile, spelled out: inside the steps of the sum columns, then outputs, a vector each.

    The taps of a line are a loop: spelled out, LLVM keeps pixels that several taps read in registers it does not have.
    """
    for tensor in own:
        inside = schedule[tensor]
        inside.set_scope("local")
        inside.compute_at(stage, tile)
        batch, row, column, channel, lane = inside.op.axis
        inside.reorder(batch, row, *inside.op.reduce_axis, column, channel, lane)
        for axis in (column, channel):
            inside.unroll(axis)
        inside.vectorize(lane)
