"""Darknet's activations by the names that `.cfg` files use.

In: the value of a layer. Out: Relay's operators. Invariant: what Darknet computes at inference: its leaky slope is 0.1.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.frontend.values import dtype_of, op, scalar
from armillary.relay.expr import Expr


def _mish(x: Expr) -> Expr:
    one = scalar(1, dtype_of(x))
    shrunk = op("exp", op("negative", op("abs", x)))
    return op("multiply", x, op("tanh", op("add", op("nn.relu", x), op("log", op("add", shrunk, one)))))


def _elu(x: Expr) -> Expr:
    zero, one = scalar(0, dtype_of(x)), scalar(1, dtype_of(x))
    return op("add", op("nn.relu", x), op("subtract", op("exp", op("minimum", x, zero)), one))


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "linear": lambda x: x,
    "relu": lambda x: op("nn.relu", x),
    "relu6": lambda x: op("clip", x, a_min=0.0, a_max=6.0),
    "leaky": lambda x: op("nn.leaky_relu", x, alpha=0.1),
    "relie": lambda x: op("nn.leaky_relu", x, alpha=0.01),
    "logistic": lambda x: op("sigmoid", x),
    "tanh": lambda x: op("tanh", x),
    "hardtan": lambda x: op("clip", x, a_min=-1.0, a_max=1.0),
    "swish": lambda x: op("multiply", x, op("sigmoid", x)),
    "mish": _mish,
    "elu": _elu,
    "ramp": lambda x: op("add", op("nn.relu", x), op("multiply", x, scalar(0.1, dtype_of(x)))),
}
