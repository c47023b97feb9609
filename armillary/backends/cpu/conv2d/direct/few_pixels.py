"""Convolutions of few output pixels whose image has open sides: one product over the pixels of all images.

In: a fused function anchored at nn.contrib_conv2d_NCHWc whose choice is conv2d.gathered. Out: what each pixel reads
lies side by side (as im2col, in blocks of channels); tiles of pixels, which know no lines, times vectors of channels;
the epilogue reads the sums. Invariant: each weight is read once for all pixels, in the order in which it lies, and taps
that lie on padding for all of them are not read. Lines of a few pixels leave tiles half empty, and read all weights for
each line; a copy of the data costs a few hundredths of the products. When: `by_pixels`.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import te
from armillary.backends.cpu.conv2d.direct.space import FEWEST_PIXELS, GATHERED, can_gather
from armillary.backends.cpu.elementwise.default import schedule_stage
from armillary.backends.cpu.loops import accumulators, inline_others, static_extent
from armillary.backends.cpu.space import chosen, tile_of
from armillary.backends.registry import Fused, Version, Versions, implement
from armillary.backends.workload import Workload
from armillary.ops.nn.conv import Conv2DAttrs, result_dtype, window
from armillary.ops.nn.conv_blocked import output_shape
from armillary.relay.expr import Call, shape_of
from armillary.relay.infer import infer_type
from armillary.target.choice import Choice
from armillary.target.cpu import cpu_model
from armillary.tir import build as T

GROUPS = 8  # of blocks of channels, which threads share: each reads the data of a part of the sum once


def by_pixels(call: Call, workload: Workload) -> Versions | None:
    """Gathered where all images together have few pixels, in lines of an image where they have more."""
    shape = shape_of(call)
    if shape is None or not workload.is_sized or not can_gather(workload.typical):
        return None
    few = Call(call.op, call.args, replace(call.attrs, choice=str(Choice(GATHERED.name))), call.span)
    infer_type(few)
    return Versions(shape[0] * shape[2] * shape[3], FEWEST_PIXELS, (Version(few),), call)


def gathered_compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The convolution as a product of what its pixels read, of all images one after another, and the weights."""
    win, dtype = window("nn.contrib_conv2d_NCHWc", attrs, 2), result_dtype(attrs, data)
    _, i_blocks, kh, kw, ci, co = te.static_shape(weight)
    batch, o_blocks, height, width, _ = shape = output_shape(attrs, data, weight)
    (sy, sx), (dy, dx), ((top, _), (left, _)) = win.strides, win.dilation, win.pads
    lines, columns = data.shape[2], data.shape[3]

    def gather(block: te.Expr, ry: te.Expr, rx: te.Expr, pixel: te.Expr, lane: te.Expr) -> te.Expr:
        image, row = pixel // (height * width), pixel // width % height * sy + ry * dy - top
        column = pixel % width * sx + rx * dx - left
        inside = te.all(row >= 0, row < T.convert(lines), column >= 0, column < T.convert(columns))
        return te.if_then_else(inside, data(image, block, row, column, lane), te.const(0.0, data.dtype))

    pixels = batch * height * width
    read = te.compute((i_blocks, kh, kw, pixels, ci), gather, name="pixels", tag="gathered_pixels")
    extents = {"ic_outer": i_blocks, "kh": kh, "kw": kw, "ic_inner": ci}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    ico, ry, rx, ici = (axis.var for axis in axes)

    def touches(tap: te.Expr, step: int, pad: int, stride: int, size: te.Expr, count: te.Expr) -> te.Expr:
        """Whether some output's tap lies on the data: the first one's not behind it, the last one's not before it."""
        return te.all(tap * step < size + pad, tap * step + (count - 1) * stride >= pad)

    on_data = te.all(touches(ry, dy, top, sy, lines, height), touches(rx, dx, left, sx, columns, width))

    def multiply(block: te.Expr, pixel: te.Expr, lane: te.Expr) -> te.Expr:
        product = read(ico, ry, rx, pixel, ici).astype(dtype) * weight(block, ico, ry, rx, ici, lane).astype(dtype)
        return te.sum(product, axis=axes, where=on_data)

    sums = te.compute((o_blocks, pixels, co), multiply, name="sums", tag="gathered_sums")
    result: te.Tensor = te.compute(
        shape, lambda n, o, y, x, j: sums(o, (n * height + y) * width + x, j), name="conv2d", tag="conv2d_gathered"
    )
    return result


@implement("gathered", family="cpu", compute=gathered_compute)
def gathered(schedule: te.Schedule, fused: Fused) -> None:
    """The copy, the product in parts of the sum, what follows."""
    cpu, (conv,) = cpu_model(fused.workload.target), fused.anchor
    (sums,) = conv.op.input_tensors
    read = next(t for t in sums.op.input_tensors if t.op.tag == "gathered_pixels")
    inline_others(schedule, fused, (sums, read))
    for output in fused.outputs:
        schedule_stage(schedule, output, cpu)
    copy = schedule[read]
    block, ry, rx, pixel, lane = copy.op.axis
    copy.reorder(pixel, block, ry, rx, lane)  # so that a pixel's place is computed once
    copy.vectorize(lane)
    copy.parallel(pixel)
    tile = tile_of(chosen(fused.workload, GATHERED))
    _, *parts = accumulators(schedule, sums)
    inside = parts[0] if parts else schedule[schedule.cache_write(sums, "local")]
    whole = schedule[sums]
    blocks, pixel, lane = whole.op.axis
    group, blocks = whole.split(blocks, nparts=min(GROUPS, static_extent(blocks)))
    blocks, block = whole.split(blocks, factor=tile.vectors)
    pixels, pixel = whole.split(pixel, factor=tile.rows)
    whole.reorder(group, *whole.op.reduce_axis, blocks, pixels, block, pixel, lane)
    whole.parallel(group)
    inside.compute_at(whole, pixels)
    *_, inner_block, inner_pixel, inner_lane = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, inner_pixel, inner_block, inner_lane)
    for stage, axes in ((whole, (block, pixel, lane)), (inside, (inner_block, inner_pixel, inner_lane))):
        stage.unroll(axes[0])
        stage.unroll(axes[1])
        stage.vectorize(axes[2])
