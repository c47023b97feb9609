"""When a product of bytes or bfloat16 whose right-hand side is computed at run time is packed in words of terms.

In: a workload of a product. Out: None or why not. Invariant: no tensor expression is imported; packed_dots.py makes
the loops.
"""

from __future__ import annotations

from armillary.backends.cpu.gemm.space import is_transposed
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import BFLOATS, terms_per_operand
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model

MIN_COLUMNS = 4


def refuses(workload: Workload) -> str | None:
    """None, or why its terms do not come in words."""
    data, other = workload.types
    if not isinstance(data, TensorType) or not isinstance(other, TensorType):
        return "not of two tensors"
    word = terms_per_operand(data.dtype, other.dtype, workload.attrs.out_dtype)
    if not word:
        return "only bytes in int32 and bfloat16 in float32 come in words"
    if word == BFLOATS and not cpu_model(workload.target).has_bfloat16_dots:
        return "the processor has no products of bfloat16"
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    if data.ndim < 2:
        return "a vector is not packed"
    return f"{columns} columns are fewer than a vector" if columns < MIN_COLUMNS else None
