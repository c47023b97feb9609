"""Our own float32 functions, scalar and vector: exp, exp_flushed, log, tanh, erf, sigmoid, normcdf, pow.

In: a name and a number of lanes. Out: the text of an LLVM function, straight-line code without tables or branches.
Errors measured over the whole range against float64: at most 3 ulp (`tests/codegen/test_numerics.py`); normcdf is a
rational function with an absolute error of at most 1.6e-7, which is what x * normcdf(x) needs;
infinities, NaN, zeros and subnormals as those of C. Polynomials are minimax fits (weighted least squares with
reweighting, in float64) on the reduced ranges
named below.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from armillary.codegen.llvm_builder import Builder
from armillary.codegen.llvm_types import splat, vector
from armillary.tir.intrinsics import FLUSHED_BELOW

# e**r = 1 + r + r**2 * P(r), |r| <= ln(2)/2
_EXP = (0.5, 0.16666516661643982, 0.04166620224714279, 0.00836909655481577, 0.001395084778778255)
# ln(1+f) = f - f**2/2 + f**3 * P(f), sqrt(1/2) <= 1+f < sqrt(2)
_LOG = (
    0.3333333134651184, -0.2500082552433014, 0.20001235604286194, -0.1662314385175705, 0.14201372861862183,
    -0.13162016868591309, 0.12765401601791382, -0.07634320855140686,
)  # fmt: skip
# erf x = x * P(x**2), |x| <= 1
_ERF = (
    1.1283791065216064, -0.3761262595653534, 0.1128358542919159, -0.026853814721107483, 0.005188333801925182,
    -0.0008010242017917335, 7.854008435970172e-05,
)  # fmt: skip
# erf x = 1 - exp(-P(x)), 1 <= x <= 4
_ERFC = (
    -0.00019370629161130637, 1.1296073198318481, 0.6331565380096436, 0.10849650949239731, -0.025267019867897034,
    0.0042323702946305275, -0.00044939847430214286, 2.299559855600819e-05, -9.10549857735532e-08,
)  # fmt: skip
# normcdf x = 1/2 + x * P(x**2) / Q(x**2), |x| <= 5.2; Q starts with 1
_NORMCDF_P = (
    0.3989422619342804, 0.031682901084423065, 0.0044452534057199955, 0.0001410718832630664, 5.075408353150124e-06,
)  # fmt: skip
_NORMCDF_Q = (
    1.0, 0.2460835576057434, 0.027157334610819817, 0.001703157788142562, 6.110150570748374e-05, 7.624499858138734e-07,
    -2.005055677045675e-09,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06  # their sum is ln 2; n * high is exact
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds a float32 to an integer


class FloatLanes:
    """Instructions on `lanes` lanes of one float type."""

    def __init__(self, b: Builder, lanes: int, bits: int = 32) -> None:
        self.b, self.lanes, self.bits = b, lanes, bits
        self.element = "float" if bits == 32 else "double"
        self.kind, self.integer = vector(self.element, lanes), vector(f"i{bits}", lanes)
        self.flag, self.short = vector("i1", lanes), ("" if lanes == 1 else f"v{lanes}") + f"f{bits}"

    def const(self, value: float) -> str:
        exact = struct.unpack("<f", struct.pack("<f", value))[0] if self.bits == 32 else value
        (bits,) = struct.unpack("<Q", struct.pack("<d", exact))
        return splat(self.element, f"0x{bits:016X}", self.lanes)

    def bits_of(self, value: int) -> str:
        return splat(f"i{self.bits}", str(value), self.lanes)

    def op(self, name: str, a: str, c: str | float) -> str:
        other = c if isinstance(c, str) else self.const(c)
        return self.b.pure(f"{name} {self.kind} {a}, {other}", a, other)

    def iop(self, name: str, a: str, c: str | int) -> str:
        other = c if isinstance(c, str) else self.bits_of(c)
        return self.b.pure(f"{name} {self.integer} {a}, {other}", a, other)

    def fma(self, a: str, c: str | float, d: str | float) -> str:
        x, y = (v if isinstance(v, str) else self.const(v) for v in (c, d))
        kind = self.kind
        return self.b.intrinsic(kind, f"llvm.fmuladd.{self.short}", (kind, a), (kind, x), (kind, y))

    def poly(self, x: str, coefficients: tuple[float, ...]) -> str:
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return result

    def select(self, test: str, a: str | float, c: str | float) -> str:
        x, y = (v if isinstance(v, str) else self.const(v) for v in (a, c))
        return self.b.pure(f"select {self.flag} {test}, {self.kind} {x}, {self.kind} {y}", test, x, y)

    def iselect(self, test: str, a: str | int, c: str | int) -> str:
        x, y = (v if isinstance(v, str) else self.bits_of(v) for v in (a, c))
        return self.b.pure(f"select {self.flag} {test}, {self.integer} {x}, {self.integer} {y}", test, x, y)

    def to_bits(self, value: str) -> str:
        return self.b.pure(f"bitcast {self.kind} {value} to {self.integer}", value)

    def from_bits(self, value: str) -> str:
        return self.b.pure(f"bitcast {self.integer} {value} to {self.kind}", value)

    def abs(self, value: str) -> str:
        return self.b.intrinsic(self.kind, f"llvm.fabs.{self.short}", (self.kind, value))

    def copysign(self, value: str, sign: str) -> str:
        name = f"llvm.copysign.{self.short}"
        return self.b.intrinsic(self.kind, name, (self.kind, value), (self.kind, sign))

    def clamp(self, x: str, low: float, high: float) -> str:
        """x inside [low, high]; NaN stays."""
        raised = self.select(self.op("fcmp olt", x, low), low, x)
        return self.select(self.op("fcmp ogt", raised, high), high, raised)

    def widen(self, value: str) -> tuple[FloatLanes, str]:
        wide = FloatLanes(self.b, self.lanes, 64)
        return wide, self.b.pure(f"fpext {self.kind} {value} to {wide.kind}", value)


def _exp(k: FloatLanes, x: str) -> str:
    """2**n * e**r with n = round(x / ln 2); the scaling is in two steps so that subnormal results round once."""
    clamped = k.clamp(x, -104.0, 89.0)
    shifted = k.fma(clamped, 1.4426950408889634, _MAGIC)
    n = k.op("fsub", shifted, _MAGIC)
    rest = k.fma(n, -_LN2_LOW, k.fma(n, -_LN2_HIGH, clamped))
    squared = k.op("fmul", rest, rest)
    value = k.op("fadd", k.fma(k.poly(rest, _EXP), squared, rest), 1.0)
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
    clamped = k.select(is_tiny, FLUSHED_BELOW, x)
    shifted = k.fma(clamped, 1.4426950408889634, _MAGIC)
    n = k.op("fsub", shifted, _MAGIC)
    rest = k.fma(n, -_LN2_LOW, k.fma(n, -_LN2_HIGH, clamped))
    value = k.op("fadd", k.fma(k.poly(rest, _EXP), k.op("fmul", rest, rest), rest), 1.0)
    scale = k.from_bits(k.iop("shl", k.iop("sub", k.to_bits(shifted), 0x4B400000 - 127), 23))
    return k.select(is_tiny, 0.0, k.op("fmul", value, scale))


def _log(k: FloatLanes, x: str) -> str:
    """n * ln 2 + ln(1+f) with x = 2**n * (1+f)."""
    tiny = k.op("fcmp olt", x, 1.1754943508222875e-38)
    scaled = k.select(tiny, k.op("fmul", x, 8388608.0), x)
    offset = k.iop("sub", k.to_bits(scaled), 0x3F3504F3)  # sqrt(1/2)
    n = k.iop("sub", k.iop("ashr", offset, 23), k.iselect(tiny, 23, 0))
    mantissa = k.from_bits(k.iop("add", k.iop("and", offset, 0x7FFFFF), 0x3F3504F3))
    f = k.op("fsub", mantissa, 1.0)
    count = k.b.pure(f"sitofp {k.integer} {n} to {k.kind}", n)
    squared = k.op("fmul", f, f)
    tail = k.fma(k.op("fmul", f, squared), k.poly(f, _LOG), k.op("fmul", count, _LN2_LOW))
    total = k.fma(count, _LN2_HIGH, k.op("fadd", k.fma(squared, -0.5, tail), f))
    inf = float("inf")
    total = k.select(k.op("fcmp oeq", x, inf), inf, total)
    total = k.select(k.op("fcmp oeq", x, 0.0), -inf, total)
    return k.select(k.op("fcmp ult", x, 0.0), float("nan"), total)


def _tanh(k: FloatLanes, x: str) -> str:
    """(e**2|x| - 1) / (e**2|x| + 1), with e**r - 1 in one piece, so that nothing small cancels."""
    size = k.abs(x)
    doubled = k.op("fadd", size, size)
    clamped = k.select(k.op("fcmp ogt", doubled, 19.0), 19.0, doubled)  # from 18.1 on the quotient is 1
    shifted = k.fma(clamped, 1.4426950408889634, _MAGIC)
    n = k.op("fsub", shifted, _MAGIC)
    rest = k.fma(n, -_LN2_LOW, k.fma(n, -_LN2_HIGH, clamped))
    less_one = k.fma(k.poly(rest, _EXP), k.op("fmul", rest, rest), rest)
    scale = k.from_bits(k.iop("shl", k.iop("sub", k.to_bits(shifted), 0x4B400000 - 127), 23))
    power = k.fma(scale, less_one, k.op("fsub", scale, 1.0))
    return k.copysign(k.op("fdiv", power, k.op("fadd", power, 2.0)), x)


def _erf(k: FloatLanes, x: str) -> str:
    size = k.abs(x)
    small = k.op("fmul", x, k.poly(k.op("fmul", x, x), _ERF))
    clamped = k.clamp(size, 0.0, 4.0)
    exponent = k.b.pure(f"fneg {k.kind} {(p := k.poly(clamped, _ERFC))}", p)
    large = k.copysign(k.op("fsub", k.const(1.0), _exp(k, exponent)), x)
    return k.select(k.op("fcmp olt", size, 1.0), small, large)


def _sigmoid(k: FloatLanes, x: str) -> str:
    """1 / (1 + e**-x); e**-x is at least e**-87, which adds nothing, so that it is scaled once, and then doubled."""
    clamped = k.clamp(k.b.pure(f"fneg {k.kind} {x}", x), -87.0, 89.0)
    shifted = k.fma(clamped, 1.4426950408889634, _MAGIC)
    n = k.op("fsub", shifted, _MAGIC)
    rest = k.fma(n, -_LN2_LOW, k.fma(n, -_LN2_HIGH, clamped))
    value = k.op("fadd", k.fma(k.poly(rest, _EXP), k.op("fmul", rest, rest), rest), 1.0)
    half = k.from_bits(k.iop("shl", k.iop("sub", k.to_bits(shifted), 0x4B400000 - 126), 23))  # 2**128 is no float32
    scaled = k.op("fmul", k.op("fadd", value, value), half)
    return k.op("fdiv", k.const(1.0), k.op("fadd", scaled, 1.0))


def _normcdf(k: FloatLanes, x: str) -> str:
    clamped = k.clamp(x, -5.2, 5.2)
    squared = k.op("fmul", clamped, clamped)
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
    minus_one = _both(k, k.op("fcmp oeq", x, -1.0), k.op("fcmp oeq", k.abs(y), inf))
    result = k.select(minus_one, 1.0, result)
    return k.select(_either(k, k.op("fcmp oeq", x, 1.0), k.op("fcmp oeq", y, 0.0)), 1.0, result)


def _both(k: FloatLanes, a: str, c: str) -> str:
    return k.b.pure(f"and {k.flag} {a}, {c}", a, c)


def _either(k: FloatLanes, a: str, c: str) -> str:
    return k.b.pure(f"or {k.flag} {a}, {c}", a, c)


def _pow_sign(k: FloatLanes, x: str, y: str, result: str) -> str:
    """Negative x: odd integers y keep the sign; a y that is no integer gives NaN unless x is 0 or infinite."""
    whole = k.b.intrinsic(k.kind, f"llvm.trunc.{k.short}", (k.kind, y))
    is_integer = k.op("fcmp oeq", whole, y)
    half = k.op("fmul", y, 0.5)
    half_whole = k.b.intrinsic(k.kind, f"llvm.trunc.{k.short}", (k.kind, half))
    is_odd = _both(k, is_integer, k.b.pure(f"fcmp one {k.kind} {half}, {half_whole}", half, half_whole))
    x_negative = k.b.pure(f"icmp slt {k.integer} {(bits := k.to_bits(x))}, {k.bits_of(0)}", bits)
    flipped = k.b.pure(f"fneg {k.kind} {result}", result)
    signed = k.select(_both(k, x_negative, is_odd), flipped, result)
    ordinary = _both(k, k.op("fcmp olt", x, 0.0), k.op("fcmp ogt", x, -float("inf")))
    not_integer = k.b.pure(f"fcmp une {k.kind} {whole}, {y}", whole, y)
    return k.select(_both(k, ordinary, not_integer), float("nan"), signed)


_UNARY: dict[str, Callable[[FloatLanes, str], str]] = {
    "exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf, "sigmoid": _sigmoid, "normcdf": _normcdf,
    "exp_flushed": _exp_flushed,
}  # fmt: skip
_BINARY: dict[str, Callable[[FloatLanes, str, str], str]] = {"pow": _pow}
OWN = frozenset(_UNARY) | frozenset(_BINARY)


def math_function(name: str, lanes: int, declared: dict[str, str]) -> tuple[str, str]:
    """The symbol and text of one function; notes what it needs declared."""
    b = Builder()
    k = FloatLanes(b, lanes)
    symbol = f"armillary_{name}_{k.short}"
    if name in _UNARY:
        result, parameters = _UNARY[name](k, "%x"), f"{k.kind} %x"
    else:
        result, parameters = _BINARY[name](k, "%x", "%y"), f"{k.kind} %x, {k.kind} %y"
    declared.update(b.declared)
    body = "\n".join(b.regions[0].lines)
    head = f"define internal {k.kind} @{symbol}({parameters}) alwaysinline nounwind memory(none) {{"
    return symbol, f"{head}\n{body}\n  ret {k.kind} {result}\n}}\n"
