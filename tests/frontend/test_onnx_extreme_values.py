"""Values at which a rewriting or an instruction may differ from the standard: infinite slopes, no range, signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import UnsupportedError
from armillary.frontend import from_onnx
from armillary.runtime.device import cpu
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]


def model(op: str, inputs: Mapping[str, Array], outputs: Mapping[str, int], **attributes: Any) -> ModelProto:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), list(outputs), **attributes)],
        "g",
        [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(proto: ModelProto, inputs: Mapping[str, Array], level: int, target: str) -> list[Array]:
    module, _ = from_onnx(proto)
    with PassContext(opt_level=level):
        library = build(module, target)
    executor = GraphModule(library["default"](cpu(0)))
    executor.run(**inputs)
    return [executor.get_output(k).numpy() for k in range(executor.get_num_outputs())]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("slope", [-np.inf, np.inf, np.nan])
def test_a_positive_number_is_not_multiplied_by_an_infinite_slope(slope: float, level: int) -> None:
    inputs = {"x": np.array([[3.0, 0.5], [2.0, 1.0]], np.float32), "slope": np.array([slope, 1], np.float32)}
    (got,) = run(model("PRelu", inputs, {"y": TensorProto.FLOAT}), inputs, level, "llvm")
    np.testing.assert_array_equal(got, inputs["x"])


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=native", "c"])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("to", ["uint8", "uint16", "uint32", "uint64", "int8", "int16"])
def test_a_number_below_an_integer_type_wraps(source: str, to: str, target: str) -> None:
    values = np.tile(np.array([-3.7, -1.0, -0.5, 2.9, 127.0, 200.0], source), 11)
    wanted = np.trunc(values).astype(np.int64).astype(to)
    proto = model("Cast", {"x": values}, {"y": (kind := helper.np_dtype_to_tensor_dtype(np.dtype(to)))}, to=kind)
    np.testing.assert_array_equal(run(proto, {"x": values}, 3, target)[0], wanted)


def test_the_largest_numbers_of_uint64_are_kept() -> None:
    values = np.array([2.0**63, 1.5 * 2.0**63, 2.0**62, -1.0], np.float64)
    proto = model("Cast", {"x": values}, {"y": TensorProto.UINT64}, to=TensorProto.UINT64)
    wanted = np.array([1 << 63, 3 << 62, 1 << 62, (1 << 64) - 1], np.uint64)
    np.testing.assert_array_equal(run(proto, {"x": values}, 3, "llvm -mcpu=native")[0], wanted)


@pytest.mark.parametrize("shape", [(3, 5), (0, 5)])
def test_the_scale_of_zeros_and_of_nothing_is_one(shape: tuple[int, ...]) -> None:
    inputs = {"x": np.zeros(shape, np.float32)}
    outputs = {"y": TensorProto.UINT8, "scale": TensorProto.FLOAT, "zero": TensorProto.UINT8}
    y, scale, zero = run(model("DynamicQuantizeLinear", inputs, outputs), inputs, 3, "llvm")
    assert not np.any(y) and y.shape == shape and scale == 1 and zero == 0


@pytest.mark.parametrize("factors", [{"alpha": 0.5}, {"beta": 1.5}, {"alpha": float("inf")}])
def test_a_product_of_integers_is_refused_for_a_factor_that_is_none(factors: dict[str, float]) -> None:
    matrix = np.arange(4, dtype=np.int32).reshape(2, 2)
    inputs = {"a": matrix, "b": matrix, "c": matrix}
    with pytest.raises(UnsupportedError, match="wanted an integer for int32"):
        from_onnx(model("Gemm", inputs, {"y": TensorProto.INT32}, **factors))
    (got,) = run(model("Gemm", inputs, {"y": TensorProto.INT32}, alpha=2.0, beta=-3.0), inputs, 3, "llvm")
    np.testing.assert_array_equal(got, 2 * (matrix @ matrix) - 3 * matrix)
