"""How many elements a vector register has, and how sums and extents are cut.

In: a `CpuModel`, a type, extents. Out: numbers. Invariant: arithmetic only, so spaces of algorithms and schedules agree
without importing one another. Loops that follow from them: backends/cpu/loops.py.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.target.cpu import CpuModel

MANY_PARTS = 4  # from which on a shorter last part is worth its own loop
LONG_SUM = 288  # terms a register may sum up before its partial sum is put aside
MIN_BAND = 4  # rows, or tiles of a flat image


def lanes_of(cpu: CpuModel, dtype: DType) -> int:
    """Elements of `dtype` in one vector register."""
    return max(1, cpu.vector_bits // (8 * dtype.bytes))


def dividing(most: int, extent: int) -> int:
    """The largest tile up to `most` that divides an axis, if one of more than half of `most` does; else `most`."""
    return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)


def bands_of(tiles: int, most: int) -> int:
    """Bands of a flat image's tiles, which threads share; the last may lack an eighth of its tiles."""
    fitting = (n for n in (8, 4, 2) if n <= most and tiles >= n * MIN_BAND and -tiles % n <= max(1, tiles // n // 8))
    return next(fitting, 1)


def longest_part(first: int, rest: int, longest: int = LONG_SUM) -> int:
    """Steps of the outermost of two axes of a sum that one partial sum takes; 0 if the sum stays whole.

    The last of many parts may be shorter where nothing near `longest` divides a plain axis.
    """
    step = max((d for d in range(1, first) if first % d == 0 and d * rest <= longest), default=1)
    if first * rest <= longest or first == 1:
        return 0
    if longest / 8 <= step * rest:
        return step
    return longest if rest == 1 and first >= MANY_PARTS * longest else 0
