"""What the standard says of further outputs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from armillary.frontend import from_onnx


def test_statistics_of_a_wide_normalisation_are_float32() -> None:
    """The standard: `stash_type` says the type of mean and deviation, whatever the data's."""
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "m", "d"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [2, 5])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (("y", 11), ("m", 1), ("d", 1))],
        [helper.make_tensor("s", TensorProto.DOUBLE, [5], np.ones(5))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    module, _ = from_onnx(model)
    assert [str(t.dtype) for t in module["main"].body.checked_type.fields] == ["float64", "float32", "float32"]
