"""How far outputs are from a float64 computation: never more than twice ONNX Runtime's distance.

Deep and wide layers are what shows it: long sums, and Winograd's transforms, which enlarge the error of the products.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]


def conv64(x: Array, w: Array) -> Array:
    """Convolution that keeps the image's size, in float64."""
    k = w.shape[2]
    pad = k // 2
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))), (k, k), (2, 3)
    )
    return np.moveaxis(np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3))), 3, 1)


def compiled(model: onnx.ModelProto, x: Array) -> Array:
    """What the compiled model makes of x."""
    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(x=x)
    made: Array = executor.get_output(0).numpy()
    return made


def network(channels: list[int], kernel: int, side: int, units: int) -> tuple[onnx.ModelProto, list[Array]]:
    """Convolutions with relu one after another, then a matrix product over everything."""
    rng = np.random.default_rng(3)
    nodes, weights, value = [], [], "x"
    for i, (c, k) in enumerate(itertools.pairwise(channels)):
        weights.append((rng.standard_normal((k, c, kernel, kernel)) / np.sqrt(c * kernel**2 / 2)).astype("float32"))
        nodes += [
            helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], pads=[kernel // 2] * 4),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    inner = channels[-1] * side * side
    weights.append((rng.standard_normal((inner, units)) / np.sqrt(inner)).astype("float32"))
    nodes += [
        helper.make_node("Flatten", [value], ["flat"]),
        helper.make_node("MatMul", ["flat", f"w{len(weights) - 1}"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "deep",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels[0], side, side))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, units))],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


@pytest.mark.parametrize(
    ("channels", "kernel", "side"),
    [
        ([64, 64, 64, 64], 3, 56),
        pytest.param([256, 256, 256], 3, 28, marks=pytest.mark.slow),  # sums of a length between its neighbours'
        ([512, 512, 512], 3, 14),
        ([1024, 256, 1024], 1, 14),
        ([64, 64, 64, 64], 7, 40),
        ([32, 64, 64], 5, 36),
    ],
    ids=["64x56", "256x28", "512x14", "pointwise", "7x7", "5x5"],
)
def test_error_against_float64_is_at_most_twice_onnx_runtimes(channels: list[int], kernel: int, side: int) -> None:
    model, weights = network(channels, kernel, side, 64)
    x = np.random.default_rng(5).random((1, channels[0], side, side), "float32")
    exact = x.astype("float64")
    for w in weights[:-1]:
        exact = np.maximum(conv64(exact, w.astype("float64")), 0)
    exact = exact.reshape(1, -1) @ weights[-1].astype("float64")

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"x": x})[0]
    ours = compiled(model, x)

    def error(y: Array) -> float:
        return float(np.sqrt(np.mean((y - exact) ** 2)) / np.std(exact))

    assert 0 < error(ours) <= 2 * error(theirs), f"ours {error(ours):.2e}, ONNX Runtime's {error(theirs):.2e}"


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_half_precision_is_lost_in_the_result_only(kernel: int) -> None:
    """Sums and transforms of float16 convolutions are in float32."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((1, 64, 20, 20)).astype("float16"), rng.standard_normal((64, 64, kernel, kernel))
    half, types = w.astype("float16"), [("x", (1, 64, 20, 20)), ("y", (1, 64, 20, 20))]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in types)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4)
    graph = helper.make_graph([node], "half", [given], [made], [numpy_helper.from_array(half, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exact = conv64(x.astype("float64"), half.astype("float64"))
    ours = compiled(model, x)
    assert ours.dtype == np.float16
    assert np.all(np.abs(ours - exact) <= 0.6 * np.spacing(np.abs(exact).astype("float16")).astype("float64") + 1e-3)
