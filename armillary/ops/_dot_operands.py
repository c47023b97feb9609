"""Operands of packed dot products: four bytes or two bfloat16, and eight bytes for products of matrices of bytes.

In: the numbers of each of two operands. Out: the sum of their products, int32 or float32, which one instruction adds
to others where the target has it (tir/intrinsics.py). Invariant: sums of bytes are exact; what could overflow 16 bits
on the way is told apart first (`fits_in_pairs`). Users: products and convolutions whose weights lie in such operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.ops._deferred import te

BYTES, BFLOATS, LONG = 4, 2, 8  # numbers in an operand; in a long one, of bytes
MIDDLE = 128
BFLOAT16 = "bfloat16"
_SMALL = frozenset({"int8", "uint8"})


def terms_per_operand(data: DType, weight: DType, out_dtype: str) -> int:
    """How many terms of a sum one operand has, by the types of a product; 0: no instruction takes several."""
    types = {str(data), str(weight)}
    if types <= _SMALL and out_dtype == "int32":
        return BYTES
    return BFLOATS if types == {BFLOAT16} and out_dtype == "float32" else 0


def fits_in_pairs(weight: Array) -> bool:
    """Whether products of a constant int8 weight (outputs, inputs, …) with int8 add up in 16 bits, two at a time.

    The two are of inputs that lie four apart in a block of eight: only (-128)(-128) twice does not fit.
    """
    lowest = weight == -MIDDLE
    if weight.dtype != np.int8 or weight.shape[1] % LONG:
        return False
    if not lowest.any():
        return True
    words = lowest.reshape(weight.shape[0], -1, 2, BYTES, *weight.shape[2:])
    return not np.logical_and(words[:, :, 0], words[:, :, 1]).any()


def join(numbers: Sequence[Any]) -> Any:
    """The operand of four or eight bytes, or of two bfloat16."""
    if len(numbers) == BFLOATS:
        return te.pack_bf16(*numbers)
    return te.four_bytes(*numbers) if len(numbers) == BYTES else te.eight_bytes(*numbers)


def dot_operands(left: te.Expr, right: te.Expr, count: int, is_symmetric: bool = False) -> te.Expr:
    """The sum of the products of two operands of `count` numbers; `is_symmetric`: te.dot_symmetric_bytes."""
    if count == BFLOATS:
        return te.dot_bf16(left, right)
    return te.dot_symmetric_bytes(left, right) if is_symmetric else te.dot_bytes(left, right)


def dot(left: Sequence[object], right: Sequence[object], is_symmetric: bool = False) -> te.Expr:
    """The sum of the products of two operands, by their numbers."""
    return dot_operands(join(left), join(right), len(left), is_symmetric)
