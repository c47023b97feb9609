"""cpu.conv2d_NCHWc_bf16: convolution of bfloat16 in blocked layouts.

In: data (N, C/ci, H, W, ci) of bfloat16, ci even, as NCHW{ci}c; weight bfloat16 (O/co, I/ci, KH, KW, ci/2, co, 2): what
one dot product takes lies together. Its blocks may be longer than the data's, a multiple of them, with zeros behind the
last channel: matrix tiles take 32. Out: float32 sums (N, O/co, OH, OW, co). Invariant: only inputs are rounded,
products and sums are float32. Made by alter-op-layout from nn.conv2d of bfloat16. Schedules: direct/schedule.py,
amx/schedule.py. Bytes: operator_bytes.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._dot_operands import BFLOATS
from armillary.ops.nn._windows import Tensor, known, need_rank, reduce_axes, te_pad, tensor
from armillary.ops.nn.conv import Conv2DAttrs, convolve, image_size, window
from armillary.ops.nn.conv_blocked import output_shape, unblock
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.op.macs import convolution_macs
from armillary.relay.types import TensorType, Type


@record
class Bfloat16Conv2DAttrs(Conv2DAttrs):
    """The attributes of nn.conv2d of one group, with blocked layouts."""

    data_layout: str = "NCHW32c"
    kernel_layout: str = "OIHW16i32o2i"
    out_dtype: str = "float32"


conv2d_bf16 = Op("cpu.conv2d_NCHWc_bf16", kind=Kind.CONTRACTION, inputs=("data", "weight"))
conv2d_bf16.macs(convolution_macs)
conv2d_bf16.attrs(Bfloat16Conv2DAttrs)


@conv2d_bf16.infer
def _infer(attrs: Bfloat16Conv2DAttrs, data: Type, weight: Type) -> TensorType:
    op = conv2d_bf16.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 7, "weight")
    if (x.dtype, w.dtype, attrs.out_dtype) != ("bfloat16", "bfloat16", "float32"):
        raise TypeMismatch(
            f"{op}: data of {x.dtype}, weight of {w.dtype}, sums of {attrs.out_dtype}; wanted bfloat16 and float32"
        )
    blocks, ci = known(x.shape[1]), known(x.shape[4])
    i_blocks, pairs, taken = (known(w.shape[n]) for n in (1, 4, 6))
    own = BFLOATS * (pairs or 0)
    if (
        taken != BFLOATS
        or attrs.groups != 1
        or not (ci and own)
        or own % ci
        or i_blocks != -(-(blocks or 0) * ci // own)
    ):
        raise TypeMismatch(
            f"{op}: the weight takes {i_blocks} blocks of {pairs} times {taken} channels, the data has {blocks} of "
            f"{ci} in {attrs.groups} groups"
        )
    size = image_size(op, attrs, x, w.shape[2:4])
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[5]), DType(attrs.out_dtype))


@conv2d_bf16.reference
def _reference(attrs: Bfloat16Conv2DAttrs, data: Array, weight: Array) -> Array:
    x, w = unblock(data.astype(np.float32)), weight.astype(np.float32)
    ob, ib, kh, kw, pairs, co, _ = w.shape
    w = w.transpose(0, 5, 1, 4, 6, 2, 3).reshape(ob * co, ib * pairs * BFLOATS, kh, kw)[:, : x.shape[1]]
    y = convolve(x, w, window(conv2d_bf16.name, attrs, 2), 1)
    return np.ascontiguousarray(y.reshape(y.shape[0], ob, co, *y.shape[2:]).transpose(0, 1, 3, 4, 2))


@conv2d_bf16.compute
def _compute(attrs: Bfloat16Conv2DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win = window(conv2d_bf16.name, attrs, 2)
    padded = te_pad(data, [(0, 0), (0, 0), *win.pads, (0, 0)])
    _, _, kh, kw, pairs, _, _ = te.static_shape(weight)
    blocks, ci = te.static_shape(data)[1], te.static_shape(data)[4]
    own = pairs * BFLOATS
    channel, ry, rx = axes = reduce_axes([blocks * ci, kh, kw], ["ic", "kh", "kw"])
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        lhs = padded(n, channel // ci, y * sy + ry * dy, x * sx + rx * dx, channel % ci)
        of = (channel // own, ry, rx, channel % own // BFLOATS, oi, channel % BFLOATS)
        return te.sum(lhs.astype("float32") * weight(ob, *of).astype("float32"), axis=axes)

    result: Tensor = te.compute(output_shape(attrs, data, weight), element, name="conv2d_bf16", tag="conv2d_bf16")
    return result


def _half(*shape: int) -> TensorType:
    return tensor("bfloat16", *shape)


@conv2d_bf16.samples
def _samples() -> Iterator[Sample]:
    yield Sample(Bfloat16Conv2DAttrs(padding=(1, 1)), (_half(1, 2, 6, 5, 8), _half(1, 2, 3, 3, 4, 8, 2)))
    stem = Bfloat16Conv2DAttrs(strides=(2, 2), padding=(0, 1, 2, 1), dilation=(1, 2))
    yield Sample(stem, (_half(1, 1, 7, 8, 4), _half(2, 1, 3, 3, 2, 16, 2)))
    tiles = _half(1, 3, 5, 4, 16), _half(2, 2, 3, 2, 16, 16, 2)
    yield Sample(Bfloat16Conv2DAttrs(padding=(1, 1), strides=(2, 1)), tiles)
    yield Sample(Bfloat16Conv2DAttrs(), (_half(1, 2, 4, 8, 32), _half(2, 2, 1, 1, 16, 32, 2)))
    yield Sample(Bfloat16Conv2DAttrs(strides=(2, 2)), (_half(1, 1, 5, 37, 32), _half(1, 1, 1, 1, 16, 32, 2)))


@conv2d_bf16.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    weight = _half(1, 1, 3, 3, 4, 8, 2)
    yield BadSample(Bfloat16Conv2DAttrs(), (_half(1, 2, 6, 6, 8), weight), "takes 1 blocks of 4 times 2 channels")
    yield BadSample(Bfloat16Conv2DAttrs(), (tensor("float32", 1, 1, 6, 6, 8), weight), "wanted bfloat16 and float32")
