"""Words of four bytes and their dot products: exact for all signs and extreme values, on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import compiled, run
from host_cpu import runs_here
from words import ARM, WORDS, Words, product_of_rows

from armillary import te
from armillary.errors import TypeMismatch
from armillary.target.cpu import cpu_model
from armillary.tir import expr as E
from armillary.tir.interpreter import interpret
from armillary.tir.intrinsics import dot_bytes, flipped_bytes, four_bytes
from armillary.tir.lower import lower_function

HERE = ("llvm", "llvm -mcpu=znver4", "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell", "llvm -mcpu=x86-64", "c")
SIGNS = [(x, y) for x in ("uint8", "int8") for y in ("uint8", "int8")]
BYTES = Words(4, "four_bytes", "dot_bytes", "int32")


def inputs(x: str, y: str) -> list[np.ndarray[Any, Any]]:
    """Extreme bytes against each other, then random ones (seed 5), and sums next to where int32 wraps."""
    rng, made = np.random.default_rng(5), []
    for k, name in enumerate((x, y)):
        info = np.iinfo(name)
        values = rng.integers(info.min, info.max, 4 * WORDS, dtype=name, endpoint=True)
        for at, edge in enumerate((info.max, info.min, info.min if k else info.max, info.max if k else info.min)):
            values[8 * at : 8 * at + 8] = edge
        made.append(values)
    sums = rng.integers(-(2**31), 2**31 - 1, WORDS, dtype=np.int32)
    sums[:8] = [2**31 - 1, -(2**31)] * 4
    return [*made, sums, np.zeros(WORDS, np.int32)]


def wanted(a: Any, b: Any, sums: Any) -> tuple[Any, Any]:
    """The same in 64 bits, wrapped."""
    words = [v.reshape(-1, 4).astype(np.int64) for v in (a, b)]
    return (sums + (words[0] * words[1]).sum(1)).astype(np.int32), (words[0][0] * words[1]).sum(1).astype(np.int32)


@pytest.mark.parametrize("lanes", [1, 4, 8, 12, 16])
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_dot_products_of_bytes_are_exact_on_every_target(x: str, y: str, lanes: int) -> None:
    function, arrays = BYTES.program(x, y, lanes), inputs(x, y)
    want = wanted(*arrays[:3])
    message = [v.copy() for v in arrays]
    interpret(function, *message)
    np.testing.assert_array_equal(message[2], want[0])
    np.testing.assert_array_equal(message[3], want[1])
    for target in filter(runs_here, HERE):
        got = [v.copy() for v in arrays]
        assert run(function, target, *got) == 0
        np.testing.assert_array_equal(got[2], want[0], err_msg=f"{target} {x} {y} x{lanes}")
        np.testing.assert_array_equal(got[3], want[1], err_msg=f"{target} {x} {y} x{lanes}")


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("x", ["uint8", "int8"])
def test_symmetric_bytes_are_any_bytes_but_one(x: str, lanes: int) -> None:
    function, arrays = (
        Words(4, "four_bytes", "dot_symmetric_bytes", "int32").program(x, "int8", lanes),
        inputs(x, "int8"),
    )
    arrays[1] = np.maximum(arrays[1], -127)
    want = wanted(*arrays[:3])
    message = [v.copy() for v in arrays]
    interpret(function, *message)
    np.testing.assert_array_equal(message[2], want[0])
    for target in filter(runs_here, HERE):
        got = [v.copy() for v in arrays]
        assert run(function, target, *got) == 0
        np.testing.assert_array_equal(got[2], want[0], err_msg=f"{target} {x} x{lanes}")
        np.testing.assert_array_equal(got[3], want[1], err_msg=f"{target} {x} x{lanes}")


@pytest.mark.parametrize(
    ("target", "x", "y", "instruction", "count"),
    [
        ("llvm -mcpu=znver4", "uint8", "int8", "vpdpbusd", 2),
        ("llvm -mcpu=alderlake", "uint8", "int8", "vpdpbusd", 4),
        ("llvm -mcpu=haswell", "uint8", "int8", "vpmaddwd", 8),
        ("llvm -mcpu=skylake-avx512", "int8", "int8", "vpmaddwd", 4),
        (ARM + "cortex-a76", "int8", "int8", "sdot", 8),
        (ARM + "cortex-a76", "uint8", "uint8", "udot", 8),
        (ARM + "neoverse-n2", "uint8", "int8", "usdot", 8),
        (ARM + "neoverse-n2", "int8", "uint8", "usdot", 8),
    ],
)
def test_a_dot_product_with_its_addition_is_one_instruction(
    target: str, x: str, y: str, instruction: str, count: int
) -> None:
    text = compiled([BYTES.program(x, y, 16)], target).get_source("asm")
    assert sum(instruction in line.split()[:2] for line in text.splitlines()) == count  # "{vex} vpdpbusd" too
    assert "vpaddd" not in text or instruction == "vpmaddwd"


def test_bytes_side_by_side_are_loaded_as_words() -> None:
    text = compiled([BYTES.program("uint8", "int8", 16)], "llvm -mcpu=znver4").get_source("ll")
    assert "load <16 x i32>" in text and "load i32" in text and "load i8" not in text


@pytest.mark.parametrize(
    ("target", "signs", "rate"),
    [
        ("znver4", {("uint", "int")}, 64),
        ("graniterapids", {("uint", "int")}, 128),
        ("haswell", set(), 16),
        ("alderlake", {("uint", "int")}, 64),
        ("skylake-avx512", set(), 32),
    ],
)
def test_the_model_knows_the_signs_and_the_rate(target: str, signs: set[tuple[str, str]], rate: int) -> None:
    model = cpu_model(f"llvm -mtriple=x86_64-linux-gnu -mcpu={target}")
    assert model.dot_signs == signs and model.dots_per_cycle == rate


def test_the_model_of_arm_knows_the_signs() -> None:
    same = {("int", "int"), ("uint", "uint")}
    assert cpu_model(ARM + "cortex-a72").dot_signs == set()
    assert cpu_model(ARM + "cortex-a76").dot_signs == same
    assert cpu_model(ARM + "neoverse-n2").dot_signs == {*same, ("uint", "int")}


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_words_in_a_schedule_are_bytes_of_a_row_or_of_four_rows(x: str, y: str, vector: bool, target: str) -> None:
    """A product whose right side lies by rows (words across), the left one's bytes flipped."""

    def term(left: list[Any], right: list[Any]) -> Any:
        return dot_bytes(flipped_bytes(four_bytes(*left)), four_bytes(*right))

    function = lower_function(te.lower_schedule(*product_of_rows(x, y, 4, term, vector), "f"))
    rng = np.random.default_rng(11)
    arrays = []
    for name, shape in ((x, (3, 8)), (y, (8, 16))):
        arrays.append(rng.integers(np.iinfo(name).min, np.iinfo(name).max, shape, dtype=name, endpoint=True))
    arrays[0][0], arrays[1][:, 0] = np.iinfo(x).max, np.iinfo(y).min
    moved = arrays[0].astype(np.int64) + (128 if x == "int8" else -128)
    got = np.zeros((3, 16), np.int32)
    assert run(function, target, *arrays, got) == 0
    np.testing.assert_array_equal(got, moved @ arrays[1].astype(np.int64))


def test_words_are_of_four_bytes_of_one_sign() -> None:
    signed, unsigned = E.Var("s", "int8"), E.Var("u", "uint8")
    with pytest.raises(TypeMismatch, match="wanted four int8 or four uint8"):
        four_bytes(signed, signed, unsigned, signed)
    with pytest.raises(TypeMismatch, match="wanted words"):
        dot_bytes(signed, unsigned)
    with pytest.raises(TypeMismatch, match="wanted a word"):
        flipped_bytes(unsigned)


@pytest.mark.parametrize("cpu", ["cortex-a72", "cortex-a76", "neoverse-n2"])
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_dot_products_on_aarch64_under_emulation(x: str, y: str, cpu: str, tmp_path: Path) -> None:
    arrays = inputs(x, y)
    np.testing.assert_array_equal(BYTES.emulated(x, y, cpu, arrays, tmp_path), np.stack(wanted(*arrays[:3])))
