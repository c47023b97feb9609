"""Products of many terms: not further from float64 than ONNX Runtime's, whatever is left of a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]


def theirs(x: Array, w: Array) -> Array:
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", 1, x.shape)], [value("y", 1, (len(x), len(w)))]
    weight = numpy_helper.from_array(w.T.copy(), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": x})[0]
    return result


def ours(x: Array, w: Array, is_constant: bool) -> Array:
    data, weight = relay.var("x", shape=x.shape), relay.var("w", shape=w.shape)
    free = [data] if is_constant else [data, weight]
    function = relay.Function(free, relay.nn.dense(data, relay.const(w) if is_constant else weight))
    library = relay.build(armillary.IRModule.from_expr(function), target="llvm")
    feeds = {"x": x} if is_constant else {"x": x, "w": w}
    result: Array = graph_executor.GraphModule(library["default"](armillary.cpu()))(feeds)[0]
    return result


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("shape", [(1, 4, 100000), (3, 2, 400003), (64, 4, 100000), (8, 4, 65537), (1, 1, 4096 * 16)])
def test_long_sums_lose_no_more_than_onnx_runtimes(shape: tuple[int, int, int], is_constant: bool) -> None:
    rows, columns, terms = shape
    rng = np.random.default_rng(terms)
    x, w = rng.random((rows, terms), np.float32), rng.random((columns, terms), np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    mine, other = (np.abs(y / exact - 1).max() for y in (ours(x, w, is_constant), theirs(x, w)))
    assert mine <= max(other, 3e-7), (mine, other)
    assert mine < 3e-7


@pytest.mark.parametrize("terms", [255, 4095, 4096, 4097, 6143, 8192, 12289])
def test_parts_and_what_is_left_of_them_are_added(terms: int) -> None:
    rng = np.random.default_rng(terms)
    x, w = rng.standard_normal((5, terms), np.float32), rng.standard_normal((3, terms), np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(ours(x, w, False), exact, atol=1e-5 * terms**0.5)


@pytest.mark.parametrize("shape", [(8, 15, 100003), (64, 5, 100003), (64, 24, 8191), (9, 100, 2039)])
def test_a_prime_number_of_terms_is_summed_in_parts_too(shape: tuple[int, int, int]) -> None:
    rows, columns, terms = shape
    rng = np.random.default_rng(terms)
    x, w = rng.standard_normal((rows, terms), np.float32), rng.standard_normal((columns, terms), np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    mine, other = (np.abs(y - exact).mean() for y in (ours(x, w, True), theirs(x, w)))
    assert mine <= 1.25 * other, (mine, other)  # of one sum for all terms 2 to 14 times
