"""Recipes for classical machine learning (ai.onnx.ml): trees, linear models, support vectors, features.

In: a Draw. Out: the node added to its graph, or Unfit. Invariant: as in onnx_recipes.py; thresholds are among values
that features take, so that questions of equality are met.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_kit import Draw, Value
from onnx_recipes import recipe

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _rows(d: Draw) -> Value:
    """Some rows of few features, some of whose values are met often."""
    shape = (d.integer(1, 12), d.integer(1, 5))
    array = d.array("float32", shape, special=0)
    return d.give(np.where(d.numpy.random(shape) < 0.5, np.round(array), array).astype("float32"))


def _floats(d: Draw, count: int, low: float = -2, high: float = 2) -> list[float]:
    return [float(v) for v in d.numpy.uniform(low, high, count).astype("float32")]


def _grown(d: Draw, features: int, depth: int, modes: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Nodes of a tree: mode, feature, value, children where it holds and elsewhere, whether NaN counts as yes."""
    nodes: list[tuple[Any, ...]] = []

    def grow(left: int) -> int:
        place = len(nodes)
        nodes.append(("LEAF", 0, 0.0, 0, 0, 0))
        if left and d.chance(0.85):
            yes, no = grow(left - 1), grow(left - 1)
            value = float(d.one((*range(-3, 4), d.random.uniform(-2, 2))))
            nodes[place] = (d.one(modes), d.integer(0, features - 1), value, yes, no, d.integer(0, 1))
        return place

    grow(depth)
    return nodes


def forest(d: Draw, features: int, targets: int, prefix: str) -> dict[str, Any]:
    """The attributes of some trees; every leaf speaks of every target."""
    modes = MODES if d.chance(0.3) else (d.one(MODES),)
    names = ("modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    made: dict[str, list[Any]] = {f"nodes_{n}": [] for n in ("treeids", "nodeids", *names)}
    made |= {f"{prefix}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(d.integer(1, 9)):
        for number, node in enumerate(_grown(d, features, d.integer(0, 4), modes)):
            for name, value in zip(("treeids", "nodeids", *names), (tree, number, *node), strict=True):
                made[f"nodes_{name}"].append(value)
            for target in range(targets) if node[0] == "LEAF" else ():
                for name, value in zip(("treeids", "nodeids", "ids"), (tree, number, target), strict=True):
                    made[f"{prefix}_{name}"].append(value)
        spoken = len(made[f"{prefix}_ids"]) - len(made[f"{prefix}_weights"])
        made[f"{prefix}_weights"] += _floats(d, spoken)
    return made


@recipe("TreeEnsembleRegressor", domain=ML)
def tree_regressor(d: Draw) -> None:
    x, targets = _rows(d), d.integer(1, 3)
    attributes = forest(d, x.shape[1], targets, "target")
    attributes["aggregate_function"] = d.one(("SUM", "AVERAGE", "MIN", "MAX"))
    if d.chance(0.5):
        attributes["base_values"] = _floats(d, targets)
    post = d.one(("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"))
    d.emit("TreeEnsembleRegressor", [x], domain=ML, n_targets=targets, post_transform=post, **attributes)


@recipe("TreeEnsembleClassifier", domain=ML)
def tree_classifier(d: Draw) -> None:
    x, classes = _rows(d), d.integer(2, 4)
    attributes = forest(d, x.shape[1], 1 if classes == 2 else classes, "class")
    if classes > 2 and d.chance(0.5):
        attributes["base_values"] = _floats(d, classes)
    post = d.one(("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"))
    labels = [7 * k + 3 for k in range(classes)]
    attributes |= {"post_transform": post, "classlabels_int64s": labels}
    d.emit("TreeEnsembleClassifier", [x], 2, domain=ML, **attributes)


@recipe("LinearRegressor", domain=ML)
def linear_regressor(d: Draw) -> None:
    x, targets = _rows(d), d.integer(1, 3)
    more = {"intercepts": _floats(d, targets)} if d.chance(0.6) else {}
    more |= {"coefficients": _floats(d, targets * x.shape[1])}
    d.emit("LinearRegressor", [x], domain=ML, targets=targets, **more)


@recipe("LinearClassifier", domain=ML)
def linear_classifier(d: Draw) -> None:
    x, targets = _rows(d), d.integer(1, 4)
    more = {"intercepts": _floats(d, targets), "coefficients": _floats(d, targets * x.shape[1])}
    labels, post = list(range(1, max(2, targets) + 1)), d.one(("NONE", "LOGISTIC", "SOFTMAX"))
    post = "NONE" if targets == 1 and post == "SOFTMAX" else post
    d.emit("LinearClassifier", [x], 2, domain=ML, classlabels_ints=labels, post_transform=post, **more)


def _machine(d: Draw, features: int, count: int) -> dict[str, Any]:
    kind = d.one(("LINEAR", "RBF", "POLY", "SIGMOID"))
    params = [0.3, 0.5, float(d.one((2, 3)))]
    return {"kernel_type": kind, "kernel_params": params, "support_vectors": _floats(d, count * features)}


@recipe("SVMRegressor", domain=ML)
def svm_regressor(d: Draw) -> None:
    x, count = _rows(d), d.integer(1, 6)
    more = _machine(d, x.shape[1], count) | {"coefficients": _floats(d, count), "rho": _floats(d, 1)}
    d.emit("SVMRegressor", [x], domain=ML, n_supports=count, **more)


@recipe("SVMClassifier", domain=ML)
def svm_classifier(d: Draw) -> None:
    x, classes = _rows(d), d.integer(2, 4)
    sizes = [d.integer(1, 3) for _ in range(classes)]
    pairs = classes * (classes - 1) // 2
    more = _machine(d, x.shape[1], sum(sizes))
    more |= {"coefficients": _floats(d, (classes - 1) * sum(sizes)), "rho": _floats(d, pairs)}
    if d.chance(0.5):
        more |= {"prob_a": _floats(d, pairs, -2, -0.5), "prob_b": _floats(d, pairs, -0.5, 0.5)}
    labels = list(range(3, 3 + classes))
    d.emit("SVMClassifier", [x], 2, domain=ML, vectors_per_class=sizes, classlabels_ints=labels, **more)


@recipe("Normalizer", domain=ML)
def normalizer(d: Draw) -> None:
    d.emit("Normalizer", [_rows(d)], domain=ML, norm=d.one(("MAX", "L1", "L2")))


@recipe("Imputer", domain=ML)
def imputer(d: Draw) -> None:
    x = _rows(d)
    if d.chance(0.5):
        filled = {"imputed_value_floats": _floats(d, d.one((1, x.shape[1]))), "replaced_value_float": 1.0}
        d.emit("Imputer", [x], domain=ML, **filled)
        return
    whole = d.give(d.array("int64", x.shape))
    d.emit("Imputer", [whole], domain=ML, imputed_value_int64s=[5], replaced_value_int64=d.integer(-2, 2))


@recipe("LabelEncoder", domain=ML)
def label_encoder(d: Draw) -> None:
    x = d.give(d.array("int64", d.shape(1, 2, 0)))
    keys = sorted({d.integer(-4, 4) for _ in range(5)})
    if d.chance(0.5):
        more: dict[str, Any] = {"values_floats": _floats(d, len(keys)), "default_float": 0.5}
    else:
        more = {"values_int64s": [d.integer(0, 99) for _ in keys], "default_int64": -7}
    d.emit("LabelEncoder", [x], domain=ML, keys_int64s=keys, **more)


@recipe("OneHotEncoder", domain=ML)
def one_hot_encoder(d: Draw) -> None:
    x = d.give(d.array(d.one(("int64", "float32")), d.shape(1, 2, 0), special=0))
    d.emit("OneHotEncoder", [x], domain=ML, cats_int64s=sorted({d.integer(-3, 3) for _ in range(4)}), zeros=1)


@recipe("FeatureVectorizer", domain=ML)
def feature_vectorizer(d: Draw) -> None:
    first = _rows(d)
    second = d.give(d.array("float32", (first.shape[0], d.integer(1, 3))))
    sizes = [first.shape[1], second.shape[1]]
    d.emit("FeatureVectorizer", [first, second], domain=ML, inputdimensions=sizes)
