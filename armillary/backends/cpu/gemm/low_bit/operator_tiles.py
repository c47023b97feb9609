"""cpu.low_bit_tiles: the product of nn.low_bit_dense for many rows, by matrix tiles of bfloat16 (AMX).

In: data of cpu.bfloat16_parts (row_parts.py); weight in words, scales, zeros, minima and tops as operator.py has them.
Out: float32 (rows, units). Weights are expanded for a slice of the terms at a time (tile_panels.py), into as many parts
as the data has; of two parts each, the product of the second ones is left out (2 ** -16 of the term). Invariant: a step
for few rows reads the same words. Where a target has no tiles, plain loops compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.operator import Parameters, by_units, four_integers, terms_of, words_sample
from armillary.backends.cpu.gemm.low_bit.row_parts import HIGH, PartsAttrs, bfloat16_parts, bits_of_part, of_bits
from armillary.backends.cpu.gemm.low_bit.tile_panels import DEEP, LANES, PanelSizes, TilePanels, has_tiles, requests
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._dot_operands import BYTES
from armillary.ops._loops import load, loop, scratch, store
from armillary.ops.decoder.low_bit_dense import WORD, LowBitDenseAttrs, expanded, planes_of, terms_of_step
from armillary.ops.nn._windows import Tensor, need_rank, need_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type
from armillary.target import Target

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.low_bit_tiles"
_ONE, _MANTISSA = 0x3F800000, 23  # the bits of 1.0, and how many of them are a mantissa


@record
class TilesAttrs:
    """Bits of an integer, terms of a group, rows and units of the result."""

    bits: int = 4
    group: int = 32
    rows: int = 0
    units: int = 0


low_bit_tiles = Op(
    NAME,
    kind=Kind.OPAQUE,
    inputs=("data", "weight", "scales", "zeros", "minima", "tops"),
    doc="Small integers times rows, by tiles.",
)
low_bit_tiles.attrs(TilesAttrs)


@low_bit_tiles.infer
def _infer(attrs: TilesAttrs, *types: Type) -> TensorType:
    ranks = zip(types, (5, 3, 3, 3, 3, 3), low_bit_tiles.inputs, strict=True)
    x, w, q, z, m, t = (need_rank(NAME, ty, rank, what) for ty, rank, what in ranks)
    whole, inner = rows_and_terms(x.static)
    outer, words, lanes = w.static
    if (str(x.dtype), str(w.dtype), str(z.dtype)) != ("uint16", "uint32", "uint8") or not t.dtype.is_float:
        raise TypeMismatch(f"{NAME}: data {x}, weight {w}, zeros {z}, tops {t}")
    if inner * attrs.bits != words * WORD or inner % DEEP or lanes != LANES or inner % attrs.group:
        raise TypeMismatch(f"{NAME}: {words} words of {attrs.bits} bits for rows of {inner} in groups of {attrs.group}")
    if not (whole - LANES < attrs.rows <= whole and 0 < attrs.units <= outer * lanes):
        raise TypeMismatch(f"{NAME}: {attrs.rows} rows of {whole} and {attrs.units} units of {outer * lanes}")
    need_shape(NAME, "scales", q, (outer, inner // attrs.group, lanes))
    for part, what in ((z, "zeros"), (m, "minima")):
        if part.static != (1, 1, 1):
            need_shape(NAME, what, part, (outer, inner // attrs.group, lanes))
    return TensorType((attrs.rows, attrs.units), DType("float32"))


@low_bit_tiles.reference
def _reference(attrs: TilesAttrs, data: Array, weight: Array, *parts: Array) -> Array:
    x = untiled(data)[: attrs.rows]
    scales, *others = map(by_units, parts)
    real = expanded(LowBitDenseAttrs(8, attrs.group), terms_of(weight, attrs.bits), scales.astype(np.float64), *others)
    result: Array = (x @ real.T)[:, : attrs.units].astype(np.float32)
    return result


@low_bit_tiles.compute
def _compute(attrs: TilesAttrs, *inputs: Tensor) -> Tensor:
    if not has_tiles(Target.current() or Target("llvm")):
        return _in_loops(attrs, *inputs)
    shapes = [te.static_shape(t) for t in inputs]
    parts, (_, inner) = shapes[0][0], rows_and_terms(shapes[0])
    step = math.gcd(attrs.group, DEEP)
    sizes = PanelSizes(attrs.rows, attrs.units, inner, (parts, parts), max(step, terms_of_step(attrs.bits)))

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        panels = TilePanels(sizes, ins[0], outs[0])
        return panels.statement(partial(_expand, attrs, panels, ins[1], Parameters(ins[2:], shapes[2:])))

    shape = (attrs.rows, attrs.units)
    result: Tensor = te.extern([shape], list(inputs), body, name="low_bit_tiles", dtype=["float32"])
    return result


def rows_and_terms(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows in sixteens and terms of data in tiles."""
    return shape[1] * LANES, shape[2] * DEEP


def untiled(data: Array) -> Array:
    """The rows that parts in tiles stand for, in float64."""
    parts, tiles, deep, lanes, terms = data.shape
    flat = data.transpose(0, 1, 3, 2, 4).reshape(parts, tiles * lanes, deep * terms).astype(np.uint32)
    result: Array = (flat << np.uint32(16)).view(np.float32).astype(np.float64).sum(0)
    return result


def _in_loops(attrs: TilesAttrs, *inputs: Tensor) -> Tensor:
    """The same without tiles."""
    parts, inner = te.static_shape(inputs[0])[0], rows_and_terms(te.static_shape(inputs[0]))[1]
    terms, k = terms_of_step(attrs.bits), te.reduce_axis((0, inner), name="k")
    numbers = Parameters(inputs[2:], [te.static_shape(t) for t in inputs[2:]], _element)

    def integer(u: te.Expr) -> te.Expr:
        result, four = T.const(0, "uint32"), k % terms // BYTES
        for plane in planes_of(attrs.bits):
            fields = 8 // plane.bits
            word = k // terms * (terms * attrs.bits // WORD) + plane.word + four // fields
            shift = (k % BYTES * 8 + four % fields * plane.bits).astype("uint32")
            value = T.shift_right(inputs[1](u // LANES, word, u % LANES), shift)
            value = T.bitwise_and(value, T.const((1 << plane.bits) - 1, "uint32"))
            result = T.bitwise_or(result, T.shift_left(value, T.const(plane.start, "uint32")))
        return result.astype("float32")

    def element(i: te.Expr, u: te.Expr) -> te.Expr:
        at = u // LANES, k // attrs.group, u % LANES
        return te.sum(term_in_loops(inputs[0], parts, i, k) * numbers.real(integer(u), *at), axis=[k])

    result: Tensor = te.compute((attrs.rows, attrs.units), element, name="low_bit_tiles", tag="dense")
    return result


def _element(tensor: Tensor, *at: te.Expr) -> te.Expr:
    return tensor(*at)


def term_in_loops(data: Tensor, parts: int, i: te.Expr, k: te.Expr) -> te.Expr:
    """A term of a row, of rows in parts and tiles."""
    at = i // LANES, k // DEEP, i % LANES, k % DEEP
    bits = [T.shift_left(data(p, *at).astype("uint32"), T.const(16, "uint32")) for p in range(parts)]
    return reduce(T.add, map(of_bits, bits))


def _expand(
    attrs: TilesAttrs,
    panels: TilePanels,
    weight: Buffer,
    numbers: Parameters,
    into: Buffer,
    sixteen: Scalar,
    column: Scalar,
    first: Scalar,
) -> Stmt:
    """Some terms of sixteen units as bfloat16, two of a unit side by side.

    An integer is the upper bits of a mantissa behind 1: 1 + q / 2 ** bits takes a shift and the bits of 1, where a
    conversion would take one more instruction, and the zero is part of what is added.
    """
    bits, parts = attrs.bits, panels.sizes.parts[1]
    by, plus = scratch("by", LANES, "float32", "local"), scratch("plus", LANES, "float32", "local")
    group = T.floordiv(first, T.const(attrs.group))
    words = T.floordiv(T.mul(first, T.const(bits)), T.const(WORD))
    inside = T.floormod(first, T.const(panels.sizes.slice))
    whole = float(1 << bits)

    def scaled(n: Scalar) -> Stmt:
        return store(by, T.mul(numbers.scale(sixteen, group, n), T.const(whole, "float32")), n)

    def shifted(n: Scalar) -> Stmt:
        zero = T.add(T.cast(numbers.zero(sixteen, group, n), "float32"), T.const(whole, "float32"))
        value = T.sub(T.const(0.0, "float32"), T.mul(zero, numbers.scale(sixteen, group, n)))
        value = T.add(value, numbers.minimum(sixteen, group, n)) if numbers.has_minima else value
        return store(plus, value, n)

    def number(n: Scalar, term: int) -> Scalar:
        four = four_integers(bits, term // BYTES, lambda w: load(weight, sixteen, T.add(words, T.const(w)), n))
        up = _MANTISSA - bits - term % BYTES * 8
        value = T.shift_left(four, T.const(up, "uint32")) if up >= 0 else T.shift_right(four, T.const(-up, "uint32"))
        value = T.bitwise_and(value, T.const(((1 << bits) - 1) << _MANTISSA - bits, "uint32"))
        value = of_bits(T.bitwise_or(value, T.const(_ONE, "uint32")))
        return T.add(T.mul(value, load(by, n)), load(plus, n))

    def stored(term: int, part: int) -> Stmt:
        place = panels.place_of(part, column, T.add(inside, T.const(term)))

        def lane(n: Scalar) -> Stmt:
            low, high = (bits_of_part(number(n, term + k), part, parts, "uint32") for k in range(2))
            low = T.shift_right(low, T.const(16, "uint32"))
            value = T.bitwise_or(low, T.bitwise_and(high, T.const(HIGH, "uint32")))
            return store(into, value, T.add(place, n))

        return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

    steps = [loop("n", LANES, body, S.LoopKind.VECTORIZED) for body in (scaled, shifted)]
    steps += requests(weight, sixteen, words, panels.sizes.step * bits // WORD)
    steps += [stored(term, part) for term in range(0, panels.sizes.step, 2) for part in range(parts)]
    return S.Allocate(by, S.Allocate(plus, S.seq(*steps)))


def _sample(bits: int, group: int, inner: int, count: int, units: int, parts: int, form: str) -> Sample:
    data = np.random.default_rng(units).standard_normal((count, inner)).astype(np.float32)
    close = 2e-4 if parts == 2 else 0.1
    x = bfloat16_parts.evaluate(PartsAttrs(parts), (data,))
    words = words_sample(bits, group, inner, units, form)
    return Sample(TilesAttrs(bits, group, count, units), (x, *words), rtol=close, atol=close)


@low_bit_tiles.samples
def _samples() -> Iterator[Sample]:
    yield _sample(4, 32, 64, 32, 64, 2, "one")
    yield _sample(4, 64, 128, 19, 35, 2, "zeros")
    yield _sample(8, 16, 64, 16, 16, 1, "one")
    yield _sample(2, 32, 96, 50, 40, 2, "one")
    yield _sample(5, 32, 64, 32, 32, 2, "minima")
    yield _sample(6, 16, 64, 17, 32, 2, "levels")


@low_bit_tiles.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample(4, 32, 64, 32, 64, 2, "one")
    yield BadSample(TilesAttrs(4, 32, 33, 64), good.inputs, "33 rows of 32")
    yield BadSample(TilesAttrs(8, 32, 32, 64), good.inputs, "words of 8 bits for rows of 64")
