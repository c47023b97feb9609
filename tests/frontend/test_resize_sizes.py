"""Sizes that scales make are those of float32, the type of scales: exporters write 30 / 13 and mean 30."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from armillary.frontend import from_onnx
from armillary.relay.infer import infer_type
from armillary.relay.types import TensorType

PAIRS = [(d, o) for d in (3, 7, 13, 29, 33, 47, 55, 101) for o in (5, 14, 30, 41, 83, 150)]


def model(op: str, opset: int, shape: tuple[int, int], names: dict[str, Any], given: dict[str, Any]) -> Any:
    inputs = [name if name in given else "" for name in ("roi", "scales", "sizes")]
    inputs = ["x", *(inputs if op == "Resize" and opset > 10 else [n for n in inputs if n])]
    tensors = [helper.make_tensor(n, 7 if n == "sizes" else 1, [4], v) for n, v in given.items()]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], mode="nearest", **names)],
        "g",
        [helper.make_tensor_value_info("x", 1, (1, 1, *shape))],
        [helper.make_tensor_value_info("y", 1, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def of_onnx_runtime(made: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": np.zeros((1, 1, *shape), np.float32)})
    return tuple(got.shape)


def imported(made: Any) -> tuple[int, ...]:
    module, _ = from_onnx(made)
    result = infer_type(module["main"].body, module)
    assert isinstance(result, TensorType)
    return result.static


@pytest.mark.parametrize(("op", "opset"), [("Resize", 19), ("Resize", 13), ("Resize", 10), ("Upsample", 9)])
def test_scales_give_the_size_of_onnx_runtime(op: str, opset: int) -> None:
    for extent, wanted in PAIRS:
        if wanted < extent and op == "Upsample":
            continue
        scale = float(np.float32(wanted / extent))
        made = model(op, opset, (extent, 2), {}, {"scales": [1, 1, scale, 1]})
        assert imported(made) == of_onnx_runtime(made, (extent, 2)), (extent, wanted)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_kept_ratio_gives_the_size_of_onnx_runtime(policy: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        shape = tuple(int(v) for v in rng.integers(5, 60, 2))
        sizes = [1, 1, *(int(v) for v in rng.integers(12, 60, 2))]
        names = {"keep_aspect_ratio_policy": policy, "axes": [2, 3]}
        made = model("Resize", 18, (shape[0], shape[1]), names, {"sizes": sizes[2:] * 2})
        made.graph.initializer[0].CopyFrom(helper.make_tensor("sizes", 7, [2], sizes[2:]))
        assert imported(made) == of_onnx_runtime(made, (shape[0], shape[1])), (shape, sizes)
