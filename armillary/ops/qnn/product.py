"""qnn.conv2d and qnn.dense: products of affine integers, accumulated exactly.

In: data and weight of 8 or 16 bits, their zero points and scales; those of the weight may be one per output channel.
Out: int32 sums of (data - zero point) * (weight - zero point), whose scale is input_scale * kernel_scale and whose zero
point is 0; qnn.requantize brings them back to 8 bits. Invariant: padding stands for the real number 0. Scales do not
enter the arithmetic. qnn.dense multiplies bytes as they are (_byte_products.py). Convolutions, and products where the
target has neither dot products of bytes nor adds products up in 16 bits, are computed in float32 if their weights are
constant and their sums stay below 2**24, which is exact: every partial sum, in any order, is an integer that float32
holds. Weights then take four bytes each; the configuration `relay.qnn.product_in_float` False keeps integers. Import of
QLinearConv etc.: rules/qnn.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import check_kind, f32, i32, of_type
from armillary.ops.elementwise.broadcast import subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn.conv import Conv2DAttrs, conv2d
from armillary.ops.nn.dense import DenseAttrs, dense
from armillary.ops.qnn._byte_convolutions import conv2d_of_bytes
from armillary.ops.qnn._byte_products import are_bytes, byte_product, has_dots, joins_products
from armillary.ops.qnn.quantize import centred, check_parameters, is_zero, placed, placed_array, tensor_of
from armillary.relay.expr import Constant, Expr, const, typical_of
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.op.macs import convolution_macs, product_macs
from armillary.relay.types import TensorType, Type
from armillary.transform import PassContext, register_config_option

if TYPE_CHECKING:
    from armillary.ops.qnn.conv_transpose_matmul import QConv2DTransposeAttrs

PRODUCT_IN_FLOAT = register_config_option(
    "relay.qnn.product_in_float",
    bool,
    True,
    "quantised products in float32 where that is exact: faster, with weights of four bytes instead of one",
)
EXACT_IN_FLOAT32 = 1 << 24
MIN_ROWS = 4  # with fewer rows qnn.dense is bound by reading its weights, which take a quarter as bytes
PRODUCT_INPUTS = (
    "data",
    "weight",
    "input_zero_point",
    "kernel_zero_point",
    "input_scale",
    "kernel_scale",
)


@record
class QConv2DAttrs:
    kernel_size: tuple[int, ...] | None = None
    channels: int | None = None
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = "int32"


@record
class QDenseAttrs:
    units: int | None = None
    out_dtype: str = "int32"


qconv2d = Op("qnn.conv2d", kind=Kind.CONTRACTION, inputs=PRODUCT_INPUTS, doc="nn.conv2d of affine integers, in int32.")
qdense = Op("qnn.dense", kind=Kind.CONTRACTION, inputs=PRODUCT_INPUTS, doc="nn.dense of affine integers, in int32.")
qconv2d.macs(convolution_macs)
qdense.macs(product_macs)
qconv2d.attrs(QConv2DAttrs)
qdense.attrs(QDenseAttrs)


def _plain(attrs: QConv2DAttrs) -> Conv2DAttrs:
    return Conv2DAttrs(**{f.name: getattr(attrs, f.name) for f in fields(QConv2DAttrs)})


def check_product(
    name: str, attrs: QDenseAttrs | QConv2DTransposeAttrs | QConv2DAttrs, channel: int, types: tuple[TensorType, ...]
) -> None:
    """Types of the six inputs; `channel` is the weight's axis of output channels."""
    data, weight, zero, weight_zero, scale, weight_scale = types
    for what, ty in (("data", data), ("the weight", weight)):
        check_kind(name, what, ty, "integer")
        if ty.dtype.bits > 16:
            raise TypeMismatch(f"{name}: {what} has dtype {ty.dtype}, wanted at most 16 bits")
    if zero.size != 1 or scale.size != 1:
        raise TypeMismatch(f"{name}: the data has one scale and one zero point", hint="only weights have one a channel")
    check_parameters(name, data, 0, scale, zero)
    check_parameters(name, weight, channel, weight_scale, weight_zero)
    if DType(attrs.out_dtype) != "int32":
        raise TypeMismatch(f"{name}: out_dtype {attrs.out_dtype}, wanted int32")


@qconv2d.infer
def infer_qconv2d(attrs: QConv2DAttrs, *types: TensorType) -> Type:
    channel = max(attrs.kernel_layout.find("O"), 0)
    check_product("qnn.conv2d", attrs, channel, types)
    return conv2d.infer_type(_plain(attrs), types[:2])


@qdense.infer
def infer_qdense(attrs: QDenseAttrs, *types: TensorType) -> Type:
    check_product("qnn.dense", attrs, 0, types)
    return dense.infer_type(DenseAttrs(attrs.units, attrs.out_dtype), types[:2])


def moved_array(data: Array, zero: Array, axis: int) -> Array:
    """data - zero point, in int32."""
    return np.asarray(data.astype(np.int32) - placed_array(zero, data.ndim, axis).astype(np.int32))


@qconv2d.reference
def qconv2d_reference(attrs: QConv2DAttrs, *arrays: Array) -> Array:
    data, weight, zero, weight_zero = arrays[:4]
    moved = (moved_array(data, zero, 0), moved_array(weight, weight_zero, attrs.kernel_layout.index("O")))
    result: Array = conv2d.evaluate(_plain(attrs), moved)
    return result


@qdense.reference
def qdense_reference(attrs: QDenseAttrs, *arrays: Array) -> Array:
    data, weight, zero, weight_zero = arrays[:4]
    moved = (moved_array(data, zero, 0), moved_array(weight, weight_zero, 0))
    result: Array = dense.evaluate(DenseAttrs(attrs.units, "int32"), moved)
    return result


def operand(x: Expr, zero: Expr, axis: int) -> Expr:
    """x - zero point in the smallest type that holds it; x itself when the zero point is 0."""
    if is_zero(zero):
        return x
    ty = tensor_of(x)
    return centred(x, zero, ty.ndim, axis, "int16" if ty.dtype.bits <= 8 else "int32")


def in_float(data: Expr, weight: Expr, zero: Expr, weight_zero: Expr, axis: int) -> tuple[Expr, Expr] | None:
    """Both operands, centred, in float32; None unless the product is exact there. `axis`: the weight's output channels.

    A partial sum is at most the largest |data - zero point| times the sum of one channel's |weight - zero point|.
    """
    if not isinstance(weight, Constant) or not isinstance(weight_zero, Constant) or weight.data.size == 0:
        return None
    if not PassContext.current().get(PRODUCT_IN_FLOAT):
        return None
    ty = tensor_of(data)
    moved = moved_array(weight.data, weight_zero.data, axis)
    rest = tuple(a for a in range(moved.ndim) if a != axis)
    heaviest = int(np.abs(moved.astype(np.int64)).sum(rest).max())
    if _largest(ty.dtype, zero) * heaviest > EXACT_IN_FLOAT32:
        return None
    wide = cast(data, "float32")
    centre = wide if is_zero(zero) else subtract(wide, cast(placed(zero, ty.ndim, 0), "float32"))
    return centre, const(moved.astype(np.float32))


def _largest(dtype: DType, zero: Expr) -> int:
    """The largest |value - zero point|; a zero point that is computed lies within the dtype."""
    low, high = int(dtype.min_value), int(dtype.max_value)
    if not isinstance(zero, Constant):
        return high - low
    point = int(np.reshape(zero.data, ()))
    return max(abs(low - point), abs(high - point))


def conv2d_in_float(attrs: QConv2DAttrs, args: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """The operands of a qnn.conv2d in float32, where that is exact."""
    data, weight, zero, weight_zero = args[:4]
    return in_float(data, weight, zero, weight_zero, attrs.kernel_layout.index("O"))


def dense_in_float(attrs: QDenseAttrs, args: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """The operands of a qnn.dense in float32, where that is exact and faster: without dot products of bytes."""
    data, weight, zero, weight_zero = args[:4]
    if are_bytes(data, weight) and (has_dots() or joins_products(weight, weight_zero)):
        return None
    usual = typical_of(data)
    many = usual is not None and math.prod(usual.static[:-1]) >= MIN_ROWS
    return in_float(data, weight, zero, weight_zero, 0) if many else None


@qconv2d.decompose
def qconv2d_decompose(attrs: QConv2DAttrs, *args: Expr) -> Expr:
    data, weight, zero, weight_zero = args[:4]
    named = {f.name: getattr(attrs, f.name) for f in fields(Conv2DAttrs) if hasattr(attrs, f.name)}
    bytes_ = conv2d_of_bytes(attrs, data, weight, zero, weight_zero)
    if bytes_ is not None:
        return bytes_
    exact = conv2d_in_float(attrs, args)
    if exact is not None:
        return cast(conv2d(*exact, **{**named, "out_dtype": ""}), "int32")
    moved = operand(weight, weight_zero, attrs.kernel_layout.index("O"))
    return conv2d(operand(data, zero, 0), moved, **named)


@qdense.decompose
def qdense_decompose(attrs: QDenseAttrs, *args: Expr) -> Expr:
    data, weight, zero, weight_zero = args[:4]
    exact = dense_in_float(attrs, args)
    if exact is not None:
        return cast(dense(*exact, units=attrs.units), "int32")
    if are_bytes(data, weight):
        product = partial(dense, units=attrs.units, out_dtype="int32")
        return byte_product(data, zero, weight, weight_zero, product, (tensor_of(data).ndim - 1, 1))
    return dense(operand(data, zero, 0), operand(weight, weight_zero, 0), units=attrs.units, out_dtype="int32")


def _parameters(zero: int, weight_zero: int | list[int], channels: int = 1) -> tuple[object, ...]:
    scale = np.float32(0.25) if channels == 1 else np.linspace(0.1, 1, channels).astype(np.float32)
    return np.int32(zero), np.asarray(weight_zero, np.int32), np.float32(0.5), scale


@qconv2d.samples
def qconv2d_samples() -> Iterator[Sample]:
    u8, i8 = of_type("uint8", 1, 3, 6, 5), of_type("int8", 4, 3, 3, 3)
    yield Sample(QConv2DAttrs(padding=(1, 1)), (u8, i8, *_parameters(128, 0)), domain=(-128, 255))
    yield Sample(QConv2DAttrs(strides=(2, 2)), (u8, i8, *_parameters(7, [1, -2, 3, 0], 4)), domain=(-128, 255))
    depthwise = QConv2DAttrs(groups=3, padding=(1, 1))
    yield Sample(depthwise, (u8, of_type("uint8", 3, 1, 3, 3), *_parameters(9, 100)), domain=(0, 255))
    nhwc = QConv2DAttrs(data_layout="NHWC", kernel_layout="HWIO", channels=2, kernel_size=(3, 3))
    channels_last = (of_type("int8", 1, 5, 5, 3), of_type("int8", 3, 3, 3, 2), *_parameters(-5, 0))
    yield Sample(nhwc, channels_last, domain=(-128, 127))


@qdense.samples
def qdense_samples() -> Iterator[Sample]:
    data, weight = of_type("uint8", 3, 7), of_type("int8", 4, 7)
    yield Sample(QDenseAttrs(), (data, weight, *_parameters(128, 0)), domain=(-128, 255))
    yield Sample(QDenseAttrs(4), (data, weight, *_parameters(0, [1, 2, -3, 0], 4)), domain=(-128, 255))


@qconv2d.bad_samples
def qconv2d_bad_samples() -> Iterator[BadSample]:
    data, weight, one = of_type("uint8", 1, 3, 6, 5), of_type("int8", 4, 3, 3, 3), (i32(), i32(), f32(), f32())
    yield BadSample(QConv2DAttrs(), (f32(1, 3, 6, 5), weight, *one), "data has dtype float32, wanted integer")
    yield BadSample(QConv2DAttrs(), (data, weight, i32(3), i32(), f32(), f32()), "one scale and one zero point")
    yield BadSample(QConv2DAttrs(), (data, weight, i32(), i32(), f32(), f32(3)), "the scale has 3 values, axis 0 has 4")
    yield BadSample(QConv2DAttrs(out_dtype="int8"), (data, weight, *one), "out_dtype int8, wanted int32")


@qdense.bad_samples
def qdense_bad_samples() -> Iterator[BadSample]:
    one = (i32(), i32(), f32(), f32())
    yield BadSample(QDenseAttrs(), (of_type("int8", 2, 3), of_type("int8", 4, 5), *one), "inner sizes differ")
    yield BadSample(QDenseAttrs(), (i32(2, 3), of_type("int8", 4, 3), *one), "wanted at most 16 bits")


_AXES = Axes("NCHW", "OIHW", (("NCHW", "OIHW"), ("NHWC", "HWIO")))
state("qnn.conv2d", follows=Follows.ASKED, axes=_AXES)
state("qnn.dense", follows=Follows.ROWS)
