"""nn.add_step: what a step of a recurrent network adds to its product with the state: its part of the inputs.

In: data (batch, size); the parts of all steps, (steps, batch, width); which step it is, the first of some integers
(kept between 0 and steps - 1). Out: data plus columns [offset, offset + size) of that step. It is fused as an addition
is. Invariant: all steps share one kernel if the step is a tensor of two numbers: a constant of one is spelled out in
it. Import: frontend/onnx/rules/nn/rnn.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.extent import note_meeting
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import check_to_read
from armillary.ops.nn._windows import Tensor, f32, known, need_dtype, need_rank, need_tensor, tensor
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "nn.add_step"


@record
class AddStepAttrs:
    offset: int = 0


add_step = Op(NAME, kind=Kind.BROADCAST, inputs=("data", "inputs", "step"), doc="Adds columns of one step's inputs.")
add_step.attrs(AddStepAttrs)


@add_step.infer
def _infer(attrs: AddStepAttrs, data: Type, inputs: Type, step: Type) -> TensorType:
    x = need_rank(NAME, data, 2)
    every = need_rank(NAME, inputs, 3, "inputs")
    need_dtype(NAME, x, every)
    place = need_tensor(NAME, step, "step")
    if place.dtype.is_float or place.ndim != 1 or place.shape[0] == 0:
        raise TypeMismatch(f"{NAME}: step must be a vector of integers, got {place}")
    check_to_read(NAME, every, (0,), x.shape)
    size, width = known(x.shape[1]), known(every.shape[2])
    note_meeting(x.shape[0], every.shape[1])
    if x.shape[0] != every.shape[1]:
        raise TypeMismatch(f"{NAME}: data has a batch of {x.shape[0]}, inputs have one of {every.shape[1]}")
    if size is not None and width is not None and not 0 <= attrs.offset <= width - size:
        raise TypeMismatch(f"{NAME}: {size} columns from {attrs.offset} on are more than the {width} of inputs")
    return x


@add_step.reference
def _reference(attrs: AddStepAttrs, data: Array, inputs: Array, step: Array) -> Array:
    at = int(np.clip(step[0], 0, len(inputs) - 1))
    result: Array = data + inputs[at, :, attrs.offset : attrs.offset + data.shape[1]]
    return result


@add_step.compute
def _compute(attrs: AddStepAttrs, data: Tensor, inputs: Tensor, step: Tensor) -> Tensor:
    at = T.maximum(T.minimum(step(0), T.cast(inputs.shape[0] - 1, step.dtype)), T.const(0, step.dtype))

    def element(b: te.Expr, j: te.Expr) -> te.Expr:
        result: te.Expr = data(b, j) + inputs(at, b, j + attrs.offset)
        return result

    return te.compute(data.shape, element, name="add_step", tag="injective")


@add_step.reads
def _reads(attrs: AddStepAttrs, types: Sequence[TensorType], result: Type) -> list[int]:
    """Of the inputs of all steps as many elements as the data has."""
    data, _, step = (t.nbytes for t in types)
    return [data, data, step]


@add_step.samples
def _samples() -> Iterator[Sample]:
    yield Sample(AddStepAttrs(), (f32(2, 12), f32(3, 2, 12), tensor("int32", 2)))
    yield Sample(AddStepAttrs(offset=17), (f32(1, 34), f32(2, 1, 51), tensor("int64", 1)))


@add_step.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    step = tensor("int32", 2)
    yield BadSample(AddStepAttrs(offset=5), (f32(2, 8), f32(3, 2, 12), step), "8 columns from 5 on are more than")
    yield BadSample(AddStepAttrs(), (f32(2, 8), f32(3, 1, 12), step), "data has a batch of 2, inputs have one of 1")
    yield BadSample(AddStepAttrs(), (f32(2, 8), f32(3, 2, 12), f32(1)), "step must be a vector of integers")
