"""Convolutions on NHWC4c: the direct sum on blocks of four channels that lie last, for GPUs that read textures.

In: nn.conv2d with data NHWC4c and weights HWIO4o, or HWOI4o where each channel is a group of its own. Out: one
reduction (N, OH, OW, O/4, 4), tagged conv2d_NHWCc, whose axes of sums are (blocks, rows of taps, taps, channels of a
block) as in NCHW4c; depthwise ones have rows of taps and taps alone. Invariant: the numbers of nn.conv2d. The schedule
is that of texels.py; which networks get these layouts: graph/block_channels.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.algorithms import LAST_DEPTHWISE_KERNEL
from armillary.backends.opencl.schedules.texels import conv2d_texels
from armillary.backends.registry import implement
from armillary.ops.nn._windows import reduce_axes, te_pad, window_count
from armillary.ops.nn.conv import Conv2DAttrs, result_dtype, window
from armillary.target.texture import PIXEL


def _compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    win, dtype = window("nn.conv2d", attrs, 2), result_dtype(attrs, data)
    padded = te_pad(data, [(0, 0), *win.pads, (0, 0), (0, 0)])
    is_depthwise = attrs.kernel_layout == LAST_DEPTHWISE_KERNEL
    taps, blocks = list(weight.shape[:2]), weight.shape[2 if is_depthwise else 3]
    summed = [] if is_depthwise else [te.static_shape(weight)[2] // PIXEL]  # blocks of a group
    outer = reduce_axes(summed, ["ic_outer"] if summed else [])
    ry, rx = reduce_axes(taps, ["kh", "kw"])
    inner = reduce_axes([PIXEL] if summed else [], ["ic_inner"] if summed else [])
    (sy, sx), (dy, dx) = win.strides, win.dilation
    size = [window_count(data.shape[1 + a], win.pads[a], taps[a], win.strides[a], win.dilation[a]) for a in range(2)]

    def element(n: te.Expr, y: te.Expr, x: te.Expr, block: te.Expr, lane: te.Expr) -> te.Expr:
        place = (n, y * sy + ry * dy, x * sx + rx * dx)
        if is_depthwise:
            lhs, rhs = padded(*place, block, lane), weight(ry, rx, block, 0, lane)
        else:
            first = 0 if attrs.groups == 1 else block // (blocks // attrs.groups) * summed[0]
            lhs = padded(*place, first + outer[0], inner[0])
            rhs = weight(ry, rx, outer[0] * PIXEL + inner[0], block, lane)
        return te.sum(lhs.astype(dtype) * rhs.astype(dtype), axis=[*outer, ry, rx, *inner])

    shape = [data.shape[0], *size, blocks, te.const(PIXEL)]
    result: te.Tensor = te.compute(shape, element, name="conv2d_nhwc", tag="conv2d_NHWCc")
    return result


implement("conv2d_channels_last", family="opencl", compute=_compute)(conv2d_texels)
