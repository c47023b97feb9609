"""tir.const as scripts call it: a number that the dtype lacks is refused, not wrapped."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import tir
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch


@pytest.mark.parametrize(
    ("dtype", "fits", "wrong"),
    [
        ("int8", [-128, 127], [-129, 128]),
        ("uint8", [0, 255], [-1, 256]),
        ("int32", [-(2**31), 2**31 - 1], [2**31]),
        ("uint32", [0, 2**32 - 1], [-1, 2**32]),
        ("uint64", [0, 2**64 - 1], [-1]),
        ("float16", [65504.0, np.inf], [65505.0, 65520.0, 1e6]),
        ("float32", [3.4e38, -np.inf], [3.5e38]),
    ],
)
def test_numbers_fit_their_dtype(dtype, fits, wrong):
    assert all(float(tir.const(number, dtype).value) == pytest.approx(float(number)) for number in fits)
    for number in wrong:
        with pytest.raises(TypeMismatch, match="does not fit"):
            tir.const(number, dtype)


def test_what_constants_compute_wraps_and_floats_are_cut():
    assert tir.const(255, "uint8").value == 255 and (tir.const(255, "uint8") + tir.const(1, "uint8")).value == 0
    assert tir.const(2.7, "int32").value == 2 and tir.const(2, "bool").value == 1


def test_bytes_of_floats_have_the_names_that_scripts_give_them() -> None:
    assert DType("e4m3_float8") is DType("float8_e4m3fn")
    assert DType("e5m2_float8x4") is DType("float8_e5m2x4") and DType("e5m2_float8x4").lanes == 4


@pytest.mark.parametrize("name", ["e4m3_float8x", "float8_e5m2x", "float8_e5m2xx2", "int8x0", "e3m4_float8"])
def test_names_that_are_almost_those_of_types_are_refused(name: str) -> None:
    with pytest.raises(TypeMismatch, match="unknown dtype"):
        DType(name)
