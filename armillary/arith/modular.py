"""What is known of an integer expression's remainders: x = coeff * k + base for some integer k.

In: an expression, what is known of its variables, which values are known not to be negative. Out: `ModularSet`.
Invariant: sound where index arithmetic does not overflow; narrow and unsigned types keep only what wrapping keeps, the
powers of two. coeff 0 says that the value is `base`. Asked by `analyzer.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from armillary.base.node import Rules
from armillary.base.record import record
from armillary.tir import expr as E
from armillary.tir.substitute import substitute_expr

_NON_NEGATIVE = Callable[[E.Expr], bool]
_Of = Callable[[E.Expr], "ModularSet"]


@record
class ModularSet:
    """The integers coeff * k + base, with 0 <= base < coeff; coeff 0: base alone."""

    coeff: int
    base: int


ANYTHING = ModularSet(1, 0)


def normal(coeff: int, base: int) -> ModularSet:
    """The set in its one form."""
    coeff = abs(coeff)
    return ModularSet(coeff, base % coeff if coeff else base)


def either(a: ModularSet, b: ModularSet) -> ModularSet:
    """One of the two holds."""
    return normal(math.gcd(a.coeff, b.coeff, abs(a.base - b.base)), a.base)


def both(a: ModularSet, b: ModularSet) -> ModularSet:
    """Both hold (the Chinese remainder theorem); a contradiction keeps the first."""
    if a.coeff == 0 or b.coeff == 0:
        return a if a.coeff == 0 else b
    common = math.gcd(a.coeff, b.coeff)
    if (b.base - a.base) % common:
        return a
    step = (b.base - a.base) // common * pow(a.coeff // common, -1, b.coeff // common) if b.coeff > common else 0
    return normal(a.coeff // common * b.coeff, a.base + a.coeff * step)


def modular_set(root: E.Expr, known: Mapping[E.Var, ModularSet], is_non_negative: _NON_NEGATIVE) -> ModularSet:
    """What follows for an expression from what is known of its variables."""
    memo: dict[int, ModularSet] = {}

    def of(item: E.Expr) -> ModularSet:
        result = memo.get(id(item))
        if result is None:
            if isinstance(item, E.Let):
                result = of(substitute_expr(item.body, {item.var: item.value}))
            elif isinstance(item, E.Var):
                result = known.get(item, ANYTHING)
            else:
                rule = _RULES.get(type(item))
                result = rule(item, of, is_non_negative) if rule is not None else ANYTHING
                result = _wrapped(item, result)
            memo[id(item)] = result
        return result

    return of(root)


def _wrapped(item: E.Expr, residues: ModularSet) -> ModularSet:
    """Of a type that wraps only the powers of two are left."""
    dtype = item.dtype
    if residues.coeff == 0 or (dtype.code == "int" and dtype.bits >= 32) or not (dtype.is_int or dtype.is_bool):
        return residues
    return normal(math.gcd(residues.coeff, 1 << dtype.bits), residues.base)


def _sum(item: E.Binary, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    a, b = of(item.a), of(item.b)
    return normal(math.gcd(a.coeff, b.coeff), a.base + b.base if type(item) is E.Add else a.base - b.base)


def _product(item: E.Binary, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    a, b = of(item.a), of(item.b)
    return normal(math.gcd(a.coeff * b.coeff, a.coeff * b.base, a.base * b.coeff), a.base * b.base)


def _quotient(item: E.Binary, of: _Of, is_non_negative: _NON_NEGATIVE) -> ModularSet:
    a, b = of(item.a), of(item.b)
    if b.coeff or not b.base or a.coeff % b.base:
        return ANYTHING
    if type(item) is E.FloorDiv or a.base % b.base == 0 or (b.base > 0 and is_non_negative(item.a)):
        return normal(a.coeff // b.base, a.base // b.base)
    return ANYTHING


def _rest(item: E.Binary, of: _Of, is_non_negative: _NON_NEGATIVE) -> ModularSet:
    a, b = of(item.a), of(item.b)
    common = math.gcd(a.coeff, b.coeff, b.base)
    if common == 0:
        return ANYTHING
    if type(item) is E.FloorMod or a.base % common == 0 or is_non_negative(item.a):
        return normal(common, a.base)
    return ANYTHING


def _either(item: E.Binary, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    return either(of(item.a), of(item.b))


def _select(item: E.Select, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    return either(of(item.true_value), of(item.false_value))


def _cast(item: E.Cast, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    source = item.value.dtype
    return of(item.value) if source.is_int and item.dtype.is_int else ANYTHING


def _call(item: E.Call, of: _Of, _: _NON_NEGATIVE) -> ModularSet:
    if item.name == "if_then_else":
        return either(of(item.args[1]), of(item.args[2]))
    if item.name not in ("shift_right", "shift_left", "bitwise_and") or not isinstance(item.args[1], E.IntImm):
        return ANYTHING
    a, by = of(item.args[0]), item.args[1].value
    if item.name == "bitwise_and":
        return normal(math.gcd(a.coeff, by + 1), a.base) if by >= 0 and by & (by + 1) == 0 else ANYTHING
    if not 0 <= by < item.dtype.bits:
        return ANYTHING
    if item.name == "shift_left":
        return normal(a.coeff << by, a.base << by)
    return normal(a.coeff >> by, a.base >> by) if a.coeff % (1 << by) == 0 else ANYTHING


_RULES: Rules[[_Of, _NON_NEGATIVE], ModularSet] = {
    E.IntImm: lambda e, of, _: ModularSet(0, e.value),
    E.Add: _sum,
    E.Sub: _sum,
    E.Mul: _product,
    E.FloorDiv: _quotient,
    E.TruncDiv: _quotient,
    E.FloorMod: _rest,
    E.TruncMod: _rest,
    E.Min: _either,
    E.Max: _either,
    E.Select: _select,
    E.Cast: _cast,
    E.Call: _call,
    E.Broadcast: lambda e, of, _: of(e.value),
}


def implied_by(condition: E.Expr) -> tuple[E.Var, ModularSet] | None:
    """What a condition `x % c == b` says of a variable (of a truncated remainder too), else None."""
    if not isinstance(condition, E.EQ):
        return None
    for rest, value in ((condition.a, condition.b), (condition.b, condition.a)):
        if isinstance(rest, E.FloorMod | E.TruncMod) and isinstance(value, E.IntImm):
            var, size = rest.a, rest.b
            if isinstance(var, E.Var) and isinstance(size, E.IntImm) and size.value:
                return var, normal(size.value, value.value)
    return None
