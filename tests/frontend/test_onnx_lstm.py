"""LSTM from ONNX: the default one is one kernel for all steps behind the product; every other variant still agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from armillary.driver.build import build
from armillary.frontend import from_onnx
from armillary.runtime import cpu
from armillary.transform import PassContext

STEPS, FEATURES = 6, 5


def model(batch: int, size: int, directions: int, lengths: list[int] | None, **attributes: Any) -> ModelProto:
    rng = np.random.default_rng(batch * size)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    weights = {
        "w": drawn(directions, 4 * size, FEATURES), "r": drawn(directions, 4 * size, size),
        "b": drawn(directions, 8 * size), "h": drawn(directions, batch, size), "c": drawn(directions, batch, size),
    }  # fmt: skip
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    if lengths is not None:
        tensors.append(numpy_helper.from_array(np.array(lengths, "int32"), "n"))
    inputs = ["x", "w", "r", "b", "" if lengths is None else "n", "h", "c"]
    node = helper.make_node("LSTM", inputs, ["y", "yh", "yc"], hidden_size=size, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, FEATURES])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "net", [x], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


CASES: dict[str, tuple[int, int, int, list[int] | None, dict[str, Any]]] = {
    "plain": (1, 7, 1, None, {}),
    "batch of three": (3, 17, 1, None, {}),
    "both directions, lengths": (3, 8, 2, [6, 2, 4], {"direction": "bidirectional"}),
    "reverse": (2, 5, 1, None, {"direction": "reverse", "activations": ["Sigmoid", "Tanh", "Tanh"]}),
    "clipped": (2, 5, 1, None, {"clip": 0.5}),
    "other activations": (2, 5, 1, None, {"activations": ["HardSigmoid", "Softsign", "Relu"]}),
    "coupled gates": (2, 5, 1, None, {"input_forget": 1}),
}  # fmt: skip


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_lstm_agrees(case: str, level: int) -> None:
    batch, size, directions, lengths, attributes = CASES[case]
    made = model(batch, size, directions, lengths, **attributes)
    data = np.random.default_rng(1).standard_normal((STEPS, batch, FEATURES)).astype("float32")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": data})
    module, params = from_onnx(made)
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    graph.set_input("x", data)
    graph.run()
    for index, value in enumerate(wanted):
        np.testing.assert_allclose(graph.get_output(index).numpy(), value, rtol=1e-5, atol=2e-6)


def test_all_steps_share_one_kernel() -> None:
    module, params = from_onnx(model(2, 9, 1, None))
    with PassContext(opt_level=3):
        library = build(module, "llvm", params=params)
    assert library.get_graph_json().count("nn_lstm_cell") >= STEPS
    kernels = {name for name in library.get_lib().descriptor.functions if "nn_lstm_cell" in name}
    assert len(kernels) == 1
