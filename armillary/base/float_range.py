"""What a float type holds: where products of constants stay as exact as the arithmetic that they stand for.

In: constants, as arrays or as the largest magnitudes of their slices. Out: whether one number may take the place of two
factors. Invariant: yes only where no factor, and no product of factors other than 0, is infinite, NaN or denormal,
and none is so large or small that the arithmetic overflows or underflows for usual data where the product would not.
Who asks: simplify-expr (armillary/ops/elementwise/broadcast.py), fold-scale-axis, recognize-gelu.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.lazy import deferred

with deferred():
    import ml_dtypes

_USUAL = 2.0**64  # half the exponents of float32; data of such a size beside factors of it is none


def epsilon_of(dtype: NumpyDtype) -> float:
    """The distance from 1 to the next number of a float type."""
    return _facts(dtype)[0]


def may_multiply(first: Array, second: Array) -> bool:
    """Whether a product by `first`, then by `second`, is one by `first * second`; both of one float type."""
    _, least, greatest = _facts(first.dtype)
    a, b = (np.abs(x.astype(np.float64)) for x in (first, second))
    low, high = max(least, 1 / _USUAL), min(greatest, _USUAL)
    with np.errstate(all="ignore"):
        product = a * b
    return all(bool(((x == 0) | ((x >= low) & (x <= high))).all()) for x in (a, b)) and bool(
        ((product <= greatest) & ((product >= least) | (a == 0) | (b == 0))).all()
    )


def largest(dtype: NumpyDtype) -> float:
    """The greatest number of a float type."""
    return _facts(dtype)[2]


def _facts(dtype: NumpyDtype) -> tuple[float, float, float]:
    """The distance from 1 to the next number, the least normal number and the greatest one."""
    info = np.finfo(dtype) if dtype.kind == "f" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.eps), float(info.tiny), float(info.max)
