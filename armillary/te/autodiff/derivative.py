"""Derivatives of scalar expressions.

In: an expression and the node in it (an element of a tensor, or a variable) by which it is derived. Out: an expression,
or None where the derivative is 0 everywhere. Invariant: at ties of minima, maxima and absolute values one side's
derivative is taken; what steps (floor, comparisons, integers) has the derivative 0; other functions than those of the
table are refused. Users: `gradient.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from armillary.base.node import Node, reachable
from armillary.errors import UnsupportedError
from armillary.te import math as M
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.expr import Expr, ExprLike

_LN2, _LN10 = math.log(2.0), math.log(10.0)


def derivative(item: Expr, by: Expr) -> Expr | None:
    """The derivative of `item` by the node `by`, wherever that stands in it.

    Raises UnsupportedError where `by` reaches a function that has no rule.
    """
    memo: dict[int, Expr | None] = {}

    def of(part: Expr) -> Expr | None:
        if id(part) not in memo:
            memo[id(part)] = T.const(1, part.dtype) if part is by else _derived(part, of, by)
        return memo[id(part)]

    return of(item)


Of = Callable[[Expr], Expr | None]


def _derived(item: Expr, of: Of, by: Expr) -> Expr | None:
    if not item.dtype.is_float or isinstance(item, E.Var | E.FloatImm | E.ProducerLoad | E.BufferLoad):
        return None
    match item:
        case E.Add(a=a, b=b):
            return added(of(a), of(b))
        case E.Sub(a=a, b=b):
            return added(of(a), times(T.const(-1, b.dtype), of(b)))
        case E.Mul(a=a, b=b):
            return added(times(b, of(a)), times(a, of(b)))
        case E.Div(a=a, b=b):
            return added(times(T.div(1.0, b), of(a)), times(T.neg(T.div(a, T.mul(b, b))), of(b)))
        case E.Max(a=a, b=b):
            return _chosen(T.greater_equal(a, b), of(a), of(b))
        case E.Min(a=a, b=b):
            return _chosen(T.less_equal(a, b), of(a), of(b))
        case E.Select(condition=c, true_value=a, false_value=b):
            return _chosen(c, of(a), of(b))
        case E.Cast(value=value):
            inner = of(value)
            return None if inner is None else T.cast(inner, item.dtype)
        case E.Let(var=var, value=value, body=body):
            outer = added(of(body), times(derivative(body, var), of(value)))
            return None if outer is None else E.Let(var, value, outer)
        case E.Call():
            return _call(item, of, by)
    if _reaches(item, by):
        raise UnsupportedError(f"te.gradient: {type(item).__name__} has no derivative here")
    return None


def _call(item: E.Call, of: Of, by: Expr) -> Expr | None:
    name, args = item.name, item.args
    if name in _STEPS:
        return None
    if name == "likely":
        return of(args[0])
    if name == "if_then_else":
        yes, no = of(args[1]), of(args[2])
        if yes is None and no is None:
            return None
        return T.if_then_else(args[0], _or_zero(yes, item), _or_zero(no, item))
    if name == "pow":
        base, power = args
        by_base = times(T.mul(power, M.power(base, T.sub(power, 1.0))), of(base))
        return added(by_base, times(T.mul(item, M.log(base)), of(power)))
    if name == "fma":
        a, b, c = args
        return added(added(times(b, of(a)), times(a, of(b))), of(c))
    if name in _FACTORS and len(args) == 1:
        inner = of(args[0])
        return None if inner is None else times(T.convert(_FACTORS[name](args[0], item)), inner)
    if _reaches(item, by):
        raise UnsupportedError(f"te.gradient: the function {name!r} has no derivative here")
    return None


def _reaches(item: Node, by: Expr) -> bool:
    return any(part is by for part in reachable(item))


def added(a: Expr | None, b: Expr | None) -> Expr | None:
    """A sum of two derivatives; None is 0."""
    if a is None or b is None:
        return b if a is None else a
    return T.add(a, b)


def times(factor: Expr | None, inner: Expr | None) -> Expr | None:
    """A product of two derivatives; None is 0, and 1 changes nothing."""
    if factor is None or inner is None:
        return None
    if _is_one(inner):
        return factor
    return inner if _is_one(factor) else T.mul(factor, inner)


def _is_one(item: Expr) -> bool:
    return isinstance(item, E.FloatImm) and item.value == 1.0


def _chosen(condition: ExprLike, yes: Expr | None, no: Expr | None) -> Expr | None:
    some = yes if yes is not None else no
    return None if some is None else T.select(condition, _or_zero(yes, some), _or_zero(no, some))


def _or_zero(item: Expr | None, like: Expr) -> Expr:
    return T.const(0, like.dtype) if item is None else item


_STEPS = frozenset(("floor", "ceil", "trunc", "round", "nearbyint", "isnan", "isinf", "isfinite"))
_FACTORS: dict[str, Callable[[Expr, Expr], ExprLike]] = {  # of the argument x and the value y
    "exp": lambda x, y: y,
    "exp_flushed": lambda x, y: y,
    "exp2": lambda x, y: y * _LN2,
    "expm1": lambda x, y: y + 1.0,
    "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: 1.0 / (x * _LN2),
    "log10": lambda x, y: 1.0 / (x * _LN10),
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: -0.5 * y / x,
    "sigmoid": lambda x, y: y * (1.0 - y),
    "tanh": lambda x, y: 1.0 - y * y,
    "sin": lambda x, y: M.cos(x),
    "cos": lambda x, y: -M.sin(x),
    "tan": lambda x, y: 1.0 + y * y,
    "sinh": lambda x, y: M.cosh(x),
    "cosh": lambda x, y: M.sinh(x),
    "asin": lambda x, y: M.rsqrt(1.0 - x * x),
    "acos": lambda x, y: -M.rsqrt(1.0 - x * x),
    "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "asinh": lambda x, y: M.rsqrt(x * x + 1.0),
    "acosh": lambda x, y: M.rsqrt(x * x - 1.0),
    "atanh": lambda x, y: 1.0 / (1.0 - x * x),
    "erf": lambda x, y: M.exp(-(x * x)) * (2.0 / math.sqrt(math.pi)),
    "fabs": lambda x, y: T.select(T.greater_equal(x, 0.0), T.const(1, x.dtype), T.const(-1, x.dtype)),
    "abs": lambda x, y: T.select(T.greater_equal(x, 0.0), T.const(1, x.dtype), T.const(-1, x.dtype)),
}
