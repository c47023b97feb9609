"""Our own sin, cos, tan, asin, acos, atan and atan2 of float32.

In: lanes to write instructions for, and names of values. Out: the name of the result. Angles below `MOST` are brought
to a quarter of a turn in float64, in three steps of which the first two are exact without fused multiply-adds (Cody and
Waite), and polynomials give the functions there; larger angles, infinities and NaN go to libm. The inverse functions
halve their range by asin x = pi / 2 - 2 asin sqrt((1 - x) / 2) and atan x = pi / 2 - atan(1 / x). Invariant: errors are
at most 3 ulp (`tests/codegen/test_numerics.py`). Polynomials are made as those of llvm/math.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from armillary.codegen.llvm.float_lanes import FloatLanes

MOST = 1e6  # multiples of a quarter turn below it have 20 bits, and times a third of pi / 2 fit 53
_PI_2 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)  # pi / 2 in parts, the first two of 33 bits
_PI_2_HIGH, _PI_2_LOW = 1.5707963705062866, -4.371139000186243e-08  # the same, as float32
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds a float64 to an integer
_SIN = (-0.16666654611, 0.0083321608736, -0.00019515295891)  # sin r = r + r**3 * P(r**2), |r| <= pi / 4
_COS = (0.04166664568298827, -0.001388731625493765, 2.443315711809948e-05)  # cos r = 1 - r**2 / 2 + r**4 * P(r**2)
# tan r = r + r**3 * P(r**2), |r| <= pi / 4
_TAN = (
    0.33333351450697407,
    0.13332609593229397,
    0.05406558353941321,
    0.021254733399186744,
    0.010903017037461844,
    8.648335798520923e-06,
    0.004414328679145377,
)
# asin x = x + x**3 * P(x**2), |x| <= 1 / 2
_ASIN = (0.16666753928109576, 0.07495241777457545, 0.04547709711640448, 0.024147611849833675, 0.0422185461581513)
# atan x = x + x**3 * P(x**2), |x| <= 1
_ATAN = (
    -0.3333330186457172,
    0.19998638552664438,
    -0.14265244599886143,
    0.1095757185776357,
    -0.08419445983628392,
    0.058234320378076194,
    -0.0314554694059538,
    0.01106431518585596,
    -0.0018271846852175781,
)


def _needs_libm(k: FloatLanes, x: str) -> str:
    return k.op("fcmp uge", k.abs(x), MOST)


def _reduced(k: FloatLanes, x: str) -> tuple[str, str]:
    """r = x - n * pi / 2 as float32, |r| <= pi / 4, and n, for |x| below MOST."""
    w, wide = k.widen(x)
    shifted = w.fma(wide, 0.6366197723675814, _MAGIC)
    n = w.op("fsub", shifted, _MAGIC)
    rest = wide
    for part in _PI_2:
        rest = w.fma(n, -part, rest)
    r = k.b.pure(f"fptrunc {w.kind} {rest} to {k.kind}", rest)
    bits = w.to_bits(shifted)
    return r, k.b.pure(f"trunc {w.integer} {bits} to {k.integer}", bits)


def _is_even(k: FloatLanes, n: str) -> str:
    odd = k.iop("and", n, 1)
    return k.b.pure(f"icmp eq {k.integer} {odd}, {k.bits_of(0)}", odd)


def _sine(turned: int, k: FloatLanes, x: str) -> str:
    """The sine of x and some quarter turns."""
    r, n = _reduced(k, x)
    quarter = k.iop("add", n, turned)
    squared = k.op("fmul", r, r)
    sine = k.op("fmul", r, k.fma(squared, k.poly(squared, _SIN), 1.0))  # keeps the sign of zero
    cosine = k.fma(k.op("fmul", squared, squared), k.poly(squared, _COS), k.fma(squared, -0.5, 1.0))
    sign = k.iop("shl", k.iop("and", quarter, 2), 30)
    return k.from_bits(k.iop("xor", k.to_bits(k.select(_is_even(k, quarter), sine, cosine)), sign))


def _tan(k: FloatLanes, x: str) -> str:
    """tan r, and -1 / tan r behind an odd number of quarter turns."""
    r, n = _reduced(k, x)
    squared = k.op("fmul", r, r)
    tangent = k.op("fmul", r, k.fma(squared, k.poly(squared, _TAN), 1.0))  # keeps the sign of zero
    is_even = _is_even(k, n)
    return k.op("fdiv", k.select(is_even, tangent, -1.0), k.select(is_even, 1.0, tangent))


def _from_quarter(k: FloatLanes, angle: str, turns: float = 1.0) -> str:
    """`turns` quarter turns less an angle."""
    return k.op("fsub", k.const(turns * _PI_2_HIGH), k.op("fsub", angle, turns * _PI_2_LOW))


def _half_of_asin(k: FloatLanes, size: str) -> tuple[str, str]:
    """Whether |x| is above 1/2, and asin |x| up to there, asin sqrt((1 - |x|) / 2) beyond."""
    is_large = k.op("fcmp ogt", size, 0.5)
    z = k.select(is_large, k.fma(size, -0.5, 0.5), k.op("fmul", size, size))
    s = k.select(is_large, k.sqrt(z), size)
    return is_large, k.fma(k.op("fmul", s, z), k.poly(z, _ASIN), s)


def _asin(k: FloatLanes, x: str) -> str:
    is_large, angle = _half_of_asin(k, k.abs(x))
    return k.copysign(k.select(is_large, _from_quarter(k, k.op("fadd", angle, angle)), angle), x)


def _acos(k: FloatLanes, x: str) -> str:
    is_large, angle = _half_of_asin(k, k.abs(x))
    rest = _from_quarter(k, k.select(is_large, angle, k.copysign(angle, x)))
    far = k.select(k.op("fcmp olt", x, 0.0), rest, angle)
    return k.select(is_large, k.op("fadd", far, far), rest)


def _atan_to_one(k: FloatLanes, x: str) -> str:
    squared = k.op("fmul", x, x)
    return k.fma(k.op("fmul", x, squared), k.poly(squared, _ATAN), x)


def _atan(k: FloatLanes, x: str) -> str:
    size = k.abs(x)
    is_large = k.op("fcmp ogt", size, 1.0)
    angle = _atan_to_one(k, k.select(is_large, k.op("fdiv", k.const(1.0), size), size))
    return k.copysign(k.select(is_large, _from_quarter(k, angle), angle), x)


def _atan2(k: FloatLanes, y: str, x: str) -> str:
    """The angle of the larger of |x| and |y| with the other axis, then C's quadrants."""
    a, c = k.abs(y), k.abs(x)
    is_steep = k.op("fcmp ogt", a, c)
    least, most = k.select(is_steep, c, a), k.select(is_steep, a, c)
    quotient = k.op("fdiv", least, most)
    quotient = k.select(k.op("fcmp oeq", most, 0.0), 0.0, quotient)
    quotient = k.select(k.op("fcmp oeq", least, float("inf")), 1.0, quotient)
    angle = _atan_to_one(k, quotient)
    angle = k.select(is_steep, _from_quarter(k, angle), angle)
    angle = k.select(k.is_negative(x), _from_quarter(k, angle, 2.0), angle)
    is_nan = k.b.pure(f"fcmp uno {k.kind} {x}, {y}", x, y)
    return k.select(is_nan, float("nan"), k.copysign(angle, y))


RULES: dict[str, Callable[..., str]] = {  # as in llvm/math.py
    "sin": partial(_sine, 0),
    "cos": partial(_sine, 1),
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
}
NEEDS_LIBM: dict[str, Callable[..., str]] = dict.fromkeys(("sin", "cos", "tan"), _needs_libm)
