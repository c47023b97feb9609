"""ATen's recurrent networks: lstm, gru and rnn over whole sequences, in layers and both directions.

In: data (time, batch, features), or batch first; first states; weights as torch.nn keeps them. Out: what ONNX's rule of
the same cell makes (frontend/onnx/rules/nn/rnn.py), whose gates come in another order. Invariant: packed sequences are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.rules.nn.rnn import recurrent
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import op, reshape_to, shape_of
from armillary.relay.expr import Expr, Tuple

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # ONNX's gates by their place in PyTorch's


def _gates(kind: str, x: Expr) -> Expr:
    """The rows of the gates in ONNX's order, with an axis of directions in front."""
    order = _ORDER[kind]
    size = shape_of(x)[0] // len(order)
    parts = [op("strided_slice", x, begin=(g * size,), end=((g + 1) * size,), axes=(0,)) for g in order]
    return op("expand_dims", _joined(parts, 0), axis=0)


def _joined(parts: Sequence[Expr], axis: int) -> Expr:
    return op("concatenate", Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else parts[0]


def _layer(
    mode: str, name: str, kind: str, x: Expr, weights: Sequence[Sequence[Expr]], states: Sequence[Expr]
) -> list[Expr]:
    """One layer, whose directions each have (w, r) or (w, r, b, c): the sequence and the last states."""
    w, r = (_joined([_gates(kind, row[k]) for row in weights], 0) for k in (0, 1))
    bias: Expr | None = None
    if len(weights[0]) > 2:
        rows = [_joined([_gates(kind, row[2]), _gates(kind, row[3])], 1) for row in weights]
        bias = _joined(rows, 0)
    inputs = [x, w, r, bias, None, *states]
    attributes: dict[str, object] = {"hidden_size": shape_of(weights[0][1])[1]}
    if len(weights) == 2:
        attributes["direction"] = "bidirectional"
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    if kind == "RNN" and "relu" in mode:
        attributes["activations"] = ["Relu"] * len(weights)
    outputs = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    sequence, *last = recurrent(OnnxNode(kind, name, "", 14, inputs, [None] * len(inputs), attributes, outputs))
    time, directions, batch, hidden = shape_of(sequence)
    merged = op("transpose", sequence, axes=(0, 2, 1, 3))
    return [reshape_to(merged, (time, batch, directions * hidden)), *last]


def _run(
    call: AtenCall, kind: str, x: Expr, states: Sequence[Expr], weights: Sequence[Expr], options: Sequence[object]
) -> list[Expr]:
    """All layers; states have (layers x directions) rows, and so have the last ones."""
    has_bias, layers, dropout, train, is_both, batch_first = options
    if train and dropout:
        call.refuse("it is in training mode, where it is random", "call model.eval() before the export")
    count, each = (2 if is_both else 1), (4 if has_bias else 2)
    if len(weights) != int(str(layers)) * count * each:
        call.refuse("projections of the states", "an LSTM without proj_size")
    data = op("transpose", x, axes=(1, 0, 2)) if batch_first else x
    rows = [weights[k : k + each] for k in range(0, len(weights), each)]
    result, *last = stacked(call.name, call.name, kind, data, states, rows, count)
    return [op("transpose", result, axes=(1, 0, 2)) if batch_first else result, *last]


def stacked(
    mode: str, name: str, kind: str, x: Expr, states: Sequence[Expr], rows: Sequence[Sequence[Expr]], count: int
) -> list[Expr]:
    """Layers of `count` directions, one row of weights each: the sequence and the last states of all.

    `mode` says with "relu" which activation an RNN has; `name` is what errors call the layers.
    """
    last: list[list[Expr]] = []
    for begin in range(0, len(rows), count):
        first = [op("strided_slice", s, begin=(begin,), end=(begin + count,), axes=(0,)) for s in states]
        x, *ends = _layer(mode, name, kind, x, rows[begin : begin + count], first)
        last.append(ends)
    return [x, *(_joined([ends[k] for ends in last], 0) for k in range(len(states)))]


@aten("lstm.input", "lstm")
def lstm(call: AtenCall, x: Expr, states: Sequence[Expr], weights: Sequence[Expr], *options: object) -> list[Expr]:
    if not isinstance(states, list | tuple):
        call.refuse("a packed sequence", "pad the sequences")
    return _run(call, "LSTM", x, states, weights, options)


@aten("gru.input", "gru", "rnn_tanh.input", "rnn_tanh", "rnn_relu.input", "rnn_relu")
def gru(call: AtenCall, x: Expr, state: Expr, weights: Sequence[Expr], *options: object) -> list[Expr]:
    if isinstance(weights, Expr):
        call.refuse("a packed sequence", "pad the sequences")
    return _run(call, "GRU" if "gru" in call.name else "RNN", x, [state], weights, options)
