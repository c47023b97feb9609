"""Which attributes of a node its import rule has read.

In: a node's attributes. Out: the same mapping, which remembers what was asked for. Invariant: an attribute that a rule
did not look at, and that does not have its default value, is refused: a newer operator set may have added it, and to
ignore it would be a wrong answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.lazy import deferred
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode
from armillary.frontend.onnx.proto import onnx

if TYPE_CHECKING:
    from onnx import AttributeProto

with deferred():
    from armillary.frontend.onnx.functions import schema_of as _schema
_HARMLESS = frozenset({"consumed_inputs", "kernel_shape", "seed", "is_test"})  # hints, or what shapes say as well
_HARMLESS_IN = {  # training only, or said by shapes as well
    "BatchNormalization": {"momentum"},
    "Dropout": {"ratio"},
    "Gemm": {"broadcast"},
    "GRU": {"hidden_size"},
    "LSTM": {"hidden_size"},
    "RNN": {"hidden_size"},
}


_LOSS = {"reduction": frozenset({"none", "sum", "mean"})}
_ROUNDING = {"round_mode": frozenset({"up", "down", "nearest"})}
_WORDS = {  # that the rules of these operators do not tell from others themselves
    "Cast": _ROUNDING,
    "CastLike": _ROUNDING,
    "Momentum": {"mode": frozenset({"standard", "nesterov"})},
    "NegativeLogLikelihoodLoss": _LOSS,
    "RoiAlign": {"coordinate_transformation_mode": frozenset({"half_pixel", "output_half_pixel"})},
    "SoftmaxCrossEntropyLoss": _LOSS,
    "TfIdfVectorizer": {"mode": frozenset({"TF", "IDF", "TFIDF"})},
}


class Attributes(dict[str, Any]):
    """Attribute values by name; `read` holds the names asked for."""

    def __init__(self, values: dict[str, object]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        """The value, or `default`; a number with a point is one of float32, as it is where a node says it."""
        self.read.add(name)
        return super().get(name, float(np.float32(default)) if isinstance(default, float) else default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def items(self) -> Any:  # Any: dict's own view
        """All of them, which counts as reading all."""
        self.read.update(self.keys())
        return super().items()


def check_word(op_type: str, name: str, value: bytes) -> None:
    """Refuse a word that the standard does not know."""
    known = _WORDS.get(op_type, {}).get(name)
    word = value.decode("utf-8", "replace")
    if known is not None and word not in known:
        raise ModelError(f"{op_type}: attribute {name!r} is {word!r}", hint=f"one of: {', '.join(sorted(known))}")


def refuse_unread(view: OnnxNode) -> None:
    """Raise UnsupportedError if an attribute that matters was not looked at."""
    attributes = view.attributes
    if not isinstance(attributes, Attributes):
        return
    harmless = _HARMLESS | _HARMLESS_IN.get(view.op_type, set())
    unread = [n for n in dict.keys(attributes) if n not in attributes.read and n not in harmless]
    schema = _schema(view.op_type, view.domain, view.opset) if unread else None  # onnx.defs.OpSchema
    if schema is None:
        return
    for name in unread:
        declared = schema.attributes.get(name)
        value = dict.__getitem__(attributes, name)
        if declared is None or not _is_default(value, declared.default_value):
            raise UnsupportedError(f"{view.op_type}: attribute {name!r} with value {value!r} is not supported")


def _is_default(value: object, default: AttributeProto) -> bool:
    if not default.name:
        return False
    standard = onnx.helper.get_attribute_value(default)
    standard = standard.decode() if isinstance(standard, bytes) else standard
    return bool(np.array_equal(np.asarray(value), np.asarray(standard)))
