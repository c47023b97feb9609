"""What a number becomes in another type, wherever an operator's loops change the type of data.

In: a scalar of TIR, a dtype. Out: the scalar in that dtype. Invariant: a number that a narrow type does not have
becomes the same at every level of optimisation and on every target, as long as int32 (int64 for 64 bits and uint32) has
it. `T.cast` alone is C's, which leaves that open: LLVM stored whatever stood in a register. See elementwise/cast.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base.dtype import DType
from armillary.ops._deferred import T

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

BEYOND_INT64 = 2.0**63


def convert(value: Scalar, dtype: str) -> Scalar:
    """A scalar cast; to bool it is a comparison with zero, from floats to integers it goes through a signed type.

    C and LLVM leave open what becomes of -3.7 as an unsigned integer: vectors gave the largest one, scalars 2**32 - 3.
    """
    to = DType(dtype)
    if to.is_bool and not value.dtype.is_bool:
        return T.not_equal(value, T.const(0, value.dtype))
    wide = through(to) if value.dtype.is_float else ""
    if not wide:
        return T.cast(value, dtype)
    wrapped = T.cast(T.cast(value, wide), dtype)
    if to.bits < 64 or value.dtype.bits < 32:
        return wrapped
    return T.select(value < T.const(BEYOND_INT64, value.dtype), wrapped, T.cast(value, dtype))


def through(to: DType) -> str:
    """The signed type that floats become on their way to an integer type; none to int32 and int64."""
    if not to.is_int or (to.code == "int" and to.bits >= 32):
        return ""
    return "int64" if to.bits >= 32 else "int32"
