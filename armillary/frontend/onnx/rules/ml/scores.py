"""Scores as a classifier of ai.onnx.ml gives them: transformed, and the label of the class that wins.

In: scores (rows, classes), or (rows, 1) of the positive one of two. Out: the label of each row, and scores of all
classes. Invariant: what the standard leaves open is as ONNX Runtime does it. Labels that are strings are given as the
number of the class: `labels` tells which they are (backend/labels.py gives them back).
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, const

ML = "ai.onnx.ml"
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # in the order of TreeEnsemble's numbers
STRING_LABELS = "labels of classes are strings"  # how the warning begins
_NOTHING = 1e-7  # SOFTMAX_ZERO leaves what is nearer to 0


def rows_of(node: OnnxNode, dtype: str = "float32") -> Expr:
    """The first input as (rows, features) of a dtype; float64 stays where `dtype` is empty."""
    x, ty = node.input(0), node.type_of(0)
    if ty.ndim not in (1, 2):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: its input is {ty}, wanted one or two dimensions")
    if ty.ndim == 1:
        x = reshape_to(x, (1, ty.static[0]))
    wanted = dtype or ("float64" if str(ty.dtype) == "float64" else "float32")
    return x if str(ty.dtype) == wanted else call("cast", x, dtype=wanted)


def transform_of(node: OnnxNode) -> str:
    """The node's post_transform, which is one of the standard's."""
    name = str(node.string("post_transform", "NONE"))
    if name not in POST_TRANSFORMS:
        problem = f"{node.op_type} node {node.name!r}: post_transform {name!r}"
        raise ModelError(problem, hint=", ".join(POST_TRANSFORMS))
    return name


def transformed(node: OnnxNode, scores: Expr, name: str | None = None) -> Expr:
    """The scores of two or more classes or targets, through the node's post_transform."""
    match name or transform_of(node):
        case "LOGISTIC":
            return call("sigmoid", scores)
        case "SOFTMAX":
            return call("nn.softmax", scores, axis=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(scores)
    return scores


def _softmax_zero(scores: Expr) -> Expr:
    """Softmax of the scores that are not 0; the others stay 0."""
    most = call("max", scores, axis=(1,), keepdims=True)
    counted = call("greater", call("abs", scores), const(np.float32(_NOTHING)))
    powers = call("exp", scores - most)
    total = call("sum", call("where", counted, powers, const(np.float32(0))), axis=(1,), keepdims=True)
    return call("where", counted, powers, scores * call("exp", const(np.float32(0)) - most)) / total


def _probit(scores: Expr) -> Expr:
    """The quantile of a normal distribution, by Winitzki's approximation of the inverse of erf."""
    x = scores * 2.0 - 1.0
    log = call("log", (const(np.float32(1)) - x) * (x + 1.0))
    v = log * 0.5 + 2.0 / (3.14159 * 0.147)
    root = call("sqrt", call("sqrt", v * v - log * (1 / 0.147)) - v)
    sign = call("where", call("less", x, const(np.float32(0))), const(np.float32(-1)), const(np.float32(1)))
    return sign * root * math.sqrt(2)


def labels_of(node: OnnxNode, ints: str) -> list[int]:
    """The labels of the classes: the node's integers, or the numbers of its strings."""
    texts = node.attributes.get("classlabels_strings") or ()
    numbers = node.attributes.get(ints) or ()
    if texts and numbers:
        raise ModelError(f"{node.op_type} node {node.name!r} has labels of two types")
    if texts:
        message = ", ".join(f"{k} {text!r}" for k, text in enumerate(texts[:8])) + ", …" * (len(texts) > 8)
        where = f"output {node.outputs[0]!r} of the {node.op_type} gives the numbers of the classes: {message}"
        warnings.warn(f"{STRING_LABELS}: {where}", stacklevel=2)
    return [int(k) for k in numbers] or list(range(len(texts)))


def labelled(index: Expr, labels: list[int]) -> Expr:
    """The labels of the classes of these numbers."""
    if labels == list(range(len(labels))):
        return call("cast", index, dtype="int64")
    return call("take", const(np.array(labels, np.int64)), index, axis=0)


def winner(scores: Expr) -> Expr:
    """The number of the highest score of each row, the first of equal ones."""
    return call("argmax", scores, axis=(1,), keepdims=False)


def chosen(condition: Expr, labels: list[int]) -> Expr:
    """The second of two labels where the condition, (rows, 1), holds."""
    rows = type_of(condition).static[0]
    positive, negative = (const(np.array(v, np.int64)) for v in (labels[1], labels[0]))
    return reshape_to(call("where", condition, positive, negative), (rows,))


def above(x: Expr, limit: float) -> Expr:
    """x > limit."""
    return call("greater", x, const(np.array(limit, type_of(x).dtype.numpy)))


def pair(first: Expr, second: Expr) -> Expr:
    """Two columns as a table."""
    return call("concatenate", (first, second), axis=1)
