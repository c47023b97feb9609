"""Constants whose size follows that of the data: literals where they are small, results of operators where not.

In: shapes and values. Out: expressions. Invariant: nothing that has the size of the data is made when compiling, so
that a model of a few bytes takes a few bytes (armillary/budgets.py). Constants of parameters' sizes need none of this.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.ops.nn._windows import call
from armillary.relay.expr import Expr, const

SMALL = 1 << 16  # elements


def iota(count: Known, dtype: str | DType = "int64") -> Expr:
    """(count,): 0, 1, … count - 1."""
    if isinstance(count, int) and count <= SMALL:
        return const(np.arange(count).astype(DType(str(dtype)).numpy))
    return call("arange", start=0, stop=count, step=1, dtype=str(dtype))


def splat(shape: tuple[Known, ...], value: float, dtype: str | DType) -> Expr:
    """A tensor of one value."""
    fixed = [size for size in shape if isinstance(size, int)]
    if len(fixed) == len(shape) and math.prod(fixed) <= SMALL:
        return const(np.full(fixed, value, DType(str(dtype)).numpy))
    return call("full", const(np.asarray(value, DType(str(dtype)).numpy)), shape=shape, dtype=str(dtype))
