"""Numbers at the edge of what operators take: small results, absurd windows, positions that only a run knows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

import armillary
from armillary.driver.build import build
from armillary.errors import ArmillaryError, ExecutionError, TargetError, TypeMismatch
from armillary.frontend import from_onnx
from armillary.relay.analysis import op_frequency
from armillary.relay.transform.pipeline import optimize
from armillary.runtime import cpu
from armillary.target import Target
from armillary.transform import PassContext

Arrays = dict[str, np.ndarray[Any, Any]]


def model(nodes: list[NodeProto], feeds: Arrays, constants: Arrays) -> ModelProto:
    given = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    held = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    results = [ValueInfoProto(name=name) for name in nodes[-1].output]
    graph = helper.make_graph(nodes, "edges", given, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(nodes: list[NodeProto], feeds: Arrays, constants: Arrays, level: int = 3) -> np.ndarray[Any, Any]:
    module, params = from_onnx(model(nodes, feeds, constants))
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    for name, array in feeds.items():
        graph.set_input(name, array)
    graph.run()
    return np.asarray(graph.get_output(0).numpy())


SMALL = -np.geomspace(1e-3, 87, 41)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softplus_keeps_its_digits_below_zero(dtype: str, level: int) -> None:
    x = np.concatenate([SMALL, [0.0], -SMALL, [200.0]]).astype(dtype)
    exact = x.astype(np.longdouble)
    wanted = np.maximum(exact, 0) + np.log1p(np.exp(-np.abs(exact)))
    found = run([helper.make_node("Softplus", ["x"], ["y"])], {"x": x}, {}, level)
    np.testing.assert_allclose(found, wanted.astype("float64"), rtol=6 * np.finfo(dtype).eps, atol=2e-38)


@pytest.mark.parametrize("level", [0, 3])
def test_mish_is_one_exponential_and_keeps_its_digits(level: int) -> None:
    nodes = [
        helper.make_node("Softplus", ["x"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Mul", ["t", "x"], ["y"]),
    ]
    x = np.concatenate([SMALL, [0.0], -SMALL]).astype("float32")
    exact = x.astype("float64")
    wanted = exact * np.tanh(np.maximum(exact, 0) + np.log1p(np.exp(-np.abs(exact))))
    np.testing.assert_allclose(run(nodes, {"x": x}, {}, level), wanted, rtol=2e-6, atol=1e-36)


def test_mish_needs_no_logarithm() -> None:
    nodes = [helper.make_node("Softplus", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    module, _ = from_onnx(model(nodes, {"x": np.zeros(4, "float32")}, {}))
    with PassContext(opt_level=3):
        found = op_frequency(optimize(module, Target("llvm")))
    assert "log" not in found and "tanh" not in found and found["exp"] == 1


ABSURD = {
    "stride of a convolution": ("Conv", {"strides": [1 << 62, 1]}),
    "dilation of a convolution": ("Conv", {"dilations": [1, 1 << 62]}),
    "stride of a pooling": ("MaxPool", {"strides": [1 << 31, 1], "kernel_shape": [1, 1]}),
    "dilation of a pooling": ("MaxPool", {"dilations": [1 << 40, 1], "kernel_shape": [2, 1]}),
}


@pytest.mark.parametrize("case", ABSURD)
def test_windows_of_absurd_sizes_are_refused_by_name(case: str) -> None:
    kind, attributes = ABSURD[case]
    given = ["x", "w"] if kind == "Conv" else ["x"]
    nodes = [helper.make_node(kind, given, ["y"], name="far", **attributes)]
    far = max(max(v) for k, v in attributes.items() if k != "kernel_shape")
    with pytest.raises(TypeMismatch, match=re.escape(f"{kind} node 'far': {far} as a size, stride")):
        run(nodes, {"x": np.ones((1, 1, 5, 5), "float32")}, {"w": np.ones((1, 1, 2, 2), "float32")})


@pytest.mark.parametrize("place", [16, -17, 1 << 40])
@pytest.mark.parametrize("is_constant", [False, True])
def test_positions_that_max_unpool_does_not_have_are_told(place: int, is_constant: bool) -> None:
    nodes = [helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    x, i = np.ones((1, 1, 2, 2), "float32"), np.array([[[[0, 3], [place, 5]]]])
    feeds = {"x": x} if is_constant else {"x": x, "i": i}
    with pytest.raises(ArmillaryError, match=f"MaxUnpool.* index {place}"):
        run(nodes, feeds, {"i": i} if is_constant else {})


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("length", [5, -1])
def test_lengths_of_sequences_that_are_too_long_are_told_when_run(kind: str, length: int) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    weights = {"w": np.ones((1, gates * 3, 2), "float32"), "r": np.ones((1, gates * 3, 3), "float32")}
    nodes = [helper.make_node(kind, ["x", "w", "r", "", "n"], ["y"], hidden_size=3)]
    feeds = {"x": np.ones((4, 2, 2), "float32"), "n": np.array([4, 0], "int32")}
    assert np.isfinite(run(nodes, feeds, weights)).all()
    feeds["n"][1] = length
    with pytest.raises(ExecutionError, match=f"{kind}: length of a sequence {length}"):
        run(nodes, feeds, weights)


@pytest.mark.parametrize("number", [1 << 40, -(1 << 32), "x", None, 1.5])
def test_numbers_that_no_device_has_are_refused(number: Any) -> None:
    for make in (armillary.cpu, armillary.cl, lambda n: armillary.device("cpu", n)):
        with pytest.raises(TargetError, match="a device's number is"):
            make(number)
    assert armillary.cpu(np.int64(0)) == armillary.cpu()  # type: ignore[arg-type]
