"""Weights whose values fit a 16-bit float: which type, and whether a factor would take that from them.

In: a constant weight. Out: float16 or bfloat16, or None. Invariant: `holds` compares bit by bit; `narrow_type` looks at
the first values only.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, aligned, in_rows
from armillary.base.dtype import DType
from armillary.relay.expr import Constant

LARGE = 1 << 16  # bytes of a weight that is worth an operation for each result
NARROW = ("float16", "bfloat16")
_SAMPLE = 1024  # numbers that are looked at first


def is_narrow_without(weight: Constant, factor: Array) -> bool:
    """Whether a large weight seems to fit a narrow type, and would not any more with a factor in it."""
    is_exact = bool((np.abs(np.frexp(factor)[0]) == 0.5).all())  # powers of two change the exponents only
    return not is_exact and narrow_type(weight, LARGE) is not None


def narrow_type(weight: Constant, smallest: int) -> DType | None:
    """The type that the first numbers of a large weight fit."""
    held = weight.held
    is_waiting = isinstance(held, Deferred) and held.rows is None  # a product with some factor, not looked at yet
    if held.dtype != np.float32 or weight.nbytes < max(smallest, 1) or is_waiting:
        return None
    some = weight.some.reshape(-1)[:_SAMPLE]
    return next((dtype for dtype in map(DType, NARROW) if holds(dtype, some)), None)


def holds(dtype: DType, values: Array) -> bool:
    """Whether a narrow type has all values, bit by bit."""
    if dtype == "bfloat16" and (values.view(np.uint32) & 0xFFFF).any():  # most: no need to import its numpy type
        return False
    with np.errstate(over="ignore"):
        back: Array = values.astype(dtype.numpy).astype(np.float32)
    return bool(np.array_equal(back.view(np.uint32), values.view(np.uint32)))


def narrowed(weight: Constant, dtype: DType) -> Constant:
    """A constant in another type; one that waits in a file goes on waiting."""
    held, narrow = weight.held, dtype.numpy
    if not isinstance(held, Deferred) or held.rows is None:
        return Constant(aligned(weight.data.astype(narrow)), weight.span)
    read = held.rows
    return Constant(in_rows(held.shape, narrow, lambda b, e: read(b, e).astype(narrow), held.step), weight.span)
