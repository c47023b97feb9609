"""Vector indices whose lanes lie at constant distances: x // 2, x % 4, 3 * x for x from a multiple on; max(x, 0).

In: a vector of indices. Out: a scalar sum, and for each lane what to add. Invariant: exact, or None. A load at such
indices is one load of the stretch that they lie in and a shuffle, not one load for each lane. Used by llvm_memory.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.codegen.llvm.index import Linear, linear
from armillary.codegen.llvm.state import Emitter
from armillary.tir import expr as E

Pattern = tuple[Linear, list[int]]


def lane_pattern(m: Emitter, index: E.Expr) -> Pattern | None:
    """The scalar part of a vector index, and the constants that its lanes add."""
    lanes = index.dtype.lanes
    if isinstance(index, E.Broadcast) and index.value.dtype.lanes == 1:
        return linear(m, index.value), [0] * lanes
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
        stride = m.static_int(index.stride)
        return None if stride is None else (linear(m, index.base), [k * stride for k in range(lanes)])
    if not isinstance(index, E.Add | E.Sub | E.Mul | E.FloorDiv | E.FloorMod | E.Min | E.Max):
        return None
    a, b = lane_pattern(m, index.a), lane_pattern(m, index.b)
    if a is None or b is None:
        return None
    if isinstance(index, E.Add | E.Sub):
        return _sum(a, b, 1 if isinstance(index, E.Add) else -1)
    if isinstance(index, E.Mul):
        return _product(a, b) or _product(b, a)
    if isinstance(index, E.Min | E.Max):
        return _extreme(a, b, min if isinstance(index, E.Min) else max)
    return _quotient(a, b, isinstance(index, E.FloorMod))


def _constant(pattern: Pattern) -> int | None:
    """The value of a pattern that is one number in all lanes."""
    base, offsets = pattern
    return base.constant + offsets[0] if not base.terms and len(set(offsets)) == 1 else None


def _sum(a: Pattern, b: Pattern, sign: int) -> Pattern:
    a[0].add(b[0], sign)
    return a[0], [x + sign * y for x, y in zip(a[1], b[1], strict=True)]


def _product(a: Pattern, b: Pattern) -> Pattern | None:
    factor = _constant(b)
    if factor is None:
        return None
    scaled = Linear()
    scaled.add(a[0], factor)
    return scaled, [x * factor for x in a[1]]


def _extreme(a: Pattern, b: Pattern, choose: Callable[[int, int], int]) -> Pattern | None:
    """Of two patterns where nothing varies outside the lanes."""
    if a[0].terms or b[0].terms:
        return None
    first, second = ([base.constant + x for x in offsets] for base, offsets in (a, b))
    return Linear(), list(map(choose, first, second))


def _quotient(a: Pattern, b: Pattern, is_rest: bool) -> Pattern | None:
    """Exact where all that varies outside the lanes is a multiple of the divisor."""
    base, divisor = a[0], _constant(b)
    if divisor is None or divisor <= 0 or any(weight % divisor for weight in base.terms.values()):
        return None
    places = [base.constant + x for x in a[1]]
    if is_rest:
        return Linear(), [x % divisor for x in places]
    return Linear({atom: weight // divisor for atom, weight in base.terms.items()}), [x // divisor for x in places]
