"""The value of a Relay expression of arrays, by the operators' references.

In: a function that makes an expression, arrays, attributes. Out: an array, or a list of them. Invariant: no kernel is
compiled, and types are checked as in a network.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.aliases import AnyFunction, Array
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, TupleWrapper


def value_of(function: AnyFunction, arrays: list[Any], /, **named: object) -> Any:  # Any: an array, or a tuple of them
    """What an operator gives for arrays; None stays None."""
    given = [None if a is None else Constant(np.ascontiguousarray(a)) for a in arrays]
    made = function(*given, **named)
    expr = made.astuple() if isinstance(made, TupleWrapper) else made
    _ = expr.checked_type  # refuses what the operator does not admit
    return evaluate(expr)


def numbers(value: object, rank: int) -> tuple[int, ...]:
    """One number for each axis, of one or of several."""
    found = tuple(int(v) for v in np.ravel(value))  # type: ignore[call-overload]
    return found * rank if len(found) == 1 else found


def moved(array: Array, source: str, wanted: str) -> Array:
    """An array in another order of its axes, named by letters."""
    return array.transpose([source.index(axis) for axis in wanted])
