"""Convolutions for Arm Compute Library: nn.pad?, conv2d, bias?, relu?, and the same of bytes with requantize.

In: matches of the patterns. Out: None or why not, and the nodes (depthwise_)conv2d. Invariant: data is NHWC of batch 1;
kernels are written OHWI, of depthwise convolutions IHWO; the padding of the node is that of nn.pad and of the
convolution together, and pads with what nn.pad pads with, or the match is refused. Kernels of int8 around 0 may have a
scale for each channel of the result.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from armillary.base.record import record
from armillary.offload.graph_json import Kernel, attributes
from armillary.offload.rows import (
    BYTES,
    Composite,
    ConvolutionMatch,
    first,
    inside,
    is_dtype,
    is_per_tensor,
    is_rank,
    is_value,
    name_of,
    reshaped,
    scalar,
    steps,
    tensor,
    transposed,
)
from armillary.relay.expr import Call, Constant, Expr, const
from armillary.relay.pattern import DFPattern, is_constant, is_op, wildcard

_AFTER = ("qnn.requantize", "nn.relu", "nn.bias_add", "add")
_DEPTHWISE_KERNELS, _DEPTHWISE_STRIDES = (3, 5), ((1, 1), (2, 2))


@record
class Parts(ConvolutionMatch):
    """A convolution and what follows it."""

    ROWS: ClassVar = 1
    bias: Call | None = None
    relu: Call | None = None
    requantize: Call | None = None


def _parts(root: Expr, with_pad: bool) -> Parts:
    parts = steps(root, _AFTER)
    expr: Expr = list(parts.values())[-1].args[0] if parts else root
    assert isinstance(expr, Call), "the pattern has a convolution"
    above = expr.args[0]
    pad = above if with_pad and isinstance(above, Call) and name_of(above) == "nn.pad" else None
    bias = parts.get("nn.bias_add", parts.get("add"))
    data = pad.args[0] if pad is not None else above
    return Parts(expr, data, pad, bias, parts.get("nn.relu"), parts.get("qnn.requantize"))


def _padded(with_pad: bool) -> DFPattern:
    return is_op("nn.pad")(wildcard()) if with_pad else wildcard()


def _followed(conv: DFPattern) -> DFPattern:
    biased = conv.optional(lambda p: is_op("nn.bias_add")(p, is_constant()) | is_op("add")(p, is_constant()))
    return biased.optional(lambda p: is_op("nn.relu")(p))


def pattern(with_pad: bool) -> DFPattern:
    """nn.pad? -> nn.conv2d -> bias? -> nn.relu?"""
    return _followed(is_op("nn.conv2d")(_padded(with_pad), is_constant()))


def qnn_pattern(with_pad: bool) -> DFPattern:
    """nn.pad? -> qnn.conv2d -> bias? -> nn.relu? -> qnn.requantize"""
    constants = [is_constant() for _ in range(5)]
    conv = is_op("qnn.conv2d")(_padded(with_pad), *constants)
    return is_op("qnn.requantize")(_followed(conv), wildcard(), wildcard(), is_constant(), is_constant())


def _check_shape(parts: Parts) -> str | None:
    attrs, data = parts.conv.attrs, tensor(parts.data)
    if data is not None and data.shape[0] != 1:
        return f"the batch is {data.shape[0]}, wanted 1"
    if parts.is_depthwise:
        size = (parts.kernel["H"], parts.kernel["W"])
        return first(
            None
            if size[0] == size[1] and size[0] in _DEPTHWISE_KERNELS
            else f"a depthwise kernel of {size[0]}x{size[1]}, wanted 3x3 or 5x5",
            is_value(tuple(attrs.strides), "strides of a depthwise convolution", *_DEPTHWISE_STRIDES),
        )
    if attrs.groups != 1:
        return f"the convolution has {attrs.groups} groups; one, or depthwise, is possible"
    if (parts.kernel["H"], parts.kernel["W"]) == tuple(attrs.strides) == (1, 1) and any(parts.padding):
        return "a 1x1 convolution of stride 1 has padding, which the library does not expect"
    return None


def _check_pad(pad: Call | None, value: float) -> str | None:
    if pad is None:
        return None
    width = pad.attrs.pad_width
    if tuple(width[0]) != (0, 0) or tuple(width[3]) != (0, 0):
        return "nn.pad pads batch or channels"
    if any(amount < 0 for pair in width for amount in pair):
        return "nn.pad takes away"
    return first(
        is_value(pad.attrs.pad_mode, "the mode of nn.pad", "constant"),
        is_value(float(pad.attrs.pad_value), "the value of nn.pad", value),
    )


def _check_bias(parts: Parts) -> str | None:
    if parts.bias is None:
        return None
    bias, channels = tensor(parts.bias.args[1]), parts.kernel["O"]
    if bias is None or bias.size != channels:
        return f"the bias is not one number for each of {channels} channels"
    if name_of(parts.bias) == "nn.bias_add":
        return is_value(parts.bias.attrs.axis, "the axis of nn.bias_add", 3, -1)
    return None if bias.static[-1] == channels and len(bias.static) <= 4 else "what is added is not along the channels"


def check(root: Expr, with_pad: bool = False) -> str | None:
    """Why a convolution of floats is not taken."""
    parts = _parts(root, with_pad)
    attrs = parts.conv.attrs
    return first(
        is_value(attrs.data_layout, "data_layout", "NHWC"),
        is_value(attrs.out_layout, "out_layout", "", "NHWC"),
        is_value(attrs.out_dtype or "float32", "out_dtype", "float32"),
        is_rank(parts.data, "data", 4),
        is_dtype(parts.data, "data", "float32"),
        is_dtype(parts.conv.args[1], "weight", "float32"),
        _check_shape(parts),
        _check_pad(parts.pad, 0.0),
        _check_bias(parts),
    )


def qnn_check(root: Expr, with_pad: bool = False) -> str | None:
    """Why a convolution of bytes is not taken."""
    parts = _parts(root, with_pad)
    attrs, (zero, kernel_zero, scale, kernel_scale) = parts.conv.attrs, parts.conv.args[2:]
    requantize = parts.requantize
    assert requantize is not None, "the pattern has it"
    return first(
        is_value(str(requantize.attrs.out_dtype), "out_dtype of requantize", *BYTES),
        is_value(attrs.data_layout, "data_layout", "NHWC"),
        is_value(attrs.out_layout, "out_layout", "", "NHWC"),
        is_value(attrs.out_dtype or "int32", "out_dtype", "int32"),
        is_rank(parts.data, "data", 4),
        is_dtype(parts.data, "data", *BYTES),
        is_dtype(parts.conv.args[1], "weight", *BYTES),
        is_dtype(root, "the result", str(getattr(parts.data.checked_type, "dtype", ""))),
        is_per_tensor(zero, "input_zero_point"),
        is_per_tensor(scale, "input_scale"),
        _check_kernel_scale(parts, kernel_zero, kernel_scale),
        is_per_tensor(requantize.args[3], "output_scale"),
        is_per_tensor(requantize.args[4], "output_zero_point"),
        _check_shape(parts),
        None
        if not isinstance(zero, Constant) or zero.data.size != 1
        else _check_pad(parts.pad, float(zero.data.item())),
        _check_bias(parts),
    )


def _is_by_channel(parts: Parts) -> bool:
    """Whether the library is given a scale for each channel: there are some, or the data is of the other sign."""
    data, kernel = (str(getattr(e.checked_type, "dtype", "")) for e in (parts.data, parts.conv.args[1]))
    scale = parts.conv.args[5]
    return data != kernel or (isinstance(scale, Constant) and scale.data.size != 1)


def _check_kernel_scale(parts: Parts, zero: Expr, scale: Expr) -> str | None:
    if not _is_by_channel(parts):
        return first(is_per_tensor(zero, "kernel_zero_point"), is_per_tensor(scale, "kernel_scale"))
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return "kernel_scale or kernel_zero_point is not constant"
    if scale.data.size not in (1, parts.kernel["O"] * (parts.kernel["I"] if parts.is_depthwise else 1)):
        return f"{scale.data.size} kernel scales, wanted one, or one for each channel of the result"
    if zero.data.any():
        return "kernel_zero_point is not 0, which scales by channel and data of the other sign want"
    return is_dtype(parts.conv.args[1], "weight of data of the other sign, or with scales by channel,", "int8")


def _kernel_scale(parts: Parts) -> Constant:
    """One number, or one for each channel."""
    scale = parts.conv.args[5]
    assert isinstance(scale, Constant), "the predicate made sure that it is constant"
    if not _is_by_channel(parts):
        return scalar(scale, "float32")
    return const(np.ascontiguousarray(np.broadcast_to(scale.data.astype("float32").reshape(-1), (parts.kernel["O"],))))


def _attrs(parts: Parts) -> dict[str, tuple[str, ...]]:
    attrs, size = parts.conv.attrs, parts.kernel
    settings = attributes(attrs) | {
        "kernel_layout": ("IHWO" if parts.is_depthwise else "OHWI",),
        "channels": (str(size["O"]),),
        "kernel_size": (str(size["H"]), str(size["W"])),
        "padding": tuple(map(str, parts.padding)),
    }
    return settings | ({"activation_type": ("relu",)} if parts.relu is not None else {})


def _weight(parts: Parts) -> Constant:
    return transposed(parts.conv.args[1], parts.conv.attrs.kernel_layout, "IHWO" if parts.is_depthwise else "OHWI")


def _bias(parts: Parts) -> tuple[Constant, ...]:
    return () if parts.bias is None else (reshaped(parts.bias.args[1], (1, 1, 1, parts.kernel["O"])),)


def kernel(call: Call) -> Kernel:
    """data, weight [, bias]"""
    body, outside = inside(call)
    parts = _parts(body, with_pad=True)
    name = "nn.depthwise_conv2d" if parts.is_depthwise else "nn.conv2d"
    return Kernel(name, (outside[id(parts.data)], _weight(parts), *_bias(parts)), _attrs(parts))


def qnn_kernel(call: Call) -> Kernel:
    """data, weight, zero points, scales [, bias], scale and zero point of the result"""
    body, outside = inside(call)
    parts = _parts(body, with_pad=True)
    name = "qnn.depthwise_conv2d" if parts.is_depthwise else "qnn.conv2d"
    assert parts.requantize is not None, "the pattern has it"
    zero, kernel_zero, scale, _ = parts.conv.args[2:]
    assert isinstance(kernel_zero, Constant), "the pattern has constants there"
    into = (
        scalar(zero, "int32"),
        const(kernel_zero.data.reshape(-1)[0].astype("int32")),
        scalar(scale, "float32"),
        _kernel_scale(parts),
    )
    out = (scalar(parts.requantize.args[3], "float32"), scalar(parts.requantize.args[4], "int32"))
    return Kernel(name, (outside[id(parts.data)], _weight(parts), *into, *_bias(parts), *out), _attrs(parts))


COMPOSITES = (
    Composite("conv2d", lambda: pattern(True), lambda e: check(e, True), kernel),
    Composite("conv2d", lambda: pattern(False), check, kernel),
    Composite("qnn_conv2d", lambda: qnn_pattern(True), lambda e: qnn_check(e, True), qnn_kernel),
    Composite("qnn_conv2d", lambda: qnn_pattern(False), qnn_check, qnn_kernel),
)
