"""Blocks that ask for a state of the processor: streaming mode of Arm's SME around what they compute."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from armillary.topi.arm_cpu.pstate_attributes import SMEAttributes
from emulators import need

import armillary
from armillary.errors import TypeMismatch
from armillary.script import tir as T
from armillary.tir.stmt import PrimFunc

SME = "llvm -mtriple=aarch64-linux-gnu -mattr=+sme"
MODE, STORAGE = SMEAttributes.STREAMING_MODE, SMEAttributes.ZA_STORAGE
ENABLED = SMEAttributes.StreamingModeValues.ENABLED
MAIN = r"""
#include <stdint.h>
#include <stdio.h>
int32_t main__p0(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread);
static float a[40], c[40];
int main(void) {
  if (fread(a, 4, 40, stdin) != 40) return 1;
  void *data[] = {a, c, 0, 0};
  return main__p0(data, 0, 0, 1, 0) || fwrite(c, 4, 40, stdout) != 40;
}
"""


def doubled(key: str, value: object) -> PrimFunc:
    """Twice a vector, plus one, in a block with a note."""

    @T.prim_func
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (40,), "float32")
        C = T.match_buffer(c, (40,), "float32")
        with T.block("extern"):
            T.block_attr({key: value})
            for i in range(40):
                C[i] = A[i] * T.float32(2) + T.float32(1)

    return main


@pytest.mark.parametrize("value", [ENABLED, SMEAttributes.StreamingModeValues.COMPATIBLE])
def test_the_mode_is_entered_around_what_the_block_computes(value: str) -> None:
    library = armillary.build(doubled(MODE, value), target=SME)
    lines = library.get_source("ll").splitlines()
    assert f'attributes #0 = {{ "{value}" }}' in lines
    assert ["main__p0_compute_(" in line for line in lines if "#0 {" in line] == [True]
    asm = library.get_source("asm")
    assert ("smstart\tsm" in asm, "smstop\tsm" in asm) == (value == ENABLED, value == ENABLED)


def test_other_functions_and_other_processors_have_no_mode() -> None:
    text = armillary.build(doubled("pragma_other", "x"), target=SME).get_source("ll")
    assert "main__p0.body" in text and "pstate" not in text
    text = armillary.build(doubled(MODE, ENABLED), target="llvm -mtriple=aarch64-linux-gnu").get_source("ll")
    assert "pstate" not in text


def test_storage_is_noted() -> None:
    text = armillary.build(doubled(STORAGE, SMEAttributes.ZAStorageValues.NEW), target=SME).get_source("ll")
    assert '"aarch64_pstate_za_new"' in text


@pytest.mark.parametrize("value", [ENABLED, SMEAttributes.StreamingModeValues.COMPATIBLE])
def test_numbers_are_the_same_in_streaming_mode(value: str, tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
    (tmp_path / "main.c").write_text(MAIN)
    armillary.build(doubled(MODE, value), target=SME).save(tmp_path / "k.o")
    command = ["aarch64-linux-gnu-gcc", "-static", "-O1", "main.c", "k.o", "-o", "run"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    done = subprocess.run(
        ["qemu-aarch64-static", "-cpu", "max", "run"], cwd=tmp_path, input=x.tobytes(), capture_output=True, check=True
    )
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), x * 2 + 1, rtol=1e-6)


def test_notes_that_say_nothing_or_two_things_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="Expect pragma_aarch64_pstate_sm to have a String value but was IntImm"):
        armillary.build(doubled(MODE, True), target=SME)

    @T.prim_func
    def twice(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (16,), "float32")
        C = T.match_buffer(c, (1,), "float32")
        with T.block("one"):
            T.block_attr({MODE: ENABLED})
            for i in range(16):
                C[0] += A[i] * T.float32(2)
        with T.block("two"):
            T.block_attr({MODE: ENABLED})
            for i in range(16):
                C[0] += A[i] * T.float32(3)

    with pytest.raises(TypeMismatch, match=r"Multiple definitions of pragma_aarch64_pstate_sm .*_compute_"):
        armillary.build(twice, target=SME)
