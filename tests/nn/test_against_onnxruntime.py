"""Random convolutions, poolings, products, resizes and padded windows: the references agree with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]


def _both(op: str, inputs: list[Array], constants: dict[int, Array], opset: int = 18, **attrs: Any) -> None:
    """Run one node in both; inputs listed in `constants` are initialisers."""
    names = [f"x{n}" for n in range(len(inputs) + len(constants))]
    rest = iter(inputs)
    values = [constants[n] if n in constants else next(rest) for n in range(len(names))]
    node = helper.make_node(op, names, ["y"], name="node", **attrs)
    declared = [
        helper.make_tensor_value_info(names[n], TensorProto.FLOAT, v.shape)
        for n, v in enumerate(values)
        if n not in constants
    ]
    weights = [numpy_helper.from_array(v, names[n]) for n, v in constants.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", declared, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {names[n]: v for n, v in enumerate(values) if n not in constants}
    )[0]
    module, _ = from_onnx(model)
    got = evaluate(module, inputs)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(25))
def test_random_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    inner, outer = (int(v) for v in rng.integers(1, 4, 2))
    kernel = rng.integers(1, 4, rank).tolist()
    size = (rng.integers(4, 9, rank) + 2).tolist()
    attrs: dict[str, Any] = {
        "strides": rng.integers(1, 4, rank).tolist(),
        "dilations": rng.integers(1, 3, rank).tolist(),
        "group": groups,
    }
    if seed % 3:
        attrs["pads"] = rng.integers(0, 3, 2 * rank).tolist()
    else:
        attrs["auto_pad"], attrs["dilations"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])), [1] * rank
    x, w = _normal(rng, 2, groups * inner, *size), _normal(rng, groups * outer, inner, *kernel)
    _both("Conv", [x], {1: w, 2: _normal(rng, groups * outer)}, **attrs)


@pytest.mark.parametrize("seed", range(15))
def test_random_transposed_convolution(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rank, groups = int(rng.integers(1, 3)), int(rng.choice([1, 2]))
    inner, outer = (int(v) for v in rng.integers(1, 4, 2))
    strides = rng.integers(1, 4, rank).tolist()
    attrs = {
        "strides": strides,
        "dilations": rng.integers(1, 3, rank).tolist(),
        "group": groups,
        "pads": rng.integers(0, 2, 2 * rank).tolist(),
        "output_padding": [int(rng.integers(0, s)) for s in strides],
    }
    x = _normal(rng, 1, groups * inner, *rng.integers(3, 6, rank))
    w = _normal(rng, groups * inner, outer, *rng.integers(2, 4, rank))
    _both("ConvTranspose", [x], {1: w}, **attrs)


@pytest.mark.parametrize("seed", range(24))
def test_random_pooling(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    rank = int(rng.integers(1, 4))
    op = "MaxPool" if seed % 2 else "AveragePool"
    kernel = rng.integers(1, 4, rank)
    attrs: dict[str, Any] = {
        "kernel_shape": kernel.tolist(),
        "strides": rng.integers(1, 4, rank).tolist(),
        "pads": np.tile([int(rng.integers(0, k)) for k in kernel], 2).tolist(),
        "ceil_mode": int(rng.integers(0, 2)),
    }
    if op == "AveragePool":
        attrs["count_include_pad"] = int(rng.integers(0, 2))
    _both(op, [_normal(rng, 2, 3, *(rng.integers(5, 10, rank)))], {}, 19, **attrs)


@pytest.mark.parametrize("seed", range(16))
def test_random_matmul(seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    m, k, n = (int(v) for v in rng.integers(1, 6, 3))
    batch = rng.integers(1, 4, int(rng.integers(0, 4)))
    left, right = (tuple(int(b) if rng.integers(0, 3) else 1 for b in batch) for _ in range(2))
    a, b = _normal(rng, *left, m, k), _normal(rng, *right[int(rng.integers(0, len(right) + 1)) :], k, n)
    _both("MatMul", [a, b], {})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", [(9, 13), (3, 4), (5, 10)])
def test_resize_to_sizes(mode: str, transform: str, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    sizes = np.array([1, 2, *size], np.int64)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor" if transform == "asymmetric" else "round_prefer_floor"
    empty = np.zeros(0, np.float32)
    _both("Resize", [_normal(rng, 1, 2, 6, 7)], {1: empty, 2: empty, 3: sizes}, **attrs)
