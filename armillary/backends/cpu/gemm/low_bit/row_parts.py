"""cpu.bfloat16_parts: rows of floats as sums of bfloat16 numbers, in matrix tiles of sixteen rows and 32 terms.

In: data (rows, inner), float32. Out: uint16 (parts, rows / 16, inner / 32, 16, 32), the bits of numbers whose sum over
the parts is a term; zeros behind the last row. Invariant: all parts but the last are cut off, so that the rest is
exact; the last one is rounded: 8 bits of a term for each part. A tile is a kilobyte of memory: of rows as they lie, the
lines of one would share a set of the first cache. Readers: tile_panels.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.tile_panels import DEEP, LANES
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, loop, rows, store
from armillary.ops.nn._windows import Tensor, f32, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.bfloat16_parts"
MOST_PARTS = 3
HIGH, _HALF = 0xFFFF0000, 0x8000  # the bits that bfloat16 keeps; half of the last of them


@record
class PartsAttrs:
    """How many bfloat16 numbers a term becomes."""

    parts: int = 2


bfloat16_parts = Op(NAME, kind=Kind.OPAQUE, inputs=("data",), doc="Rows of floats as sums of bfloat16, in tiles.")
bfloat16_parts.attrs(PartsAttrs)


@bfloat16_parts.infer
def _infer(attrs: PartsAttrs, data: Type) -> TensorType:
    x = need_rank(NAME, data, 2)
    if str(x.dtype) != "float32" or not 1 <= attrs.parts <= MOST_PARTS or x.static[1] % DEEP:
        raise TypeMismatch(f"{NAME}: {attrs.parts} parts of {x}, wanted 1 to {MOST_PARTS} of float32, in whole tiles")
    return TensorType(_shape(attrs, *x.static), DType("uint16"))


def _shape(attrs: PartsAttrs, count: int, inner: int) -> tuple[int, ...]:
    return attrs.parts, -(-count // LANES), inner // DEEP, LANES, DEEP


@bfloat16_parts.reference
def _reference(attrs: PartsAttrs, data: Array) -> Array:
    count, inner = data.shape
    shape = _shape(attrs, count, inner)
    flat, rest = np.zeros((attrs.parts, shape[1] * LANES, inner), np.uint16), data.astype(np.float32)
    for part in range(attrs.parts):
        bits = rest.view(np.uint32)
        bits = bits + np.uint32(_HALF) if part == attrs.parts - 1 else bits
        flat[part, :count] = bits >> np.uint32(16)
        rest = rest - (bits & np.uint32(HIGH)).view(np.float32)
    tiled = flat.reshape(attrs.parts, shape[1], LANES, shape[2], DEEP)
    return np.ascontiguousarray(tiled.transpose(0, 1, 3, 2, 4))


@bfloat16_parts.compute
def _compute(attrs: PartsAttrs, data: Tensor) -> Tensor:
    count, inner = te.static_shape(data)
    shape = _shape(attrs, count, inner)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(at: list[Scalar]) -> Stmt:
            tile, line = T.floordiv(at[0], T.const(LANES)), T.floormod(at[0], T.const(LANES))

            def vectors(value: object) -> Stmt:
                def vector(v: Scalar, half: int, part: int) -> Stmt:
                    def lane(n: Scalar) -> Stmt:
                        within = T.add(n, T.const(half * LANES))
                        number = value(T.add(T.mul(v, T.const(DEEP)), within), part)  # type: ignore[operator]
                        return store(outs[0], number, part, tile, v, line, within)

                    return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

                pairs = [(half, part) for half in range(DEEP // LANES) for part in range(attrs.parts)]
                return loop("v", inner // DEEP, lambda v: S.seq(*(vector(v, *pair) for pair in pairs)))

            numbers = vectors(lambda k, part: bits_of_part(load(ins[0], *at, k), part, attrs.parts))
            if shape[1] * LANES == count:
                return numbers
            return S.IfThenElse(T.less(at[0], T.const(count)), numbers, vectors(lambda k, part: T.const(0, "uint16")))

        return rows((shape[1] * LANES,), row)

    result: Tensor = te.extern([shape], [data], body, name="bfloat16_parts", dtype=["uint16"])
    return result


def bits_of_part(value: Scalar, part: int, parts: int, dtype: str = "uint16") -> Scalar:
    """A part of a number as the bits of a bfloat16, of uint32 in the upper half; the last one is rounded."""
    for _ in range(part):
        value = T.sub(value, of_bits(T.bitwise_and(_bits(value), T.const(HIGH, "uint32"))))
    bits = _bits(value)
    if part == parts - 1:
        bits = T.add(bits, T.const(_HALF, "uint32"))
    return T.cast(T.shift_right(bits, T.const(16, "uint32")), dtype) if dtype == "uint16" else bits


def _bits(value: Scalar) -> Scalar:
    return T.call("reinterpret", value, dtype="uint32")


def of_bits(bits: Scalar) -> Scalar:
    """The float with these bits."""
    return T.call("reinterpret", bits, dtype="float32")


@bfloat16_parts.samples
def _samples() -> Iterator[Sample]:
    yield Sample(PartsAttrs(1), (f32(16, 32),), rtol=0, atol=0)
    yield Sample(PartsAttrs(2), (f32(19, 64),), rtol=0, atol=0)
    yield Sample(PartsAttrs(3), (f32(5, 32),), rtol=0, atol=0)


@bfloat16_parts.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(PartsAttrs(4), (f32(3, 64),), "4 parts of")
    yield BadSample(PartsAttrs(2), (f32(3, 48),), "in whole tiles")
