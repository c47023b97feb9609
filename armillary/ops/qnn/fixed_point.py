"""fixed_point_multiply, fixed_point_multiply_per_axis: integers times fractions that are written as integers.

In: int32 data, a multiplier of 31 fractional bits, a shift: the factor is multiplier / 2^31 * 2^shift. Out: int32, half
steps rounded up. By axis: a multiplier and two shifts for each index of `axes`. Invariant: products are exact (int64).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, need_tensor, tensor, type_of
from armillary.relay.expr import Constant, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

_FRACTION = 31


@record
class FixedPointMultiplyAttrs:
    multiplier: int = 0
    shift: int = 0


@record
class FixedPointMultiplyPerAxisAttrs:
    is_lshift_required: bool = False
    is_rshift_required: bool = False
    axes: tuple[int, ...] = ()


fixed_point_multiply = Op("fixed_point_multiply", kind=Kind.ELEMENTWISE, doc="Integers times a fraction of 31 bits.")
per_axis = Op(
    "fixed_point_multiply_per_axis",
    kind=Kind.BROADCAST,
    inputs=("data", "multiplier", "lshift", "rshift"),
    doc="Integers times fractions of 31 bits, one for each index of some axes.",
)
fixed_point_multiply.attrs(FixedPointMultiplyAttrs)
per_axis.attrs(FixedPointMultiplyPerAxisAttrs)


def _need_int32(op: str, ty: Type, what: str = "data") -> TensorType:
    x = need_tensor(op, ty, what)
    if x.dtype != "int32":
        raise TypeMismatch(f"{op}: {what} is {x}", hint="int32")
    return x


@fixed_point_multiply.infer
def _infer(attrs: FixedPointMultiplyAttrs, data: Type) -> TensorType:
    if not -_FRACTION < attrs.shift < _FRACTION:
        raise TypeMismatch(f"fixed_point_multiply: shift is {attrs.shift}", hint="-30 to 30")
    return _need_int32("fixed_point_multiply", data)


@per_axis.infer
def _infer_per_axis(attrs: FixedPointMultiplyPerAxisAttrs, data: Type, *vectors: Type) -> TensorType:
    x = _need_int32(per_axis.name, data)
    outside = [axis for axis in attrs.axes if not -x.ndim <= axis < x.ndim]
    if outside:
        raise TypeMismatch(f"{per_axis.name}: axis {outside[0]} is not in [-{x.ndim}, {x.ndim - 1}] of {x}")
    wanted = tuple(x.shape[axis] for axis in attrs.axes)
    for what, ty in zip(per_axis.inputs[1:], vectors, strict=True):
        if _need_int32(per_axis.name, ty, what).shape != wanted:
            raise TypeMismatch(f"{per_axis.name}: {what} is {ty}, the axes {list(attrs.axes)} are {wanted}")
    return x


def _scaled(data: Array, multiplier: Array | int, left: Array | int, right: Array | int) -> Array:
    product = np.left_shift(data.astype(np.int64), left) * multiplier
    shift = np.asarray(right, np.int64) + _FRACTION
    half = np.left_shift(np.int64(1), shift - 1)
    return np.asarray(np.right_shift(product + half, shift)).astype(np.int32)


@fixed_point_multiply.reference
def _reference(attrs: FixedPointMultiplyAttrs, data: Array) -> Array:
    return _scaled(data, attrs.multiplier, max(attrs.shift, 0), max(-attrs.shift, 0))


@per_axis.reference
def _reference_per_axis(attrs: FixedPointMultiplyPerAxisAttrs, data: Array, *vectors: Array) -> Array:
    others = tuple(axis for axis in range(data.ndim) if axis not in attrs.axes)
    multiplier, left, right = (np.expand_dims(v.astype(np.int64), others) for v in vectors)
    return _scaled(data, multiplier, left if attrs.is_lshift_required else 0, right if attrs.is_rshift_required else 0)


def _number(value: int) -> Expr:
    return Constant(np.asarray(value, np.int64))


def _written(data: Expr, multiplier: Expr, left: Expr | None, right: Expr) -> Expr:
    wide = call("cast", data, dtype="int64")
    wide = wide if left is None else call("left_shift", wide, left)
    shift = call("add", right, _number(_FRACTION))
    half = call("left_shift", _number(1), call("subtract", shift, _number(1)))
    scaled = call("right_shift", call("add", call("multiply", wide, multiplier), half), shift)
    return call("cast", scaled, dtype="int32")


@fixed_point_multiply.decompose
def _decompose(attrs: FixedPointMultiplyAttrs, data: Expr) -> Expr:
    left = _number(attrs.shift) if attrs.shift > 0 else None
    return _written(data, _number(attrs.multiplier), left, _number(max(-attrs.shift, 0)))


@per_axis.decompose
def _decompose_per_axis(attrs: FixedPointMultiplyPerAxisAttrs, data: Expr, *vectors: Expr) -> Expr:
    ndim = type_of(data).ndim
    wide = []
    for vector in vectors:
        spread = call("cast", vector, dtype="int64")
        for axis in range(ndim):
            spread = spread if axis in attrs.axes else call("expand_dims", spread, axis=axis)
        wide.append(spread)
    left = wide[1] if attrs.is_lshift_required else None
    return _written(data, wide[0], left, wide[2] if attrs.is_rshift_required else _number(0))


@fixed_point_multiply.samples
def _samples() -> Iterator[Sample]:
    data = np.array([[0, 1, -1, 1000], [123456, -123456, 7, -8]], np.int32)
    for multiplier, shift in ((1 << 30, 0), (1395864371, -3), (1395864371, 4)):
        yield Sample(FixedPointMultiplyAttrs(multiplier, shift), (data,))


@per_axis.samples
def _samples_per_axis() -> Iterator[Sample]:
    data = np.array([[100, -100, 3, 7], [123456, -123456, 7, -8]], np.int32)
    vectors = [np.array(v, np.int32) for v in ([1 << 30, 1395864371], [1, 2], [3, 0])]
    for left, right in ((True, False), (False, True), (True, True)):
        yield Sample(FixedPointMultiplyPerAxisAttrs(left, right, (0,)), (data, *vectors))


@fixed_point_multiply.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(FixedPointMultiplyAttrs(1, 40), (tensor("int32", 3),), "shift is 40")
    yield BadSample(FixedPointMultiplyAttrs(1, 0), (tensor("int64", 3),), "data is")


@per_axis.bad_samples
def _bad_samples_per_axis() -> Iterator[BadSample]:
    vectors = (tensor("int32", 3),) * 3
    yield BadSample(FixedPointMultiplyPerAxisAttrs(axes=(0,)), (tensor("int32", 2, 3), *vectors), "multiplier is")
