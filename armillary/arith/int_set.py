"""Sets of integers whose ends are expressions: `IntervalSet`, and the set of values of an expression.

In: an expression, the set that each of some variables runs through. Out: an interval that holds every value; ends are
expressions over the other variables, or the infinities `neg_inf()` and `pos_inf()`. Invariant: a set is never too
small; where nothing is known it is everything. An empty set begins at the positive infinity. Faces: `Analyzer.int_set`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.node import Rules
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.analysis import uses_any
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, ExprLike, Range, Var
from armillary.tir.simplify import simplify

_NEGATIVE, _POSITIVE = Var("neg_inf", DType("handle")), Var("pos_inf", DType("handle"))
_Ends = tuple[Expr, Expr]
_Simplify = Callable[[Expr], Expr]


def neg_inf() -> Var:
    """What stands for minus infinity; always the same object."""
    return _NEGATIVE


def pos_inf() -> Var:
    """What stands for infinity; always the same object."""
    return _POSITIVE


class IntSet:
    """The integers from `min_value` to `max_value`, both included."""

    __slots__ = ("max_value", "min_value")

    def __init__(self, min_value: ExprLike, max_value: ExprLike) -> None:
        self.min_value, self.max_value = T.convert(min_value), T.convert(max_value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.min_value}, {self.max_value}]"

    def is_nothing(self) -> bool:
        """Whether the set is known to be empty."""
        low, high = as_int(self.min_value), as_int(self.max_value)
        is_reversed = low is not None and high is not None and low > high
        return is_reversed or self.min_value is _POSITIVE or self.max_value is _NEGATIVE

    def is_everything(self) -> bool:
        """Whether nothing is known."""
        return self.min_value is _NEGATIVE and self.max_value is _POSITIVE

    @staticmethod
    def single_point(point: ExprLike) -> IntervalSet:
        """The set of one integer."""
        return IntervalSet(point, point)

    @staticmethod
    @boundary("IntSet.vector", arguments=True)
    def vector(vec: ExprLike) -> IntervalSet:
        """The integers between the least and the greatest lane of an index."""
        return evaluated(T.convert(vec), {}, simplify, lambda item: 0)


class IntervalSet(IntSet):
    """An interval of integers."""

    __slots__ = ()


def everything() -> IntervalSet:
    """The set of which nothing is known."""
    return IntervalSet(_NEGATIVE, _POSITIVE)


def nothing() -> IntervalSet:
    """The empty set."""
    return IntervalSet(_POSITIVE, _NEGATIVE)


def of_range(domain: Range) -> IntervalSet:
    """The integers of a range."""
    return IntervalSet(domain.min, simplify(domain.min + domain.extent - 1))


@boundary("arith.union_lower_bound", arguments=True)
def union_lower_bound(sets: Sequence[IntSet]) -> IntervalSet:
    """An interval inside the union of sets: of the longest run of them in which one ends where the next begins."""
    runs: list[_Ends] = []
    for item in sets:
        Arguments("arith.union_lower_bound").kind("sets", item, IntSet, "IntSets")
        if item.is_nothing():
            continue
        for number, (low, high) in enumerate(runs):
            if _touch(high, item.min_value) and _touch(item.max_value, low):
                runs[number] = (_least(low, item.min_value), _greatest(high, item.max_value))
                break
        else:
            runs.append((item.min_value, item.max_value))
    return IntervalSet(*runs[0]) if runs else nothing()


def _touch(high: Expr, low: Expr) -> bool:
    """Whether nothing lies between an end and a beginning."""
    if high is _POSITIVE or low is _NEGATIVE:
        return True
    if high is _NEGATIVE or low is _POSITIVE:
        return False
    gap = as_int(simplify(low - high))
    return gap is not None and gap <= 1


@boundary("arith.estimate_region_upper_bound", arguments=True)
def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: ExprLike = True
) -> list[IntervalSet]:
    """For each axis of a region an interval that holds every element met while variables run through their ranges.

    Where `predicate`, a conjunction of comparisons, bounds an axis' own index, the interval is cut by it.
    """
    condition = T.convert(predicate)
    sets = {var: of_range(domain) for var, domain in var_dom.items()}
    result = []
    for axis in region:
        Arguments("arith.estimate_region_upper_bound").kind("region", axis, Range, "ranges")
        inside = evaluated(axis.min, sets, simplify, _plain_sign)
        low, high = _cut(axis.min, condition, (inside.min_value, inside.max_value))
        extent = evaluated(axis.extent, sets, simplify, _plain_sign).max_value
        is_open = extent in (_POSITIVE, _NEGATIVE) or high is _POSITIVE
        result.append(IntervalSet(low, high if is_open else simplify(high + extent - 1)))
    return result


def _cut(index: Expr, condition: Expr, ends: _Ends) -> _Ends:
    """An index' ends, cut by the conjuncts that compare it with a number."""
    if isinstance(condition, E.And):
        return _cut(index, condition.b, _cut(index, condition.a, ends))
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE) or condition.a.dtype is not index.dtype:
        return ends
    below = isinstance(condition, E.LT | E.LE)
    strict = 1 if isinstance(condition, E.LT | E.GT) else 0
    low, high = ends
    for side, other, is_upper in ((condition.a, condition.b, below), (condition.b, condition.a, not below)):
        rest = as_int(simplify(index - side + other))  # index = side + const: then index <= const + other
        if rest is None:
            continue
        if is_upper:
            high = _least(high, T.const(rest - strict, index.dtype))
        else:
            low = _greatest(low, T.const(rest + strict, index.dtype))
    return low, high


def _plain_sign(item: Expr) -> int:
    value = as_int(simplify(item))
    return 0 if value is None else 1 if value >= 0 else -1


def _least(a: Expr, b: Expr) -> Expr:
    if _NEGATIVE in (a, b):
        return _NEGATIVE
    return b if a is _POSITIVE else a if b is _POSITIVE else simplify(T.minimum(a, b))


def _greatest(a: Expr, b: Expr) -> Expr:
    if _POSITIVE in (a, b):
        return _POSITIVE
    return b if a is _NEGATIVE else a if b is _NEGATIVE else simplify(T.maximum(a, b))


def evaluated(root: Expr, sets: Mapping[Var, IntSet], simple: _Simplify, sign: Callable[[Expr], int]) -> IntervalSet:
    """The values of an expression while each variable of `sets` runs through its set, by itself."""
    low, high = _Evaluator(sets, simple, sign)(root)
    return IntervalSet(low, high)


class _Evaluator:
    """Intervals of expressions, by their parts."""

    def __init__(self, sets: Mapping[Var, IntSet], simple: _Simplify, sign: Callable[[Expr], int]) -> None:
        self.sets, self.simple, self.sign = sets, simple, sign
        self.names = frozenset(sets)
        self.memo: dict[int, _Ends] = {}

    def __call__(self, item: Expr) -> _Ends:
        result = self.memo.get(id(item))
        if result is None:
            result = self.memo[id(item)] = self._ends(item)
        return result

    def _ends(self, item: Expr) -> _Ends:
        if isinstance(item, Var):
            known = self.sets.get(item)
            return (item, item) if known is None else (known.min_value, known.max_value)
        rule = _RULES.get(type(item))
        if isinstance(item, E.Ramp):
            return _ramp(item, self)
        if not uses_any(item, self.names):
            return item, item
        return rule(item, self) if rule is not None else (_NEGATIVE, _POSITIVE)


def _is_open(*ends: Expr) -> bool:
    return _NEGATIVE in ends or _POSITIVE in ends


def _plus(a: Expr, b: Expr, infinity: Expr, of: _Evaluator) -> Expr:
    return infinity if _is_open(a, b) else of.simple(a + b)


def _add(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    return _plus(a[0], b[0], _NEGATIVE, of), _plus(a[1], b[1], _POSITIVE, of)


def _sub(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    low = _NEGATIVE if _is_open(a[0], b[1]) else of.simple(a[0] - b[1])
    return low, _POSITIVE if _is_open(a[1], b[0]) else of.simple(a[1] - b[0])


def _mul(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    if a[0] is a[1]:
        a, b = b, a
    if b[0] is not b[1] or _is_open(*b):
        numbers = [as_int(end) for end in (*a, *b)]
        if None in numbers:
            return _NEGATIVE, _POSITIVE
        corners = [x * y for x in numbers[:2] for y in numbers[2:]]  # type: ignore[operator]
        return T.const(min(corners), item.dtype), T.const(max(corners), item.dtype)
    return _scaled(a, of.sign(b[0]), lambda end: of.simple(end * b[0]))


def _scaled(ends: _Ends, sign: int, function: Callable[[Expr], Expr]) -> _Ends:
    """The ends of a function that rises (sign 1) or falls (-1); of a constant sign that is not known, everything."""
    if sign == 0:
        return _NEGATIVE, _POSITIVE
    low, high = ends if sign > 0 else (ends[1], ends[0])
    return (
        _NEGATIVE if _is_open(low) else function(low),
        _POSITIVE if _is_open(high) else function(high),
    )


def _div(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    if b[0] is not b[1] or _is_open(*b) or as_int(b[0]) == 0:
        return _NEGATIVE, _POSITIVE
    divide = T.floordiv if type(item) is E.FloorDiv else T.truncdiv
    return _scaled(a, of.sign(b[0]), lambda end: of.simple(divide(end, b[0])))


def _mod(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    if b[0] is not b[1] or _is_open(*b) or of.sign(b[0] - 1) < 1:
        return _NEGATIVE, _POSITIVE
    size, is_floor = b[0], type(item) is E.FloorMod
    last = of.simple(size - 1)
    rises = not _is_open(*a) and (is_floor or of.sign(a[0]) == 1)
    if rises:
        first, end = of.simple(T.floordiv(a[0], size)), of.simple(T.floordiv(a[1], size))
        if first is end or as_int(of.simple(first - end)) == 0:  # one period: the remainder rises with the value
            return of.simple(a[0] - size * first), of.simple(a[1] - size * first)
    is_never_negative = is_floor or (not _is_open(a[0]) and of.sign(a[0]) == 1)
    return (T.const(0, item.dtype) if is_never_negative else of.simple(1 - size)), last


def _min(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    return of.simple(_least(a[0], b[0])), of.simple(_least(a[1], b[1]))


def _max(item: E.Binary, of: _Evaluator) -> _Ends:
    a, b = of(item.a), of(item.b)
    return of.simple(_greatest(a[0], b[0])), of.simple(_greatest(a[1], b[1]))


def _select(item: E.Select, of: _Evaluator) -> _Ends:
    a, b = of(item.true_value), of(item.false_value)
    return of.simple(_least(a[0], b[0])), of.simple(_greatest(a[1], b[1]))


def _cast(item: E.Cast, of: _Evaluator) -> _Ends:
    low, high = of(item.value)
    widens = item.value.dtype.is_int and item.dtype.is_int and item.dtype.bits >= item.value.dtype.bits
    if not widens or _is_open(low, high) or item.dtype.code != item.value.dtype.code:
        return _NEGATIVE, _POSITIVE
    return T.cast(low, item.dtype), T.cast(high, item.dtype)


def _ramp(item: E.Ramp, of: _Evaluator) -> _Ends:
    base, stride = of(item.base), of(item.stride)
    step = as_int(stride[0])
    if step is None or stride[0] is not stride[1]:
        return _NEGATIVE, _POSITIVE
    low, high = (0, step * (item.lanes - 1)) if step >= 0 else (step * (item.lanes - 1), 0)
    return (
        _NEGATIVE if _is_open(base[0]) else of.simple(base[0] + low),
        _POSITIVE if _is_open(base[1]) else of.simple(base[1] + high),
    )


_RULES: Rules[[_Evaluator], _Ends] = {
    E.Add: _add,
    E.Sub: _sub,
    E.Mul: _mul,
    E.FloorDiv: _div,
    E.TruncDiv: _div,
    E.FloorMod: _mod,
    E.TruncMod: _mod,
    E.Min: _min,
    E.Max: _max,
    E.Select: _select,
    E.Cast: _cast,
    E.Broadcast: lambda e, of: of(e.value),
}
