"""Ensembles of trees give what ONNX Runtime gives: every question, aggregate, transformation, and missing values."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import armillary
from armillary.errors import ArmillaryError, ModelError, UnsupportedError

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
POST = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
FEATURES = 5
Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]


def forest(
    seed: int, prefix: str, targets: list[int], modes: tuple[str, ...] = MODES[:1], trees: int = 7, sparse: bool = False
) -> Attributes:
    """Attributes of random trees, whose leaves speak of these targets (one of them each, if `sparse`)."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, list[Any]] = {
        key: [] for key in ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    }
    said: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        made: list[Any] = []

        def grow(depth: int, made: list[Any] = made) -> int:
            place = len(made)
            made.append(("LEAF", 0, 0.0, 0, 0))
            if depth and rng.random() < 0.85:
                yes, no = grow(depth - 1), grow(depth - 1)
                value = float(np.round(rng.standard_normal(), 1))
                made[place] = (modes[rng.integers(len(modes))], int(rng.integers(FEATURES)), value, yes, no)
            return place

        grow(4)
        for number, node in enumerate(made):
            for key, value in zip(nodes, (tree, number, *node), strict=True):
                nodes[key].append(value)
            spoken = [int(rng.choice(targets))] if sparse else targets
            for target in spoken if node[0] == "LEAF" else ():
                for key, value in zip(said, (tree, number, target, float(rng.standard_normal())), strict=True):
                    said[key].append(value)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{prefix}_{k}": v for k, v in said.items()}


def model(op: str, attributes: Attributes, dtype: int = TensorProto.FLOAT, version: int = 3) -> bytes:
    outputs = ["label", "y"] if op == "TreeEnsembleClassifier" else ["y"]
    node = helper.make_node(op, ["x"], outputs, domain=ML, **attributes)
    kinds = {"label": TensorProto.INT64, "y": dtype if op == "TreeEnsemble" else TensorProto.FLOAT}
    given = [helper.make_tensor_value_info("x", dtype, ["n", FEATURES])]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info(o, kinds[o], None) for o in outputs])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def rows(count: int = 21, missing: bool = False, dtype: str = "float32") -> Array:
    """Rows whose values are often equal to a threshold."""
    rng = np.random.default_rng(5)
    x = np.round(rng.standard_normal((count, FEATURES)), 1)
    x[::3] = rng.standard_normal(x[::3].shape)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x.astype(dtype)


def assert_agrees(data: bytes, x: Array) -> None:
    want = onnxruntime.InferenceSession(data).run(None, {"x": x})
    got = armillary.InferenceSession(data).run(None, {"x": x})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_each_question_means_the_same(mode: str) -> None:
    attributes = forest(3, "target", [0], (mode,))
    assert_agrees(model("TreeEnsembleRegressor", attributes | {"n_targets": 1}), rows(missing=True))


def test_missing_values_go_where_the_node_says() -> None:
    attributes = forest(4, "target", [0, 1], MODES) | {"n_targets": 2}
    tracks = np.random.default_rng(0).integers(0, 2, len(attributes["nodes_modes"])).tolist()
    attributes["nodes_missing_value_tracks_true"] = tracks
    assert_agrees(model("TreeEnsembleRegressor", attributes), rows(missing=True))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_aggregates_of_targets_some_leaves_do_not_speak_of(aggregate: str) -> None:
    attributes = {"n_targets": 3, "aggregate_function": aggregate}
    assert_agrees(model("TreeEnsembleRegressor", attributes | forest(2, "target", [0, 1, 2], sparse=True)), rows())
    attributes["base_values"] = [0.5, -1.0, 2.0]
    assert_agrees(model("TreeEnsembleRegressor", attributes | forest(2, "target", [0, 1, 2])), rows())


@pytest.mark.parametrize("count", [1, 2, 3, 300])
def test_any_number_of_rows(count: int) -> None:
    attributes = forest(6, "target", [0], trees=12) | {"n_targets": 1}
    assert_agrees(model("TreeEnsembleRegressor", attributes), rows(count))


def test_doubles_are_compared_as_doubles() -> None:
    attributes = forest(8, "target", [0]) | {"n_targets": 1}
    for key, name in (("nodes_values", "nodes_values_as_tensor"), ("target_weights", "target_weights_as_tensor")):
        held = np.asarray(attributes.pop(key), np.float64)
        attributes[name] = helper.make_tensor(name, TensorProto.DOUBLE, held.shape, held)
    x = rows(dtype="float64")
    x[0] += 1e-12
    assert_agrees(model("TreeEnsembleRegressor", attributes, TensorProto.DOUBLE), x)


@pytest.mark.parametrize("post", POST)
def test_three_classes(post: str) -> None:
    attributes = {"post_transform": post, "classlabels_int64s": [4, 2, 9]}
    assert_agrees(model("TreeEnsembleClassifier", attributes | forest(7, "class", [0, 1, 2])), rows())
    sparse = forest(1, "class", [0, 1, 2], trees=2, sparse=True)  # classes without a score never win
    assert_agrees(model("TreeEnsembleClassifier", attributes | sparse), rows())


@pytest.mark.parametrize("spoken", [0, 1])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("post", POST[:3])
def test_two_classes_of_which_leaves_speak_of_one(post: str, positive: bool, spoken: int) -> None:
    attributes = forest(9, "class", [spoken]) | {"post_transform": post, "classlabels_int64s": [3, 13]}
    if positive:
        attributes["class_weights"] = [abs(w) / 7 for w in attributes["class_weights"]]
    assert_agrees(model("TreeEnsembleClassifier", attributes), rows())
    if not spoken:
        assert_agrees(model("TreeEnsembleClassifier", attributes | {"base_values": [0.25]}), rows())


def test_two_classes_of_which_leaves_speak_of_both() -> None:
    attributes = forest(8, "class", [0, 1]) | {"classlabels_int64s": [0, 1]}
    assert_agrees(model("TreeEnsembleClassifier", attributes), rows())


def linked(modes: list[int], splits: list[float], members: list[float] | None = None) -> Attributes:
    """TreeEnsemble: a chain of questions with a leaf where each holds; of several, the last is another tree."""
    count, tensor = len(modes), helper.make_tensor
    leaves = count + (1 if count == 1 else 2)
    made = {
        "nodes_modes": tensor("m", TensorProto.UINT8, [count], modes),
        "nodes_splits": tensor("s", TensorProto.FLOAT, [count], splits),
        "leaf_weights": tensor("w", TensorProto.FLOAT, [leaves], [float(2 ** (k % 9)) for k in range(leaves)]),
        "leaf_targetids": [k % 2 for k in range(leaves)],
        "nodes_featureids": [k % FEATURES for k in range(count)],
        "nodes_truenodeids": list(range(count)),
        "nodes_trueleafs": [1] * count,
        "nodes_falsenodeids": [1] if count == 1 else [*range(1, count - 1), count, count + 1],
        "nodes_falseleafs": [1] if count == 1 else [*[0] * (count - 2), 1, 1],
        "tree_roots": sorted({0, count - 1}),
        "n_targets": 2,
    }
    if members is not None:
        made["membership_values"] = tensor("v", TensorProto.FLOAT, [len(members)], members)
    return made


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_the_fifth_version_asks_for_membership(aggregate: int) -> None:
    nan = float("nan")
    members = [1.0, -2.0, 3.0, 0.0, nan, -1.0, nan]
    attributes = linked([0, 6, 1, 4, 6, 3], [-1.0, 0.0, 2.0, 1.0, 0.0, 1.0], members)
    data = model("TreeEnsemble", attributes | {"aggregate_function": aggregate}, version=5)
    assert_agrees(data, np.round(2 * rows(60)))  # ONNX Runtime knows whole members only


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_featureids": [9]}, "asks for feature 9 of 5"),
        ({"nodes_truenodeids": [0], "nodes_trueleafs": [0]}, "has a circle"),
        ({"nodes_truenodeids": [7]}, "out of range"),
        ({"leaf_targetids": [0, 2]}, "speaks of target 2 of 2"),
        ({"tree_roots": [3]}, "do not fit 1 nodes"),
    ],
)
def test_damaged_trees_are_refused(change: Attributes, message: str) -> None:
    data = model("TreeEnsemble", linked([0], [0.0]) | change, version=5)
    with pytest.raises(ModelError, match=message):
        armillary.InferenceSession(data).run(None, {"x": rows()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_modes": ["BRANCH_LESS", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH_LESS'"),
        ({"nodes_truenodeids": [5, 0, 0]}, r"there is no node \(0, 5\)"),
        ({"target_ids": [0]}, "several lengths"),
        ({"nodes_values": [0.0]}, "3 modes, 1 values"),
        ({"post_transform": "PROBITS", "n_targets": 2}, "post_transform 'PROBITS'"),
    ],
)
def test_damaged_lists_are_refused(change: Attributes, message: str) -> None:
    lists: Attributes = {f"nodes_{k}": [0, 0, 0] for k in ("treeids", "featureids", "truenodeids", "falsenodeids")}
    lists |= {"nodes_nodeids": [0, 1, 2], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0] * 3}
    lists |= {"nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "n_targets": 1}
    lists |= {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
    data = model("TreeEnsembleRegressor", lists | change)
    with pytest.raises(ArmillaryError, match=message):
        armillary.InferenceSession(data).run(None, {"x": rows()})


def test_what_two_classes_with_two_bases_mean_is_not_guessed() -> None:
    attributes = forest(8, "class", [0, 1]) | {"classlabels_int64s": [0, 1], "base_values": [0.5, 0.5]}
    with pytest.raises(UnsupportedError, match="both of two classes with bases"):
        armillary.InferenceSession(model("TreeEnsembleClassifier", attributes)).run(None, {"x": rows()})


def test_a_deep_tree_needs_no_deep_stack() -> None:
    count = 3 * sys.getrecursionlimit()
    attributes = linked([0] * count, np.linspace(2, -2, count).tolist())
    x = rows(4)
    (got,) = armillary.InferenceSession(model("TreeEnsemble", attributes, version=5)).run(None, {"x": x})
    (want,) = onnxruntime.InferenceSession(model("TreeEnsemble", attributes, version=5)).run(None, {"x": x})
    np.testing.assert_allclose(got, want)
