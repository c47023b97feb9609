"""What is known about integer expressions: intervals.

In: expressions, ranges of variables, facts (conditions that hold). Out: `Interval` pairs.
Invariant: sound for values that do not overflow; index arithmetic over variables is assumed not to (shapes fit their
dtype), while a value read from memory has the range of its dtype and a sum that may leave its dtype is unbounded.
Used by `tir/simplify.py`; sums of terms: `tir/linear.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.node import Rules
from armillary.tir import expr as E

INFINITE = 1 << 100
Interval = tuple[int, int]  # both ends included; -INFINITE and INFINITE when unknown
EVERYTHING: Interval = (-INFINITE, INFINITE)
Bound = Callable[[E.Expr], Interval]


def clamp(value: int) -> int:
    """A bound kept within the infinities."""
    return max(-INFINITE, min(INFINITE, value))


def add_intervals(x: Interval, y: Interval) -> Interval:
    """The values of a sum."""
    low = -INFINITE if -INFINITE in (x[0], y[0]) else x[0] + y[0]
    high = INFINITE if INFINITE in (x[1], y[1]) else x[1] + y[1]
    return clamp(low), clamp(high)


def scale_interval(x: Interval, factor: int) -> Interval:
    """`factor * x` for a known non-zero factor."""
    low, high = (x[0], x[1]) if factor > 0 else (x[1], x[0])
    ends = (v * factor if -INFINITE < v < INFINITE else clamp(v * (1 if factor > 0 else -1)) for v in (low, high))
    first, second = ends
    return clamp(first), clamp(second)


def multiply_intervals(x: Interval, y: Interval) -> Interval:
    """The values of a product."""
    products = [0 if 0 in (a, b) else clamp(a * b) for a in x for b in y]
    return min(products), max(products)


def union(x: Interval, y: Interval) -> Interval:
    """The bounds of a value that either of two bounds holds for."""
    return min(x[0], y[0]), max(x[1], y[1])


def intersect(x: Interval, y: Interval) -> Interval:
    """Both hold; a contradiction (unreachable code) keeps the first."""
    low, high = max(x[0], y[0]), min(x[1], y[1])
    return (low, high) if low <= high else x


def dtype_interval(item: E.Expr) -> Interval:
    """The values an arbitrary expression of this dtype can have (unbounded for 32 and 64-bit index types)."""
    dtype = item.dtype
    return (dtype.min_value, dtype.max_value) if (dtype.is_int or dtype.is_bool) and dtype.bits <= 64 else EVERYTHING


def _floordiv(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    if b[0] <= 0:
        return EVERYTHING
    low = a[0] // (b[0] if a[0] < 0 else b[1])
    high = a[1] // (b[0] if a[1] >= 0 else b[1])
    return (-INFINITE if a[0] == -INFINITE else low), (INFINITE if a[1] == INFINITE else high)


def _floormod(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    if b[0] <= 0:
        return EVERYTHING
    if a[0] >= 0 and a[1] < b[0]:
        return a
    high = clamp(b[1] - 1) if b[1] < INFINITE else INFINITE
    return 0, min(high, a[1]) if a[0] >= 0 else high


def _truncdiv(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    return _floordiv(e, bound) if a[0] >= 0 and b[0] > 0 else EVERYTHING


def _truncmod(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    if a[0] >= 0 and b[0] > 0:
        return _floormod(e, bound)
    return (clamp(1 - b[1]), clamp(b[1] - 1)) if b[0] > 0 and b[1] < INFINITE else EVERYTHING


def _min(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    return min(a[0], b[0]), min(a[1], b[1])


def _max(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    return max(a[0], b[0]), max(a[1], b[1])


def _cast(e: E.Cast, bound: Bound) -> Interval:
    if not (e.value.dtype.is_int or e.value.dtype.is_bool):
        return dtype_interval(e)
    inside, whole = bound(e.value), dtype_interval(e)
    if e.dtype.is_int and (whole[0] <= inside[0] and inside[1] <= whole[1]):
        return inside
    is_index = e.dtype.bits >= 32 and e.value.dtype.bits >= 32 and e.dtype.code == "int"
    return inside if is_index and INFINITE in (inside[1], -inside[0]) else whole


def _call(e: E.Call, bound: Bound) -> Interval:
    if e.name == "if_then_else":
        return union(bound(e.args[1]), bound(e.args[2]))
    if e.name == "likely":
        return 0, 1
    return _bitwise_call(e, bound)


def _bitwise_call(e: E.Call, bound: Bound) -> Interval:
    if e.name == "bitwise_and" and isinstance(e.args[1], E.IntImm) and e.args[1].value >= 0:
        return 0, e.args[1].value
    if e.name == "shift_right" and isinstance(e.args[1], E.IntImm):
        low, high = bound(e.args[0])
        if low > -INFINITE and high < INFINITE:
            return low >> e.args[1].value, high >> e.args[1].value
    return dtype_interval(e)


def _sum(e: E.Binary, bound: Bound) -> Interval:
    a, b = bound(e.a), bound(e.b)
    return _fit(e, add_intervals(a, b if type(e) is E.Add else scale_interval(b, -1)))


def _product(e: E.Binary, bound: Bound) -> Interval:
    return _fit(e, multiply_intervals(bound(e.a), bound(e.b)))


def _fit(e: E.Expr, interval: Interval) -> Interval:
    """Narrow types and finite bounds beyond the dtype wrap: then anything is possible."""
    whole = dtype_interval(e)
    low_fits = interval[0] >= whole[0] or interval[0] == -INFINITE
    high_fits = interval[1] <= whole[1] or interval[1] == INFINITE
    if low_fits and high_fits and (e.dtype.bits >= 32 or interval != EVERYTHING):
        return interval
    return whole


BOUND_RULES: Rules[[Bound], Interval] = {
    E.IntImm: lambda e, _: (e.value, e.value),
    E.Add: _sum,
    E.Sub: _sum,
    E.Mul: _product,
    E.FloorDiv: _floordiv,
    E.FloorMod: _floormod,
    E.TruncDiv: _truncdiv,
    E.TruncMod: _truncmod,
    E.Min: _min,
    E.Max: _max,
    E.Select: lambda e, bound: union(bound(e.true_value), bound(e.false_value)),
    E.Cast: _cast,
    E.Call: _call,
    E.Let: lambda e, bound: bound(e.body),
    E.Broadcast: lambda e, bound: bound(e.value),
    E.Ramp: lambda e, bound: _ramp(e, bound),
}


def _ramp(e: E.Ramp, bound: Bound) -> Interval:
    base, stride = bound(e.base), bound(e.stride)
    last = multiply_intervals(stride, (e.lanes - 1, e.lanes - 1))
    return union(base, add_intervals(base, last))


def interval_of(item: E.Expr, ranges: dict[E.Var, Interval]) -> Interval:
    """The interval of an expression over variables of known ranges."""
    memo: dict[int, Interval] = {}

    def bound(e: E.Expr) -> Interval:
        result = memo.get(id(e))
        if result is None:
            if isinstance(e, E.Var):
                result = ranges.get(e, EVERYTHING)
            else:
                rule = BOUND_RULES.get(type(e))
                result = rule(e, bound) if rule is not None else dtype_interval(e)
            memo[id(e)] = result
        return result

    return bound(item)
