"""cpu.widen: the numbers of a weight that a package stores in fewer bits.

In: a weight whose values a narrower type holds exactly. Out: the same values as float32. Invariant: exact. Runs when
weights are loaded (`expands`), as a kernel of its own; made by backends/cpu/graph/narrow_weights.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import Tensor, need_tensor, tensor
from armillary.relay.op import Array, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

widen = Op("cpu.widen", kind=Kind.OPAQUE, inputs=("weight",), doc="A narrow weight as float32, when loaded.")
widen.expands = True


@widen.infer
def _infer(attrs: None, weight: Type) -> TensorType:
    return TensorType(need_tensor(widen.name, weight, "weight").shape, DType("float32"))


@widen.reference
def _reference(attrs: None, weight: Array) -> Array:
    return weight.astype(np.float32)


@widen.compute
def _compute(attrs: None, weight: Tensor) -> Tensor:
    return te.compute(weight.shape, lambda *i: T.cast(weight(*i), "float32"), name="widen", tag="injective")


@widen.samples
def _samples() -> Iterator[Sample]:
    yield Sample(None, (tensor("float16", 3, 7),))
    yield Sample(None, (tensor("bfloat16", 33),))
