"""ONNX Cast, CastLike, BitCast, Clip and IsInf.

In: nodes of any opset. Out: cast, reinterpret, clip; casts to small types by the rules of ONNX. Invariant: a float that
lies beyond the range of a small float becomes the nearest it has unless saturate is 0; 2- and 4-bit integers wrap.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.base.lazy import deferred
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.ops._types import like_const
from armillary.ops.elementwise.broadcast import (
    add,
    bitwise_and,
    greater,
    logical_and,
    maximum,
    minimum,
    right_shift,
    where,
)
from armillary.ops.elementwise.cast import cast, clip, reinterpret
from armillary.ops.elementwise.elementwise import isinf, isnan
from armillary.relay.expr import Expr, const
from armillary.relay.types import TensorType

with deferred():
    from ml_dtypes import finfo as _finfo


def _to_power_of_two(node: OnnxNode, data: Expr, up: bool) -> Expr:
    """float8_e8m0 holds an exponent only: the float32 exponent, plus one where rounding up drops a fraction."""
    single = cast(data, "float32")
    bits = reinterpret(single, "uint32")
    exponent = right_shift(bitwise_and(bits, const(0x7FFFFFFF, "uint32")), const(23, "uint32"))
    if up:
        fraction = bitwise_and(bits, const(0x7FFFFF, "uint32"))
        exponent = add(exponent, cast(greater(fraction, const(0, "uint32")), "uint32"))
    if node.flag("saturate", True):
        largest = minimum(exponent, const(254, "uint32"))
        exponent = where(isnan(single), const(255, "uint32"), largest)
    return reinterpret(cast(exponent, "uint8"), "float8_e8m0fnu")


def cast_for_onnx(node: OnnxNode, data: Expr, dtype: str) -> Expr:
    """A cast with ONNX's rules for the small types: floats saturate unless saturate=0, 2- and 4-bit integers wrap."""
    source = node.type_of(0).dtype
    if dtype == source:
        return data
    mode = node.string("round_mode", default="up")
    if dtype == "float8_e8m0fnu" and source.is_float and mode in ("up", "down"):
        return _to_power_of_two(node, data, mode == "up")
    if dtype.startswith(("int4", "uint4", "int2", "uint2")):
        return cast(cast(data, "int32"), dtype)
    if not dtype.startswith(("float8", "float4")) or not source.is_float or not node.flag("saturate", True):
        return cast(data, dtype)
    return cast_saturated(data, dtype)


def cast_saturated(data: Expr, dtype: str) -> Expr:
    """A cast to a small float type that brings finite values beyond its range to the nearest it has."""
    ty = data.checked_type
    assert isinstance(ty, TensorType), "a cast has a tensor"
    source = ty.dtype
    info = _finfo(DType(dtype).numpy)  # type: ignore[no-untyped-call]
    low, high = float(info.min), float(info.max)
    wide = float(_finfo(source.numpy).max)  # type: ignore[no-untyped-call]
    return cast(clip(data, low, high) if high < wide else data, dtype)


@from_onnx("Cast")
def from_onnx_cast(node: OnnxNode) -> Expr:
    target = node.int("to")
    if isinstance(target, str):  # opset 1 spelled the type
        return cast(node.input(0), {"FLOAT": "float32", "DOUBLE": "float64"}.get(target, target.lower()))
    return cast_for_onnx(node, node.input(0), onnx_dtype(node, int(target or 0)))


@from_onnx("CastLike")
def from_onnx_cast_like(node: OnnxNode) -> Expr:
    return cast_for_onnx(node, node.input(0), node.type_of(1).dtype)


@from_onnx("BitCast")
def from_onnx_bitcast(node: OnnxNode) -> Expr:
    dtype = onnx_dtype(node, int(node.int("to", default=0)))
    same = node.type_of(0).dtype.is_bool and dtype in ("int8", "uint8")  # a bool is a byte of 0 or 1
    return cast(node.input(0), dtype) if same else reinterpret(node.input(0), dtype)


@from_onnx("Clip")
def from_onnx_clip_attributes(node: OnnxNode) -> Expr:
    low, high = node.float("min", default=None), node.float("max", default=None)
    data = node.input(0)
    data = data if low is None else maximum(data, like_const(low, data))
    return data if high is None else minimum(data, like_const(high, data))


@from_onnx("Clip", since=11)
def from_onnx_clip_inputs(node: OnnxNode) -> Expr:
    data = node.input(0)
    limits = [node.constants[i] if not node.missing(i) and i < len(node.constants) else None for i in (1, 2)]
    low, high = limits
    if low is not None and high is not None and low.size == high.size == 1:
        return clip(data, low.reshape(()).item(), high.reshape(()).item())
    data = data if node.missing(1) else maximum(data, node.input(1))
    return data if node.missing(2) else minimum(data, node.input(2))


@from_onnx("IsInf")
def from_onnx_isinf(node: OnnxNode) -> Expr:
    data = node.input(0)
    positive, negative_ = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if positive and negative_:
        return isinf(data)
    zero = like_const(0.0, data)
    if positive:
        return logical_and(isinf(data), greater(data, zero))
    if negative_:
        return logical_and(isinf(data), greater(zero, data))
    return logical_and(isnan(data), isinf(data))  # neither asked for: nowhere true
