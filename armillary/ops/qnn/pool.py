"""qnn.avg_pool2d, qnn.simulated_quantize, qnn.simulated_dequantize.

In: 8-bit data and its scale and zero point, those of the result (avg_pool2d); float data (the simulated ones, which
give what quantising and dequantising would lose, in float). Out: the data's dtype. Invariant: the mean is that of
integers, exact in float32 up to one rounding; it is rounded half to even, as qnn.quantize does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import check_kind, f32, i32, of_type
from armillary.ops.elementwise.broadcast import multiply, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.qnn.quantize import (
    DequantizeAttrs,
    QuantizeAttrs,
    check_parameters,
    is_zero,
    placed,
    placed_array,
    quantize,
    tensor_of,
)
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.types import TensorType, Type


@record
class QAvgPool2DAttrs:
    pool_size: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    ceil_mode: bool = False
    count_include_pad: bool = True
    layout: str = "NCHW"
    out_layout: str = ""


avg_pool2d = Op(
    "qnn.avg_pool2d",
    kind=Kind.CONTRACTION,
    inputs=("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    doc="nn.avg_pool2d of affine integers.",
)
avg_pool2d.attrs(QAvgPool2DAttrs)


def _pool_attrs(attrs: QAvgPool2DAttrs) -> object:
    return get_op("nn.avg_pool2d").make_attrs((), vars(attrs))


@avg_pool2d.infer
def infer_avg_pool2d(attrs: QAvgPool2DAttrs, data: TensorType, *parameters: TensorType) -> Type:
    name = "qnn.avg_pool2d"
    check_kind(name, "data", data, "integer")
    for scale, zero in (parameters[:2], parameters[2:]):
        if scale.size != 1 or zero.size != 1:
            raise TypeMismatch(f"{name}: scales and zero points are scalars, got {scale} and {zero}")
        check_parameters(name, data, 0, scale, zero)
    pooled = get_op("nn.avg_pool2d").infer_type(_pool_attrs(attrs), (TensorType(data.shape, DType("float32")),))
    assert isinstance(pooled, TensorType), "a pool gives a tensor"
    return TensorType(pooled.shape, data.dtype)


@avg_pool2d.reference
def avg_pool2d_reference(attrs: QAvgPool2DAttrs, data: Array, *parameters: Array) -> Array:
    scale, zero, to, to_zero = (np.reshape(p, ()) for p in parameters)
    steps = (data.astype(np.int32) - zero.astype(np.int32)).astype(np.float32)
    mean = get_op("nn.avg_pool2d").evaluate(_pool_attrs(attrs), (steps,))
    result: Array = quantize.evaluate(QuantizeAttrs(-1, data.dtype.name), (mean * scale, to, to_zero))
    return result


@avg_pool2d.decompose
def avg_pool2d_decompose(attrs: QAvgPool2DAttrs, data: Expr, *parameters: Expr) -> Expr:
    scale, zero, to, to_zero = parameters
    steps = cast(data, "int32")
    moved = steps if is_zero(zero) else subtract(steps, cast(placed(zero, 0, 0), "int32"))
    mean = get_op("nn.avg_pool2d")(cast(moved, "float32"), **vars(attrs))
    dtype = str(tensor_of(data).dtype)
    return quantize(multiply(mean, placed(scale, 0, 0)), to, to_zero, axis=-1, out_dtype=dtype)


@avg_pool2d.samples
def avg_pool2d_samples() -> Iterator[Sample]:
    one = (np.float32(0.5), np.int32(2), np.float32(0.25), np.int32(-3))
    same = (np.float32(0.5), np.int32(2)) * 2
    yield Sample(QAvgPool2DAttrs((2, 2), (2, 2)), (of_type("int8", 1, 3, 6, 4), *one), domain=(-128, 127))
    padded = QAvgPool2DAttrs((3, 3), padding=(1, 1), count_include_pad=False)
    yield Sample(padded, (of_type("uint8", 1, 2, 5, 5), *same), domain=(0, 255))


@avg_pool2d.bad_samples
def avg_pool2d_bad_samples() -> Iterator[BadSample]:
    data, one = of_type("int8", 1, 3, 6, 4), (f32(), i32(), f32(), i32())
    yield BadSample(QAvgPool2DAttrs(), (f32(1, 3, 6, 4), *one), "data has dtype float32, wanted integer")
    yield BadSample(QAvgPool2DAttrs(), (data, f32(3), i32(), f32(), i32()), "scalars")


# --- simulated --------------------------------------------------------------------------------------------------------

_INPUTS = ("data", "scale", "zero_point")
simulated_quantize = Op("qnn.simulated_quantize", kind=Kind.ELEMENTWISE, inputs=_INPUTS, doc="qnn.quantize, in float.")
simulated_dequantize = Op(
    "qnn.simulated_dequantize", kind=Kind.ELEMENTWISE, inputs=_INPUTS, doc="qnn.dequantize of integers held in float."
)
simulated_quantize.attrs(QuantizeAttrs)
simulated_dequantize.attrs(DequantizeAttrs)


def _infer(name: str, attrs: QuantizeAttrs, data: TensorType, scale: TensorType, zero: TensorType) -> Type:
    check_kind(name, "data", data, "float")
    check_parameters(name, data, attrs.axis, scale, zero)
    quantize.infer_type(QuantizeAttrs(attrs.axis, "int8"), (data, scale, zero))
    return data


simulated_quantize.infer(partial(_infer, "qnn.simulated_quantize"))
simulated_dequantize.infer(partial(_infer, "qnn.simulated_dequantize"))


@simulated_quantize.reference
def simulated_quantize_reference(attrs: QuantizeAttrs, data: Array, scale: Array, zero: Array) -> Array:
    return np.asarray(quantize.evaluate(attrs, (data, scale, zero))).astype(data.dtype)


@simulated_quantize.decompose
def simulated_quantize_decompose(attrs: QuantizeAttrs, data: Expr, scale: Expr, zero: Expr) -> Expr:
    return cast(quantize(data, scale, zero, **vars(attrs)), tensor_of(data).dtype)


@simulated_dequantize.reference
def simulated_dequantize_reference(attrs: DequantizeAttrs, data: Array, scale: Array, zero: Array) -> Array:
    steps = data - placed_array(zero, data.ndim, attrs.axis).astype(data.dtype)
    return np.asarray(steps * placed_array(scale, data.ndim, attrs.axis).astype(data.dtype))


@simulated_dequantize.decompose
def simulated_dequantize_decompose(attrs: DequantizeAttrs, data: Expr, scale: Expr, zero: Expr) -> Expr:
    ndim, dtype = tensor_of(data).ndim, tensor_of(data).dtype
    steps = subtract(data, cast(placed(zero, ndim, attrs.axis), dtype))
    return multiply(steps, cast(placed(scale, ndim, attrs.axis), dtype))


def _samples(attrs: DequantizeAttrs | QuantizeAttrs) -> Iterator[Sample]:
    yield Sample(attrs, (f32(3, 5), np.float32(0.25), np.int32(3)), domain=(-40, 40))
    yield Sample(attrs, (f32(2, 3), np.array([0.1, 2, 0.03], np.float32), np.array([0, 7, -2], np.int32)))


def _bad_samples(attrs: DequantizeAttrs | QuantizeAttrs) -> Iterator[BadSample]:
    yield BadSample(attrs, (i32(3), f32(), i32()), "data has dtype int32, wanted float")


for _op, _attrs in ((simulated_quantize, QuantizeAttrs()), (simulated_dequantize, DequantizeAttrs())):
    _op.samples(partial(_samples, _attrs))
    _op.bad_samples(partial(_bad_samples, _attrs))


state("qnn.avg_pool2d", follows=Follows.QUANTIZED_POOL, axes=Axes("NCHW"))
