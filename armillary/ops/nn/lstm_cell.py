"""nn.lstm_cell: what a step of an LSTM does with its gates.

In: gates (batch, 4 * size) from the hidden state; the parts of all steps that come from the inputs, (steps, batch, 4 *
size); which step it is, the first of some integers; the cell state (batch, size). Gates are in the order input, output,
forget, candidate. Out: (hidden state, cell state). Invariant: the step that is read lies between 0 and steps - 1,
whatever the integer is. TE: one loop for each, tagged injective. All steps share one kernel if the step is a tensor of
two numbers: a constant of one is spelled out in it. Import: rules/nn/rnn.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    known,
    need_dtype,
    need_float,
    need_rank,
    need_shape,
    need_tensor,
    tensor,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import ANY_DIM, Dim, TensorType, TupleType, Type

NAME = "nn.lstm_cell"
GATES = 4
lstm_cell = Op(NAME, kind=Kind.OPAQUE, inputs=("gates", "inputs", "step", "cell"), doc="One step of an LSTM.")


@lstm_cell.infer
def _infer(attrs: None, gates: Type, inputs: Type, step: Type, cell: Type) -> TupleType:
    state = need_rank(NAME, need_float(NAME, need_tensor(NAME, cell, "cell"), "cell"), 2, "cell")
    g, x = need_tensor(NAME, gates, "gates"), need_rank(NAME, inputs, 3, "inputs")
    batch, size = state.shape
    count = known(size)
    width: Dim = ANY_DIM if count is None else GATES * count
    need_shape(NAME, "gates", g, (batch, width))
    need_shape(NAME, "inputs", x, (x.shape[0], batch, width))
    need_dtype(NAME, state, g, x)
    place = need_tensor(NAME, step, "step")
    if place.dtype.is_float or place.ndim != 1 or place.shape[0] == 0:
        raise TypeMismatch(f"{NAME}: step must be a vector of integers, got {place}")
    return TupleType((state, state))


@lstm_cell.reference
def _reference(attrs: None, gates: Array, inputs: Array, step: Array, cell: Array) -> tuple[Array, Array]:
    at = int(np.clip(step[0], 0, len(inputs) - 1))
    enter, leave, forget, candidate = np.split(wide(gates) + wide(inputs[at]), GATES, axis=1)
    new = wide(cell) * _sigmoid(forget) + _sigmoid(enter) * np.tanh(candidate)
    return (_sigmoid(leave) * np.tanh(new)).astype(cell.dtype), new.astype(cell.dtype)


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


@lstm_cell.compute
def _compute(attrs: None, gates: Tensor, inputs: Tensor, step: Tensor, cell: Tensor) -> list[Tensor]:
    size, dtype, inner = cell.shape[1], cell.dtype, "float32" if cell.dtype.bits < 32 else cell.dtype
    at = T.maximum(T.minimum(step(0), T.cast(inputs.shape[0] - 1, step.dtype)), T.const(0, step.dtype))

    def gate(b: te.Expr, j: te.Expr, n: int) -> te.Expr:
        column = j + size * n
        result: te.Expr = gates(b, column).astype(inner) + inputs(at, b, column).astype(inner)
        return result

    def updated(b: te.Expr, j: te.Expr) -> te.Expr:
        retained = te.sigmoid(gate(b, j, 2)) * cell(b, j).astype(inner)
        result: te.Expr = (retained + te.sigmoid(gate(b, j, 0)) * te.tanh(gate(b, j, 3))).astype(dtype)
        return result

    def shown(b: te.Expr, j: te.Expr) -> te.Expr:
        return (te.sigmoid(gate(b, j, 1)) * te.tanh(new(b, j).astype(inner))).astype(dtype)

    new = te.compute(cell.shape, updated, name="lstm_cell", tag="injective")
    return [te.compute(cell.shape, shown, name="lstm_hidden", tag="injective"), new]


@lstm_cell.reads
def _reads(attrs: None, types: Sequence[TensorType], result: Type) -> list[int]:
    """Of the inputs of all steps those of one, which are as large as the gates."""
    gates, _, step, cell = (t.nbytes for t in types)
    return [gates, gates, step, cell]


@lstm_cell.samples
def _samples() -> Iterator[Sample]:
    yield Sample(None, (f32(2, 12), f32(3, 2, 12), tensor("int32", 1), f32(2, 3)))
    yield Sample(None, (f32(1, 68), f32(2, 1, 68), tensor("int64", 2), f32(1, 17)))
    halves = [tensor("float16", *shape) for shape in ((2, 12), (3, 2, 12), (2, 3))]
    yield Sample(None, (*halves[:2], tensor("int32", 1), halves[2]))


@lstm_cell.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    step = tensor("int32", 1)
    yield BadSample(None, (f32(2, 9), f32(3, 2, 12), step, f32(2, 3)), "gates")
    yield BadSample(None, (f32(2, 12), f32(3, 2, 12), f32(1), f32(2, 3)), "step must be a vector of integers")
