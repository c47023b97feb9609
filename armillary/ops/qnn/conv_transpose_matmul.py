"""qnn.conv2d_transpose, qnn.batch_matmul: further products of affine integers, accumulated exactly in int32.

In: as qnn.conv2d (product.py); qnn.batch_matmul takes the zero points and scales of its two inputs, all scalars,
and the second input transposed unless told otherwise.
Out: int32 sums of (x - zero point) * (y - zero point). Invariant: scales do not enter the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import check_kind, f32, i32, of_type
from armillary.ops.nn.conv_transpose import Conv2DTransposeAttrs, conv2d_transpose
from armillary.ops.nn.dense import BatchMatmulAttrs, batch_matmul
from armillary.ops.qnn._byte_products import are_bytes, byte_product
from armillary.ops.qnn.product import PRODUCT_INPUTS, check_product, moved_array, operand
from armillary.ops.qnn.quantize import check_parameters
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.op.macs import product_macs, transposed_macs
from armillary.relay.types import TensorType, Type


@record
class QConv2DTransposeAttrs(Conv2DTransposeAttrs):
    out_dtype: str = "int32"


@record
class QBatchMatmulAttrs:
    out_dtype: str = "int32"
    transpose_b: bool = True


qconv2d_transpose = Op(
    "qnn.conv2d_transpose",
    kind=Kind.CONTRACTION,
    inputs=PRODUCT_INPUTS,
    doc="nn.conv2d_transpose of affine integers, in int32.",
)
qbatch_matmul = Op(
    "qnn.batch_matmul",
    kind=Kind.CONTRACTION,
    inputs=("x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale"),
    doc="nn.batch_matmul of affine integers, in int32.",
)
qconv2d_transpose.macs(transposed_macs)
qbatch_matmul.macs(product_macs)
qconv2d_transpose.attrs(QConv2DTransposeAttrs)
qbatch_matmul.attrs(QBatchMatmulAttrs)


def _plain(attrs: QConv2DTransposeAttrs) -> Conv2DTransposeAttrs:
    return Conv2DTransposeAttrs(**{f.name: getattr(attrs, f.name) for f in fields(Conv2DTransposeAttrs)})


@qconv2d_transpose.infer
def infer_qconv2d_transpose(attrs: QConv2DTransposeAttrs, *types: TensorType) -> Type:
    check_product("qnn.conv2d_transpose", attrs, max(attrs.kernel_layout.find("O"), 0), types)
    return conv2d_transpose.infer_type(_plain(attrs), types[:2])


@qconv2d_transpose.reference
def qconv2d_transpose_reference(attrs: QConv2DTransposeAttrs, *arrays: Array) -> Array:
    data, weight, zero, weight_zero = arrays[:4]
    axis = attrs.kernel_layout.index("O")
    result: Array = conv2d_transpose.evaluate(
        _plain(attrs), (moved_array(data, zero, 0), moved_array(weight, weight_zero, axis))
    )
    return result


@qconv2d_transpose.decompose
def qconv2d_transpose_decompose(attrs: QConv2DTransposeAttrs, *args: Expr) -> Expr:
    data, weight, zero, weight_zero = args[:4]
    named = {f.name: getattr(attrs, f.name) for f in fields(Conv2DTransposeAttrs)}
    moved = operand(weight, weight_zero, attrs.kernel_layout.index("O"))
    return conv2d_transpose(operand(data, zero, 0), moved, **named)


def _plain_product(attrs: QBatchMatmulAttrs) -> BatchMatmulAttrs:
    return BatchMatmulAttrs("int32", transpose_b=attrs.transpose_b)


@qbatch_matmul.infer
def infer_qbatch_matmul(
    attrs: QBatchMatmulAttrs,
    x: TensorType,
    y: TensorType,
    x_zero: TensorType,
    y_zero: TensorType,
    x_scale: TensorType,
    y_scale: TensorType,
) -> Type:
    name = "qnn.batch_matmul"
    for what, ty, scale, zero in (("x", x, x_scale, x_zero), ("y", y, y_scale, y_zero)):
        check_kind(name, what, ty, "integer")
        if ty.dtype.bits > 16:
            raise TypeMismatch(f"{name}: {what} has dtype {ty.dtype}, wanted at most 16 bits")
        if scale.size != 1 or zero.size != 1:
            raise TypeMismatch(f"{name}: scales and zero points are scalars, got {scale} and {zero}")
        check_parameters(name, ty, 0, scale, zero)
    if DType(attrs.out_dtype) != "int32":
        raise TypeMismatch(f"{name}: out_dtype {attrs.out_dtype}, wanted int32")
    return batch_matmul.infer_type(_plain_product(attrs), (x, y))


@qbatch_matmul.reference
def qbatch_matmul_reference(attrs: QBatchMatmulAttrs, *arrays: Array) -> Array:
    x, y, x_zero, y_zero = arrays[:4]
    result: Array = batch_matmul.evaluate(_plain_product(attrs), (moved_array(x, x_zero, 0), moved_array(y, y_zero, 0)))
    return result


@qbatch_matmul.decompose
def qbatch_matmul_decompose(attrs: QBatchMatmulAttrs, *args: Expr) -> Expr:
    x, y, x_zero, y_zero = args[:4]
    if are_bytes(x, y):
        product = partial(batch_matmul, transpose_b=attrs.transpose_b, out_dtype="int32")
        return byte_product(x, x_zero, y, y_zero, product, (2, 2 if attrs.transpose_b else 1))
    moved = operand(x, x_zero, 0), operand(y, y_zero, 0)
    return batch_matmul(*moved, transpose_b=attrs.transpose_b, out_dtype="int32")


@qconv2d_transpose.samples
def qconv2d_transpose_samples() -> Iterator[Sample]:
    one = (np.float32(0.5), np.float32(0.25))
    u8, i8 = of_type("uint8", 1, 3, 4, 5), of_type("int8", 3, 2, 3, 3)
    plain = QConv2DTransposeAttrs(padding=(1, 1))
    yield Sample(plain, (u8, i8, np.int32(128), np.int32(0), *one), domain=(-128, 255))
    strided = QConv2DTransposeAttrs(strides=(2, 2), output_padding=(1, 1), padding=(1, 1))
    channels = (np.float32(0.5), np.array([0.1, 0.3], np.float32))
    yield Sample(strided, (u8, i8, np.int32(3), np.array([1, -2], np.int32), *channels), domain=(-128, 255))


@qbatch_matmul.samples
def qbatch_matmul_samples() -> Iterator[Sample]:
    x, y = of_type("uint8", 2, 3, 7), of_type("int8", 2, 4, 7)
    scales = (np.float32(0.5), np.float32(0.25))
    yield Sample(QBatchMatmulAttrs(), (x, y, np.int32(128), np.int32(-1), *scales), domain=(-128, 255))
    yield Sample(QBatchMatmulAttrs(), (y, y, np.int32(0), np.int32(0), *scales), domain=(-128, 127))
    plain = QBatchMatmulAttrs(transpose_b=False)
    yield Sample(plain, (x, of_type("uint8", 1, 7, 5), np.int32(9), np.int32(120), *scales), domain=(-128, 255))


@qconv2d_transpose.bad_samples
def qconv2d_transpose_bad_samples() -> Iterator[BadSample]:
    weight, one = of_type("int8", 3, 2, 3, 3), (i32(), i32(), f32(), f32())
    yield BadSample(QConv2DTransposeAttrs(), (f32(1, 3, 4, 5), weight, *one), "data has dtype float32, wanted integer")


@qbatch_matmul.bad_samples
def qbatch_matmul_bad_samples() -> Iterator[BadSample]:
    x, one = of_type("int8", 2, 3, 7), (i32(), i32(), f32(), f32())
    yield BadSample(QBatchMatmulAttrs(), (x, i32(2, 4, 7), *one), "wanted at most 16 bits")
    yield BadSample(QBatchMatmulAttrs("int8"), (x, x, *one), "out_dtype int8, wanted int32")
    yield BadSample(QBatchMatmulAttrs(), (x, x, i32(3), i32(), f32(), f32()), "scalars")


_AXES = Axes("NCHW", "IOHW", (("NCHW", "IOHW"), ("NHWC", "HWIO")))
state("qnn.conv2d_transpose", follows=Follows.ASKED, axes=_AXES)
