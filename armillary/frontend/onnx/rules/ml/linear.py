"""Linear models of ai.onnx.ml: LinearRegressor, LinearClassifier.

In: nodes whose attributes are a matrix of coefficients, (targets, features), and intercepts. Out: one product, the
transformation of scores, labels. Invariant: a classifier of one row of coefficients tells two classes apart.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules.ml.scores import (
    ML,
    above,
    chosen,
    labelled,
    labels_of,
    pair,
    rows_of,
    transform_of,
    transformed,
    winner,
)
from armillary.ops.nn._windows import call, type_of
from armillary.relay.expr import Expr, const


def weighted(node: OnnxNode, x: Expr, coefficients: Array, targets: int) -> Expr:
    """x times the transposed matrix, (rows, targets)."""
    features = type_of(x).static[1]
    if coefficients.size != targets * features:
        raise ModelError(
            f"{node.op_type} node {node.name!r}: {coefficients.size} coefficients, wanted {targets}x{features}"
        )
    return call("nn.dense", x, const(np.ascontiguousarray(coefficients.reshape(targets, features))))


def floats_of(node: OnnxNode, name: str) -> Array:
    """An attribute as float32."""
    return np.asarray(node.floats(name, ()), np.float32)


@from_onnx("LinearRegressor", domain=ML)
def linear_regressor(node: OnnxNode) -> Expr:
    targets, intercepts = int(node.int("targets", 1)), floats_of(node, "intercepts")
    scores = weighted(node, rows_of(node), floats_of(node, "coefficients"), targets)
    if len(intercepts) == targets:
        scores = scores + const(intercepts)
    if targets == 1 and transform_of(node) in ("SOFTMAX", "SOFTMAX_ZERO"):
        return transformed(node, scores, "NONE")
    return transformed(node, scores)


@from_onnx("LinearClassifier", domain=ML)
def linear_classifier(node: OnnxNode) -> list[Expr]:
    labels, coefficients = labels_of(node, "classlabels_ints"), floats_of(node, "coefficients")
    node.int("multi_class", 0)  # tells how it was trained
    x, intercepts = rows_of(node), floats_of(node, "intercepts")
    targets = len(intercepts) or coefficients.size // type_of(x).static[1]
    scores = weighted(node, x, coefficients, targets)
    if len(intercepts):
        scores = scores + const(intercepts)
    if targets > 1:
        if len(labels) != targets:
            raise ModelError(f"{node.op_type} node {node.name!r}: {targets} classes, {len(labels)} labels")
        return [labelled(winner(scores), labels), transformed(node, scores)]
    if len(labels) != 2:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: one row of coefficients for {len(labels)} labels")
    transform, none = transform_of(node), call("zeros_like", scores)
    if transform == "LOGISTIC":
        table = pair(call("sigmoid", none - scores), call("sigmoid", scores))
    elif transform == "PROBIT":
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: PROBIT of one score for two classes")
    else:
        table = pair(call("ones_like", scores) - scores, scores)
    return [chosen(above(scores, 0.0), labels), table]
