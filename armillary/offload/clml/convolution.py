"""Convolutions for OpenCLML: nn.pad?, conv2d or conv2d_transpose, cast?, bias?, sum?, batch_norm?, relu?, clip?

In: matches of the patterns. Out: None or why not, and the nodes nn.conv2d, nn.depthwise_conv2d, nn.conv2d_transpose:
data, weight [, bias] [, scale, shift, mean, variance]. Invariant: data is NCHW of batch 1; kernels are written OIHW, of
depthwise convolutions IOHW; the padding of the node is top, left, bottom, right, that of nn.pad and of the convolution
together; a bias is (1, C, 1, 1), and both biases of a match are added into one. A cast rounds sums in float32 of
products of float16: the node's acc_dtype.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np

from armillary.base.record import record
from armillary.offload.clml.limits import FLOATS, is_single, same_dtype
from armillary.offload.graph_json import Kernel, attributes, texts
from armillary.offload.rows import (
    Composite,
    ConvolutionMatch,
    first,
    inside,
    is_dtype,
    is_rank,
    is_value,
    name_of,
    tensor,
    transposed,
)
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem, const
from armillary.relay.pattern import CheckPattern, DFPattern, is_constant, is_op, is_tuple_get_item, wildcard

RELU6 = {"a_min": 0.0, "a_max": 6.0}
_ACTIVATIONS = ("clip", "nn.relu")


@record
class Parts(ConvolutionMatch):
    """A convolution and what follows it."""

    ROWS: ClassVar = 2
    biases: tuple[Call, ...] = ()
    norm: Call | None = None
    activation: str = ""
    rounding: Call | None = None

    @property
    def summed(self) -> Call:
        """The sums, rounded if they are."""
        return self.rounding or self.conv

    @property
    def channels(self) -> int:
        """Channels of the result."""
        kernel = self.kernel
        return kernel["O"] * (self.conv.attrs.groups if self.is_transposed else 1)

    @property
    def is_transposed(self) -> bool:
        return name_of(self.conv) == "nn.conv2d_transpose"

    @property
    def is_depthwise(self) -> bool:
        return not self.is_transposed and super().is_depthwise


def _parts(root: Expr, *, with_pad: bool = True) -> Parts:
    activation, biases, norm = "", [], None
    while name_of(root) in _ACTIVATIONS:
        activation = activation or ("relu6" if name_of(root) == "clip" else "relu")
        root = _argument(root)
    if isinstance(root, TupleGetItem):
        assert isinstance(root.tuple_value, Call), "the pattern has a normalisation"
        norm = root.tuple_value
        root = norm.args[0]
    while name_of(root) in ("add", "nn.bias_add") and isinstance(root, Call):
        biases.append(root)
        root = root.args[0]
    rounding = root if isinstance(root, Call) and name_of(root) == "cast" else None
    root = rounding.args[0] if rounding is not None else root
    assert isinstance(root, Call), "the pattern has a convolution"
    above = root.args[0]
    pad = above if with_pad and isinstance(above, Call) and name_of(above) == "nn.pad" else None
    return Parts(root, pad.args[0] if pad is not None else above, pad, tuple(biases), norm, activation, rounding)


def _argument(expr: Expr) -> Expr:
    assert isinstance(expr, Call), "asked by its operator"
    return expr.args[0]


def _is_per_channel(expr: Expr) -> bool:
    shape = expr.data.shape if isinstance(expr, Constant) else ()
    return 3 <= len(shape) <= 4 and tuple(shape[-2:]) == (1, 1)


def pattern(operator: str, with_pad: bool) -> DFPattern:
    """nn.pad? -> operator -> cast? -> nn.bias_add? -> add? -> nn.batch_norm? -> nn.relu? -> clip to [0, 6]?"""
    matched: DFPattern = is_op(operator)(is_op("nn.pad")(wildcard()) if with_pad else wildcard(), is_constant())
    matched = matched.optional(lambda p: is_op("cast")(p).has_attr({"dtype": "float16"}))
    matched = matched.optional(lambda p: is_op("nn.bias_add")(p, is_constant()))
    matched = matched.optional(lambda p: is_op("add")(p, CheckPattern(is_constant(), _is_per_channel)))
    constants = [is_constant() for _ in range(4)]
    matched = matched.optional(lambda p: is_tuple_get_item(is_op("nn.batch_norm")(p, *constants), 0))
    matched = matched.optional(lambda p: is_op("nn.relu")(p))
    return matched.optional(lambda p: is_op("clip")(p).has_attr(RELU6))


def check(root: Expr, with_pad: bool) -> str | None:
    """Why a convolution is not taken, with or without the nn.pad before it."""
    parts = _parts(root, with_pad=with_pad)
    attrs = parts.conv.attrs
    return first(
        is_value(attrs.data_layout, "data_layout", "NCHW"),
        is_value(attrs.out_layout, "out_layout", "", "NCHW"),
        is_rank(parts.data, "data", 4),
        is_single(parts.data, "data"),
        is_dtype(parts.conv.args[1], "weight", *FLOATS),
        is_single(root, "the result"),
        same_dtype(root, parts.data, parts.summed, parts.conv.args[1]),
        _check_groups(parts),
        _check_pad(parts.pad),
        _check_added(parts),
    )


def _check_groups(parts: Parts) -> str | None:
    attrs = parts.conv.attrs
    if parts.is_transposed:
        dilation = is_value(tuple(attrs.dilation), "dilation of a transposed convolution", (1, 1))
        output = is_value(tuple(attrs.output_padding), "output_padding", (0, 0))
        return first(is_value(attrs.groups, "groups of a transposed convolution", 1), dilation, output)
    if attrs.groups != 1 and not parts.is_depthwise:
        return f"the convolution has {attrs.groups} groups; one, or depthwise, is possible"
    size = (parts.kernel["H"], parts.kernel["W"])
    if parts.is_depthwise and size == (3, 3) and tuple(attrs.dilation) != (1, 1) and parts.activation != "relu6":
        return "a dilated depthwise 3x3 convolution without clip"
    return None


def _check_pad(pad: Call | None) -> str | None:
    if pad is None:
        return None
    width = pad.attrs.pad_width
    if tuple(width[0]) != (0, 0) or tuple(width[1]) != (0, 0):
        return "nn.pad pads batch or channels"
    if any(amount < 0 for pair in width for amount in pair):
        return "nn.pad takes away"
    return first(
        is_value(pad.attrs.pad_mode, "the mode of nn.pad", "constant"),
        is_value(float(pad.attrs.pad_value), "the value of nn.pad", 0.0),
    )


def _check_added(parts: Parts) -> str | None:
    for bias in parts.biases:
        ty = tensor(bias.args[1])
        if ty is None or ty.size != parts.channels:
            return f"what is added is not one number for each of {parts.channels} channels"
        if name_of(bias) == "nn.bias_add" and bias.attrs.axis not in (1, -3):
            return is_value(bias.attrs.axis, "the axis of nn.bias_add", 1, -3)
    return None if parts.norm is None else is_value(parts.norm.attrs.axis, "the axis of nn.batch_norm", 1, -3)


def _attrs(parts: Parts) -> dict[str, tuple[str, ...]]:
    attrs, size = parts.conv.attrs, parts.kernel
    settings = attributes(attrs) | {
        "kernel_layout": ("IOHW" if parts.is_depthwise else "OIHW",),
        "channels": (str(parts.channels),),
        "kernel_size": (str(size["H"]), str(size["W"])),
        "padding": tuple(map(str, parts.padding)),
    }
    if parts.rounding is not None:
        settings |= {"acc_dtype": ("float32",), "out_dtype": ("float16",)}
    if parts.norm is not None:
        norm = parts.norm.attrs
        settings["batchnorm"] = texts((norm.axis, norm.epsilon, norm.center, norm.scale))
    return settings | ({"activation_type": (parts.activation,)} if parts.activation else {})


def channel_vector(expr: Expr) -> Constant:
    """A constant of one number for each channel as (1, C, 1, 1)."""
    assert isinstance(expr, Constant), "the pattern has a constant"
    return const(np.ascontiguousarray(expr.data).reshape(1, -1, 1, 1))


def _bias(parts: Parts) -> tuple[Constant, ...]:
    vectors = [channel_vector(bias.args[1]).data for bias in parts.biases]
    return (const(sum(vectors[1:], vectors[0])),) if vectors else ()


def kernel(call: Call) -> Kernel:
    """data, weight [, bias] [, scale, shift, mean, variance]"""
    body, outside = inside(call)
    parts = _parts(body)
    name = "nn.depthwise_conv2d" if parts.is_depthwise else name_of(parts.conv)
    weight = transposed(parts.conv.args[1], parts.conv.attrs.kernel_layout, "IOHW" if parts.is_depthwise else "OIHW")
    norm = tuple(channel_vector(e) for e in parts.norm.args[1:]) if parts.norm is not None else ()
    return Kernel(name, (outside[id(parts.data)], weight, *_bias(parts), *norm), _attrs(parts))


def _row(name: str, operator: str, with_pad: bool) -> Composite:
    form = functools.partial(pattern, operator, with_pad)
    return Composite(name, form, functools.partial(check, with_pad=with_pad), kernel)


COMPOSITES = (
    _row("pad_conv2d", "nn.conv2d", True),
    _row("conv2d", "nn.conv2d", False),
    _row("conv2d_transpose", "nn.conv2d_transpose", False),
)
