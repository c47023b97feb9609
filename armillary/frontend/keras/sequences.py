"""Rules for Keras's layers over sequences: recurrent ones, attention, embeddings.

In: a `Layer` whose data is (batch, time, features). Out: expressions; a recurrent layer that returns its states gives
them behind its result. Invariant: gates come in the order of ONNX's operators, whose rule
(frontend/onnx/rules/nn/rnn.py) makes the steps; masks are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.frontend.keras.layers import Layer, Rule
from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.rules.nn.rnn import recurrent
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, const

_KINDS = {"LSTM": ("LSTM", (0, 3, 1, 2)), "GRU": ("GRU", (0, 1, 2)), "SimpleRNN": ("RNN", (0,))}
_ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "hard_sigmoid": "HardSigmoid"}
_ACTIVATIONS |= {"linear": "Affine", "softsign": "Softsign", "softplus": "Softplus", "elu": "Elu"}
_MERGED = {"sum": "add", "ave": "add", "mul": "multiply"}
Change = Callable[[Array], Array]


def _gates(kind: str) -> Change:
    """(inputs, gates x units)  ->  (1, gates x units, inputs), gates in ONNX's order"""
    order = _KINDS[kind][1]

    def change(a: Array) -> Array:
        parts = np.split(a, len(order), axis=-1)
        return np.concatenate([parts[k].T for k in order], 0)[None]

    return change


def _bias(kind: str) -> Change:
    """(gates x units), or two rows of it  ->  (1, twice that), gates in ONNX's order"""
    order = _KINDS[kind][1]

    def change(a: Array) -> Array:
        rows = a if a.ndim == 2 else np.stack([a, np.zeros_like(a)])
        parts = [[np.split(row, len(order))[k] for k in order] for row in rows]
        return np.concatenate([part for row in parts for part in row])[None]

    return change


def _activations(layer: Layer, kind: str) -> dict[str, object]:
    names = [layer.get("activation", "tanh")]
    if kind != "SimpleRNN":
        names.insert(0, layer.get("recurrent_activation", "sigmoid"))
    if kind == "LSTM":
        names.append(names[1])
    unknown = [name for name in names if not isinstance(name, str) or name not in _ACTIVATIONS]
    if unknown:
        layer.refuse(f"the activation {unknown[0]!r}", f"known: {', '.join(_ACTIVATIONS)}")
    slopes = [1 / 6 if name == "hard_sigmoid" else 1.0 for name in names]
    shifts = [0.5 if name == "hard_sigmoid" else 0.0 for name in names]
    return {
        "activations": [_ACTIVATIONS[name] for name in names],
        "activation_alpha": slopes,
        "activation_beta": shifts,
    }


def _run(layer: Layer, kind: str, first: int, states: Sequence[Expr], is_back: bool) -> list[Expr]:
    """One direction: the results of all steps (time, batch, units), the last states."""
    has_bias = bool(layer.get("use_bias", True))
    w, r = layer.weight(first, _gates(kind)), layer.weight(first + 1, _gates(kind))
    b = layer.weight(first + 2, _bias(kind)) if has_bias else None
    attributes: dict[str, object] = {"hidden_size": int(layer.config["units"]), **_activations(layer, kind)}
    if is_back:
        attributes["direction"] = "reverse"
    if kind == "GRU":
        attributes["linear_before_reset"] = int(bool(layer.get("reset_after", True)))
    begin: list[Expr | None] = [op("expand_dims", s, axis=0) for s in states] or [None, None]
    x = op("transpose", layer.x, axes=(1, 0, 2))
    inputs: list[Expr | None] = [x, w, r, b, None, *begin[: 2 if kind == "LSTM" else 1]]
    outputs = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    node = OnnxNode(_KINDS[kind][0], layer.name, "", 14, inputs, [None] * len(inputs), attributes, outputs)
    steps, *last = recurrent(node)
    return [op("squeeze", steps, axis=(1,)), *(op("squeeze", s, axis=(0,)) for s in last)]


def _checked(layer: Layer) -> None:
    if "mask" in layer.keywords:
        layer.refuse("a mask", "pad the sequences to one length")
    if layer.get("time_major") or layer.get("implementation") == 0:
        layer.refuse("time in front")


def _recurrent(layer: Layer) -> list[Expr]:
    _checked(layer)
    is_back, kind = bool(layer.get("go_backwards", False)), layer.kind
    states = [*layer.inputs[1:], *layer.tensors("initial_state")]
    steps, *last = _run(layer, kind, 0, states, is_back)
    whole = op("transpose", steps, axes=(1, 0, 2))
    whole = op("reverse", whole, axis=1) if is_back else whole
    result = whole if layer.get("return_sequences", False) else last[0]
    return [result, *last] if layer.get("return_state", False) else [result]


def _bidirectional(layer: Layer) -> list[Expr]:
    """Two layers; the second reads from the end."""
    inner, mode = layer.config["layer"], layer.config.get("merge_mode", "concat")
    kind = inner["class_name"]
    backward = layer.config.get("backward_layer")
    if kind not in _KINDS or len(layer.inputs) > 1 or (backward and backward["class_name"] != kind):
        layer.refuse(f"a {kind} in both directions, or first states of both", f"known: {', '.join(_KINDS)}")
    one = Layer(layer.name, kind, inner["config"], layer.inputs, layer.weights, layer.parameter, layer.keywords)
    _checked(one)
    half = len(layer.weights) // 2
    sides = [_run(one, kind, number * half, [], is_back) for number, is_back in enumerate((False, True))]
    is_whole = bool(one.get("return_sequences", False))
    results = [op("transpose", side[0], axes=(1, 0, 2)) if is_whole else side[1] for side in sides]
    merged = results if mode is None else [_merged(layer, results, str(mode))]
    return [*merged, *(s for side in sides for s in side[1:])] if one.get("return_state", False) else merged


def _merged(layer: Layer, results: list[Expr], mode: str) -> Expr:
    if mode == "concat":
        return op("concatenate", Tuple(tuple(results)), axis=-1)
    if mode not in _MERGED:
        layer.refuse(f"merge_mode {mode!r}", "concat, sum, mul, ave or None")
    result = op(_MERGED[mode], *results)
    return op("multiply", result, scalar(0.5, dtype_of(result))) if mode == "ave" else result


# --- attention --------------------------------------------------------------------------------------------------------


def _multi_head(layer: Layer) -> Expr:
    """Attention of projected heads; weights are (inputs, heads, size) and (heads, size, outputs)."""
    heads, size = int(layer.config["num_heads"]), int(layer.config["key_dim"])
    value_size = int(layer.get("value_dim", size))
    masks = {"attention_mask", "query_mask", "value_mask", "key_mask"} & layer.keywords.keys()
    if masks or layer.get("attention_axes") not in (None, [1], (1,)):
        layer.refuse("masks or other axes", "use_causal_mask is known")
    query = layer.x
    rest = [*layer.inputs[1:], *layer.tensors("value", "key")]
    value = rest[0] if rest else query
    key = rest[1] if len(rest) > 1 else value
    step = 2 if layer.get("use_bias", True) else 1
    q, k, v = (_projected(layer, x, number * step, step == 2) for number, x in enumerate((query, key, value)))
    q = op("multiply", q, scalar(1 / math.sqrt(size), dtype_of(q)))
    scores = op("nn.batch_matmul", _flat(q), _flat(k), transpose_b=True)
    rows, columns = shape_of(q)[2], shape_of(k)[2]
    if layer.keywords.get("use_causal_mask"):
        hidden = np.triu(np.full((rows, columns), -1e9, np.float32), 1)
        scores = op("add", scores, const(hidden[None]))
    weights = op("nn.softmax", scores, axis=-1)
    mixed = op("nn.batch_matmul", weights, _flat(v), transpose_b=False)
    batch = shape_of(q)[0]
    joined = op("transpose", reshape_to(mixed, (batch, heads, rows, value_size)), axes=(0, 2, 1, 3))
    result = reshape_to(joined, (batch, rows, heads * value_size))
    out = layer.weight(3 * step, lambda a: a.reshape(heads * value_size, -1).T)
    result = op("nn.dense", result, out, units=shape_of(out)[0])
    result = op("add", result, layer.weight(3 * step + 1)) if step == 2 else result
    if not layer.keywords.get("return_attention_scores"):
        return result
    return [result, reshape_to(weights, (batch, heads, rows, columns))]  # type: ignore[return-value]  # a rule may


def _projected(layer: Layer, x: Expr, number: int, has_bias: bool) -> Expr:
    """(batch, heads, time, size)"""
    inputs, heads, size = layer.weights[number][1].shape
    kernel = layer.weight(number, lambda a: a.reshape(inputs, heads * size).T)
    result = op("nn.dense", x, kernel, units=heads * size)
    if has_bias:
        result = op("add", result, layer.weight(number + 1, lambda a: a.reshape(-1)))
    batch, time, _ = shape_of(x)
    return op("transpose", reshape_to(result, (batch, time, heads, size)), axes=(0, 2, 1, 3))


def _flat(x: Expr) -> Expr:
    """Heads in front, with the batch."""
    batch, heads, time, size = shape_of(x)
    return reshape_to(x, (batch * heads, time, size))


def _embedding(layer: Layer) -> Expr:
    if layer.get("mask_zero", False):
        layer.refuse("mask_zero", "pad the sequences to one length, without a mask")
    return op("take", layer.weight(0), cast(layer.x, "int32"), axis=0)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_KINDS, _recurrent),
    "Bidirectional": _bidirectional,
    "MultiHeadAttention": _multi_head,
    "Embedding": _embedding,
    "RepeatVector": lambda layer: op(
        "repeat", op("expand_dims", layer.x, axis=1), repeats=int(layer.config["n"]), axis=1
    ),
}
