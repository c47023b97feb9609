"""Values of expressions that are known before the program runs.

In: an expression that scripts pass where an operator has an attribute: `reshape(x, shape_of(y))`. Out: its numbers, or
None where they depend on an input. Invariant: only shapes of typed tensors and constants are read; the expression is
evaluated by the interpreter that defines meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.base.lazy import deferred
from armillary.relay.expr import Call, Constant, Expr, Var
from armillary.relay.op import Array, Op
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order, rewrite

with deferred():
    from armillary.relay.evaluate import evaluate as _evaluate

_READERS: dict[str, Callable[[Any], Any]] = {"shape_of": np.array, "ndarray_size": np.prod}  # Any: a shape, its numbers


def static_value(expr: Expr) -> Array | None:
    """The numbers of an expression, or None where an input or a size that is not known has a part in them."""
    known = rewrite(expr, _read_shape)
    if any(isinstance(e, Var) for e in post_order(known)):
        return None
    return np.asarray(_evaluate(known))


def _read_shape(e: Expr) -> Expr | None:
    if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in _READERS):
        return None
    ty = e.args[0].checked_type
    if not isinstance(ty, TensorType) or not all(isinstance(d, int) for d in ty.shape):
        return None
    return Constant(np.ascontiguousarray(_READERS[e.op.name](ty.shape), e.attrs.dtype).reshape(_shape(e)))


def _shape(e: Call) -> tuple[int, ...]:
    ty: Any = e.checked_type
    return tuple(ty.static)


def static_attribute(expr: Expr) -> Any:  # Any: a number or nested lists of numbers; None where it is not known
    """The same as an attribute has it: a number, or tuples of numbers."""
    value = static_value(expr)
    return None if value is None else value.tolist()
