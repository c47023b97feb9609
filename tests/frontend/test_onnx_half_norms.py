"""Norms of halves, whose squares a half cannot hold: summed in float32, as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import armillary
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.frontend import from_onnx
from armillary.runtime import cpu

X = np.random.default_rng(3).uniform(200, 900, (1, 3, 6, 6)).astype("float16")
WIDE = X.astype("float64")
CASES: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "ReduceL2": ({"axes": [2, 3]}, np.sqrt((WIDE**2).sum((2, 3), keepdims=True))),
    "GlobalLpPool": ({"p": 2}, np.sqrt((WIDE**2).sum((2, 3), keepdims=True))),
    "LpPool": (
        {"kernel_shape": [2, 2], "strides": [2, 2], "p": 2},
        np.sqrt((WIDE.reshape(1, 3, 3, 2, 3, 2) ** 2).sum((3, 5))),
    ),
    "LpNormalization": ({"axis": 1}, WIDE / np.sqrt((WIDE**2).sum(1, keepdims=True))),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("op", CASES)
def test_a_norm_of_halves_does_not_overflow(op: str, level: int) -> None:
    attrs, wanted = CASES[op]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", X.shape), ("y", None)))
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attrs)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    module, params = from_onnx(model)
    with armillary.transform.PassContext(opt_level=level):
        executor = GraphModule(build(module, "llvm", params=params)["default"](cpu(0)))
    executor.set_input("x", X)
    executor.run()
    found = executor.get_output(0).numpy()
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=2e-3)
