"""qnn.quantize, qnn.dequantize, qnn.requantize: between real numbers and affine integers, real = (q - zero) * scale.

In: data, scales and zero points; those are scalars, or vectors along `axis` (per channel), or of the data's rank and
broadcasting to it (blocks). Out: the same shape in `out_dtype`, saturated. Invariant: quantize rounds halves to even;
NaN counts as 0, which is the zero point; requantize multiplies by a 31-bit fixed-point number in int64 (compute_dtype
"int64"; the scales must be constants) or by a real factor ("float32", "float64"). Every operator decomposes into
elementwise ones, so kernels fuse it. Products: product.py. ONNX rules: rules/qnn.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._types import axis_of, check_broadcasts_to, check_kind, f32, i32, ints, of_type, quiet
from armillary.ops.elementwise.broadcast import (
    add,
    divide,
    equal,
    greater_equal,
    maximum,
    minimum,
    multiply,
    right_shift,
    subtract,
    where,
)
from armillary.ops.elementwise.cast import cast, clip
from armillary.ops.elementwise.elementwise import floor, round_half_even
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows
from armillary.relay.types import TensorType

ROUNDINGS = ("UPWARD", "TONEAREST", "TOEVEN")
_COMPUTED_IN = ("int64", "float32", "float64")
_LARGEST_SHIFT, _LARGEST_SHORT, _LARGEST_WORD = 62, 1 << 16, (1 << 31) - 1
_FAR = (1 << 24) - (1 << 16)  # of a zero point of 8 or 16 bits: float32 holds the limits less it


# --- scales and zero points -----------------------------------------------------------------------------------------


def check_parameters(name: str, data: TensorType, axis: int, scale: TensorType, zero: TensorType) -> None:
    """Refuse a scale that is no float, a zero point that is no integer, and shapes that do not fit the data."""
    check_kind(name, "the scale", scale, "float")
    check_kind(name, "the zero point", zero, "integer")
    for what, ty in (("scale", scale), ("zero point", zero)):
        if ty.size == 1:
            continue
        if ty.ndim == 1 and data.ndim != 1:
            wanted = data.shape[axis_of(name, axis, data.ndim)]
            if ty.shape[0] != wanted:
                raise TypeMismatch(f"{name}: the {what} has {ty.shape[0]} values, axis {axis} has {wanted}")
        elif ty.ndim != data.ndim:
            raise TypeMismatch(f"{name}: the {what} has {ty.ndim} dimensions", hint="use a scalar or one per channel")
        else:
            check_broadcasts_to(name, ty.shape, data.shape)


def placed_shape(shape: tuple[int, ...], ndim: int, axis: int) -> tuple[int, ...]:
    """The shape in which a parameter of `shape` broadcasts to data of `ndim` dimensions."""
    if math.prod(shape) == 1:
        return ()
    if len(shape) == 1 and ndim != 1:
        return tuple(shape[0] if a == axis % ndim else 1 for a in range(ndim))
    return shape


def placed(parameter: Expr, ndim: int, axis: int) -> Expr:
    """A scale or zero point so that it broadcasts to the data."""
    shape = tensor_of(parameter).static
    wanted = placed_shape(shape, ndim, axis)
    if wanted == shape:
        return parameter
    return const(parameter.data.reshape(wanted)) if isinstance(parameter, Constant) else reshape_to(parameter, wanted)


def placed_array(parameter: Array, ndim: int, axis: int) -> Array:
    """The same for an array."""
    return parameter.reshape(placed_shape(parameter.shape, ndim, axis))


def tensor_of(expr: Expr) -> TensorType:
    """The type of an expression that infer has found to be a tensor."""
    ty = expr.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    return ty


def is_zero(expr: Expr) -> bool:
    """Whether a zero point is known to be 0."""
    return isinstance(expr, Constant) and not np.any(expr.data)


def centred(data: Expr, zero: Expr, ndim: int, axis: int, dtype: str = "int32") -> Expr:
    """data - zero point, in a dtype that holds it."""
    wide = cast(data, dtype)
    return wide if is_zero(zero) else subtract(wide, cast(placed(zero, ndim, axis), dtype))


def saturate(data: Expr, dtype: DType) -> Expr:
    """Clip to the range of `dtype`, then convert."""
    return cast(clip(data, float(dtype.min_value), float(dtype.max_value)), dtype)


def saturated(data: Array, dtype: DType) -> Array:
    """The same for an array."""
    kind = data.dtype.type
    return np.clip(data, kind(dtype.min_value), kind(dtype.max_value)).astype(dtype.numpy)


def check_small(name: str, dtype: str) -> DType:
    """The result's dtype: integers that float32 holds exactly, or int32."""
    result = DType(dtype)
    if not result.is_int or (result.bits > 16 and result != "int32") or result.lanes != 1:
        raise TypeMismatch(f"{name}: out_dtype {result}, wanted int2 to int16, uint2 to uint16 or int32")
    return result


def floats(*values: float) -> Array:
    """A float32 sample input."""
    return np.array(values, np.float32)


# --- quantize -------------------------------------------------------------------------------------------------------


@record
class QuantizeAttrs:
    axis: int = -1
    out_dtype: str = "int8"


quantize = Op(
    "qnn.quantize",
    kind=Kind.ELEMENTWISE,
    inputs=("data", "output_scale", "output_zero_point"),
    doc="saturate(round(data / scale) + zero_point); halves go to even.",
)
quantize.attrs(QuantizeAttrs)


def _int32_limit(dtype: DType, working: DType) -> float:
    """The largest value of `dtype` that the working float type holds."""
    fits = dtype.bits <= 16 or working.bits == 64
    return float(dtype.max_value if fits else dtype.max_value - 127)


@quantize.infer
def infer_quantize(attrs: QuantizeAttrs, data: TensorType, scale: TensorType, zero: TensorType) -> TensorType:
    check_kind("qnn.quantize", "data", data, "float")
    check_parameters("qnn.quantize", data, attrs.axis, scale, zero)
    return TensorType(data.shape, check_small("qnn.quantize", attrs.out_dtype))


def _working(data: DType) -> str:
    return "float64" if data == "float64" else "float32"


@quantize.reference
@quiet
def quantize_reference(attrs: QuantizeAttrs, data: Array, scale: Array, zero: Array) -> Array:
    dtype, kind = DType(attrs.out_dtype), DType(_working(DType(data.dtype.name))).numpy.type
    real = data.astype(kind) / placed_array(scale, data.ndim, attrs.axis).astype(kind)
    steps, shift = np.round(real), placed_array(zero, data.ndim, attrs.axis)
    if dtype.bits > 16:
        moved = np.where(np.isnan(steps), kind(0), steps) + shift.astype(kind)
        limits = kind(dtype.min_value), kind(_int32_limit(dtype, DType(real.dtype.name)))
        return np.asarray(np.clip(moved, *limits).astype(dtype.numpy))
    near = np.clip(shift.astype(np.int64), -_FAR, _FAR)
    inside = np.clip(steps, (dtype.min_value - near).astype(kind), (dtype.max_value - near).astype(kind))
    return np.asarray((np.where(np.isnan(steps), kind(0), inside).astype(np.int64) + near).astype(dtype.numpy))


@quantize.decompose
def quantize_decompose(attrs: QuantizeAttrs, data: Expr, scale: Expr, zero: Expr) -> Expr:
    ndim, dtype, working = tensor_of(data).ndim, DType(attrs.out_dtype), _working(tensor_of(data).dtype)
    real = divide(cast(data, working), cast(placed(scale, ndim, attrs.axis), working))
    if dtype.bits <= 16:
        return _shifted(real, "TOEVEN", placed(zero, ndim, attrs.axis), dtype)
    steps = round_half_even(_number(real))
    if not is_zero(zero):
        steps = add(steps, cast(placed(zero, ndim, attrs.axis), working))
    return cast(clip(steps, float(dtype.min_value), _int32_limit(dtype, DType(working))), "int32")


def _number(real: Expr) -> Expr:
    """Floats, with 0 for NaN."""
    return where(equal(real, real), real, const(0.0, tensor_of(real).dtype))


@quantize.samples
def quantize_samples() -> Iterator[Sample]:
    scale, zero = np.float32(0.25), np.int32(3)
    yield Sample(QuantizeAttrs(), (f32(3, 5), scale, zero), domain=(-40, 40))
    yield Sample(QuantizeAttrs(out_dtype="uint8"), (f32(7), np.float32(0.5), np.int32(128)), domain=(-90, 90))
    yield Sample(QuantizeAttrs(1, "int16"), (f32(2, 3, 2), floats(0.1, 2, 0.03), ints([0, 7, -2])))
    yield Sample(QuantizeAttrs(out_dtype="uint4"), (of_type("float16", 3, 4), np.float32(0.25), np.int32(7)))
    yield Sample(QuantizeAttrs(out_dtype="int32"), (floats(0.5, 1.5, 2.5, -0.5, 9e20, -9e20), np.float32(1), zero))


@quantize.bad_samples
def quantize_bad_samples() -> Iterator[BadSample]:
    yield BadSample(QuantizeAttrs(), (i32(3), f32(), i32()), "data has dtype int32, wanted float")
    yield BadSample(QuantizeAttrs(), (f32(2, 3), f32(2), i32()), "the scale has 2 values, axis -1 has 3")
    yield BadSample(QuantizeAttrs(), (f32(2, 3), f32(), f32()), "the zero point has dtype float32")
    yield BadSample(QuantizeAttrs(out_dtype="int64"), (f32(3), f32(), i32()), "out_dtype int64")


# --- dequantize -----------------------------------------------------------------------------------------------------


@record
class DequantizeAttrs:
    axis: int = -1
    out_dtype: str = "float32"


dequantize = Op(
    "qnn.dequantize",
    kind=Kind.ELEMENTWISE,
    inputs=("data", "input_scale", "input_zero_point"),
    doc="(data - zero_point) * scale.",
)
dequantize.attrs(DequantizeAttrs)


@dequantize.infer
def infer_dequantize(attrs: DequantizeAttrs, data: TensorType, scale: TensorType, zero: TensorType) -> TensorType:
    check_kind("qnn.dequantize", "data", data, "integer")
    check_parameters("qnn.dequantize", data, attrs.axis, scale, zero)
    if not DType(attrs.out_dtype).is_float:
        raise TypeMismatch(f"qnn.dequantize: out_dtype {attrs.out_dtype}, wanted float")
    return TensorType(data.shape, DType(attrs.out_dtype))


@dequantize.reference
@quiet
def dequantize_reference(attrs: DequantizeAttrs, data: Array, scale: Array, zero: Array) -> Array:
    out, ndim = DType(attrs.out_dtype), data.ndim
    kind = DType(_working(out)).numpy
    steps = data.astype(np.int32) - placed_array(zero, ndim, attrs.axis).astype(np.int32)
    return np.asarray(steps.astype(kind) * placed_array(scale, ndim, attrs.axis).astype(kind)).astype(out.numpy)


@dequantize.decompose
def dequantize_decompose(attrs: DequantizeAttrs, data: Expr, scale: Expr, zero: Expr) -> Expr:
    ndim, working = tensor_of(data).ndim, _working(DType(attrs.out_dtype))
    steps = cast(centred(data, zero, ndim, attrs.axis), working)
    return cast(multiply(steps, cast(placed(scale, ndim, attrs.axis), working)), attrs.out_dtype)


@dequantize.samples
def dequantize_samples() -> Iterator[Sample]:
    yield Sample(DequantizeAttrs(), (of_type("int8", 3, 5), np.float32(0.25), np.int32(3)), domain=(-128, 127))
    yield Sample(DequantizeAttrs(0), (of_type("uint8", 2, 3), floats(0.5, 2), ints([0, 9])), domain=(0, 255))
    yield Sample(DequantizeAttrs(), (i32(4), np.float32(1e-3), np.int32(0)), domain=(-9e8, 9e8))
    yield Sample(DequantizeAttrs(out_dtype="float16"), (of_type("int8", 4), np.float32(0.1), np.int32(1)))


@dequantize.bad_samples
def dequantize_bad_samples() -> Iterator[BadSample]:
    yield BadSample(DequantizeAttrs(), (f32(3), f32(), i32()), "data has dtype float32, wanted integer")
    yield BadSample(DequantizeAttrs(out_dtype="int8"), (i32(3), f32(), i32()), "out_dtype int8, wanted float")


# --- requantize -----------------------------------------------------------------------------------------------------


@record
class RequantizeAttrs:
    """rounding: "UPWARD" (halves up; the default), "TONEAREST" (halves away from zero) or "TOEVEN" (real factors)."""

    axis: int = -1
    rounding: str = "None"
    compute_dtype: str = "None"
    out_dtype: str = "int8"


requantize = Op(
    "qnn.requantize",
    kind=Kind.ELEMENTWISE,
    inputs=("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    doc="The integers of another scale and zero point for the same real numbers.",
)
requantize.attrs(RequantizeAttrs)


_DEFAULTS: ContextVar[tuple[str, str]] = ContextVar("requantize_defaults", default=("UPWARD", "int64"))


@contextmanager
def requantize_config(rounding: str = "UPWARD", compute_dtype: str = "int64") -> Iterator[None]:
    """What qnn.requantize takes where its attributes say nothing, while the block runs: building included."""
    if rounding not in ROUNDINGS or compute_dtype not in _COMPUTED_IN:
        raise TypeMismatch(
            f"requantize_config: rounding {rounding!r} in {compute_dtype!r} is not known",
            hint=f"one of {', '.join(ROUNDINGS)} in {', '.join(_COMPUTED_IN)}",
        )
    token = _DEFAULTS.set((rounding, compute_dtype))
    try:
        yield
    finally:
        _DEFAULTS.reset(token)


def _mode(attrs: RequantizeAttrs) -> tuple[str, str]:
    """(rounding, compute dtype), with the defaults filled in."""
    rounding, compute = _DEFAULTS.get()
    dtype = attrs.compute_dtype
    return rounding if attrs.rounding == "None" else attrs.rounding, compute if dtype == "None" else dtype


@requantize.infer
def infer_requantize(
    attrs: RequantizeAttrs, data: TensorType, scale: TensorType, zero: TensorType, to: TensorType, to_zero: TensorType
) -> TensorType:
    check_kind("qnn.requantize", "data", data, "integer")
    check_parameters("qnn.requantize", data, attrs.axis, scale, zero)
    check_parameters("qnn.requantize", data, attrs.axis, to, to_zero)
    rounding, compute = _mode(attrs)
    if rounding not in ROUNDINGS or compute not in _COMPUTED_IN:
        raise TypeMismatch(f"qnn.requantize: rounding {rounding!r} in {compute!r} is not known")
    if rounding == "TOEVEN" and compute == "int64":
        raise TypeMismatch("qnn.requantize: rounding TOEVEN needs compute_dtype float32 or float64")
    return TensorType(data.shape, check_small("qnn.requantize", attrs.out_dtype))


def fixed_point(factor: Array) -> tuple[Array, Array]:
    """(multiplier, shift) in int64 with factor = multiplier / 2**shift, 31 significant bits, 1 <= shift <= 62."""
    is_finite = bool(np.all(np.isfinite(factor)))
    mantissa, exponent = np.frexp(factor.astype(np.float64) if is_finite else np.ones(1))
    multiplier = np.round(mantissa * 2.0**31).astype(np.int64)
    shift = 31 - exponent.astype(np.int64)
    if np.any(shift < 1) or not is_finite:
        raise UnsupportedError(f"qnn.requantize: the scales differ by a factor of {factor.max()}, at most 2**30 works")
    excess = np.maximum(shift - _LARGEST_SHIFT, 0)
    return multiplier >> np.minimum(excess, 63), shift - excess


@quiet
def _factor(attrs: RequantizeAttrs, ndim: int, scale: Array, to: Array, kind: str) -> Array:
    number = np.dtype(kind).type
    ratio = placed_array(scale, ndim, attrs.axis).astype(number) / placed_array(to, ndim, attrs.axis).astype(number)
    return np.asarray(ratio)


@requantize.reference
@quiet
def requantize_reference(
    attrs: RequantizeAttrs, data: Array, scale: Array, zero: Array, to: Array, to_zero: Array
) -> Array:
    (rounding, compute), ndim, dtype = _mode(attrs), data.ndim, DType(attrs.out_dtype)
    steps = data.astype(np.int64) - placed_array(zero, ndim, attrs.axis).astype(np.int64)
    offset = placed_array(to_zero, ndim, attrs.axis).astype(np.int64)
    if compute == "int64":
        scaled = _fixed(steps, *fixed_point(_factor(attrs, ndim, scale, to, "float64")), rounding)
        return saturated(scaled + offset, dtype)
    product = steps.astype(compute) * _factor(attrs, ndim, scale, to, compute)
    limit, product = product.dtype.type(2.0**40), np.where(np.isnan(product), product.dtype.type(0), product)
    rounded = np.clip(_rounded(product, rounding), -limit, limit).astype(np.int64)
    return saturated(rounded + offset, dtype)


def _fixed(steps: Array, multiplier: Array, shift: Array, rounding: str) -> Array:
    """Whole numbers times a fraction, rounded, in 64 bits."""
    half, product = np.int64(1) << (shift - 1), steps * multiplier
    return np.asarray((product + (half if rounding == "UPWARD" else np.where(product >= 0, half, half - 1))) >> shift)


def _rounded(x: Array, rounding: str) -> Array:
    if rounding == "TOEVEN":
        return np.asarray(np.round(x))
    half = x.dtype.type(0.5)
    upward = np.floor(x + half)
    return np.asarray(upward if rounding == "UPWARD" else np.where(x >= 0, upward, np.ceil(x - half)))


@requantize.decompose
def requantize_decompose(attrs: RequantizeAttrs, data: Expr, scale: Expr, zero: Expr, to: Expr, to_zero: Expr) -> Expr:
    (rounding, compute), ndim, dtype = _mode(attrs), tensor_of(data).ndim, DType(attrs.out_dtype)
    if compute != "int64" and _is_narrow(data, zero, to_zero, dtype):
        steps = centred(data, zero, ndim, attrs.axis, "int32")
        product = _real_product(attrs, steps, scale, to, compute)
        return _shifted(product, rounding, placed(to_zero, ndim, attrs.axis), dtype)
    narrow = _scaled_byte(attrs, data, scale, zero, to, rounding) if compute == "int64" else None
    if narrow is not None and _fits_short(to_zero):
        moved = narrow if is_zero(to_zero) else add(narrow, cast(placed(to_zero, ndim, attrs.axis), "int32"))
        return moved if dtype == "int32" else saturate(moved, dtype)
    steps = centred(data, zero, ndim, attrs.axis, "int64")
    scaled = _scaled_fixed if compute == "int64" else _scaled_real
    result = scaled(attrs, steps, scale, to, rounding, compute)
    if not is_zero(to_zero):
        result = add(result, cast(placed(to_zero, ndim, attrs.axis), "int64"))
    return saturate(result, dtype)


def _is_narrow(data: Expr, zero: Expr, to_zero: Expr, dtype: DType) -> bool:
    """Whether 32 bits hold every number on the way."""
    ty = tensor_of(data)
    centre_fits = ty.dtype.bits <= 16 or (is_zero(zero) and ty.dtype == "int32")
    return dtype.bits <= 16 and centre_fits and _fits_short(to_zero)


def _fits_short(zero: Expr) -> bool:
    """Whether limits of 16 bits stay exact in float32 when the zero point is taken off."""
    if isinstance(zero, Constant):
        return bool(np.all(np.abs(zero.data.astype(np.int64)) <= _LARGEST_SHORT))
    return tensor_of(zero).dtype.bits <= 16


def _shifted(real: Expr, rounding: str, zero: Expr, dtype: DType) -> Expr:
    """Floats rounded, plus zero points that broadcast to them, saturated: by one clip, less the zero point.

    The limits are whole numbers, so that it is the same to round what is limited; x86 then rounds as it converts. As an
    integer NaN is 0 or the least, whose low half is 0: so is its sum with the zero point, in the type, the zero point.
    """
    if is_zero(zero) or (isinstance(zero, Constant) and zero.data.size == 1):
        shift = (
            int(np.clip(zero.data.reshape(-1)[:1].astype(np.int64), -_FAR, _FAR)[0])
            if isinstance(zero, Constant)
            else 0
        )
        limited = clip(real, float(dtype.min_value - shift), float(dtype.max_value - shift))
        inside = cast(_whole(limited, rounding), "int32")
        return cast(add(inside, const(shift, "int32")) if shift else inside, dtype)
    near, working = _near(zero), tensor_of(real).dtype
    low, high = (cast(subtract(const(limit, "int32"), near), working) for limit in (dtype.min_value, dtype.max_value))
    inside = cast(_whole(minimum(maximum(real, low), high), rounding), "int32")
    return cast(add(inside, near), dtype)


def _near(zero: Expr) -> Expr:
    """Zero points as int32, so near 0 that float32 holds the limits of 16 bits less them."""
    if isinstance(zero, Constant):
        return const(np.clip(zero.data.astype(np.int64), -_FAR, _FAR).astype(np.int32))
    narrow = tensor_of(zero).dtype.bits <= 16
    return cast(zero if narrow else clip(zero, float(-_FAR), float(_FAR)), "int32")


def _scaled_fixed(attrs: RequantizeAttrs, steps: Expr, scale: Expr, to: Expr, rounding: str, _compute: str) -> Expr:
    if not isinstance(scale, Constant) or not isinstance(to, Constant):
        raise UnsupportedError(
            "qnn.requantize: fixed-point arithmetic needs constant scales", hint='pass compute_dtype="float32"'
        )
    multiplier, shift = fixed_point(_factor(attrs, tensor_of(steps).ndim, scale.data, to.data, "float64"))
    half = np.int64(1) << (shift - 1)
    product = multiply(steps, const(multiplier))
    rounder: Expr = const(half)
    if rounding != "UPWARD":
        rounder = where(greater_equal(product, const(0, "int64")), rounder, const(half - 1))
    return right_shift(add(product, rounder), const(shift))


def _scaled_byte(attrs: RequantizeAttrs, data: Expr, scale: Expr, zero: Expr, to: Expr, rounding: str) -> Expr | None:
    """Bytes scaled in 32 bits; None where that is not exact.

    A byte has 256 values: a multiplier and a number that rounds are looked for, which give what 64 bits give for each.
    """
    ty, constants = tensor_of(data), [e for e in (scale, zero, to) if isinstance(e, Constant)]
    if ty.dtype.bits > 8 or len(constants) < 3:
        return None
    factor = _factor(attrs, ty.ndim, constants[0].data, constants[2].data, "float64")
    zeros = placed_array(constants[1].data, ty.ndim, attrs.axis).astype(np.int64)
    shape = np.broadcast_shapes(factor.shape, zeros.shape)
    steps = np.arange(ty.dtype.min_value, ty.dtype.max_value + 1).reshape(-1, *[1] * len(shape)) - zeros
    wanted = _fixed(steps, *fixed_point(factor), rounding)
    for bits in range(1, 31):
        multiplier = np.round(np.ldexp(factor, bits)).astype(np.int64)
        product = steps * multiplier
        least = ((wanted << bits) - product).max(0)
        if np.any(least > (((wanted + 1) << bits) - 1 - product).min(0)):
            continue
        ends = product, product + least, wanted
        if any(np.abs(end).max(initial=0) > _LARGEST_WORD for end in ends):
            return None
        narrow = multiply(centred(data, zero, ty.ndim, attrs.axis), const(multiplier.astype(np.int32)))
        return right_shift(add(narrow, const(least.astype(np.int32))), const(np.int32(bits)))
    return None


def _scaled_real(attrs: RequantizeAttrs, steps: Expr, scale: Expr, to: Expr, rounding: str, compute: str) -> Expr:
    whole = _whole(_number(_real_product(attrs, steps, scale, to, compute)), rounding)
    return cast(clip(whole, -(2.0**40), 2.0**40), "int64")


def _real_product(attrs: RequantizeAttrs, steps: Expr, scale: Expr, to: Expr, compute: str) -> Expr:
    """The steps times the factor of the scales, in the float type `compute`."""
    ndim = tensor_of(steps).ndim
    factor = divide(*(cast(placed(s, ndim, attrs.axis), compute) for s in (scale, to)))
    return multiply(cast(steps, compute), factor)


def _whole(real: Expr, rounding: str) -> Expr:
    """Floats rounded to whole numbers."""
    compute = tensor_of(real).dtype
    half = const(0.5, compute)
    rounded = round_half_even(real) if rounding == "TOEVEN" else floor(add(real, half))
    if rounding == "TONEAREST":
        down = multiply(floor(add(multiply(real, const(-1.0, compute)), half)), const(-1.0, compute))
        rounded = where(greater_equal(real, const(0.0, compute)), rounded, down)
    return rounded


@requantize.samples
def requantize_samples() -> Iterator[Sample]:
    one = (np.float32(0.5), np.int32(2), np.float32(7.0), np.int32(-3))
    channels = (floats(0.1, 0.02, 3), np.int32(0), np.float32(0.7), np.int32(5))
    for rounding in ("UPWARD", "TONEAREST"):
        yield Sample(RequantizeAttrs(rounding=rounding), (i32(4, 5), *one), domain=(-3000, 3000))
        real = RequantizeAttrs(rounding=rounding, compute_dtype="float64")
        yield Sample(real, (i32(4, 5), *one), domain=(-3000, 3000))
    yield Sample(RequantizeAttrs(1, out_dtype="uint8"), (i32(2, 3, 4), *channels), domain=(-900, 900))
    even = RequantizeAttrs(1, "TOEVEN", "float32", "uint8")
    yield Sample(even, (i32(2, 3, 4), *channels), domain=(-900, 900))
    yield Sample(RequantizeAttrs(), (of_type("int8", 6), *one), domain=(-128, 127))
    huge = (np.float32(1), np.int32(0), np.float32(2.0**-20), np.int32(0))
    yield Sample(RequantizeAttrs(out_dtype="int32"), (ints([2**31 - 1, -(2**31), 1, 0]), *huge))


@requantize.bad_samples
def requantize_bad_samples() -> Iterator[BadSample]:
    parameters = (f32(), i32(), f32(), i32())
    yield BadSample(RequantizeAttrs(rounding="DOWN"), (i32(3), *parameters), "rounding 'DOWN'")
    yield BadSample(RequantizeAttrs(rounding="TOEVEN"), (i32(3), *parameters), "needs compute_dtype")
    yield BadSample(RequantizeAttrs(), (f32(3), *parameters), "data has dtype float32")


state("qnn.dequantize", Fact.DEQUANTIZES)
state("qnn.dequantize qnn.quantize", follows=Follows.QUANTIZED)
state("qnn.requantize", follows=Follows.REQUANTIZED)
