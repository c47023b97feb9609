"""Positions along open axes and sums over them: compiled once, every size equal to ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ExecutionError

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
CASES = {
    "gather-elements": ("GatherElements", {"axis": 1}, [("x", FLOAT, ["b", "s"]), ("i", INT64, ["b", "s"])]),
    "gather-points": ("GatherND", {}, [("x", FLOAT, ["b", "s"]), ("i", INT64, ["s", 2])]),
    "sum-along-last": ("CumSum", {"exclusive": 1}, [("x", FLOAT, ["b", "s"])]),
    "sum-backwards": ("CumSum", {"reverse": 1}, [("x", FLOAT, ["b", "s", "n"])]),
}


def _network(name: str) -> tuple[onnx.ModelProto, graph_executor.GraphModule]:
    op, attributes, inputs = CASES[name]
    held = [helper.make_tensor("axis", INT64, [], [1])] if op == "CumSum" else []
    names = [row[0] for row in inputs] + [tensor.name for tensor in held]
    values = [helper.make_tensor_value_info(*row) for row in inputs]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "net", values, [helper.make_empty_tensor_value_info("y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module, params = relay.frontend.from_onnx(model)
    return model, graph_executor.GraphModule(
        relay.build(module, target="llvm", params=params)["default"](armillary.cpu())
    )


def _feeds(name: str, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    feeds = {"x": rng.standard_normal([sizes[d] for d in CASES[name][2][0][2]]).astype("float32")}
    if name == "gather-elements":
        feeds["i"] = rng.integers(-sizes["s"], sizes["s"], (sizes["b"], sizes["s"]))
    if name == "gather-points":
        feeds["i"] = rng.integers(0, (sizes["b"], sizes["s"]), (sizes["s"], 2))
    return feeds


@pytest.mark.parametrize("name", CASES)
def test_one_compile_runs_every_size(name: str) -> None:
    model, network = _network(name)
    reference, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng(7)
    for sizes in ({"b": 1, "s": 5, "n": 3}, {"b": 3, "s": 17, "n": 9}, {"b": 2, "s": 1, "n": 1}):
        feeds = _feeds(name, sizes, rng)
        network.run(**feeds)
        wanted = reference.run(None, feeds)[0]
        np.testing.assert_allclose(network.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_position_behind_the_present_size_is_refused() -> None:
    _, network = _network("gather-elements")
    data, places = np.zeros((1, 4), "float32"), np.array([[0, 1, 2, 4]])
    with pytest.raises(ExecutionError, match="index"):
        network.run(x=data, i=places)
