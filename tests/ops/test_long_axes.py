"""Axes of more than 2^31 elements, and bounds beyond them: indices are as wide as the axis.

The long tensors are zeros that nobody wrote, which take no memory but the pages that are read.
"""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.te import Tensor

LONG = 2**31 + 7


def compiled(result: Tensor, arguments: list[Tensor], target: str, values: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(te.static_shape(result), str(result.dtype))
    function = armillary.build(te.create_schedule(result.op), [*arguments, result], target)
    held = [armillary.nd.from_dlpack(v) for v in (*values, out)]
    function(*held)
    return held[-1].numpy()


def long_tensor() -> np.ndarray:
    made = np.zeros(LONG, np.int8)
    made[[2**31 - 1, 2**31, LONG - 1]] = 3, 5, 9
    return made


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_reads_beyond_two_to_the_31(target: str, mode: str) -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((5,), "int64", name="places")
    at = np.array([2**31 - 1, 2**31, LONG - 1, 1, LONG if mode == "wrap" else 2**40])
    got = compiled(topi.take(a, places, mode=mode), [a, places], target, [long_tensor(), at])
    assert got.tolist() == [3, 5, 9, 0, 0 if mode == "wrap" else 9]


def test_gather_reads_beyond_two_to_the_31_from_the_end_too() -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((3,), "int64", name="places")
    at = np.array([2**31, -1, -LONG])
    assert compiled(topi.gather(a, 0, places), [a, places], "llvm", [long_tensor(), at]).tolist() == [5, 9, 0]


def test_narrow_positions_into_a_long_axis_are_widened() -> None:
    a, places = te.placeholder((LONG,), "int8", name="a"), te.placeholder((3,), "int32", name="places")
    at = np.array([2**31 - 1, -7, -8], np.int32)
    assert compiled(topi.gather(a, 0, places), [a, places], "llvm", [long_tensor(), at]).tolist() == [3, 5, 3]


@pytest.mark.parametrize("begin", [1, -3, -(2**32) + 1, -(2**63)])
def test_bounds_that_are_read_are_cut_to_the_axis(begin: int) -> None:
    a = te.placeholder((4,), "int32", name="a")
    first, last = (te.placeholder((1,), "int64", name=n) for n in ("first", "last"))
    wanted = np.arange(4, dtype=np.int32)[begin:][:1]
    sliced = topi.dynamic_strided_slice(a, first, last, None, (1,))
    held = [np.arange(4, dtype=np.int32), np.array([begin]), np.array([2**63 - 1])]
    assert compiled(sliced, [a, first, last], "llvm", held).tolist() == wanted.tolist()
