"""Words of two bfloat16 and the sums of their products: those of float32 multiply-adds, on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness import compiled, run
from words import ARM, WORDS, Words, product_of_rows

from armillary import te
from armillary.errors import TypeMismatch
from armillary.target.cpu import cpu_model
from armillary.tir import expr as E
from armillary.tir.interpreter import interpret
from armillary.tir.intrinsics import dot_bf16, pack_bf16
from armillary.tir.lower import lower_function

HERE = (
    "llvm",
    "llvm -mcpu=znver4",
    "llvm -mcpu=cooperlake",
    "llvm -mcpu=skylake-avx512",
    "llvm -mcpu=haswell",
    "llvm -mcpu=x86-64",
    "c",
)
HALVES = Words(2, "pack_bf16", "dot_bf16", "float32")
BFLOAT = ml_dtypes.bfloat16


def inputs() -> list[np.ndarray[Any, Any]]:
    """Normal numbers of both signs and many sizes, zeros, and sums of like size (seed 7)."""
    rng = np.random.default_rng(7)
    made = [(rng.standard_normal(2 * WORDS) * 2.0 ** rng.integers(-9, 9, 2 * WORDS)).astype(BFLOAT) for _ in "ab"]
    made[0][4:6], made[1][5:8] = 0, 0
    return [*made, rng.standard_normal(WORDS).astype(np.float32), np.zeros(WORDS, np.float32)]


def wanted(a: Any, b: Any, sums: Any) -> tuple[Any, Any, Any, Any]:
    """The sums in float64, and how far float32 may be off: two roundings, either way, of the whole."""
    x, y = (v.astype(np.float64).reshape(-1, 2) for v in (a, b))
    small = 2.0**-22
    first, second = x * y, x[0] * y
    edges = (np.abs(sums) + np.abs(first).sum(1)) * small, np.abs(second).sum(1) * small
    return sums + first.sum(1), second.sum(1), *edges


def assert_close(got: list[Any], arrays: list[Any], what: str) -> None:
    total, one, near_total, near_one = wanted(*arrays[:3])
    assert (np.abs(got[2] - total) <= near_total).all(), what
    assert (np.abs(got[3] - one) <= near_one).all(), what


@pytest.mark.parametrize("lanes", [1, 4, 8, 12, 16])
def test_products_of_halves_are_those_of_float32_on_every_target(lanes: int) -> None:
    function, arrays = HALVES.program("bfloat16", "bfloat16", lanes), inputs()
    message = [v.copy() for v in arrays]
    interpret(function, *message)
    assert_close(message, arrays, "interpreter")
    for target in HERE:
        got = [v.copy() for v in arrays]
        assert run(function, target, *got) == 0
        assert_close(got, arrays, f"{target} x{lanes}")


def test_infinities_and_nans_stay_what_they_are() -> None:
    function, arrays = HALVES.program("bfloat16", "bfloat16", 16), inputs()
    arrays[0][:6] = [np.inf, 1, np.nan, 1, np.inf, 0]
    arrays[1][:6] = [1, 1, 1, 1, -np.inf, 1]
    for target in HERE:
        got = [v.copy() for v in arrays]
        assert run(function, target, *got) == 0
        assert got[2][0] == np.inf and np.isnan(got[2][1]) and got[2][2] == -np.inf, target


@pytest.mark.parametrize(
    ("target", "instruction", "count"),
    [
        ("llvm -mcpu=znver4", "vdpbf16ps", 2),
        ("llvm -mcpu=sapphirerapids", "vdpbf16ps", 2),
        ("llvm -mcpu=haswell", "vfmadd", 8),
        (ARM + "neoverse-n2", "bfdot", 8),
        (ARM + "cortex-a76", "fmla", 16),
    ],
)
def test_products_with_their_addition_are_one_instruction(target: str, instruction: str, count: int) -> None:
    text = compiled([HALVES.program("bfloat16", "bfloat16", 16)], target).get_source("asm")
    found = sum(line.split()[0].startswith(instruction) for line in text.splitlines() if line.split())
    assert found == count
    assert "vaddps" not in text and "fadd" not in text


def test_halves_side_by_side_are_loaded_as_words() -> None:
    text = compiled([HALVES.program("bfloat16", "bfloat16", 16)], "llvm -mcpu=znver4").get_source("ll")
    assert "load <16 x i32>" in text and "load i32" in text and "load i16" not in text


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("vector", [False, True])
def test_words_in_a_schedule_are_halves_of_a_row_or_of_two_rows(vector: bool, target: str) -> None:
    """A product whose right side lies by rows (words across)."""

    def term(left: list[Any], right: list[Any]) -> Any:
        return dot_bf16(pack_bf16(*left), pack_bf16(*right))

    function = lower_function(te.lower_schedule(*product_of_rows("bfloat16", "bfloat16", 2, term, vector), "f"))
    rng = np.random.default_rng(11)
    arrays = [rng.standard_normal(shape).astype(BFLOAT) for shape in ((3, 8), (8, 16))]
    got = np.zeros((3, 16), np.float32)
    assert run(function, target, *arrays, got) == 0
    wide = [v.astype(np.float64) for v in arrays]
    np.testing.assert_allclose(got, wide[0] @ wide[1], rtol=0, atol=1e-6 * float(np.abs(wide[0]).sum()))


def test_words_are_of_two_bfloat16() -> None:
    half, other = E.Var("h", "bfloat16"), E.Var("o", "float16")
    with pytest.raises(TypeMismatch, match="pack_bf16: got bfloat16, float16, wanted two bfloat16"):
        pack_bf16(half, other)
    with pytest.raises(TypeMismatch, match="dot_bf16: got uint32 and bfloat16, wanted words"):
        dot_bf16(pack_bf16(half, half), half)


@pytest.mark.parametrize(
    ("target", "rate", "has_tiles", "pays"),
    [
        ("znver4", 32.0, False, True),
        ("znver5", 64.0, False, True),
        ("cooperlake", 64.0, False, True),
        ("graniterapids", 16.0, True, True),
        ("haswell", 16.0, False, False),
        ("skylake-avx512", 32.0, False, False),
    ],
)
def test_the_model_knows_what_products_of_halves_take(target: str, rate: float, has_tiles: bool, pays: bool) -> None:
    model = cpu_model(f"llvm -mtriple=x86_64-linux-gnu -mcpu={target}")
    assert (model.bfloat16_dots_per_cycle, model.has_bfloat16_tiles, model.multiplies_bfloat16) == (
        rate,
        has_tiles,
        pays,
    )


def test_the_model_of_arm_knows_which_processors_multiply_halves() -> None:
    assert not cpu_model(ARM + "cortex-a76").has_bfloat16_dots and cpu_model(ARM + "neoverse-n2").has_bfloat16_dots


@pytest.mark.parametrize("cpu", ["cortex-a76", "neoverse-n2"])
def test_products_of_halves_on_aarch64_under_emulation(cpu: str, tmp_path: Path) -> None:
    arrays = inputs()
    got = HALVES.emulated("bfloat16", "bfloat16", cpu, arrays, tmp_path)
    assert_close([*arrays[:2], *got], arrays, cpu)
