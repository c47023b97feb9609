"""nn.conv1d, nn.conv2d, nn.conv3d: convolution in any plain layout, with groups, dilation and uneven padding.

In: data (N, C, spatial…) and weight (O, I/groups, kernel…) in the order that data_layout and kernel_layout say; a
depthwise weight may also be (C, multiplier, kernel…), which is the same memory. Out: (N, O, spatial…) in out_layout, or
else data_layout. Invariant: TE is an optional stage "data_pad", then one reduction tagged `<kind>_<layout>`, where kind
is conv2d, group_conv2d or depthwise_conv2d. In blocked layouts (NCHW16c) it means the convolution of what is unpacked,
packed again, and is written so before kernels are made; kernels that read blocks: conv_blocked.py. Import:
rules/nn/conv.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import note_meeting
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import (
    SPATIAL,
    Pairs,
    Tensor,
    block_of,
    call,
    f32,
    kernel_extent,
    known,
    letters,
    need_dtype,
    need_layout,
    need_numbers,
    need_tensor,
    out_dim,
    pad_array,
    pad_pairs,
    per_axis,
    placed,
    reduce_axes,
    reshape_to,
    same_dim,
    te_pad,
    tensor,
    type_of,
    wide,
    widened_product,
    window_count,
    windows,
)
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op, state
from armillary.relay.op.facts import Axes, Follows, Precision
from armillary.relay.op.macs import convolution_macs
from armillary.relay.types import Dim, TensorType, Type

if TYPE_CHECKING:
    from armillary.ops.nn._windows import ConvAttrs, OutDtypeAttrs, WindowAttrs
    from armillary.ops.nn.shape import LayoutTransformAttrs


@record
class Conv1DAttrs:
    strides: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"
    out_layout: str = ""
    out_dtype: str = ""


@record
class Conv2DAttrs:
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""
    choice: str = ""  # target/choice.py


@record
class Conv3DAttrs:
    strides: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"
    out_layout: str = ""
    out_dtype: str = ""


AnyConv = Conv1DAttrs | Conv2DAttrs | Conv3DAttrs
T = TypeVar("T")


@record
class Window:
    """The spatial attributes of a convolution in normal form, one entry per spatial axis."""

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs


def window(op: str, attrs: WindowAttrs, rank: int) -> Window:
    """Check and normalise strides, dilation and padding."""
    return Window(
        per_axis(op, "strides", attrs.strides, rank),
        per_axis(op, "dilation", attrs.dilation, rank),
        pad_pairs(op, attrs.padding, rank),
    )


def image_size(op: str, attrs: WindowAttrs, x: TensorType, kernel: Sequence[Dim]) -> list[Dim]:
    """Height and width of a convolution of images (N, channels, H, W, …) with a window of so many rows and columns."""
    win = window(op, attrs, 2)
    taps = [kernel_extent(op, size) for size in kernel]
    return [out_dim(op, x.shape[2 + a], win.pads[a], taps[a], win.strides[a], win.dilation[a]) for a in range(2)]


def result_dtype(attrs: OutDtypeAttrs, data: Array | TensorType | Tensor) -> DType:
    """`out_dtype`, or that of the data."""
    dtype = attrs.out_dtype or data.dtype
    return DType(dtype.name if isinstance(dtype, np.dtype) else dtype)


def _split_weight(op: str, attrs: ConvAttrs, channels: Dim, w: dict[str, Dim]) -> Dim:
    """Check the channels of a weight against the data; return the number of output channels."""
    groups, c, o, i = attrs.groups, known(channels), known(w["O"]), known(w["I"])
    if not isinstance(groups, int) or groups < 1:
        raise TypeMismatch(f"{op}: groups must be >= 1, got {groups}")
    if c is None or o is None or i is None:
        note_meeting(channels, w["I"] * groups)
        note_meeting(w["O"] // groups * groups, w["O"])
        return w["O"]
    if c % groups:
        raise TypeMismatch(f"{op}: {c} channels cannot be divided into {groups} groups")
    if groups == c and groups > 1 and o == c:
        o = o * i
    elif i != c // groups:
        raise TypeMismatch(
            f"{op}: the weight takes {i} channels per group, the data has {c} in {groups} groups",
            hint=f"weight axes O, I are (output channels, {c // groups}); kernel_layout is {attrs.kernel_layout}",
        )
    if o % groups:
        raise TypeMismatch(f"{op}: {o} output channels cannot be divided into {groups} groups")
    return o


def plain_layouts(attrs: AnyConv) -> AnyConv | None:
    """The attributes with whole axes in each layout, or None where they are whole."""
    texts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    if not any(c.islower() for text in texts for c in text):
        return None
    data, kernel, out = ("".join(c for c in text if c.isupper()) for text in texts)
    return dataclasses.replace(attrs, data_layout=data, kernel_layout=kernel, out_layout=out)


def _moves(attrs: AnyConv, whole: AnyConv) -> list[LayoutTransformAttrs]:
    """How data and weight are unpacked, and the result packed."""
    out = attrs.out_layout or attrs.data_layout
    pairs = [
        (attrs.data_layout, whole.data_layout),
        (attrs.kernel_layout, whole.kernel_layout),
        (whole.out_layout, out),
    ]
    return [get_op("layout_transform").make_attrs(pair) for pair in pairs]


def _through(
    attrs: AnyConv, whole: AnyConv, move: Callable[[LayoutTransformAttrs, T], T], plainly: Callable[[T, T], T], *args: T
) -> T:
    """What a convolution in blocks is, of types, arrays, stages or expressions."""
    unpacks = _moves(attrs, whole)
    x, w = (a if m.src_layout == m.dst_layout else move(m, a) for m, a in zip(unpacks[:2], args, strict=True))
    result = plainly(x, w)
    return result if unpacks[2].src_layout == unpacks[2].dst_layout else move(unpacks[2], result)


def _infer(op: str, rank: int, attrs: AnyConv, data: Type, weight: Type) -> TensorType:
    x, k = need_tensor(op, data), need_tensor(op, weight, "weight")
    sp = SPATIAL[rank]
    whole = plain_layouts(attrs)
    if whole is not None:
        need_layout(op, attrs.data_layout, "NC" + sp, x)
        need_layout(op, attrs.kernel_layout, "OI" + sp, k, "weight")

        def move(how: LayoutTransformAttrs, ty: TensorType) -> TensorType:
            return need_tensor(op, get_op("layout_transform").infer_type(how, [ty]))

        return _through(attrs, whole, move, partial(_infer, op, rank, whole), x, k)
    if not attrs.out_dtype and not (x.dtype.is_float and k.dtype.is_float):
        need_dtype(op, x, k)
        need_numbers(op, x)
    d = dict(zip(need_layout(op, attrs.data_layout, "NC" + sp, x), x.shape, strict=True))
    w = dict(zip(need_layout(op, attrs.kernel_layout, "OI" + sp, k, "weight"), k.shape, strict=True))
    win = window(op, attrs, rank)
    units = _split_weight(op, attrs, d["C"], w)
    kernel = tuple(w[a] for a in sp)
    if attrs.channels is not None and not same_dim(attrs.channels, units):
        raise TypeMismatch(f"{op}: channels is {attrs.channels}, the weight gives {units}")
    if attrs.kernel_size is not None and per_axis(op, "kernel_size", attrs.kernel_size, rank) != kernel:
        raise TypeMismatch(f"{op}: kernel_size is {attrs.kernel_size}, the weight gives {kernel}")
    out: dict[str, Dim] = {"N": d["N"], "C": units}
    for axis, (a, size) in enumerate(zip(sp, kernel, strict=True)):
        out[a] = out_dim(op, d[a], win.pads[axis], kernel_extent(op, size), win.strides[axis], win.dilation[axis])
    return TensorType(tuple(placed(attrs.out_layout or attrs.data_layout, out)), result_dtype(attrs, x))


def plain(x: Array, layout: str, wanted: str) -> Array:
    """`x` with its axes reordered from `layout` to `wanted`."""
    return x if layout == wanted else x.transpose([layout.index(a) for a in wanted])


def convolve(x: Array, w: Array, win: Window, groups: int) -> Array:
    """Convolution of (N, C, spatial…) by (O, C/groups, kernel…): one matrix product per kernel offset.

    float32 is summed in float64, so that the result does not depend on the order in which this numpy's BLAS adds.
    """
    dtype = x.dtype
    if dtype == np.float32:
        x, w = x.astype(np.float64), w.astype(np.float64)
    rank = x.ndim - 2
    n, c, o = x.shape[0], x.shape[1], w.shape[0]
    kernel = w.shape[2:]
    axes = range(2, x.ndim)
    counts = [
        window_count(x.shape[2 + a], win.pads[a], kernel[a], win.strides[a], win.dilation[a]) for a in range(rank)
    ]
    x = pad_array(x, axes, win.pads)
    out = np.zeros((n, groups, o // groups, int(np.prod(counts))), x.dtype)
    wg = w.reshape(groups, o // groups, c // groups, *kernel)
    for offset in itertools.product(*map(range, kernel)):
        starts = [k * d for k, d in zip(offset, win.dilation, strict=True)]
        part = windows(x, axes, starts, counts, win.strides).reshape(n, groups, c // groups, math.prod(counts))
        at: tuple[EllipsisType | int, ...] = (..., *offset)
        factor = wg[at]
        out += factor * part if c == groups else np.matmul(factor, part)
    return out.reshape(n, o, *counts).astype(dtype, copy=False)


def _reference(rank: int, attrs: Conv2DAttrs | Conv3DAttrs | Conv1DAttrs, data: Array, weight: Array) -> Array:
    sp = SPATIAL[rank]
    whole = plain_layouts(attrs)
    if whole is not None:

        def move(how: LayoutTransformAttrs, x: Array) -> Array:
            moved: Array = get_op("layout_transform").evaluate(how, [x])
            return moved

        return _through(attrs, whole, move, partial(_reference, rank, whole), data, weight)
    dtype = result_dtype(attrs, data).numpy
    x = plain(data, attrs.data_layout, "NC" + sp)
    w = plain(weight, attrs.kernel_layout, "OI" + sp)
    if attrs.groups == x.shape[1] and attrs.groups > 1 and w.shape[0] == x.shape[1]:
        w = w.reshape(-1, 1, *w.shape[2:])
    if np.issubdtype(dtype, np.integer):
        x, w = x.astype(dtype), w.astype(dtype)
    elif w.dtype != x.dtype:
        w = w.astype(x.dtype)
    y = convolve(wide(x), wide(w), window(f"nn.conv{rank}d", attrs, rank), attrs.groups)
    return np.ascontiguousarray(plain(y, "NC" + sp, attrs.out_layout or attrs.data_layout)).astype(dtype)


def _compute(rank: int, attrs: Conv2DAttrs | Conv1DAttrs | Conv3DAttrs, data: Tensor, weight: Tensor) -> Tensor:
    op, sp, layout = f"nn.conv{rank}d", SPATIAL[rank], attrs.data_layout
    whole = plain_layouts(attrs)
    if whole is not None:
        return _through(attrs, whole, _move_stage, partial(_compute, rank, whole), data, weight)
    win = window(op, attrs, rank)
    d, w = dict(zip(layout, data.shape, strict=True)), dict(zip(attrs.kernel_layout, weight.shape, strict=True))
    c, i, groups = d["C"], w["I"], attrs.groups
    depthwise = bool(groups > 1 and groups == _int(c))
    folded = depthwise and _int(w["O"]) == groups  # (C, multiplier, …)
    units = w["O"] * w["I"] if folded else w["O"]
    per_group = units // groups
    pads = {a: win.pads[n] for n, a in enumerate(sp)}
    padded = te_pad(data, [pads.get(a, (0, 0)) for a in layout])
    dtype = result_dtype(attrs, data)
    kernel_axes = reduce_axes([w[a] for a in sp], [f"r{a.lower()}" for a in sp])
    channel_axes = [] if depthwise else reduce_axes([i], ["rc"])
    order = attrs.out_layout or layout
    size = {"N": d["N"], "C": units} | {
        a: window_count(d[a], win.pads[n], w[a], win.strides[n], win.dilation[n]) for n, a in enumerate(sp)
    }

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(order, index, strict=True))
        group = at["C"] // per_group if groups > 1 else 0
        inner = channel_axes[0] if channel_axes else 0
        x_at = {"N": at["N"], "C": group if depthwise else group * i + inner}
        w_at = {"O": at["C"], "I": inner}
        if folded:
            w_at = {"O": group, "I": at["C"] % per_group}
        for n, a in enumerate(sp):
            x_at[a] = at[a] * win.strides[n] + kernel_axes[n] * win.dilation[n]
            w_at[a] = kernel_axes[n]
        lhs, rhs = padded(*placed(layout, x_at)), weight(*placed(attrs.kernel_layout, w_at))
        return te.sum(lhs.astype(dtype) * rhs.astype(dtype), axis=[*channel_axes, *kernel_axes])

    kind = "depthwise_" if depthwise else "group_" if groups > 1 else ""
    tag = f"{kind}conv{rank}d_{order.lower()}"
    return te.compute(placed(order, size), element, name=tag, tag=tag)


def _int(dim: object) -> int | None:
    return dim if isinstance(dim, int) else getattr(dim, "value", None)


conv1d = Op("nn.conv1d", kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="Convolution over one spatial axis.")
conv2d = Op("nn.conv2d", kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="Convolution over two spatial axes.")
conv3d = Op("nn.conv3d", kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="Convolution over three spatial axes.")
for _op in (conv1d, conv2d, conv3d):
    _op.macs(convolution_macs)


def complete_weight(grouped: str) -> Callable[..., tuple[Type | None, ...]]:
    """The rule that types a weight without a type; its axis `grouped`, I or O, counts the channels of one group."""

    def rule(attrs: ConvAttrs, data: Type | None, weight: Type | None, *others: Type | None) -> tuple[Type | None, ...]:
        if weight is not None or not isinstance(data, TensorType):
            return (data, weight, *others)
        if attrs.channels is None or attrs.kernel_size is None:
            return (data, weight, *others)
        channels = dict(zip(letters(attrs.data_layout), data.shape, strict=False)).get("C")
        if channels is not None:
            channels = channels * (block_of(attrs.data_layout, "C") or 1)
        names = letters(attrs.kernel_layout)
        blocks = {name: block_of(attrs.kernel_layout, name) or 1 for name in "IO"}
        spatial = [n for n in names if n.isupper() and n not in blocks]
        kernel = attrs.kernel_size if isinstance(attrs.kernel_size, tuple) else (attrs.kernel_size,) * len(spatial)
        if channels is None or len(kernel) != len(spatial):
            return (data, weight, *others)
        sizes: dict[str, Dim] = {"I": channels, "O": attrs.channels}
        sizes[grouped] = sizes[grouped] // attrs.groups
        whole = {name: sizes[name] // blocks[name] for name in blocks} | dict(zip(spatial, kernel, strict=True))
        inside = {name.lower(): block for name, block in blocks.items()}
        return (data, TensorType(tuple((whole | inside)[n] for n in names), data.dtype), *others)

    return rule


def _move_stage(attrs: LayoutTransformAttrs, x: Tensor) -> Tensor:
    """A stage that moves a tensor into another layout."""
    rule = get_op("layout_transform").compute_rule
    assert rule is not None, "layout_transform has a compute"
    stage: Tensor = rule(attrs, x)
    return stage


_MANY_TAPS, _FEW_TIMES = 1024, 4  # of a kernel: at least, and for each position of the data


def has_far_more_taps(rank: int, attrs: ConvAttrs, data: Expr, weight: Expr, order: str) -> bool:
    """Whether a kernel is so much larger than the data, both in plain layouts, that most taps lie beside the data."""
    x, w, sp = data.checked_type, weight.checked_type, SPATIAL[rank]
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NC" + sp)
    if layouts != ("NC" + sp, order + sp, "NC" + sp) or not isinstance(x, TensorType) or not isinstance(w, TensorType):
        return False
    if x.dtype != w.dtype or None in map(known, (*x.shape, *w.shape)) or x.size == 0:
        return False
    return math.prod(w.static[2:]) > max(_MANY_TAPS, _FEW_TIMES * math.prod(x.static[2:]))


def _as_transposed(op: Op, rank: int, attrs: AnyConv, data: Expr, weight: Expr) -> Expr | None:
    """A convolution by a kernel far larger than the data as a transposed one, of which each position is read once.

    conv(x, w, padding=p)  ->  conv_transpose(x, reverse(w), padding=extent(w) - 1 - p), every stride-th of the result
    """
    if not has_far_more_taps(rank, attrs, data, weight, "OI"):
        return None
    win, groups = window(op.name, attrs, rank), attrs.groups
    units, inner, *taps = type_of(weight).static
    spatial = range(2, rank + 2)
    turned = reshape_to(weight, (groups, units // groups, inner, *taps))
    turned = call("transpose", turned, axes=(0, 2, 1, *range(3, rank + 3)))
    turned = reshape_to(turned, (groups * inner, units // groups, *taps))
    for axis in spatial:
        turned = call("reverse", turned, axis=axis)
    spans = [(k - 1) * d for k, d in zip(taps, win.dilation, strict=True)]
    crops = [(span - b, span - a) for span, (b, a) in zip(spans, win.pads, strict=True)]
    result = call(
        f"nn.conv{rank}d_transpose",
        data,
        turned,
        padding=(*(max(0, b) for b, _ in crops), *(max(0, a) for _, a in crops)),
        dilation=win.dilation,
        groups=groups,
        out_dtype=attrs.out_dtype,
    )
    beyond = ((0, 0), (0, 0), *((max(0, -b), max(0, -a)) for b, a in crops))  # outputs of padding alone
    if any(map(any, beyond)):
        result = call("nn.pad", result, pad_width=beyond)
    if set(win.strides) == {1}:
        return result
    ends = tuple(type_of(result).static[a] for a in spatial)
    return call("strided_slice", result, begin=(0,) * rank, end=ends, strides=win.strides, axes=tuple(spatial))


def _decomposed(op: Op, rank: int, attrs: AnyConv, data: Expr, weight: Expr) -> Expr | None:
    """One in blocks as one in whole axes, one of 16-bit floats as one of float32; None for others."""
    x, w = data.checked_type, weight.checked_type
    if isinstance(x, TensorType) and isinstance(w, TensorType) and x.dtype != w.dtype and not attrs.out_dtype:
        return Call(op, (data, get_op("cast")(weight, dtype=str(x.dtype))), attrs)  # weights in the type of the data
    whole = plain_layouts(attrs)
    if whole is None:
        return widened_product(op, attrs, data, weight) or _as_transposed(op, rank, attrs, data, weight)

    def move(how: LayoutTransformAttrs, x: Expr) -> Expr:
        return Call(get_op("layout_transform"), (x,), how)

    return _through(attrs, whole, move, lambda x, w: Call(op, (x, w), whole), data, weight)


def _attach(op: Op, attrs_class: type, rank: int) -> None:
    op.attrs(attrs_class)
    op.complete(complete_weight(grouped="I"))
    op.infer(lambda attrs, data, weight: _infer(op.name, rank, attrs, data, weight))
    op.reference(lambda attrs, data, weight: _reference(rank, attrs, data, weight))
    op.compute(lambda attrs, data, weight: _compute(rank, attrs, data, weight))
    op.decompose(partial(_decomposed, op, rank))


_attach(conv1d, Conv1DAttrs, 1)
_attach(conv2d, Conv2DAttrs, 2)
_attach(conv3d, Conv3DAttrs, 3)


@conv1d.samples
def _samples1() -> Iterator[Sample]:
    yield Sample(Conv1DAttrs(padding=(1,)), (f32(2, 3, 9), f32(4, 3, 3)))
    yield Sample(Conv1DAttrs(strides=(2,), dilation=(2,), padding=(1, 2), groups=2), (f32(1, 4, 11), f32(6, 2, 3)))
    yield Sample(Conv1DAttrs(data_layout="NWC", kernel_layout="WIO"), (f32(1, 8, 3), f32(3, 3, 5)))


@conv2d.samples
def _samples2() -> Iterator[Sample]:
    yield Sample(Conv2DAttrs(padding=(1, 1)), (f32(1, 3, 8, 7), f32(4, 3, 3, 3)))
    yield Sample(Conv2DAttrs(strides=(2, 2), padding=(3, 3)), (f32(2, 3, 11, 11), f32(4, 3, 7, 7)))
    yield Sample(Conv2DAttrs(padding=(0, 1, 2, 1), dilation=(2, 1)), (f32(1, 2, 9, 8), f32(3, 2, 3, 2)))
    yield Sample(Conv2DAttrs(groups=2), (f32(1, 4, 5, 5), f32(6, 2, 3, 3)))
    yield Sample(Conv2DAttrs(groups=4, padding=(1, 1)), (f32(1, 4, 6, 6), f32(4, 1, 3, 3)))
    yield Sample(Conv2DAttrs(groups=3), (f32(1, 3, 5, 5), f32(6, 1, 3, 3)))
    yield Sample(Conv2DAttrs(groups=3), (f32(1, 3, 5, 5), f32(3, 2, 3, 3)))
    yield Sample(Conv2DAttrs(), (f32(1, 8, 4, 4), f32(5, 8, 1, 1)))
    yield Sample(Conv2DAttrs(), (f32(1, 3, 4, 4), tensor("float64", 5, 3, 1, 1)))
    nhwc = Conv2DAttrs(data_layout="NHWC", kernel_layout="HWIO", padding=(1, 1))
    yield Sample(nhwc, (f32(1, 6, 6, 3), f32(3, 3, 3, 4)))
    blocked = Conv2DAttrs(data_layout="NCHW4c", kernel_layout="OIHW2i", padding=(1, 1), out_layout="NHWC2c")
    yield Sample(blocked, (f32(1, 2, 5, 5, 4), f32(6, 4, 3, 3, 2)))
    yield Sample(Conv2DAttrs(data_layout="NCHW4c"), (f32(1, 2, 5, 5, 4), f32(8, 8, 3, 3)))
    depthwise = Conv2DAttrs(data_layout="NHWC", kernel_layout="HWOI", groups=4, strides=(2, 2))
    yield Sample(depthwise, (f32(1, 7, 7, 4), f32(3, 3, 4, 1)))
    yield Sample(Conv2DAttrs(out_dtype="int32"), (tensor("int8", 1, 3, 5, 5), tensor("int8", 2, 3, 3, 3)), (-9, 9))


@conv3d.samples
def _samples3() -> Iterator[Sample]:
    yield Sample(Conv3DAttrs(padding=(1, 1, 1)), (f32(1, 2, 4, 5, 4), f32(3, 2, 3, 3, 3)))
    yield Sample(Conv3DAttrs(strides=(2, 1, 2), groups=2), (f32(1, 4, 4, 4, 5), f32(2, 2, 2, 3, 1)))


@conv2d.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(Conv2DAttrs(), (f32(1, 3, 8, 8), f32(4, 2, 3, 3)), "takes 2 channels per group, the data has 3")
    yield BadSample(Conv2DAttrs(), (f32(1, 3, 2, 2), f32(4, 3, 3, 3)), "the window does not fit")
    yield BadSample(Conv2DAttrs(groups=2), (f32(1, 3, 8, 8), f32(4, 2, 3, 3)), "cannot be divided into 2 groups")
    yield BadSample(Conv2DAttrs(padding=(1, 2, 3)), (f32(1, 3, 8, 8), f32(4, 3, 3, 3)), "padding must be 1, 2 or 4")
    yield BadSample(Conv2DAttrs(channels=5), (f32(1, 3, 8, 8), f32(4, 3, 3, 3)), "channels is 5, the weight gives 4")
    yield BadSample(Conv2DAttrs(), (f32(3, 8, 8), f32(4, 3, 3, 3)), "has 3 dimensions")
    yield BadSample(Conv2DAttrs(), (f32(1, 3, 8, 8), f32(4, 3, 0, 3)), "kernel has 0 elements along an axis")


state("nn.conv1d nn.conv2d nn.conv3d", precision=Precision.ALWAYS)
_IMAGE = Axes("NCHW", "OIHW", (("NCHW", "OIHW"), ("NHWC", "HWIO"), ("HWNC", "HWOI")))
state("nn.conv1d", follows=Follows.ASKED, axes=Axes("NCW", "OIW"))
state("nn.conv2d", follows=Follows.ASKED, axes=_IMAGE)
state("nn.conv3d", follows=Follows.ASKED, axes=Axes("NCDHW", "OIDHW", (("NCDHW", "OIDHW"), ("NDHWC", "DHWIO"))))
state("nn.conv1d", wider="nn.conv2d")
