"""Outputs whose size is a value, beside others: only theirs are cut to it, whatever was made and dropped meanwhile."""

from __future__ import annotations

import gc

import numpy as np
from onnx import TensorProto, helper

from armillary.frontend import from_onnx


def test_only_bounded_outputs_have_sizes() -> None:
    nodes = [helper.make_node("Unique", ["v"], ["u"])]
    nodes += [helper.make_node("ReduceL2", [f"x{k}", "axes"], [f"y{k}"], keepdims=1) for k in range(40)]
    values = [helper.make_tensor_value_info(f"x{k}", TensorProto.INT64, [6, 1, 8]) for k in range(40)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v", TensorProto.INT64, [3]), *values],
        [helper.make_tensor_value_info("u", TensorProto.INT64, None)]
        + [helper.make_tensor_value_info(f"y{k}", TensorProto.INT64, None) for k in range(40)],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for _ in range(5):
        module, _ = from_onnx(model, freeze_params=False)
        gc.collect()
        sizes = module["main"].get_attr("output_sizes")
        assert [place for place, _, _ in sizes] == [0]


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
