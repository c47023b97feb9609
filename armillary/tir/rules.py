"""Rewrite rules of the simplifier, by node type.

In: a Simplifier (what is known) and a node whose children are simplified. Out: an equal expression, or None. Invariant:
each rule makes progress (fewer nodes, or a smaller constant), so applying them ends. Arrow lines in the docstrings are
executed by `tests/tir/test_rules.py`; there x y z n are int32, f g float32, p q bool, and `if` gives ranges.
Integer sums have a normal form instead of rules: `tir/linear.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.base.dtype import DType
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir.bounds import INFINITE
from armillary.tir.linear import Linear
from armillary.tir.substitute import binary, substitute_expr

if TYPE_CHECKING:
    from armillary.tir.simplify import Simplifier

Rule = Callable[["Simplifier", Any], "E.Expr | None"]
INDEX_TYPES = frozenset({DType("int32"), DType("int64")})
TRUE, FALSE = E.IntImm(E.BOOL, 1), E.IntImm(E.BOOL, 0)


def _divisor(e: E.Binary) -> int:
    """The positive constant divisor of an index division, or 0."""
    return e.b.value if type(e.b) is E.IntImm and e.b.value > 0 and e.dtype in INDEX_TYPES else 0


def _divided(s: Simplifier, e: E.Binary) -> tuple[int, Linear, Linear, int | None] | None:
    """Of an index division: divisor, quotient, rest, and the rest's quotient if it is the same for all values."""
    c = _divisor(e)
    form = s.linear(e.a)
    if c == 0 or not s.is_exact(form, e.dtype):
        return None
    quotient, rest = form.split(c)
    low, high = s.bound_sum(rest, e.dtype) if rest.terms else (rest.constant, rest.constant)
    is_one = low > -INFINITE and high < INFINITE and low // c == high // c
    return c, quotient, rest, low // c if is_one else None


def floordiv_sum(s: Simplifier, e: E.FloorDiv) -> E.Expr | None:
    """Divide a sum term by term.

    x // 16  ->  0   if 0 <= x < 16
    x // 16  ->  2   if 32 <= x < 48
    (x * 16 + y) // 16  ->  x   if 0 <= y < 16
    (x * 32 + y) // 16  ->  x * 2 + y // 16
    (x * 4 + y) // 16  ->  x // 4   if 0 <= y < 4
    (x * 6 + 4) // 4  ->  x * 3 // 2 + 1
    """
    parts = _divided(s, e)
    if parts is None:
        return None
    c, quotient, rest, whole = parts
    if whole is not None:
        return Linear(quotient.terms, quotient.constant + whole).expr(e.dtype)
    smaller = _divide_gcd(s, rest, c, e.dtype)
    if smaller is not None:
        return build.add(quotient.expr(e.dtype), smaller)
    if quotient.terms or quotient.constant:
        return build.add(quotient.expr(e.dtype), E.FloorDiv(rest.expr(e.dtype), e.b))
    return None


def _divide_gcd(s: Simplifier, rest: Linear, c: int, dtype: DType) -> E.Expr | None:
    """rest // c with a common divisor g of c and most coefficients taken out."""
    for g in sorted({math.gcd(k, c) for k in rest.terms.values()}, reverse=True):
        if g <= 1:
            continue
        whole, small = rest.split(g)
        bounds = s.bound_sum(small, dtype) if small.terms else (small.constant, small.constant)
        if whole.terms and bounds[0] >= 0 and bounds[1] < g:
            return build.floordiv(whole.expr(dtype), build.const(c // g, dtype))
    return None


def floordiv_nested(s: Simplifier, e: E.FloorDiv) -> E.Expr | None:
    """Divide once instead of twice.

    x // 4 // 8  ->  x // 32
    """
    c = _divisor(e)
    if c and type(e.a) is E.FloorDiv and (inner := _divisor(e.a)) and inner * c < 2**31:
        return E.FloorDiv(e.a.a, E.IntImm(e.dtype, inner * c))
    return None


def floordiv_symbolic(s: Simplifier, e: E.FloorDiv) -> E.Expr | None:
    """Divide by a variable.

    (x * n + y) // n  ->  x   if 0 <= y < 5, 5 <= n < 9
    """
    parts = _symbolic_parts(s, e)
    return parts[0].expr(e.dtype) if parts is not None else None


def floormod_symbolic(s: Simplifier, e: E.FloorMod) -> E.Expr | None:
    """The remainder by a variable.

    (x * n + y) % n  ->  y   if 0 <= y < 5, 5 <= n < 9
    """
    parts = _symbolic_parts(s, e)
    return parts[1].expr(e.dtype) if parts is not None else None


def _symbolic_parts(s: Simplifier, e: E.Binary) -> tuple[Linear, Linear] | None:
    """a = n * quotient + rest with 0 <= rest < n known."""
    if type(e.b) is E.IntImm or e.dtype not in INDEX_TYPES or s.bound(e.b)[0] <= 0:
        return None
    form, quotient = s.linear(e.a), Linear({}, 0)
    if not s.is_exact(form, e.dtype):
        return None
    rest = dict(form.terms)
    for atom, k in form.terms.items():
        if atom is e.b:
            quotient.constant += k
        elif type(atom) is E.Mul and (atom.a is e.b or atom.b is e.b):
            quotient.constant += s.collect(atom.b if atom.a is e.b else atom.a, k, quotient.terms)
        else:
            continue
        del rest[atom]
    remainder = Linear(rest, form.constant)
    if s.bound_sum(remainder, e.dtype)[0] < 0:
        return None
    if s.bound_sum(remainder.minus(s.linear(e.b)), e.dtype)[1] >= 0:
        return None
    return quotient.drop_zeros(), remainder


def floormod_sum(s: Simplifier, e: E.FloorMod) -> E.Expr | None:
    """Drop multiples of the divisor.

    x % 16  ->  x   if 0 <= x < 16
    x % 16  ->  x - 32   if 32 <= x < 48
    (x * 16 + y) % 16  ->  y   if 0 <= y < 16
    (x * 32 + y + 17) % 16  ->  (y + 1) % 16
    (x * 4 + y) % 16  ->  x % 4 * 4 + y   if 0 <= y < 4
    """
    parts = _divided(s, e)
    if parts is None:
        return None
    c, quotient, rest, whole = parts
    if whole is not None:
        return Linear(rest.terms, rest.constant - whole * c).expr(e.dtype)
    for g in sorted({math.gcd(k, c) for k in rest.terms.values()}, reverse=True):
        large, small = rest.split(g)
        bounds = s.bound_sum(small, e.dtype) if small.terms else (small.constant, small.constant)
        if 1 < g < c and large.terms and bounds[0] >= 0 and bounds[1] < g:
            inner = build.floormod(large.expr(e.dtype), build.const(c // g, e.dtype))
            return build.add(build.mul(inner, g), small.expr(e.dtype))
    if quotient.terms or quotient.constant:
        return E.FloorMod(rest.expr(e.dtype), e.b)
    return None


def floormod_nested(s: Simplifier, e: E.FloorMod) -> E.Expr | None:
    """A remainder by a multiple first changes nothing.

    (x % 12) % 4  ->  x % 4
    (x % 12 + y) % 4  ->  (x + y) % 4
    """
    c = _divisor(e)
    form = s.linear(e.a) if c else Linear({}, 0)
    for atom, k in form.terms.items():
        if type(atom) is E.FloorMod and _divisor(atom) and atom.b.value % c == 0:  # type: ignore[attr-defined]
            rest = {a: v for a, v in form.terms.items() if a is not atom}
            return E.FloorMod(build.add(build.mul(atom.a, k), Linear(rest, form.constant).expr(e.dtype)), e.b)
    return None


def truncdiv_nonnegative(s: Simplifier, e: E.TruncDiv) -> E.Expr | None:
    """Rounding does not matter when nothing is negative.

    truncdiv(x, 4)  ->  x // 4   if 0 <= x < 100
    """
    return E.FloorDiv(e.a, e.b) if _is_nonnegative_division(s, e) else None


def truncmod_nonnegative(s: Simplifier, e: E.TruncMod) -> E.Expr | None:
    """As for the quotient.

    truncmod(x, 4)  ->  x % 4   if 0 <= x < 100
    """
    return E.FloorMod(e.a, e.b) if _is_nonnegative_division(s, e) else None


def _is_nonnegative_division(s: Simplifier, e: E.Binary) -> bool:
    return e.dtype in INDEX_TYPES and s.bound(e.a)[0] >= 0 and s.bound(e.b)[0] > 0


def _difference(s: Simplifier, e: E.Binary) -> tuple[int, int] | None:
    """The interval of a - b, when both sides are exact index sums."""
    if e.a.dtype not in INDEX_TYPES:
        return None
    a, b = s.linear(e.a), s.linear(e.b)
    if not (s.is_exact(a, e.a.dtype) and s.is_exact(b, e.a.dtype)):
        return None
    difference = a.minus(b)
    if not difference.terms:
        return difference.constant, difference.constant
    return s.bound_sum(difference, DType("int64"))


def min_known(s: Simplifier, e: E.Min) -> E.Expr | None:
    """One side is never larger.

    min(x, x)  ->  x
    min(x, x + 3)  ->  x
    min(x, 64)  ->  x   if 0 <= x < 60
    """
    difference = _difference(s, e)
    if e.a is e.b or (difference is not None and difference[1] <= 0):
        return e.a
    return e.b if difference is not None and difference[0] >= 0 else None


def max_known(s: Simplifier, e: E.Max) -> E.Expr | None:
    """One side is never smaller.

    max(x, x)  ->  x
    max(x, x - 3)  ->  x
    max(x, 0)  ->  x   if 0 <= x < 60
    """
    difference = _difference(s, e)
    if e.a is e.b or (difference is not None and difference[0] >= 0):
        return e.a
    return e.b if difference is not None and difference[1] <= 0 else None


def nested_extremum(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Keep the tighter constant.

    min(min(x, 5), 3)  ->  min(x, 3)
    max(max(x, 5), 3)  ->  max(x, 5)
    """
    if type(e.a) is type(e) and type(e.b) is E.IntImm and type(e.a.b) is E.IntImm:
        return type(e)(e.a.a, binary(type(e), e.a.b, e.b))
    return None


# comparison -> (true when the difference a - b satisfies, false when it satisfies)
_DECIDE: dict[type, tuple[Callable[[int, int], bool], Callable[[int, int], bool]]] = {
    E.LT: (lambda lo, hi: hi < 0, lambda lo, hi: lo >= 0),
    E.LE: (lambda lo, hi: hi <= 0, lambda lo, hi: lo > 0),
    E.GT: (lambda lo, hi: lo > 0, lambda lo, hi: hi <= 0),
    E.GE: (lambda lo, hi: lo >= 0, lambda lo, hi: hi < 0),
    E.EQ: (lambda lo, hi: lo == hi == 0, lambda lo, hi: lo > 0 or hi < 0),
    E.NE: (lambda lo, hi: lo > 0 or hi < 0, lambda lo, hi: lo == hi == 0),
}


def compare_known(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Decide a comparison by the interval of the difference.

    x < 16  ->  true   if 0 <= x < 16
    x * 16 + y < 64  ->  true   if 0 <= x < 4, 0 <= y < 16
    x + 1 <= x  ->  false
    x == y  ->  false   if 0 <= x < 4, 4 <= y < 8
    x + y - x == y  ->  true
    """
    difference = _difference(s, e)
    if difference is None:
        return None
    always, never = _DECIDE[type(e)]
    return TRUE if always(*difference) else FALSE if never(*difference) else None


def compare_scaled(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Divide both sides by a common factor.

    x * 16 + y < 64  ->  x < 4   if 0 <= y < 16
    x * 4 >= 8  ->  x >= 2
    0 <= x * 8 - 16  ->  x > 1
    """
    if e.a.dtype not in INDEX_TYPES:
        return None
    a, b = s.linear(e.a), s.linear(e.b)
    if not (s.is_exact(a, e.a.dtype) and s.is_exact(b, e.a.dtype)):
        return None
    form = a.minus(b)
    # a < b is form < 0, a <= b is form < 1, a > b is not form < 1, a >= b is not form < 0
    limit = 0 if type(e) in (E.LT, E.GE) else 1
    shifted = Linear(form.terms, form.constant - limit)
    for g in sorted({abs(k) for k in form.terms.values()}, reverse=True):
        whole, small = shifted.split(g)
        bounds = s.bound_sum(small, e.a.dtype) if small.terms else (small.constant, small.constant)
        if g > 1 and whole.terms and bounds[0] >= 0 and bounds[1] < g:
            return _as_comparison(whole, type(e) in (E.LT, E.LE), e.a.dtype)
    return None


def _as_comparison(form: Linear, is_negative: bool, dtype: DType) -> E.Expr:
    """`form < 0` or `form >= 0`, with negative terms moved to the other side."""
    left = Linear({a: k for a, k in form.terms.items() if k > 0}, 0)
    right = Linear({a: -k for a, k in form.terms.items() if k < 0}, 0)
    if left.terms:
        right.constant = -form.constant
        kind: Any = E.LT if is_negative else E.GE
        return kind(left.expr(dtype), right.expr(dtype))  # type: ignore[no-any-return]
    # -right + c < 0 is right > c
    kind = E.GT if is_negative else E.LE
    return kind(right.expr(dtype), build.const(form.constant, dtype))  # type: ignore[no-any-return]


def known_condition(s: Simplifier, e: E.Expr) -> E.Expr | None:
    """What is assumed to hold, holds (see `Simplifier.assume`)."""
    known = s.known.get(e) if s.known else None
    return None if known is None else TRUE if known else FALSE


def and_same(s: Simplifier, e: E.And) -> E.Expr | None:
    """Drop a repeated condition.

    p && p  ->  p
    p && q && p  ->  p && q
    p && true  ->  p
    p && false  ->  false
    """
    if type(e.a) is E.IntImm or type(e.b) is E.IntImm:
        return build.logical_and(e.a, e.b)
    if e.a is e.b or (type(e.a) is E.And and e.b in (e.a.a, e.a.b)):
        return e.a
    return None


def or_same(s: Simplifier, e: E.Or) -> E.Expr | None:
    """Drop a repeated condition.

    p || p  ->  p
    p || false  ->  p
    p || true  ->  true
    """
    if type(e.a) is E.IntImm or type(e.b) is E.IntImm:
        return build.logical_or(e.a, e.b)
    return e.a if e.a is e.b else None


_OPPOSITE: dict[type, Any] = {E.LT: E.GE, E.GE: E.LT, E.GT: E.LE, E.LE: E.GT, E.EQ: E.NE, E.NE: E.EQ}


def not_comparison(s: Simplifier, e: E.Not) -> E.Expr | None:
    """Push a negation inwards (order comparisons of integers only: NaN compares false both ways).

    !(x < y)  ->  x >= y
    !(x == y)  ->  x != y
    !!p  ->  p
    """
    if type(e.a) is E.Not:
        return e.a.a
    opposite = _OPPOSITE.get(type(e.a))
    if opposite is None or e.a.a.dtype.is_float:  # type: ignore[attr-defined]
        return None
    return opposite(e.a.a, e.a.b)  # type: ignore[attr-defined, no-any-return]


def select_known(s: Simplifier, e: E.Select) -> E.Expr | None:
    """Choose at once.

    select(p, f, f)  ->  f
    select(x < 5, f, g)  ->  f   if 0 <= x < 5
    """
    if type(e.condition) is E.IntImm:
        return e.true_value if e.condition.value else e.false_value
    return e.true_value if e.true_value is e.false_value else None


def call_known(s: Simplifier, e: E.Call) -> E.Expr | None:
    """Choose at once; a known condition needs no hint.

    if_then_else(p, f, f)  ->  f
    if_then_else(x < 5, f, g)  ->  f   if 0 <= x < 5
    likely(x < 5)  ->  true   if 0 <= x < 5
    """
    if e.name == "if_then_else":
        test, yes, no = e.args
        if type(test) is E.IntImm:
            return yes if test.value else no
        return yes if yes is no else None
    if e.name == "likely" and (type(e.args[0]) is E.IntImm or _is_likely(e.args[0])):
        return e.args[0]
    return None


def _is_likely(e: E.Expr) -> bool:
    return type(e) is E.Call and e.name == "likely"


def guarded_branches(s: Simplifier, e: E.Call) -> E.Expr:
    """Simplify a choice from its condition down: inside a branch the condition is known.

    if_then_else(x < 4, f * float32(min(x, 4)), g)  ->  if_then_else(x < 4, f * float32(x), g)

    Not a row of RULES: those see children simplified already, and a chain of n choices would then be visited 2^n times.
    """
    test = s(e.args[0])
    if type(test) is E.IntImm:
        return s(e.args[1] if test.value else e.args[2])
    if type(test) not in (*_DECIDE, E.And, E.Or, E.Not):
        return s.intern(E.Call(e.dtype, e.name, (test, s(e.args[1]), s(e.args[2]))))
    with s.assume(test):
        yes = s(e.args[1])
    with s.assume(test, False):
        no = s(e.args[2])
    return s.intern(E.Call(e.dtype, e.name, (test, yes, no)))


def cast_cast(s: Simplifier, e: E.Cast) -> E.Expr | None:
    """Convert once.

    int32(x)  ->  x
    int32(int64(x))  ->  x
    """
    if e.value.dtype is e.dtype:
        return e.value
    inner = e.value
    if type(inner) is E.Cast and inner.dtype.is_int and inner.value.dtype is e.dtype and e.dtype.is_int:
        return inner.value if inner.dtype.bits >= e.dtype.bits else None
    return None


def cast_of_rounded(s: Simplifier, e: E.Cast) -> E.Expr | None:
    """Products with whole numbers, which doubles hold exactly.

    int32(round(float64(x) * 2.0f64))  ->  x * 2
    """
    product = e.value.args[0] if type(e.value) is E.Call and e.value.name == "round" else None
    if type(product) is not E.Mul or type(product.a) is not E.Cast or type(product.b) is not E.FloatImm:
        return None
    number, factor, wide = product.a.value, product.b.value, product.dtype
    is_exact = e.dtype.is_int and e.dtype.bits <= 32 and wide.is_float and wide.bits == 64 and number.dtype is e.dtype
    most = min(e.dtype.max_value, 1 << 20) if is_exact else 0
    if not is_exact or not float(factor).is_integer() or abs(factor) > most:
        return None
    return s(E.Mul(number, E.IntImm(e.dtype, int(factor))))


def float_identity(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Identities that hold for every float, signed zeros and NaN included.

    f * 1.0  ->  f
    f - 0.0  ->  f
    f / 1.0  ->  f
    f + -0.0  ->  f
    """
    b = e.b.value if type(e.b) is E.Broadcast else e.b
    if type(b) is not E.FloatImm:
        return None
    neutral = {E.Mul: 1.0, E.Div: 1.0, E.Sub: 0.0, E.Add: -0.0}[type(e)]
    return e.a if b.value == neutral and math.copysign(1.0, b.value) == math.copysign(1.0, neutral) else None


def broadcast_both(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Compute in one lane, then repeat.

    broadcast(x, 4) < broadcast(y, 4)  ->  broadcast(x < y, 4)
    broadcast(f, 4) * broadcast(g, 4)  ->  broadcast(f * g, 4)
    """
    a, b = e.a, e.b
    if type(a) is E.Broadcast and type(b) is E.Broadcast and a.lanes == b.lanes and a.value.dtype is b.value.dtype:
        return E.Broadcast(binary(type(e), a.value, b.value), a.lanes)
    return None


def ramp_sum(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Add and subtract ramps by their bases and strides.

    ramp(x, 1, 4) + broadcast(y, 4)  ->  ramp(x + y, 1, 4)
    ramp(x, 1, 4) - ramp(y, 1, 4)  ->  broadcast(x - y, 4)
    """
    left, right = _as_ramp(e.a), _as_ramp(e.b)
    if left is None or right is None or left[2] != right[2] or not e.dtype.is_int:
        return None
    return as_vector(binary(type(e), left[0], right[0]), s(binary(type(e), left[1], right[1])), left[2])


def ramp_product(s: Simplifier, e: E.Mul) -> E.Expr | None:
    """Scale a ramp.

    ramp(x, 1, 4) * broadcast(y, 4)  ->  ramp(x * y, y, 4)
    """
    for one, other in ((e.a, e.b), (e.b, e.a)):
        if type(one) is E.Ramp and type(other) is E.Broadcast and _as_ramp(one) and other.value.dtype.lanes == 1:
            return as_vector(build.mul(one.base, other.value), build.mul(one.stride, other.value), one.lanes)
    return None


def _as_ramp(e: E.Expr) -> tuple[E.Expr, E.Expr, int] | None:
    if type(e) is E.Ramp and e.base.dtype.lanes == 1:
        return e.base, e.stride, e.lanes
    if type(e) is E.Broadcast and e.value.dtype.lanes == 1 and e.dtype.is_int:
        return e.value, build.const(0, e.value.dtype), e.lanes
    return None


def as_vector(base: E.Expr, stride: E.Expr, lanes: int) -> E.Expr:
    """A ramp, or a broadcast when the stride is zero."""
    return E.Broadcast(base, lanes) if build.as_int(stride) == 0 else E.Ramp(base, stride, lanes)


def ramp_division(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """Divide a ramp that stays inside one multiple of the divisor, or that steps by multiples of it.

    ramp(x * 8, 1, 4) // broadcast(8, 4)  ->  broadcast(x, 4)
    ramp(x * 8, 1, 4) % broadcast(8, 4)  ->  ramp(0, 1, 4)
    ramp(x, 8, 4) // broadcast(8, 4)  ->  ramp(x // 8, 1, 4)
    ramp(x, 8, 4) % broadcast(8, 4)  ->  broadcast(x % 8, 4)
    """
    ramp, c = e.a, build.as_int(e.b)
    if type(ramp) is not E.Ramp or not c or c < 0 or ramp.base.dtype not in INDEX_TYPES:
        return None
    stride = build.as_int(ramp.stride)
    if stride is None:
        return None
    divisor = build.const(c, ramp.base.dtype)
    quotient, rest = s(build.floordiv(ramp.base, divisor)), s(build.floormod(ramp.base, divisor))
    is_div = type(e) is E.FloorDiv
    if stride % c == 0:
        step = build.const(stride // c, quotient.dtype)
        return E.Ramp(quotient, step, ramp.lanes) if is_div else E.Broadcast(rest, ramp.lanes)
    low, high = s.bound(rest)
    reach = (ramp.lanes - 1) * stride
    if min(low, low + reach) >= 0 and max(high, high + reach) < c:
        return E.Broadcast(quotient, ramp.lanes) if is_div else E.Ramp(rest, ramp.stride, ramp.lanes)
    return None


def compare_vector(s: Simplifier, e: E.Binary) -> E.Expr | None:
    """A comparison that all lanes decide alike.

    ramp(x * 8, 1, 8) < broadcast(64, 8)  ->  broadcast(true, 8)   if 0 <= x < 8
    """
    if e.a.dtype.lanes == 1 or e.a.dtype.element not in INDEX_TYPES:
        return None
    difference = s(E.Sub(e.a, e.b))
    parts = _as_ramp(difference)
    if parts is None:
        return None
    low, high = s.bound(difference)
    always, never = _DECIDE[type(e)]
    decided = TRUE if always(low, high) else FALSE if never(low, high) else None
    return None if decided is None else E.Broadcast(decided, parts[2])


def let_inline(s: Simplifier, e: E.Let) -> E.Expr | None:
    """Put simple values in place.

    (let v: int32 = 3 in v + x)  ->  x + 3
    """
    if type(e.value) in (E.IntImm, E.FloatImm, E.Var):
        return substitute_expr(e.body, {e.var: e.value})
    return None


_EXTREMA: tuple[Rule, ...] = (nested_extremum, broadcast_both)
_COMPARISONS: tuple[Rule, ...] = (known_condition, broadcast_both, compare_known, compare_vector)
_ORDERS: tuple[Rule, ...] = (*_COMPARISONS, compare_scaled)
RULES: dict[type, tuple[Rule, ...]] = {
    E.Add: (float_identity, broadcast_both, ramp_sum),
    E.Sub: (float_identity, broadcast_both, ramp_sum),
    E.Mul: (float_identity, broadcast_both, ramp_product),
    E.Div: (float_identity, broadcast_both),
    E.FloorDiv: (broadcast_both, ramp_division, floordiv_nested, floordiv_sum, floordiv_symbolic),
    E.FloorMod: (broadcast_both, ramp_division, floormod_nested, floormod_sum, floormod_symbolic),
    E.TruncDiv: (truncdiv_nonnegative,),
    E.TruncMod: (truncmod_nonnegative,),
    E.Min: (min_known, *_EXTREMA),
    E.Max: (max_known, *_EXTREMA),
    **dict.fromkeys((E.LT, E.LE, E.GT, E.GE), _ORDERS),
    **dict.fromkeys((E.EQ, E.NE), _COMPARISONS),
    E.And: (known_condition, and_same, broadcast_both),
    E.Or: (known_condition, or_same, broadcast_both),
    E.Not: (known_condition, not_comparison),
    E.Select: (select_known,),
    E.Call: (call_known,),
    E.Cast: (cast_cast, cast_of_rounded),
    E.Let: (let_inline,),
}
