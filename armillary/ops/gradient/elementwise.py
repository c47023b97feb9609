"""Gradients of operators that work element by element.

In: a call and the gradient of its result. Out: the gradients of its arguments; arguments that were broadcast get sums.
Invariant: comparisons, roundings and logic have no gradient: None for each argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from armillary.ops.gradient.rules import Grads, collapse, number, ones_like, op, rule_of, tensor, zeros_like
from armillary.relay.expr import Call, Expr

Slope = Callable[[Expr, Expr], Expr]  # of an argument and the result


def _one(x: Expr) -> Expr:
    return number(1.0, x)


def _square(x: Expr) -> Expr:
    return x * x


def _log_slope(base: float) -> Slope:
    return lambda x, _: number(1.0 / math.log(base), x) / x


# The slope of each function of one argument, from the argument and the function's result.
_SLOPES: dict[str, Slope] = {
    "acos": lambda x, _: op("negative", op("rsqrt", _one(x) - _square(x))),
    "acosh": lambda x, _: op("rsqrt", _square(x) - _one(x)),
    "asin": lambda x, _: op("rsqrt", _one(x) - _square(x)),
    "asinh": lambda x, _: op("rsqrt", _square(x) + _one(x)),
    "atan": lambda x, _: _one(x) / (_one(x) + _square(x)),
    "atanh": lambda x, _: _one(x) / (_one(x) - _square(x)),
    "cos": lambda x, _: op("negative", op("sin", x)),
    "cosh": lambda x, _: op("sinh", x),
    "erf": lambda x, _: number(2.0 / math.sqrt(math.pi), x) * op("exp", op("negative", _square(x))),
    "exp": lambda _, y: y,
    "log": lambda x, _: _one(x) / x,
    "log10": _log_slope(10.0),
    "log2": _log_slope(2.0),
    "negative": lambda x, _: number(-1.0, x),
    "nn.gelu": lambda x, _: _gelu_slope(x),
    "rsqrt": lambda x, y: number(-0.5, x) * y / x,
    "sigmoid": lambda x, y: y * (_one(x) - y),
    "sin": lambda x, _: op("cos", x),
    "sinh": lambda x, _: op("cosh", x),
    "sqrt": lambda x, y: number(0.5, x) / y,
    "tan": lambda x, y: _one(x) + _square(y),
    "tanh": lambda x, y: _one(x) - _square(y),
}


def _gelu_slope(x: Expr) -> Expr:
    half = number(0.5, x) * (_one(x) + op("erf", x * number(math.sqrt(0.5), x)))
    bell = op("exp", number(-0.5, x) * _square(x)) * number(1.0 / math.sqrt(2.0 * math.pi), x)
    return half + x * bell


def _by_slope(slope: Slope) -> Callable[[Call, Any], Grads]:
    return lambda call, grad: [grad * slope(call.args[0], call)]


for _name, _slope in _SLOPES.items():
    rule_of(_name)(_by_slope(_slope))


@rule_of("add")
def add(call: Call, grad: Expr) -> Grads:
    """Each gets the gradient."""
    return [collapse(grad, a) for a in call.args]


@rule_of("subtract")
def subtract(call: Call, grad: Expr) -> Grads:
    """The second gets it negated."""
    return [collapse(grad, call.args[0]), collapse(op("negative", grad), call.args[1])]


@rule_of("multiply")
def multiply(call: Call, grad: Expr) -> Grads:
    """Each gets the gradient times the other."""
    a, b = call.args
    return [collapse(grad * b, a), collapse(grad * a, b)]


@rule_of("divide")
def divide(call: Call, grad: Expr) -> Grads:
    """g / b and -g a / b²."""
    a, b = call.args
    part = grad / b
    return [collapse(part, a), collapse(op("negative", part * a / b), b)]


@rule_of("power")
def power(call: Call, grad: Expr) -> Grads:
    """g b a^(b - 1) and g log(a) a^b."""
    a, b = call.args
    base = grad * b * op("power", a, b - number(1.0, b))
    return [collapse(base, a), collapse(grad * op("log", a) * call, b)]


@rule_of("maximum", "minimum")
def extreme(call: Call, grad: Expr) -> Grads:
    """The gradient goes where the value came from; of equal values, to the first."""
    a, b = call.args
    first = op("greater_equal" if call.op.name == "maximum" else "less_equal", a, b)
    none = zeros_like(grad)
    return [collapse(op("where", first, grad, none), a), collapse(op("where", first, none, grad), b)]


@rule_of("where")
def where(call: Call, grad: Expr) -> Grads:
    """The gradient goes where the value came from."""
    chosen, a, b = call.args
    none = zeros_like(grad)
    return [None, collapse(op("where", chosen, grad, none), a), collapse(op("where", chosen, none, grad), b)]


@rule_of("abs")
def absolute(call: Call, grad: Expr) -> Grads:
    """The gradient with the argument's sign."""
    x = call.args[0]
    return [op("where", op("less", x, number(0.0, x)), op("negative", grad), grad)]


@rule_of("nn.relu")
def relu(call: Call, grad: Expr) -> Grads:
    """The gradient where the argument is positive."""
    x = call.args[0]
    return [op("where", op("greater", x, number(0.0, x)), grad, zeros_like(grad))]


@rule_of("nn.leaky_relu")
def leaky_relu(call: Call, grad: Expr) -> Grads:
    """The gradient, times alpha where the argument is negative."""
    x = call.args[0]
    return [op("where", op("less", x, number(0.0, x)), grad * number(call.attrs.alpha, x), grad)]


@rule_of("clip")
def clip(call: Call, grad: Expr) -> Grads:
    """The gradient between the limits."""
    x, attrs = call.args[0], call.attrs
    inside = op("logical_and", x >= number(attrs.a_min, x), x <= number(attrs.a_max, x))
    return [op("where", inside, grad, zeros_like(grad))]


@rule_of("cast")
def cast(call: Call, grad: Expr) -> Grads:
    """The gradient in the argument's dtype."""
    return [op("cast", grad, dtype=str(tensor(call.args[0]).dtype))]


@rule_of("cast_like")
def cast_like(call: Call, grad: Expr) -> Grads:
    """The gradient in the argument's dtype; none for what gave the dtype."""
    return [*cast(call, grad), None]


@rule_of("copy", "annotation.on_device", "device_copy", "annotation.checkpoint", "annotation.stop_fusion")
def same(call: Call, grad: object) -> Grads:
    """The gradient itself."""
    del call
    return [grad]


@rule_of("full_like", "broadcast_to_like")
def like(call: Call, grad: Expr) -> Grads:
    """What gave the shape has no gradient; what fills it gets the sum."""
    if call.op.name == "full_like":
        return [None, collapse(grad, call.args[1])]
    return [collapse(grad, call.args[0]), None]


def seed(expr: Expr) -> Expr:
    """The gradient of a result with respect to itself."""
    return ones_like(expr)
