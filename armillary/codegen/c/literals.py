"""Numbers as C writes them.

In: a number and its dtype. Out: the text of a literal, in brackets where a sign stands before it. Invariant: it reads
back as exactly this number.
"""

from __future__ import annotations

import math

from armillary.base.dtype import DType


def int_text(value: int, dtype: DType) -> str:
    """An integer or a truth value."""
    if dtype.is_bool:
        return str(int(value))
    if dtype.code == "uint":
        return f"UINT64_C({value})" if dtype.bits > 32 else f"{value}u" if dtype.bits == 32 else str(value)
    if value == -(2**63):
        return "INT64_MIN"
    text = f"INT64_C({value})" if dtype.bits > 32 else "INT32_MIN" if value == -(2**31) else str(value)
    return f"({text})" if value < 0 else text


def float_text(value: float, dtype: DType) -> str:
    """A float literal that reads back as exactly this value."""
    suffix = "" if dtype.bits == 64 else "f"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
    else:
        text = value.hex() + suffix
        text = f"({text})" if text.startswith("-") else text
    return text
