"""Quantised and mixed-precision networks over open sizes: one compile, right at every size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import armillary
from armillary import relay
from armillary.base.aliases import Array
from armillary.transform import PassContext

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "images": [(1, 3, 32, 32), (2, 3, 45, 64), (5, 3, 17, 9)],
    "words": [(1, 8, 32), (2, 17, 32), (3, 40, 32)],
}
OPEN: dict[str, list[str | int | None]] = {
    "images": ["batch", 3, "height", "width"],
    "words": ["batch", "seq", 32],
}
_RNG = np.random.default_rng(7)


def weight(*shape: int) -> Array:
    result: Array = (_RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return result


def images() -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Convolutions, one by channel, a residual sum, a pooled classifier."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["a1"]),
        helper.make_node("Conv", ["a1", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["c", "a1"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"], pads=[1] * 4, group=16),
        helper.make_node("Relu", ["e"], ["e1"]),
        helper.make_node("GlobalAveragePool", ["e1"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    return nodes, {
        "w0": weight(16, 3, 3, 3),
        "w1": weight(16, 16, 3, 3),
        "w2": weight(16, 1, 3, 3),
        "w3": weight(16, 5),
    }


def words() -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """One head of attention and a sum."""
    nodes = [
        *(helper.make_node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
        helper.make_node("MatMul", ["o", "wo"], ["o1"]),
        helper.make_node("Add", ["o1", "x"], ["y"]),
    ]
    return nodes, {f"w{name}": weight(32, 32) for name in "qkvo"}


def model(kind: str) -> onnx.ModelProto:
    nodes, weights = images() if kind == "images" else words()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, OPEN[kind])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, kind, [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(shape: tuple[int, ...]) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


class Calibration(CalibrationDataReader):  # type: ignore[misc]  # of a library without types
    """A few inputs of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._rows: Iterator[dict[str, Array]] = iter([{"x": data(shape)} for _ in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._rows, None)


def outputs(module: Any, params: Any, shapes: list[tuple[int, ...]], file: str) -> Iterator[tuple[Array, Array]]:
    """Ours of one build, and ONNX Runtime's as the file is written, at each shape. Any: a module, arrays."""
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, plain)
    with PassContext(opt_level=3):
        executor = relay.build(module, target="llvm", params=params)["default"](armillary.cpu())
    for shape in (*shapes, shapes[0]):
        x = data(shape)
        executor.set_input("x", x)
        executor.run()
        yield executor.get_output(0).numpy().astype(np.float32), session.run(None, {"x": x})[0]


@pytest.mark.parametrize("kind", ["images", "words"])
def test_a_quantised_network_equals_onnx_runtime_at_every_size(kind: str, tmp_path: Path) -> None:
    plain, file = tmp_path / "plain.onnx", tmp_path / "qdq.onnx"
    onnx.save(model(kind), plain)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(plain, file, Calibration(SHAPES[kind][0]), quant_format=QuantFormat.QDQ, **types)
    for ours, theirs in outputs(*relay.frontend.from_onnx(str(file)), SHAPES[kind], str(file)):
        quantum = np.diff(np.unique(theirs)).min()  # a sum that lies on half a step may round either way
        assert ours.shape == theirs.shape and np.abs(ours - theirs).max() <= 1.01 * quantum
        assert (ours != theirs).mean() < 0.01


@pytest.mark.parametrize(("dtype", "most"), [("float16", 4e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("kind", ["images", "words"])
def test_mixed_precision_is_right_at_every_size(kind: str, dtype: str, most: float, tmp_path: Path) -> None:
    file = tmp_path / "plain.onnx"
    onnx.save(model(kind), file)
    module, params = relay.frontend.from_onnx(str(file))
    mixed = relay.transform.ToMixedPrecision(dtype)(relay.transform.InferType()(module))
    for ours, theirs in outputs(mixed, params, SHAPES[kind], str(file)):
        assert ours.shape == theirs.shape and np.abs(ours - theirs).max() <= most * np.abs(theirs).max()
