"""Vectors of bytes whose number is no power of two, in kernels that keep them between two stages: LLVM must end.

Of 48 bytes followed by copies of the last one, LLVM 20's instruction selection for AVX-512 went round for ever.
LLVM 22's for AArch64 ends the process on three bytes that were 64 bits wide.
"""

from __future__ import annotations

import pytest

import armillary
from armillary import relay, te

_TEXT = """
#[version = "0.0.5"]
def @main(%x: Tensor[({n}), float32]) {{
  %0 = cast(add(cast(round(clip(divide(%x, 0.01f), a_min=-130.0, a_max=125.0)), dtype="int32"), 2), dtype="{byte}");
  %1 = cast(subtract(cast(%0, dtype="int32"), 2), dtype="float32");
  multiply(multiply(%1, 0.01f), clip(add(multiply(%1, 0.0016666667f), 0.5f), a_min=0.0, a_max=1.0))
}}
"""


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell"])
@pytest.mark.parametrize("byte", ["int8", "uint8", "int16"])
def test_compiling_ends(cpu: str, byte: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_COMPILE_TIMEOUT", "60")
    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    for n in (48, 24, 33, 56, 63):
        module = relay.fromtext(_TEXT.format(n=n, byte=byte))
        with armillary.transform.PassContext(opt_level=3):
            relay.build(module, f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")


@pytest.mark.parametrize("byte", ["int8", "uint8"])
@pytest.mark.parametrize("lanes", [3, 5, 6, 7])
def test_words_of_64_bits_become_bytes_on_aarch64(lanes: int, byte: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    x = te.placeholder((4, lanes), "int64", name="x")
    y = te.compute((4, lanes), lambda i, j: x[i, j].astype(byte), name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].vectorize(y.op.axis[1])
    made = armillary.build(schedule, [x, y], "llvm -mtriple=aarch64-linux-gnu -mattr=+neon")
    assert "\tstr" in made.get_source("asm")
