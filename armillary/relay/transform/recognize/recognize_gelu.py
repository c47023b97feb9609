"""recognize-gelu: the arithmetic of GELU as nn.gelu.

In: a typed module. Out: one where x / 2 * (1 + erf(x / sqrt(2))), and its tanh approximation, is nn.gelu, however
exporters order and group the factors. Invariant: the constants agree to the rounding of the expression's type, and the
values then do so; those inside the function that are farther off, as in networks that were in half precision, keep
their values in a form that is as short. An expression is read as a polynomial in x and in its erf (or tanh).

    %0 = multiply(%x, 0.70710678f);
    %1 = erf(%0);
    %2 = add(%1, 1f);
    %3 = multiply(%x, 0.5f);
    multiply(%3, %2)
    ->
    nn.gelu(%x)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from armillary.base.float_range import epsilon_of
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, const
from armillary.relay.transform._rules import call, op_name, rewrite_module, splat
from armillary.relay.types import TensorType
from armillary.transform import define_pass

Polynomial = dict[tuple[int, int], float]  # (power of x, power of the function) -> coefficient
_GELU: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
_SCALE = math.sqrt(2 / math.pi)
_INNER: dict[str, Polynomial] = {
    "erf": {(1, 0): math.sqrt(0.5)},
    "tanh": {(1, 0): _SCALE, (3, 0): 0.044715 * _SCALE},
}
_DEPTH = 8  # levels of arithmetic above and inside the function
_ROUNDINGS = 4  # of constants, each by half a unit in the last place: exporters multiply and divide some of them
_BFLOAT16_TOLERANCE = 4e-3  # how far a constant of bfloat16 is off
_LARGE = 2.0**20  # with larger factors, or smaller ones, arithmetic overflows where GELU does not


@define_pass("recognize-gelu", opt_level=2)
def recognize_gelu(module: IRModule) -> IRModule:
    """Replace the arithmetic by the operator."""
    return rewrite_module(module, _rule)


def _rule(expr: Expr) -> Expr | None:
    if not isinstance(expr, Call) or op_name(expr) not in _ARITHMETIC:
        return None
    function = _function(expr, _DEPTH)
    if function is None:
        return None
    wanted, close = _INNER[op_name(function)], _close(expr)
    for x in _bases(function.args[0]):
        inner = polynomial(function.args[0], x, None, _DEPTH)
        if x.checked_type != expr.checked_type or not _agree(inner, wanted, _BFLOAT16_TOLERANCE):
            continue
        if _agree(polynomial(expr, x, function, _DEPTH), _GELU, close):
            is_exact = _agree(inner, wanted, close)
            return _exact(x, op_name(function)) if is_exact else _rounded(x, op_name(function), inner)
    return None


def _close(expr: Call) -> float:
    """How far a product of a few constants of the expression's type may be off."""
    ty = expr.checked_type
    assert isinstance(ty, TensorType), "arithmetic has tensors"
    return _ROUNDINGS * epsilon_of(ty.dtype.numpy) / 2


def _exact(x: Expr, function: str) -> Expr:
    return call("nn.gelu", x, approximate="none" if function == "erf" else "tanh")


def _rounded(x: Expr, function: str, inner: Polynomial | None) -> Expr:
    """GELU whose constants somebody rounded: that of k x by k, or the approximation as nn.gelu computes it.

    x / 2 * (1 + erf(c x))  ->  gelu(k x) / k    where k is c * sqrt(2)
    """
    assert inner is not None, "it agreed"
    ty = x.checked_type
    assert isinstance(ty, TensorType), "arithmetic has tensors"

    def number(value: float) -> Expr:
        return const(value, str(ty.dtype))

    if function == "erf":
        k = inner[1, 0] * math.sqrt(2)
        return call("nn.gelu", x * number(k)) * number(1 / k)
    cube = x * x * number(2 * inner[3, 0])
    return x * call("sigmoid", x * (cube + number(2 * inner[1, 0])))


def _function(expr: Expr, depth: int) -> Call | None:
    """The erf or tanh inside products and sums."""
    name = op_name(expr)
    if not isinstance(expr, Call) or depth == 0:
        return None
    if name in _INNER:
        return expr
    if name not in _ARITHMETIC:
        return None
    return next((f for a in expr.args if (f := _function(a, depth - 1)) is not None), None)


def _bases(expr: Expr) -> list[Expr]:
    """What the argument of the function may be a polynomial of: what is left when factors and powers are taken off."""
    result: list[Expr] = []
    stack = [(expr, _DEPTH)]
    while stack:
        item, depth = stack.pop()
        if splat(item) is not None:
            continue
        if not any(item is f for f in result):
            result.append(item)
        if op_name(item) in _ARITHMETIC and isinstance(item, Call) and depth:
            stack.extend((a, depth - 1) for a in item.args)
    return result


def polynomial(expr: Expr, x: Expr, function: Expr | None, depth: int) -> Polynomial | None:
    """The expression as a polynomial in `x` and `function`; None when it is none."""
    number = splat(expr)
    if number is not None:
        is_usual = number == 0 or 1 / _LARGE <= abs(number) <= _LARGE
        return {(0, 0): float(number)} if is_usual else None
    if expr is x:
        return {(1, 0): 1.0}
    if expr is function:
        return {(0, 1): 1.0}
    rule = _ARITHMETIC.get(op_name(expr))
    if not isinstance(expr, Call) or depth == 0 or rule is None:
        return None
    a = polynomial(expr.args[0], x, function, depth - 1)
    b = polynomial(expr.args[1], x, function, depth - 1)
    return None if a is None or b is None else rule(a, b)


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    return {k: a.get(k, 0.0) + b.get(k, 0.0) for k in {**a, **b}}


def _number(a: Polynomial) -> float:
    """What a polynomial is without powers; 0 where it has some."""
    return a.get((0, 0), 0.0) if set(a) == {(0, 0)} else 0.0


def _quotient(a: Polynomial, b: Polynomial) -> Polynomial | None:
    constant = _number(b)
    return _product(a, {(0, 0): 1 / constant}) if constant else None


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for (i, j), u in a.items():
        for (k, n), v in b.items():
            total[i + k, j + n] = total.get((i + k, j + n), 0.0) + u * v
    return total


def _power(a: Polynomial, exponent: float) -> Polynomial | None:
    if exponent not in (1, 2, 3):
        return None
    result = a
    for _ in range(int(exponent) - 1):
        result = _product(result, a)
    return result


def _agree(polynomial: Polynomial | None, wanted: Polynomial, tolerance: float) -> bool:
    """Whether two polynomials have the same coefficients."""
    if polynomial is None:
        return False
    terms = {**polynomial, **wanted}
    return all(abs(polynomial.get(k, 0.0) - wanted.get(k, 0.0)) <= tolerance * abs(wanted.get(k, 1.0)) for k in terms)


_ARITHMETIC: dict[str, Callable[[Polynomial, Polynomial], Polynomial | None]] = {
    "add": _plus,
    "multiply": _product,
    "divide": _quotient,
    "power": lambda a, b: _power(a, _number(b)),
}
