"""cpu.conv2d_first_layer_NCHWc_bf16: convolution of an image of few channels in bfloat16, for matrix tiles.

In: data (N, C, H, W) of float32, which is rounded, or bfloat16; weight bfloat16 (O/co, KH, groups, 16, co, 2): of a
line of the window and a group of `together` channels 32 numbers, those of a column side by side; of the columns behind
the last of `kernel_size`, too, which are zeros. Out: float32 sums (N, O/co, OH, OW, co). Invariant: the columns of a
window, a group of channels each, fit one row of a tile. Made by alter-op-layout from nn.conv2d of bfloat16: the first
layer of most networks. Schedule: conv2d/amx_first_layer/schedule.py. More channels: operator_bfloat16.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._dot_operands import BFLOAT16, BFLOATS
from armillary.ops.nn._windows import Tensor, known, need_rank, reduce_axes, te_pad, tensor, window_count
from armillary.ops.nn.conv import Conv2DAttrs, Window, convolve, image_size, window
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

ROW = 32  # numbers that one row of a tile has room for
PAIR, QUAD = 2, 4  # channels of a group


@record
class FirstLayerConv2DAttrs(Conv2DAttrs):
    """The attributes of nn.conv2d of one group, not dilated; `kernel_size` says how many columns are no zeros."""

    out_layout: str = "NCHW16c"
    out_dtype: str = "float32"
    together: int = PAIR


conv2d_first_layer = Op("cpu.conv2d_first_layer_NCHWc_bf16", kind=Kind.CONTRACTION, inputs=("data", "weight"))
conv2d_first_layer.attrs(FirstLayerConv2DAttrs)


@conv2d_first_layer.macs
def _macs(attrs: FirstLayerConv2DAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """Each output element reads all channels of a window; what fills up its rows are zeros."""
    return result.size * types[0].static[1] * math.prod(attrs.kernel_size or ())


@conv2d_first_layer.infer
def _infer(attrs: FirstLayerConv2DAttrs, data: Type, weight: Type) -> TensorType:
    op = conv2d_first_layer.name
    x = need_rank(op, data, 4)
    w = need_rank(op, weight, 6, "weight")
    if x.dtype not in ("float32", BFLOAT16) or (w.dtype, attrs.out_dtype) != (BFLOAT16, "float32"):
        raise TypeMismatch(f"{op}: data of {x.dtype}, weight of {w.dtype}; wanted float32 or bfloat16, and bfloat16")
    kernel, channels, together = attrs.kernel_size or (0, 0), known(x.shape[1]) or 0, attrs.together
    if together not in (PAIR, QUAD):
        raise TypeMismatch(f"{op}: together is {together}, wanted {PAIR} or {QUAD} channels")
    wanted = (w.shape[0], kernel[0], -(-channels // together), ROW // BFLOATS, w.shape[4], BFLOATS)
    if w.shape != wanted or not 0 < kernel[1] <= ROW // together:
        raise TypeMismatch(f"{op}: the weight is {w.shape}, wanted {wanted} by kernel_size {attrs.kernel_size}")
    if window(op, attrs, 2).dilation != (1, 1) or attrs.groups != 1:
        raise TypeMismatch(f"{op}: got dilation {attrs.dilation} and {attrs.groups} groups, wanted 1 of both")
    size = image_size(op, attrs, x, kernel)
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[4]), DType(attrs.out_dtype))


def channels_together(channels: int, columns: int) -> int:
    """How many channels of a pixel lie side by side: a row of a tile has room for all columns of a window."""
    return QUAD if channels > PAIR and columns * QUAD <= ROW else PAIR


def rows_of_windows(weight: Array, block: int, together: int) -> Array:
    """A weight (O, I, KH, KW) with the columns of a line side by side, in groups of channels."""
    outputs, inputs, kh, kw = weight.shape
    filled = np.pad(weight, ((0, 0), (0, -inputs % together), (0, 0), (0, ROW // together - kw)))
    parts = filled.reshape(outputs // block, block, -1, together, kh, ROW // together)
    rows = parts.transpose(0, 1, 4, 2, 5, 3).reshape(outputs // block, block, kh, -1, ROW // BFLOATS, BFLOATS)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 4, 1, 5))


def _taps(attrs: FirstLayerConv2DAttrs) -> tuple[int, ...]:
    if attrs.kernel_size is None:
        raise TypeMismatch(f"{conv2d_first_layer.name}: kernel_size is not given")
    return attrs.kernel_size


def _whole(attrs: FirstLayerConv2DAttrs) -> Window:
    """The window with all columns that the weight has; those behind the last of `kernel_size` reach further right."""
    win, more = window(conv2d_first_layer.name, attrs, 2), ROW // attrs.together - _taps(attrs)[1]
    (left, right) = win.pads[1]
    return Window(win.strides, win.dilation, (win.pads[0], (left, right + more)))


@conv2d_first_layer.reference
def _reference(attrs: FirstLayerConv2DAttrs, data: Array, weight: Array) -> Array:
    x, w = data.astype(DType(BFLOAT16).numpy).astype(np.float32), weight.astype(np.float32)
    blocks, kh, groups, _, co, _ = w.shape
    rows = w.transpose(0, 4, 1, 2, 3, 5).reshape(blocks * co, kh, groups, ROW // attrs.together, attrs.together)
    w = rows.transpose(0, 2, 4, 1, 3).reshape(blocks * co, groups * attrs.together, kh, -1)
    y = convolve(x, w[:, : x.shape[1]], _whole(attrs), 1)
    return np.ascontiguousarray(y.reshape(y.shape[0], blocks, co, *y.shape[2:]).transpose(0, 1, 3, 4, 2))


def result_shape(attrs: FirstLayerConv2DAttrs, data: Tensor, weight: Tensor) -> tuple[int, ...]:
    """(N, O/co, OH, OW, co)."""
    win = window(conv2d_first_layer.name, attrs, 2)
    size = [
        window_count(te.static_shape(data)[2 + a], win.pads[a], _taps(attrs)[a], win.strides[a], win.dilation[a])
        for a in range(2)
    ]
    wide = te.static_shape(weight)
    return (te.static_shape(data)[0], wide[0], *size, wide[4])


@conv2d_first_layer.compute
def _compute(attrs: FirstLayerConv2DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win, (kh, _) = _whole(attrs), attrs.kernel_size or (0, 0)
    padded = te_pad(data, [(0, 0), (0, 0), *win.pads])
    extents = [te.static_shape(data)[1], kh, ROW // attrs.together]
    channel, ry, rx = axes = reduce_axes(extents, ["ic", "kh", "kw"])
    (sy, sx) = win.strides

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        lhs = padded(n, channel, y * sy + ry, x * sx + rx).astype(BFLOAT16).astype("float32")
        place = rx * attrs.together + channel % attrs.together
        of = (ob, ry, channel // attrs.together, place // BFLOATS, oi, place % BFLOATS)
        return te.sum(lhs * weight(*of).astype("float32"), axis=axes)

    result: Tensor = te.compute(
        result_shape(attrs, data, weight), element, name="conv2d_first_layer", tag="conv2d_first_layer"
    )
    return result


@conv2d_first_layer.samples
def _samples() -> Iterator[Sample]:
    stem = FirstLayerConv2DAttrs((2, 2), (1, 1), kernel_size=(3, 3))
    yield Sample(stem, (tensor("float32", 1, 3, 9, 39), tensor(BFLOAT16, 2, 3, 2, 16, 16, 2)))
    wide = FirstLayerConv2DAttrs((1, 2), (2, 1, 0, 3), kernel_size=(2, 7))
    yield Sample(wide, (tensor(BFLOAT16, 2, 1, 7, 12), tensor(BFLOAT16, 1, 2, 1, 16, 32, 2)))
    quads = FirstLayerConv2DAttrs((2, 2), (3, 3), kernel_size=(7, 7), together=QUAD)
    yield Sample(quads, (tensor("float32", 1, 3, 11, 37), tensor(BFLOAT16, 2, 7, 1, 16, 16, 2)))


@conv2d_first_layer.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    attrs, image = FirstLayerConv2DAttrs(kernel_size=(3, 3)), tensor("float32", 1, 3, 6, 6)
    weight = tensor(BFLOAT16, 1, 3, 1, 16, 16, 2)
    yield BadSample(FirstLayerConv2DAttrs(together=3), (image, weight), "together is 3, wanted 2 or 4 channels")
    yield BadSample(attrs, (image, weight), "by kernel_size (3, 3)")
    yield BadSample(attrs, (image, tensor("float32", 1, 3, 2, 16, 16, 2)), "wanted float32 or bfloat16")
    spread = FirstLayerConv2DAttrs(kernel_size=(3, 3), dilation=(1, 2))
    yield BadSample(spread, (image, tensor(BFLOAT16, 1, 3, 2, 16, 16, 2)), "wanted 1 of both")
