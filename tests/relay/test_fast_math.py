"""The short formulas keep the errors that `ops/elementwise/fast_math.py` states, compiled, over the whole range."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import armillary as tvm
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.op import get_op
from armillary.transform import PassContext

_erf = np.vectorize(math.erf)


def compiled(name: str, value: np.ndarray, target: str = "llvm") -> np.ndarray:
    x = relay.var("x", shape=value.shape)
    graph = GraphModule(relay.build(IRModule.from_expr(Function([x], get_op(name)(x))), target)["default"](tvm.cpu(0)))
    graph.run(x=value)
    result: np.ndarray = graph.get_output(0).numpy()
    return result


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    ("name", "exact", "limit", "error"),
    [
        ("fast_exp", np.exp, 86.9, 7e-6),
        ("fast_tanh", np.tanh, 20.0, 3e-6),
        ("fast_erf", _erf, 8.0, 3e-6),
    ],
)
def test_relative_errors(
    name: str, exact: Callable[[np.ndarray], np.ndarray], limit: float, error: float, target: str
) -> None:
    small = np.geomspace(1e-30, limit, 5000)
    value = np.concatenate([small, -small, np.linspace(-limit, limit, 20001)]).astype("float32")
    want = exact(value.astype("float64"))
    got = compiled(name, value, target)
    assert np.max(np.abs(got - want) / np.maximum(np.abs(want), 1e-37)) <= error


def test_what_lies_outside_the_range_stays_at_its_ends() -> None:
    ends = compiled("fast_exp", np.array([1e5, np.inf, -1e5, -np.inf, np.nan], "float32"))
    assert ends[0] == ends[1] == pytest.approx(math.exp(88), rel=1e-5)
    assert ends[2] == ends[3] == pytest.approx(math.exp(-87), rel=1e-5)
    assert np.isnan(ends[4])
    assert compiled("fast_tanh", np.array([np.inf, -np.inf], "float32")) == pytest.approx([1, -1], rel=3e-6)


def test_rows_of_softmax_sum_to_one_and_follow_the_exact_one() -> None:
    value = np.random.default_rng(3).uniform(-30, 30, (7, 33)).astype("float32")
    got = compiled("nn.fast_softmax", value)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(got, compiled("nn.softmax", value), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(("level", "expected"), [(3, "nn.softmax"), (4, "nn.fast_softmax")])
def test_level_four_uses_them(level: int, expected: str) -> None:
    x = relay.var("x", shape=(2, 5))
    module = IRModule.from_expr(Function([x], Call(get_op("nn.softmax"), (x,), get_op("nn.softmax").make_attrs())))
    with PassContext(level):
        assert f" {expected}(" in relay.build(module, "llvm").get_source("relay")
