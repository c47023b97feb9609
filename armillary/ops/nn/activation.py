"""nn.relu, nn.leaky_relu, nn.prelu, nn.bias_add, nn.dropout.

In: data of any shape; alpha or bias of one value per index of an axis. Out: the shape and dtype of the data. Invariant:
elementwise in the data, so blocked layouts pass through relu and leaky_relu unchanged. ONNX activations made of these
and of elementwise operators: frontend/onnx/rules/nn/activation.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import (
    Tensor,
    axis_of,
    complete_vectors,
    f32,
    need_dtype,
    need_rank,
    need_shape,
    need_tensor,
    tensor,
)
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, is_call, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import TensorType, Type


@record
class LeakyReluAttrs:
    alpha: float = 0.01


@record
class AxisAttrs:
    axis: int = 1


@record
class DropoutAttrs:
    rate: float = 0.5


relu = Op("nn.relu", kind=Kind.ELEMENTWISE, doc="max(data, 0).")
leaky_relu = Op("nn.leaky_relu", kind=Kind.ELEMENTWISE, doc="data where >= 0, else alpha * data.")
prelu = Op("nn.prelu", kind=Kind.BROADCAST, inputs=("data", "alpha"), doc="leaky_relu with one alpha per channel.")
bias_add = Op("nn.bias_add", kind=Kind.BROADCAST, inputs=("data", "bias"), doc="data plus one bias per channel.")
dropout = Op("nn.dropout", kind=Kind.ELEMENTWISE, doc="The data itself: dropout acts in training only.")
leaky_relu.attrs(LeakyReluAttrs)
prelu.attrs(AxisAttrs)
bias_add.attrs(AxisAttrs)
dropout.attrs(DropoutAttrs)

relu.infer(lambda attrs, data: need_tensor("nn.relu", data))
leaky_relu.infer(lambda attrs, data: _infer_leaky(attrs, need_tensor("nn.leaky_relu", data)))
dropout.infer(lambda attrs, data: need_tensor("nn.dropout", data))


def _infer_channel(op: str, attrs: AxisAttrs, data: Type, vector: Type, what: str) -> TensorType:
    x, v = need_tensor(op, data), need_rank(op, need_tensor(op, vector, what), 1, what)
    need_dtype(op, x, v)
    size = x.shape[axis_of(op, attrs.axis, x.ndim)]
    if op == "nn.prelu" and v.shape == (1,):
        return x
    need_shape(op, what, v, (size,))
    return x


prelu.complete(complete_vectors)
bias_add.complete(complete_vectors)
prelu.infer(lambda attrs, data, alpha: _infer_channel("nn.prelu", attrs, data, alpha, "alpha"))
bias_add.infer(lambda attrs, data, bias: _infer_channel("nn.bias_add", attrs, data, bias, "bias"))


def along(vector: Array, ndim: int, axis: int) -> Array:
    """A vector shaped to broadcast along one axis."""
    shape = [1] * ndim
    shape[axis] = -1
    return vector.reshape(shape)


def _infer_leaky(attrs: LeakyReluAttrs, x: TensorType) -> TensorType:
    if not x.dtype.has(attrs.alpha):
        raise TypeMismatch(f"nn.leaky_relu: no {x.dtype} is {attrs.alpha} (alpha)", hint="cast to float32 first")
    return x


relu.reference(lambda attrs, x: np.maximum(x, x.dtype.type(0)))
dropout.reference(lambda attrs, x: x)


@leaky_relu.reference
def _reference_leaky(attrs: LeakyReluAttrs, x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # 0 * infinity, which is not taken
        return np.where(x >= 0, x, x * np.asarray(attrs.alpha).astype(x.dtype))


@prelu.reference
def _reference_prelu(attrs: AxisAttrs, x: Array, alpha: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(x >= 0, x, x * along(alpha, x.ndim, attrs.axis))


@bias_add.reference
def _reference_bias(attrs: AxisAttrs, x: Array, bias: Array) -> Array:
    return x + along(bias, x.ndim, attrs.axis)


@relu.compute
def _compute_relu(attrs: None, x: Tensor) -> Tensor:
    zero = T.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: T.maximum(x(*i), zero), name="relu", tag="elemwise")


@leaky_relu.compute
def _compute_leaky(attrs: LeakyReluAttrs, x: Tensor) -> Tensor:
    zero, alpha = T.const(0, x.dtype), T.const(attrs.alpha, x.dtype)
    return te.compute(
        x.shape, lambda *i: T.select(x(*i) >= zero, x(*i), x(*i) * alpha), name="leaky_relu", tag="elemwise"
    )


@prelu.compute
def _compute_prelu(attrs: AxisAttrs, x: Tensor, alpha: Tensor) -> Tensor:
    axis, zero, one = attrs.axis % len(x.shape), T.const(0, x.dtype), te.extents(alpha) == (1,)

    def element(*i: te.Expr) -> te.Expr:
        return T.select(x(*i) >= zero, x(*i), x(*i) * alpha(0 if one else i[axis]))

    return te.compute(x.shape, element, name="prelu", tag="broadcast")


@bias_add.compute
def _compute_bias(attrs: AxisAttrs, x: Tensor, bias: Tensor) -> Tensor:
    axis = attrs.axis % len(x.shape)
    return te.compute(x.shape, lambda *i: x(*i) + bias(i[axis]), name="bias_add", tag="broadcast")


@dropout.compute
def _compute_dropout(attrs: DropoutAttrs, x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda *i: x(*i), name="dropout", tag="elemwise")


@dropout.decompose
def _decompose_dropout(attrs: DropoutAttrs, x: Expr) -> Expr:
    return x


@relu.samples
def _samples_relu() -> Iterator[Sample]:
    yield Sample(None, (f32(2, 7),))
    yield Sample(None, (tensor("int32", 5),), (-9, 9))


@leaky_relu.samples
def _samples_leaky() -> Iterator[Sample]:
    yield Sample(LeakyReluAttrs(0.2), (f32(3, 5),))


@prelu.samples
def _samples_prelu() -> Iterator[Sample]:
    yield Sample(AxisAttrs(), (f32(2, 3, 4), f32(3)))
    yield Sample(AxisAttrs(axis=-1), (f32(2, 3), f32(3)))


@bias_add.samples
def _samples_bias() -> Iterator[Sample]:
    yield Sample(AxisAttrs(), (f32(2, 3, 4, 4), f32(3)))
    yield Sample(AxisAttrs(axis=-1), (f32(2, 5), f32(5)))


@dropout.samples
def _samples_dropout() -> Iterator[Sample]:
    yield Sample(DropoutAttrs(), (f32(2, 3),))


@bias_add.bad_samples
def _bad_bias() -> Iterator[BadSample]:
    yield BadSample(AxisAttrs(), (f32(2, 3, 4), f32(4)), "bias has shape (4,), expected (3,)")
    yield BadSample(AxisAttrs(axis=3), (f32(2, 3, 4), f32(4)), "axis 3 is out of range")
    yield BadSample(AxisAttrs(), (f32(2, 3), tensor("int32", 3)), "the dtypes differ")


def relu_twice(expr: Call) -> Expr | None:
    """relu(relu(x))  ->  relu(x)"""
    return expr.args[0] if is_call(expr.args[0], "nn.relu") else None


relu.simplify(relu_twice)

state("nn.bias_add", Fact.ADDITIVE, precision=Precision.FOLLOW, follows=Follows.AXIS)
state("nn.dropout nn.prelu", precision=Precision.FOLLOW)
state("nn.leaky_relu nn.relu", Fact.HOMOGENEOUS, precision=Precision.FOLLOW)
state("nn.dropout nn.leaky_relu", follows=Follows.ANY)
state("nn.prelu", follows=Follows.STAYS)
state("nn.leaky_relu", quantized="qnn.leaky_relu")
