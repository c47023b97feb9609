"""ONNX RNN, GRU and LSTM.

In: nodes of any opset with constant or computed weights; forward, reverse and bidirectional; initial states, clip,
peepholes, activations and per-sequence lengths. Out: (Y, Y_h[, Y_c]). The product with the inputs is one matrix
product for the whole sequence; each step then does one product with the hidden state. Which step it is is data
(add_step.py), so that all steps share their kernels. Up to UNROLLED steps have nodes of their own, longer sequences
and open lengths are a Loop. Invariant: a step beyond a sequence's length keeps the state and gives zeros; of no
steps at all the last states are the initial ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.frontend.onnx.rules.nn.activation import elu_of, scalar, softplus_of
from armillary.ops._deferred import by_name
from armillary.ops._iota import iota, splat
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, Function, Loop, Tuple, TupleGetItem, Var, const
from armillary.relay.types import scalar_type
from armillary.relay.walk import children, map_children, post_order

Activation = Callable[[Expr], Expr]
sizes = by_name("sizes")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": 1.0, "ScaledTanh": 1.0}
UNROLLED = 128  # steps: a loop copies its states, docs/decisions/control-flow.md has what that costs
BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}


@record
class Direction:
    """What one direction needs: weights of its own, initial states, activations."""

    w: Expr
    r: Expr
    input_bias: Expr | None
    hidden_bias: Expr | None
    hidden: Expr
    cell: Expr | None
    peepholes: tuple[Expr, ...]
    activations: tuple[Activation, ...]


@record
class Step:
    """What the inputs give to all steps, and which step it is: two numbers, so that kernels do not spell it out."""

    inputs: Expr
    index: Expr

    def added_to(self, x: Expr, offset: int = 0) -> Expr:
        """x plus columns of this step, from `offset` on."""
        return call("nn.add_step", x, self.inputs, self.index, offset=offset)


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    a, b = (
        float(np.float32(defaults.get(name, 0.0))) if stated is None else stated
        for defaults, stated in ((ALPHA, alpha), (BETA, beta))
    )
    table: dict[str, Activation] = {
        "Relu": lambda x: call("nn.relu", x),
        "Tanh": lambda x: call("tanh", x),
        "Sigmoid": lambda x: call("sigmoid", x),
        "Affine": lambda x: x * a + b,
        "LeakyRelu": lambda x: call("nn.leaky_relu", x, alpha=a),
        "ThresholdedRelu": lambda x: call("where", x > scalar(a, x), x, scalar(0.0, x)),
        "ScaledTanh": lambda x: call("tanh", x * b) * a,
        "HardSigmoid": lambda x: call("clip", x * a + b, a_min=0.0, a_max=1.0),
        "Elu": lambda x: elu_of(x, a),
        "Softsign": lambda x: x / (call("abs", x) + 1.0),
        "Softplus": softplus_of,
    }
    result = next((f for known, f in table.items() if known.lower() == name.lower()), None)
    if result is None:
        raise UnsupportedError(f"activation {name!r} of a recurrent node", hint=f"known: {', '.join(table)}")
    return result


def _row(x: Expr, index: int, axis: int = 0) -> Expr:
    """x[index] along an axis, which goes."""
    part = call("strided_slice", x, begin=(index,), end=(index + 1,), strides=(1,), axes=(axis,))
    return call("squeeze", part, axis=(axis,))


def _none_of(*shape: Known, dtype: DType) -> Expr:
    return splat(shape, 0, dtype)


def _number(value: Known) -> Expr:
    """An integer scalar."""
    if isinstance(value, int):
        return const(np.array(value, np.int64))
    result: Expr = sizes((value,))
    return result


def _slice(x: Expr, begin: int, end: int, axis: int) -> Expr:
    return call("strided_slice", x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def _parts(x: Expr, count: int) -> list[Expr]:
    """Equal parts along the last axis."""
    if count == 1:
        return [x]
    pieces = call("split", x, indices_or_sections=count, axis=-1)
    return [TupleGetItem(pieces, n) for n in range(count)]


def _closed(ends: Tuple, params: Sequence[Var]) -> tuple[Tuple, dict[Var, Expr]]:
    """The results of a body with variables for what it would compute from outside, again in each iteration."""
    inside, outside = {id(p) for p in params}, set[int]()
    more: dict[Var, Expr] = {}
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        if id(expr) in outside and id(expr) not in memo:
            variable = Var(f"outer{len(more)}", expr.checked_type)
            more[variable] = expr
            memo[id(expr)] = variable
        return memo.get(id(expr), expr)

    for expr in post_order(ends):
        parts = list(children(expr))
        if id(expr) in inside or any(id(part) in inside for part in parts):
            inside.add(id(expr))
            memo[id(expr)] = map_children(expr, get)
        elif isinstance(expr, Var) or any(id(part) in outside for part in parts):
            outside.add(id(expr))  # what is made of constants alone stays, to be folded and packed
    closed = get(ends)
    assert isinstance(closed, Tuple), "the results of a body are a tuple"
    return closed, more


class _Recurrent:
    """One node: its attributes, and the walk over directions and steps."""

    def __init__(self, node: OnnxNode) -> None:
        self.node, self.kind = node, node.op_type
        self.batch_first = node.flag("layout", False)
        x = node.input(0)
        self.x = call("transpose", x, axes=(1, 0, 2)) if self.batch_first else x
        self.steps, self.batch, self.features = type_of(self.x).known
        self.size = type_of(node.input(2)).static[-1]
        self.clip = node.float("clip")
        self.dtype = type_of(x).dtype
        direction = node.string("direction", "forward") or "forward"
        self.reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        self.lengths = self._lengths()

    def _lengths(self) -> Expr | None:
        """1 where a step is inside a sequence, 0 elsewhere: (steps, batch, 1)."""
        if self.node.missing(4) or not self.steps:
            return None
        value = self.node.constants[4]
        if value is not None and isinstance(self.steps, int) and (value == self.steps).all():
            return None
        moved = type_of(self.node.input(0)).typical_size
        row_lengths = checked(self.node, 4, [(0, self.steps)], "length of a sequence", moved)
        lengths = reshape_to(call("cast", row_lengths, dtype="int32"), (1, self.batch, 1))
        return call("cast", lengths > reshape_to(iota(self.steps, "int32"), (-1, 1, 1)), dtype=self.dtype)

    def _state(self, index: int, direction: int) -> Expr:
        if self.node.missing(index):
            return _none_of(self.batch, self.size, dtype=self.dtype)
        return _row(self.node.input(index), direction, 1 if self.batch_first else 0)

    def _direction(self, n: int) -> Direction:
        node, gates = self.node, GATES[self.kind]
        names = list(node.attributes.get("activations") or DEFAULTS[self.kind] * len(self.reverse))
        alphas, betas = list(node.floats("activation_alpha") or ()), list(node.floats("activation_beta") or ())
        functions = []
        for name in names:  # alphas and betas are listed for the functions that take them, in order
            alpha = alphas.pop(0) if alphas and name in ALPHA else None
            beta = betas.pop(0) if betas and name in BETA else None
            functions.append(_activation(name, alpha, beta))
        per = len(DEFAULTS[self.kind])
        input_bias = hidden_bias = None
        if not node.missing(3):
            bias = _row(node.input(3), n)
            input_bias = _slice(bias, 0, gates * self.size, 0)
            hidden_bias = _slice(bias, gates * self.size, 2 * gates * self.size, 0)
        lstm = self.kind == "LSTM"
        peepholes = tuple(_parts(_row(node.input(7), n), 3)) if lstm and not node.missing(7) else ()
        return Direction(
            _row(node.input(1), n),
            _row(node.input(2), n),
            input_bias,
            hidden_bias,
            self._state(5, n),
            self._state(6, n) if lstm else None,
            peepholes,
            tuple(functions[n * per : (n + 1) * per]),
        )

    def clipped(self, x: Expr) -> Expr:
        return x if self.clip is None else call("clip", x, a_min=-self.clip, a_max=self.clip)

    def run(self) -> list[Expr]:
        hidden, cells, outputs = [], [], []
        for n, reverse in enumerate(self.reverse):
            ys, h, c = self._walk(self._direction(n), reverse)
            outputs.append(ys)
            hidden.append(h)
            cells.append(c)
        axis = 1 if self.batch_first else 0
        y = call("stack", outputs, axis=1)  # (steps, directions, batch, size)
        y = call("transpose", y, axes=(2, 0, 1, 3)) if self.batch_first else y
        result = [y, call("stack", hidden, axis=axis)]
        if self.kind == "LSTM":
            result.append(call("stack", [c for c in cells if c is not None], axis=axis))
        return result[: len(self.node.outputs)]

    def _walk(self, d: Direction, reverse: bool) -> tuple[Expr, Expr, Expr | None]:
        """All hidden states, (steps, batch, size), the last one, and the last cell state."""
        if not self.steps:
            return _none_of(0, self.batch, self.size, dtype=self.dtype), d.hidden, d.cell
        flat = reshape_to(self.x, (self.steps * self.batch, self.features))
        projected = call("nn.dense", flat, d.w)
        if d.input_bias is not None:
            projected = call("nn.bias_add", projected, d.input_bias, axis=-1)
        projected = reshape_to(projected, (self.steps, self.batch, GATES[self.kind] * self.size))
        if isinstance(self.steps, Extent) or self.steps > UNROLLED:
            return self._looped(d, projected, reverse)
        h, c = d.hidden, d.cell
        ys = []
        for t in reversed(range(self.steps)) if reverse else range(self.steps):
            step = Step(projected, const(np.array([t, self.steps], "int32")))
            y, h, c = self._step(d, step, h, c, self.lengths)
            ys.append(y)
        return call("stack", ys[::-1] if reverse else ys, axis=0), h, c

    def _looped(self, d: Direction, projected: Expr, reverse: bool) -> tuple[Expr, Expr, Expr | None]:
        """The same as a loop around one step."""
        states = [s for s in (d.hidden, d.cell) if s is not None]
        fixed = [projected, *([] if self.lengths is None else [self.lengths])]
        number, going = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
        params = [Var(f"p{k}", value.checked_type) for k, value in enumerate([*states, *fixed])]
        inputs, lengths = params[len(states)], params[-1] if self.lengths is not None else None
        last = _number(self.steps - 1)
        index = call("cast", call("subtract", last, number) if reverse else number, dtype="int32")
        step = Step(inputs, call("reshape", index, newshape=(1,)))
        y, h, c = self._step(d, step, params[0], params[1] if d.cell is not None else None, lengths)
        ends = Tuple((going, h, *([] if c is None else [c]), y))
        ends, more = _closed(ends, [number, going, *params])
        body = Function((number, going, *params, *more), ends)
        length, args = _number(self.steps), (*states, *fixed, *more.values())
        loop = Loop(body, length, const(np.array(True)), args, len(states), self.steps)
        after = [TupleGetItem(loop, k) for k in range(len(states) + 1)]
        ys = call("reverse", after[-1], axis=0) if reverse else after[-1]
        return ys, after[0], after[1] if d.cell is not None else None

    def _step(
        self, d: Direction, step: Step, h: Expr, c: Expr | None, lengths: Expr | None
    ) -> tuple[Expr, Expr, Expr | None]:
        """What a step shows, and the states after it."""
        cell = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.kind]
        if self._is_plain_lstm():
            cell = self._plain_lstm
        new_h, new_c = cell(d, step, h, c)
        if lengths is None:
            return new_h, new_h, new_c
        none = _none_of(self.batch, 1, dtype=self.dtype)
        inside = call("nn.add_step", none, lengths, step.index) > 0.5
        y = call("where", inside, new_h, const(np.zeros((), self.dtype.numpy)))
        new_c = call("where", inside, new_c, c) if new_c is not None and c is not None else None
        return y, call("where", inside, new_h, h), new_c

    def _recur(self, d: Direction, h: Expr) -> Expr:
        product = call("nn.dense", h, d.r)
        return product if d.hidden_bias is None else call("nn.bias_add", product, d.hidden_bias, axis=-1)

    def _is_plain_lstm(self) -> bool:
        """An LSTM as defined by default, which is one operator behind the product."""
        node = self.node
        names = [str(name).lower() for name in node.attributes.get("activations") or ()]
        usual = not names or names == [name.lower() for name in DEFAULTS["LSTM"]] * len(self.reverse)
        whole = node.missing(7) and self.clip is None and not node.flag("input_forget", False)
        return self.kind == "LSTM" and usual and whole

    def _plain_lstm(self, d: Direction, step: Step, h: Expr, c: Expr | None) -> tuple[Expr, Expr]:
        both = call("nn.lstm_cell", self._recur(d, h), step.inputs, step.index, d.cell if c is None else c)
        return TupleGetItem(both, 0), TupleGetItem(both, 1)

    def _rnn(self, d: Direction, step: Step, h: Expr, c: Expr | None) -> tuple[Expr, None]:
        return d.activations[0](self.clipped(step.added_to(self._recur(d, h)))), None

    def _gru(self, d: Direction, step: Step, h: Expr, c: Expr | None) -> tuple[Expr, None]:
        (f, g), size = d.activations, self.size
        if self.node.flag("linear_before_reset", False):
            recurrent = self._recur(d, h)
            both = f(self.clipped(step.added_to(_slice(recurrent, 0, 2 * size, 1))))
            update, reset = _parts(both, 2)
            hh = reset * _slice(recurrent, 2 * size, 3 * size, 1)
        else:
            gates = call("nn.dense", h, _slice(d.r, 0, 2 * size, 0))
            if d.hidden_bias is not None:
                gates = call("nn.bias_add", gates, _slice(d.hidden_bias, 0, 2 * size, 0), axis=-1)
            update, reset = _parts(f(self.clipped(step.added_to(gates))), 2)
            hh = call("nn.dense", reset * h, _slice(d.r, 2 * size, 3 * size, 0))
            if d.hidden_bias is not None:
                hh = call("nn.bias_add", hh, _slice(d.hidden_bias, 2 * size, 3 * size, 0), axis=-1)
        candidate = g(self.clipped(step.added_to(hh, 2 * size)))
        return (-update + 1.0) * candidate + update * h, None

    def _lstm(self, d: Direction, step: Step, h: Expr, c: Expr | None) -> tuple[Expr, Expr]:
        f, g, last = d.activations
        cell = d.cell if c is None else c
        if cell is None:
            raise UnsupportedError(f"LSTM node {self.node.name!r} has no cell state")
        xi, xo, xf, xc = _parts(step.added_to(self._recur(d, h)), 4)
        if d.peepholes:
            xi, xf = xi + d.peepholes[0] * cell, xf + d.peepholes[2] * cell
        enter = f(self.clipped(xi))
        forget = -enter + 1.0 if self.node.flag("input_forget", False) else f(self.clipped(xf))
        new = forget * cell + enter * g(self.clipped(xc))
        xo = xo + d.peepholes[1] * new if d.peepholes else xo
        return f(self.clipped(xo)) * last(new), new


@from_onnx("RNN", "GRU", "LSTM")
def recurrent(node: OnnxNode) -> list[Expr]:
    return _Recurrent(node).run()
