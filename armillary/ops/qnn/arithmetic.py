"""qnn.add, qnn.subtract, qnn.mul, qnn.concatenate: operators on affine integers of different scales.

In: tensors of one 8-bit dtype (sums: of up to 32 bits), a scale and a zero point for each and for the result. Out:
that dtype, saturated.
Invariant: qnn.add and qnn.subtract bring both sides to the result's scale (as qnn.requantize does) first; qnn.mul
multiplies exactly in int32 and requantizes once; qnn.concatenate requantizes each part whose parameters differ from the
result's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import broadcast_shapes, check_kind, check_same_dtype, f32, i32, of_type, tuple_fields
from armillary.ops.elementwise.broadcast import add, multiply, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.qnn.quantize import (
    RequantizeAttrs,
    centred,
    check_parameters,
    is_zero,
    placed,
    placed_array,
    requantize,
    requantize_reference,
    saturate,
    saturated,
    tensor_of,
)
from armillary.ops.shape.transform import concatenate
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Follows
from armillary.relay.types import TensorType, Type

_INPUTS = (
    "lhs",
    "rhs",
    "lhs_scale",
    "lhs_zero_point",
    "rhs_scale",
    "rhs_zero_point",
    "output_scale",
    "output_zero_point",
)
_NEUTRAL = np.int32(0)


@record
class QBinaryAttrs:
    lhs_axis: int = -1
    rhs_axis: int = -1


@record
class QConcatenateAttrs:
    axis: int = 0


qadd = Op("qnn.add", kind=Kind.BROADCAST, inputs=_INPUTS, doc="The sum of two affine-integer tensors, broadcasting.")
qsubtract = Op("qnn.subtract", kind=Kind.BROADCAST, inputs=_INPUTS, doc="The difference of two such tensors.")
qmul = Op("qnn.mul", kind=Kind.BROADCAST, inputs=_INPUTS, doc="Product of two affine-integer tensors, broadcasting.")
qadd.attrs(QBinaryAttrs)
qsubtract.attrs(QBinaryAttrs)
qmul.attrs(QBinaryAttrs)


def _infer_binary(name: str, attrs: QBinaryAttrs, types: Sequence[TensorType], bits: int = 32) -> TensorType:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = types
    dtype = check_same_dtype(name, (lhs, rhs))
    check_kind(name, "its input", lhs, "integer")
    if dtype.bits > bits or dtype == "uint32":
        raise TypeMismatch(f"{name}: its input has dtype {dtype}, wanted at most {bits} bits")
    check_parameters(name, lhs, attrs.lhs_axis, lhs_scale, lhs_zero)
    check_parameters(name, rhs, attrs.rhs_axis, rhs_scale, rhs_zero)
    result = TensorType(broadcast_shapes(name, lhs.shape, rhs.shape), dtype)
    check_parameters(name, result, attrs.lhs_axis, scale, zero)
    return result


qadd.infer(lambda attrs, *types: _infer_binary("qnn.add", attrs, types))
qsubtract.infer(lambda attrs, *types: _infer_binary("qnn.subtract", attrs, types))
qmul.infer(lambda attrs, *types: _infer_binary("qnn.mul", attrs, types, 8))


# --- add, subtract ----------------------------------------------------------------------------------------------------


def _sum_array(sign: int, attrs: QBinaryAttrs, *arrays: Array) -> Array:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = arrays
    sides = (lhs, lhs_scale, lhs_zero, attrs.lhs_axis), (rhs, rhs_scale, rhs_zero, attrs.rhs_axis)
    left, right = (
        requantize_reference(RequantizeAttrs(axis, out_dtype="int32"), x, s, z, scale, _NEUTRAL)
        for x, s, z, axis in sides
    )
    total = left.astype(np.int64) + sign * right.astype(np.int64)
    return saturated(total + placed_array(zero, total.ndim, attrs.lhs_axis), DType(lhs.dtype.name))


def _sum(join: Op, attrs: QBinaryAttrs, *args: Expr) -> Expr:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = args
    sides = (lhs, lhs_scale, lhs_zero, attrs.lhs_axis), (rhs, rhs_scale, rhs_zero, attrs.rhs_axis)
    left, right = (requantize(x, s, z, scale, const(_NEUTRAL), axis=axis, out_dtype="int32") for x, s, z, axis in sides)
    total: Expr = join(cast(left, "int64"), cast(right, "int64"))
    if not is_zero(zero):
        total = add(total, cast(placed(zero, tensor_of(total).ndim, attrs.lhs_axis), "int64"))
    return saturate(total, tensor_of(lhs).dtype)


qadd.reference(partial(_sum_array, 1))
qadd.decompose(partial(_sum, add))
qsubtract.reference(partial(_sum_array, -1))
qsubtract.decompose(partial(_sum, subtract))


# --- mul --------------------------------------------------------------------------------------------------------------


def _product_scale(attrs: QBinaryAttrs, ndim: int, lhs: Array, rhs: Array) -> Array:
    """The scale of a product, as an array that broadcasts to it."""
    left, right = placed_array(lhs, ndim, attrs.lhs_axis), placed_array(rhs, ndim, attrs.rhs_axis)
    return np.asarray(left.astype(np.float32) * right.astype(np.float32))


@qmul.reference
def qmul_reference(attrs: QBinaryAttrs, *arrays: Array) -> Array:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = arrays
    left = lhs.astype(np.int32) - placed_array(lhs_zero, lhs.ndim, attrs.lhs_axis).astype(np.int32)
    right = rhs.astype(np.int32) - placed_array(rhs_zero, rhs.ndim, attrs.rhs_axis).astype(np.int32)
    product = np.asarray(left * right)
    factor = _product_scale(attrs, product.ndim, lhs_scale, rhs_scale)
    to = RequantizeAttrs(attrs.lhs_axis, out_dtype=lhs.dtype.name)
    result: Array = requantize.evaluate(to, (product, factor, _NEUTRAL, scale, zero))
    return result


@qmul.decompose
def qmul_decompose(attrs: QBinaryAttrs, *args: Expr) -> Expr:
    lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero = args
    left = centred(lhs, lhs_zero, tensor_of(lhs).ndim, attrs.lhs_axis)
    product = multiply(left, centred(rhs, rhs_zero, tensor_of(rhs).ndim, attrs.rhs_axis))
    ndim = tensor_of(product).ndim
    if isinstance(lhs_scale, Constant) and isinstance(rhs_scale, Constant):
        factor: Expr = const(_product_scale(attrs, ndim, lhs_scale.data, rhs_scale.data))
    else:
        factor = multiply(placed(lhs_scale, ndim, attrs.lhs_axis), placed(rhs_scale, ndim, attrs.rhs_axis))
    to = RequantizeAttrs(attrs.lhs_axis, out_dtype=str(tensor_of(lhs).dtype))
    return requantize(product, factor, const(_NEUTRAL), scale, zero, **vars(to))


def _binary_samples() -> Iterator[Sample]:
    same = (np.float32(0.5), np.int32(3)) * 3
    other = (np.float32(0.5), np.int32(3), np.float32(0.02), np.int32(-4), np.float32(0.7), np.int32(5))
    i8, u8 = of_type("int8", 3, 5), of_type("uint8", 2, 1, 4)
    yield Sample(QBinaryAttrs(), (i8, i8, *same), domain=(-128, 127))
    yield Sample(QBinaryAttrs(), (i8, of_type("int8", 5), *other), domain=(-128, 127))
    yield Sample(QBinaryAttrs(), (u8, of_type("uint8", 3, 4), *other), domain=(0, 255))


def _bad_binary() -> Iterator[BadSample]:
    one = (f32(), i32()) * 3
    yield BadSample(QBinaryAttrs(), (of_type("int8", 3), of_type("uint8", 3), *one), "got uint8, wanted int8")
    yield BadSample(QBinaryAttrs(), (of_type("int8", 3), of_type("int8", 4), *one), "do not broadcast")
    yield BadSample(QBinaryAttrs(), (of_type("int64", 3), of_type("int64", 3), *one), "wanted at most")


for _op in (qadd, qsubtract, qmul):
    _op.samples(_binary_samples)
    _op.bad_samples(_bad_binary)


# --- concatenate ------------------------------------------------------------------------------------------------------

qconcatenate = Op(
    "qnn.concatenate",
    kind=Kind.INJECTIVE,
    inputs=("*data", "*input_scales", "*input_zero_points", "output_scale", "output_zero_point"),
    doc="Affine-integer tensors one after another, brought to one scale. The first three inputs are tuples.",
)
qconcatenate.attrs(QConcatenateAttrs)


@qconcatenate.infer
def infer_qconcatenate(
    attrs: QConcatenateAttrs, data: Type, scales: Type, zeros: Type, scale: TensorType, zero: TensorType
) -> Type:
    name = "qnn.concatenate"
    parts, part_scales, part_zeros = (tuple_fields(name, ty) for ty in (data, scales, zeros))
    if not len(parts) == len(part_scales) == len(part_zeros):
        counts = f"{len(part_scales)} scales, {len(part_zeros)} zero points"
        raise TypeMismatch(f"{name}: {len(parts)} tensors, {counts}")
    for part, part_scale, part_zero in zip(parts, part_scales, part_zeros, strict=True):
        check_kind(name, "its input", part, "integer")
        for s, z in ((part_scale, part_zero), (scale, zero)):
            if s.size != 1 or z.size != 1:
                raise TypeMismatch(f"{name}: scales and zero points are scalars, got {s} and {z}")
            check_parameters(name, part, 0, s, z)
    return concatenate.infer_type(concatenate.make_attrs((attrs.axis,)), (data,))


def _parts(
    data: tuple[Array, ...], scales: tuple[Array, ...], zeros: tuple[Array, ...], scale: Array, zero: Array
) -> Iterator[Array]:
    for x, s, z in zip(data, scales, zeros, strict=True):
        if s == scale and z == zero:
            yield x
        else:
            yield requantize_reference(RequantizeAttrs(0, out_dtype=x.dtype.name), x, s, z, scale, zero)


@qconcatenate.reference
def qconcatenate_reference(
    attrs: QConcatenateAttrs,
    data: tuple[Array, ...],
    scales: tuple[Array, ...],
    zeros: tuple[Array, ...],
    scale: Array,
    zero: Array,
) -> Array:
    return np.concatenate(tuple(_parts(data, scales, zeros, scale, zero)), attrs.axis)


def _fields(value: Expr) -> tuple[Expr, ...]:
    """The fields of a tuple-typed expression."""
    if isinstance(value, Tuple):
        return value.fields
    ty: Any = value.checked_type
    return tuple(TupleGetItem(value, k) for k in range(len(ty.fields)))


def _same(a: Expr, b: Expr) -> bool:
    return isinstance(a, Constant) and isinstance(b, Constant) and bool(np.all(a.data == b.data))


@qconcatenate.decompose
def qconcatenate_decompose(
    attrs: QConcatenateAttrs, data: Expr, scales: Expr, zeros: Expr, scale: Expr, zero: Expr
) -> Expr:
    parts = []
    for x, s, z in zip(_fields(data), _fields(scales), _fields(zeros), strict=True):
        moved = requantize(x, s, z, scale, zero, axis=0, out_dtype=str(tensor_of(x).dtype))
        parts.append(x if _same(s, scale) and _same(z, zero) else moved)
    return concatenate(tuple(parts), attrs.axis)


@qconcatenate.samples
def qconcatenate_samples() -> Iterator[Sample]:
    parts = (of_type("uint8", 2, 3), of_type("uint8", 2, 1))
    scales, zeros = (np.float32(0.5), np.float32(0.1)), (np.int32(3), np.int32(9))
    output = (np.float32(0.5), np.int32(3))
    yield Sample(QConcatenateAttrs(1), (parts, scales, zeros, *output), domain=(0, 255))


@qconcatenate.bad_samples
def qconcatenate_bad_samples() -> Iterator[BadSample]:
    parts = (of_type("uint8", 2, 3), of_type("uint8", 2, 1))
    two = ((f32(), f32()), (i32(), i32()), f32(), i32())
    yield BadSample(QConcatenateAttrs(0), (parts, *two), "concatenate")
    yield BadSample(QConcatenateAttrs(1), (parts, (f32(),), *two[1:]), "2 tensors, 1 scales")


state("qnn.add qnn.mul qnn.subtract", follows=Follows.QUANTIZED_BINARY)
state("qnn.concatenate", follows=Follows.QUANTIZED_JOIN)
