"""cpu.digits: rows of floats as integers of up to three digits of base 256, with a scale for each block of terms.

In: data (rows, inner), float32. Out: digits, int8 (rows, digits, inner), the lowest first; scales (rows, blocks), a
power of two each (with one digit: the greatest magnitude / 127); sums, int32 (rows, blocks, digits) of each block's
digits. A term is the sum of its digits times 256 ** place, times the scale of its block. Invariant: with three digits
an error is at most 2 ** -23 of the block's greatest magnitude, 2 ** -15 with two; integers of up to 22 (14) bits are
exact. A block with something that is no finite number has the scale NaN. Read by cpu.low_bit_dense (operator.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, loop, rows, scratch, store
from armillary.ops.nn._windows import Tensor, f32, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.digits"
BASE = 256
BITS = {2: 15, 3: 23}  # of a magnitude, by the number of digits
ROOM = 1 + 1 / 127  # digits from -128 to 127 reach not quite as far as the bits
LANES = 16
_EXPONENT, _SMALLEST, _BIAS = 0x7F800000, 27, 127  # bits of a float's exponent; below 2 ** -100 all counts as 0


@record
class DigitsAttrs:
    """How many digits, and terms of a block."""

    digits: int = 3
    block: int = 32


digits = Op(NAME, kind=Kind.OPAQUE, inputs=("data",), doc="Rows of floats as integers of base 256.")
digits.attrs(DigitsAttrs)


@digits.infer
def _infer(attrs: DigitsAttrs, data: Type) -> TupleType:
    x = need_rank(NAME, data, 2)
    if str(x.dtype) != "float32" or attrs.digits not in (1, 2, 3):
        raise TypeMismatch(f"{NAME}: {attrs.digits} digits of {x}, wanted 1 to 3 of float32")
    count, inner = x.static
    if attrs.block < 1 or attrs.block % LANES or inner % attrs.block:
        raise TypeMismatch(f"{NAME}: blocks of {attrs.block} terms do not divide rows of {inner}, or into vectors")
    blocks = inner // attrs.block
    return TupleType(
        (
            TensorType((count, attrs.digits, inner), DType("int8")),
            TensorType((count, blocks), DType("float32")),
            TensorType((count, blocks, attrs.digits), DType("int32")),
        )
    )


@digits.reference
def _reference(attrs: DigitsAttrs, data: Array) -> tuple[Array, Array, Array]:
    count, inner = data.shape
    blocks = inner // attrs.block
    x = data.astype(np.float32).reshape(count, blocks, attrs.block)
    top = np.where(np.isfinite(x), np.abs(x), 0).max(-1)
    finite = np.isfinite(x).all(-1)
    if attrs.digits == 1:
        scale = (top / np.float32(127)).astype(np.float32)
        inverse = np.where(top > 0, np.float32(127) / np.where(top > 0, top, 1), 0).astype(np.float32)
    else:
        exponent = np.maximum((top * np.float32(ROOM)).view(np.int32) >> 23, _SMALLEST) + 1 - BITS[attrs.digits]
        scale = ((exponent << 23).astype(np.int32)).view(np.float32)
        inverse = (((2 * _BIAS - exponent) << 23).astype(np.int32)).view(np.float32)
    safe = np.where(np.isfinite(x), x, 0)
    rest = np.rint(safe * inverse[..., None]).astype(np.int32)
    result = np.zeros((count, attrs.digits, inner), np.int8)
    for place in range(attrs.digits):
        low = rest.astype(np.int8)
        result[:, place] = low.reshape(count, inner)
        rest = (rest - low) >> 8
    sums = result.reshape(count, attrs.digits, blocks, attrs.block).sum(-1, dtype=np.int32).transpose(0, 2, 1)
    return result, np.where(finite, scale, np.nan).astype(np.float32), np.ascontiguousarray(sums)


@digits.compute
def _compute(attrs: DigitsAttrs, data: Tensor) -> list[Tensor]:
    count, inner = te.static_shape(data)
    blocks = inner // attrs.block

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return rows((count, blocks), lambda at: _Block(attrs, ins[0], outs, at).statement())

    shapes = [(count, attrs.digits, inner), (count, blocks), (count, blocks, attrs.digits)]
    result: list[Tensor] = te.extern(shapes, [data], body, name="digits", dtype=["int8", "float32", "int32"])
    return result


def _vector(body: object) -> Stmt:
    return loop("n", LANES, body, S.LoopKind.VECTORIZED)  # type: ignore[arg-type]


class _Block:
    """The statement for one block of a row."""

    def __init__(self, attrs: DigitsAttrs, data: Buffer, outs: list[Buffer], at: list[Scalar]) -> None:
        self.attrs, self.data, self.outs = attrs, data, outs
        self.row, self.block = at
        self.top, self.odd = scratch("top", LANES, "float32", "local"), scratch("odd", LANES, "float32", "local")
        self.sums = [scratch(f"sums{k}", LANES, "int32", "local") for k in range(attrs.digits)]
        self.factor = scratch("factor", 2, "float32", "local")

    def statement(self) -> Stmt:
        """The greatest magnitude, the scale, the digits and their sums."""
        zero, whole = T.const(0.0, "float32"), T.const(0, "int32")
        steps = [_vector(lambda n: store(self.top, zero, n)), _vector(lambda n: store(self.odd, zero, n))]
        steps += [_vector(lambda n, b=b: store(b, whole, n)) for b in self.sums]
        count = self.attrs.block // LANES
        steps += [loop("v", count, self._met), *_folded(self.top, T.maximum), *_folded(self.odd, T.add)]
        steps += [self._scaled(), loop("v", count, self._written)]
        for place, buffer in enumerate(self.sums):
            steps += [*_folded(buffer, T.add), store(self.outs[2], load(buffer, 0), self.row, self.block, place)]
        result = S.seq(*steps)
        for buffer in (self.top, self.odd, self.factor, *self.sums):
            result = S.Allocate(buffer, result)
        return result

    def _place(self, v: Scalar, n: Scalar) -> Scalar:
        return T.add(T.add(T.mul(self.block, T.const(self.attrs.block)), T.mul(v, T.const(LANES))), n)

    def _value(self, v: Scalar, n: Scalar) -> Scalar:
        return load(self.data, self.row, self._place(v, n))

    def _met(self, v: Scalar) -> Stmt:
        """Magnitudes, and what is 0 for finite numbers alone."""

        def greater(n: Scalar) -> Stmt:
            size, infinite = te.abs(self._value(v, n)), T.const(math.inf, "float32")
            size = T.select(T.less(size, infinite), size, T.const(0.0, "float32"))
            return store(self.top, T.maximum(size, load(self.top, n)), n)

        def odd(n: Scalar) -> Stmt:
            value = self._value(v, n)
            return store(self.odd, T.add(load(self.odd, n), T.sub(value, value)), n)

        return S.seq(_vector(greater), _vector(odd))

    def _scaled(self) -> Stmt:
        """The scale, and the factor that data is multiplied with."""
        top, one = load(self.top, 0), T.const(1.0, "float32")
        if self.attrs.digits == 1:
            scale = T.mul(top, T.const(1 / 127, "float32"))
            safe = T.select(T.greater(top, T.const(0.0, "float32")), top, one)
            inverse = T.div(T.const(127.0, "float32"), safe)
        else:
            bits = T.call("reinterpret", T.mul(top, T.const(ROOM, "float32")), dtype="int32")
            exponent = T.maximum(T.shift_right(bits, T.const(23)), T.const(_SMALLEST))
            exponent = T.add(exponent, T.const(1 - BITS[self.attrs.digits]))
            scale = _power(exponent)
            inverse = _power(T.sub(T.const(2 * _BIAS), exponent))
        return S.seq(
            store(self.factor, inverse, 0),
            store(self.outs[1], T.add(scale, load(self.odd, 0)), self.row, self.block),
        )

    def _written(self, v: Scalar) -> Stmt:
        rest = scratch("rest", LANES, "int32", "local")
        limit = T.const(float(1 << 23), "float32")

        def rounded(n: Scalar) -> Stmt:
            value = T.mul(self._value(v, n), load(self.factor, 0))
            safe = T.select(T.less_equal(te.abs(value), limit), value, T.const(0.0, "float32"))
            return store(rest, T.cast(te.nearbyint(safe), "int32"), n)

        def digit(place: int) -> list[Stmt]:
            def low(n: Scalar) -> Scalar:
                return T.shift_right(T.shift_left(load(rest, n), T.const(24)), T.const(24))

            def stored(n: Scalar) -> Stmt:
                return store(self.outs[0], T.cast(low(n), "int8"), self.row, place, self._place(v, n))

            def summed(n: Scalar) -> Stmt:
                return store(self.sums[place], T.add(load(self.sums[place], n), low(n)), n)

            def next_(n: Scalar) -> Stmt:
                return store(rest, T.shift_right(T.sub(load(rest, n), low(n)), T.const(8)), n)

            return [_vector(stored), _vector(summed), _vector(next_)]

        parts = [s for place in range(self.attrs.digits) for s in digit(place)]
        return S.Allocate(rest, S.seq(_vector(rounded), *parts))


def _power(exponent: Scalar) -> Scalar:
    """2 ** (exponent - 127)."""
    return T.call("reinterpret", T.shift_left(exponent, T.const(23)), dtype="float32")


def _folded(buffer: Buffer, combine: object) -> Iterator[Stmt]:
    """All lanes combined in the first one, by halves."""
    width = LANES
    while width > 1:
        width //= 2

        def half(n: Scalar, width: int = width) -> Stmt:
            return store(buffer, combine(load(buffer, n), load(buffer, T.add(n, T.const(width)))), n)  # type: ignore[operator]

        yield loop("n", width, half, S.LoopKind.VECTORIZED) if width > 1 else half(T.const(0))


@digits.samples
def _samples() -> Iterator[Sample]:
    yield Sample(DigitsAttrs(), (f32(3, 64),))
    yield Sample(DigitsAttrs(2, 64), (f32(2, 128),))
    yield Sample(DigitsAttrs(1, 16), (f32(1, 32),))
    odd = np.zeros((2, 32), np.float32)
    odd[0, 3], odd[1, 5] = np.inf, 1e-30
    yield Sample(DigitsAttrs(), (odd,))


@digits.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(DigitsAttrs(4), (f32(3, 64),), "4 digits of")
    yield BadSample(DigitsAttrs(block=48), (f32(3, 64),), "do not divide rows of 64")
