"""ONNX activation functions and Dropout: each as a few elementwise operators, which fuse into one kernel.

In: nodes of any opset; defaults are those of the specification. Out: an expression of the input's shape and dtype.
Invariant: no intermediate overflows where the function itself is finite (exponentials are taken of values <= 0 or
are clipped by relu). Softmax: softmax.py.
"""

from __future__ import annotations

import math

from armillary.errors import UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import one_way
from armillary.ops.nn._windows import call, type_of
from armillary.relay.expr import Expr, const
from armillary.relay.types import AnyDim


def scalar(value: float, like: Expr) -> Expr:
    """A constant of the dtype of `like`."""
    return const(value, type_of(like).dtype)


def elu_of(x: Expr, alpha: float = 1.0) -> Expr:
    """x where it is not below 0, else alpha * (exp(x) - 1): as relu(x) - alpha * max(0, 1 - exp(x)), if 0 times alpha
    is 0, which needs no comparison."""
    if math.isfinite(alpha):
        part = call("nn.relu", scalar(1.0, x) - call("exp", x))
        return call("nn.relu", x) - (part if alpha == 1.0 else part * alpha)
    return call("where", x < scalar(0.0, x), (call("exp", x) - 1.0) * alpha, x)


def softplus_of(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow: relu(x) + log1p(e), e = exp(-abs(x)).

    What rounding loses of u = 1 + e is made good: log1p(e) is log(u) * e / (u - 1), and e where u is 1.
    """
    shrunk = call("exp", -call("abs", x))
    more = shrunk + 1.0
    exact = call("log", more) * (shrunk / (more - 1.0))
    return call("nn.relu", x) + call("where", call("equal", more, scalar(1.0, x)), shrunk, exact)


def gelu_of(x: Expr, approximate: str = "none") -> Expr:
    """x times the normal distribution function, or its tanh approximation."""
    return call("nn.gelu", x, approximate=approximate)


@from_onnx("Relu")
def relu(node: OnnxNode) -> Expr:
    return call("nn.relu", node.input(0))


@from_onnx("LeakyRelu")
def leaky_relu(node: OnnxNode) -> Expr:
    return call("nn.leaky_relu", node.input(0), alpha=node.float("alpha", 0.01))


@from_onnx("PRelu")
def prelu(node: OnnxNode) -> Expr:
    """The slope is broadcast to the data; one, or one per channel, becomes nn.prelu. Before opset 7 it is (C,)."""
    x, slope = node.input(0), node.input(1)
    data, ty = node.type_of(0), node.type_of(1)
    if node.opset < 7 and ty.ndim == 1 and data.ndim > 1:
        return call("nn.prelu", x, slope, axis=1)
    channel = data.ndim - ty.ndim == 1 and all(d == 1 for d in ty.shape[1:]) and ty.shape[:1] == data.shape[1:2]
    if channel and not isinstance(ty.shape[0], AnyDim):
        return call("nn.prelu", x, call("reshape", slope, newshape=(-1,)), axis=1)
    if data.ndim >= ty.ndim and all(d == 1 for d in ty.shape):
        return call("nn.prelu", x, call("reshape", slope, newshape=(1,)), axis=-1)
    return call("where", x < scalar(0, x), x * one_way(node, 1, type_of(x).shape), x)


@from_onnx("Elu")
def elu(node: OnnxNode) -> Expr:
    return elu_of(node.input(0), node.float("alpha", 1.0))


@from_onnx("Selu")
def selu(node: OnnxNode) -> Expr:
    """0 is on the side of the exponential: gamma * (alpha * 1 - alpha)."""
    x = node.input(0)
    old = node.opset < 6
    alpha: float = node.float("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma: float = node.float("gamma", 1.0507 if old else 1.05070102214813232421875)
    if math.isfinite(alpha):
        return elu_of(x, alpha) * gamma
    return call("where", x > scalar(0.0, x), x, (call("exp", x) - 1.0) * alpha) * gamma


@from_onnx("Celu")
def celu(node: OnnxNode) -> Expr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); with an alpha above 0 the signs tell which part it is."""
    x = node.input(0)
    alpha: float = node.float("alpha", 1.0)
    power = call("exp", x / alpha)
    if 0 < alpha < math.inf:
        return call("nn.relu", x) - call("nn.relu", scalar(1.0, x) - power) * alpha
    return call("nn.relu", x) + call("minimum", (power - 1.0) * alpha, scalar(0.0, x))


@from_onnx("Gelu", since=20)
@from_onnx("Gelu", domain="com.microsoft")
def gelu(node: OnnxNode) -> Expr:
    return gelu_of(node.input(0), node.string("approximate", "none") or "none")


@from_onnx("HardSigmoid")
def hard_sigmoid(node: OnnxNode) -> Expr:
    x = node.input(0)
    return call("clip", x * node.float("alpha", 0.2) + node.float("beta", 0.5), a_min=0.0, a_max=1.0)


@from_onnx("HardSwish")
def hard_swish(node: OnnxNode) -> Expr:
    x = node.input(0)
    return x * call("clip", x * (1.0 / 6.0) + 0.5, a_min=0.0, a_max=1.0)


@from_onnx("Softplus")
def softplus(node: OnnxNode) -> Expr:
    return softplus_of(node.input(0))


@from_onnx("Softsign")
def softsign(node: OnnxNode) -> Expr:
    x = node.input(0)
    return x / (call("abs", x) + 1.0)


@from_onnx("Mish")
def mish(node: OnnxNode) -> Expr:
    x = node.input(0)
    return x * call("tanh", softplus_of(x))


@from_onnx("ThresholdedRelu")
def thresholded_relu(node: OnnxNode) -> Expr:
    x = node.input(0)
    return call("where", x > scalar(node.float("alpha", 1.0), x), x, scalar(0, x))


@from_onnx("Swish")
def swish(node: OnnxNode) -> Expr:
    x, alpha = node.input(0), node.float("alpha", 1.0)
    return x * call("sigmoid", x if alpha == 1.0 else x * alpha)


@from_onnx("Shrink")
def shrink(node: OnnxNode) -> Expr:
    x, bias, limit = node.input(0), node.float("bias", 0.0), node.float("lambd", 0.5)
    kind = type_of(x).dtype
    if kind.is_int:  # compared and shifted as real numbers, then truncated, as the specification's reference does
        wide = call("cast", x, dtype="float32")
        return call("cast", _shrunk(wide, bias, limit), dtype=kind)
    return _shrunk(x, bias, limit)


def _shrunk(x: Expr, bias: float, limit: float) -> Expr:
    upper = call("where", x > scalar(limit, x), x - bias, scalar(0, x))
    return call("where", x < scalar(-limit, x), x + bias, upper)


@from_onnx("Dropout")
def dropout(node: OnnxNode) -> list[Expr]:
    """The input, and a mask of ones. Training mode is refused, unless its ratio is 0."""
    x = node.input(0)
    training = node.optional_const(2, "training_mode") if node.opset >= 12 else None
    if training is not None and bool(training):
        ratio = node.optional_const(1, "ratio")
        if ratio is None or float(ratio) != 0.0:
            raise UnsupportedError(f"Dropout node {node.name!r} is in training mode", hint="export for inference")
    if len(node.outputs) < 2 or not node.outputs[1]:
        return [x]
    dtype = "bool" if node.opset >= 10 else type_of(x).dtype
    return [x, call("full", const(True if dtype == "bool" else 1.0, dtype), shape=type_of(x).static, dtype=dtype)]
