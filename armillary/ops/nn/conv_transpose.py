"""nn.conv1d_transpose, nn.conv2d_transpose, nn.conv3d_transpose: the adjoint of convolution.

In: data (N, C, spatial…) and weight (C, O/groups, kernel…) in the order the layouts say (kernel axis I is the data's
channels). Out: (N, O, spatial…), each size (in-1)*stride - padding + dilated kernel + output_padding. Invariant: TE is
a stage "data_dilate" that spreads and pads the data, then one reduction tagged conv2d_transpose_<layout>.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from armillary.base.extent import bounds, is_known, note_meeting
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import (
    SPATIAL,
    Tensor,
    call,
    extent,
    f32,
    kernel_extent,
    known,
    need_dtype,
    need_layout,
    need_numbers,
    need_tensor,
    per_axis,
    placed,
    reduce_axes,
    reshape_to,
    same_dim,
    type_of,
    wide,
    widened_product,
    windows,
)
from armillary.ops.nn.conv import Window, complete_weight, has_far_more_taps, plain, result_dtype, window
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows, Precision
from armillary.relay.op.macs import transposed_macs
from armillary.relay.types import ANY_DIM, AnyDim, Dim, TensorType, Type


@record
class Conv1DTransposeAttrs:
    strides: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    groups: int = 1
    data_layout: str = "NCW"
    kernel_layout: str = "IOW"
    out_layout: str = ""
    output_padding: tuple[int, ...] = (0,)
    out_dtype: str = ""


@record
class Conv2DTransposeAttrs:
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    groups: int = 1
    data_layout: str = "NCHW"
    kernel_layout: str = "IOHW"
    out_layout: str = ""
    output_padding: tuple[int, ...] = (0, 0)
    out_dtype: str = ""


@record
class Conv3DTransposeAttrs:
    strides: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    groups: int = 1
    data_layout: str = "NCDHW"
    kernel_layout: str = "IODHW"
    out_layout: str = ""
    output_padding: tuple[int, ...] = (0, 0, 0)
    out_dtype: str = ""


TransposeAttrs: TypeAlias = Conv1DTransposeAttrs | Conv2DTransposeAttrs | Conv3DTransposeAttrs


def output_size(size: Any, win: Window, axis: int, kernel: Any, extra: int) -> Any:  # Any: ints or TE expressions
    """The size of the result along one spatial axis."""
    before, after = win.pads[axis]
    return (size - 1) * win.strides[axis] + ((kernel - 1) * win.dilation[axis] + (1 + extra - before - after))


def _infer(op: str, rank: int, attrs: TransposeAttrs, data: Type, weight: Type) -> TensorType:
    x, k, sp = need_tensor(op, data), need_tensor(op, weight, "weight"), SPATIAL[rank]
    if not attrs.out_dtype:
        need_dtype(op, x, k)
        need_numbers(op, x)
    d = dict(zip(need_layout(op, attrs.data_layout, "NC" + sp, x), x.shape, strict=True))
    w = dict(zip(need_layout(op, attrs.kernel_layout, "OI" + sp, k, "weight"), k.shape, strict=True))
    win, extra = window(op, attrs, rank), per_axis(op, "output_padding", attrs.output_padding, rank, 0)
    if not same_dim(d["C"], w["I"]):
        raise TypeMismatch(f"{op}: the weight takes {w['I']} channels, the data has {d['C']}")
    if attrs.groups < 1 or (known(d["C"]) or 0) % attrs.groups:
        raise TypeMismatch(f"{op}: {d['C']} channels cannot be divided into {attrs.groups} groups")
    note_meeting(d["C"] // attrs.groups * attrs.groups, d["C"])
    units = ANY_DIM if isinstance(w["O"], AnyDim) else w["O"] * attrs.groups
    if attrs.channels is not None and known(units) not in (None, attrs.channels):
        raise TypeMismatch(f"{op}: channels is {attrs.channels}, the weight gives {units}")
    out: dict[str, Dim] = {"N": d["N"], "C": units}
    for axis, a in enumerate(sp):
        kernel_extent(op, w[a])
        unknown = not is_known(d[a]) or isinstance(w[a], AnyDim)
        out[a] = ANY_DIM if unknown else output_size(d[a], win, axis, w[a], extra[axis])
        if not unknown and bounds(out[a])[1] < 1:  # type: ignore[arg-type]  # known
            raise TypeMismatch(f"{op}: the padding {attrs.padding} leaves no output along {a}")
    return TensorType(tuple(placed(attrs.out_layout or attrs.data_layout, out)), result_dtype(attrs, x))


def _reference(
    op: str, rank: int, attrs: Conv2DTransposeAttrs | Conv1DTransposeAttrs, data: Array, weight: Array
) -> Array:
    sp, g = SPATIAL[rank], attrs.groups
    dtype = result_dtype(attrs, data).numpy
    win, extra = window(op, attrs, rank), per_axis(op, "output_padding", attrs.output_padding, rank, 0)
    x = wide(plain(data.astype(dtype), attrs.data_layout, "NC" + sp))
    w = wide(plain(weight.astype(dtype), attrs.kernel_layout, "IO" + sp))
    n, c, kernel, sizes = x.shape[0], x.shape[1], w.shape[2:], x.shape[2:]
    full = [
        (s - 1) * t + extent(k, d) + e
        for s, t, k, d, e in zip(sizes, win.strides, kernel, win.dilation, extra, strict=True)
    ]
    out = np.zeros((n, g, w.shape[1], *full), x.dtype)
    flat = x.reshape(n, g, c // g, math.prod(x.shape[2:]))
    wg = w.reshape(g, c // g, *w.shape[1:])
    by_taps = math.prod(kernel) <= math.prod(sizes)
    for place in itertools.product(*map(range, sizes)) if not by_taps else ():
        starts = [p * t for p, t in zip(place, win.strides, strict=True)]
        at: tuple[EllipsisType | int, ...] = (..., *place)
        row = x[at].reshape(n, g, c // g).swapaxes(0, 1)
        part = np.matmul(row, wg.reshape(g, c // g, w.shape[1] * math.prod(kernel)))
        spread = part.reshape(g, n, w.shape[1], *kernel).swapaxes(0, 1)
        windows(out, range(3, 3 + rank), starts, kernel, win.dilation)[...] += spread
    for offset in itertools.product(*map(range, kernel)) if x.size and by_taps else ():
        starts = [k * d for k, d in zip(offset, win.dilation, strict=True)]
        at = (..., *offset)
        factor = wg[at].swapaxes(1, 2)
        part = np.matmul(factor, flat).reshape(n, g, w.shape[1], *sizes)
        windows(out, range(3, 3 + rank), starts, sizes, win.strides)[...] += part
    crop = tuple(slice(b, f - a) for f, (b, a) in zip(full, win.pads, strict=True))
    y = out.reshape(n, g * w.shape[1], *full)[(slice(None), slice(None), *crop)]
    return np.ascontiguousarray(plain(y, "NC" + sp, attrs.out_layout or attrs.data_layout)).astype(dtype)


def _dilate(
    data: Tensor, layout: str, sp: str, before: Sequence[te.Index], strides: tuple[int, ...], total: Sequence[te.Index]
) -> Tensor:
    """The data spread by the strides, with zeros between and around."""
    d = dict(zip(layout, data.shape, strict=True))
    shape = placed(layout, d | dict(zip(sp, total, strict=True)))

    def element(*index: te.Expr) -> te.Expr:
        at, inside = dict(zip(layout, index, strict=True)), []
        for axis, a in enumerate(sp):
            shifted = at[a] - before[axis]
            inside += [shifted >= 0, shifted < (d[a] - 1) * strides[axis] + 1]
            if strides[axis] > 1:
                inside.append(T.equal(T.floormod(shifted, strides[axis]), 0))
            at[a] = shifted // strides[axis]
        return te.if_then_else(T.all_of(*inside), data(*placed(layout, at)), T.const(0, data.dtype))

    return te.compute(shape, element, name="data_dilate", tag="dilate")


def _compute(op: str, rank: int, attrs: TransposeAttrs, data: Tensor, weight: Tensor) -> Tensor:
    sp, layout, groups = SPATIAL[rank], attrs.data_layout, attrs.groups
    win, extra = window(op, attrs, rank), per_axis(op, "output_padding", attrs.output_padding, rank, 0)
    d, w = dict(zip(layout, data.shape, strict=True)), dict(zip(attrs.kernel_layout, weight.shape, strict=True))
    dtype, order = result_dtype(attrs, data), attrs.out_layout or layout
    size = {"N": d["N"], "C": w["O"] * groups}
    size |= {a: output_size(d[a], win, n, w[a], extra[n]) for n, a in enumerate(sp)}
    span = [(w[a] - 1) * win.dilation[n] for n, a in enumerate(sp)]
    total = [size[a] + span[n] for n, a in enumerate(sp)]
    before = [span[n] - win.pads[n][0] for n in range(rank)]
    spread = _dilate(data, layout, sp, before, win.strides, total)
    per_group = w["I"] // groups
    (rc,) = reduce_axes([per_group], ["rc"])
    rk = reduce_axes([w[a] for a in sp], [f"r{a.lower()}" for a in sp])

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(order, index, strict=True))
        channel = rc if groups == 1 else at["C"] // w["O"] * per_group + rc
        x_at, w_at = {"N": at["N"], "C": channel}, {"I": channel, "O": at["C"] if groups == 1 else at["C"] % w["O"]}
        for n, a in enumerate(sp):
            x_at[a] = at[a] + rk[n] * win.dilation[n]
            w_at[a] = w[a] - 1 - rk[n]
        lhs, rhs = spread(*placed(layout, x_at)), weight(*placed(attrs.kernel_layout, w_at))
        return te.sum(lhs.astype(dtype) * rhs.astype(dtype), axis=[rc, *rk])

    tag = f"conv{rank}d_transpose_{order.lower()}"
    return te.compute(placed(order, size), element, name=tag, tag=tag)


def _swapped(op: Op, rank: int, attrs: TransposeAttrs, data: Expr, weight: Expr) -> Expr | None:
    """The same sums with the kernel for data and the data for a kernel, strides for dilation.

    conv_transpose(x, w, strides=s, dilation=d)  ->  transpose(conv_transpose(transpose(w), transpose(x), d, s))
    """
    if not has_far_more_taps(rank, attrs, data, weight, "IO"):
        return None
    win, groups = window(op.name, attrs, rank), attrs.groups
    turned = (1, 0, *range(2, rank + 2))
    x, w = call("transpose", data, axes=turned), call("transpose", weight, axes=turned)
    more = dataclasses.replace(
        attrs,
        strides=win.dilation,
        dilation=win.strides,
        kernel_layout="IO" + SPATIAL[rank],
        channels=None,
        kernel_size=None,
    )
    swapped = Call(op, (w, x), more)
    units, both, *sizes = type_of(swapped).static
    batch = both // groups
    apart = call("transpose", reshape_to(swapped, (units, groups, batch, *sizes)), axes=(2, 1, 0, *range(3, rank + 3)))
    return reshape_to(apart, (batch, units * groups, *sizes))


def _decomposed(op: Op, rank: int, attrs: TransposeAttrs, data: Expr, weight: Expr) -> Expr | None:
    """One of 16-bit floats as one of float32, one of a large kernel as one of a small one; None for others."""
    return widened_product(op, attrs, data, weight) or _swapped(op, rank, attrs, data, weight)


conv1d_transpose = Op(
    "nn.conv1d_transpose",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="The transposed convolution over one axis.",
)
conv2d_transpose = Op(
    "nn.conv2d_transpose",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="The transposed convolution over two axes.",
)
conv3d_transpose = Op(
    "nn.conv3d_transpose",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="The transposed convolution over three axes.",
)


def _attach(op: Op, attrs_class: type, rank: int) -> None:
    op.attrs(attrs_class)
    op.macs(transposed_macs)
    op.complete(complete_weight(grouped="O"))
    op.infer(lambda attrs, data, weight: _infer(op.name, rank, attrs, data, weight))
    op.reference(lambda attrs, data, weight: _reference(op.name, rank, attrs, data, weight))
    op.compute(lambda attrs, data, weight: _compute(op.name, rank, attrs, data, weight))
    op.decompose(partial(_decomposed, op, rank))


_attach(conv1d_transpose, Conv1DTransposeAttrs, 1)
_attach(conv2d_transpose, Conv2DTransposeAttrs, 2)
_attach(conv3d_transpose, Conv3DTransposeAttrs, 3)


@conv1d_transpose.samples
def _samples1() -> Iterator[Sample]:
    yield Sample(Conv1DTransposeAttrs(strides=(2,), padding=(1,)), (f32(1, 3, 5), f32(3, 2, 3)))


@conv2d_transpose.samples
def _samples2() -> Iterator[Sample]:
    yield Sample(Conv2DTransposeAttrs(), (f32(1, 2, 4, 4), f32(2, 3, 3, 3)))
    uneven = Conv2DTransposeAttrs(strides=(2, 3), padding=(1, 0, 0, 2), output_padding=(1, 0), groups=2)
    yield Sample(uneven, (f32(1, 4, 3, 4), f32(4, 2, 3, 4)))
    yield Sample(Conv2DTransposeAttrs(dilation=(2, 2), padding=(3, 3)), (f32(1, 2, 5, 5), f32(2, 2, 2, 2)))
    nhwc = Conv2DTransposeAttrs(strides=(2, 2), data_layout="NHWC", kernel_layout="HWOI")
    yield Sample(nhwc, (f32(1, 3, 3, 2), f32(2, 2, 3, 2)))


@conv3d_transpose.samples
def _samples3() -> Iterator[Sample]:
    yield Sample(Conv3DTransposeAttrs(strides=(2, 2, 2), padding=(1, 1, 1)), (f32(1, 2, 2, 3, 2), f32(2, 2, 3, 3, 3)))


@conv2d_transpose.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(Conv2DTransposeAttrs(), (f32(1, 3, 4, 4), f32(2, 3, 3, 3)), "takes 2 channels, the data has 3")
    yield BadSample(Conv2DTransposeAttrs(padding=(5, 5)), (f32(1, 2, 4, 4), f32(2, 3, 3, 3)), "leaves no output")
    yield BadSample(Conv2DTransposeAttrs(), (f32(1, 2, 4, 4), f32(2, 3, 0, 3)), "kernel has 0 elements along an axis")


state("nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose", precision=Precision.ALWAYS)
_VOLUME = Axes("NCDHW", "IODHW", (("NCDHW", "IODHW"), ("NDHWC", "DHWOI")))
state("nn.conv1d_transpose", follows=Follows.ASKED)
state("nn.conv2d_transpose", follows=Follows.ASKED, axes=Axes("NCHW", "IOHW", (("NCHW", "IOHW"), ("NHWC", "HWIO"))))
state("nn.conv3d_transpose", follows=Follows.ASKED, axes=_VOLUME)
state("nn.conv1d_transpose", wider="nn.conv2d_transpose")
