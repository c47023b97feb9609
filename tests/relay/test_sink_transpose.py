"""Networks written with the channels last: no transposition is left between their layers; the values are the same."""

from __future__ import annotations

import numpy as np
import onnx
from built import built
from onnx import helper, numpy_helper

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 9, 7, 16)).astype(np.float32)


def _network() -> onnx.ModelProto:
    """Two residual blocks, a gate of each channel, a border, a join, and an average, all but convolutions in NHWC."""
    names = ("w0", "w1", "w2")
    weights = {n: RNG.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12 for n in names}
    weights |= {"g": RNG.standard_normal((16, 16, 1, 1)).astype(np.float32), "b": np.float32(RNG.standard_normal(16))}
    weights |= {"border": np.array([0, 1, 1, 0, 0, 1, 1, 0])}
    node, nodes = helper.make_node, []

    def conv(data: str, weight: str, out: str, pad: int) -> None:
        nodes.append(node("Transpose", [data], [f"{out}_t"], perm=[0, 3, 1, 2]))
        nodes.append(node("Conv", [f"{out}_t", weight], [f"{out}_c"], pads=[pad] * 4))
        nodes.append(node("Transpose", [f"{out}_c"], [out], perm=[0, 2, 3, 1]))

    conv("x", "w0", "a", 1)
    nodes.append(node("Add", ["a", "b"], ["ab"]))
    nodes.append(node("Relu", ["ab"], ["s"]))
    conv("s", "w1", "c", 1)
    nodes.append(node("Add", ["c", "s"], ["d"]))
    nodes.append(node("Relu", ["d"], ["e"]))
    nodes.append(node("Pad", ["e", "border"], ["p"]))
    conv("p", "w2", "f", 0)
    nodes.append(node("ReduceMean", ["f"], ["m"], axes=[1, 2], keepdims=1))
    conv("m", "g", "q", 0)
    nodes.append(node("Sigmoid", ["q"], ["gate"]))
    nodes.append(node("Mul", ["f", "gate"], ["h"]))
    nodes.append(node("Concat", ["h", "e"], ["j"], axis=3))
    nodes.append(node("ReduceMean", ["j"], ["y"], axes=[1, 2], keepdims=0))
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", X.shape), ("y", (1, 32)))]
    stored = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "net", info[:1], info[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MODEL = _network()


def test_only_the_input_of_a_network_with_the_channels_last_is_transposed() -> None:
    wanted, before = built(MODEL, X, ["sink-transpose"])
    got, after = built(MODEL, X, [])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert sum("transpose" in name for name in before) >= 3
    assert sum("transpose" in name for name in after) <= 1
    assert len(after) <= len(before) - 3
