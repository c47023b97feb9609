"""Operators that Relay and ONNX share mean what each meant: Relay's by its own names, ONNX's by the format's rules.

In: a call of each, on the values where the two differ. Out: the numbers of each. Invariant: Relay's numbers are written
here from its definitions, ONNX's come from ONNX Runtime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.expr import Expr

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0], np.float32)
LINE = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)


def run(module: armillary.IRModule, params: dict[str, Any] | None, **feeds: Array) -> Array:
    library = relay.build(module, target="llvm", params=params)
    result: Array = graph_executor.GraphModule(library["default"](armillary.cpu()))(feeds)[0]
    return result


def of_relay(call: Expr, **feeds: Array) -> Array:
    return run(armillary.IRModule.from_expr(relay.Function(relay.analysis.free_vars(call), call)), None, **feeds)


def of_onnx(kind: str, x: Array, opset: int = 18, **attrs: Any) -> tuple[Array, Array]:  # Any: ONNX's attributes
    """What ONNX Runtime gives and what a network imported from the same node gives."""
    value = helper.make_tensor_value_info
    node = helper.make_node(kind, ["x"], ["y"], **attrs)
    graph = helper.make_graph([node], "g", [value("x", 1, x.shape)], [value("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return theirs, run(*relay.frontend.from_onnx(model), x=x)


def test_round_takes_halves_away_from_zero_and_onnxs_to_even() -> None:
    relays = of_relay(relay.round(relay.var("x", shape=HALVES.shape)), x=HALVES)
    np.testing.assert_array_equal(relays, [-3, -2, -1, 1, 2, 3, 0, 8388609])
    np.testing.assert_array_equal(*of_onnx("Round", HALVES))


@pytest.mark.parametrize(
    ("method", "align_corners", "expected"),
    [
        ("nearest_neighbor", False, [0, 0, 1, 1, 2, 2, 3, 3]),
        ("bilinear", False, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),  # from corners; image.resize2d counts from centres
        ("bilinear", True, [3 * i / 7 for i in range(8)]),
    ],
)
def test_upsampling_counts_from_corners(method: str, align_corners: bool, expected: list[float]) -> None:
    call = relay.nn.upsampling(relay.var("x", shape=LINE.shape), 1, 2, method=method, align_corners=align_corners)
    np.testing.assert_allclose(of_relay(call, x=LINE).ravel(), expected, rtol=1e-6)


def test_take_cuts_indices_and_gathers_of_onnx_count_from_the_end() -> None:
    x, i = np.arange(1, 6, dtype=np.float32), np.array([-1, 5, 2], np.int32)
    data, indices = relay.var("x", shape=(5,)), relay.var("i", shape=(3,), dtype="int32")
    np.testing.assert_array_equal(of_relay(relay.take(data, indices, axis=0), x=x, i=i), [1, 5, 3])
    np.testing.assert_array_equal(of_relay(relay.take(data, indices, axis=0, mode="wrap"), x=x, i=i), [5, 1, 3])


def test_norms_are_kept_from_zero_by_the_root_of_eps() -> None:
    x = np.full((1, 3), 0.01, np.float32)
    call = relay.nn.l2_normalize(relay.var("x", shape=x.shape), 1e-3, [1])
    np.testing.assert_allclose(of_relay(call, x=x), x / np.sqrt(np.maximum((x * x).sum(), 1e-3)), rtol=1e-6)
    np.testing.assert_allclose(*of_onnx("LpNormalization", x, axis=1, p=2), rtol=1e-6)
