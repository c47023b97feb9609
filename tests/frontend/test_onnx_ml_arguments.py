"""Impossible attributes of ai.onnx.ml and TfIdfVectorizer are refused, as by ONNX Runtime; they gave made-up values."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from armillary import InferenceSession
from armillary.errors import ArmillaryError, BudgetError, ModelError

ML = "ai.onnx.ml"
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
    "n_targets": 1,
}
SVC: dict[str, Any] = {
    "coefficients": [1.0, 1.0],
    "support_vectors": [1.0, 2.0, 3.0] * 2,
    "rho": [0.0],
    "kernel_type": "LINEAR",
    "kernel_params": [1.0, 1.0, 1.0],
    "classlabels_ints": [0, 1],
}
GRAMS: dict[str, Any] = {
    "min_gram_length": 1,
    "max_gram_length": 1,
    "max_skip_count": 0,
    "mode": "TF",
    "ngram_counts": [0],
    "ngram_indexes": [0],
    "pool_int64s": [1],
}


def session(op: str, attributes: dict[str, Any], outputs: tuple[str, ...] = ("y",)) -> InferenceSession:
    is_text = op == "TfIdfVectorizer"
    kind = TensorProto.INT64 if is_text else TensorProto.FLOAT
    node = helper.make_node(op, ["x"], list(outputs), domain="" if is_text else ML, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)])
    model.ir_version = 8
    return InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("TreeEnsembleRegressor", TREE | {"nodes_truenodeids": [0, 0, 0]}, "a node is its own child"),
        ("TreeEnsembleRegressor", TREE | {"base_values": [1.0, 2.0, 3.0]}, "3 base values for 1 targets"),
        ("TreeEnsembleRegressor", TREE | {"post_transform": "NOPE"}, "post_transform 'NOPE'"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "post_transform": "NOPE"}, "post_transform 'NOPE'"),
        (
            "SVMRegressor",
            {"coefficients": [1.0, 2.0, 3.0], "rho": [0.0], "kernel_type": "LINEAR", "post_transform": "NOPE"},
            "post_transform 'NOPE'",
        ),
        ("SVMClassifier", SVC | {"vectors_per_class": [5, -3]}, r"vectors_per_class is \[5, -3\]"),
        (
            "SVMClassifier",
            SVC | {"vectors_per_class": [1, 1], "post_transform": "NOPE"},
            "post_transform 'NOPE'",
        ),
        ("Scaler", {}, "0 numbers in offset for 3 features"),
        ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [1.0, 2.0]}, "2 numbers in scale for 3 features"),
        ("TfIdfVectorizer", GRAMS | {"min_gram_length": 2}, "n-grams of 2 to 1 items"),
        ("TfIdfVectorizer", GRAMS | {"max_skip_count": -1}, "with -1 skipped"),
        ("TfIdfVectorizer", GRAMS | {"ngram_indexes": [-1]}, "columns from -1"),
    ],
)
def test_impossible_attributes_are_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        session(op, attributes, ("l", "y") if op == "SVMClassifier" else ("y",))


def test_columns_of_a_small_file_have_a_budget() -> None:
    """One n-gram in column 2^33 asked for a list of 64 GiB; in column 10^7 for as many zeros."""
    for column in (2**33, 10**7):
        with pytest.raises(BudgetError, match=r"budget\.expanded_nodes"):
            session("TfIdfVectorizer", GRAMS | {"ngram_indexes": [column]})
    with pytest.raises(ArmillaryError):
        session("TfIdfVectorizer", GRAMS | {"ngram_counts": [0, 5, 2]})
