"""Small helpers of old schedules: constants out of shapes.

In: expressions, tuples of them. Out: Python numbers. Invariant: what is not constant is a TypeMismatch that shows it;
`get_const_tuple` keeps symbolic entries, as it always did.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

from armillary.errors import TypeMismatch
from armillary.tir.build import as_int, convert
from armillary.tir.expr import Expr, ExprLike, Index
from armillary.tir.simplify import simplify


def get_const_int(expr: ExprLike) -> int:
    """The value of a constant integer expression."""
    found = _constant(expr)
    if found is None:
        raise TypeMismatch(f"expected a constant integer, got {expr}")
    return found


def get_const_float(expr: ExprLike) -> float:
    """The value of a constant."""
    value = getattr(simplify(convert(expr)), "value", None)
    if value is None:
        raise TypeMismatch(f"expected a constant, got {expr}")
    return float(value)


def get_const_tuple(in_tuple: Iterable[ExprLike]) -> tuple[Any, ...]:  # Any: ints, or expressions that are not constant
    """A shape as ints; entries that are no constants stay as they are."""
    return tuple(item if (found := _constant(item)) is None else found for item in in_tuple)


def prod(values: Iterable[Index]) -> Index:
    """The product of a shape's entries."""
    result: Index = 1
    for value in values:
        result = result * value
    return result


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """Whether an expression is this constant."""
    return _constant(expr) == value


def _constant(item: ExprLike) -> int | None:
    if isinstance(item, Expr):
        return as_int(simplify(item))
    return int(item) if isinstance(item, SupportsIndex) else None
