"""NDArray: DLPack both ways, dtypes, copies."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from armillary import runtime
from armillary.errors import TypeMismatch
from armillary.runtime import dlpack

NUMPY_TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64")
OWN_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_dlpack_with_numpy_shares_memory_both_ways(dtype: str) -> None:
    ours = runtime.array(np.ones((2, 3)), dtype=dtype)
    theirs = np.from_dlpack(ours)
    assert theirs.dtype == dtype and theirs.ctypes.data == ours.memory.ctypes.data
    back = runtime.from_dlpack(theirs)
    assert back.dtype == dtype and back.memory.ctypes.data == theirs.ctypes.data and (back.numpy() == 1).all()


@pytest.mark.parametrize("dtype", OWN_TYPES)
def test_dlpack_carries_types_that_numpy_lacks(dtype: str) -> None:
    first = runtime.array(np.array([1, 2, 4], getattr(ml_dtypes, dtype)))
    second = runtime.from_dlpack(first)
    assert second.dtype == dtype and second.memory.ctypes.data == first.memory.ctypes.data
    del first
    gc.collect()
    assert (second.numpy().astype(np.float32) == [1, 2, 4]).all()


def test_capsules_release_their_memory_used_or_not() -> None:
    value = runtime.array(np.ones(3, ml_dtypes.bfloat16))
    unused = value.__dlpack__()
    used = runtime.from_dlpack(value)
    assert len(dlpack._exported) == 2
    del unused, used
    gc.collect()
    assert not dlpack._exported


def test_strided_and_empty_tensors_import() -> None:
    assert (runtime.from_dlpack(np.arange(12).reshape(3, 4)[:, ::2]).numpy() == [[0, 2], [4, 6], [8, 10]]).all()
    assert runtime.from_dlpack(np.zeros((0, 3))).shape == (0, 3)


def test_memory_is_aligned_and_numpy_is_a_copy() -> None:
    value = runtime.empty((3, 5), "float32")
    assert value.memory.ctypes.data % 64 == 0
    value[:] = 2.0
    copy = value.numpy()
    copy[0, 0] = 9
    assert value[0, 0] == 2
    with pytest.raises(TypeMismatch, match=r"shape \(2,\) into one of shape \(3, 5\)"):
        value.copyfrom(np.zeros(2))
