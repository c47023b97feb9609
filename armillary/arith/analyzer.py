"""`Analyzer`: simpler expressions, proofs, bounds and remainders under what is known of variables.

In: TIR expressions; values, ranges, bounds, remainders of variables; conditions of a scope. Out: expressions, truths,
`ConstIntBound`, `ModularSet`, `IntervalSet`. Invariant: nothing is claimed that does not follow: `can_prove` is False
where it is not known. The rules: `tir/rules.py`, `tir/simplify.py`; remainders: `modular.py`; sets: `int_set.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from typing import ClassVar, TypeVar

from armillary.arith.int_set import IntSet, evaluated, of_range
from armillary.arith.modular import ANYTHING, ModularSet, both, implied_by, modular_set
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.bounds import EVERYTHING, INFINITE, Interval
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, ExprLike, Range, Var
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import substitute_expr

_MOST_STEPS = 1000
_Known = TypeVar("_Known")


class ProofStrength(IntEnum):
    """How much `can_prove` tries: by the simplifier; by bounds of ranges that have symbolic ends, too."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(IntFlag):
    """Rewrites beyond the usual ones that a script may ask for; here nothing depends on them."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


@record
class ConstIntBound:
    """The integers from `min_value` to `max_value`, both included; NEG_INF and POS_INF where there is no bound."""

    min_value: int
    max_value: int
    POS_INF: ClassVar[int] = 2**63 - 1
    NEG_INF: ClassVar[int] = -(2**63) + 1

    def __post_init__(self) -> None:
        check = Arguments("arith.ConstIntBound")
        check.whole("min_value", self.min_value)
        check.whole("max_value", self.max_value, self.min_value, max(self.POS_INF, self.min_value))


class Analyzer:
    """Simplifies expressions and proves conditions under bindings of variables and conditions of scopes."""

    def __init__(self) -> None:
        self.enabled_extensions = Extension.NoExtensions
        self._values: dict[Var, Expr] = {}
        self._bounds: dict[Var, Interval] = {}
        self._ranges: dict[Var, IntSet] = {}  # those with a symbolic end
        self._rests: dict[Var, ModularSet] = {}
        self._conditions: tuple[Expr, ...] = ()

    @boundary("Analyzer.bind")
    def bind(self, var: Var, expr: ExprLike | Range, allow_override: bool = False) -> None:
        """Say what a variable is: a value, or one of a range.

        Raises ConfigError where another value or range was said and `allow_override` is not set.
        """
        Arguments("Analyzer.bind").kind("var", var, Var, "a variable")
        if not isinstance(expr, Range):
            _say(self._values, var, T.convert(expr), allow_override)
            return
        low, extent = self.simplify(expr.min), self.simplify(expr.extent)
        first, count = as_int(low), as_int(extent)
        if count == 1:
            _say(self._values, var, low, allow_override)
        elif first is not None or count is not None:
            high = first + count - 1 if first is not None and count is not None else INFINITE
            _say(self._bounds, var, (first if first is not None else -INFINITE, high), allow_override)
        if count is None or first is None:
            self._ranges[var] = of_range(Range.from_min_extent(low, extent))

    @boundary("Analyzer.update")
    def update(self, var: Var, info: ConstIntBound | ModularSet | IntSet, override: bool = False) -> None:
        """Say a bound, remainders or a set of a variable; ConfigError where another was said and not `override`."""
        check = Arguments("Analyzer.update")
        check.kind("var", var, Var, "a variable")
        check.kind("info", info, (ConstIntBound, ModularSet, IntSet), "a ConstIntBound, ModularSet or IntSet")
        if isinstance(info, ConstIntBound):
            _say(self._bounds, var, (_open(info.min_value), _open(info.max_value)), override)
        elif isinstance(info, ModularSet):
            _say(self._rests, var, info, override)
        else:
            self._ranges[var] = info

    @contextmanager
    def constraint_scope(self, constraint: ExprLike) -> Iterator[None]:
        """Inside the block the condition holds."""
        saved = self._conditions
        self._conditions = (*saved, T.convert(constraint))
        try:
            yield
        finally:
            self._conditions = saved

    @boundary("simplify")
    def simplify(self, expr: ExprLike, steps: int = 2) -> Expr:
        """A simpler expression of the same value."""
        Arguments("Analyzer.simplify").whole("steps", steps, 0, _MOST_STEPS)
        result = T.convert(expr)
        simplifier = self._simplifier()
        for _ in range(max(1, steps)):
            result = simplifier(substitute_expr(result, self._values))
        return result

    rewrite_simplify = canonical_simplify = simplify

    @boundary("Analyzer.can_prove")
    def can_prove(self, expr: ExprLike, strength: int = ProofStrength.DEFAULT) -> bool:
        """Whether a condition always holds."""
        simple = self.simplify(expr)
        if isinstance(simple, E.EQ | E.LE | E.GE) and simple.a is simple.b and not simple.a.dtype.is_float:
            return True  # NaN is not equal to itself
        if as_int(simple) is not None or not strength or not self._ranges:
            return as_int(simple) == 1
        form = _at_least_zero(T.convert(expr))
        if form is None:
            return False
        low = evaluated(form, self._ranges, self.simplify, self.sign).min_value
        return self._least(low) >= 0

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Whether two expressions always have one value."""
        a, b = T.convert(lhs), T.convert(rhs)
        return a is b or as_int(self.simplify(a - b)) == 0

    def can_prove_greater_equal(self, lhs: ExprLike, least: int) -> bool:
        """Whether an expression is never less than a number."""
        Arguments("Analyzer.can_prove_greater_equal").whole("least", least)
        return self._least(T.convert(lhs)) >= least

    def can_prove_less(self, lhs: ExprLike, above: int) -> bool:
        """Whether an expression is always less than a number."""
        Arguments("Analyzer.can_prove_less").whole("above", above)
        return self._interval(T.convert(lhs))[1] < above

    @boundary("Analyzer.const_int_bound")
    def const_int_bound(self, expr: ExprLike) -> ConstIntBound:
        """Between which numbers the values of an integer expression lie."""
        low, high = self._interval(T.convert(expr))
        least, most = ConstIntBound.NEG_INF, ConstIntBound.POS_INF
        return ConstIntBound(max(least, min(low, most)), max(least, min(high, most)))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether a bound of the variable was said."""
        Arguments("Analyzer.const_int_bound_is_bound").kind("var", var, Var, "a variable")
        return var in self._bounds or var in self._values

    @boundary("Analyzer.modular_set")
    def modular_set(self, expr: ExprLike) -> ModularSet:
        """What is known of the remainders of an integer expression."""
        known = dict(self._rests)
        for condition in self._flat_conditions():
            message = implied_by(condition)
            if message is not None:
                known[message[0]] = both(known.get(message[0], ANYTHING), message[1])
        whole = substitute_expr(T.convert(expr), self._values)
        return modular_set(whole, known, lambda item: self._least(item) >= 0)

    @boundary("Analyzer.int_set")
    def int_set(self, expr: ExprLike, dom_map: Mapping[Var, IntSet] | None = None) -> IntSet:
        """The values that an expression takes while variables run through sets; others stay symbols in its ends."""
        if dom_map is not None:
            Arguments("Analyzer.int_set").kind("dom_map", dom_map, Mapping, "sets by variables")
        sets = self._ranges if dom_map is None else dict(dom_map)
        for var, values in sets.items():
            Arguments("Analyzer.int_set").kind("dom_map", var, Var, "sets by variables")
            Arguments("Analyzer.int_set").kind("dom_map", values, IntSet, "sets by variables")
        return evaluated(T.convert(expr), sets, self.simplify, self.sign)

    # what the tables say

    def _flat_conditions(self) -> Iterator[Expr]:
        pending = list(self._conditions)
        while pending:
            item = pending.pop(0)
            if isinstance(item, E.And):
                pending[:0] = [item.a, item.b]
            else:
                yield item

    def _simplifier(self) -> Simplifier:
        result = Simplifier(self._bounds)
        for condition in self._conditions:
            result.assume(substitute_expr(condition, self._values)).__enter__()
        return result

    def _interval(self, item: Expr) -> Interval:
        simplifier = self._simplifier()
        result = simplifier.bound(simplifier(substitute_expr(item, self._values)))
        return result if result is not None else EVERYTHING

    def _least(self, item: Expr) -> int:
        return self._interval(item)[0]

    def sign(self, item: ExprLike) -> int:
        """1 of what is never negative, -1 of what is never positive, 0 where it is not known."""
        low, high = self._interval(T.convert(item))
        return 1 if low >= 0 else -1 if high <= 0 else 0


def _say(table: dict[Var, _Known], var: Var, what: _Known, again: bool) -> None:
    """Enter what is known of a variable; ConfigError where something else is."""
    known = table.get(var)
    is_same = known is None or (_are_equal(known, what) if isinstance(known, Expr) else known == what)
    if not again and not is_same:
        shown = f"Analyzer: {var.name} is {known} already, and shall be {what}"
        raise ConfigError(shown, hint="allow_override=True (of update: override=True) replaces what is known")
    table[var] = what


def _are_equal(a: Expr, b: object) -> bool:
    return a is b or (isinstance(b, Expr) and as_int(simplify(a - b)) == 0)


def _open(value: int) -> int:
    if value >= ConstIntBound.POS_INF:
        return INFINITE
    return -INFINITE if value <= ConstIntBound.NEG_INF else value


def _at_least_zero(condition: Expr) -> Expr | None:
    """The expression that a comparison says is at least 0."""
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE) or not condition.a.dtype.is_int:
        return None
    a, b = (condition.b, condition.a) if isinstance(condition, E.LT | E.LE) else (condition.a, condition.b)
    return a - b - 1 if isinstance(condition, E.LT | E.GT) else a - b
