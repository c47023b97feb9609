"""Shapes that the inputs of an operator must have, where its rule would take others for something else.

In: a node's operator and the types of its inputs. Out: nothing, or a TypeMismatch that names the input. A row has a
pattern for each input, `;` between them, `|` between choices: a letter is a size, the same wherever it stands, a number
that size, `*x` any sizes (the same wherever x stands), `_` and `...` are not looked at; `k-1` is one less; `one` is one
element, no pattern a scalar.
Invariant: what the standard, or ONNX Runtime's documentation of its own operators, allows fits; sizes that are not
known fit everything. Who asks: walk.py. Operands that broadcast one way only: rules/_checked.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import TypeMismatch
from armillary.relay.types import TensorType

_MS, _TRAINING = "com.microsoft:", "ai.onnx.preview.training:"
_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow")
_ATTENTION = "b h s d | b s _; b k t d | b t _; b k t _ | b t _; ...; b k p d; b k p _; b"
_LOSS = "n c *d; n *d; c"
_ROWS = {
    "Attention": _ATTENTION,
    "CausalConvWithState": "b c _; c 1 k; c; b c k-1",
    "Clip": "...; one; one",
    "ConvInteger": "n c ...; m ...; one; one | m",
    "CumProd": "...; one",
    "CumSum": "...; one",
    "DFT": "...; one; one",
    "Dropout": "...; one; one",
    "Gemm": "_ _; _ _",
    "If": "one",
    "LinearAttention": "b t _; b t _; b t _; b _ _ _; b t _; b t _",
    "Loop": "one; one",
    "MaxUnpool": "*x; *x",
    "MelWeightMatrix": "one; one; one; one; one",
    "NegativeLogLikelihoodLoss": _LOSS,
    "NonMaxSuppression": "b n 4; b _ n; one; one; one",
    "OneHot": "...; one; 2",
    "Pad": "...; ...; one",
    "QLinearConv": "n _ ...; one; one; m ...; one | m; one | m; one; one; m",
    "Range": "one; one; one",
    "RoiAlign": "n c h w; r 4; r",
    "RotaryEmbedding": "b _ s _ | b s _; p r | b s r; p r | b s r; b s",
    "STFT": "...; one; n; one",
    "SequenceAt": "...; one",
    "SequenceErase": "...; one",
    "SequenceInsert": "...; ...; one",
    "Slice": "...; n |; n |; n |; n |",  # tf2onnx writes a scalar for one axis
    "SoftmaxCrossEntropyLoss": _LOSS,
    "SwiGLU": "*x; *x",
    "TopK": "...; one",
    "Trilu": "...; one",
    **dict.fromkeys((_TRAINING + name for name in ("Adagrad", "Adam", "Momentum")), "one; one"),
    "ai.onnx.preview:FlexAttention": "b h s d; b k t d; b k t _",
    **dict.fromkeys(_WINDOWS, "one"),
    _MS + "Attention": "b s i; i w; w",
    _MS + "BiasGelu": "... n; n",
    _MS + "DynamicQuantizeMatMul": "... k; ... k n; one | n; one | n; n",
    _MS + "EmbedLayerNormalization": "b s; b s; _ h; _ h; _ h; h; h; b s; b s | 1 s",
    _MS + "FastGelu": "... n; n",
    _MS + "FusedGemm": "_ _; _ _",
    _MS + "MatMulIntegerToFloat": "... k; ... k n; one; one | n; one; one | n; n",
    _MS + "MultiHeadAttention": "b s h | b s n 3 d; b t h | b t n 2 d | b n t d; b t _ | b n t _; _",
    _MS + "QAttention": "b s i; i w; w; one; one | w; ...; one; one | w",
    _MS + "QEmbedLayerNormalization": "b s; b s; _ h; _ h; _ h; h; h; b s" + "; one" * 10,
    _MS + "QGemm": "_ _; one; one; _ _",
    _MS + "SkipLayerNormalization": "b s h | s h; b s h | 1 s h | s h; h; h; h",
    _MS + "SkipSimplifiedLayerNormalization": "b s h | s h; b s h | 1 s h | s h; h; h",
}
_Pattern = tuple[str, ...]
_Bound = dict[str, int | tuple[object, ...]]


def check_sizes(op_type: str, known: Sequence[Array | None]) -> None:
    """Refuse a size below 1 of an operator that has a function's body; `known`: the values of its inputs."""
    size = known[0] if op_type in _WINDOWS else None
    if size is not None and np.any(np.asarray(size) < 1):
        raise TypeMismatch(f"{op_type}: a window of {np.reshape(size, -1)[0]} elements, wanted 1 or more")


def check_shapes(op_type: str, domain: str, inputs: Sequence[object]) -> None:
    """Refuse a node one of whose inputs has a shape that its row does not allow; `inputs` are types, or None."""
    bound: _Bound = {}
    for index, (choices, ty) in enumerate(zip(_row(op_type, domain), inputs, strict=False)):
        if not isinstance(ty, TensorType):
            continue
        fitted = next((new for choice in choices if (new := _fitted(choice, ty.shape, bound)) is not None), None)
        if fitted is None:
            wanted = " or ".join(f"({', '.join(choice)})" for choice in choices)
            sizes = ", ".join(f"{name} = {size}" for name, size in bound.items())
            message = f"{op_type}: input {index} has shape {ty.shape}, wanted {wanted}"
            raise TypeMismatch(f"{message} where {sizes}" if sizes else message)
        bound = fitted


@cache
def _row(op_type: str, domain: str) -> tuple[tuple[_Pattern, ...], ...]:
    text = _ROWS.get(f"{domain}:{op_type}".lstrip(":"), "")
    return tuple(tuple(tuple(choice.split()) for choice in part.split("|")) for part in text.split(";")) if text else ()


def _fitted(pattern: _Pattern, shape: tuple[object, ...], bound: _Bound) -> _Bound | None:
    """The sizes of letters after this input; None where it does not fit."""
    if pattern == ("one",):
        return bound if all(not isinstance(size, int) or size == 1 for size in shape) else None
    rest = next((k for k, token in enumerate(pattern) if token == "..." or token.startswith("*")), None)
    fixed = len(pattern) - (rest is not None)
    if len(shape) < fixed or (rest is None and len(shape) > fixed):
        return None
    result = dict(bound)
    if rest is not None:
        behind = len(pattern) - rest - 1
        middle = shape[rest : len(shape) - behind]
        if pattern[rest] != "..." and not _agrees(result, pattern[rest], middle):
            return None
        shape = shape[:rest] + shape[len(shape) - behind :]
        pattern = pattern[:rest] + pattern[rest + 1 :]
    return result if all(_is_size(result, token, size) for token, size in zip(pattern, shape, strict=True)) else None


def _agrees(bound: _Bound, name: str, sizes: tuple[object, ...]) -> bool:
    """Whether several sizes are what their name stands for."""
    have = bound.setdefault(name, sizes)
    if not isinstance(have, tuple) or len(have) != len(sizes):
        return False
    return all(a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in zip(have, sizes, strict=True))


def _is_size(bound: _Bound, token: str, size: object) -> bool:
    """Whether a size is what the token says; a letter that is new stands for it from now on."""
    if not isinstance(size, int) or token == "_":
        return True
    if token.isdigit():
        return size == int(token)
    if token.endswith("-1"):
        have = bound.get(token[:-2])
        return not isinstance(have, int) or size == have - 1
    return bound.setdefault(token, size) == size
