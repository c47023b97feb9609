"""`topi.nn`: the operators `nn.*` as functions of tensor expressions.

In: TE tensors and attributes. Out: TE tensors. Invariant: as in `topi/__init__.py`; names are found by
`topi/operators.py` when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from armillary.topi.operators import function_named


def __getattr__(name: str) -> Any:  # Any: a function of tensors
    return function_named(__name__, name)
