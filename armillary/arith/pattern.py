"""Patterns in expressions: linear forms in some variables, bounds of variables by conjunctions, common parts.

In: an expression, variables. Out: coefficients and a rest; lower and upper bounds; parts that occur often. Invariant:
an empty list says that the expression has no such form. The solver of whole systems: `int_solver.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.node import children, post_order
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.analysis import uses_any
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, ExprLike, Var
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import REBUILD

_OPPOSITE = {E.LT: E.GE, E.GE: E.LT, E.GT: E.LE, E.LE: E.GT, E.NE: E.EQ}
_Form = tuple[dict[Var, Expr], Expr]  # coefficients by variable, and the rest


@boundary("arith.detect_linear_equation", arguments=True)
def detect_linear_equation(expr: ExprLike, var_list: Sequence[Var]) -> list[Expr]:
    """[c1, …, cn, rest] with expr = c1 * v1 + … + cn * vn + rest, none of which has a variable of the list.

    Empty where the expression has no such form.
    """
    for var in var_list:
        Arguments("arith.detect_linear_equation").kind("var_list", var, Var, "variables")
    whole = T.convert(expr)
    form = linear_form(whole, frozenset(var_list))
    if form is None:
        return []
    coefficients, rest = form
    return [*(coefficients.get(var, T.const(0, whole.dtype)) for var in var_list), rest]


def linear_form(whole: Expr, variables: frozenset[Var]) -> _Form | None:
    """The coefficient of each variable that occurs, and what is left; None of what is not linear in them."""
    form = _form(whole, variables)
    if form is None:
        return None
    coefficients, rest = form
    simple = {var: simplify(c) for var, c in coefficients.items()}
    return {var: c for var, c in simple.items() if as_int(c) != 0}, simplify(rest)


def _form(item: Expr, variables: frozenset[Var]) -> _Form | None:
    if not uses_any(item, variables):
        return {}, item
    if isinstance(item, Var):
        return {item: T.const(1, item.dtype)}, T.const(0, item.dtype)
    if not isinstance(item, E.Add | E.Sub | E.Mul):
        return None
    a, b = _form(item.a, variables), _form(item.b, variables)
    if a is None or b is None:
        return None
    if not isinstance(item, E.Mul):
        sign = 1 if isinstance(item, E.Add) else -1
        terms = dict(a[0])
        for var, c in b[0].items():
            terms[var] = terms.get(var, T.const(0, item.dtype)) + c * sign
        return terms, a[1] + b[1] * sign
    if a[0] and b[0]:
        return None
    (terms, rest), factor = (a, b[1]) if a[0] else (b, a[1])
    return {var: c * factor for var, c in terms.items()}, rest * factor


@boundary("arith.detect_clip_bound", arguments=True)
def detect_clip_bound(expr: ExprLike, var_list: Sequence[Var]) -> list[Expr | None]:
    """[least v1, greatest v1, …] that a conjunction of comparisons says, None where it says nothing.

    Empty where a part compares no variable of the list, or several, or one with a coefficient that is no number.
    """
    for var in var_list:
        Arguments("arith.detect_clip_bound").kind("var_list", var, Var, "variables")
    ends: dict[Var, list[Expr | None]] = {var: [None, None] for var in var_list}
    for part in conjuncts(T.convert(expr)):
        for form in at_most_zero(part):
            if not _narrow(form, ends):
                return []
    return [end for var in var_list for end in ends[var]]


def _narrow(form: Expr | None, ends: dict[Var, list[Expr | None]]) -> bool:
    """Take `form <= 0` into the bounds of its one variable; False where it has not one."""
    narrowed = linear_form(form, frozenset(ends)) if form is not None else None
    if narrowed is None or len(narrowed[0]) != 1:
        return False
    ((var, coefficient),) = narrowed[0].items()
    factor, rest = as_int(coefficient), narrowed[1]
    if factor is None:
        return False
    limit = simplify(T.floordiv(-rest, factor)) if factor > 0 else simplify(T.ceildiv(rest, -factor))
    place, merge = (1, T.minimum) if factor > 0 else (0, T.maximum)
    known = ends[var][place]
    ends[var][place] = limit if known is None else simplify(merge(known, limit))
    return True


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """The parts that all hold where a condition holds."""
    if isinstance(condition, E.And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    elif isinstance(condition, E.Call) and condition.name == "likely":
        yield from conjuncts(condition.args[0])
    else:
        yield condition


def at_most_zero(condition: Expr) -> list[Expr | None]:
    """Expressions of which a comparison says that they are at most 0; [None] of what is no comparison of integers."""
    if isinstance(condition, E.Not):
        inside = condition.a
        opposite = _OPPOSITE.get(type(inside))
        if opposite is None:
            return [None]
        condition = opposite(inside.a, inside.b)  # type: ignore[attr-defined]
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE | E.EQ) or not condition.a.dtype.is_int:
        return [None]
    a, b = (condition.a, condition.b) if isinstance(condition, E.LT | E.LE | E.EQ) else (condition.b, condition.a)
    step = 1 if isinstance(condition, E.LT | E.GT) else 0
    forms = [upper - lower + step for upper in _members(a, E.Max) for lower in _members(b, E.Min)]
    return [*forms, b - a] if isinstance(condition, E.EQ) else [*forms]


def _members(item: Expr, kind: type) -> list[Expr]:
    """What a maximum or minimum chooses from."""
    if type(item) is not kind:
        return [item]
    return _members(item.a, kind) + _members(item.b, kind)  # type: ignore[attr-defined]


@boundary("arith.detect_common_subexpr", arguments=True)
def detect_common_subexpr(expr: ExprLike, threshold: int) -> dict[Expr, int]:
    """How often each part occurs that occurs at least `threshold` times; variables and numbers are none."""
    Arguments("arith.detect_common_subexpr").whole("threshold", threshold, 1)
    table = Simplifier()
    first: dict[int, Expr] = {}  # by the object that stands for equal ones
    same: dict[int, Expr] = {}
    for item in post_order(T.convert(expr)):
        if isinstance(item, Expr):
            same[id(item)] = table.intern(REBUILD[type(item)](item, lambda part: same[id(part)]))
            first.setdefault(id(same[id(item)]), item)
    order = list(post_order(same[id(item)]))  # the root was last
    times = Counter({id(order[-1]): 1})
    for item in reversed(order):
        for part in children(item):
            times[id(part)] += times[id(item)]
    leaves = Var | E.IntImm | E.FloatImm | E.StringImm
    return {
        first[key]: n
        for key, n in times.items()
        if n >= threshold and key in first and not isinstance(first[key], leaves)
    }
