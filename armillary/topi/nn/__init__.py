"""`topi.nn`: the operators `nn.*` as functions of tensor expressions.

In: TE tensors and attributes. Out: TE tensors. Invariant: as in `topi/__init__.py`; names are found by
`topi/operators.py` when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.topi.operators import function_named
from armillary.topi.simulated_quantization import SQNN_CODE_TO_DTYPE, SQNN_DTYPE_TO_CODE

if TYPE_CHECKING:
    from armillary.base.aliases import AnyFunction


__all__ = ["SQNN_CODE_TO_DTYPE", "SQNN_DTYPE_TO_CODE"]


def __getattr__(name: str) -> AnyFunction:  # a function of tensors
    return function_named(__name__, name)
