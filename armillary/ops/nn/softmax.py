"""nn.softmax and nn.log_softmax: normalised exponentials along one axis.

In: floating-point data, an axis. Out: the same type; 16-bit formats are summed in float32, all else rounds at each
step. Invariant: the largest element is subtracted first, so no exponential overflows. TE: stages softmax_max,
softmax_exp, softmax_sum, its inverse or logarithm and the result, tagged softmax or log_softmax, so that a schedule can
keep a row in cache. ONNX before opset 13 flattens the axes from `axis` on into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.ops._deferred import T, te
from armillary.ops._types import accumulator, quiet
from armillary.ops.nn._windows import (
    Tensor,
    axis_of,
    f32,
    lowest,
    need_float,
    need_tensor,
    tensor,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Precision
from armillary.relay.types import TensorType, Type


@record
class SoftmaxAttrs:
    axis: int = -1


softmax = Op("nn.softmax", kind=Kind.CONTRACTION, doc="exp(x) / sum(exp(x)) along an axis.")
log_softmax = Op("nn.log_softmax", kind=Kind.CONTRACTION, doc="log(softmax(x)) along an axis.")


def _infer(op: str, attrs: SoftmaxAttrs, data: Type) -> TensorType:
    x = need_float(op, need_tensor(op, data))
    axis_of(op, attrs.axis, x.ndim)
    return x


def _shifted(attrs: SoftmaxAttrs, x: Array) -> Array:
    shifted: Array = x - np.max(x, attrs.axis, keepdims=True, initial=-np.inf).astype(x.dtype)
    return shifted


def _total(attrs: SoftmaxAttrs, powers: Array) -> Array:
    total: Array = wide(powers).sum(attrs.axis, keepdims=True).astype(powers.dtype)
    return total


@softmax.reference
@quiet
def _reference(attrs: SoftmaxAttrs, x: Array) -> Array:
    e = np.exp(_shifted(attrs, x))
    result: Array = e / _total(attrs, e)
    return result


@log_softmax.reference
@quiet
def _reference_log(attrs: SoftmaxAttrs, x: Array) -> Array:
    y = _shifted(attrs, x)
    result: Array = y - np.log(_total(attrs, np.exp(y)))
    return result


def _larger(a: te.Expr, b: te.Expr) -> te.Expr:
    """The larger number. One that is none is passed over: its exponential makes the sum, and so the row, none."""
    return T.select(T.greater(b, a), b, a)


def _stages(
    attrs: SoftmaxAttrs, x: Tensor
) -> tuple[Tensor, Tensor, Tensor, Callable[[Sequence[te.Expr]], list[te.Expr]]]:
    """The row maximum, a function that reads exp(x - max), its row sum, and how to drop the axis from an index."""
    axis = attrs.axis % len(x.shape)
    rest = [d for n, d in enumerate(x.shape) if n != axis]
    k_max, k_sum = te.reduce_axis((0, x.shape[axis]), "k"), te.reduce_axis((0, x.shape[axis]), "k")

    def with_axis(index: Sequence[te.Expr], k: te.IterVar) -> list[te.Expr]:
        return [*index[:axis], k, *index[axis:]]

    def without(index: Sequence[te.Expr]) -> list[te.Expr]:
        return [*index[:axis], *index[axis + 1 :]]

    largest = te.comm_reducer(_larger, lowest, name="max")
    top = te.compute(
        rest, lambda *i: largest(x(*with_axis(i, k_max)), axis=[k_max]), name="softmax_max", tag="softmax_max"
    )
    powers = te.compute(
        x.shape, lambda *i: te.exp_flushed(x(*i) - top(*without(i))), name="softmax_exp", tag="softmax_exp"
    )
    dtype = accumulator(DType(x.dtype))
    total = te.compute(
        rest,
        lambda *i: te.sum(powers(*with_axis(i, k_sum)).astype(dtype), axis=[k_sum]),
        name="softmax_sum",
        tag="softmax_sum",
    )
    return top, powers, total, without


@softmax.compute
def _compute(attrs: SoftmaxAttrs, x: Tensor) -> Tensor:
    _, powers, total, without = _stages(attrs, x)
    if total.dtype != x.dtype:
        sums: Tensor = te.compute(
            x.shape, lambda *i: powers(*i) / total(*without(i)).astype(x.dtype), name="softmax", tag="softmax"
        )
        return sums
    inverse = te.compute(
        total.shape, lambda *i: T.const(1.0, x.dtype) / total(*i), name="softmax_inverse", tag="softmax_inverse"
    )
    result: Tensor = te.compute(x.shape, lambda *i: powers(*i) * inverse(*without(i)), name="softmax", tag="softmax")
    return result


@log_softmax.compute
def _compute_log(attrs: SoftmaxAttrs, x: Tensor) -> Tensor:
    top, _, total, without = _stages(attrs, x)
    logarithm = te.compute(
        total.shape, lambda *i: te.log(total(*i).astype(x.dtype)), name="softmax_log", tag="softmax_log"
    )
    result: Tensor = te.compute(
        x.shape, lambda *i: x(*i) - top(*without(i)) - logarithm(*without(i)), name="log_softmax", tag="log_softmax"
    )
    return result


def _samples() -> Iterator[Sample]:
    yield Sample(SoftmaxAttrs(), (f32(2, 7),))
    yield Sample(SoftmaxAttrs(axis=1), (f32(2, 3, 5),), (-50.0, 50.0))


def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(SoftmaxAttrs(axis=2), (f32(2, 7),), "axis 2 is out of range")
    yield BadSample(SoftmaxAttrs(), (tensor("int32", 2, 7),), "must have a floating-point dtype")


def _attach(op: Op) -> None:
    op.attrs(SoftmaxAttrs)
    op.infer(lambda attrs, data: _infer(op.name, attrs, data))
    op.samples(_samples)
    op.bad_samples(_bad_samples)


_attach(softmax)
_attach(log_softmax)

state("nn.log_softmax", precision=Precision.NEVER)
state("nn.softmax", Fact.VANISHES, precision=Precision.NEVER, fast="nn.fast_softmax", quantized="qnn.softmax")
