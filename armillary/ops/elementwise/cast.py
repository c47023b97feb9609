"""Elementwise operators with attributes: cast, cast_like, reinterpret, clip.

In: one tensor (cast_like: two). Out: a tensor of the same shape, of the dtype asked for. Invariant: `cast` converts as
C does; a value that a float8 or 4-bit type cannot hold is saturated by the import rule, with clip, before the cast.
Table of plain operators: elementwise.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._convert import BEYOND_INT64, convert, through
from armillary.ops._deferred import T, te
from armillary.ops._types import check_kind, elements, f32, i32, of_type, quiet
from armillary.relay.expr import Call, Expr, tensor_of
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import TensorType, tensor_fields


@record
class DTypeAttrs:
    """`dtype` is the name of the result's dtype."""

    dtype: str


# --- cast ---------------------------------------------------------------------------------------------------------

cast = Op("cast", kind=Kind.ELEMENTWISE, doc="Convert each element to another dtype, as C does.")
cast.attrs(DTypeAttrs)


@cast.infer
def infer_cast(attrs: DTypeAttrs, data: TensorType) -> TensorType:
    dtype = DType(attrs.dtype)
    if not (dtype.is_float or dtype.is_int or dtype.is_bool) or dtype.lanes != 1:
        raise TypeMismatch(f"cast: cannot convert to {dtype}", hint="use a numeric or bool dtype")
    return TensorType(data.shape, dtype)


@cast.reference
@quiet
def cast_reference(attrs: DTypeAttrs, data: Array) -> Array:
    return _converted(data, DType(attrs.dtype))


def _converted(data: Array, to: DType) -> Array:
    """As `convert` does."""
    if not DType(data.dtype.name).is_float or not through(to):
        return np.asarray(data.astype(to.numpy))
    wrapped = data.astype(np.int64).astype(to.numpy)
    return np.asarray(np.where(data < BEYOND_INT64, wrapped, data.astype(to.numpy)) if to.bits == 64 else wrapped)


@cast.compute
def cast_compute(attrs: DTypeAttrs, data: te.Tensor) -> te.Tensor:
    return elements(data.shape, lambda *i: convert(data(*i), attrs.dtype), name="cast")


@cast.samples
def cast_samples() -> Iterator[Sample]:
    for source, target in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("float32", "bool"),
        ("bool", "int64"),
        ("float64", "float32"),
        ("int32", "int8"),
        ("float32", "float16"),
    ):
        yield Sample(DTypeAttrs(target), (of_type(source, 3, 4),))


@cast.bad_samples
def cast_bad_samples() -> Iterator[BadSample]:
    yield BadSample(DTypeAttrs("handle"), (f32(2),), "cannot convert to handle")
    yield BadSample(DTypeAttrs("float31x"), (f32(2),), "unknown dtype")


cast_like = Op("cast_like", kind=Kind.ELEMENTWISE, inputs=("data", "dtype_like"), doc="Cast to another tensor's dtype.")


@cast_like.infer
def infer_cast_like(attrs: None, data: TensorType, like: TensorType) -> TensorType:
    return TensorType(data.shape, like.dtype)


@cast_like.reference
def cast_like_reference(attrs: None, data: Array, like: Array) -> Array:
    return _converted(data, DType(like.dtype.name))


@cast_like.compute
def cast_like_compute(attrs: None, data: te.Tensor, like: te.Tensor) -> te.Tensor:
    return elements(data.shape, lambda *i: convert(data(*i), like.dtype), name="cast_like")


@cast_like.decompose
def cast_like_decompose(attrs: None, data: Expr, like: Expr) -> Expr:
    ty = like.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    return cast(data, ty.dtype)


@cast_like.samples
def cast_like_samples() -> Iterator[Sample]:
    yield Sample(None, (f32(3, 4), i32(1)))


# --- reinterpret --------------------------------------------------------------------------------------------------

reinterpret = Op("reinterpret", kind=Kind.ELEMENTWISE, doc="The same bits read as another dtype of equal width.")
reinterpret.attrs(DTypeAttrs)


@reinterpret.infer
def infer_reinterpret(attrs: DTypeAttrs, data: TensorType) -> TensorType:
    dtype = DType(attrs.dtype)
    if dtype.bytes != data.dtype.bytes:
        raise TypeMismatch(f"reinterpret: {data.dtype} has {data.dtype.bytes} bytes, {dtype} has {dtype.bytes}")
    return TensorType(data.shape, dtype)


@reinterpret.reference
def reinterpret_reference(attrs: DTypeAttrs, data: Array) -> Array:
    return np.ascontiguousarray(data).view(DType(attrs.dtype).numpy).reshape(data.shape)


@reinterpret.compute
def reinterpret_compute(attrs: DTypeAttrs, data: te.Tensor) -> te.Tensor:
    dtype = attrs.dtype
    return elements(data.shape, lambda *i: T.call("reinterpret", data(*i), dtype=dtype), name="reinterpret")


@reinterpret.samples
def reinterpret_samples() -> Iterator[Sample]:
    yield Sample(DTypeAttrs("int32"), (f32(3, 4),))
    yield Sample(DTypeAttrs("uint32"), (i32(5),))


@reinterpret.bad_samples
def reinterpret_bad_samples() -> Iterator[BadSample]:
    yield BadSample(DTypeAttrs("int64"), (f32(3),), "has 4 bytes, int64 has 8")


# --- clip ---------------------------------------------------------------------------------------------------------


@record
class ClipAttrs:
    """The interval; where a_min > a_max the result is a_max."""

    a_min: float
    a_max: float


clip = Op("clip", kind=Kind.ELEMENTWISE, doc="min(max(x, a_min), a_max); NaN stays.")
clip.attrs(ClipAttrs)


def bound(value: float, dtype: DType) -> float:
    """A limit as the dtype can hold it."""
    if dtype.is_float:
        return float(value)
    if value != value:
        raise TypeMismatch(f"clip: NaN is no limit for {dtype} values")
    return max(dtype.min_value, min(dtype.max_value, value if abs(value) == float("inf") else int(value)))


@clip.infer
def infer_clip(attrs: ClipAttrs, data: TensorType) -> TensorType:
    check_kind("clip", "its input", data, "numeric")
    return data


@clip.reference
def clip_reference(attrs: ClipAttrs, data: Array) -> Array:
    from_dtype = DType(data.dtype.name)
    low, high = (np.array(bound(v, from_dtype), data.dtype) for v in (attrs.a_min, attrs.a_max))
    return np.asarray(np.minimum(np.maximum(data, low), high))


@clip.compute
def clip_compute(attrs: ClipAttrs, data: te.Tensor) -> te.Tensor:
    dtype = DType(data.dtype)
    low, high = (T.const(bound(v, dtype), dtype) for v in (attrs.a_min, attrs.a_max))
    return elements(data.shape, lambda *i: T.minimum(T.maximum(data(*i), low), high), name="clip")


@clip.samples
def clip_samples() -> Iterator[Sample]:
    yield Sample(ClipAttrs(0.0, 6.0), (f32(3, 4),), domain=(-8.0, 8.0))
    yield Sample(ClipAttrs(-1, 1), (i32(9),))
    yield Sample(ClipAttrs(1.0, -1.0), (f32(4),))
    yield Sample(ClipAttrs(-1000, 1000), (of_type("uint8", 4),))


@clip.bad_samples
def clip_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ClipAttrs(0.0, 1.0), (of_type("bool", 3),), "wanted numeric")


def same_type(expr: Call) -> Expr | None:
    """cast(x, dtype of x)  ->  x, and copy(x)"""
    ty, result = expr.args[0].checked_type, expr.checked_type
    return expr.args[0] if ty == result else None


def widening_casts(expr: Call) -> Expr | None:
    """cast(cast(x, wider), dtype)  ->  cast(x, dtype)   if the first cast loses nothing of x, or of a clip x"""
    inner = expr.args[0]
    if not isinstance(inner, Call) or inner.op is not cast:
        return None
    (source,), (middle,) = tensor_fields(inner.args[0].checked_type), tensor_fields(inner.checked_type)
    (result,) = tensor_fields(expr.checked_type)
    clipped = _is_clipped(inner, middle.dtype) and (source.dtype.is_int or result.dtype.is_int)
    retained = clipped and np.can_cast(middle.dtype.numpy, result.dtype.numpy, "safe")
    if not retained and not np.can_cast(source.dtype.numpy, middle.dtype.numpy, "safe"):
        return None
    return Call(expr.op, inner.args, expr.attrs, expr.span)


def _is_clipped(call: Call, dtype: DType) -> bool:
    """Whether what is cast to an integer type was clipped to numbers that it has."""
    bounded = call.args[0]
    if not dtype.is_int or not isinstance(bounded, Call) or not hasattr(bounded.attrs, "a_min"):  # it has bounds
        return False
    return bool(dtype.min_value <= bounded.attrs.a_min and bounded.attrs.a_max <= dtype.max_value)


def consecutive_clips(expr: Call) -> Expr | None:
    """clip(clip(x, a, b), c, d)  ->  clip(x, max(a, c), min(b, d))   if the intervals overlap"""
    inner, outer = expr.args[0], expr.attrs
    if not isinstance(inner, Call) or inner.op is not clip:
        return None
    low, high = max(inner.attrs.a_min, outer.a_min), min(inner.attrs.a_max, outer.a_max)
    return clip(inner.args[0], a_min=low, a_max=high) if low <= high else None


def redundant_clip(expr: Call) -> Expr | None:
    """clip(x, a, b)  ->  x   if x is an integer, or widened from one, that lies in [a, b] by its dtype"""
    source = expr.args[0]
    while isinstance(source, Call) and source.op is cast and _widens(source):
        source = source.args[0]
    ty = tensor_of(source)
    if ty is None or not ty.dtype.is_int:
        return None
    fits = expr.attrs.a_min <= ty.dtype.min_value and ty.dtype.max_value <= expr.attrs.a_max
    return expr.args[0] if fits else None


def _widens(call: Call) -> bool:
    """Whether a cast from an integer loses nothing."""
    (source,), (result,) = tensor_fields(call.args[0].checked_type), tensor_fields(call.checked_type)
    return source.dtype.is_int and np.can_cast(source.dtype.numpy, result.dtype.numpy, "safe")


cast.simplify(same_type, widening_casts, after_layouts=True)
clip.simplify(consecutive_clips, redundant_clip, after_layouts=True)

state("cast clip", precision=Precision.FOLLOW)
state("cast_like", Fact.LIKE, precision=Precision.FOLLOW)
state("cast clip", follows=Follows.ANY)
