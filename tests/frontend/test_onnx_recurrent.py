"""RNN, GRU and LSTM from ONNX: every variant agrees with ONNX Runtime, and all steps share their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from armillary.driver.build import build
from armillary.frontend import from_onnx
from armillary.frontend.onnx.rules.nn.rnn import UNROLLED
from armillary.runtime import cpu
from armillary.transform import PassContext

FEATURES = 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(
    kind: str, steps: int, batch: int, size: int, lengths: list[int] | None, given: str = "x", **attributes: Any
) -> ModelProto:
    """A network of one node; the weights named in `given` are inputs of the graph."""
    rng = np.random.default_rng(batch * size)
    directions, rows = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[kind] * size

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32") * np.float32(0.5 / shape[-1] ** 0.5)

    weights = {
        "w": drawn(directions, rows, FEATURES),
        "r": drawn(directions, rows, size),
        "b": drawn(directions, 2 * rows),
        "h": drawn(directions, batch, size),
    }
    inputs, results = ["x", "w", "r", "b", "" if lengths is None else "n", "h"], ["y", "yh"]
    if kind == "LSTM":
        weights["c"] = drawn(directions, batch, size)
        inputs, results = [*inputs, "c"], [*results, "yc"]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items() if name not in given]
    if lengths is not None:
        tensors.append(numpy_helper.from_array(np.array(lengths, "int32"), "n"))
    node = helper.make_node(kind, inputs, results, hidden_size=size, **attributes)
    shapes = {"x": (steps, batch, FEATURES)} | {k: v.shape for k, v in weights.items()}
    feeds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in shapes if name in given]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "net", feeds, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


CASES: dict[str, tuple[str, int, int, list[int] | None, dict[str, Any]]] = {
    "gru": ("GRU", 1, 7, None, {}),
    "gru, reset behind the product": ("GRU", 3, 17, None, {"linear_before_reset": 1}),
    "gru, both directions, lengths": ("GRU", 3, 8, [6, 2, 4], {"direction": "bidirectional"}),
    "gru, lengths, reset behind": ("GRU", 2, 8, [3, 6], {"linear_before_reset": 1}),
    "gru, reverse": ("GRU", 2, 5, None, {"direction": "reverse", "linear_before_reset": 1}),
    "gru, clipped": ("GRU", 2, 5, None, {"clip": 0.5, "linear_before_reset": 1}),
    "gru, other activations": ("GRU", 2, 5, None, {"activations": ["HardSigmoid", "Softsign"]}),
    "rnn": ("RNN", 1, 16, None, {}),
    "rnn, both directions, lengths": ("RNN", 3, 8, [6, 2, 4], {"direction": "bidirectional"}),
    "rnn, relu": ("RNN", 2, 33, None, {"activations": ["Relu"]}),
    "lstm": ("LSTM", 1, 7, None, {}),
    "lstm, batch of three": ("LSTM", 3, 17, None, {}),
    "lstm, both directions, lengths": ("LSTM", 3, 8, [6, 2, 4], {"direction": "bidirectional"}),
    "lstm, reverse": ("LSTM", 2, 5, None, {"direction": "reverse", "activations": ["Sigmoid", "Tanh", "Tanh"]}),
    "lstm, clipped": ("LSTM", 2, 5, None, {"clip": 0.5}),
    "lstm, other activations": ("LSTM", 2, 5, None, {"activations": ["HardSigmoid", "Softsign", "Relu"]}),
    "lstm, coupled gates": ("LSTM", 2, 5, None, {"input_forget": 1}),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_recurrent_networks_agree(case: str, level: int) -> None:
    kind, batch, size, lengths, attributes = CASES[case]
    made = model(kind, 6, batch, size, lengths, **attributes)
    agree(made, level)


def agree(made: ModelProto, level: int) -> None:
    rng = np.random.default_rng(1)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in made.graph.input}
    feeds = {
        name: (rng.standard_normal(shape) * (0.5 / shape[-1] ** 0.5)).astype("float32")
        for name, shape in shapes.items()
    }
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    module, params = from_onnx(made)
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    for name, data in feeds.items():
        graph.set_input(name, data)
    graph.run()
    for index, value in enumerate(wanted):
        np.testing.assert_allclose(graph.get_output(index).numpy(), value, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("case", "given", "level"),
    [
        pytest.param(case, given, level, marks=() if (k + at + level) % 2 else pytest.mark.slow)  # two of four
        for k, case in enumerate(CASES)
        for at, given in enumerate(("x", "xwrbhc"))
        for level in (0, 3)
    ],
)
def test_long_sequences_agree(case: str, given: str, level: int) -> None:
    kind, batch, size, lengths, attributes = CASES[case]
    lengths = None if lengths is None else [23 * n for n in lengths]
    agree(model(kind, UNROLLED + 10, batch, size, lengths, given, **attributes), level)


@pytest.mark.parametrize("kind", GATES)
def test_ten_thousand_steps_are_one_step_in_a_loop(kind: str) -> None:
    made = model(kind, 10_000, 1, 4, None)
    module, params = from_onnx(made)
    with PassContext(opt_level=3):
        assert len(build(module, "llvm", params=params).get_graph_json()) < 20_000
    agree(made, 3)


@pytest.mark.parametrize("lengths", [None, [3, 4]])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_more_steps_need_no_more_kernels(kind: str, before: int, lengths: list[int] | None) -> None:
    counts = []
    for steps in (4, 8):
        attributes = {"linear_before_reset": before} if kind == "GRU" else {}
        module, params = from_onnx(model(kind, steps, 2, 9, lengths, **attributes))
        with PassContext(opt_level=3):
            counts.append(len(build(module, "llvm", params=params).get_lib().descriptor.functions))
    assert counts[0] == counts[1]


def test_all_steps_of_an_lstm_share_one_kernel() -> None:
    steps = 6
    module, params = from_onnx(model("LSTM", steps, 2, 9, None))
    with PassContext(opt_level=3):
        library = build(module, "llvm", params=params)
    assert library.get_graph_json().count("nn_lstm_cell") >= steps
    kernels = {name for name in library.get_lib().descriptor.functions if "nn_lstm_cell" in name}
    assert len(kernels) == 1
