"""Small constants as tensors: their numbers stand in the expression.

In: an array. Out: a TE tensor that chooses its numbers by position. Invariant: the array has few elements; larger ones
are parameters of a kernel.
"""

from __future__ import annotations

from armillary.base.aliases import Array
from armillary.base.dtype import dtype_of
from armillary.te.api import compute
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr


def spelled_out(data: Array) -> Tensor:  # Any: arrays of any shape and type
    """The tensor of an array's numbers."""
    dtype = dtype_of(data)
    flat = [T.const(v.item() if hasattr(v, "item") else v, dtype) for v in data.reshape(-1)]

    def element(*axes: Expr) -> Expr:
        position: Expr = T.const(0)
        for axis, extent in zip(axes, data.shape, strict=True):
            position = T.add(T.mul(position, extent), axis)
        value: Expr = flat[-1]
        for index in reversed(range(len(flat) - 1)):
            value = T.select(T.equal(position, index), flat[index], value)
        return value

    result: Tensor = compute(data.shape, element, name="constant", tag="injective")
    return result
