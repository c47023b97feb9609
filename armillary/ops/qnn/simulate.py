"""annotation.simulated_quantize: what quantising a value would leave of it, in float.

In: data, a scale (one, or one that broadcasts against the data), the least and the largest step. Out: the data rounded
to whole steps within them. `kind` says what the value is to the product that reads it (driver/quantization);
`sign` and `rounding` are Relay's. Invariant: what is left is what `qnn.dequantize(qnn.quantize(x))` gives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, f32, need_float, need_tensor
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "annotation.simulated_quantize"


@record
class SimulatedQuantizeAttrs:
    kind: int = 1
    sign: bool = True
    rounding: str = "round"


simulated_quantize = Op(
    NAME,
    kind=Kind.BROADCAST,
    inputs=("data", "dom_scale", "clip_min", "clip_max"),
    doc="What quantising to whole steps would leave of a value.",
)
simulated_quantize.attrs(SimulatedQuantizeAttrs)


@simulated_quantize.infer
def _infer(attrs: SimulatedQuantizeAttrs, data: Type, scale: Type, least: Type, largest: Type) -> TensorType:
    x = need_float(NAME, need_tensor(NAME, data))
    for what, ty in (("dom_scale", scale), ("clip_min", least), ("clip_max", largest)):
        data_type = need_tensor(NAME, ty, what)
        if data_type.ndim > x.ndim or data_type.dtype != x.dtype:
            raise TypeMismatch(f"{NAME}: {what} is {data_type}, the data {x}", hint="a number of the data's dtype")
    return x


@simulated_quantize.reference
def _reference(attrs: SimulatedQuantizeAttrs, data: Array, scale: Array, least: Array, largest: Array) -> Array:
    steps = np.clip(np.rint(data / scale), least, largest)
    return np.asarray(steps * scale).astype(data.dtype)


@simulated_quantize.decompose
def _decompose(attrs: SimulatedQuantizeAttrs, data: Expr, scale: Expr, least: Expr, largest: Expr) -> Expr:
    steps = call("minimum", call("maximum", call("nearbyint", call("divide", data, scale)), least), largest)
    return call("multiply", steps, scale)


@simulated_quantize.samples
def _samples() -> Iterator[Sample]:
    limits = np.float32(-127), np.float32(127)
    numbers = tuple(np.asarray(v, np.float32) for v in (0.5, *limits))
    yield Sample(SimulatedQuantizeAttrs(), (f32(2, 3), *numbers))
    scales = np.array([[0.25], [2.0]], np.float32)
    yield Sample(SimulatedQuantizeAttrs(kind=2), (f32(2, 3), scales, *numbers[1:]))


@simulated_quantize.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(SimulatedQuantizeAttrs(), (f32(2), f32(2, 2), f32(), f32()), "dom_scale is")
