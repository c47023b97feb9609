"""Labels and dictionaries of classifiers, which are no tensors, given back to whoever runs the model.

In: a model. Out: for each output that holds strings or dictionaries, a function from the arrays that the compiled
network gives instead: numbers of classes, and the table of scores behind a ZipMap. Invariant: other outputs are not
touched. The import: frontend/onnx/rules/ml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

import numpy as np

from armillary.base.aliases import Array
from armillary.frontend.onnx.rules.ml.scores import ML, STRING_LABELS

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Restored = Callable[[Array], object]
_CLASSIFIERS = ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")


def restored_outputs(model: ModelProto) -> dict[str, Restored]:
    """By output's name."""
    restored: dict[str, Restored] = {}
    copies = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Identity"}
    for node in model.graph.node:
        if node.domain != ML or not node.output:
            continue
        texts = _strings(node)
        if node.op_type in _CLASSIFIERS and texts:
            restored[node.output[0]] = partial(_texts, np.array(texts, object))
        elif node.op_type == "ZipMap":
            restored[node.output[0]] = partial(_maps, texts or _integers(node))
    result = {}
    for value in model.graph.output:
        name = value.name
        while name in copies and name not in restored:
            name = copies[name]
        if name in restored:
            result[value.name] = restored[name]
    return result


@contextmanager
def unwarned() -> Iterator[None]:
    """No word of labels that are numbers: the session gives the strings."""
    with catch_warnings():
        filterwarnings("ignore", message=STRING_LABELS)
        yield


def _strings(node: NodeProto) -> list[str]:
    return [text.decode() for a in node.attribute if a.name == "classlabels_strings" for text in a.strings]


def _integers(node: NodeProto) -> list[int]:
    return [int(number) for a in node.attribute if a.name == "classlabels_int64s" for number in a.ints]


def _texts(labels: Array, index: Array) -> object:
    return labels[index]


def _maps(labels: list[str] | list[int], scores: Array) -> object:
    return [dict(zip(labels, row.tolist(), strict=True)) for row in np.atleast_2d(scores)]


__all__ = ["Restored", "restored_outputs", "unwarned"]
