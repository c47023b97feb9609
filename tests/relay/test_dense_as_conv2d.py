"""A feed-forward network with a depthwise convolution, as in image transformers: fewer moves, same values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from built import built
from onnx import helper, numpy_helper

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 36, 8)).astype(np.float32)


def _network(is_channels_last: bool) -> onnx.ModelProto:
    shapes = {"w": (8, 32), "b": (32,), "d": (32, 1, 3, 3), "v": (32, 8), "c": (8,)}
    weights = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    weights |= {"image": np.array([2, 6, 6, 32] if is_channels_last else [2, 32, 6, 6]), "rows": np.array([2, 36, 32])}
    weights |= {"flat": np.array([2, 32, 36])}
    node = helper.make_node
    wide = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["h"])]
    middle = [node("Conv", ["i", "d"], ["k"], pads=[1, 1, 1, 1], group=32), node("Relu", ["k"], ["r"])]
    narrow = [node("MatMul", ["t", "v"], ["m"]), node("Add", ["m", "c"], ["n"]), node("Add", ["n", "x"], ["y"])]
    if is_channels_last:
        before = [node("Reshape", ["h", "image"], ["s"]), node("Transpose", ["s"], ["i"], perm=[0, 3, 1, 2])]
        after = [node("Transpose", ["r"], ["u"], perm=[0, 2, 3, 1]), node("Reshape", ["u", "rows"], ["t"])]
    else:
        before = [node("Transpose", ["h"], ["s"], perm=[0, 2, 1]), node("Reshape", ["s", "image"], ["i"])]
        after = [node("Reshape", ["r", "flat"], ["u"]), node("Transpose", ["u"], ["t"], perm=[0, 2, 1])]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, X.shape) for n in "xy"]
    stored = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph([*wide, *before, *middle, *after, *narrow], "net", info[:1], info[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("is_channels_last", [False, True])
def test_products_beside_a_convolution_are_convolutions(is_channels_last: bool) -> None:
    model = _network(is_channels_last)
    wanted, before = built(model, X, ["dense-as-conv2d"])
    got, after = built(model, X, [])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert sum("dense" in name for name in before) == 2
    assert sum("dense" in name for name in after) == 0
    assert sum("conv2d" in name for name in after) == 3
