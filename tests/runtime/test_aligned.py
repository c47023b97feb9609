"""Memory of arrays: where it starts, that it is given back, and that huge pages take no more of it."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from armillary.base.aligned import ALIGNMENT, aligned, aligned_copy, aligned_empty

LARGE = 5_000_001  # bytes: two huge pages and a part of one
HUGE_PAGE = 1 << 21


def resident() -> int:
    """Bytes of memory that this process has."""
    text = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kilobytes) * 1024


@pytest.mark.parametrize("size", [1, 100_000, LARGE, 40_000_000])
def test_arrays_start_at_a_cache_line_and_can_be_written(size: int) -> None:
    array = aligned_empty((size,), np.int8)
    array[...] = 7
    assert array.ctypes.data % ALIGNMENT == 0 and array.shape == (size,) and int(array.sum(dtype=np.int64)) == 7 * size
    assert aligned(array) is array


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages to ask for")
def test_large_arrays_start_at_a_huge_page_and_take_no_more_than_they_need() -> None:
    count, before = 40, resident()
    arrays = [aligned_empty((LARGE,), np.int8) for _ in range(count)]
    for array in arrays:
        assert array.ctypes.data % HUGE_PAGE == 0
        array[...] = 1
    assert count * LARGE <= resident() - before < count * (LARGE + 3 * 4096) + (2 << 20)
    del array, arrays
    assert resident() - before < 4 << 20


def test_a_copy_has_the_values_in_order() -> None:
    source = np.arange(1_500_000, dtype=np.float32).reshape(1500, 1000).T
    made = aligned_copy(source)
    assert made.flags.c_contiguous and not np.shares_memory(made, source)
    np.testing.assert_array_equal(made, source)
