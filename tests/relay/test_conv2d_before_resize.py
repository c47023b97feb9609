"""1x1 convolutions of enlarged images, as heads of segmentation networks have them, work on the small images."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from armillary import cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.transform.pipeline import optimize
from armillary.transform import PassContext

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 96, 12, 10)).astype(np.float32)


def _weight(others: int = 16, size: int = 1) -> np.ndarray:
    return (RNG.standard_normal((32, 96 + others, size, size)) / 10).astype(np.float32)


def _other(kernel: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, kernel.shape[1] - 96, 24, 20)).astype(np.float32)


def _network(mode: str, kernel: np.ndarray, reads_enlarged: bool = False) -> onnx.ModelProto:
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel"}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["u"], **attrs),
        helper.make_node("Concat", ["u", "y"], ["c"], axis=1),
        helper.make_node("Conv", ["c", "w"], ["k"], pads=[kernel.shape[2] // 2] * 4),
        helper.make_node("BatchNormalization", ["k", "a", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["z"]),
    ]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32), "w": kernel}
    weights |= {n: RNG.uniform(0.5, 1.5, 32).astype(np.float32) for n in "abmv"}
    given = {"x": X, "y": _other(kernel)}
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in given.items()]
    outputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("z", "u")[: 1 + reads_enlarged]]
    stored = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "net", info, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _run(module: IRModule, params: object, kernel: np.ndarray, disabled: list[str]) -> np.ndarray:
    with PassContext(opt_level=3, disabled_pass=disabled):
        net = GraphModule(relay.build(module, target="llvm", params=params)["default"](cpu()))
    net.run(x=X, y=_other(kernel))
    result: np.ndarray = net.get_output(0).numpy()
    return result


def _convolutions(module: IRModule, params: object) -> int:
    with PassContext(opt_level=3):
        return str(optimize(module, "llvm", params)).count("nn.contrib_conv2d_NCHWc(")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_enlarged_part_is_convolved_first(mode: str) -> None:
    kernel = _weight()
    module, params = relay.frontend.from_onnx(_network(mode, kernel))
    assert _convolutions(module, params) == 2
    wanted = _run(module, params, kernel, ["conv2d-before-resize"])
    np.testing.assert_allclose(_run(module, params, kernel, []), wanted, rtol=1e-4, atol=1e-4)


def test_it_stays_where_pixels_mix() -> None:
    module, params = relay.frontend.from_onnx(_network("nearest", _weight(size=3)))
    assert _convolutions(module, params) < 2


def test_it_stays_where_the_large_image_is_wanted() -> None:
    module, params = relay.frontend.from_onnx(_network("nearest", _weight(), reads_enlarged=True))
    assert _convolutions(module, params) == 1


def test_it_stays_where_little_is_saved() -> None:
    module, params = relay.frontend.from_onnx(_network("nearest", _weight(others=64)))
    assert _convolutions(module, params) == 1
