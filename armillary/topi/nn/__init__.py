"""`topi.nn`: the operators `nn.*` as functions of tensor expressions.

In: TE tensors and attributes. Out: TE tensors. Invariant: as in `topi/__init__.py`; names are found by
`topi/operators.py` when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.topi.operators import function_named

if TYPE_CHECKING:
    from armillary.base.aliases import AnyFunction


def __getattr__(name: str) -> AnyFunction:  # a function of tensors
    return function_named(__name__, name)
