"""qnn.tanh, qnn.sigmoid… qnn.leaky_relu, qnn.softmax: functions of affine integers, by table and by integer sums.

In: 8-bit data, its scale and zero point and those of the result (scalars, constants). Out: the same dtype, saturated.
A function of one 8-bit value has 256 results: they are computed when compiling (in float64, rounded half to even, as
qnn.quantize does) and looked up, so compiled code and reference agree in every bit, whatever the machine's exp is.
qnn.softmax looks up exp(q - max) as integers of 24 bits, sums them exactly, and divides once. qnn.avg_pool2d is in
qnn/pool.py. Invariant: NaN results (log of a negative number, a scale that is none) are the zero point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import erf as numpy_erf
from armillary.ops._types import axis_of, check_kind, f32, i32, of_type, quiet
from armillary.ops.elementwise.broadcast import add, divide, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.elementwise.elementwise import round_half_even
from armillary.ops.qnn.quantize import check_parameters, saturate, tensor_of
from armillary.ops.shape.indexing import take
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op
from armillary.relay.types import TensorType

_INPUTS = ("x", "scale", "zero_point", "output_scale", "output_zero_point")
_LARGEST, _LEAST = (1 << 31) - 1, 5e-324
_EXP_ONE = 1 << 24  # exp(0) in the table of qnn.softmax: a sum of 2**7 million terms fits int64 by far


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def hardswish_func(x: Array) -> Array:
    """The function of `qnn.hardswish`, of floats."""
    return np.asarray(x * np.clip(x + 3, 0, 6) / 6)


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": numpy_erf,
    "sigmoid": _sigmoid,
    "hardswish": hardswish_func,
    "log": np.log,
    "abs": np.abs,
}


def _check(name: str, data: TensorType, parameters: tuple[TensorType, ...]) -> TensorType:
    check_kind(name, "its input", data, "integer")
    if data.dtype.bits > 8:
        raise TypeMismatch(f"{name}: its input has dtype {data.dtype}, wanted int8 or uint8")
    for scale, zero in (parameters[:2], parameters[2:]):
        if scale.size != 1 or zero.size != 1:
            raise TypeMismatch(f"{name}: scales and zero points are scalars, got {scale} and {zero}")
        check_parameters(name, data, 0, scale, zero)
    return data


@quiet
def _table(function: Callable[[Array], Array], dtype: DType, parameters: list[Array]) -> Array:
    """The result for every value of the dtype, from the lowest on."""
    scale, zero, to, to_zero = (np.float64(np.reshape(p, ())) for p in parameters)
    values = np.arange(dtype.min_value, dtype.max_value + 1, dtype=np.float64)
    table = function((values - zero) * scale)
    ratio = np.asarray(table) / to
    steps = np.where(np.isnan(ratio), 0.0, np.round(ratio)) + to_zero
    return np.asarray(np.clip(steps, dtype.min_value, dtype.max_value)).astype(dtype.numpy)


def _constants(name: str, parameters: tuple[Expr, ...]) -> list[Array]:
    if not all(isinstance(p, Constant) for p in parameters):
        raise UnsupportedError(
            f"{name}: its table needs constant scales and zero points",
            hint="dequantize, compute in float32 and quantize instead",
        )
    return [p.data for p in parameters if isinstance(p, Constant)]


def _position(x: Expr, dtype: DType) -> Expr:
    """The place of a value in a table that begins with the lowest one."""
    wide = cast(x, "int32")
    return wide if dtype.min_value == 0 else subtract(wide, const(dtype.min_value, "int32"))


def _look_up(op: Op, function: Callable[[Array], Array], x: Expr, parameters: tuple[Expr, ...]) -> Expr:
    dtype = tensor_of(x).dtype
    table = _table(function, dtype, _constants(op.name, parameters))
    return take(const(table), _position(x, dtype), axis=0, mode="fast")


def _look_up_array(function: Callable[[Array], Array], x: Array, parameters: tuple[Array, ...]) -> Array:
    dtype = DType(x.dtype.name)
    return np.asarray(_table(function, dtype, list(parameters))[x.astype(np.int32) - dtype.min_value])


def _samples(attrs: QLeakyReluAttrs | QSoftmaxAttrs | None = None) -> Iterator[Sample]:
    narrow = (np.float32(0.04), np.int32(-3), np.float32(1 / 128), np.int32(2))
    yield Sample(attrs, (of_type("int8", 16, 16), *narrow), domain=(-128, 127))
    wide = (np.float32(0.1), np.int32(100), np.float32(0.05), np.int32(7))
    yield Sample(attrs, (of_type("uint8", 2, 3, 5), *wide), domain=(0, 255))


def _bad_samples(attrs: QLeakyReluAttrs | QSoftmaxAttrs | None = None) -> Iterator[BadSample]:
    one = (f32(), i32(), f32(), i32())
    yield BadSample(attrs, (of_type("int16", 3), *one), "wanted int8 or uint8")
    yield BadSample(attrs, (of_type("int8", 3), f32(3), i32(), f32(), i32()), "scales and zero points are scalars")


def _define(name: str, function: Callable[[Array], Array]) -> Op:
    op = Op(f"qnn.{name}", kind=Kind.ELEMENTWISE, inputs=_INPUTS, doc=f"{name} of affine integers, by table.")
    op.infer(lambda attrs, x, *parameters: _check(op.name, x, parameters))
    op.reference(lambda attrs, x, *parameters: _look_up_array(function, x, parameters))
    op.decompose(lambda attrs, x, *parameters: _look_up(op, function, x, parameters))
    op.samples(_samples)
    op.bad_samples(_bad_samples)
    return op


FUNCTIONS = {name: _define(name, function) for name, function in _FUNCTIONS.items()}


# --- leaky_relu -------------------------------------------------------------------------------------------------------


@record
class QLeakyReluAttrs:
    alpha: float = 0.01


leaky_relu = Op("qnn.leaky_relu", kind=Kind.ELEMENTWISE, inputs=_INPUTS, doc="nn.leaky_relu of affine integers.")
leaky_relu.attrs(QLeakyReluAttrs)
leaky_relu.infer(lambda attrs, x, *parameters: _check("qnn.leaky_relu", x, parameters))
leaky_relu.samples(lambda: _samples(QLeakyReluAttrs(0.2)))
leaky_relu.bad_samples(lambda: _bad_samples(QLeakyReluAttrs()))


def _leaky(attrs: QLeakyReluAttrs) -> Callable[[Array], Array]:
    return lambda x: np.where(x >= 0, x, x * attrs.alpha)


@leaky_relu.reference
def leaky_relu_reference(attrs: QLeakyReluAttrs, x: Array, *parameters: Array) -> Array:
    return _look_up_array(_leaky(attrs), x, parameters)


@leaky_relu.decompose
def leaky_relu_decompose(attrs: QLeakyReluAttrs, x: Expr, *parameters: Expr) -> Expr:
    return _look_up(leaky_relu, _leaky(attrs), x, parameters)


# --- softmax ----------------------------------------------------------------------------------------------------------


@record
class QSoftmaxAttrs:
    axis: int = -1


softmax = Op("qnn.softmax", kind=Kind.OPAQUE, inputs=_INPUTS, doc="nn.softmax of affine integers, in integers.")
softmax.attrs(QSoftmaxAttrs)
softmax.samples(lambda: _samples(QSoftmaxAttrs()))
softmax.bad_samples(lambda: _bad_samples(QSoftmaxAttrs()))


@softmax.infer
def infer_softmax(attrs: QSoftmaxAttrs, x: TensorType, *parameters: TensorType) -> TensorType:
    axis_of("qnn.softmax", attrs.axis, x.ndim)
    return _check("qnn.softmax", x, parameters)


@quiet
def _powers(scale: Array) -> Array:
    """exp(-k * scale) for k from 0 to 255, as integers; 0 where that is no number."""
    places = np.arange(256.0)
    powers = np.round(np.exp(np.where(places == 0, 0, -places * float(np.reshape(scale, ())))) * _EXP_ONE)
    return np.where(np.isnan(powers), 0, np.minimum(powers, _LARGEST)).astype(np.int32)


def _step(scale: Array, to: Array) -> float:
    """The scale of the result: as large as can be where either is NaN, that all are the zero point; not 0."""
    step = float(np.reshape(to, ()))
    return math.inf if math.isnan(step) or np.isnan(scale).any() else step or _LEAST


@softmax.reference
@quiet
def softmax_reference(attrs: QSoftmaxAttrs, x: Array, scale: Array, zero: Array, to: Array, to_zero: Array) -> Array:
    wide, dtype = x.astype(np.int32), DType(x.dtype.name)
    powers = _powers(scale)[wide.max(attrs.axis, keepdims=True) - wide]
    total = powers.astype(np.int64).sum(attrs.axis, keepdims=True)
    steps = np.round(powers.astype(np.float64) / total / _step(scale, to)) + float(np.reshape(to_zero, ()))
    return np.asarray(np.clip(steps, dtype.min_value, dtype.max_value)).astype(dtype.numpy)


@softmax.decompose
def softmax_decompose(attrs: QSoftmaxAttrs, x: Expr, *parameters: Expr) -> Expr:
    scale, _, to, to_zero = _constants("qnn.softmax", parameters)
    wide, dtype = cast(x, "int32"), tensor_of(x).dtype
    below = subtract(get_op("max")(wide, axis=(attrs.axis,), keepdims=True), wide)
    powers = take(const(_powers(scale)), below, axis=0, mode="fast")
    total = get_op("sum")(cast(powers, "int64"), axis=(attrs.axis,), keepdims=True)
    share = divide(cast(powers, "float64"), cast(total, "float64"))
    steps = round_half_even(divide(share, const(_step(scale, to), "float64")))
    return saturate(add(steps, const(float(np.reshape(to_zero, ())), "float64")), dtype)
