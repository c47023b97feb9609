"""Arithmetic of integer expressions: `arith.Analyzer`.

In: TIR expressions and what is known of variables. Out: simpler expressions, proofs. Invariant: nothing is claimed that
does not follow: `can_prove` is False where it is not known. The rules: `tir/rules.py`, `tir/simplify.py`.
"""

from __future__ import annotations

from typing import Any

from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.tir import build as T
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, Range, Var
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

_MOST_STEPS = 1000


class Analyzer:
    """Simplifies expressions under bindings of variables."""

    def __init__(self) -> None:
        self._values: dict[Var, Expr] = {}

    def bind(self, var: Var, expr: Any) -> None:  # Any: an expression, a number, or a Range of one element
        """Say what a variable is: an expression, or a range (one element of it says all, others nothing)."""
        Arguments("Analyzer.bind").kind("var", var, Var, "a variable")
        if isinstance(expr, Range):
            if as_int(simplify(expr.extent)) == 1:
                self._values[var] = expr.min
            return
        self._values[var] = T.convert(expr)

    @boundary("simplify")
    def simplify(self, expr: Any, steps: int = 2) -> Expr:  # Any: an expression or a number
        """A simpler expression of the same value."""
        Arguments("Analyzer.simplify").whole("steps", steps, 0, _MOST_STEPS)
        result = T.convert(expr)
        for _ in range(max(1, steps)):
            result = simplify(substitute_expr(result, self._values))
        return result

    rewrite_simplify = canonical_simplify = simplify

    def can_prove(self, expr: object) -> bool:  # a condition
        """Whether a condition always holds."""
        return as_int(self.simplify(expr)) == 1

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:  # Any: expressions or numbers
        """Whether two expressions always have one value."""
        return as_int(self.simplify(T.convert(lhs) - T.convert(rhs))) == 0
