"""cpu.conv2d_frames_NCHWc: a blocked convolution whose results each read several images of the batch.

In: data (T, I/ci, H, W, ci), the frames of a film; weight (O/co, frames*I/ci, KH, KW, ci, co), the blocks of the first
frame first. Out: (T', O/co, OH, OW, co), where result t is the convolution of the frames t * frame_stride -
frame_padding[0] + k * frame_dilation for k = 0, 1, ..., side by side as channels; frames outside the data are zero.
Made by frames-conv2d from a concatenation and a convolution. Invariant: the same arithmetic, without the copies.
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
    need_rank,
    need_tensor,
    out_dim,
    te_pad,
    widened_product,
    window_count,
)
from armillary.ops.nn.conv_blocked import BlockedConv2DAttrs, conv2d_blocked
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.op.macs import convolution_macs
from armillary.relay.types import TensorType, Type


@record
class FramesConv2DAttrs(BlockedConv2DAttrs):
    """The attributes of nn.contrib_conv2d_NCHWc, and those of the window over frames."""

    frames: int = 1
    frame_stride: int = 1
    frame_dilation: int = 1
    frame_padding: tuple[int, int] = (0, 0)


conv2d_frames = Op("cpu.conv2d_frames_NCHWc", kind=Kind.CONTRACTION, inputs=("data", "weight"))
conv2d_frames.macs(convolution_macs)
conv2d_frames.attrs(FramesConv2DAttrs)
conv2d_frames.decompose(partial(widened_product, conv2d_frames))


@conv2d_frames.infer
def _infer(attrs: FramesConv2DAttrs, data: Type, weight: Type) -> TensorType:
    op = conv2d_frames.name
    x = need_rank(op, data, 5)
    if attrs.groups != 1:
        raise TypeMismatch(f"{op}: {attrs.groups} groups; frames are gathered for one group only")
    if min(attrs.frames, attrs.frame_stride, attrs.frame_dilation) < 1 or min(attrs.frame_padding) < 0:
        message = f"{attrs.frames}, {attrs.frame_stride}, {attrs.frame_dilation}; {attrs.frame_padding}"
        raise TypeMismatch(
            f"{op}: frames, their stride and dilation are 1 or more, the padding 0 or more, got {message}"
        )
    count = out_dim(op, x.shape[0], attrs.frame_padding, attrs.frames, attrs.frame_stride, attrs.frame_dilation)
    blocks = x.shape[1]
    gathered = (count, blocks * attrs.frames if isinstance(blocks, int) else blocks, *x.shape[2:])
    return need_tensor(op, conv2d_blocked.infer_type(attrs, (TensorType(gathered, x.dtype), weight)))


@conv2d_frames.reference
def _reference(attrs: FramesConv2DAttrs, data: Array, weight: Array) -> Array:
    padded = np.pad(data, [attrs.frame_padding, *[(0, 0)] * 4])
    reach = (attrs.frames - 1) * attrs.frame_dilation
    starts = range(0, len(padded) - reach, attrs.frame_stride)
    frames = [[padded[s + k * attrs.frame_dilation] for k in range(attrs.frames)] for s in starts]
    gathered = np.stack([np.concatenate(each) for each in frames])
    result: Array = conv2d_blocked.evaluate(attrs, (gathered, weight))
    return result


def frame_count(attrs: FramesConv2DAttrs, data: Tensor) -> te.Expr:
    """How many results there are."""
    return window_count(data.shape[0], attrs.frame_padding, attrs.frames, attrs.frame_stride, attrs.frame_dilation)


@conv2d_frames.compute
def _compute(attrs: FramesConv2DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    padded = te_pad(data, [attrs.frame_padding, *[(0, 0)] * 4])
    blocks = data.shape[1]

    def element(t: te.Expr, block: te.Expr, y: te.Expr, x: te.Expr, c: te.Expr) -> te.Expr:
        frame = t * attrs.frame_stride + block // blocks * attrs.frame_dilation
        return padded(frame, block % blocks, y, x, c)

    shape = (frame_count(attrs, data), blocks * attrs.frames, *data.shape[2:])
    gathered = te.compute(shape, element, name="frames", tag="injective")
    assert conv2d_blocked.compute_rule is not None, "every convolution has one"
    result: Tensor = conv2d_blocked.compute_rule(attrs, gathered, weight)
    return result


@conv2d_frames.samples
def _samples() -> Iterator[Sample]:
    yield Sample(FramesConv2DAttrs(frames=3, frame_padding=(1, 1)), (f32(4, 1, 3, 5, 8), f32(2, 3, 1, 1, 8, 8)))
    strided = FramesConv2DAttrs(frames=2, frame_stride=2, frame_dilation=2, frame_padding=(1, 0), padding=(1, 1))
    yield Sample(strided, (f32(5, 2, 4, 4, 8), f32(1, 4, 3, 3, 8, 8)))


@conv2d_frames.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    types = (f32(4, 1, 3, 5, 8), f32(2, 3, 1, 1, 8, 8))
    yield BadSample(FramesConv2DAttrs(frames=2), types, "takes 3 blocks of 8 channels per group, the data has 2")
    yield BadSample(FramesConv2DAttrs(frames=3, groups=2), types, "frames are gathered for one group only")
    yield BadSample(FramesConv2DAttrs(frames=6), types, "the window does not fit")
