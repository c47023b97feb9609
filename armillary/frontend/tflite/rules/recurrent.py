"""TFLite's recurrent layers over whole sequences: UNIDIRECTIONAL_SEQUENCE_LSTM and _RNN, in real numbers.

In: data (batch, time, features), or time in front; one matrix for each gate; states. Out: what ONNX's rule of the same
cell makes (frontend/onnx/rules/nn/rnn.py). Invariant: states begin at what the file says, zero as a rule, in each run.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.rules.nn.rnn import recurrent
from armillary.frontend.tflite.node import ACTIVATIONS, TfliteNode, tflite
from armillary.frontend.values import op, shape_of
from armillary.relay.expr import Expr, Tuple

_ORDER = (0, 3, 1, 2)  # ONNX's gates by their place in TFLite's: input, forget, cell, output
_CELLS = {"tanh": "Tanh", "relu": "Relu", "none": "Affine"}


def _joined(parts: Sequence[Expr]) -> Expr:
    """Matrices or vectors of gates one after another, behind an axis of directions."""
    return op("expand_dims", op("concatenate", Tuple(tuple(parts)), axis=0), axis=0)


def _run(node: TfliteNode, kind: str, inputs: list[Expr | None], attributes: dict[str, object]) -> Expr:
    is_front = bool(node.option("time_major"))
    inputs[0] = node.x if is_front else op("transpose", node.x, axes=(1, 0, 2))
    outputs = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    steps, *_ = recurrent(OnnxNode(kind, node.name, "", 14, inputs, [None] * len(inputs), attributes, outputs))
    result = op("squeeze", steps, axis=(1,))
    return result if is_front else op("transpose", result, axes=(1, 0, 2))


def _activation(node: TfliteNode) -> str:
    name = node.one_of("activation", ACTIVATIONS)
    return _CELLS[name] if name in _CELLS else node.refuse(f"the activation {name.upper()}")


@tflite(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    options="activation:b cell_clip:f projection_clip:f time_major:? asymmetric:? diagonal:?",
)
def sequence_lstm(node: TfliteNode) -> Expr:
    """Inputs 1 to 4 are matrices of data, 5 to 8 of the state, 9 to 11 peepholes, 12 to 15 biases, 18, 19 states."""
    if not node.has(1) or node.option("diagonal"):
        node.refuse("a gate of the input that follows from another one, or diagonal matrices")
    if any(node.has(k) for k in (16, 17, 20, 21, 22, 23)) or node.option("cell_clip") or node.option("projection_clip"):
        node.refuse("projections, normalised gates or clips")
    w, r = (_joined([node.input(first + k) for k in _ORDER]) for first in (1, 5))
    biases = [node.input(12 + k) for k in _ORDER]
    b = _joined([*biases, *(op("zeros_like", bias) for bias in biases)])
    peepholes = _joined([node.input(k) for k in (9, 11, 10)]) if node.has(9) else None
    states = [op("expand_dims", node.input(k), axis=0) for k in (18, 19)]
    cell = _activation(node)
    attributes: dict[str, object] = {
        "hidden_size": shape_of(node.input(5))[1],
        "activations": ["Sigmoid", cell, cell],
        "activation_alpha": [1.0] * 3,
        "activation_beta": [0.0] * 3,
    }
    return _run(node, "LSTM", [None, w, r, b, None, *states, peepholes], attributes)


@tflite("UNIDIRECTIONAL_SEQUENCE_RNN", options="time_major:? activation:b asymmetric:?")
def sequence_rnn(node: TfliteNode) -> Expr:
    w, r = (_joined([node.input(k)]) for k in (1, 2))
    b = _joined([node.input(3), op("zeros_like", node.input(3))])
    attributes: dict[str, object] = {
        "hidden_size": shape_of(node.input(2))[0],
        "activations": [_activation(node)],
        "activation_alpha": [1.0],
        "activation_beta": [0.0],
    }
    return _run(node, "RNN", [None, w, r, b, None, op("expand_dims", node.input(4), axis=0)], attributes)
