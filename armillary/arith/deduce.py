"""The values of a variable for which a condition holds: `deduce_bound`.

In: a variable, a comparison in which one side has it, sets of the other variables. Out: an interval, empty where no
bound can be told. Invariant: within the interval the condition holds, for every value of the variables to be relaxed;
the rounding of a division is on the safe side. Linear systems in several variables: `int_solver.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.arith.analyzer import Analyzer, ConstIntBound
from armillary.arith.int_set import IntervalSet, IntSet, neg_inf, nothing, pos_inf
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.analysis import uses_any, uses_var
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, ExprLike, Var
from armillary.tir.simplify import simplify

_BELOW, _ABOVE, _EQUAL = "below", "above", "equal"
_TURNED = {_BELOW: _ABOVE, _ABOVE: _BELOW, _EQUAL: _EQUAL}


@boundary("arith.deduce_bound", arguments=True)
def deduce_bound(
    var: Var, cond: ExprLike, hint_map: Mapping[Var, IntSet], relax_map: Mapping[Var, IntSet]
) -> IntervalSet:
    """The interval of `var` in which a comparison holds, for all values that `relax_map` gives to other variables.

    `hint_map` says what is known of others, that signs of factors may be told. An interval from the positive to the
    negative infinity, the empty one, says that no bound was found. Raises TypeMismatch for what is no variable.
    """
    Arguments("arith.deduce_bound").kind("var", var, Var, "a variable")
    analyzer = _analyzer(hint_map, relax_map)
    normal = _sides(T.convert(cond), var)
    if normal is None:
        return nothing()
    path, kind, bound = normal
    ends = _Solver(var, analyzer, {**hint_map, **relax_map}).solve(path, kind, bound)
    if ends is None:
        return nothing()
    low, high = (_relaxed(end, relax_map, analyzer, upper) for upper, end in enumerate(ends))
    if low is None or high is None:
        return nothing()
    is_reversed = neg_inf() not in (low, high) and pos_inf() not in (low, high) and analyzer.can_prove(low > high)
    return nothing() if is_reversed else IntervalSet(low, high)


def _analyzer(*maps: Mapping[Var, IntSet]) -> Analyzer:
    """An analyzer that knows sets of variables."""
    analyzer = Analyzer()
    for known in maps:
        for var, values in known.items():
            Arguments("arith.deduce_bound").kind("map", values, IntSet, "sets of variables")
            low, high = as_int(values.min_value), as_int(values.max_value)
            if low is not None and high is not None and low <= high:
                analyzer.update(var, ConstIntBound(low, high), override=True)
    return analyzer


def _sides(cond: Expr, var: Var) -> tuple[Expr, str, Expr] | None:
    """(side with the variable, which values of it are wanted, the bound, included)."""
    if not isinstance(cond, E.LT | E.LE | E.GT | E.GE | E.EQ) or not cond.a.dtype.is_int:
        return None
    kind = _EQUAL if isinstance(cond, E.EQ) else _BELOW if isinstance(cond, E.LT | E.LE) else _ABOVE
    a, b = cond.a, cond.b
    if uses_var(a, var) and uses_var(b, var):
        a, b = simplify(a - b), T.const(0, a.dtype)
    if uses_var(b, var):
        a, b, kind = b, a, _TURNED[kind]
    if not uses_var(a, var):
        return None
    if isinstance(cond, E.LT | E.GT):
        b = b - 1 if kind == _BELOW else b + 1
    return a, kind, b


def _relaxed(end: Expr, relax: Mapping[Var, IntSet], analyzer: Analyzer, upper: int) -> Expr | None:
    """A lower end at its greatest, an upper one at its least; None where it is not known."""
    if end is neg_inf() or end is pos_inf() or not relax or not uses_any(end, set(relax)):
        return end
    values = analyzer.int_set(end, relax)
    result = values.min_value if upper else values.max_value
    return None if result is neg_inf() or result is pos_inf() else result


class _Solver:
    """Takes apart the side of the variable, step by step."""

    def __init__(self, var: Var, analyzer: Analyzer, known: Mapping[Var, IntSet]) -> None:
        self.var, self.analyzer, self.known = var, analyzer, known

    def solve(self, item: Expr, kind: str, bound: Expr) -> tuple[Expr, Expr] | None:
        """(least, greatest) value of the variable for which `item` is below, above or equal to `bound`."""
        while item is not self.var:
            step = self._step(item, kind, bound)
            if step is None:
                return None
            item, kind, bound = step
        bound = self.analyzer.simplify(bound)
        if kind == _EQUAL:
            return bound, bound
        return (neg_inf(), bound) if kind == _BELOW else (bound, pos_inf())

    def _step(self, item: Expr, kind: str, bound: Expr) -> tuple[Expr, str, Expr] | None:
        if not isinstance(item, E.Add | E.Sub | E.Mul | E.FloorDiv):
            return None
        in_a, in_b = uses_var(item.a, self.var), uses_var(item.b, self.var)
        if in_a and in_b:
            return None
        inner, other = (item.a, item.b) if in_a else (item.b, item.a)
        if isinstance(item, E.Add):
            return inner, kind, bound - other
        if isinstance(item, E.Sub):
            return (inner, kind, bound + other) if in_a else (inner, _TURNED[kind], other - bound)
        sign = self.analyzer.sign(other)
        if sign == 0 or not self.analyzer.can_prove(T.not_equal(other, 0)):
            return None
        if isinstance(item, E.Mul):
            return self._factor(inner, kind, bound, other, sign)
        return _quotient(inner, kind, bound, as_int(other)) if in_a else None

    def _factor(self, inner: Expr, kind: str, bound: Expr, factor: Expr, sign: int) -> tuple[Expr, str, Expr] | None:
        bound = self.analyzer.simplify(bound)
        if kind == _EQUAL:
            if not self.analyzer.can_prove(T.equal(T.floormod(bound, factor), 0)):
                return None
            return inner, kind, T.floordiv(bound, factor)
        if sign < 0:
            kind = _TURNED[kind]
        if kind == _BELOW:
            return inner, kind, T.floordiv(bound, factor)
        return inner, kind, T.ceildiv(bound, factor) if sign > 0 else T.floordiv(bound + factor + 1, factor)


def _quotient(inner: Expr, kind: str, bound: Expr, divisor: int | None) -> tuple[Expr, str, Expr] | None:
    """inner // divisor <= bound: inner <= bound * divisor + divisor - 1; of a negative divisor the other way round."""
    if divisor is None or kind == _EQUAL:
        return None
    if divisor > 0:
        return inner, kind, bound * divisor + (divisor - 1 if kind == _BELOW else 0)
    return inner, _TURNED[kind], bound * divisor + (divisor + 1 if kind == _BELOW else 0)
