"""An expression that a statement reads in several places is emitted once where that is right, and again where not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import compiled, run

from armillary.base.dtype import DType
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.lower import lower_function
from armillary.tir.simplify import Simplifier

F32 = DType("float32")
SIZE = 48
Link = Callable[[E.Expr, E.Expr, int], E.Expr]  # the chain so far, the loop variable, the number of the link
LINKS: dict[str, Link] = {
    "add": lambda y, i, k: y + y * T.const(-0.5, F32),
    "extremum": lambda y, i, k: T.maximum(y, y - T.const(0.5, F32)),
    "select": lambda y, i, k: T.select(y > T.const(0, F32), y, y * T.const(0.5, F32)),
    "choice": lambda y, i, k: T.if_then_else(i < k, y, y * T.const(0.75, F32)),
    "call": lambda y, i, k: y * T.const(0.5, F32) + T.if_then_else(i < k, E.Call(F32, "fabs", (y,)), y),
}
NUMPY: dict[str, Callable[[Any, Any, int], Any]] = {
    "add": lambda y, i, k: y * 0.5,
    "extremum": lambda y, i, k: np.maximum(y, y - 0.5),
    "select": lambda y, i, k: np.where(y > 0, y, y * 0.5),
    "choice": lambda y, i, k: np.where(i < k, y, y * 0.75),
    "call": lambda y, i, k: y * 0.5 + np.where(i < k, np.abs(y), y),
}
TARGETS = ("llvm", "c")


def chain(link: Link, length: int, *, is_vector: bool) -> S.PrimFunc:
    a, b = (S.Buffer(name, (T.const(SIZE),), F32) for name in "ab")
    i = E.Var("i")
    value: E.Expr = E.BufferLoad(a, (i,))
    for k in range(length):
        value = link(value, i, k)
    kind = S.LoopKind.VECTORIZED if is_vector else S.LoopKind.SERIAL
    return lower_function(S.PrimFunc((a, b), S.For(i, T.const(0), T.const(SIZE), kind, S.BufferStore(b, value, (i,)))))


def sorted_bytes(length: int) -> S.PrimFunc:
    """Each link reads the smaller and the larger of the two before, as a sorting network does."""
    a, b = (S.Buffer(name, (T.const(SIZE),), DType("uint8")) for name in "ab")
    low, high = (E.BufferLoad(a, (T.const(k),)) for k in range(2))
    for k in range(2, length):
        other = E.BufferLoad(a, (T.const(k % SIZE),))
        low, high = T.minimum(T.maximum(low, other), high), T.maximum(T.minimum(low, other), high)
    return lower_function(S.PrimFunc((a, b), S.BufferStore(b, T.maximum(low, high), (T.const(0),))))


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_compiles_a_sorting_network_at_once(tmp_path: Path) -> None:
    """It evaluates the initialiser of a constant again at each use: 40 s and more for 25 values, were they `const`."""
    file = tmp_path / "network.c"
    file.write_text(compiled([sorted_bytes(60)], "c").get_source())
    subprocess.run(["clang", "-w", "-fsyntax-only", file], check=True, timeout=20)


def lines(function: S.PrimFunc, target: str) -> int:
    return len(compiled([function], target).get_source().splitlines())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("is_vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("name", LINKS)
def test_long_chains_are_right(name: str, is_vector: bool, target: str) -> None:
    data, out = np.random.default_rng(7).standard_normal(SIZE).astype("f"), np.zeros(SIZE, "f")
    assert run(chain(LINKS[name], 40, is_vector=is_vector), target, data, out) == 0
    wanted: Any = data.astype("float64")
    for k in range(40):
        wanted = NUMPY[name](wanted, np.arange(SIZE), k)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("is_vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("name", LINKS)
def test_code_grows_with_the_length_of_a_chain(name: str, is_vector: bool, target: str) -> None:
    short, middle, long = (lines(chain(LINKS[name], n, is_vector=is_vector), target) for n in (4, 8, 12))
    assert long - middle <= 2 * (middle - short) + 8


@pytest.mark.parametrize("target", TARGETS)
def test_what_both_sides_of_a_choice_load_stays_behind_the_choice_around_it(target: str) -> None:
    a, b = S.Buffer("a", (T.const(4),), F32), S.Buffer("b", (T.const(SIZE),), F32)
    i = E.Var("i")
    far: E.Expr = E.BufferLoad(a, (i * 100_000_000,))  # no such memory but for i = 0
    for _ in range(3):
        far = far * T.const(0.5, F32) + far
    inner = T.if_then_else(i < 3, far + T.const(1, F32), far * T.const(2, F32))
    value = T.if_then_else(i < 1, inner, T.const(-1, F32)) + T.if_then_else(i < 1, far, T.const(-2, F32))
    function = S.PrimFunc((a, b), S.For(i, T.const(0), T.const(SIZE), S.LoopKind.SERIAL, S.BufferStore(b, value, (i,))))
    out = np.zeros(SIZE, "f")
    assert run(function, target, np.full(4, 8, "f"), out) == 0
    np.testing.assert_allclose(out, [55, *[-3] * (SIZE - 1)])


@pytest.mark.parametrize("target", TARGETS)
def test_a_shared_expression_is_emitted_anew_when_memory_has_changed(target: str) -> None:
    a, b = (S.Buffer(name, (T.const(4),), F32) for name in "ab")
    zero, i = T.const(0), E.Var("i")
    shared = E.BufferLoad(a, (zero,)) + E.BufferLoad(a, (T.const(1),))
    body = S.seq(S.BufferStore(a, shared, (zero,)), S.BufferStore(b, shared, (zero,)))
    first, out = np.array([1, 2, 3, 4], "f"), np.zeros(4, "f")
    assert run(S.PrimFunc((a, b), S.For(i, zero, T.const(1), S.LoopKind.SERIAL, body)), target, first, out) == 0
    assert (first[0], out[0]) == (3, 5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_foreign_call_with_effects_runs_for_each_reader(target: str) -> None:
    b = S.Buffer("b", (T.const(2),), DType("int32"))
    drawn = E.Call(DType("int32"), "call_extern", (E.StringImm("rand"),))
    pure = E.Call(DType("int32"), "call_pure_extern", (E.StringImm("abs"), E.BufferLoad(b, (T.const(1),))))
    i = E.Var("i")
    body = S.BufferStore(b, drawn - drawn * pure * pure, (T.const(0),))
    function = S.PrimFunc((b,), S.For(i, T.const(0), T.const(1), S.LoopKind.SERIAL, body))
    source = compiled([function], target).get_source()
    inside = source[source.index("{") :]
    assert inside.count("rand(") == 2
    assert target == "c" or inside.count("@abs(") == 1


def test_a_choice_that_many_choices_lead_to_is_simplified_a_few_times() -> None:
    i, mask = E.Var("i"), S.Buffer("mask", (T.const(SIZE),), F32)
    value: E.Expr = E.BufferLoad(mask, (i,))
    links = 60
    for k in range(links):
        value = T.if_then_else(E.BufferLoad(mask, (i,)) > T.const(float(k), F32), value, value * T.const(2, F32))
    simple = Simplifier()(value)
    seen: dict[int, E.Expr] = {}
    stack: list[E.Expr] = [simple]
    while stack:
        item = stack.pop()
        if id(item) not in seen:
            seen[id(item)] = item
            stack.extend(part for part in getattr(item, "args", ()) if isinstance(part, E.Expr))
            stack.extend(part for part in (getattr(item, "a", None), getattr(item, "b", None)) if part is not None)
    assert len(seen) < 20 * links
