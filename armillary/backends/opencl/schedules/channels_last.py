"""Convolutions on NHWC4c: the direct sum on blocks of four channels that lie last, for GPUs that read textures.

In: nn.conv2d with data NHWC4c and weights HWIO4o, or HWOI4o where each channel is a group of its own. Out: one
reduction (N, OH, OW, O/4, 4), tagged conv2d_NHWCc, whose axes of sums are (blocks, rows of taps, taps, channels of a
block) as in NCHW4c; depthwise ones have rows of taps and taps alone. Invariant: the numbers of nn.conv2d. The schedule
is that of texels.py; which networks get these layouts: graph/block_channels.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.texels import conv2d_texels, objection_to_pixels
from armillary.backends.registry import implement
from armillary.backends.workload import Workload
from armillary.ops.nn._windows import reduce_axes, te_pad, window_count
from armillary.ops.nn.conv import Conv2DAttrs, result_dtype, window
from armillary.relay.types import TensorType
from armillary.target.texture import LAST_CHANNELS, PIXEL

DENSE, DEPTHWISE = f"HWIO{PIXEL}o", f"HWOI{PIXEL}o"


def _objection(workload: Workload) -> str | None:
    attrs = workload.attrs
    if attrs.data_layout != LAST_CHANNELS or attrs.out_layout not in ("", LAST_CHANNELS):
        return ""  # of other layouts nobody would ask
    message = objection_to_pixels(workload)
    if message or attrs.kernel_layout not in (DENSE, DEPTHWISE):
        return message or f"its weights are {attrs.kernel_layout}"
    data, weight = (t.static for t in workload.types[:2] if isinstance(t, TensorType))
    if attrs.kernel_layout == DEPTHWISE:
        return None if attrs.groups == data[3] * PIXEL == weight[2] * PIXEL else "its groups are of several channels"
    return None if not weight[2] % PIXEL and not weight[3] % attrs.groups else "its groups are not of whole blocks"


def _compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    win, dtype = window("nn.conv2d", attrs, 2), result_dtype(attrs, data)
    padded = te_pad(data, [(0, 0), *win.pads, (0, 0), (0, 0)])
    is_depthwise = attrs.kernel_layout == DEPTHWISE
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


implement("nn.conv2d", family="opencl", name="conv2d_channels_last", when=_objection, compute=_compute, priority=20)(
    conv2d_texels
)
