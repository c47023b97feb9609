"""nn.contrib_conv2d_NCHWc and nn.contrib_depthwise_conv2d_NCHWc: convolution in blocked layouts.

In: data (N, C/ci, H, W, ci) as NCHW{ci}c; weight (O/co, I/ci, KH, KW, ci, co) as OIHW{ci}i{co}o, for depthwise (O/co,
1, KH, KW, 1, co) as OIHW1i{co}o. Out: (N, O/co, OH, OW, co). Invariant: the block sizes are those of the arrays; layout
strings may leave the numbers out. The arithmetic of nn.conv2d, from which back ends make them; scripts call them as
relay.nn.contrib_conv2d_nchwc too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    known,
    need_dtype,
    need_rank,
    reduce_axes,
    te_pad,
    wide,
    widened_product,
    window_count,
)
from armillary.ops.nn.conv import Conv2DAttrs, convolve, image_size, result_dtype, window
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Follows
from armillary.relay.op.macs import convolution_macs
from armillary.relay.types import ANY_DIM, TensorType, Type


@record
class BlockedConv2DAttrs(Conv2DAttrs):
    """The attributes of nn.conv2d, with blocked layouts."""

    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW8i8o"
    choice: str = ""  # target/choice.py


@record
class BlockedDepthwiseAttrs(Conv2DAttrs):
    """The attributes of nn.conv2d, with blocked layouts."""

    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW1i8o"
    choice: str = ""


conv2d_blocked = Op(
    "nn.contrib_conv2d_NCHWc",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="A convolution of channels in blocks.",
)
depthwise_blocked = Op(
    "nn.contrib_depthwise_conv2d_NCHWc",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="A depthwise convolution of channels in blocks.",
)
conv2d_blocked.attrs(BlockedConv2DAttrs)
depthwise_blocked.attrs(BlockedDepthwiseAttrs)
conv2d_blocked.macs(convolution_macs)
depthwise_blocked.macs(convolution_macs)
conv2d_blocked.decompose(partial(widened_product, conv2d_blocked))
depthwise_blocked.decompose(partial(widened_product, depthwise_blocked))


def _result(op: str, attrs: Conv2DAttrs, x: TensorType, w: TensorType) -> TensorType:
    """The output type, once the channels are known to agree."""
    need_dtype(op, x, w) if not attrs.out_dtype else None
    size = image_size(op, attrs, x, w.shape[2:4])
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[5]), result_dtype(attrs, x))


@conv2d_blocked.infer
def _infer(attrs: BlockedConv2DAttrs, data: Type, weight: Type) -> TensorType:
    op = conv2d_blocked.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 6, "weight")
    blocks, ci = known(x.shape[1]), known(x.shape[4])
    o_blocks, i_blocks, wi = (known(w.shape[n]) for n in (0, 1, 4))
    if None not in (blocks, ci, i_blocks, wi) and (ci != wi or blocks != i_blocks * attrs.groups):  # type: ignore[operator]
        raise TypeMismatch(
            f"{op}: the weight takes {i_blocks} blocks of {wi} channels per group, the data has {blocks} of {ci} "
            f"in {attrs.groups} groups"
        )
    if o_blocks is not None and o_blocks % attrs.groups:
        raise TypeMismatch(f"{op}: {o_blocks} output blocks cannot be divided into {attrs.groups} groups")
    return _result(op, attrs, x, w)


@depthwise_blocked.infer
def _infer_depthwise(attrs: BlockedDepthwiseAttrs, data: Type, weight: Type) -> TensorType:
    op = depthwise_blocked.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 6, "weight")
    if (w.shape[1], w.shape[4]) != (1, 1):
        raise TypeMismatch(f"{op}: the weight must be (O/co, 1, KH, KW, 1, co), got {w.shape}")
    if ANY_DIM not in (x.shape[1], x.shape[4], w.shape[0], w.shape[5]):
        channels, units = known(x.shape[1]) * known(x.shape[4]), known(w.shape[0]) * known(w.shape[5])  # type: ignore[operator]
        if units % channels:
            raise TypeMismatch(f"{op}: {units} output channels are no multiple of {channels} input channels")
    return _result(op, attrs, x, w)


def unblock(x: Array) -> Array:
    """(N, C/c, H, W, c) -> (N, C, H, W)."""
    n, blocks, h, w, c = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, blocks * c, h, w)


def unblock_weight(w: Array) -> Array:
    """(O/o, I/i, KH, KW, i, o) -> (O, I, KH, KW)."""
    ob, ib, kh, kw, i, o = w.shape
    return w.transpose(0, 5, 1, 4, 2, 3).reshape(ob * o, ib * i, kh, kw)


def _reference(op: str, attrs: Conv2DAttrs, data: Array, weight: Array) -> Array:
    dtype = result_dtype(attrs, data).numpy
    if np.issubdtype(dtype, np.integer):
        data, weight = data.astype(dtype), weight.astype(dtype)
    x = unblock(data)
    groups = x.shape[1] if op == depthwise_blocked.name else attrs.groups
    y = convolve(wide(x), wide(unblock_weight(weight)), window(op, attrs, 2), groups)
    blocked = y.reshape(y.shape[0], weight.shape[0], weight.shape[5], *y.shape[2:]).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked).astype(dtype)


def output_shape(attrs: Conv2DAttrs, data: Tensor, weight: Tensor) -> tuple[te.Expr, ...]:
    """(N, O/co, OH, OW, co) of a blocked convolution."""
    win = window("nn.contrib_conv2d_NCHWc", attrs, 2)
    size = [
        window_count(data.shape[2 + a], win.pads[a], weight.shape[2 + a], win.strides[a], win.dilation[a])
        for a in range(2)
    ]
    return (data.shape[0], weight.shape[0], *size, weight.shape[5])


@conv2d_blocked.compute
def _compute(attrs: BlockedConv2DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win, dtype = window(conv2d_blocked.name, attrs, 2), result_dtype(attrs, data)
    padded = te_pad(data, [(0, 0), (0, 0), *win.pads, (0, 0)])
    o_blocks, i_blocks, kh, kw, ci, _ = weight.shape
    ico, ry, rx, ici = reduce_axes([i_blocks, kh, kw, ci], ["ic_outer", "kh", "kw", "ic_inner"])
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        block = ico if attrs.groups == 1 else ob // (o_blocks // attrs.groups) * i_blocks + ico
        lhs = padded(n, block, y * sy + ry * dy, x * sx + rx * dx, ici)
        return te.sum(lhs.astype(dtype) * weight(ob, ico, ry, rx, ici, oi).astype(dtype), axis=[ico, ry, rx, ici])

    result: Tensor = te.compute(output_shape(attrs, data, weight), element, name="conv2d_NCHWc", tag="conv2d_NCHWc")
    return result


@depthwise_blocked.compute
def _compute_depthwise(attrs: BlockedDepthwiseAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win, dtype = window(depthwise_blocked.name, attrs, 2), result_dtype(attrs, data)
    padded = te_pad(data, [(0, 0), (0, 0), *win.pads, (0, 0)])
    blocks, ci = te.static_shape(data)[1], te.static_shape(data)[4]
    o_blocks, _, kh, kw, _, co = te.static_shape(weight)
    multiplier = o_blocks * co // (blocks * ci)
    ry, rx = reduce_axes([kh, kw], ["kh", "kw"])
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        block, lane = ob, oi
        if multiplier > 1 or ci != co:
            channel = (ob * co + oi) // multiplier
            block, lane = channel // ci, channel % ci
        lhs = padded(n, block, y * sy + ry * dy, x * sx + rx * dx, lane)
        return te.sum(lhs.astype(dtype) * weight(ob, 0, ry, rx, 0, oi).astype(dtype), axis=[ry, rx])

    tag = "depthwise_conv2d_NCHWc"
    result: Tensor = te.compute(output_shape(attrs, data, weight), element, name=tag, tag=tag)
    return result


conv2d_blocked.reference(lambda attrs, data, weight: _reference(conv2d_blocked.name, attrs, data, weight))
depthwise_blocked.reference(lambda attrs, data, weight: _reference(depthwise_blocked.name, attrs, data, weight))


@conv2d_blocked.samples
def _samples() -> Iterator[Sample]:
    yield Sample(BlockedConv2DAttrs(padding=(1, 1)), (f32(1, 2, 6, 5, 8), f32(1, 2, 3, 3, 8, 8)))
    stem = BlockedConv2DAttrs(strides=(2, 2), data_layout="NCHW3c", kernel_layout="OIHW3i8o")
    yield Sample(stem, (f32(1, 1, 7, 7, 3), f32(2, 1, 3, 3, 3, 8)))
    grouped = BlockedConv2DAttrs(groups=2, data_layout="NCHW4c", kernel_layout="OIHW4i4o")
    yield Sample(grouped, (f32(1, 4, 4, 4, 4), f32(2, 2, 3, 3, 4, 4)))


@depthwise_blocked.samples
def _samples_depthwise() -> Iterator[Sample]:
    yield Sample(BlockedDepthwiseAttrs(groups=16, padding=(1, 1)), (f32(1, 2, 6, 6, 8), f32(2, 1, 3, 3, 1, 8)))
    wider = BlockedDepthwiseAttrs(groups=8, strides=(2, 2), data_layout="NCHW4c")
    yield Sample(wider, (f32(1, 2, 5, 5, 4), f32(2, 1, 3, 3, 1, 8)))


@conv2d_blocked.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(BlockedConv2DAttrs(), (f32(1, 2, 6, 6, 8), f32(1, 1, 3, 3, 8, 8)), "takes 1 blocks of 8 channels")
    yield BadSample(BlockedConv2DAttrs(), (f32(1, 16, 6, 6), f32(1, 1, 3, 3, 8, 8)), "must have 5 dimensions")


@depthwise_blocked.bad_samples
def _bad_depthwise() -> Iterator[BadSample]:
    yield BadSample(BlockedDepthwiseAttrs(), (f32(1, 2, 6, 6, 8), f32(2, 1, 3, 3, 8, 8)), "must be (O/co, 1, KH, KW")


state("nn.contrib_conv2d_NCHWc nn.contrib_depthwise_conv2d_NCHWc", follows=Follows.ASKED)
