"""Support vector machines of ai.onnx.ml: SVMRegressor, SVMClassifier.

In: nodes whose attributes are support vectors and their coefficients, class by class. Out: kernels of rows and vectors,
one product for all pairs of classes, votes, probabilities. Invariant: the score of classes i < j is positive for i.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import ModelError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules.ml.linear import floats_of, weighted
from armillary.frontend.onnx.rules.ml.scores import (
    ML,
    above,
    labelled,
    labels_of,
    pair,
    rows_of,
    transform_of,
    transformed,
    winner,
)
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, const

_LEAST = 1e-7  # a pair's probability is kept from 0 and 1


def _kernel(node: OnnxNode, x: Expr, vectors: Array, is_linear: bool) -> Expr:
    """(rows, vectors): the kernel function of every row with every vector."""
    kind, params = str(node.string("kernel_type", "LINEAR")), [*floats_of(node, "kernel_params"), 0, 0, 0]
    gamma, offset, degree = (float(p) for p in params[:3])
    if kind == "LINEAR" or is_linear:
        return weighted(node, x, vectors, len(vectors))
    if kind == "RBF":
        rows, features = type_of(x).static
        if vectors.shape[1] != features:
            raise ModelError(
                f"{node.op_type} node {node.name!r}: vectors of {vectors.shape[1]} features, rows of {features}"
            )
        apart = reshape_to(x, (rows, 1, features)) - const(vectors)
        return call("exp", call("sum", apart * apart, axis=(2,), keepdims=False) * -gamma)
    if kind not in ("POLY", "SIGMOID"):
        raise ModelError(f"{node.op_type} node {node.name!r}: kernel_type {kind!r}", hint="LINEAR, POLY, RBF, SIGMOID")
    inner = weighted(node, x, vectors, len(vectors)) * gamma + offset
    return call("tanh", inner) if kind == "SIGMOID" else _power(inner, degree)


def _power(x: Expr, degree: float) -> Expr:
    if degree in (2, 3):
        return x * x if degree == 2 else x * x * x
    return call("power", x, const(np.float32(degree)))


def _vectors(node: OnnxNode, count: int) -> Array:
    flat = floats_of(node, "support_vectors")
    if count < 1 or flat.size % count:
        raise ModelError(f"{node.op_type} node {node.name!r}: {flat.size} numbers of {count} support vectors")
    return flat.reshape(count, -1)


@from_onnx("SVMRegressor", domain=ML)
def svm_regressor(node: OnnxNode) -> Expr:
    x, count = rows_of(node), int(node.int("n_supports", 0))
    coefficients, rho = floats_of(node, "coefficients"), floats_of(node, "rho")
    transform_of(node)  # which ONNX Runtime does not apply
    if count > 0:
        kernel = _kernel(node, x, _vectors(node, count), False)
        scores = weighted(node, kernel, coefficients, 1)
    else:
        scores = _kernel(node, x, coefficients.reshape(1, -1), True)
    if not rho.size:
        raise ModelError(f"{node.op_type} node {node.name!r} has no rho")
    scores = scores + const(rho[:1])
    if not node.int("one_class", 0):
        return scores
    return call("where", above(scores, 0.0), const(np.float32(1)), const(np.float32(-1)))


@from_onnx("SVMClassifier", domain=ML)
def svm_classifier(node: OnnxNode) -> list[Expr]:
    x, labels = rows_of(node), labels_of(node, "classlabels_ints")
    sizes = [int(n) for n in node.ints("vectors_per_class", ())]
    coefficients, rho, slopes = (floats_of(node, name) for name in ("coefficients", "rho", "prob_a"))
    offsets, classes = floats_of(node, "prob_b"), len(labels)
    if min(sizes, default=0) < 0:
        raise ModelError(f"{node.op_type} node {node.name!r}: vectors_per_class is {sizes}, wanted counts")
    if classes < 2 or not coefficients.size or not rho.size:
        raise ModelError(f"{node.op_type} node {node.name!r}: {classes} classes, {coefficients.size} coefficients")
    if not sum(sizes):
        scores = _kernel(node, x, coefficients.reshape(classes, -1), True) + const(rho[:1])
        return [_linear_label(scores, coefficients, labels), transformed(node, scores)]
    weights, pairs = _pair_weights(node, coefficients, sizes, classes), classes * (classes - 1) // 2
    if len(rho) < pairs or len(slopes) != len(offsets) or 0 < len(slopes) < pairs:
        raise ModelError(f"{node.op_type} node {node.name!r}: rho, prob_a or prob_b lacks some of {pairs} pairs")
    kernel = _kernel(node, x, _vectors(node, sum(sizes)), False)
    scores = call("nn.dense", kernel, const(weights)) + const(rho[:pairs])
    label = labelled(winner(_votes(scores, classes)), labels)
    if len(slopes):
        chance = call("sigmoid", const(np.float32(0)) - (scores * const(slopes[:pairs]) + const(offsets[:pairs])))
        chance = call("clip", chance, a_min=_LEAST, a_max=1 - _LEAST)
        return [label, transformed(node, call("ml.pair_probabilities", chance, classes=classes))]
    if classes > 2:
        return [label, transformed(node, scores)]
    return [label, _two_scores(node, scores)]


def _two_scores(node: OnnxNode, score: Expr) -> Expr:
    """Both scores of two classes from the one of their pair."""
    transform, none = transform_of(node), call("zeros_like", score)
    if transform == "NONE":
        return pair(none - score, score)
    if transform == "LOGISTIC":
        return pair(call("sigmoid", none - score), call("sigmoid", score))
    return pair(call("ones_like", score) - score, score)


def _linear_label(scores: Expr, coefficients: Array, labels: list[int]) -> Expr:
    best = winner(scores)
    if len(labels) == 2:
        most = call("max", scores, axis=(1,), keepdims=False)
        is_positive = bool((coefficients >= 0).all())
        limit = call("greater_equal", most, const(np.float32(0.5))) if is_positive else above(most, 0.0)
        best = call("where", limit, const(np.int32(1)), call("cast", best, dtype="int32"))
    return labelled(best, labels)


def _pair_weights(node: OnnxNode, coefficients: Array, sizes: list[int], classes: int) -> Array:
    """(pairs, vectors): what each vector says of each pair, from a row for each other class."""
    count = sum(sizes)
    if len(sizes) != classes or coefficients.size < (classes - 1) * count:
        raise ModelError(f"{node.op_type} node {node.name!r}: {coefficients.size} coefficients of {count} vectors")
    table = coefficients[: (classes - 1) * count].reshape(classes - 1, count)
    ends = np.cumsum(sizes)
    parts = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
    weights = []
    for i in range(classes):
        for j in range(i + 1, classes):
            row = np.zeros(count, np.float32)
            row[parts[i]], row[parts[j]] = table[j - 1, parts[i]], table[i, parts[j]]
            weights.append(row)
    return np.stack(weights)


def _votes(scores: Expr, classes: int) -> Expr:
    """(rows, classes): how many pairs each class wins."""
    first, second = np.triu_indices(classes, 1)
    wins = [np.eye(classes, dtype=np.float32)[side] for side in (first, second)]
    won = call("cast", above(scores, 0.0), dtype="float32")
    gain = np.ascontiguousarray((wins[0] - wins[1]).T)
    return call("nn.dense", won, const(gain)) + const(wins[1].sum(0))
