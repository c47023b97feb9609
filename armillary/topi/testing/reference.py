"""The value of a Relay expression of arrays, by the operators' references.

In: a function that makes an expression, arrays, attributes. Out: an array. Invariant: no kernel is
compiled, and types are checked as in a network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import AnyFunction, Array
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, TupleWrapper


def value_of(function: AnyFunction, arrays: Sequence[Array], /, **named: object) -> Array:
    """What an operator gives for arrays."""
    constants = [Constant(np.asarray(a, order="C")) for a in arrays]
    output = function(*constants, **named)
    expr = output.astuple() if isinstance(output, TupleWrapper) else output
    _ = expr.checked_type  # refuses what the operator does not admit
    result: Array = evaluate(expr)
    return result


def numbers(value: object, rank: int) -> tuple[int, ...]:
    """One number for each axis, of one or of several."""
    result = tuple(int(v) for v in np.ravel(value))  # type: ignore[call-overload]
    return result * rank if len(result) == 1 else result


def moved(array: Array, source: str, wanted: str) -> Array:
    """An array in another order of its axes, named by letters."""
    return array.transpose([source.index(axis) for axis in wanted])
