"""Types that have a name because many files say them.

In: nothing. Out: aliases. Invariant: what is left open here is open by nature (the dtype of an array that a user gives)
and is left open nowhere else. What user code may pass for a scalar expression: `tir.expr.ExprLike`; the inside of a
JSON text: `json_types.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

NumpyDtype: TypeAlias = np.dtype[Any]  # Any: whatever scalar
# As numpy.typing.NDArray, which would be one more import at every start. Any: the sizes of whatever shape.
Array: TypeAlias = np.ndarray[tuple[Any, ...], NumpyDtype]
AnyFunction: TypeAlias = Callable[..., Any]  # Any: a function that is passed on, whatever its signature
