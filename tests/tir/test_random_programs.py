"""Random programs mean the same after printing and parsing, after every pass, and cut into phases."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from random_programs import RandomProgram

from armillary.base.node import structural_equal
from armillary.ir import IRModule
from armillary.tir import lower
from armillary.tir import stmt as S
from armillary.tir.interpreter import interpret, interpret_phases
from armillary.tir.parser import parse_function
from armillary.tir.printer import print_function
from armillary.tir.transform.split_phases import split_phases
from armillary.tir.verifier import verify

SEEDS = range(80)


def results(run: Callable[..., None], arguments: list[np.ndarray]) -> list[np.ndarray]:
    given = copy.deepcopy(arguments)
    run(*given)
    return given[2:]


def assert_same(want: list[np.ndarray], got: list[np.ndarray], seed: int, text: str) -> None:
    for a, b in zip(want, got, strict=True):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f"seed {seed}\n{text}"


@pytest.mark.parametrize("seed", SEEDS)
def test_text_reads_back_as_the_same_program(seed: int) -> None:
    func = RandomProgram(seed).func
    verify(func)
    text = print_function(func)
    again = parse_function(text)
    assert structural_equal(func, again), f"seed {seed}\n{text}"
    assert print_function(again) == text


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pass_keeps_the_meaning(seed: int) -> None:
    program = RandomProgram(seed)
    arguments = program.arguments()
    want = results(lambda *a: interpret(program.func, *a), arguments)
    module = IRModule({"main": program.func})
    for item in lower.passes():
        before: S.PrimFunc = module["main"]
        module = item(module)
        after: S.PrimFunc = module["main"]
        verify(after)
        got = results(lambda *a, f=after: interpret(f, *a), arguments)  # type: ignore[misc]
        assert_same(want, got, seed, f"{item!r}\n--- before\n{before}\n--- after\n{after}")
    assert structural_equal(parse_function(print_function(module["main"])), module["main"])


@pytest.mark.parametrize("seed", SEEDS)
def test_phases_mean_the_same(seed: int) -> None:
    program = RandomProgram(seed)
    arguments = program.arguments()
    want = results(lambda *a: interpret(program.func, *a), arguments)
    lowered = lower.lower_function(program.func)
    phased = split_phases(lowered)
    got = results(lambda *a: interpret_phases(phased, *a), arguments)
    assert_same(want, got, seed, str(lowered))
