"""Reshape to a shape that the data says: counts of elements are compared in the run, and -1 as data is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.errors import ExecutionError


def network(*, infers: bool) -> onnx.ModelProto:
    """Rows of 12 as (the largest id, the rest), or as (the largest id, 4)."""
    nodes = [
        helper.make_node("ReduceMax", ["ids"], ["most"], keepdims=1),
        helper.make_node("Concat", ["most", "last"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 12]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["k"]),
    ]
    last = numpy_helper.from_array(np.array([-1 if infers else 4], np.int64), "last")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", inputs, [y], [last])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def executor_of(model: onnx.ModelProto) -> Any:  # Any: an executor
    module, params = relay.frontend.from_onnx(model)
    return relay.build(module, target="llvm", params=params)["default"](armillary.cpu())


def run(executor: Any, rows: int, ids: list[int]) -> Any:  # Any: an executor; an array
    executor.set_input("x", np.arange(rows * 12, dtype=np.float32).reshape(rows, 12))
    executor.set_input("ids", np.array(ids, np.int64))
    executor.run()
    return executor.get_output(0).numpy()


@pytest.mark.parametrize(("infers", "cases"), [(True, [(2, [3, 1]), (3, [4, 9])]), (False, [(2, [6]), (3, [-1, 9])])])
def test_shapes_that_fit_are_those_of_onnx_runtime(infers: bool, cases: list[tuple[int, list[int]]]) -> None:
    model = network(infers=infers)
    executor, session = executor_of(model), onnxruntime.InferenceSession(model.SerializeToString())
    for rows, ids in cases:
        x = np.arange(rows * 12, dtype=np.float32).reshape(rows, 12)
        (wanted,) = session.run(None, {"x": x, "ids": np.array(ids, np.int64)})
        np.testing.assert_array_equal(run(executor, rows, ids), wanted)


def test_counts_that_do_not_fit_are_refused_before_anything_is_read() -> None:
    inferred, stated = executor_of(network(infers=True)), executor_of(network(infers=False))
    with pytest.raises(ExecutionError, match=r"12\*n = 24: they must be equal"):
        run(inferred, 2, [5])
    for ids, wanted in (([5], 20), ([7], 28), ([0], 0)):
        with pytest.raises(ExecutionError, match=rf"is 12\*n = 24, but .* = {wanted}: they must be equal"):
            run(stated, 2, ids)
    for count in (-1, -2):
        with pytest.raises(ExecutionError, match=f"the data says reshape_1 = {count}, which lies outside its bounds"):
            run(stated, 2, [count])
    assert run(stated, 2, [6]).shape == (6, 4)
