"""The arrow lines in the docstrings of the rewrite rules, executed."""

from __future__ import annotations

import inspect
import random
import re

import numpy as np
import pytest

from armillary.base.node import structural_equal
from armillary.tir import expr as E
from armillary.tir import rules
from armillary.tir.bounds import interval_of
from armillary.tir.interpret_expr import Scope, compile_expr
from armillary.tir.parser import parse_expr
from armillary.tir.simplify import Simplifier

_ARROW = re.compile(r"^\s*(.+?)\s+->\s+(.+?)(?:\s{3}if (.+))?$")
_FUNCTIONS = [f for _, f in inspect.getmembers(rules, inspect.isfunction) if f.__module__ == rules.__name__]
_CASES = [
    pytest.param(*match.groups(), id=f"{f.__name__}:{match[1]}")
    for f in _FUNCTIONS
    for line in (f.__doc__ or "").splitlines()
    if (match := _ARROW.match(line)) is not None
]


def names() -> dict[str, E.Var]:
    kinds = {**dict.fromkeys("xyzn", "int32"), **dict.fromkeys("fg", "float32"), **dict.fromkeys("pq", "bool")}
    return {name: E.Var(name, E.DType(kind)) for name, kind in kinds.items()}


def ranges_of(text: str | None, variables: dict[str, E.Var]) -> dict[E.Var, tuple[int, int]]:
    found = {}
    for low, name, high in re.findall(r"(-?\d+) <= (\w+) < (-?\d+)", text or ""):
        found[variables[name]] = (int(low), int(high) - 1)
    return found


def test_there_are_arrow_lines() -> None:
    assert len(_CASES) > 50


@pytest.mark.parametrize(("before", "after", "condition"), _CASES)
def test_arrow_line_is_what_the_rules_do(before: str, after: str, condition: str | None) -> None:
    variables = names()
    ranges = ranges_of(condition, variables)
    simplifier = Simplifier(ranges)
    left, right = parse_expr(before, variables), parse_expr(after, variables)
    result = simplifier(left)
    assert structural_equal(result, right), f"{before} became {result!r}, not {right!r}"
    assert evaluates_alike(left, right, list(variables.values()), ranges, seed=7)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x // 9 * 9 + x // 3 % 3 * 3 + x % 3", "x"),
        ("x % 72 // 9 * 18 + x % 72 // 3 % 3 * 6 + x % 3 * 2", "x % 72 * 2"),
        ("x // 6 % 5 * 6 + x % 6", "x % 30"),
        ("x // 3 * 3 + y % 3", "x // 3 * 3 + y % 3"),
        ("x // 6 % 5 * 12 + x % 6", "x // 6 % 5 * 12 + x % 6"),
    ],
    ids=["three-axes", "of-a-rest", "a-longer-rest", "not-of-one-number", "not-next-to-each-other"],
)
def test_the_parts_of_a_fused_index_make_the_whole_again(before: str, after: str) -> None:
    variables = names()
    left, right = parse_expr(before, variables), parse_expr(after, variables)
    simplifier = Simplifier({})
    result = simplifier(left)
    assert result is simplifier(right), f"{before} became {result!r}, not {right!r}"
    assert evaluates_alike(left, result, list(variables.values()), {}, seed=11)


def evaluates_alike(
    left: E.Expr, right: E.Expr, variables: list[E.Var], ranges: dict[E.Var, tuple[int, int]], seed: int
) -> bool:
    """Both sides on random values of the variables; prints the seed and values when they differ."""
    generator = random.Random(seed)
    for _ in range(60):
        scope = Scope({})
        env = []
        for var in variables:
            scope.slot(var)
            low, high = ranges.get(var, (-70, 70))
            number = generator.randint(low, high)
            env.append({"bool": bool(number & 1), "float32": np.float32(number / 4)}.get(str(var.dtype), number or 1))
        a, b = compile_expr(left, scope), compile_expr(right, scope)
        env.extend([None] * (scope.size - len(env)))
        x, y = a(env), b(env)
        if not np.array_equal(x, y):
            print(f"seed {seed}: {left!r} = {x}, {right!r} = {y} at {env}")
            return False
        if left.dtype.is_int and left.dtype.lanes == 1:
            low, high = interval_of(right, {**dict.fromkeys(variables, (-70, 70)), **ranges})
            assert low <= int(x) <= high
    return True
