"""sizes: the values of named sizes, and expressions over them, as a tensor.

In: nothing; the expressions are an attribute. Out: a small integer tensor that holds their values when a program runs.
Invariant: shape arithmetic of imported models is done on these attributes, so that a tensor of sizes is computed only
where it is data: a range of positions, a count that something is divided by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known, is_known
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import elements, fixed_shape, number
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType


@record
class SizesAttrs:
    """`values`, row by row, of a tensor of `shape`."""

    values: tuple[Known, ...]
    shape: tuple[int, ...] = ()
    dtype: str = "int64"


sizes = Op("sizes", kind=Kind.INJECTIVE, inputs=(), doc="Values of named sizes, and of expressions over them.")
sizes.attrs(SizesAttrs)


@sizes.infer
def infer(attrs: SizesAttrs) -> TensorType:
    if math.prod(attrs.shape) != len(attrs.values) or not all(map(is_known, attrs.values)):
        raise TypeMismatch(f"sizes: {attrs.values} are not the extents of a tensor of shape {attrs.shape}")
    return TensorType(attrs.shape, DType(attrs.dtype))


@sizes.reference
def reference(attrs: SizesAttrs) -> Array:
    return np.array(fixed_shape("sizes", attrs.values), DType(attrs.dtype).numpy).reshape(attrs.shape)


@sizes.compute
def compute(attrs: SizesAttrs) -> te.Tensor:
    def element(*i: te.Expr) -> te.Expr:
        flat: te.Expr = T.const(0)
        for index, dim in zip(i, attrs.shape, strict=True):
            flat = T.add(T.mul(flat, dim), index)
        value = number(attrs.values[-1], attrs.dtype)
        for k in reversed(range(len(attrs.values) - 1)):
            value = T.select(T.equal(flat, k), number(attrs.values[k], attrs.dtype), value)
        return value

    if not attrs.values:
        return elements(attrs.shape, lambda *_: T.const(0, attrs.dtype), name="sizes", tag="injective")
    return elements(attrs.shape, element, name="sizes", tag="injective")


@sizes.samples
def samples() -> Iterator[Sample]:
    yield Sample(SizesAttrs((2, 3, 5), (3,)), ())
    yield Sample(SizesAttrs((7,), (), "int32"), ())


@sizes.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(SizesAttrs((2, 3), (3,)), (), "not the extents of a tensor of shape")
