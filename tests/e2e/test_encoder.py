"""Small transformer encoders and a recurrent network against ONNX Runtime, and the kernels they compile to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.transform import PassContext

ort = pytest.importorskip("onnxruntime")
HIDDEN, HEADS, WIDE = 64, 4, 128


class Network:
    """An ONNX graph under construction: nodes, weights, names."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def const(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.const((self.random.standard_normal(shape) / math.sqrt(shape[0])).astype("float32"))

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def scalar(self, value: float) -> str:
        return self.const(np.float32(value))

    def linear(self, x: str, inner: int, units: int) -> str:
        return self("Add", self("MatMul", x, self.weight(inner, units)), self.weight(units))

    def heads(self, x: str, order: tuple[int, ...], positions: int) -> str:
        shape = np.array([1, positions, HEADS, HIDDEN // HEADS])
        return self("Transpose", self("Reshape", x, self.const(shape)), perm=order)

    def attention(self, x: str, positions: int, mask: np.ndarray | None) -> str:
        q, k, v = (self.linear(x, HIDDEN, HIDDEN) for _ in range(3))
        q, v = (self.heads(t, (0, 2, 1, 3), positions) for t in (q, v))
        scores = self("MatMul", q, self.heads(k, (0, 2, 3, 1), positions))
        scores = self("Div", scores, self.scalar(math.sqrt(HIDDEN // HEADS)))
        if mask is not None:
            scores = self("Where", self.const(mask), scores, self.scalar(-1e9))
        mixed = self("MatMul", self("Softmax", scores, axis=-1), v)
        together = self.const(np.array([1, positions, HIDDEN]))
        flat = self("Reshape", self("Transpose", mixed, perm=(0, 2, 1, 3)), together)
        return self.linear(flat, HIDDEN, HIDDEN)

    def norm(self, x: str) -> str:
        """LayerNormalization, spelt out before opset 17."""
        scale, shift = self.weight(HIDDEN), self.weight(HIDDEN)
        if self.opset >= 17:
            return self("LayerNormalization", x, scale, shift, axis=-1)
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        spread = self("ReduceMean", self("Pow", centred, self.scalar(2.0)), axes=[-1])
        root = self("Sqrt", self("Add", spread, self.scalar(1e-5)))
        return self("Add", self("Mul", self("Div", centred, root), scale), shift)

    def gelu(self, x: str) -> str:
        inner = self("Add", self("Erf", self("Div", x, self.scalar(math.sqrt(2)))), self.scalar(1.0))
        return self("Mul", self("Mul", x, inner), self.scalar(0.5))

    def block(self, x: str, positions: int, mask: np.ndarray | None) -> str:
        x = self.norm(self("Add", x, self.attention(x, positions, mask)))
        wide = self.gelu(self.linear(x, HIDDEN, WIDE))
        return self.norm(self("Add", x, self.linear(wide, WIDE, HIDDEN)))

    def model(self, out: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        result = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "g", [given], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def compare(model: onnx.ModelProto, x: np.ndarray, folder: Path) -> list[str]:
    """Check the outputs; give the names of the kernels."""
    path = folder / "network.onnx"
    onnx.save(model, path)
    (expected,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    module, params = relay.frontend.from_onnx(path)
    with PassContext(opt_level=3):
        library = build(module, "llvm", params=params)
    graph = library["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), expected, rtol=2e-4, atol=2e-5)
    nodes = json.loads(library.get_graph_json())["nodes"]
    return [n["attrs"]["func_name"] for n in nodes if n["op"] != "null" and n["attrs"]["func_name"] != "__nop"]


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("positions", [16, 21])
def test_encoder_compiles_to_products_attention_and_normalisations(opset: int, positions: int, tmp_path: Path) -> None:
    network = Network(opset)
    out = network.block(network.block("x", positions, None), positions, None)
    x = network.random.standard_normal((1, positions, HIDDEN)).astype("float32")
    kernels = compare(network.model(out, x.shape), x, tmp_path)
    assert sum("nn_attention" in k for k in kernels) == 2
    assert sum("nn_standardize" in k for k in kernels) == 4
    assert sum("nn_gelu" in k for k in kernels) == 2
    assert len(kernels) == 2 * (4 + 1 + 2 + 2), kernels


def test_causal_decoder_masks_by_a_constant(tmp_path: Path) -> None:
    network = Network(17)
    out = network.block("x", 12, np.tril(np.ones((12, 12), bool)))
    x = network.random.standard_normal((1, 12, HIDDEN)).astype("float32")
    kernels = compare(network.model(out, x.shape), x, tmp_path)
    assert sum("nn_masked_attention" in k for k in kernels) == 1


def test_joint_projection_is_read_in_place(tmp_path: Path) -> None:
    network = Network(17)
    joint = network.linear("x", HIDDEN, 3 * HIDDEN)
    shape = network.const(np.array([1, 9, 3, HEADS, HIDDEN // HEADS]))
    whole = network("Transpose", network("Reshape", joint, shape), perm=(2, 0, 3, 1, 4))
    q, k, v = (network("Gather", whole, network.const(np.array(n)), axis=0) for n in range(3))
    scores = network("MatMul", q, network("Transpose", k, perm=(0, 1, 3, 2)))
    mixed = network("MatMul", network("Softmax", network("Mul", scores, network.scalar(0.25)), axis=-1), v)
    out = network("Transpose", mixed, perm=(0, 2, 1, 3))
    x = network.random.standard_normal((1, 9, HIDDEN)).astype("float32")
    kernels = compare(network.model(out, x.shape), x, tmp_path)
    assert len(kernels) == 2, kernels


def test_convolutions_over_time_with_gelu(tmp_path: Path) -> None:
    network = Network(17)
    x, channels = "x", 3
    for width in (16, 32):
        weight = network.weight(width, channels, 3)
        x, channels = network.gelu(network("Conv", x, weight, network.weight(width), strides=[2], pads=[1, 0])), width
    data = network.random.standard_normal((1, 3, 41)).astype("float32")
    kernels = compare(network.model(x, data.shape), data, tmp_path)
    assert sum("conv2d" in k and "gelu" in k for k in kernels) == 2, kernels


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_network_in_both_directions(kind: str, tmp_path: Path) -> None:
    network, gates = Network(17), {"LSTM": 4, "GRU": 3}[kind]
    weights = [network.weight(2, gates * 24, 16), network.weight(2, gates * 24, 24), network.weight(2, 2 * gates * 24)]
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    y = network(kind, "x", *weights, hidden_size=24, direction="bidirectional", **extra)
    data = network.random.standard_normal((7, 1, 16)).astype("float32")
    compare(network.model(y, data.shape), data, tmp_path)
