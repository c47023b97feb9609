"""Conversions of the small float formats by integer arithmetic, for where LLVM or the target has none.

In: float32 values or raw bits in LLVM registers, a Builder. Out: the other one. Invariant: rounding is to nearest
even and agrees with numpy/ml_dtypes bit for bit, NaN payloads aside; overflow gives infinity, or NaN in formats
without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.dtype import DType
from armillary.codegen.llvm.builder import Builder
from armillary.codegen.llvm.types import splat, vector
from armillary.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Format:
    """Sizes of exponent and mantissa, bias, and which special values exist."""

    exponent: int
    mantissa: int
    bias: int
    has_inf: bool = True
    unsigned_zero: bool = False  # "uz" formats: no -0, whose pattern is the only NaN
    finite: bool = False  # every pattern is a number: overflow gives the largest, NaN gives -0

    @property
    def nan(self) -> int:
        """Bits of a NaN (sign clear, except in uz formats)."""
        bits = self.exponent + self.mantissa
        if self.unsigned_zero or self.finite:
            return 1 << bits
        return (1 << bits) - 1 - ((1 << (self.mantissa - 1)) - 1 if self.has_inf else 0)

    @property
    def inf(self) -> int:
        """What overflow gives."""
        if self.finite:
            return self.largest
        return ((1 << self.exponent) - 1) << self.mantissa if self.has_inf else self.nan

    @property
    def largest(self) -> int:
        """Bits of the largest finite value."""
        bits = self.exponent + self.mantissa
        if self.unsigned_zero or self.finite:
            return (1 << bits) - 1
        return self.inf - 1 if self.has_inf else (1 << bits) - 2


FORMATS = {
    "float16": Format(5, 10, 15),
    "bfloat16": Format(8, 7, 127),
    "float8_e5m2": Format(5, 2, 15),
    "float8_e4m3fn": Format(4, 3, 7, has_inf=False),
    "float8_e4m3fnuz": Format(4, 3, 8, False, True),
    "float8_e5m2fnuz": Format(5, 2, 16, False, True),
    "float4_e2m1fn": Format(2, 1, 1, has_inf=False, finite=True),
}


def format_of(dtype: DType) -> Format:
    """The bit layout of a float type that is computed in float32."""
    result = FORMATS.get(str(dtype.element))
    if result is None:
        raise UnsupportedError(f"llvm: no arithmetic for {dtype}", hint="float formats: " + ", ".join(FORMATS))
    return result


class _Bits:
    """Integer and float32 instructions on vectors of `lanes` lanes."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b, self.lanes = b, lanes
        self.i32, self.f32, self.i1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)

    def const(self, value: int) -> str:
        value &= 0xFFFFFFFF
        return splat("i32", str(value - (1 << 32) if value >> 31 else value), self.lanes)

    def op(self, name: str, a: str, c: int | str) -> str:
        other = self.const(c) if isinstance(c, int) else c
        return self.b.pure(f"{name} {self.i32} {a}, {other}", a, other)

    def select(self, test: str, a: str | int, c: str | int) -> str:
        x, y = (self.const(v) if isinstance(v, int) else v for v in (a, c))
        return self.b.pure(f"select {self.i1} {test}, {self.i32} {x}, {self.i32} {y}", test, x, y)

    def to_int(self, value: str) -> str:
        return self.b.pure(f"bitcast {self.f32} {value} to {self.i32}", value)

    def to_float(self, value: str) -> str:
        return self.b.pure(f"bitcast {self.i32} {value} to {self.f32}", value)

    def power(self, exponent: int) -> str:
        """float32 constant 2**exponent."""
        return splat("float", f"0x{(exponent + 1023) << 52:016X}", self.lanes)


def decode(b: Builder, raw: str, dtype: DType) -> str:
    """float32 values of raw bits (an integer register of the format's width)."""
    lanes = dtype.lanes
    k = _Bits(b, lanes)
    if dtype.element == "float8_e8m0fnu":
        return _power_of_two(k, b.pure(f"zext {vector('i8', lanes)} {raw} to {k.i32}", raw))
    f = format_of(dtype)
    wide = b.pure(f"zext {vector(f'i{dtype.bits}', lanes)} {raw} to {k.i32}", raw)
    if f.exponent == 8:
        return k.to_float(k.op("shl", wide, 16))
    width = f.exponent + f.mantissa
    sign = k.op("shl", k.op("and", wide, 1 << width), 31 - width)
    magnitude = k.op("and", wide, (1 << width) - 1)
    # the bits as a float32 with a too small exponent, scaled exactly by a power of two: subnormals come out right
    small = k.to_float(k.op("shl", magnitude, 23 - f.mantissa))
    scaled = k.to_int(b.pure(f"fmul {k.f32} {small}, {k.power(127 - f.bias)}", small))
    special = _special(k, f, wide, magnitude, scaled)
    return k.to_float(k.op("or", special, sign))


def _power_of_two(k: _Bits, wide: str) -> str:
    """A format of exponent bits only: 2**(bits - 127); all ones is NaN."""
    shifted = k.select(k.op("icmp eq", wide, 0), 1 << 22, k.op("shl", wide, 23))
    return k.to_float(k.select(k.op("icmp eq", wide, 255), 0x7FC00000, shifted))


def _special(k: _Bits, f: Format, wide: str, magnitude: str, scaled: str) -> str:
    if f.finite:
        return scaled
    if f.unsigned_zero:
        return k.select(k.op("icmp eq", wide, f.nan), 0x7FC00000, scaled)
    if not f.has_inf:
        return k.select(k.op("icmp eq", magnitude, f.nan), 0x7FC00000, scaled)
    raised = k.op("or", k.op("shl", magnitude, 23 - f.mantissa), 0x7F800000)
    return k.select(k.op("icmp uge", magnitude, f.inf), raised, scaled)


def odd_float32(b: Builder, value: str, lanes: int) -> str:
    """float32 values of float64 ones, rounded to odd: rounding these to a smaller format then rounds only once.

    x86-64 has no instruction from float64 to float16; the library function that LLVM calls for it is not in a Python
    process.
    """
    k, f64 = _Bits(b, lanes), vector("double", lanes)
    near = b.pure(f"fptrunc {f64} {value} to {k.f32}", value)
    back = b.pure(f"fpext {k.f32} {near} to {f64}", near)
    inexact = b.pure(f"fcmp one {f64} {back}, {value}", back, value)
    above = b.pure(f"fcmp ogt {f64} {back}, {value}", back, value)
    zero = splat("double", "0.0", lanes)
    below_zero = b.pure(f"fcmp olt {f64} {value}, {zero}", value)
    grown = b.pure(f"xor {k.i1} {above}, {below_zero}", above, below_zero)  # away from zero, where inexact
    bits = k.to_int(near)
    odd = k.op("or", k.select(grown, k.op("sub", bits, 1), bits), 1)
    return k.to_float(k.select(inexact, odd, bits))


def encode(b: Builder, value: str, dtype: DType) -> str:
    """Raw bits of float32 values, rounded to nearest even."""
    f, lanes = format_of(dtype), dtype.lanes
    k = _Bits(b, lanes)
    bits = k.to_int(value)
    if f.exponent == 8:
        return _upper_half(k, f, value, bits)
    sign = k.op("lshr", k.op("and", bits, 1 << 31), 31 - f.exponent - f.mantissa)
    magnitude = k.op("and", bits, 0x7FFFFFFF)
    is_nan = k.op("icmp ugt", magnitude, 0x7F800000)
    shift = 23 - f.mantissa
    odd = k.op("and", k.op("lshr", magnitude, shift), 1)
    rounded = k.op("add", k.op("add", magnitude, (1 << (shift - 1)) - 1), odd)
    normal = k.op("sub", k.op("lshr", rounded, shift), (127 - f.bias) << f.mantissa)
    normal = _subnormal(k, f, magnitude, normal)
    over = k.op("icmp sgt", normal, f.largest)
    normal = k.select(over, f.inf, normal)
    big = k.op("icmp uge", magnitude, 0x7F800000)
    normal = k.select(big, f.inf, normal)
    if f.unsigned_zero:
        sign = k.select(k.op("icmp eq", normal, 0), 0, sign)
    result = k.op("or", k.select(is_nan, f.nan, normal), sign)
    narrow = vector(f"i{dtype.bits}", lanes)
    return b.pure(f"trunc {k.i32} {result} to {narrow}", result)


def _upper_half(k: _Bits, f: Format, value: str, bits: str) -> str:
    """bfloat16: the upper half of a float32, whose sign, infinities and subnormal numbers come out right."""
    odd = k.op("and", k.op("lshr", bits, 16), 1)
    rounded = k.op("lshr", k.op("add", k.op("add", bits, 0x7FFF), odd), 16)
    is_nan = k.b.pure(f"fcmp uno {k.f32} {value}, {value}", value)
    return k.b.pure(f"trunc {k.i32} {(wide := k.select(is_nan, f.nan, rounded))} to {vector('i16', k.lanes)}", wide)


def _subnormal(k: _Bits, f: Format, magnitude: str, normal: str) -> str:
    """Below the smallest normal value, let a float32 addition do the rounding."""
    smallest = 1 - f.bias  # exponent of the smallest normal value
    magic = smallest - f.mantissa + 23  # a float32 of this exponent has the format's subnormal step as its last bit
    as_float = k.to_float(magnitude)
    total = k.to_int(k.b.pure(f"fadd {k.f32} {as_float}, {k.power(magic)}", as_float))
    tiny = k.op("sub", total, (magic + 127) << 23)
    return k.select(k.op("icmp ult", magnitude, (smallest + 127) << 23), tiny, normal)
