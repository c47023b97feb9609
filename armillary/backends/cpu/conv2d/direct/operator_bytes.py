"""cpu.conv2d_NCHWc_int8, cpu.depthwise_conv2d_NCHWc_int8: convolutions of bytes in blocked layouts.

In: data (N, C/ci, H, W, ci) of uint8 or int8, ci a multiple of 4, as NCHW{ci}c; weight int8 (O/co, I/ci, KH, KW, ci/4,
co, 4), or with 8 for 4: what one dot product takes lies together. Its blocks may be longer than the data's, a multiple
of them, with zeros behind the last channel: matrix tiles take 64. A depthwise weight (C/c, KH, KW/4, c, 4) has four
taps of a line together, zeros behind the last; or each alone, int16 (C/c, KH, KW, c, 1). Out: int32 sums (N, O/co, OH,
OW, co). Invariant: they are exact; padding counts as `pad_value`. Made by alter-op-layout from nn.conv2d of bytes; zero
points have been folded before (ops/qnn/_byte_convolutions.py). Schedules: direct/schedule.py, amx/schedule.py,
depthwise/schedule_bytes.py. Floats: ops/nn/conv_blocked.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._dot_operands import BYTES, LONG
from armillary.ops.nn._windows import Tensor, known, need_rank, reduce_axes, te_pad, tensor, window_count
from armillary.ops.nn.conv import Conv2DAttrs, Window, convolve, image_size, window
from armillary.ops.nn.conv_blocked import output_shape, unblock
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.op.macs import convolution_macs
from armillary.relay.types import TensorType, Type


@record
class BytesConv2DAttrs(Conv2DAttrs):
    """The attributes of nn.conv2d, with blocked layouts; `pad_value` is what the padding holds.

    `is_symmetric`: two products of int8 fit 16 bits (_dot_operands.fits_in_pairs).
    """

    data_layout: str = "NCHW16c"
    kernel_layout: str = "OIHW4i16o4i"
    out_dtype: str = "int32"
    pad_value: int = 0
    is_symmetric: bool = False


@record
class BytesDepthwiseAttrs(BytesConv2DAttrs):
    """Those of the convolution, with taps of a line in fours."""

    kernel_layout: str = "OHW16o4w"


depthwise_bytes = Op("cpu.depthwise_conv2d_NCHWc_int8", kind=Kind.CONTRACTION, inputs=("data", "weight"))
depthwise_bytes.attrs(BytesDepthwiseAttrs)
conv2d_bytes = Op("cpu.conv2d_NCHWc_int8", kind=Kind.CONTRACTION, inputs=("data", "weight"))
conv2d_bytes.macs(convolution_macs)
depthwise_bytes.macs(convolution_macs)
conv2d_bytes.attrs(BytesConv2DAttrs)


def _check_dtypes(
    op: str, attrs: BytesConv2DAttrs, x: TensorType, w: TensorType, of_weight: tuple[str, ...] = ("int8",)
) -> None:
    if str(x.dtype) not in ("uint8", "int8") or str(w.dtype) not in of_weight or attrs.out_dtype != "int32":
        raise TypeMismatch(
            f"{op}: data of {x.dtype}, weight of {w.dtype}, sums of {attrs.out_dtype}; "
            f"wanted bytes, {' or '.join(of_weight)} and int32"
        )


@conv2d_bytes.infer
def _infer(attrs: BytesConv2DAttrs, data: Type, weight: Type) -> TensorType:
    op = conv2d_bytes.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 7, "weight")
    _check_dtypes(op, attrs, x, w, ("int8", "uint8") if x.dtype == "uint8" else ("int8",))
    blocks, ci = known(x.shape[1]), known(x.shape[4])
    o_blocks, i_blocks, quads, taken = (known(w.shape[n]) for n in (0, 1, 4, 6))
    own = (taken or 0) * (quads or 0)
    fits = blocks == (i_blocks or 0) * attrs.groups if own == ci else _fits_longer(attrs, blocks, ci, i_blocks, own)
    if taken not in (BYTES, LONG) or not fits:
        raise TypeMismatch(
            f"{op}: the weight takes {i_blocks} blocks of {quads} times {taken} channels per group, the data has "
            f"{blocks} of {ci} in {attrs.groups} groups"
        )
    if o_blocks is not None and o_blocks % attrs.groups:
        raise TypeMismatch(f"{op}: {o_blocks} output blocks cannot be divided into {attrs.groups} groups")
    size = image_size(op, attrs, x, w.shape[2:4])
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[5]), DType(attrs.out_dtype))


def _fits_longer(attrs: BytesConv2DAttrs, blocks: int | None, ci: int | None, i_blocks: int | None, own: int) -> bool:
    """Whether weight blocks of `own` channels, longer than the data's, are as many as the data needs."""
    if None in (blocks, ci, i_blocks) or attrs.groups != 1:
        return False
    return bool(ci and own) and own % ci == 0 and i_blocks == -(-blocks * ci // own)  # type: ignore[operator]


def _unpacked(weight: Array) -> Array:
    """The packed weight as (O, I, KH, KW)."""
    ob, ib, kh, kw, q, co, taken = weight.shape
    return weight.transpose(0, 5, 1, 4, 6, 2, 3).reshape(ob * co, ib * q * taken, kh, kw)


def _unpadded(op: str, attrs: BytesConv2DAttrs, x: Array, w: Array) -> tuple[Array, Array, Window]:
    """Data with its padding written out, the weight, and the window that is left."""
    win = window(op, attrs, 2)
    padded = np.pad(x, ((0, 0), (0, 0), *win.pads), constant_values=attrs.pad_value)
    return padded, w, Window(win.strides, win.dilation, ((0, 0), (0, 0)))


@conv2d_bytes.reference
def _reference(attrs: BytesConv2DAttrs, data: Array, weight: Array) -> Array:
    x, w = unblock(data.astype(np.int32)), _unpacked(weight.astype(np.int32))
    w = w[:, : x.shape[1] // attrs.groups]
    y = convolve(*_unpadded(conv2d_bytes.name, attrs, x, w), attrs.groups)
    o_blocks, block = weight.shape[0], weight.shape[5]
    blocked = y.reshape(y.shape[0], o_blocks, block, *y.shape[2:]).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked)


@conv2d_bytes.compute
def _compute(attrs: BytesConv2DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win = window(conv2d_bytes.name, attrs, 2)
    padded = te_pad(data, [(0, 0), (0, 0), *win.pads, (0, 0)], attrs.pad_value)
    o_blocks, _, kh, kw, quads, _, taken = te.static_shape(weight)
    blocks, ci = (T.as_int(data.shape[axis]) or 0 for axis in (1, 4))  # both are numbers: infer compared them
    per_group = blocks * ci // attrs.groups
    own = quads * taken
    channel, ry, rx = axes = reduce_axes([per_group, kh, kw], ["ic", "kh", "kw"])
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        place = channel if attrs.groups == 1 else ob // (o_blocks // attrs.groups) * per_group + channel
        lhs = padded(n, place // ci, y * sy + ry * dy, x * sx + rx * dx, place % ci)
        of = (channel // own, ry, rx, channel % own // taken, oi, channel % taken)
        return te.sum(lhs.astype("int32") * weight(ob, *of).astype("int32"), axis=axes)

    result: Tensor = te.compute(output_shape(attrs, data, weight), element, name="conv2d_bytes", tag="conv2d_bytes")
    return result


@conv2d_bytes.samples
def _samples() -> Iterator[Sample]:
    u8, i8 = tensor("uint8", 1, 2, 6, 5, 8), tensor("int8", 1, 2, 3, 3, 2, 8, 4)
    yield Sample(BytesConv2DAttrs(padding=(1, 1)), (u8, i8), domain=(-128, 255))
    stem = BytesConv2DAttrs(strides=(2, 2), padding=(0, 1, 2, 1), dilation=(1, 2), pad_value=7)
    yield Sample(stem, (tensor("uint8", 1, 1, 7, 8, 4), tensor("int8", 2, 1, 3, 3, 1, 16, 4)), domain=(-128, 255))
    tiles = tensor("uint8", 1, 6, 5, 4, 16), tensor("int8", 2, 2, 3, 2, 16, 16, 4)
    yield Sample(BytesConv2DAttrs(padding=(1, 1), strides=(2, 1), pad_value=3), tiles, domain=(-128, 255))
    longer = tensor("uint8", 1, 2, 5, 6, 8), tensor("int8", 2, 2, 3, 3, 1, 8, 8)  # words of eight
    yield Sample(BytesConv2DAttrs(padding=(1, 1)), longer, domain=(-128, 255))
    grouped = BytesConv2DAttrs(groups=2)
    yield Sample(grouped, (tensor("int8", 1, 4, 4, 4, 4), tensor("int8", 2, 2, 3, 3, 1, 4, 4)), domain=(-128, 127))


@conv2d_bytes.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    u8, i8 = tensor("uint8", 1, 2, 6, 6, 8), tensor("int8", 1, 1, 3, 3, 2, 8, 4)
    yield BadSample(BytesConv2DAttrs(), (u8, i8), "takes 1 blocks of 2 times 4 channels")
    yield BadSample(BytesConv2DAttrs(), (tensor("float32", 1, 1, 6, 6, 8), i8), "wanted bytes, int8 and int32")


# --- depthwise --------------------------------------------------------------------------------------------------------


@depthwise_bytes.infer
def _infer_depthwise(attrs: BytesDepthwiseAttrs, data: Type, weight: Type) -> TensorType:
    op = depthwise_bytes.name
    x = need_rank(op, data, 5)
    w = need_rank(op, weight, 5, "weight")
    taken = 1 if w.shape[4] == 1 else BYTES
    _check_dtypes(op, attrs, x, w, ("int16",) if taken == 1 else ("int8",))
    kh, kw = attrs.kernel_size or (0, 0)
    wanted = (x.shape[1], kh, -(-kw // taken), x.shape[4], taken)
    if w.shape != wanted:
        raise TypeMismatch(f"{op}: the weight is {w.shape}, wanted {wanted} by kernel_size {attrs.kernel_size}")
    size = image_size(op, attrs, x, tap_counts(attrs))
    return TensorType((x.shape[0], x.shape[1], *size, x.shape[4]), DType(attrs.out_dtype))


def tap_counts(attrs: BytesConv2DAttrs) -> tuple[int, int]:
    """Lines and columns of a depthwise window; the weight has columns in fours."""
    if attrs.kernel_size is None:
        raise TypeMismatch(f"{depthwise_bytes.name}: kernel_size is not given")
    rows, columns = attrs.kernel_size
    return int(rows), int(columns)


def pack_taps(weight: Array, block: int, taken: int = BYTES) -> Array:
    """A depthwise weight (C, 1, KH, KW) with four taps of a line together; `taken` 1: each by itself, in int16."""
    channels, _, kh, kw = weight.shape
    filled = np.pad(weight[:, 0], ((0, 0), (0, 0), (0, -kw % taken)))
    taps = filled.reshape(channels // block, block, kh, -1, taken)
    return np.ascontiguousarray(taps.transpose(0, 2, 3, 1, 4), dtype=np.int16 if taken == 1 else None)


@depthwise_bytes.reference
def _reference_depthwise(attrs: BytesDepthwiseAttrs, data: Array, weight: Array) -> Array:
    x = unblock(data.astype(np.int32))
    blocks, kh, words, block, taken = weight.shape
    w = weight.astype(np.int32).transpose(0, 3, 1, 2, 4).reshape(blocks * block, 1, kh, words * taken)
    w = w[..., : tap_counts(attrs)[1]]
    y = convolve(*_unpadded(depthwise_bytes.name, attrs, x, w), x.shape[1])
    return np.ascontiguousarray(y.reshape(y.shape[0], blocks, block, *y.shape[2:]).transpose(0, 1, 3, 4, 2))


def banded(attrs: BytesConv2DAttrs, data: Tensor, taken: int) -> Tensor:
    """The data with its padding, and with as many columns as words of taps reach; int16 where taps are single."""
    win, (_, kw) = window(depthwise_bytes.name, attrs, 2), tap_counts(attrs)
    (top, bottom), (left, right) = win.pads
    more, dtype = -kw % taken * win.dilation[1], DType("int16") if taken == 1 else data.dtype
    height, width = data.shape[2], data.shape[3]

    def element(n: te.Expr, block: te.Expr, y: te.Expr, x: te.Expr, lane: te.Expr) -> te.Expr:
        tests = ([y >= top] if top else []) + ([y < height + top] if bottom else [])
        beside = ([x >= left] if left else []) + ([x < width + left] if right + more else [])
        inside = te.all(*tests, te.likely(te.all(*beside)))
        value = data(n, block, y - top, x - left, lane).astype(dtype)
        return te.if_then_else(inside, value, T.const(attrs.pad_value, dtype))

    shape = (data.shape[0], data.shape[1], height + top + bottom, width + left + right + more, data.shape[4])
    result: Tensor = te.compute(shape, element, name="data_pad", tag="packed")
    return result


@depthwise_bytes.compute
def depthwise_compute(attrs: BytesDepthwiseAttrs, data: Tensor, weight: Tensor) -> Tensor:
    """Words of four neighbouring columns of a channel, times words of four taps; or columns times taps."""
    win, kernel = window(depthwise_bytes.name, attrs, 2), tap_counts(attrs)
    _, kh, words, _, taken = te.static_shape(weight)
    padded = banded(attrs, data, taken)
    ry, rx = axes = reduce_axes([kh, words], ["kh", "kw_word"])
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, block: te.Expr, y: te.Expr, x: te.Expr, lane: te.Expr) -> te.Expr:
        row, first = y * sy + ry * dy, x * sx + rx * (taken * dx)
        if taken == 1:
            column, tap = padded(n, block, row, first, lane), weight(block, ry, rx, lane, 0)
            return te.sum(column.astype("int32") * tap.astype("int32"), axis=axes)
        columns = te.four_bytes(*(padded(n, block, row, first + k * dx, lane) for k in range(BYTES)))
        taps = te.four_bytes(*(weight(block, ry, rx, lane, k) for k in range(BYTES)))
        return te.sum(te.dot_bytes(columns, taps), axis=axes)

    size = [window_count(data.shape[2 + a], win.pads[a], kernel[a], win.strides[a], win.dilation[a]) for a in range(2)]
    shape = (data.shape[0], data.shape[1], *size, data.shape[4])
    result: Tensor = te.compute(shape, element, name="depthwise_bytes", tag="depthwise_conv2d_bytes")
    return result


@depthwise_bytes.samples
def _samples_depthwise() -> Iterator[Sample]:
    plain = BytesDepthwiseAttrs(groups=16, padding=(1, 1), kernel_size=(3, 4))
    yield Sample(plain, (tensor("uint8", 1, 2, 6, 7, 8), tensor("int8", 2, 3, 1, 8, 4)), domain=(-128, 255))
    yield Sample(plain, (tensor("uint8", 1, 2, 6, 7, 8), tensor("int16", 2, 3, 4, 8, 1)), domain=(-128, 255))
    wide = BytesDepthwiseAttrs((2, 1), (2, 1, 0, 3), (1, 2), groups=4, kernel_size=(2, 8), pad_value=9)
    yield Sample(wide, (tensor("uint8", 2, 1, 7, 12, 4), tensor("int8", 1, 2, 2, 4, 4)), domain=(-128, 255))


@depthwise_bytes.bad_samples
def _bad_depthwise() -> Iterator[BadSample]:
    u8 = tensor("uint8", 1, 2, 6, 6, 8)
    three = BytesDepthwiseAttrs(kernel_size=(3, 3))
    yield BadSample(three, (u8, tensor("int8", 2, 3, 1, 8, 3)), "by kernel_size (3, 3)")
    yield BadSample(three, (u8, tensor("uint8", 2, 3, 1, 8, 4)), "wanted bytes, int8 and int32")
