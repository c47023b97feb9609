"""Convolutions over open sizes are computed directly for few output pixels, by Winograd's algorithm for many."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.runtime.threads import config_threadpool, num_threads
from armillary.transform import PassContext

CHANNELS = 128
TARGET = "llvm -mcpu=native"
_RNG = np.random.default_rng(5)


def network() -> onnx.ModelProto:
    """A residual block of two convolutions."""
    weights = [(_RNG.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 34).astype(np.float32) for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "x"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", CHANNELS, "height", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "block", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def built(model: onnx.ModelProto, tile: int = -1, **options: Any) -> Any:  # Any: hints and bounds; a library
    module, params = relay.frontend.from_onnx(model, **options)
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.tile": tile}):
        return relay.build(module, target=TARGET, params=params)


def fewest(library: Any) -> set[int]:  # Any: a library
    """The numbers of pixels from which kernels transform, as their notes say."""
    notes = [node.get("attrs", {}).get("choice", "") for node in json.loads(library.get_graph_json())["nodes"]]
    return {int(n) for note in notes for n in re.findall(r"directly below (\d+) output pixels", note)}


def result(library: Any, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:  # Any: a library; arrays
    executor = library["default"](armillary.cpu())
    executor.set_input("x", data)
    executor.run()
    return executor.get_output(0).numpy()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return network()


@pytest.fixture(scope="module")
def library(model: onnx.ModelProto) -> Any:
    return built(model, hint={"height": 28, "width": 28})


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size_is_right_in_one_executor(model: onnx.ModelProto, library: Any, threads: int) -> None:
    (limit,) = fewest(library)
    side = int(limit**0.5)
    session, executor = onnxruntime.InferenceSession(model.SerializeToString()), library["default"](armillary.cpu())
    before = num_threads()
    config_threadpool(0, threads)
    try:
        for shape in [(1, 1, 1), (1, side, side), (1, 1, limit), (1, limit - 1, 1), (3, 19, 30), (4, 2, 2), (2, 5, 7)]:
            data = _RNG.standard_normal((shape[0], CHANNELS, *shape[1:])).astype(np.float32)
            executor.set_input("x", data)
            executor.run()
            (wanted,) = session.run(None, {"x": data})
            np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)
    finally:
        config_threadpool(0, before)


def test_few_pixels_are_computed_directly_and_many_by_transforms(model: onnx.ModelProto, library: Any) -> None:
    (limit,) = fewest(library)
    direct = built(model, 0, hint={"height": 28, "width": 28})
    for pixels, is_direct in ((limit - 1, True), (limit, False)):
        data = _RNG.standard_normal((1, CHANNELS, 1, pixels)).astype(np.float32)
        assert np.array_equal(result(library, data), result(direct, data)) is is_direct


def test_images_that_cannot_be_small_have_one_way(model: onnx.ModelProto) -> None:
    bounds = {"height": (40, 80), "width": (40, 80), "batch": (1, 8)}
    assert fewest(built(model, bounds=bounds)) == set()
