"""Integer sums in normal form: constant + sum of coefficient * atom.

In: the terms of an int32 or int64 expression. Out: `Linear`, and the expression it stands for. Invariant: atoms are
interned expressions that are not themselves sums or multiples by a constant; no coefficient is zero; adding wraps like
the dtype, so the form is exact even where values wrap. Collected by `tir/simplify.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.base.dtype import DType
from armillary.tir import expr as E
from armillary.tir.build import wrap


@dataclass(slots=True)
class Linear:
    """constant + sum(coefficient * atom)."""

    terms: dict[E.Expr, int]
    constant: int

    def drop_zeros(self) -> Linear:
        if 0 in self.terms.values():
            self.terms = {atom: c for atom, c in self.terms.items() if c}
        return self

    def minus(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms.get(atom, 0) - c
        return Linear(terms, self.constant - other.constant).drop_zeros()

    def split(self, divisor: int) -> tuple[Linear, Linear]:
        """(quotient, rest) with self = divisor * quotient + rest; the rest's constant is in [0, divisor)."""
        exact = {atom: c // divisor for atom, c in self.terms.items() if c % divisor == 0}
        rest = {atom: c for atom, c in self.terms.items() if c % divisor}
        return Linear(exact, self.constant // divisor), Linear(rest, self.constant % divisor)

    def gcd(self) -> int:
        return math.gcd(*self.terms.values())

    def key(self) -> frozenset[tuple[int, int]]:
        """The non-constant part, for looking up facts."""
        return frozenset((id(atom), c) for atom, c in self.terms.items())

    def expr(self, dtype: DType) -> E.Expr:
        """As an expression: positive terms first, the constant last."""
        constant = wrap(self.constant, dtype)
        result: E.Expr | None = None
        ordered = sorted(self.terms.items(), key=lambda item: item[1] < 0)
        for atom, coefficient in ordered:
            c = wrap(coefficient, dtype)
            if c == 0:
                continue
            if result is None and c < 0 and constant > 0:
                result, constant = E.IntImm(dtype, constant), 0
            if result is None:
                result = _multiple(atom, c, dtype)
            elif c < 0 and c != dtype.min_value:
                result = E.Sub(result, _multiple(atom, -c, dtype))
            else:
                result = E.Add(result, _multiple(atom, c, dtype))
        if result is None:
            return E.IntImm(dtype, constant)
        if constant < 0 and constant != dtype.min_value:
            return E.Sub(result, E.IntImm(dtype, -constant))
        return E.Add(result, E.IntImm(dtype, constant)) if constant else result


def _multiple(atom: E.Expr, coefficient: int, dtype: DType) -> E.Expr:
    return atom if coefficient == 1 else E.Mul(atom, E.IntImm(dtype, coefficient))
