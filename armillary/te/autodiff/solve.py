"""Which values of loop axes make indices equal to given ones.

In: equations `index == wanted` over axes with known ranges. Out: some axes as expressions of the others and of what is
wanted, and conditions. Invariant: the assignments of axes that fulfil all equations are exactly those of the axes left
for which the conditions hold; an index that is not linear in the axes stays a condition. So a sum over all axes of
what belongs to one element becomes a sum over the axes left. User: `gradient.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from armillary.base.node import reachable, structural_equal
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.expr import Expr, Var
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

Equation = tuple[Expr, Expr]


@dataclass
class Solution:
    """`values` of the axes that are solved for; `left` are the others; all `conditions` hold."""

    left: dict[Var, int | Expr]
    values: dict[Var, Expr] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)

    def __call__(self, item: Expr) -> Expr:
        """An expression with the values of solved axes put in."""
        return substitute_expr(item, self.values)

    def solve(self, var: Var, value: Expr) -> None:
        """An axis is what `value` says, where that lies in its range."""
        extent = self.left.pop(var)
        put = {var: value}
        self.values = {v: simplify(substitute_expr(old, put)) for v, old in self.values.items()} | put
        self.conditions = [substitute_expr(c, put) for c in self.conditions]
        zero = T.const(0, value.dtype)
        self.conditions += [T.less_equal(zero, value), T.less(value, T.cast(T.convert(extent), value.dtype))]


def solve(equations: Sequence[Equation], axes: Mapping[Var, int | Expr]) -> Solution:
    """Solve for as many axes as the equations tell, those of the most values first."""
    result = Solution(dict(axes))
    open_ = _joined(list(equations), result.conditions)
    while True:
        best = _best(result, open_)
        if best is None:
            break
        at, var, factor, rest = best
        open_.pop(at)
        value = simplify(rest)
        if abs(factor) != 1:
            step = T.const(abs(factor), value.dtype)
            signed = value if factor > 0 else simplify(T.neg(value))
            result.conditions.append(T.equal(T.floormod(signed, step), T.const(0, value.dtype)))
            value = T.floordiv(signed, step)
        elif factor < 0:
            value = simplify(T.neg(value))
        result.solve(var, value)
        open_ = [(simplify(result(index)), wanted) for index, wanted in open_]
    result.conditions += [T.equal(T.cast(index, wanted.dtype), wanted) for index, wanted in open_]
    return result


def _best(solution: Solution, equations: list[Equation]) -> tuple[int, Var, int, Expr] | None:
    """An equation, the axis to solve it for, its factor, and what factor * axis is equal to."""
    best, most = None, -1.0
    for at, (index, wanted) in enumerate(equations):
        factors: dict[Var, int] = {}
        rest = _linear(index, solution.left, 1, factors)
        if rest is None:
            continue
        for var, factor in factors.items():
            extent = T.as_int(T.convert(solution.left[var]))
            size = float("inf") if extent is None else float(extent)
            if factor and size > most:
                others = [T.mul(v, T.const(k, v.dtype)) for v, k in factors.items() if v is not var and k]
                total = T.sub(T.cast(wanted, index.dtype), rest)
                for other in others:
                    total = T.sub(total, T.cast(other, index.dtype))
                best, most = (at, var, factor, total), size
    return best


def _linear(item: Expr, axes: Mapping[Var, object], factor: int, into: dict[Var, int]) -> Expr | None:
    """The part of an index without axes, `factor` times; those of axes are added up in `into`; None: not linear."""
    match item:
        case Var() if item in axes:
            into[item] = into.get(item, 0) + factor
            return T.const(0, item.dtype)
        case E.Add(a=a, b=b) | E.Sub(a=a, b=b):
            left = _linear(a, axes, factor, into)
            right = None if left is None else _linear(b, axes, factor if isinstance(item, E.Add) else -factor, into)
            return None if left is None or right is None else T.add(left, right)
        case E.Mul(a=a, b=E.IntImm(value=k)) | E.Mul(a=E.IntImm(value=k), b=a):
            return _linear(a, axes, factor * k, into)
    if any(part in axes for part in reachable(item) if isinstance(part, Var)):
        return None
    return T.mul(item, T.const(factor, item.dtype))


def _joined(equations: list[Equation], conditions: list[Expr]) -> list[Equation]:
    """Equations of one number's digits as one: f // m % a == p and f // (m * a) == q say f // m == q * a + p."""
    rows = [(*_digit(index), wanted) for index, wanted in equations]
    while True:
        pair = next((partner for row in rows if (partner := _partner(row, rows)) is not None), None)
        if pair is None:
            break
        low, high = pair
        whole, step, digits, wanted = low
        assert digits is not None, "only digits have partners"
        conditions.append(T.less(wanted, T.const(digits, wanted.dtype)))
        joined = T.add(T.mul(T.cast(high[3], wanted.dtype), T.const(digits, wanted.dtype)), wanted)
        rows = [row for row in rows if row is not low and row is not high] + [(whole, step, None, joined)]
    return [(_index(*row[:3]), row[3]) for row in rows]


Digit = tuple[Expr, int, int | None]
Row = tuple[Expr, int, int | None, Expr]


def _digit(index: Expr) -> Digit:
    """An index as f // m % a; a is None where nothing is cut off."""
    digits: int | None = None
    if isinstance(index, E.FloorMod) and isinstance(index.b, E.IntImm):
        digits = index.b.value
        index = index.a
    step = 1
    while isinstance(index, E.FloorDiv) and isinstance(index.b, E.IntImm):
        step *= index.b.value
        index = index.a
    return index, step, digits


def _index(whole: Expr, step: int, digits: int | None) -> Expr:
    result = whole if step == 1 else T.floordiv(whole, T.const(step, whole.dtype))
    return result if digits is None else T.floormod(result, T.const(digits, whole.dtype))


def _partner(row: Row, rows: list[Row]) -> tuple[Row, Row] | None:
    whole, step, digits, _ = row
    if digits is None:
        return None
    for other in rows:
        is_above = other is not row and other[2] is None and other[1] == step * digits
        if is_above and structural_equal(other[0], whole, renames=False):
            return row, other
    return None
