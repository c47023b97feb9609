"""Constants as large as the data are results of operators, and mean what literals mean."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from armillary.driver.build import build
from armillary.errors import BudgetError
from armillary.frontend import from_onnx
from armillary.ops import _iota
from armillary.runtime.device import cpu
from armillary.transform import PassContext

F, I32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
R = np.random.default_rng(5)
ONES = {"w": np.ones((1, 4, 2)), "r": np.ones((1, 4, 1))}
GIVEN: dict[str, tuple[NodeProto, dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "Det": (node("Det", ["x"], ["y"]), {"x": R.standard_normal((5, 3, 3))}, {}),
    "Det of nothing": (node("Det", ["x"], ["y"]), {"x": np.zeros((5, 0, 0))}, {}),
    "Unique": (node("Unique", ["x"], ["y", "a", "b", "c"]), {"x": np.array([3.0, 1, 3, 2, 1])}, {}),
    "Unique of one": (node("Unique", ["x"], ["y", "a", "b", "c"]), {"x": np.array([3.0])}, {}),
    "Compress": (
        node("Compress", ["x", "c"], ["y"], axis=0),
        {"x": R.random(4), "c": np.array([1, 0, 1, 1], bool)},
        {},
    ),
    "NonZero": (node("NonZero", ["x"], ["y"]), {"x": np.array([[1.0, 0], [0, 2]])}, {}),
    "TensorScatter": (
        node("TensorScatter", ["x", "u", "p"], ["y"], axis=1),
        {"x": R.random((2, 5, 2)), "u": R.random((2, 2, 2)), "p": np.array([1, 3])},
        {},
    ),
    "LSTM": (
        node("LSTM", ["x", "w", "r", "", "n"], ["y", "h"], hidden_size=1),
        {"x": R.random((3, 2, 2)), "n": np.array([2, 3], np.int32)},
        ONES,
    ),
    "NonMaxSuppression": (
        node("NonMaxSuppression", ["x", "s", "m", "o"], ["y"]),
        {"x": np.sort(R.random((1, 6, 4)), -1), "s": R.random((1, 2, 6))},
        {"m": np.array([3]), "o": np.array([0.5], np.float32)},
    ),
    "TfIdfVectorizer": (
        node(
            "TfIdfVectorizer",
            ["x"],
            ["y"],
            max_gram_length=1,
            min_gram_length=1,
            max_skip_count=0,
            mode="TF",
            ngram_counts=[0],
            ngram_indexes=[0, 2],
            pool_int64s=[2, 7],
        ),
        {"x": np.array([[2, 7, 2], [1, 2, 7]])},
        {},
    ),
}


def made(name: str) -> ModelProto:
    one, inputs, weights = GIVEN[name]
    types = {np.dtype("float64"): F, np.dtype("int64"): I64, np.dtype("int32"): I32, np.dtype("bool"): BOOL}
    declared = [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in inputs.items()]
    results = [helper.make_tensor_value_info(o, F, None) for o in one.output if o]
    kept = [
        numpy_helper.from_array(v.astype(np.float32) if v.dtype == np.float64 else v, k) for k, v in weights.items()
    ]
    graph = helper.make_graph([one], "g", declared, results, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def outputs(name: str, level: int) -> list[np.ndarray]:
    module, params = from_onnx(made(name))
    with PassContext(opt_level=level):
        network = build(module, "llvm", params=params)["default"](cpu())
    for key, value in GIVEN[name][1].items():
        network.set_input(key, value.astype(np.float32) if value.dtype == np.float64 else value)
    network.run()
    return [network.get_output(k).numpy() for k in range(network.get_num_outputs())]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", GIVEN)
def test_operators_instead_of_literals(name: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    literal = outputs(name, level)
    monkeypatch.setattr(_iota, "SMALL", -1)
    for one, other in zip(literal, outputs(name, level), strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_that_make_little_say_nothing_of_their_file() -> None:
    function = from_onnx(made("Unique"))[0]["main"]
    assert function.get_attr("file_bytes") is None and function.get_attr("file_nodes") is None


def test_what_rules_make_is_counted_over_all_nodes() -> None:
    nodes = [node("Range", ["a", "b", "c"], [f"r{k}"]) for k in range(3)]
    total = node("Concat", [f"r{k}" for k in range(3)], ["y"], axis=0)
    weights = [numpy_helper.from_array(np.array(v), k) for k, v in (("a", 0), ("b", 100_000), ("c", 1))]
    graph = helper.make_graph([*nodes, total], "g", [], [helper.make_tensor_value_info("y", I64, None)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    from_onnx(made)
    with (
        PassContext(config={"budget.folded_bytes": 2_000_000}),
        pytest.raises(BudgetError, match=r"2,400,\d+ bytes of constants .*budget\.folded_bytes") as caught,
    ):
        from_onnx(made)
    assert "r2" in str(caught.value)
