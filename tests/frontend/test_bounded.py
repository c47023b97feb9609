"""Results whose size is a value, as outputs, compared with ONNX Runtime. What goes on from them: test_data_sizes.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from armillary.backend import prepare
from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

node, value, F, I64, B = (
    helper.make_node,
    helper.make_tensor_value_info,
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
)
Array = np.ndarray[Any, Any]


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    held = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(made: Any, *cases: dict[str, Array]) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    runners = [prepare(made, engine=engine) for engine in ("reference", "armillary")]
    for inputs in cases:
        expected = session.run(None, inputs)
        for runner in runners:
            got = runner.run(inputs)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    for runner in runners:
        assert not runner.static and len(runner._compiled) == 1, "values were compiled in"


def test_nonzero_of_computed_values() -> None:
    made = model(
        [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["y"])],
        [value("x", F, [3, 4, 2])],
        [value("y", I64, [3, None])],
    )
    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
    check(made, {"x": x}, {"x": -x}, {"x": np.zeros_like(x)}, {"x": np.ones_like(x)})
    module, _ = from_onnx(made)
    np.testing.assert_array_equal(evaluate(module["main"], [x]), np.nonzero(x > 0))
    assert module["main"].get_attr("output_names") == ("y",)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_by_a_computed_condition(axis: int | None) -> None:
    made = model(
        [node("Compress", ["x", "c"], ["y"], **({} if axis is None else {"axis": axis}))],
        [value("x", F, [3, 4]), value("c", B, [3])],
        [value("y", F, None)],
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    check(made, *({"x": x, "c": np.array(c)} for c in ([True, False, True], [False] * 3, [True] * 3)))


def test_unique_of_computed_values() -> None:
    outputs = [value("y", F, [None]), *(value(n, I64, [None]) for n in ("first", "inverse", "counts"))]
    made = model([node("Unique", ["x"], [o.name for o in outputs])], [value("x", F, [2, 4])], outputs)
    check(made, *({"x": np.array(x, np.float32).reshape(2, 4)} for x in ([3, 1, 1, 2, 3, 3, -1, 1], [0] * 8, range(8))))


def boxes(seed: int, *shape: int) -> Array:
    low = np.random.default_rng(seed).uniform(0, 1, (*shape, 2))
    return np.concatenate([low, low + np.random.default_rng(seed + 1).uniform(0, 0.5, (*shape, 2))], -1).astype(
        np.float32
    )


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression_with_thresholds_given_at_run_time(centred: int) -> None:
    inputs = [value("b", F, [2, 12, 4]), value("s", F, [2, 3, 12]), value("iou", F, [1]), value("least", F, [1])]
    made = model(
        [node("NonMaxSuppression", ["b", "s", "most", "iou", "least"], ["y"], center_point_box=centred)],
        inputs,
        [value("y", I64, [None, 3])],
        {"most": np.array([5])},
    )
    scores = np.random.default_rng(2).uniform(0, 1, (2, 3, 12)).astype(np.float32)
    check(
        made,
        *(
            {"b": boxes(k, 2, 12), "s": scores, "iou": np.float32([iou]), "least": np.float32([least])}
            for k, (iou, least) in enumerate([(0.5, 0.0), (0.1, 0.4), (0.9, 2.0), (0.0, 0.1)])
        ),
    )
