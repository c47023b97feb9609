"""cpu.low_bit_tiles: the product of nn.low_bit_dense for many rows, by matrix tiles of bfloat16 (AMX).

In: data of cpu.bfloat16_parts, uint16 (parts, rows in sixteens, inner): bfloat16 numbers whose sum is a row; weight
in words, scales, zeros, minima and tops as operator.py has them. Out: float32 (rows, units). A group of units is
expanded once, into as many parts as the data has, and multiplied by all rows; of two parts each, the product of the
second ones is left out (2 ** -16 of the term). Invariant: no weight is expanded beyond the group that a thread
computes, and a step for few rows reads the same words. Where a target has no tiles, plain loops compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.operator import Parameters, by_units, four_integers, terms_of, words_sample
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._dot_operands import BYTES
from armillary.ops._loops import load, loop, rows, scratch, store
from armillary.ops.decoder.low_bit_dense import WORD, LowBitDenseAttrs, expanded, planes_of, terms_of_step
from armillary.ops.nn._windows import Tensor, f32, need_rank, need_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type
from armillary.target import Target
from armillary.target.cpu import cpu_model

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

PARTS, NAME = "cpu.bfloat16_parts", "cpu.low_bit_tiles"
LANES, DEEP = 16, 32  # rows and columns of a tile, terms of one
_HIGH, _HALF = 0xFFFF0000, 0x8000  # the bits that bfloat16 keeps; half of the last of them
PRODUCTS = {1: ((0, 0),), 2: ((0, 1), (0, 0), (1, 0))}  # parts of data and weight, the smallest first


@record
class PartsAttrs:
    """How many bfloat16 numbers a term becomes; all but the last one are cut off, so that the rest is exact."""

    parts: int = 2


@record
class TilesAttrs:
    """Bits of an integer, terms of a group, rows and units of the result."""

    bits: int = 4
    group: int = 32
    rows: int = 0
    units: int = 0


bfloat16_parts = Op(PARTS, kind=Kind.OPAQUE, inputs=("data",), doc="Rows of floats as sums of bfloat16.")
bfloat16_parts.attrs(PartsAttrs)
low_bit_tiles = Op(
    NAME,
    kind=Kind.OPAQUE,
    inputs=("data", "weight", "scales", "zeros", "minima", "tops"),
    doc="Small integers times rows, by tiles.",
)
low_bit_tiles.attrs(TilesAttrs)


@bfloat16_parts.infer
def _infer_parts(attrs: PartsAttrs, data: Type) -> TensorType:
    x = need_rank(PARTS, data, 2)
    if str(x.dtype) != "float32" or attrs.parts not in PRODUCTS or x.static[1] % LANES:
        raise TypeMismatch(f"{PARTS}: {attrs.parts} parts of {x}, wanted 1 or 2 of float32, in whole vectors")
    count, inner = x.static
    return TensorType((attrs.parts, -(-count // LANES) * LANES, inner), DType("uint16"))


@bfloat16_parts.reference
def _reference_parts(attrs: PartsAttrs, data: Array) -> Array:
    count, inner = data.shape
    result, rest = np.zeros((attrs.parts, -(-count // LANES) * LANES, inner), np.uint16), data.astype(np.float32)
    for part in range(attrs.parts):
        bits = rest.view(np.uint32)
        bits = bits + np.uint32(_HALF) if part == attrs.parts - 1 else bits
        result[part, :count] = bits >> np.uint32(16)
        rest = rest - (bits & np.uint32(_HIGH)).view(np.float32)
    return result


@bfloat16_parts.compute
def _compute_parts(attrs: PartsAttrs, data: Tensor) -> Tensor:
    count, inner = te.static_shape(data)
    shape = (attrs.parts, -(-count // LANES) * LANES, inner)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(at: list[Scalar]) -> Stmt:
            def vectors(value: object) -> Stmt:
                def vector(v: Scalar, part: int) -> Stmt:
                    def lane(n: Scalar) -> Stmt:
                        place = T.add(T.mul(v, T.const(LANES)), n)
                        return store(outs[0], value(place, part), part, *at, place)  # type: ignore[operator]

                    return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

                return loop("v", inner // LANES, lambda v: S.seq(*(vector(v, part) for part in range(attrs.parts))))

            numbers = vectors(lambda k, part: _part(load(ins[0], *at, k), part, attrs.parts))
            if shape[1] == count:
                return numbers
            return S.IfThenElse(T.less(at[0], T.const(count)), numbers, vectors(lambda k, part: T.const(0, "uint16")))

        return rows((shape[1],), row)

    result: Tensor = te.extern([shape], [data], body, name="bfloat16_parts", dtype=["uint16"])
    return result


def _part(value: Scalar, part: int, parts: int, dtype: str = "uint16") -> Scalar:
    """A part of a number as the bits of a bfloat16; the last one is rounded."""
    for _ in range(part):
        value = T.sub(value, _of_bits(T.bitwise_and(_bits(value), T.const(_HIGH, "uint32"))))
    bits = _bits(value)
    if part == parts - 1:
        bits = T.add(bits, T.const(_HALF, "uint32"))
    return T.cast(T.shift_right(bits, T.const(16, "uint32")), dtype) if dtype == "uint16" else bits


def _bits(value: Scalar) -> Scalar:
    return T.call("reinterpret", value, dtype="uint32")


def _of_bits(bits: Scalar) -> Scalar:
    return T.call("reinterpret", bits, dtype="float32")


@low_bit_tiles.infer
def _infer(attrs: TilesAttrs, *types: Type) -> TensorType:
    x, w, q, z, m, t = (need_rank(NAME, t, 3, what) for t, what in zip(types, low_bit_tiles.inputs, strict=True))
    _, whole, inner = x.static
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
    x = (data.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64).sum(0)[: attrs.rows]
    scales, *others = map(by_units, parts)
    real = expanded(LowBitDenseAttrs(8, attrs.group), terms_of(weight, attrs.bits), scales.astype(np.float64), *others)
    result: Array = (x @ real.T)[:, : attrs.units].astype(np.float32)
    return result


@low_bit_tiles.compute
def _compute(attrs: TilesAttrs, *inputs: Tensor) -> Tensor:
    if not has_tiles(Target.current() or Target("llvm")):
        return _in_loops(attrs, *inputs)
    outer = te.static_shape(inputs[1])[0]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        kernel = _Kernel(attrs, ins, outs[0], [te.static_shape(t) for t in inputs])
        pairs = loop("pair", outer // 2, lambda p: kernel.panel(T.mul(p, T.const(2)), 2), S.LoopKind.PARALLEL)
        steps = [pairs] if outer > 1 else []
        return S.seq(*steps, *([kernel.panel(T.const(outer - 1), 1)] if outer % 2 else []))

    shape = (attrs.rows, attrs.units)
    result: Tensor = te.extern([shape], list(inputs), body, name="low_bit_tiles", dtype=["float32"])
    return result


def has_tiles(target: Target) -> bool:
    """Whether code for a target has tiles of bfloat16."""
    return target.kind.name == "llvm" and cpu_model(target).has_bfloat16_tiles


def _in_loops(attrs: TilesAttrs, *inputs: Tensor) -> Tensor:
    """The same without tiles."""
    parts, _, inner = te.static_shape(inputs[0])
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
        data = [T.shift_left(inputs[0](p, i, k).astype("uint32"), T.const(16, "uint32")) for p in range(parts)]
        at = u // LANES, k // attrs.group, u % LANES
        return te.sum(sum(map(_of_bits, data)) * numbers.real(integer(u), *at), axis=[k])

    result: Tensor = te.compute((attrs.rows, attrs.units), element, name="low_bit_tiles", tag="dense")
    return result


def _element(tensor: Tensor, *at: te.Expr) -> te.Expr:
    return tensor(*at)


class _Kernel:
    """Statements for one or two blocks of sixteen units."""

    def __init__(self, attrs: TilesAttrs, ins: list[Buffer], out: Buffer, shapes: list[tuple[int, ...]]) -> None:
        self.attrs, self.out = attrs, out
        self.data, self.weight = ins[:2]
        self.parts, self.whole, self.inner = shapes[0]
        self.numbers = Parameters(ins[2:], shapes[2:])

    def panel(self, chunk: Scalar, columns: int) -> Stmt:
        """Expand the weights, then all rows, two tiles of them at a time."""
        expanded = scratch("expanded", self.parts * columns * self.inner // 2 * LANES, "uint32")
        sums = scratch("sums", 2 * LANES * columns * LANES, "float32")
        terms = terms_of_step(self.attrs.bits)
        steps = [
            loop("step", self.inner // terms, partial(self._expand, expanded, chunk, columns, j))
            for j in range(columns)
        ]
        tiles = self.whole // LANES
        if tiles > 1:

            def pair(p: Scalar) -> Stmt:
                return self._rows(expanded, sums, chunk, columns, T.mul(p, T.const(2 * LANES)), 2)

            steps.append(loop("rows", tiles // 2, pair))
        if tiles % 2:
            steps.append(self._rows(expanded, sums, chunk, columns, T.const((tiles - 1) * LANES), 1))
        return S.Allocate(expanded, S.Allocate(sums, S.seq(*steps)))

    def _expand(self, expanded: Buffer, chunk: Scalar, columns: int, j: int, step: Scalar) -> Stmt:
        """The terms of a step of each unit as bfloat16, two of a unit side by side."""
        terms, at = terms_of_step(self.attrs.bits), T.add(chunk, T.const(j))
        group = T.floordiv(T.mul(step, T.const(terms)), T.const(self.attrs.group))
        words = T.mul(step, T.const(terms * self.attrs.bits // WORD))

        def number(n: Scalar, term: int) -> Scalar:
            four = four_integers(
                self.attrs.bits, term // BYTES, lambda word: load(self.weight, at, T.add(words, T.const(word)), n)
            )
            value = T.shift_right(four, T.const(term % BYTES * 8, "uint32"))
            value = T.bitwise_and(value, T.const(0xFF, "uint32"))
            return self.numbers.real(T.cast(T.cast(value, "int32"), "float32"), at, group, n)

        def stored(term: int, part: int) -> Stmt:
            place = T.add(T.mul(step, T.const(terms // 2)), T.const(((part * columns + j) * self.inner + term) // 2))

            def lane(n: Scalar) -> Stmt:
                low, high = (_part(number(n, term + k), part, self.parts, "uint32") for k in range(2))
                low = T.shift_right(low, T.const(16, "uint32"))
                value = T.bitwise_or(low, T.bitwise_and(high, T.const(_HIGH, "uint32")))
                return store(expanded, value, T.add(T.mul(place, T.const(LANES)), n))

            return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

        return S.seq(*(stored(term, part) for term in range(0, terms, 2) for part in range(self.parts)))

    def _rows(self, expanded: Buffer, sums: Buffer, chunk: Scalar, columns: int, row: Scalar, tiles: int) -> Stmt:
        """One or two tiles of rows: tiles 0 to 3 are sums, 4 and 5 of rows, 6 and 7 of weights."""
        places = [(i, j, i * columns + j) for i in range(tiles) for j in range(columns)]
        step = loop("step", self.inner // DEEP, lambda s: S.seq(*self._step(expanded, columns, row, tiles, s)))
        zeros = [_effect("tile_zero", t, LANES) for *_, t in places]
        wide = columns * LANES
        stores = [
            _effect("tile_store", t, load(sums, i * LANES * wide + j * LANES), wide * 4, LANES) for i, j, t in places
        ]
        copy = loop("r", tiles * LANES, lambda r: self._copied(sums, chunk, columns, row, r))
        return S.seq(*zeros, step, *stores, copy)

    def _step(self, expanded: Buffer, columns: int, row: Scalar, tiles: int, step: Scalar) -> Iterator[Stmt]:
        held: tuple[int | None, int | None] = None, None
        for left, right in PRODUCTS[self.parts]:
            for i in range(tiles if held[0] != left else 0):
                at = load(self.data, left, T.add(row, T.const(i * LANES)), T.mul(step, T.const(DEEP)))
                yield _effect("tile_load", 4 + i, at, self.inner * 2, LANES)
            for j in range(columns if held[1] != right else 0):
                place = T.add(T.mul(step, T.const(LANES)), T.const((right * columns + j) * self.inner // 2))
                yield _effect("tile_load", 6 + j, load(expanded, T.mul(place, T.const(LANES))), 64, LANES)
            for i in range(tiles):
                for j in range(columns):
                    yield _effect("tile_dot_bf16", i * columns + j, 4 + i, 6 + j)
            held = left, right

    def _copied(self, sums: Buffer, chunk: Scalar, columns: int, row: Scalar, r: Scalar) -> Stmt:
        """A row of sums, unless it is behind the last one, without units behind the last one."""
        units, line = self.attrs.units, T.add(row, r)

        def column(j: int) -> Stmt:
            first = T.mul(T.add(chunk, T.const(j)), T.const(LANES))
            place = T.add(T.mul(r, T.const(columns * LANES)), T.const(j * LANES))

            def one(n: Scalar) -> Stmt:
                return store(self.out, load(sums, T.add(place, n)), line, T.add(first, n))

            whole = loop("n", LANES, one, S.LoopKind.VECTORIZED)
            if units % LANES == 0:
                return whole
            few = loop("n", units % LANES, one)
            return S.IfThenElse(T.less_equal(first, T.const(units - LANES)), whole, few)

        body = S.seq(*(column(j) for j in range(columns)))
        if self.attrs.rows % LANES == 0:
            return body
        return S.IfThenElse(T.less(line, T.const(self.attrs.rows)), body)


def _effect(name: str, *args: object) -> Stmt:
    return S.Evaluate(T.call(name, *args, dtype="int32"))  # type: ignore[arg-type]


@bfloat16_parts.samples
def _samples_parts() -> Iterator[Sample]:
    yield Sample(PartsAttrs(1), (f32(16, 32),), rtol=0, atol=0)
    yield Sample(PartsAttrs(2), (f32(19, 48),), rtol=0, atol=0)


@bfloat16_parts.bad_samples
def _bad_samples_parts() -> Iterator[BadSample]:
    yield BadSample(PartsAttrs(3), (f32(3, 64),), "3 parts of")


def _sample(bits: int, group: int, inner: int, count: int, units: int, parts: int, form: str) -> Sample:
    data = np.random.default_rng(units).standard_normal((count, inner)).astype(np.float32)
    close = 2e-4 if parts == 2 else 0.1
    x = _reference_parts(PartsAttrs(parts), data)
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
