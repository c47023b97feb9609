"""Quantised operators of com.microsoft agree with ONNX Runtime: integers exactly, real numbers to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_cpu import exact_session
from onnx import TensorProto, helper, numpy_helper

from armillary.backend import prepare
from armillary.errors import UnsupportedError
from armillary.frontend import from_onnx

Array = np.ndarray[Any, Any]
Parts = tuple[dict[str, Array], dict[str, Any], list[str], list[tuple[str, int]], dict[str, Any]]
MS, SEED = "com.microsoft", 20261122
F32, U8, I8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
PARAMETERS = {"xs": np.float32(0.02), "xz": np.uint8(120), "ys": np.float32(0.015), "yz": np.uint8(100)}
OTHER = {"bs": np.float32(0.03), "bz": np.uint8(9)}
UNARY, Y = ["x", "xs", "xz", "ys", "yz"], [("y", U8)]
BINARY = ["a", "xs", "xz", "b", "bs", "bz", "ys", "yz"]
RNG = np.random.default_rng(SEED)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def scales(*shape: int) -> Array:
    return RNG.uniform(0.001, 0.01, shape).astype(np.float32)


def _weight(shape: tuple[int, ...], channels: int) -> dict[str, Any]:
    per = (channels,) if channels > 1 else ()
    return {"w": i8(*shape), "ws": scales(*per), "wz": np.zeros(per, np.int8)}


def _gemm(trans_a: int, trans_b: int, channels: int, to_float: bool) -> Parts:
    weights = {**PARAMETERS, **_weight((9, 7) if trans_b else (7, 9), channels), "c": f32(9).astype(np.int32) * 300}
    order = ["x", "xs", "xz", "w", "ws", "wz", "c", *(() if to_float else ("ys", "yz"))]
    x = u8(7, 5) if trans_a else u8(5, 7)
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5}
    return {"x": x}, weights, order, [("y", F32 if to_float else U8)], attrs


def _convolution(last: int) -> Parts:
    weights = {**PARAMETERS, **_weight((4, 3, 3, 3), 4), "c": f32(4).astype(np.int32) * 300}
    weights["w"] //= 2  # ONNX Runtime has exact products for the convolution of ONNX alone: host_cpu.py
    x = u8(1, 6, 7, 3) if last else u8(1, 3, 6, 7)
    order = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "c"]
    return {"x": x}, weights, order, Y, {"pads": [1] * 4, "channels_last": last}


def _pool(last: int, **attrs: Any) -> Parts:
    return {"x": u8(1, 6, 7, 3) if last else u8(1, 3, 6, 7)}, PARAMETERS, UNARY, Y, {"channels_last": last, **attrs}


def _attention(unidirectional: int) -> Parts:
    weights = {**PARAMETERS, **_weight((8, 24), 1), "c": f32(24)}
    inputs = {"x": u8(2, 5, 8), "m": np.array([5, 3], np.int32)}
    order = ["x", "w", "c", "xs", "ws", "m", "xz", "wz"]
    return inputs, weights, order, [("y", F32)], {"num_heads": 2, "unidirectional": unidirectional}


def _attention_past() -> Parts:
    inputs, weights, order, outputs, attrs = _attention(1)
    inputs = {**inputs, "m": np.array([6, 4], np.int32), "past": f32(2, 2, 2, 1, 4)}
    return inputs, weights, [*order, "past"], [*outputs, ("present", F32)], attrs


def _embedding(quantised: bool) -> Parts:
    ids = RNG.integers(0, 20, (2, 6)).astype(np.int32)
    shapes = {"we": (20, 8), "pe": (10, 8), "se": (2, 8), "ga": (8,), "be": (8,)}
    weights: dict[str, Any] = {n: u8(*s) if quantised else f32(*s) for n, s in shapes.items()}
    order = ["ids", "seg", *shapes, "m"]
    if quantised:
        weights |= {f"{n}s": np.float32(0.02) for n in shapes} | {f"{n}z": np.uint8(100) for n in shapes}
        order += [f"{n}s" for n in shapes] + [f"{n}z" for n in shapes]
    inputs = {"ids": ids, "seg": ids % 2, "m": ids % 3}  # only 1 counts
    return inputs, weights, order, [("y", F32), ("n", I32)], {"epsilon": 1e-12}


def _lstm(directions: int, per_gate: bool) -> Parts:
    gates = (directions, 32) if per_gate else (directions,)
    weights = {"w": i8(directions, 5, 32), "r": i8(directions, 8, 32), "b": f32(directions, 64)}
    for name in "wr":
        weights |= {f"{name}s": scales(*gates), f"{name}z": np.zeros(gates, np.int8)}
    order = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    outputs = [("y", F32), ("h", F32), ("c", F32)]
    direction = "bidirectional" if directions == 2 else "forward"
    return {"x": f32(6, 2, 5)}, weights, order, outputs, {"hidden_size": 8, "direction": direction}


def _product(channels: int, dynamic: bool) -> Parts:
    weights = {**PARAMETERS, **_weight((7, 9), channels), "c": f32(9)}
    order = ["x", "w", "ws", "wz", "c"] if dynamic else ["x", "w", "xs", "ws", "xz", "wz", "c"]
    return {"x": f32(2, 5, 7) if dynamic else u8(2, 5, 7)}, weights, order, [("y", F32)], {}


def _rows(bits: int, with_points: bool) -> Parts:
    """A table of 20 rows of 40 values, in blocks of 16, packed into bytes."""
    width = 40 * bits // 8
    weights = {"t": u8(20, width), "s": scales(20, 3), "p": u8(20, -(-3 * bits // 8))}
    order = ["t", "i", "s", *(["p"] if with_points else [])]
    rows = np.array([[3, 0], [19, -1], [7, 7]], np.int64)
    return {"i": rows}, weights, order, [("y", F32)], {"bits": bits, "block_size": 16}


def _softmax(axis: int, opset: int) -> Parts:
    ends = {**PARAMETERS, "ys": np.float32(1 / 256), "yz": np.uint8(0)}
    return {"x": u8(3, 6, 10)}, ends, UNARY, Y, {"axis": axis, "opset": opset}


def _binary() -> Parts:
    return {"a": u8(5, 40), "b": u8(40)}, {**PARAMETERS, **OTHER}, BINARY, Y, {}


CASES: list[tuple[str, str, Callable[[], Parts]]] = [
    *((f"gemm-{n}", "QGemm", lambda n=n: _gemm(n & 1, n >> 1 & 1, 9 if n & 4 else 1, n >= 8)) for n in range(16)),
    *((f"convolution-{n}", "QLinearConv", lambda n=n: _convolution(n)) for n in (0, 1)),
    *(
        (
            f"average-{n}",
            "QLinearAveragePool",
            lambda n=n: _pool(n, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=n),
        )
        for n in (0, 1)
    ),
    *((f"global-{n}", "QLinearGlobalAveragePool", lambda n=n: _pool(n)) for n in (0, 1)),
    ("max", "NhwcMaxPool", lambda: ({"x": u8(1, 6, 7, 3)}, {}, ["x"], Y, {"kernel_shape": [3, 3], "pads": [1] * 4})),
    *((f"attention-{n}", "QAttention", lambda n=n: _attention(n)) for n in (0, 1)),
    ("attention-past", "QAttention", _attention_past),
    ("embedding", "EmbedLayerNormalization", lambda: _embedding(False)),
    ("quantised embedding", "QEmbedLayerNormalization", lambda: _embedding(True)),
    *((f"product-{n}", "MatMulIntegerToFloat", lambda n=n: _product(n, False)) for n in (1, 9)),
    *((f"dynamic-{n}", "DynamicQuantizeMatMul", lambda n=n: _product(n, True)) for n in (1, 9)),
    *((f"softmax{a}-{o}", "QLinearSoftmax", lambda a=a, o=o: _softmax(a, o)) for a, o in ((-1, 17), (1, 17), (1, 11))),
    ("add", "QLinearAdd", _binary),
    ("multiply", "QLinearMul", _binary),
    ("sigmoid", "QLinearSigmoid", lambda: ({"x": u8(5, 40)}, PARAMETERS, UNARY, Y, {})),
    ("leaky", "QLinearLeakyRelu", lambda: ({"x": u8(5, 40)}, PARAMETERS, UNARY, Y, {"alpha": 0.1})),
    (
        "concatenate",
        "QLinearConcat",
        lambda: ({"a": u8(5, 40), "b": u8(5, 3)}, {**PARAMETERS, **OTHER}, ["ys", "yz", *BINARY[:6]], Y, {"axis": 1}),
    ),
    (
        "where",
        "QLinearWhere",
        lambda: ({"p": u8(3, 5) > 100, "a": u8(3, 5), "b": u8(3, 1)}, {**PARAMETERS, **OTHER}, ["p", *BINARY], Y, {}),
    ),
    *((f"rows-{b}-{p}", "GatherBlockQuantized", lambda b=b, p=p: _rows(b, p)) for b in (4, 8) for p in (False, True)),
    ("quantize", "QuantizeLinear", lambda: ({"x": f32(3, 5)}, PARAMETERS, UNARY[:3], Y, {})),
    ("dequantize", "DequantizeLinear", lambda: ({"x": u8(3, 5)}, PARAMETERS, UNARY[:3], [("y", F32)], {})),
]


def _model(op_type: str, parts: Parts) -> Any:
    inputs, weights, order, outputs, attrs = parts
    node = helper.make_node(op_type, order, [name for name, _ in outputs], domain=MS, **attrs)
    used = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items() if n in order]
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, ty, None) for name, ty in outputs]
    graph = helper.make_graph([node], "one", declared, results, used)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _both(op_type: str, parts: Parts, engine: str) -> list[tuple[Array, Array]]:
    """Our outputs and ONNX Runtime's, which executes the node as it stands."""
    model = _model(op_type, parts)
    want = exact_session(model).run(None, parts[0])
    got = prepare(model, engine=engine).run(parts[0])
    assert len(got) == len(want) > 0
    return list(zip(got, want, strict=True))


@pytest.mark.parametrize("engine", ["reference", "armillary"])
@pytest.mark.parametrize(("name", "op_type", "make"), CASES, ids=[name for name, _, _ in CASES])
def test_a_node_computes_what_onnxruntime_computes(
    name: str, op_type: str, make: Callable[[], Parts], engine: str
) -> None:
    for got, want in _both(op_type, make(), engine):
        assert got.dtype == want.dtype and got.shape == want.shape
        atol = 0 if want.dtype != np.float32 else 2e-6 * float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=f"{name}, seed {SEED}")


@pytest.mark.parametrize("per_gate", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_of_quantised_weights_is_near_to_one_that_quantises_its_inputs_too(
    directions: int, per_gate: bool
) -> None:
    for got, want in _both("DynamicQuantizeLSTM", _lstm(directions, per_gate), "armillary"):
        assert got.shape == want.shape
        assert 0 < np.abs(got - want).max() < 0.02 * max(1.0, float(np.abs(want).max())), f"seed {SEED}"


def _with(parts: Parts, more: dict[str, Any], **attrs: Any) -> Parts:
    """The same with further weights at the end of its inputs, and other attributes."""
    inputs, weights, order, outputs, given = parts
    return inputs, {**weights, **more}, [*order, *more], outputs, {**given, **attrs}


REFUSED: list[tuple[str, Callable[[], Parts], str]] = [
    ("EmbedLayerNormalization", lambda: _with(_embedding(False), {}, mask_index_type=2), "mask_index_type 2"),
    ("GatherBlockQuantized", lambda: _with(_rows(4, False), {}, gather_axis=1), "only rows of integers, in blocks"),
]


@pytest.mark.parametrize(("op_type", "make", "message"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_what_is_not_implemented_is_refused(op_type: str, make: Callable[[], Parts], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(_model(op_type, make()))
