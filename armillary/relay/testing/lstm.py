"""A recurrent network of LSTM cells, unrolled: each iteration calls a cell, a function of its own.

In: iterations, hidden units. Out: (IRModule, params) by get_workload. Every iteration has its weights and reads "data",
which is (batch_size, num_hidden); the states begin as zeros. The result is the last output. Invariant: gates lie side
by side as input, forget, transform, output.
"""

from __future__ import annotations

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.relay.types import TupleType, tensor_type
from armillary.runtime.ndarray import NDArray


class _Scope:
    """Lets in the order they are written, closed by `let_in`."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Var, Expr]] = []

    def let(self, name: str, value: Expr) -> Var:
        """Name a value."""
        self.bindings.append((var(name, value.checked_type), value))
        return self.bindings[-1][0]

    def let_in(self, body: Expr) -> Expr:
        """The body within the lets."""
        for name, value in reversed(self.bindings):
            body = Let(name, value, body)
        return body


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """One cell: (inputs, (h, c), weights and biases) -> (output, (h, c)), as a function."""
    state = tensor_type((batch_size, num_hidden), dtype)
    weight, bias = tensor_type((4 * num_hidden, num_hidden), dtype), tensor_type((4 * num_hidden,), dtype)
    inputs, states = var("inputs", state), var("states", TupleType((state, state)))
    i2h_weight, i2h_bias = var("i2h_weight", weight), var("i2h_bias", bias)
    h2h_weight, h2h_bias = var("h2h_weight", weight), var("h2h_bias", bias)
    scope, units = _Scope(), 4 * num_hidden
    i2h = scope.let("i2h", layers.dense_add_bias(inputs, i2h_weight, i2h_bias, units, name=f"{name}i2h"))
    before = TupleGetItem(states, 0)
    h2h = scope.let("h2h", layers.dense_add_bias(before, h2h_weight, h2h_bias, units, name=f"{name}h2h"))
    gates = scope.let("gates", relay.add(i2h, h2h))
    parts = scope.let("slice_gates", relay.split(gates, indices_or_sections=4, axis=1))
    in_gate, forget, transform, out_gate = (
        scope.let(label, function(TupleGetItem(parts, k)))
        for k, (label, function) in enumerate(
            (
                ("in_gate", relay.sigmoid),
                ("forget_gate", relay.sigmoid),
                ("in_transform", relay.tanh),
                ("out_gate", relay.sigmoid),
            )
        )
    )
    retained = relay.multiply(forget, TupleGetItem(states, 1))
    next_c = scope.let("next_c", relay.add(retained, relay.multiply(in_gate, transform)))
    next_h = scope.let("next_h", relay.multiply(out_gate, relay.tanh(next_c)))
    body = scope.let_in(Tuple((next_h, Tuple((next_h, next_c)))))
    return Function((inputs, states, i2h_weight, i2h_bias, h2h_weight, h2h_bias), body)


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """The unrolled network as a function."""
    state = tensor_type((batch_size, num_hidden), dtype)
    weight, bias = tensor_type((4 * num_hidden, num_hidden), dtype), tensor_type((4 * num_hidden,), dtype)
    parameters = (("weight", weight), ("bias", bias))
    scope, data = _Scope(), var("data", state)
    zeros = scope.let("zeros", relay.zeros(shape=(batch_size, num_hidden), dtype=dtype))
    states: Expr = scope.let("init_states", Tuple((zeros, zeros)))
    params: list[Var] = [data]
    out: Expr = zeros
    for n in range(iterations):
        own = [var(f"{part}_{n}_{what}", ty) for part in ("i2h", "h2h") for what, ty in parameters]
        params += own
        let = scope.let(f"call_{n}", Call(lstm_cell(num_hidden, batch_size, dtype, f"lstm_{n}"), (data, states, *own)))
        out = scope.let(f"out_{n}", TupleGetItem(let, 0))
        states = scope.let(f"states_{n}", TupleGetItem(let, 1))
    return Function(tuple(params), scope.let_in(out))


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
