"""Functions of `armillary.compute` against Arm Compute Library 20.08: what it gave once, and a sample made afresh."""

from __future__ import annotations

import base64
import json
import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compute.acl_oracle import memory_cases
from tests.compute.acl_oracle.nn_cases import NEURAL
from tests.compute.acl_oracle.record import BUILDERS, FILE, case_of, digest, has_near_numbers, inside, is_exact
from tests.compute.acl_oracle.wire import Array, Case, Result, build, has_library, run

STORED: dict[str, list[Any]] = json.loads(lzma.decompress(FILE.read_bytes()))  # Any: see record.py
QUICK = 3  # stored cases that every run compares, of layers (which compile) one; all of them are slow
FRESH_LAYERS = 2  # layers of which a case is made afresh, as of every vision function


def _near(case: Case, found: Array, wanted: Array, told: str) -> None:
    if case.bound:
        apart = np.abs(found.astype(np.float64) - wanted).max(initial=0)
        assert apart <= case.bound * max(1e-6, np.abs(wanted).max(initial=0)), f"{told}: {apart:g}"
        return
    off = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert off.max(initial=0) <= case.step, f"{told}: {np.argwhere(off > case.step)[:5].tolist()}"
    if case.step:
        assert (off == 0).mean() > 0.7, f"{told}: differs by one at {(off != 0).mean():.0%}"


def _near_numbers(case: Case, found: Sequence[float], wanted: Array, told: str) -> None:
    """Within the bound, and an eighth of it on average; or most of them equal."""
    off = np.abs(np.asarray(found) - wanted.astype(np.float64))
    if case.bound:
        largest = np.abs((wanted[3:] if wanted.size > 3 else wanted).astype(np.float64)).max(initial=0)
        assert off.max(initial=0) <= case.bound * largest and off.sum() <= case.bound / 8 * largest * off.size, told
    else:
        assert (off == 0).mean() >= case.share, told


def check_stored(name: str, number: int, side: str = "NE", padding: int = 0) -> None:
    """A function of this library, on the CPU or (CL) a device, gives what is stored."""
    case = case_of(name, number)
    case.side, case.padding = side, padding
    (region, values, numbers), result = STORED[name][number], case.ours(case)
    told = f"{name} {number} {[t.sizes for t in case.tensors]} {case.params[:8]}"
    if case.has_region:
        assert list(result.region) == region, told
    if has_near_numbers(case):
        _near_numbers(case, result.numbers, np.frombuffer(base64.b64decode(numbers), np.float32), told)
    elif numbers:
        assert digest(np.asarray(result.numbers, np.float64)) == numbers, told
    for output, kept in zip(result.outputs, values, strict=True):
        part = inside(output, tuple(region), case)
        if is_exact(case):
            assert digest(part) == kept, told
        else:
            _near(case, part, np.frombuffer(base64.b64decode(kept), part.dtype).reshape(part.shape), told)


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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not has_library() and not os.environ.get("CI"):
        pytest.skip("Arm Compute Library, its cross compiler or qemu-user-static is not installed")
    return build(tmp_path_factory.mktemp("acl"))


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
        told = f"{case.name} {[t.sizes for t in case.tensors]} {case.params[:8]} from number {first}"
        if has_near_numbers(case):
            _near_numbers(case, result.numbers, np.asarray(wanted.numbers), told)
        else:
            assert result.numbers == wanted.numbers, told
        for found, output in zip(result.outputs, wanted.outputs, strict=True):
            _near(case, *(inside(v, wanted.region, case) for v in (found, output)), told)
