"""Recurrent layers of open length: one compile, every length and batch, equal to ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ExecutionError
from armillary.relay.parser import parse
from armillary.relay.printer import astext

FEATURES, HIDDEN = 3, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _model(kind: str, direction: str, lengths: bool, **attributes: Any) -> onnx.ModelProto:
    rng, value = np.random.default_rng(1), helper.make_tensor_value_info
    d, rows = 1 + (direction == "bidirectional"), GATES[kind] * HIDDEN
    shapes = {"w": (d, rows, FEATURES), "r": (d, rows, HIDDEN), "b": (d, 2 * rows)}
    held = [numpy_helper.from_array((rng.standard_normal(s) * 0.3).astype("float32"), n) for n, s in shapes.items()]
    inputs = [value("x", onnx.TensorProto.FLOAT, ["seq", "batch", FEATURES])]
    inputs += [value("h", onnx.TensorProto.FLOAT, [d, "batch", HIDDEN])]
    inputs += [value("lengths", onnx.TensorProto.INT32, ["batch"])] if lengths else []
    names = ["x", "w", "r", "b", "lengths" if lengths else "", "h"]
    outputs = ["y", "last", "cell"][: 2 + (kind == "LSTM")]
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, direction=direction, **attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "net", inputs, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize(
    ("kind", "direction", "attributes"),
    [
        ("LSTM", "bidirectional", {}),
        ("LSTM", "forward", {"clip": 0.5}),
        ("GRU", "bidirectional", {"linear_before_reset": 1}),
        ("GRU", "reverse", {}),
        ("RNN", "bidirectional", {}),
    ],
)
def test_every_length_and_batch_is_right(kind: str, direction: str, attributes: Any, lengths: bool) -> None:
    model = _model(kind, direction, lengths, **attributes)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    module, params = relay.frontend.from_onnx(model)
    net = GraphModule(relay.build(module, "llvm", params=params)["default"](armillary.cpu()))
    rng = np.random.default_rng(2)
    for steps, batch in ((4, 2), (1, 1), (150, 3), (4, 2)):
        feed = {"x": rng.standard_normal((steps, batch, FEATURES)).astype("float32")}
        feed["h"] = rng.standard_normal((1 + (direction == "bidirectional"), batch, HIDDEN)).astype("float32")
        if lengths:
            feed["lengths"] = np.array([steps] + [(steps + 1) // 2] * (batch - 1), "int32")
        net.run(**feed)
        for k, wanted in enumerate(reference.run(None, feed)):
            np.testing.assert_allclose(net.get_output(k).numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_length_beyond_the_sequence_is_refused_when_it_runs() -> None:
    module, params = relay.frontend.from_onnx(_model("GRU", "forward", True))
    net = GraphModule(relay.build(module, "llvm", params=params)["default"](armillary.cpu()))
    feed = {"x": np.zeros((3, 1, FEATURES), "float32"), "h": np.zeros((1, 1, HIDDEN), "float32")}
    with pytest.raises(ExecutionError, match="length of a sequence"):
        net.run(**feed, lengths=np.array([4], "int32"))


def test_loops_over_a_size_print_and_parse() -> None:
    module, _ = relay.frontend.from_onnx(_model("RNN", "forward", False))
    text = astext(module)
    assert "trips=seq" in text and astext(parse(text)) == text
