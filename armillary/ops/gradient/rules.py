"""The table of gradient rules, and what they share.

In: an operator's name and a rule `(call, gradient of its result) -> gradients of its arguments`, None where an argument
has none. Out: `GRADIENTS`, a rule for each operator. The gradient of a tuple is a list with an expression for each
field. Invariant: a rule gives one entry an argument. Where to look next: elementwise.py, shapes.py and networks.py fill
the table, derive.py reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.base.aliases import AnyFunction
from armillary.errors import ConfigError, TypeMismatch
from armillary.relay.expr import Call, Constant, Expr, const
from armillary.relay.op import get_op
from armillary.relay.types import TensorType

Grads = Sequence[Any]  # Any: an expression, None, or for a tuple a list of those
Rule = Callable[[Call, Any], Grads]
GRADIENTS: dict[str, tuple[int, Rule]] = {}


def register_gradient(op_name: str, fgradient: Rule | None = None, level: int = 10) -> AnyFunction:
    """Say how an operator is differentiated; also a decorator. Of two rules the one of the higher level holds."""

    def register(rule: Rule) -> Rule:
        old = GRADIENTS.get(op_name)
        if old is not None and old[0] == level:
            raise ConfigError(f"operator {op_name!r} has a gradient of level {level} already")
        if old is None or old[0] < level:
            GRADIENTS[op_name] = (level, rule)
        return rule

    return register(fgradient) if fgradient is not None else register


def rule_of(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: our own rule for operators; what users register stands before it."""

    def register(rule: Rule) -> Rule:
        for name in names:
            GRADIENTS.setdefault(name, (0, rule))
        return rule

    return register


def op(name: str, *args: object, **attrs: object) -> Expr:  # expressions, attribute values
    """A call of an operator by name."""
    result: Expr = get_op(name)(*args, **attrs)
    return result


def tensor(expr: Expr) -> TensorType:
    """The type of a tensor."""
    ty = expr.checked_type
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"gradient: expected a tensor, got {ty}")
    return ty


def number(value: float, like: Expr) -> Constant:
    """A scalar constant of the dtype of `like`."""
    return const(value, str(tensor(like).dtype))


def zeros_like(expr: Expr) -> Expr:
    """Zeros of the type of a tensor."""
    return op("zeros_like", expr)


def ones_like(expr: Expr) -> Expr:
    """Ones of the type of a tensor."""
    return op("ones_like", expr)


def is_static(ty: TensorType) -> bool:
    """Whether all sizes are known."""
    return all(isinstance(d, int) for d in ty.shape)


def collapse(grad: Expr, like: Expr) -> Expr:
    """The gradient of what was broadcast: added up along the axes that `like` does not have."""
    have, want = tensor(grad), tensor(like)
    if is_static(have) and is_static(want):
        return grad if have.shape == want.shape else op("collapse_sum_to", grad, shape=want.shape)
    return op("collapse_sum_like", grad, like)


def reshaped(grad: Expr, like: Expr) -> Expr:
    """The gradient in the shape of `like`."""
    want = tensor(like)
    return op("reshape", grad, newshape=want.shape) if is_static(want) else op("reshape_like", grad, like)


def normal_axis(axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    return axis % ndim if ndim else 0
