"""Quantised operators: compiled code equals the references bit for bit, and ONNX models agree with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary import relay
from armillary.backend import prepare
from armillary.backend.compiled import Engine
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Function, Tuple, Var
from armillary.relay.op import OPS, Sample
from armillary.relay.types import TensorType

SEED = 20240915
QNN = [name for name in sorted(OPS) if name.startswith("qnn.")]
SAMPLES = [(name, k, s) for name in QNN for k, s in enumerate(OPS[name].sample_source())]


def _argument(value: Any, sample: Sample, name: str, feed: dict[str, Any], rng: np.random.Generator) -> Any:
    """Random tensors become inputs, given values constants."""
    if isinstance(value, tuple):
        return Tuple(tuple(_argument(v, sample, f"{name}_{k}", feed, rng) for k, v in enumerate(value)))
    if not isinstance(value, TensorType):
        return Constant(np.asarray(value))
    low, high = sample.domain
    if value.dtype.is_int:
        data = rng.integers(max(int(low), value.dtype.min_value), min(int(high), value.dtype.max_value), value.static)
    else:
        data = rng.uniform(low, high, value.static)
    feed[name] = np.asarray(data).astype(value.dtype.numpy)
    return Var(name, value)


@pytest.mark.parametrize(("name", "number", "sample"), SAMPLES, ids=[f"{n}-{k}" for n, k, _ in SAMPLES])
def test_compiled_operator_equals_its_reference_exactly(name: str, number: int, sample: Sample) -> None:
    feed: dict[str, Any] = {}
    rng = np.random.default_rng(SEED + number)
    args = tuple(_argument(v, sample, f"x{k}", feed, rng) for k, v in enumerate(sample.inputs))
    params = tuple(v for a in args for v in (a.fields if isinstance(a, Tuple) else (a,)) if isinstance(v, Var))
    module = IRModule({"main": Function(params, Call(OPS[name], args, sample.attrs))})
    want = evaluate(module["main"], feed)
    (got,) = Engine(module)(feed)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want, err_msg=f"seed {SEED + number}")


def test_quantised_convolution_follows_the_real_one() -> None:
    """A chain conv, bias, requantize differs from the float network by at most one step of the output's scale."""
    rng = np.random.default_rng(SEED)
    x, w = rng.uniform(-1, 1, (1, 8, 9, 9)), rng.uniform(-1, 1, (6, 8, 3, 3))
    xs, ws, ys = np.float32(2 / 255), np.abs(w).max((1, 2, 3)).astype(np.float32) / np.float32(127), np.float32(0.1)
    xq = np.clip(np.round(x / xs) + 128, 0, 255).astype(np.uint8)
    wq = np.clip(np.round(w / ws[:, None, None, None]), -127, 127).astype(np.int8)
    data = relay.var("x", shape=xq.shape, dtype="uint8")
    zero, none = relay.const(np.int32(128)), relay.const(np.int32(0))
    y = relay.qnn.op.conv2d(
        data, relay.const(wq), zero, none, relay.const(xs), relay.const(ws), (3, 3), 6, padding=(1, 1)
    )
    y = relay.qnn.op.requantize(y, relay.const(xs * ws), none, relay.const(ys), none, axis=1, out_dtype="int8")
    (got,) = Engine(IRModule({"main": Function((data,), y)}))({"x": xq})
    real = (xq.astype(np.float64) - 128) * xs, wq * ws.astype(np.float64)[:, None, None, None]
    exact = OPS["nn.conv2d"].evaluate(OPS["nn.conv2d"].make_attrs((), {"padding": (1, 1)}), real)
    assert got.dtype == np.int8
    assert np.abs(got * ys - exact)[np.abs(exact) < 127 * ys].max() <= ys * 0.51, f"seed {SEED}"


def _onnx_model() -> tuple[Any, np.ndarray[Any, Any]]:
    """QuantizeLinear, QLinearConv with weights per channel, QLinearMatMul over a pooled vector, DequantizeLinear."""
    rng = np.random.default_rng(SEED)
    values = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "w": rng.integers(-90, 90, (4, 3, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.005, 0.02, 4).astype(np.float32),
        "wz": np.zeros(4, np.int8),
        "ys": np.float32(0.05),
        "yz": np.uint8(100),
        "b": rng.integers(-900, 900, 4).astype(np.int32),
        "m": rng.integers(0, 255, (36, 5)).astype(np.uint8),
        "ms": np.float32(0.01),
        "mz": np.uint8(128),
        "os": np.float32(0.2),
        "oz": np.uint8(111),
        "flat": np.array([4, 36], np.int64),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "flat"], ["r"]),
        helper.make_node("QLinearMatMul", ["r", "ys", "yz", "m", "ms", "mz", "os", "oz"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "os", "oz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, rng.uniform(-2, 2, (1, 3, 6, 6)).astype(np.float32)


@pytest.mark.parametrize("engine", ["reference", "armillary"])
def test_quantised_onnx_model_agrees_with_onnxruntime(engine: str) -> None:
    model, x = _onnx_model()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    (got,) = prepare(model, engine=engine).run([x])
    np.testing.assert_allclose(got, want, atol=0.2 + 1e-6, err_msg=f"one step of the output's scale; seed {SEED}")
    assert (got == want).mean() > 0.9


def test_an_axis_of_a_fixed_point_multiplication_that_is_not_there_is_refused() -> None:
    x, vector = relay.var("x", shape=(2, 3), dtype="int32"), relay.var("v", shape=(3,), dtype="int32")
    with pytest.raises(TypeMismatch, match=r"axis 2 is not in \[-2, 1\]"):
        relay.fixed_point_multiply_per_axis(x, vector, vector, vector, False, False, [2]).checked_type  # noqa: B018
