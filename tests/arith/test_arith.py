"""`armillary.arith`: what is claimed of expressions holds for every value, and is not vacuous."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from armillary import arith, te, tir
from armillary.errors import ArmillaryError, ConfigError
from armillary.tir.expr import Expr, Range, Var
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

_SEED = random.Random().randrange(1 << 30)


def value_of(expr: Expr, values: dict[Var, int]) -> int:
    found = simplify(substitute_expr(expr, {var: tir.const(n) for var, n in values.items()}))
    return int(found.value)  # type: ignore[attr-defined]


def random_index(rng: random.Random, variables: list[Var], depth: int) -> Expr:
    """Sums, products, divisions and choices, as indices have them."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(variables) if rng.random() < 0.7 else tir.const(rng.randint(-6, 6))
    a = random_index(rng, variables, depth - 1)
    number = rng.choice([-4, -3, 2, 3, 4, 8])
    kind = rng.randrange(9)
    if kind == 0:
        return a * number
    if kind == 1:
        return tir.floordiv(a, abs(number))
    if kind == 2:
        return tir.floormod(a, abs(number))
    if kind == 3:
        return tir.truncdiv(a, abs(number))
    if kind == 4:
        return tir.truncmod(a, abs(number))
    b = random_index(rng, variables, depth - 1)
    if kind == 5:
        return tir.min(a, b)
    if kind == 6:
        return tir.max(a, b)
    if kind == 7:
        return tir.Select(a < b, a, b + number)
    return a + b if rng.random() < 0.6 else a - b


def test_bounds_remainders_and_sets_hold_for_every_value() -> None:
    print("seed", _SEED)
    rng = random.Random(_SEED)
    x, y = te.var("x"), te.var("y")
    values = [dict(zip((x, y), pair, strict=True)) for pair in itertools.product(range(-3, 9), range(5))]
    tight = 0
    for _ in range(60):
        expr = random_index(rng, [x, y], 3)
        analyzer = arith.Analyzer()
        analyzer.update(x, arith.ConstIntBound(-3, 8))
        analyzer.bind(y, Range(0, 5))
        bound, rest = analyzer.const_int_bound(expr), analyzer.modular_set(expr)
        found = analyzer.int_set(expr, {x: arith.IntervalSet(-3, 8)})
        results = [value_of(expr, v) for v in values]
        assert bound.min_value <= min(results) and max(results) <= bound.max_value, expr
        tight += bound.min_value == min(results)
        assert all(r == rest.base if rest.coeff == 0 else (r - rest.base) % rest.coeff == 0 for r in results), expr
        for end, sign in ((found.min_value, 1), (found.max_value, -1)):
            if end.dtype.is_int:
                assert all(sign * value_of(end, v) <= sign * r for v, r in zip(values, results, strict=True)), expr
    assert tight > 20


def test_linear_forms_add_up_again() -> None:
    a, b, c = te.var("a"), te.var("b"), te.var("c")
    whole = (a * b + c - 1) * 4 + a
    first, second, rest = arith.detect_linear_equation(whole, [a, c])
    for point in itertools.product(range(-2, 3), repeat=3):
        at = dict(zip((a, b, c), point, strict=True))
        assert value_of(first * a + second * c + rest, at) == value_of(whole, at)
    assert (str(second), str(rest)) == ("4", "-4")
    assert arith.detect_linear_equation(a * a, [a]) == []
    assert arith.detect_linear_equation(tir.floordiv(a, 2), [a]) == []
    assert len(arith.detect_linear_equation(b, [])) == 1
    with pytest.raises(ArmillaryError, match="detect_linear_equation: var_list=3"):
        arith.detect_linear_equation(a, [3])  # type: ignore[list-item]


def test_bounds_of_conjunctions() -> None:
    a, b, c = te.var("a"), te.var("b"), te.var("c")
    both = tir.all(3 * a <= b, tir.Not(a < 2), tir.max(c, a) < 9)
    found = arith.detect_clip_bound(both, [a])
    assert found == []  # c < 9 says nothing of a
    low, high, least, most = arith.detect_clip_bound(both, [a, c])
    assert str(low) == "2" and least is None and str(most) == "8"
    assert {value_of(high, {b: n}) for n in (3, 5)} == {1} and value_of(high, {b: 100}) == 8
    assert arith.detect_clip_bound(a * a < 3, [a]) == []


@pytest.mark.parametrize(
    "condition",
    [
        lambda a, b: a * 4 + b < 17,
        lambda a, b: a * -3 - b < 17,
        lambda a, b: (b - a) * 5 >= -8,
        lambda a, b: a // 8 + b > 3,
        lambda a, b: tir.floordiv(a, -4) <= b,
        lambda a, b: b + 3 == a - 1,
        lambda a, b: a * (b + 1) >= 7,
        lambda a, b: a * (0 - b - 1) < 7,
    ],
)
def test_a_deduced_bound_is_where_the_condition_holds(condition: Callable[[Expr, Expr], Expr]) -> None:
    a, b = te.var("a"), te.var("b")
    known = {b: arith.IntervalSet(2, 5)}
    made = condition(a, b)
    found = arith.deduce_bound(a, made, known, {})
    assert not found.is_nothing()
    for x, y in itertools.product(range(-60, 61), range(2, 6)):
        ends = [(end, s) for end, s in ((found.min_value, 1), (found.max_value, -1)) if end.dtype.is_int]
        inside = all(s * value_of(end, {b: y}) <= s * x for end, s in ends)
        assert inside == bool(value_of(made, {a: x, b: y})), (x, y)
    relaxed = arith.deduce_bound(a, made, known, known)
    for x, y in itertools.product(range(-60, 61), range(2, 6)):
        if not relaxed.is_nothing():
            ends = [(e, s) for e, s in ((relaxed.min_value, 1), (relaxed.max_value, -1)) if e.dtype.is_int]
            if all(s * value_of(e, {}) <= s * x for e, s in ends):
                assert value_of(made, {a: x, b: y}), (x, y)


def test_no_bound_is_deduced_of_what_has_none() -> None:
    a, b = te.var("a"), te.var("b")
    assert arith.deduce_bound(a, tir.max(a, 3) < 5, {}, {}).is_nothing()
    assert arith.deduce_bound(a, a * 4 == b, {b: arith.IntervalSet(1, 9)}, {}).is_nothing()
    assert arith.deduce_bound(a, a * b > 4, {}, {}).is_nothing()  # the sign of b is not known
    assert arith.deduce_bound(a, b > 4, {}, {}).is_nothing()


def test_systems_and_their_solutions_are_the_same_points() -> None:
    print("seed", _SEED)
    rng = random.Random(_SEED)
    solved = 0
    for _ in range(25):
        names = [te.var(f"x{i}") for i in range(rng.randint(1, 3))]
        equations = []
        for _ in range(rng.randint(1, 3)):
            total = tir.const(0)
            for name in names:
                total = total + name * rng.randint(-3, 3)
            equations.append(tir.EQ(total, tir.const(rng.randint(-3, 3))))
        found = arith.solve_linear_equations(equations, names)
        box = itertools.product(range(-4, 5), repeat=len(names))
        for point in box:
            at = dict(zip(names, point, strict=True))
            holds = all(value_of(e, at) for e in equations)
            if not found.src_to_dst:
                assert not holds
                continue
            new = {var: value_of(e, at) for var, e in found.dst_to_src.items()}
            back = [value_of(found.src_to_dst[name], new) for name in names]
            same = back == list(point) and all(value_of(r, new) for r in found.dst.relations)
            assert same == holds, (equations, point)
            solved += holds
    assert solved > 3


def test_a_solution_has_the_ranges_of_the_old_variables() -> None:
    x, y = te.var("x"), te.var("y")
    found = arith.solve_linear_equations([tir.EQ(x + y, 0)], [x, y], {x: Range(-5, 5), y: Range(0, 10)})
    (new,) = found.dst.variables
    domain = found.dst.ranges[new]
    assert (str(domain.min), str(domain.extent)) == ("-5", "6")
    nothing = arith.solve_linear_equations([tir.EQ(x * 2, 3)], [x])
    assert not nothing.dst.variables and str(nothing.dst.relations[0]) == "false"


def test_conditions_of_a_scope_end_with_it() -> None:
    a, n = te.var("a"), te.var("n")
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(tir.all(a >= 3, tir.floormod(n, 6) == 4)):
        assert analyzer.can_prove(a > 2)
        with analyzer.constraint_scope(tir.floormod(n, 4) == 2):
            assert analyzer.modular_set(n) == arith.ModularSet(12, 10)
        assert analyzer.modular_set(n * 2 + 1) == arith.ModularSet(12, 9)
    assert not analyzer.can_prove(a > 2) and analyzer.modular_set(n).coeff == 1


def test_proofs_by_ranges_with_symbolic_ends() -> None:
    i, j, n = te.var("i"), te.var("j"), te.var("n")
    analyzer = arith.Analyzer()
    analyzer.bind(i, Range(0, n))
    analyzer.bind(j, Range(0, 32))
    inside = i * 32 + j < n * 32
    assert not analyzer.can_prove(inside)
    assert analyzer.can_prove(inside, arith.ProofStrength.SYMBOLIC_BOUND)
    assert not analyzer.can_prove(i * 32 + j < n * 32 - 1, arith.ProofStrength.SYMBOLIC_BOUND)


def test_a_float_is_not_proved_equal_to_itself() -> None:
    x, n = te.var("x", "float32"), te.var("n", "int8")
    assert arith.Analyzer().can_prove(n == n) and not arith.Analyzer().can_prove(x == x)


def test_what_is_known_is_not_overwritten_unasked() -> None:
    n = te.var("n")
    analyzer = arith.Analyzer()
    analyzer.bind(n, 3)
    with pytest.raises(ConfigError, match="Analyzer: n is 3 already, and shall be 4"):
        analyzer.bind(n, 4)
    analyzer.bind(n, 4, allow_override=True)
    assert analyzer.can_prove(n + 1 > 4)
    with pytest.raises(ArmillaryError, match=r"ConstIntBound: max_value=2: wanted a whole number in \[3"):
        arith.ConstIntBound(3, 2)


def test_common_parts_are_counted_where_they_are_written() -> None:
    x, z = te.var("x"), te.var("z")
    part = tir.floor(x * 0.5)
    whole = part + z * (tir.floor(x * 0.5) + part)
    found = arith.detect_common_subexpr(whole, 2)
    assert {str(key): n for key, n in found.items()} == {str(part): 3, str(part.args[0]): 3, str(part.args[0].a): 3}


def test_regions_hold_what_is_read() -> None:
    i = te.var("i")
    (found,) = arith.estimate_region_upper_bound([Range.from_min_extent(i * 4, 2)], {i: Range(0, 64)}, i * 4 < 100)
    assert (str(found.min_value), str(found.max_value)) == ("0", "100")
    joined = arith.int_set.union_lower_bound([arith.IntervalSet(0, 3), arith.IntervalSet(4, 9)])
    assert (str(joined.min_value), str(joined.max_value)) == ("0", "9")
    assert arith.IntSet.vector(tir.Ramp(10, 3, 2)).max_value.value == 13
