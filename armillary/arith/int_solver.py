"""Systems of linear equations over integers: which new variables their solutions are made of.

In: equations, variables, ranges of these. Out: an `IntConstraintsTransform`: the system, its solution, and each side's
variables in terms of the other's. Invariant: both sides have the same solutions; what is no linear equation with
whole coefficients stays a relation. Method: the Smith normal form, S = U A V, with y = V^-1 x (H. J. S. Smith, 1861).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.arith.pattern import linear_form
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.build import as_int
from armillary.tir.expr import BOOL, Expr, Range, Var
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

_Matrix = list[list[int]]


@record(eq=False)
class IntConstraints:
    """Variables, the ranges that some of them have, and conditions that hold between them."""

    variables: tuple[Var, ...]
    ranges: Mapping[Var, Range]
    relations: tuple[Expr, ...]


@record(eq=False)
class IntConstraintsTransform:
    """Two systems with the same solutions, and the variables of each in terms of the other's."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: Mapping[Var, Expr]
    dst_to_src: Mapping[Var, Expr]


@boundary("arith.solve_linear_equations", arguments=True)
def solve_linear_equations(
    equations: Expr | Sequence[Expr] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
) -> IntConstraintsTransform:
    """The solutions of linear equations over the integers, by new variables n0, n1, … that are free.

    A system without solution has the one relation False and no variables. Raises TypeMismatch for what is no condition.
    """
    source = _system("arith.solve_linear_equations", equations, variables, ranges)
    names = source.variables
    rows: _Matrix = []
    values: list[Expr] = []
    others: list[Expr] = []
    for relation in source.relations:
        row = _row(relation, names)
        if row is None:
            others.append(relation)
        else:
            rows.append(row[0])
            values.append(row[1])
    if not names or not rows:
        identity: dict[Var, Expr] = {var: var for var in names}
        return IntConstraintsTransform(source, source, identity, dict(identity))
    rank, columns, inverse = smith_normal_form(rows, values)
    conditions = _conditions(rows, values, rank)
    if any(as_int(condition) == 0 for condition in conditions):
        no = IntConstraints((), {}, (E.IntImm(BOOL, 0),))
        return IntConstraintsTransform(source, no, {}, {})
    return _solution(source, rows, values, rank, columns, inverse, (*conditions, *others))


def _system(
    what: str,
    equations: Expr | Sequence[Expr] | IntConstraints,
    variables: Sequence[Var] | None,
    ranges: Mapping[Var, Range] | None,
) -> IntConstraints:
    if isinstance(equations, IntConstraints):
        return equations
    check = Arguments(what)
    relations = (equations,) if isinstance(equations, Expr) else tuple(equations)
    for relation in relations:
        check.kind("equations", relation, Expr, "conditions")
    for var in variables or ():
        check.kind("variables", var, Var, "variables")
    for var, domain in (ranges or {}).items():
        check.kind("ranges", var, Var, "ranges by variables")
        check.kind("ranges", domain, Range, "ranges by variables")
    return IntConstraints(tuple(variables or ()), dict(ranges or {}), tuple(T.convert(r) for r in relations))


def _row(relation: Expr, names: tuple[Var, ...]) -> tuple[list[int], Expr] | None:
    """(coefficients, value) of an equation; None of what is not linear with whole coefficients."""
    if not isinstance(relation, E.EQ) or not relation.a.dtype.is_int:
        return None
    form = linear_form(relation.a - relation.b, frozenset(names))
    if form is None:
        return None
    numbers = [as_int(form[0][var]) if var in form[0] else 0 for var in names]
    whole = [number for number in numbers if number is not None]
    return (whole, simplify(-form[1])) if len(whole) == len(names) else None


def smith_normal_form(rows: _Matrix, values: list[Expr]) -> tuple[int, _Matrix, _Matrix]:
    """Make `rows` diagonal, and `values` with them; (rank, V, V^-1)."""
    size = len(rows[0])
    columns = [[int(i == j) for j in range(size)] for i in range(size)]
    inverse = [[int(i == j) for j in range(size)] for i in range(size)]
    rank = 0
    while rank < min(len(rows), size):
        place = _pivot(rows, rank)
        if place is None:
            break
        i, j = place
        rows[rank], rows[i] = rows[i], rows[rank]
        values[rank], values[i] = values[i], values[rank]
        _swap_columns(rows, columns, inverse, rank, j)
        if _clear(rows, values, columns, inverse, rank):
            rank += 1
    return rank, columns, inverse


def _pivot(rows: _Matrix, rank: int) -> tuple[int, int] | None:
    """Where the least number that is not 0 stands, in rows and columns from `rank` on."""
    size = len(rows[0])
    pivots = [(abs(rows[i][j]), j, i) for i in range(rank, len(rows)) for j in range(rank, size) if rows[i][j]]
    return (min(pivots)[2], min(pivots)[1]) if pivots else None


def _swap_columns(rows: _Matrix, columns: _Matrix, inverse: _Matrix, a: int, b: int) -> None:
    for row in (*rows, *columns):
        row[a], row[b] = row[b], row[a]
    inverse[a], inverse[b] = inverse[b], inverse[a]


def _clear(rows: _Matrix, values: list[Expr], columns: _Matrix, inverse: _Matrix, at: int) -> bool:
    """Subtract the pivot's row and column from the others; False where a rest is left, a new and smaller pivot."""
    pivot = rows[at][at]
    is_clear = True
    for i in range(at + 1, len(rows)):
        times = rows[i][at] // pivot
        if times:
            rows[i] = [x - times * y for x, y in zip(rows[i], rows[at], strict=True)]
            values[i] = simplify(values[i] - values[at] * times)
        is_clear = is_clear and rows[i][at] == 0
    for j in range(at + 1, len(rows[at])):
        times = rows[at][j] // pivot
        if times:
            for row in (*rows, *columns):
                row[j] -= times * row[at]
            inverse[at] = [x + times * y for x, y in zip(inverse[at], inverse[j], strict=True)]
        is_clear = is_clear and rows[at][j] == 0
    return is_clear


def _conditions(rows: _Matrix, values: list[Expr], rank: int) -> list[Expr]:
    """What the values must be for a solution to exist; those that always hold are left out."""
    divisible = [T.equal(T.floormod(values[i], abs(rows[i][i])), 0) for i in range(rank) if abs(rows[i][i]) > 1]
    divisible += [T.equal(value, 0) for value in values[rank:]]
    simple = [simplify(condition) for condition in divisible]
    return [condition for condition in simple if as_int(condition) != 1]


def _solution(
    source: IntConstraints,
    rows: _Matrix,
    values: list[Expr],
    rank: int,
    columns: _Matrix,
    inverse: _Matrix,
    relations: tuple[Expr, ...],
) -> IntConstraintsTransform:
    names = source.variables
    for j in range(rank, len(names)):  # the first variable that a new one is in rises with it
        first = next((row[j] for row in columns if row[j]), 1)
        if first < 0:
            for row in columns:
                row[j] = -row[j]
            inverse[j] = [-x for x in inverse[j]]
    free = tuple(Var(f"n{j - rank}", names[0].dtype) for j in range(rank, len(names)))
    parts = [T.floordiv(values[i] * (1 if rows[i][i] > 0 else -1), abs(rows[i][i])) for i in range(rank)]
    old = {var: _combined(columns[i], (*parts, *free)) for i, var in enumerate(names)}
    new: dict[Var, Expr] = {var: _combined(inverse[rank + k], names) for k, var in enumerate(free)}
    ranges, bounds = _new_ranges(source, old, free)
    rest = [simplify(substitute_expr(relation, old)) for relation in relations]
    retained = tuple(r for r in (*rest, *bounds) if as_int(r) != 1)
    return IntConstraintsTransform(source, IntConstraints(free, ranges, retained), old, new)


def _combined(factors: Sequence[int], parts: Sequence[Expr]) -> Expr:
    total: Expr = T.const(0, parts[0].dtype)
    for factor, part in zip(factors, parts, strict=True):
        total = total + part * factor
    return simplify(total)


def _new_ranges(
    source: IntConstraints, old: Mapping[Var, Expr], free: tuple[Var, ...]
) -> tuple[dict[Var, Range], list[Expr]]:
    """The ranges of the new variables that are an old one but for sign and a constant; other ranges as conditions."""
    ends: dict[Var, tuple[int, int]] = {}
    conditions: list[Expr] = []
    for var, domain in source.ranges.items():
        value = old.get(var)
        if value is None:
            continue
        form = linear_form(value, frozenset(free))
        low, extent = as_int(simplify(domain.min)), as_int(simplify(domain.extent))
        rest = as_int(form[1]) if form is not None else None
        if form is None or len(form[0]) != 1 or None in (low, extent, rest):
            conditions += [T.less_equal(domain.min, value), T.less(value, domain.min + domain.extent)]
            continue
        assert low is not None and extent is not None and rest is not None, "looked at"
        ((name, coefficient),) = form[0].items()
        factor = as_int(coefficient)
        if factor not in (1, -1):
            conditions += [T.less_equal(domain.min, value), T.less(value, domain.min + domain.extent)]
            continue
        first, last = sorted(((low - rest) * factor, (low + extent - 1 - rest) * factor))
        known = ends.get(name, (first, last))
        ends[name] = (max(first, known[0]), min(last, known[1]))
    ranges = {name: Range.from_min_extent(a, max(b - a + 1, 0)) for name, (a, b) in ends.items()}
    return ranges, [simplify(condition) for condition in conditions]
