"""Shape arithmetic over named sizes: what an exported model computes of its own shapes, done when importing.

In: a call whose arguments are small integer constants and tensors of sizes (`sizes`, ops/shape/sizes.py). Out: a
constant or another `sizes`, or None where the arithmetic has no form over extents; then it is computed when the program
runs. Invariant: what is given back has the values that the call would have for every choice of the sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from armillary.base.extent import Extent, bounds, least, most
from armillary.ops._deferred import by_name
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.op import Array, Op
from armillary.relay.types import TensorType

_MOST = 256  # elements of a tensor of sizes
sizes = by_name("sizes")


def size_value(expr: Expr) -> Array | None:
    """The elements, ints and extents, of a small integer constant or a tensor of sizes."""
    if isinstance(expr, Constant):
        data = expr.data if expr.nbytes <= 8 * _MOST else None
        return data.astype(object) if data is not None and data.dtype.kind in "iu" else None
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "sizes":
        array = np.empty(len(expr.attrs.values), object)
        array[:] = expr.attrs.values
        return array.reshape(expr.attrs.shape)
    return None


def fold_sizes(call: Call) -> Expr | None:
    """A call over tensors of sizes as a constant or a tensor of sizes; None where it is neither."""
    arguments = [_argument(arg) for arg in call.args]
    if not isinstance(call.op, Op) or any(a is None for a in arguments) or not any(map(is_sized, call.args)):
        return None
    rule, ty = RULES.get(call.op.name), call.checked_type
    if rule is None or not isinstance(ty, TensorType) or not (ty.dtype.is_int or ty.dtype.is_bool):
        return None
    result = rule(call, arguments)  # type: ignore[arg-type]  # none of them is None
    return None if result is None else as_expr(np.asarray(result, object), str(ty.dtype))


def as_expr(values: Array, dtype: str) -> Expr | None:
    """A constant or a tensor of sizes that holds these ints and extents."""
    flat = list(values.reshape(-1))
    if values.size > _MOST:
        return None
    if not any(isinstance(v, Extent) for v in flat):
        return Constant(np.array(flat, dtype).reshape(values.shape))
    result: Expr = sizes(tuple(v if isinstance(v, Extent) else int(v) for v in flat), values.shape, dtype)
    return result


def is_sized(arg: Expr) -> bool:
    """Whether an argument whose elements are known is computed from sizes."""
    parts = arg.fields if isinstance(arg, Tuple) else (arg,)
    return any(isinstance(p, Call) for p in parts)


def _argument(arg: Expr) -> Array | list[Array] | None:
    if not isinstance(arg, Tuple):
        return size_value(arg) if not _is_bool(arg) else arg.data.astype(object)  # type: ignore[attr-defined]
    parts = [size_value(field) for field in arg.fields]
    return None if any(p is None for p in parts) else [p for p in parts if p is not None]


def _is_bool(arg: Expr) -> bool:
    """Whether it is a small constant of truth values. Of a large one, which may lie in a file, nothing is read."""
    return isinstance(arg, Constant) and arg.nbytes <= _MOST and arg.data.dtype.kind == "b"


Arguments = Sequence[Array]
Rule = Callable[[Call, Arguments], "Array | None"]


def _moved(call: Call, arguments: Arguments) -> Array | None:
    """Operators that only move elements: their reference does it with objects, too."""
    rule, (data, *places) = call.op.reference_rule, arguments
    if rule is None or any(isinstance(v, Extent) for where in places for v in where.reshape(-1)):
        return None
    return np.asarray(rule(call.attrs, data, *(where.astype(np.int64) for where in places)), object)


def _each(function: Callable[[object, object], object]) -> Rule:
    """An operator on pairs of elements, with broadcasting; None where a pair has no answer."""

    def rule(_: Call, arguments: Arguments) -> Array | None:
        pairs = np.broadcast(*arguments)
        values = [function(a, b) for a, b in pairs]
        if any(v is None for v in values):
            return None
        result = np.empty(len(values), object)
        result[:] = values
        return result.reshape(pairs.shape)

    return rule


def _equal(a: object, b: object) -> bool | None:
    if isinstance(a, int | Extent) and isinstance(b, int | Extent):
        if a == b:
            return True
        low, high = bounds(a - b)
        return False if low > 0 or high < 0 else None
    return None


def _less(a: object, b: object) -> bool | None:
    if isinstance(a, int | Extent) and isinstance(b, int | Extent):
        low, high = bounds(b - a)
        return True if low > 0 else False if high <= 0 else None
    return None


def _divided(a: object, b: object) -> object:
    """Integers are cut towards zero, which is down for what is not negative."""
    if b == 0 or not (isinstance(a, int | Extent) and isinstance(b, int | Extent)):
        return None
    return a // b if bounds(a)[0] >= 0 and bounds(b)[0] >= 0 else None


def _where(_: Call, arguments: Arguments) -> Array | None:
    if not all(isinstance(c, bool) for c in arguments[0].reshape(-1)):
        return None
    return np.where(arguments[0].astype(bool), arguments[1], arguments[2])


def _folded(function: Callable[[object, object], object], first: int) -> Rule:
    def rule(call: Call, arguments: Arguments) -> Array | None:
        axis = call.attrs.axis
        axes = tuple(axis) if isinstance(axis, tuple) else axis if axis is None else (axis,)
        fold = np.frompyfunc(function, 2, 1).reduce
        return np.asarray(fold(arguments[0], axis=axes, keepdims=bool(call.attrs.keepdims), initial=first), object)

    return rule


_MOVES = ("reshape", "squeeze", "expand_dims", "transpose", "take", "strided_slice", "concatenate", "stack", "copy")
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_MOVES, _moved),
    "add": _each(operator.add),
    "subtract": _each(operator.sub),
    "multiply": _each(operator.mul),
    "divide": _each(_divided),
    "floor_divide": _each(_divided),
    "trunc_divide": _each(_divided),
    "maximum": _each(most),  # type: ignore[arg-type]  # of elements that are known
    "minimum": _each(least),  # type: ignore[arg-type]  # likewise
    "equal": _each(_equal),
    "not_equal": _each(lambda a, b: None if (same := _equal(a, b)) is None else not same),
    "less": _each(_less),
    "greater": _each(lambda a, b: _less(b, a)),
    "where": _where,
    "prod": _folded(operator.mul, 1),
    "sum": _folded(operator.add, 0),
    "cast": lambda call, arguments: arguments[0],
}
