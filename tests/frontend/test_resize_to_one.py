"""A result of one element lies at the first of the data (`pytorch_half_pixel`), for cubic ones too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.frontend import from_onnx
from armillary.runtime import cpu


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_one_element_lies_at_the_first(mode: str, exclude: int) -> None:
    x = np.random.default_rng(0).uniform(-4, 4, (1, 2, 3, 5)).astype(np.float32)
    names = {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel", "exclude_outside": exclude}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **names)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("scales", 1, [4], [1, 1, 0.6, 1])],
    )
    module, params = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    made = GraphModule(build(module, "llvm", params=params)["default"](cpu(0)))
    made.run(x=x)
    np.testing.assert_allclose(made.get_output(0).numpy(), x[:, :, :1], rtol=1e-5, atol=1e-6)
