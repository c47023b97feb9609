"""nn.gelu: x times the normal distribution function of x, exactly or by its tanh approximation.

In: float data of any shape. Out: the same type. Invariant: elementwise, so it fuses with what stands around it.
`approximate` is "none" or "tanh", as in ONNX. TE: float32 uses the intrinsic normcdf (one division, no exponential);
the approximation is x * sigmoid(2 u), the same as x / 2 * (1 + tanh(u)). recognize-gelu finds both in exported
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import Tensor, f32, need_float, need_tensor, tensor
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


@record
class GeluAttrs:
    approximate: str = "none"


gelu = Op("nn.gelu", kind=Kind.ELEMENTWISE, doc="x times the normal distribution function of x.")
gelu.attrs(GeluAttrs)


@gelu.infer
def infer(attrs: GeluAttrs, data: Type) -> TensorType:
    if attrs.approximate not in ("none", "tanh"):
        raise TypeMismatch(f"nn.gelu: approximate is {attrs.approximate!r}, wanted 'none' or 'tanh'")
    return need_float("nn.gelu", need_tensor("nn.gelu", data))


@gelu.reference
def reference(attrs: GeluAttrs, x: Array) -> Array:
    y = x.astype(np.float64)
    if attrs.approximate == "tanh":
        result = 0.5 * y * (1 + np.tanh(TANH_SCALE * (y + TANH_CUBE * y**3)))
    else:
        result = 0.5 * y * np.vectorize(math.erfc, otypes=[np.float64])(-y / math.sqrt(2))
    return np.asarray(result).astype(x.dtype)


@gelu.compute
def compute(attrs: GeluAttrs, x: Tensor) -> Tensor:
    def element(*index: te.Expr) -> te.Expr:
        element_value = x(*index)
        value = element_value.astype("float32") if element_value.dtype.bits < 32 else element_value
        dtype = value.dtype
        if attrs.approximate == "tanh":
            cube = T.const(2 * TANH_SCALE * TANH_CUBE, dtype)
            weight = te.sigmoid(value * (value * value * cube + T.const(2 * TANH_SCALE, dtype)))
        elif dtype.bits == 32:
            weight = te.normcdf(value)
        else:
            weight = T.const(0.5, dtype) + te.erf(value * T.const(math.sqrt(0.5), dtype)) * T.const(0.5, dtype)
        result: te.Expr = (value * weight).astype(element_value.dtype)
        return result

    return te.compute(x.shape, element, name="gelu", tag="elemwise")


@gelu.samples
def samples() -> Iterator[Sample]:
    yield Sample(GeluAttrs(), (f32(3, 40),), (-7.0, 7.0))
    yield Sample(GeluAttrs("tanh"), (f32(3, 7),), (-5.0, 5.0))
    yield Sample(GeluAttrs(), (tensor("float64", 9),))
    yield Sample(GeluAttrs(), (tensor("float16", 9),))


@gelu.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(GeluAttrs("fast"), (f32(3),), "approximate is 'fast', wanted 'none' or 'tanh'")
    yield BadSample(GeluAttrs(), (tensor("int32", 3),), "floating-point dtype")
