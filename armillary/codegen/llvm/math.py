"""Our own float32 functions but the trigonometric ones: exponentials, logarithms, hyperbolic functions, pow, fmod.

In: lanes to write instructions for, and names of values. Out: the name of the result of straight-line code. Invariant:
no table, no branch; errors, measured over the whole range against float64, of at most 3 ulp, fmod is exact
(`tests/codegen/test_numerics.py`); normcdf is a rational function with an absolute error of at most 1.6e-7, which is
what x * normcdf(x) needs; infinities, NaN, zeros and subnormals as those of C. Polynomials are minimax fits (weighted
least squares with reweighting, in float64) on the reduced ranges named below. As functions: float_functions.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from armillary.codegen.llvm.float_lanes import FloatLanes
from armillary.tir.intrinsics import FLUSHED_BELOW

# e**r = 1 + r + r**2 * P(r), |r| <= ln(2)/2
_EXP = (0.5, 0.16666516661643982, 0.04166620224714279, 0.00836909655481577, 0.001395084778778255)
# ln(1+f) = f - f**2/2 + f**3 * P(f), sqrt(1/2) <= 1+f < sqrt(2)
_LOG = (
    0.3333333134651184,
    -0.2500082552433014,
    0.20001235604286194,
    -0.1662314385175705,
    0.14201372861862183,
    -0.13162016868591309,
    0.12765401601791382,
    -0.07634320855140686,
)
# erf x = x * P(x**2), |x| <= 1
_ERF = (
    1.1283791065216064,
    -0.3761262595653534,
    0.1128358542919159,
    -0.026853814721107483,
    0.005188333801925182,
    -0.0008010242017917335,
    7.854008435970172e-05,
)
# erf x = 1 - exp(-P(x)), 1 <= x <= 4
_ERFC = (
    -0.00019370629161130637,
    1.1296073198318481,
    0.6331565380096436,
    0.10849650949239731,
    -0.025267019867897034,
    0.0042323702946305275,
    -0.00044939847430214286,
    2.299559855600819e-05,
    -9.10549857735532e-08,
)
# normcdf x = 1/2 + x * P(x**2) / Q(x**2), |x| <= 5.2; Q starts with 1
_NORMCDF_P = (
    0.3989422619342804,
    0.031682901084423065,
    0.0044452534057199955,
    0.0001410718832630664,
    5.075408353150124e-06,
)
_NORMCDF_Q = (
    1.0,
    0.2460835576057434,
    0.027157334610819817,
    0.001703157788142562,
    6.110150570748374e-05,
    7.624499858138734e-07,
    -2.005055677045675e-09,
)
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06  # their sum is ln 2; n * high is exact
_LARGE = 1e9  # the square of larger numbers is not made
_NEXT_TO_NOTHING = 7.52316384526264e-37  # 2**-120: a square and it are not subnormal, which may take a hundred cycles
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds a float32 to an integer


def _power(k: FloatLanes, x: str, *, keeps_tiny: bool = False) -> tuple[str, str, str]:
    """e**x as 2**n * (1 + less_one) with n = round(x / ln 2): n + _MAGIC, n, less_one. x lies in [-104, 89.5].

    `keeps_tiny`: less_one is exact for the smallest x too, not only beside 1; a step of 4 cycles more.
    """
    shifted = k.fma(x, 1.4426950408889634, _MAGIC)
    n = k.op("fsub", shifted, _MAGIC)
    rest = k.fma(n, -_LN2_LOW, k.fma(n, -_LN2_HIGH, x))
    if keeps_tiny:
        return shifted, n, k.fma(k.op("fmul", k.poly(rest, _EXP), rest), rest, rest)  # rest**2 may be subnormal
    return shifted, n, k.fma(k.poly(rest, _EXP), k.fma(rest, rest, _NEXT_TO_NOTHING), rest)


def _two_to(k: FloatLanes, shifted: str, more: int = 0) -> str:
    """2**(n + more), a normal number, of n + _MAGIC."""
    return k.from_bits(k.iop("shl", k.iop("sub", k.to_bits(shifted), 0x4B400000 - 127 - more), 23))


def _exp(k: FloatLanes, x: str) -> str:
    """2**n * e**r with n = round(x / ln 2); the scaling is in two steps so that subnormal results round once."""
    shifted, n, less_one = _power(k, k.clamp(x, -104.0, 89.0))
    value = k.op("fadd", less_one, 1.0)
    at_once = k.scaled(value, n)
    if at_once is not None:
        return at_once
    count = k.iop("sub", k.to_bits(shifted), 0x4B400000)
    half = k.iop("ashr", count, 1)
    other = k.iop("sub", count, half)
    first, second = (k.from_bits(k.iop("shl", k.iop("add", part, 127), 23)) for part in (half, other))
    return k.op("fmul", k.op("fmul", value, first), second)


def _exp_flushed(k: FloatLanes, x: str) -> str:
    """e**x of x up to 88, with a single scaling; 0 below e**-87, so that nothing subnormal arises on the way.

    Some processors take a hundred cycles and more for each vector of subnormal numbers: masks of -100 made scores so.
    """
    is_tiny = k.op("fcmp olt", x, FLUSHED_BELOW)
    shifted, n, less_one = _power(k, k.select(is_tiny, FLUSHED_BELOW, x))
    value = k.op("fadd", less_one, 1.0)
    return k.select(is_tiny, 0.0, k.scaled(value, n) or k.op("fmul", value, _two_to(k, shifted)))


def _log(k: FloatLanes, x: str) -> str:
    tiny = k.op("fcmp olt", x, 1.1754943508222875e-38)
    scaled = k.select(tiny, k.op("fmul", x, 8388608.0), x)
    total = _log_of_normal(k, scaled, k.iselect(tiny, 23, 0))
    inf = float("inf")
    total = k.select(k.op("fcmp oeq", x, inf), inf, total)
    total = k.select(k.op("fcmp oeq", x, 0.0), -inf, total)
    return k.select(k.op("fcmp ult", x, 0.0), float("nan"), total)


def _log_of_normal(k: FloatLanes, x: str, less: str, more: str = "") -> str:
    """(n - less) * ln 2 + ln(1+f) with x + more = 2**n * (1+f); `more` is what x lacks of an exact value."""
    offset = k.iop("sub", k.to_bits(x), 0x3F3504F3)  # sqrt(1/2)
    places = k.iop("ashr", offset, 23)
    n = k.iop("sub", places, less)
    mantissa = k.from_bits(k.iop("add", k.iop("and", offset, 0x7FFFFF), 0x3F3504F3))
    f = k.op("fsub", mantissa, 1.0)
    if more:
        f = k.fma(more, k.from_bits(k.iop("shl", k.positive(k.iop("sub", k.bits_of(127), places)), 23)), f)
    count = k.b.pure(f"sitofp {k.integer} {n} to {k.kind}", n)
    squared = k.op("fmul", f, f)
    tail = k.fma(k.op("fmul", f, squared), k.poly(f, _LOG), k.op("fmul", count, _LN2_LOW))
    return k.fma(count, _LN2_HIGH, k.op("fadd", k.fma(squared, -0.5, tail), f))


def _log1p_less(k: FloatLanes, x: str, less: str) -> str:
    """ln(1 + x) - less * ln 2: 1 + x rounded, and what it lacks, as two numbers (Knuth's sum)."""
    whole = k.op("fadd", x, 1.0)
    part = k.op("fsub", whole, 1.0)
    lacks = k.op("fadd", k.op("fsub", k.const(1.0), k.op("fsub", whole, part)), k.op("fsub", x, part))
    total, inf = _log_of_normal(k, whole, less, lacks), float("inf")
    total = k.select(k.op("fcmp oeq", x, inf), inf, total)
    total = k.select(k.op("fcmp oeq", x, -1.0), -inf, total)
    return k.select(k.op("fcmp ult", x, -1.0), float("nan"), total)


def _log1p(k: FloatLanes, x: str) -> str:
    return k.copysign(_log1p_less(k, x, k.bits_of(0)), x)


def _asinh(k: FloatLanes, x: str) -> str:
    """ln(1 + |x| + x**2 / (1 + sqrt(1 + x**2))); where x**2 is too large ln(2 |x|)."""
    size = k.abs(x)
    is_large = k.op("fcmp ogt", size, _LARGE)
    s = k.select(is_large, 1.0, size)
    squared = k.op("fmul", s, s)
    root = k.sqrt(k.op("fadd", squared, 1.0))
    near = k.op("fadd", s, k.op("fdiv", squared, k.op("fadd", root, 1.0)))
    value = _log1p_less(k, k.select(is_large, size, near), k.iselect(is_large, -1, 0))
    return k.copysign(value, x)


def _acosh(k: FloatLanes, x: str) -> str:
    """ln(1 + t + sqrt(t * (t + 2))) with t = x - 1; where t**2 is too large ln(2 x)."""
    is_large = k.op("fcmp ogt", x, _LARGE)
    t = k.select(is_large, 1.0, k.op("fsub", x, 1.0))
    near = k.op("fadd", t, k.sqrt(k.op("fmul", t, k.op("fadd", t, 2.0))))
    value = _log1p_less(k, k.select(is_large, x, near), k.iselect(is_large, -1, 0))
    return k.select(k.op("fcmp ult", x, 1.0), float("nan"), value)


def _atanh(k: FloatLanes, x: str) -> str:
    """ln(1 + 2 |x| / (1 - |x|)) / 2"""
    size = k.abs(x)
    quotient = k.op("fdiv", k.op("fadd", size, size), k.op("fsub", k.const(1.0), size))
    return k.copysign(k.op("fmul", _log1p_less(k, quotient, k.bits_of(0)), 0.5), x)


def _sinh(k: FloatLanes, x: str) -> str:
    """h + h / (1 + 2 h) with h = e**|x| / 2 - 1 / 2, which is made in one piece, so that nothing small cancels."""
    size = k.abs(x)
    shifted, _, less_one = _power(k, k.select(k.op("fcmp ogt", size, 89.5), 89.5, size), keeps_tiny=True)
    quarter = _two_to(k, shifted, -2)  # 2**128 is no float32
    part = k.fma(quarter, less_one, k.op("fsub", quarter, 0.25))
    h = k.op("fadd", part, part)
    large = k.op("fadd", h, k.op("fdiv", part, k.op("fadd", h, 0.5)))
    return k.select(k.op("fcmp olt", size, 1e-4), x, k.copysign(large, x))


def _cosh(k: FloatLanes, x: str) -> str:
    """2 q + 1 / (8 q) with q = e**|x| / 4"""
    size = k.abs(x)
    shifted, _, less_one = _power(k, k.select(k.op("fcmp ogt", size, 89.5), 89.5, size))
    q = k.op("fmul", k.op("fadd", less_one, 1.0), _two_to(k, shifted, -2))
    return k.op("fadd", k.op("fadd", q, q), k.op("fdiv", k.const(0.125), q))


def _tanh(k: FloatLanes, x: str) -> str:
    """(e**2|x| - 1) / (e**2|x| + 1), with e**r - 1 in one piece, so that nothing small cancels."""
    size = k.abs(x)
    doubled = k.op("fadd", size, size)
    clamped = k.select(k.op("fcmp ogt", doubled, 19.0), 19.0, doubled)  # from 18.1 on the quotient is 1
    shifted, _, less_one = _power(k, clamped, keeps_tiny=True)
    scale = _two_to(k, shifted)
    power = k.fma(scale, less_one, k.op("fsub", scale, 1.0))
    return k.copysign(k.op("fdiv", power, k.op("fadd", power, 2.0)), x)


def _erf(k: FloatLanes, x: str) -> str:
    size = k.abs(x)
    small = k.op("fmul", x, k.poly(k.fma(x, x, _NEXT_TO_NOTHING), _ERF))
    clamped = k.clamp(size, 0.0, 4.0)
    large = k.copysign(k.op("fsub", k.const(1.0), _exp(k, k.negated(k.poly(clamped, _ERFC)))), x)
    return k.select(k.op("fcmp olt", size, 1.0), small, large)


def _sigmoid(k: FloatLanes, x: str) -> str:
    """1 / (1 + e**-x); e**-x is at least e**-87, which adds nothing, so that it is scaled once, and then doubled."""
    lowest = -88.0 if k.has_avx512 else -89.0  # e**88 has an inverse, e**89 is infinite
    shifted, n, less_one = _power(k, k.clamp(k.negated(x), -87.0, -lowest))
    value = k.op("fadd", less_one, 1.0)
    scaled = k.scaled(value, n)
    if scaled is None:  # 2**128 is no float32
        scaled = k.op("fmul", k.op("fadd", value, value), _two_to(k, shifted, -1))
    total = k.op("fadd", scaled, 1.0)
    inverse = k.inverse(total)
    if inverse is None:
        return k.op("fdiv", k.const(1.0), total)
    return k.select(k.op("fcmp olt", x, lowest), 0.0, inverse)  # so that x * sigmoid(x) does not grow with x


def _normcdf(k: FloatLanes, x: str) -> str:
    clamped = k.clamp(x, -5.2, 5.2)
    squared = k.fma(clamped, clamped, _NEXT_TO_NOTHING)
    top = k.op("fmul", clamped, k.poly(squared, _NORMCDF_P))
    inside = k.op("fadd", k.op("fdiv", top, k.poly(squared, _NORMCDF_Q)), 0.5)
    # exactly 0 and 1 outside, so that x * normcdf(x) does not grow with x
    return k.select(k.op("fcmp olt", x, -5.2), 0.0, k.select(k.op("fcmp ogt", x, 5.2), 1.0, inside))


def _log2_wide(k: FloatLanes, x: str) -> tuple[FloatLanes, str]:
    """log2 of a positive finite float32, as float64, to about 2**-40."""
    tiny = k.op("fcmp olt", x, 1.1754943508222875e-38)
    scaled = k.select(tiny, k.op("fmul", x, 8388608.0), x)
    offset = k.iop("sub", k.to_bits(scaled), 0x3F3504F3)
    n = k.iop("sub", k.iop("ashr", offset, 23), k.iselect(tiny, 23, 0))
    w, m = k.widen(k.from_bits(k.iop("add", k.iop("and", offset, 0x7FFFFF), 0x3F3504F3)))
    s = w.op("fdiv", w.op("fsub", m, 1.0), w.op("fadd", m, 1.0))  # log m = 2 atanh s, |s| < 0.172
    scale = 2.8853900817779268  # 2 / ln 2
    series = w.poly(w.op("fmul", s, s), tuple(scale / (2 * i + 1) for i in range(9)))
    count = k.b.pure(f"sitofp {k.integer} {n} to {w.kind}", n)
    return w, w.fma(s, series, count)


def _exp2_wide(k: FloatLanes, w: FloatLanes, x: str) -> str:
    """2**x of a float64 in [-160, 160], rounded to float32."""
    magic = 6755399441055744.0  # 1.5 * 2**52
    shifted = w.op("fadd", x, magic)
    rest = w.op("fsub", x, w.op("fsub", shifted, magic))
    coefficients, term = [], 1.0
    for i in range(12):
        coefficients.append(term)
        term *= 0.6931471805599453 / (i + 1)
    value = w.poly(rest, tuple(coefficients))
    (base,) = struct.unpack("<q", struct.pack("<d", magic))
    exponent = w.iop("shl", w.iop("sub", w.to_bits(shifted), base - 1023), 52)
    wide = w.op("fmul", value, w.from_bits(exponent))
    return k.b.pure(f"fptrunc {w.kind} {wide} to {k.kind}", wide)


def _pow(k: FloatLanes, x: str, y: str) -> str:
    """2**(y * log2|x|) in float64, then C's special cases."""
    size, inf = k.abs(x), float("inf")
    finite = k.select(k.op("fcmp ueq", size, inf), 1.0, size)
    finite = k.select(k.op("fcmp oeq", size, 0.0), 1.0, finite)
    w, log2 = _log2_wide(k, finite)
    _, wide_y = k.widen(y)
    power = w.op("fmul", log2, wide_y)
    result = _exp2_wide(k, w, w.clamp(power, -160.0, 160.0))
    y_negative = k.op("fcmp olt", y, 0.0)
    at_zero, at_inf = k.select(y_negative, inf, 0.0), k.select(y_negative, 0.0, inf)
    result = k.select(k.op("fcmp oeq", size, 0.0), at_zero, result)
    result = k.select(k.op("fcmp oeq", size, inf), at_inf, result)
    result = _pow_sign(k, x, y, result)
    is_nan = k.b.pure(f"fcmp uno {k.kind} {x}, {y}", x, y)
    result = k.select(is_nan, float("nan"), result)
    minus_one = k.both(k.op("fcmp oeq", x, -1.0), k.op("fcmp oeq", k.abs(y), inf))
    result = k.select(minus_one, 1.0, result)
    return k.select(k.either(k.op("fcmp oeq", x, 1.0), k.op("fcmp oeq", y, 0.0)), 1.0, result)


def _pow_sign(k: FloatLanes, x: str, y: str, result: str) -> str:
    """Negative x: odd integers y keep the sign; a y that is no integer gives NaN unless x is 0 or infinite."""
    whole = k.trunc(y)
    is_integer = k.op("fcmp oeq", whole, y)
    half = k.op("fmul", y, 0.5)
    half_whole = k.trunc(half)
    is_odd = k.both(is_integer, k.b.pure(f"fcmp one {k.kind} {half}, {half_whole}", half, half_whole))
    flipped = k.negated(result)
    signed = k.select(k.both(k.is_negative(x), is_odd), flipped, result)
    ordinary = k.both(k.op("fcmp olt", x, 0.0), k.op("fcmp ogt", x, -float("inf")))
    not_integer = k.b.pure(f"fcmp une {k.kind} {whole}, {y}", whole, y)
    return k.select(k.both(ordinary, not_integer), float("nan"), signed)


def _fmod(k: FloatLanes, x: str, y: str) -> str:
    """x - q * y with q = trunc(x / y), where |x| is less than 2**23 |y|; without a fused product in float64.

    The difference is exact: a multiple of the last place of y (or of x, which q of 0 leaves) that is no larger than y.
    x / y may round up to a whole number, never by more than one place: the difference then has the other sign.
    """
    w, a, c = k, k.abs(x), k.abs(y)
    if not k.has_fma:
        (w, a), (_, c) = k.widen(a), k.widen(c)
    q = w.trunc(w.op("fdiv", a, c))
    rest = w.fma(w.negated(q), c, a)
    rest = w.select(w.op("fcmp olt", rest, 0.0), w.op("fadd", rest, c), rest)
    value = rest if w is k else k.b.pure(f"fptrunc {w.kind} {rest} to {k.kind}", rest)
    is_infinite = k.op("fcmp oeq", k.abs(y), float("inf"))
    return k.copysign(k.select(is_infinite, k.abs(x), value), x)


def _fmod_needs_libm(k: FloatLanes, x: str, y: str) -> str:
    """Quotients of 2**23 or more, x that is no number or infinite, y that is no number or 0."""
    return k.op("fcmp uge", k.abs(x), k.op("fmul", k.abs(y), 8388608.0))


RULES: dict[str, Callable[..., str]] = {  # of as many names of values as the function has arguments
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "normcdf": _normcdf,
    "exp_flushed": _exp_flushed,
    "log1p": _log1p,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "sinh": _sinh,
    "cosh": _cosh,
    "pow": _pow,
    "fmod": _fmod,
}
NEEDS_LIBM: dict[str, Callable[..., str]] = {"fmod": _fmod_needs_libm}  # lanes that libm must compute
