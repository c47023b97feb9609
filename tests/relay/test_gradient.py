"""Gradients of operators and functions, against central differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.ops.gradient.derive import gradient
from armillary.relay.testing import check_grad, count_ops


def f64(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape, dtype="float64")


X, Y, IMAGE = f64("x", 3, 4), f64("y", 1, 4), f64("image", 1, 4, 5, 6)
SMOOTH = [
    "atan",
    "asinh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "negative",
    "sigmoid",
    "sin",
    "sinh",
    "tanh",
    "nn.gelu",
    "nn.softmax",
    "nn.log_softmax",
]
POSITIVE = ["log", "log2", "log10", "sqrt", "rsqrt"]


@pytest.mark.parametrize("name", SMOOTH + POSITIVE)
def test_functions_of_one_argument(name: str) -> None:
    made = relay.op.get(name)(X)
    check_grad(relay.Function([X], made * made), mean=4.0 if name in POSITIVE else 0.0, scale=0.3)


@pytest.mark.parametrize("name", ["acos", "asin", "atanh", "tan", "acosh"])
def test_functions_of_a_part_of_the_numbers(name: str) -> None:
    check_grad(relay.Function([X], relay.op.get(name)(X)), mean=2.0 if name == "acosh" else 0.0, scale=0.1)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum"])
def test_operators_that_broadcast(name: str) -> None:
    check_grad(relay.Function([X, Y], relay.op.get(name)(X, Y)), mean=3.0, scale=0.5)


CASES: dict[str, Callable[[], relay.Expr]] = {
    "transpose": lambda: relay.transpose(IMAGE, axes=(0, 2, 3, 1)),
    "reshape": lambda: relay.reshape(IMAGE, newshape=(4, -1)),
    "concatenate": lambda: relay.concatenate([X, X * X], axis=-1),
    "stack": lambda: relay.stack([X, X * X], axis=1),
    "split": lambda: relay.split(X, 2, axis=1)[1],
    "slice": lambda: relay.strided_slice(X, begin=[2, 0], end=[-4, 4], strides=[-1, 2]),
    "slice of sizes": lambda: relay.strided_slice(X, begin=[1, 1], end=[2, -1], slice_mode="size"),
    "pad": lambda: relay.nn.pad(X, pad_width=((1, 0), (0, 2))),
    "reverse": lambda: relay.reverse(X, axis=1),
    "take": lambda: relay.take(X, relay.const(np.array([[2, 0], [2, 1]], "int64")), axis=0),
    "take of all": lambda: relay.take(X, relay.const(np.array([5, 5, 1], "int32"))),
    "gather_nd": lambda: relay.gather_nd(X, relay.const(np.array([[0, 2, 0], [1, 3, 1]], "int64"))),
    "where": lambda: relay.where(relay.const(0.0, "float64") < X, X * X, X),
    "clip": lambda: relay.clip(X, -0.5, 0.5),
    "sum": lambda: relay.sum(X, axis=0),
    "sum of the others": lambda: relay.sum(IMAGE, axis=1, exclude=True),
    "mean": lambda: relay.mean(X, axis=1, keepdims=True),
    "variance": lambda: relay.variance(X, axis=1),
    "max": lambda: relay.max(X, axis=1),
    "prod": lambda: relay.prod(X, axis=1),
    "cumsum": lambda: relay.cumsum(X, axis=1),
    "max pooling": lambda: relay.nn.max_pool2d(IMAGE, pool_size=(3, 2), strides=(2, 2), padding=(1, 0), ceil_mode=True),
    "pooling": lambda: relay.nn.avg_pool2d(IMAGE, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True),
    "counted": lambda: relay.nn.avg_pool2d(IMAGE, pool_size=(3, 3), padding=(1, 1), count_include_pad=True),
    "global": lambda: relay.nn.global_avg_pool2d(IMAGE),
    "global max": lambda: relay.nn.global_max_pool2d(IMAGE),
    "layer_norm": lambda: relay.nn.layer_norm(X, f64("gamma", 4), f64("beta", 4)),
    "bias": lambda: relay.nn.bias_add(IMAGE, f64("bias", 4)),
    "dense": lambda: relay.nn.dense(X, f64("weight", 5, 4)),
    "matmul": lambda: relay.nn.matmul(f64("a", 4, 3), f64("b", 5, 4), transpose_a=True, transpose_b=True),
    "batch_matmul": lambda: relay.nn.batch_matmul(f64("a", 2, 3, 4), f64("b", 1, 4, 2), transpose_b=False),
    "cross_entropy": lambda: relay.nn.cross_entropy_with_logits(X, X),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_that_move_and_add(name: str) -> None:
    made = CASES[name]()
    check_grad(relay.Function(relay.analysis.free_vars(made), made))


CONVOLUTIONS = [
    ((1, 1), (0, 0), (1, 1), 1),
    ((2, 3), (1, 2), (1, 1), 2),
    ((2, 1), (1, 0, 2, 1), (2, 2), 1),
    ((1, 1), (1, 1), (1, 1), 4),
]


@pytest.mark.parametrize(("strides", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolutions(strides: object, padding: object, dilation: object, groups: int) -> None:
    weight = f64("weight", 4, 4 // groups, 2, 3)
    made = relay.nn.conv2d(
        IMAGE,
        weight,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        kernel_size=(2, 3),
        channels=4,
    )
    check_grad(relay.Function([IMAGE, weight], made))


def test_a_gradient_has_a_gradient() -> None:
    first = gradient(relay.Function([X], relay.sum(X * X * X)))
    second = relay.transform.gradient(relay.Function([X], first(X)[1][0]))
    value = np.random.default_rng(0).standard_normal((3, 4))
    _, (found,) = relay.create_executor("debug").evaluate(second)(value)
    np.testing.assert_allclose(found.numpy(), 6 * value)


def test_lets_functions_and_branches_are_opened_and_shared() -> None:
    v, inner = relay.var("v"), f64("p", 3, 4)
    square = relay.Function([inner], inner * inner)
    module = armillary.IRModule({"square": square})
    body = relay.Let(v, relay.Call(relay.GlobalVar("square"), [X]), relay.add(v, square(v)))
    function = relay.Function([X], body)
    value = np.random.default_rng(0).standard_normal((3, 4))
    _, (found,) = relay.create_executor("debug").evaluate(gradient(function, module))(value)
    np.testing.assert_allclose(found.numpy(), 2 * value + 4 * value**3)
    flag = relay.var("flag", shape=(), dtype="bool")
    chosen = relay.Function([flag, X], relay.If(flag, X * X, X))
    for yes in (True, False):
        _, (_, found) = relay.create_executor("debug").evaluate(gradient(chosen))(np.array(yes), value)
        np.testing.assert_allclose(found.numpy(), 2 * value if yes else np.ones_like(value))
    weight = f64("w", 4, 4)
    product = relay.nn.dense(X, weight)
    counts = count_ops(gradient(relay.Function([X, weight], product - relay.sum(product))))
    assert counts["nn.dense"] == 3


def test_a_compiled_gradient_is_the_interpreted_one() -> None:
    x, w = relay.var("x", shape=(2, 5)), relay.var("w", shape=(3, 5))
    function = gradient(relay.Function([x, w], relay.sum(relay.nn.relu(relay.nn.dense(x, w)))))
    values = [np.random.default_rng(k).standard_normal(s).astype("float32") for k, s in enumerate([(2, 5), (3, 5)])]
    _, compiled = relay.create_executor("graph", armillary.IRModule.from_expr(function)).evaluate()(*values)
    _, interpreted = relay.create_executor("debug").evaluate(function)(*values)
    for a, b in zip(compiled, interpreted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


def test_what_has_no_gradient_is_named_and_may_be_registered() -> None:
    function = relay.Function([X], relay.sort(X))
    with pytest.raises(UnsupportedError, match="operator sort has no gradient"):
        gradient(function)
    with pytest.raises(TypeMismatch, match="mode is 'third'"):
        gradient(function, mode="third")
    relay.op.register_gradient("fast_tanh", lambda call, grad: [grad], level=11)
    with pytest.raises(ConfigError, match="has a gradient of level 11 already"):
        relay.op.register_gradient("fast_tanh", lambda call, grad: [grad], level=11)
    x = relay.var("x", shape=(2,))
    body = gradient(relay.Function([x], relay.fast_tanh(x))).body
    assert count_ops(body) == {"fast_tanh": 1, "ones_like": 1}
