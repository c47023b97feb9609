"""Factors of channels that go into weights which are inputs: the value stays, and the products by channel are gone."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.ir import IRModule, assert_structural_equal
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from armillary.relay.walk import post_order

RANDOM = np.random.default_rng(7)


def factor(*shape: int, sign: float = 1.0) -> Expr:
    return relay.const((sign * RANDOM.uniform(0.5, 1.5, shape)).astype("float32"))


def var(name: str, *shape: int) -> Expr:
    return relay.var(name, shape=shape)


def function_of(body: Expr) -> Function:
    return relay.Function(relay.analysis.free_vars(body), body)


def folded(body: Expr, pass_: object) -> Function:
    return pass_(IRModule.from_expr(function_of(body)))["main"]  # type: ignore[operator]


def values(function: Function, inputs: list[np.ndarray]) -> np.ndarray:
    return np.asarray(relay.create_executor("graph", IRModule.from_expr(function)).evaluate()(*inputs).numpy())


def check(body: Expr, pass_: object) -> list[str]:
    """The values agree; the operators behind the products of weights, in order."""
    before, after = function_of(body), folded(body, pass_)
    inputs = [RANDOM.standard_normal(p.type_annotation.concrete_shape).astype("float32") for p in before.params]
    np.testing.assert_allclose(values(after, inputs), values(before, inputs), rtol=2e-4, atol=1e-4)
    return [e.op.name for e in post_order(after) if isinstance(e, Call)]


def conv(data: Expr, weight: Expr, **attrs: object) -> Expr:
    return relay.nn.conv2d(data, weight, padding=(1, 1), **attrs)


def test_a_factor_behind_goes_through_relu_and_both_sides_of_a_sum() -> None:
    x, bias = var("x", 1, 3, 6, 6), var("b", 5, 1, 1)
    first = relay.nn.relu(relay.add(conv(x, var("v", 5, 3, 3, 3)), bias))
    second = relay.nn.bias_add(conv(x, var("w", 5, 3, 3, 3)), var("c", 5))
    names = check(relay.multiply(relay.nn.relu(first + second), factor(5, 1, 1)), BackwardFoldScaleAxis())
    assert names[-1] == "nn.relu" and names.count("multiply") == 4, "of two weights and two biases"


def test_a_factor_before_goes_into_all_readers() -> None:
    x, bias = var("x", 1, 6, 6, 4), var("b", 4)
    y = relay.subtract(relay.nn.relu(relay.multiply(factor(4), x)), bias)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    wide = conv(y, var("v", 3, 3, 4, 4), **layouts)
    deep = conv(y, var("w", 3, 3, 1, 4), groups=4, **layouts)
    names = check(wide + deep, ForwardFoldScaleAxis())
    assert names[0] == "nn.relu" and names.count("multiply") == 2 and "divide" in names
    assert "multiply" in check(relay.multiply(wide, y), ForwardFoldScaleAxis()), "one reader needs the product"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_blocks_of_channels_and_dense_layers(sign: float) -> None:
    x, w = var("x", 1, 2, 6, 6, 2), var("w", 2, 4, 3, 3, 1, 4)
    blocks = {"data_layout": "NCHW2c", "kernel_layout": "OIHW1i4o", "out_layout": "NCHW4c"}
    scaled = relay.nn.conv2d(relay.multiply(x, factor(1, 2, 1, 1, 2, sign=sign)), w, padding=(1, 1), **blocks)
    after = folded(relay.multiply(scaled, factor(2, 1, 1, 4, sign=sign)), FoldScaleAxis())
    assert after.body.op.name == "nn.conv2d" and after.body.args[0] is after.params[0]
    rows = relay.nn.dense(relay.multiply(var("x", 3, 4), factor(4, sign=sign)), var("w", 5, 4))
    names = check(relay.multiply(rows, factor(5, sign=sign)), FoldScaleAxis())
    assert names[-1] == "nn.dense" and names.count("multiply") == 2


def test_volumes() -> None:
    x, w = var("x", 1, 2, 4, 5, 6), var("w", 3, 2, 3, 3, 3)
    y = relay.nn.conv3d(relay.multiply(x, factor(2, 1, 1, 1)), w, padding=(1, 1, 1))
    names = check(relay.multiply(y, factor(3, 1, 1, 1)), FoldScaleAxis())
    assert names[-1] == "nn.conv3d" and names.count("multiply") == 2


def test_factors_that_may_not_pass_stay() -> None:
    x, w, bias = var("x", 1, 3, 6, 6), var("w", 3, 3, 3, 3), var("b", 3, 1, 1)
    zero = relay.const(np.array([1, 0, 2], "float32").reshape(3, 1, 1))
    y = conv(x, w)
    for body, pass_ in (
        (relay.multiply(relay.nn.relu(y), factor(3, 1, 1, sign=-1.0)), BackwardFoldScaleAxis()),
        (relay.multiply(relay.nn.relu(y), var("s", 3, 1, 1)), BackwardFoldScaleAxis()),
        (relay.multiply(y, factor(1, 3, 6, 6)), BackwardFoldScaleAxis()),
        (relay.multiply(y, factor(3, 1, 1)) + y, BackwardFoldScaleAxis()),
        (conv(relay.add(relay.multiply(x, zero), bias), w), ForwardFoldScaleAxis()),
        (conv(relay.nn.relu(relay.multiply(x, var("s", 3, 1, 1))), w), ForwardFoldScaleAxis()),
    ):
        after = folded(body, pass_)
        assert_structural_equal(after, relay.transform.InferType()(IRModule.from_expr(function_of(body)))["main"])


def test_a_build_leaves_weights_that_are_inputs_alone() -> None:
    body = relay.multiply(conv(var("x", 1, 3, 6, 6), var("w", 4, 3, 3, 3)), factor(4, 1, 1))
    assert folded(body, FoldScaleAxis(constant_weights=True)).body.op.name == "multiply"
