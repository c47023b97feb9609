"""`InferenceSession` answers as ONNX Runtime's does: names, shapes, outputs, and which inputs it refuses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary.errors import ExecutionError, ModelError, TypeMismatch

value = helper.make_tensor_value_info


def network(batch: int | str) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) - 5, "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    inputs, outputs = [value("x", TensorProto.FLOAT, [batch, 4])], ["y", "h"]
    graph = helper.make_graph(
        nodes, "net", inputs, [value(n, TensorProto.FLOAT, [batch, 3]) for n in outputs], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(params=["batch", 2])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """Our session and ONNX Runtime's over the same file."""
    path = str(tmp_path / "net.onnx")
    onnx.save(network(request.param), path)
    return armillary.InferenceSession(path), onnxruntime.InferenceSession(path)


def test_inputs_and_outputs_are_described_alike(pair: tuple[Any, Any]) -> None:
    ours, theirs = pair
    for a, b in zip(ours.get_inputs() + ours.get_outputs(), theirs.get_inputs() + theirs.get_outputs(), strict=True):
        assert (a.name, a.type, a.shape) == (b.name, b.type, b.shape)


@pytest.mark.parametrize("names", [None, ["h"], ["h", "y"]])
def test_outputs_come_in_the_order_that_was_asked_for(pair: tuple[Any, Any], names: list[str] | None) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    ours, theirs = (session.run(names, {"x": x}) for session in pair)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_open_sizes_are_compiled_once_by_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    session = armillary.InferenceSession(network("batch").SerializeToString())
    monkeypatch.setattr("armillary.backend.compiled.build", None)  # whoever compiles now fails
    assert [session.run(["y"], {"x": np.ones((n, 4), np.float32)})[0].shape for n in (1, 5)] == [(1, 3), (5, 3)]


def test_what_has_no_form_over_sizes_is_compiled_for_each_shape() -> None:
    value = onnx.helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["n", 1, 3, 3]), value("moved", TensorProto.FLOAT, ["n", 8, 2, 2])]
    weight = onnx.numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "w")
    node = onnx.helper.make_node("DeformConv", ["x", "w", "moved"], ["y"], kernel_shape=[2, 2])
    graph = onnx.helper.make_graph([node], "net", inputs, [value("y", TensorProto.FLOAT, None)], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=8)
    with pytest.warns(RuntimeWarning, match="compiled for each shape that it meets"):
        session = armillary.InferenceSession(model.SerializeToString())
    for n in (2, 4):
        x = np.random.default_rng(n).random((n, 1, 3, 3), np.float32)
        wanted = x[..., :2, :2] + x[..., 1:, :2] + x[..., :2, 1:] + x[..., 1:, 1:]
        got = session.run(["y"], {"x": x, "moved": np.zeros((n, 8, 2, 2), np.float32)})[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_threads_may_share_a_session() -> None:
    session = armillary.InferenceSession(network(2))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((2, 4), seed, np.float32)
        weight = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
        for _ in range(50):
            if not np.array_equal(session.run(["h"], {"x": x})[0], x @ weight):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("feed", "error", "text"),
    [
        ({"x": np.ones((2, 4))}, TypeMismatch, "input 'x' is float64, wanted float32"),
        ({"x": np.ones((2, 5), np.float32)}, TypeMismatch, r"has shape \[2, 5\], wanted \[2, 4\]"),
        ({"z": np.ones((2, 4), np.float32)}, ExecutionError, r"inputs are \['x'\], got \['z'\]"),
        ([np.ones((2, 4), np.float32)], TypeMismatch, "wants a dict of inputs by name, got list"),
    ],
)
def test_wrong_inputs_are_refused_by_name(feed: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        armillary.InferenceSession(network(2)).run(None, feed)


def test_outputs_that_are_not_there_and_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="the model has no output 'q'"):
        armillary.InferenceSession(network(2)).run(["q"], {"x": np.ones((2, 4), np.float32)})
    with pytest.raises(ModelError, match="cannot read the model"):
        armillary.InferenceSession(str(tmp_path / "no.onnx"))


def test_other_providers_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="providers CUDAExecutionProvider are ignored"):
        session = armillary.InferenceSession(network(2), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
