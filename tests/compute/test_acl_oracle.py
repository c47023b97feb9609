"""Functions of `armillary.compute` against Arm Compute Library 20.08: what it gave once, and a sample made afresh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compute.acl_oracle import memory_cases
from tests.compute.acl_oracle.check import STORED, check_stored, near, near_numbers
from tests.compute.acl_oracle.nn_cases import NEURAL
from tests.compute.acl_oracle.record import BUILDERS, case_of, has_near_numbers, inside
from tests.compute.acl_oracle.wire import Result, run

QUICK = 3  # stored cases that every run compares, of layers (which compile) one; all of them are slow
FRESH_LAYERS = 2  # layers of which a case is made afresh, as of every vision function


def _quick(name: str) -> int:
    """What compiles for each case is compared once; other layouts in the slow tests and fresh samples."""
    if " " in name:
        return 0
    return 1 if name in NEURAL or "HOG" in name else QUICK


def test_every_function_has_stored_cases() -> None:
    assert set(STORED) == set(BUILDERS)
    assert min(map(len, STORED.values())) >= 50


@pytest.mark.parametrize("name", BUILDERS)
def test_stored_outputs_of_the_library(name: str) -> None:
    for number in range(_quick(name)):
        check_stored(name, number)


@pytest.mark.parametrize("name", [name for name in BUILDERS if " " not in name and "HOG" not in name])
def test_a_stored_output_with_strides_of_ones_own(name: str) -> None:
    check_stored(name, 0, padding=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_all_stored_outputs_with_strides_of_ones_own(name: str) -> None:
    for number in range(len(STORED[name])):
        check_stored(name, number, padding=number + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_all_stored_outputs_of_the_library(name: str) -> None:
    for number in range(_quick(name), len(STORED[name])):
        check_stored(name, number)


def test_memory_of_networks_is_what_the_library_takes(program: Path) -> None:
    for name, recorded in memory_cases.RECORDED.items():
        cases = memory_cases.cases(name)
        assert tuple(result.numbers[0] for result in run(program, cases)) == recorded
        for case in cases:
            assert case.ours(case).numbers[0] <= 1.05 * min(recorded), name


def test_a_fresh_sample_of_the_library(program: Path) -> None:
    rng = np.random.default_rng()
    first = int(rng.integers(1 << 20))
    layers = set(rng.permutation(list(NEURAL))[FRESH_LAYERS:].tolist())
    cases = [case_of(name, first) for name in BUILDERS if name not in layers]
    theirs: list[Result] = run(program, cases)
    for case, wanted in zip(cases, theirs, strict=True):
        result = case.ours(case)
        message = f"{case.name} {[t.sizes for t in case.tensors]} {case.params[:8]} from number {first}"
        if has_near_numbers(case):
            near_numbers(case, result.numbers, np.asarray(wanted.numbers), message)
        else:
            assert result.numbers == wanted.numbers, message
        for found, output in zip(result.outputs, wanted.outputs, strict=True):
            near(case, *(inside(v, wanted.region, case) for v in (found, output)), message)
