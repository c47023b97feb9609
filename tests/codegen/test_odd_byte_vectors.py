"""Vectors of bytes whose number is no power of two, in kernels that keep them between two stages: LLVM must end.

Of 48 bytes followed by copies of the last one, LLVM 20's instruction selection for AVX-512 went round for ever.
"""

from __future__ import annotations

import pytest

import armillary
from armillary import relay

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
