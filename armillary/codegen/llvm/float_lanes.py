"""Instructions on vectors of one float type, for the functions that we write ourselves.

In: a builder, a number of lanes, and whether the processor multiplies by powers of two in one instruction. Out: names
of values. Invariant: nothing is reassociated, and only `fma` may be fused. Users: llvm/math.py, llvm/trig.py.
"""

from __future__ import annotations

import struct

from armillary.codegen.llvm.builder import Builder
from armillary.codegen.llvm.types import splat, vector

_AVX512 = {16: ("512", "i16", ", i32 4"), 8: ("256", "i8", ""), 4: ("128", "i8", "")}  # lanes: bits, mask, rounding


class FloatLanes:
    """Instructions on `lanes` lanes of one float type."""

    def __init__(self, b: Builder, lanes: int, bits: int = 32, features: frozenset[str] = frozenset()) -> None:
        self.b, self.lanes, self.bits, self.features = b, lanes, bits, features
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

    def positive(self, a: str) -> str:
        """An integer, 0 where it is negative."""
        name = f"llvm.smax.{self.short.replace('f', 'i')}"
        return self.b.intrinsic(self.integer, name, (self.integer, a), (self.integer, self.bits_of(0)))

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

    def sqrt(self, value: str) -> str:
        return self.b.intrinsic(self.kind, f"llvm.sqrt.{self.short}", (self.kind, value))

    def trunc(self, value: str) -> str:
        return self.b.intrinsic(self.kind, f"llvm.trunc.{self.short}", (self.kind, value))

    def both(self, a: str, c: str) -> str:
        return self.b.pure(f"and {self.flag} {a}, {c}", a, c)

    def either(self, a: str, c: str) -> str:
        return self.b.pure(f"or {self.flag} {a}, {c}", a, c)

    def is_negative(self, value: str) -> str:
        """Whether the sign is set, of zeros too."""
        return self.b.pure(f"icmp slt {self.integer} {(bits := self.to_bits(value))}, {self.bits_of(0)}", bits)

    def scaled(self, value: str, count: str) -> str | None:
        """value * 2**count, rounded once, for a whole count that is a float; None without such an instruction."""
        if not self.has_avx512:
            return None
        width, mask, rounding = _AVX512[self.lanes]
        name, kind = f"llvm.x86.avx512.mask.scalef.ps.{width}", self.kind
        self.b.declare(kind, name, f"{kind}, {kind}, {kind}, {mask}{', i32' if rounding else ''}")
        text = f"call {kind} @{name}({kind} {value}, {kind} {count}, {kind} zeroinitializer, {mask} -1{rounding})"
        return self.b.pure(text, value, count)

    def inverse(self, b: str) -> str | None:
        """1 / b to a unit of the last place, for b and 1 / b that are normal numbers or NaN; None without an estimate.

        An estimate of 14 bits and a step of Newton's method. A division alone takes no longer, but keeps a port that
        others wait for.
        """
        if not self.has_avx512:
            return None
        (width, mask, _), kind = _AVX512[self.lanes], self.kind
        name = f"llvm.x86.avx512.rcp14.ps.{width}"
        self.b.declare(kind, name, f"{kind}, {kind}, {mask}")
        near = self.b.pure(f"call {kind} @{name}({kind} {b}, {kind} zeroinitializer, {mask} -1)", b)
        return self.fma(near, self.fma(self.negated(b), near, 1.0), near)

    def negated(self, value: str) -> str:
        return self.b.pure(f"fneg {self.kind} {value}", value)

    @property
    def has_avx512(self) -> bool:
        """Whether these lanes are a vector of AVX-512."""
        wanted = {"avx512f"} if self.lanes == 16 else {"avx512f", "avx512vl"}
        return self.bits == 32 and self.lanes in _AVX512 and self.features >= wanted

    @property
    def has_fma(self) -> bool:
        """Whether `fma` is one instruction, which rounds once."""
        return "fma" in self.features

    def widen(self, value: str) -> tuple[FloatLanes, str]:
        wide = FloatLanes(self.b, self.lanes, 64, self.features)
        return wide, self.b.pure(f"fpext {self.kind} {value} to {wide.kind}", value)
