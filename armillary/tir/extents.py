"""Extents as expressions of the loop language, and back.

In: an extent over named sizes (base/extent.py), or an integer expression over variables. Out: the other. Invariant: a
size of one name and bounds is one variable for as long as the process runs, and that variable is the size again; what
extents have no form for, such as a select, becomes a size of its own whose origin is the expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from armillary.base.dtype import DType
from armillary.base.extent import Dim, Extent, Factor, Known, Least, Most, Quotient, Size, least, most, size
from armillary.tir.expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var

_INDEX = DType("int32")
_VARIABLES: dict[tuple[str, int, int, int, int], Var] = {}
_SIZES: dict[int, Known] = {}  # by the id of a variable above, which lives on


def variable_of(item: Size) -> Expr:
    """The variable of a size; the one that a script wrote where it wrote one."""
    if isinstance(item.origin, Expr):
        return item.origin
    key = (item.name, item.low, item.high, item.step, item.hint)
    variable = _VARIABLES.get(key)
    if variable is None:
        variable = _VARIABLES.setdefault(key, Var(item.name, _INDEX))
        _SIZES[id(variable)] = Extent({(item,): 1})
    return variable


def to_expr(extent: Known) -> Expr:
    """The expression of an extent, in the dtype of its variables: the widest one, and int32 without any."""
    if not isinstance(extent, Extent):
        return IntImm(_INDEX, extent)
    total: Expr | None = None
    for factors, count in extent.terms:
        product: Expr = IntImm(_INDEX, count)
        for factor in factors:
            value = _factor(factor)
            product = value if isinstance(product, IntImm) and product.value == 1 else _both(Mul, value, product)
        total = product if total is None else _both(Add, total, product)
    assert total is not None, "an extent has terms"
    return _both(Add, total, IntImm(_INDEX, extent.constant)) if extent.constant else total


def _factor(factor: Factor) -> Expr:
    match factor:
        case Size():
            return variable_of(factor)
        case Quotient(a, b):
            return _both(FloorDiv, to_expr(a), to_expr(b))
        case Least(a, b):
            return _both(Min, to_expr(a), to_expr(b))
        case Most(a, b):
            return _both(Max, to_expr(a), to_expr(b))


def _both(operation: type[Add | FloorDiv | Max | Min | Mul], a: Expr, b: Expr) -> Expr:
    """Two sides in one dtype: extents have no width, but variables of scripts have, and constants take theirs."""
    if a.dtype == b.dtype:
        return operation(a, b)
    wide = max((x.dtype for x in (a, b) if not isinstance(x, IntImm)), key=lambda dtype: dtype.bits)
    a, b = (IntImm(wide, x.value) if isinstance(x, IntImm) else x if x.dtype == wide else Cast(wide, x) for x in (a, b))
    return operation(a, b)


def from_expr(expr: Expr) -> Known:
    """The extent of an integer expression; a variable that is no size yet becomes one of its name."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        known = _SIZES.get(id(expr))
        return size(expr.name, origin=expr) if known is None else known
    if isinstance(expr, Cast) and expr.dtype.is_int and expr.value.dtype.is_int:
        return from_expr(expr.value)
    rule = _RULES.get(type(expr))
    if rule is None:
        return size(str(expr), origin=expr)
    result = rule(from_expr(expr.a), from_expr(expr.b))  # type: ignore[attr-defined]  # a binary operation
    assert isinstance(result, int | Extent), "arithmetic on known extents"
    return result


_RULES: Mapping[type[Expr], Callable[[Known, Known], Dim]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    FloorDiv: operator.floordiv,
    FloorMod: operator.mod,
    Min: least,
    Max: most,
}
