"""cpu.low_bit_dense: the product of nn.low_bit_dense over weights in words, for rows in digits (digits.py).

In: digits int8 (rows, digits, inner), their scales (rows, blocks) and sums (rows, blocks, digits); weight, uint32
(units / lanes, words, lanes): a word has four terms for each shift by the bits of its plane, the first four in the
lowest bits of its bytes; scales (units / lanes, groups, lanes); zeros, minima and tops of nn.two_level_dense the same,
or (1, 1, 1): one for all, none and none. Out: float32 (rows, units), units beyond the last one cut off. Invariant: a
block's sum of products is an exact integer, (integer - zero) times digits, before it is scaled: blocks divide groups. A
step of four terms of `lanes` units is one dot product of bytes for each digit; the words of a block of units are read
once for `rows` rows. Packing: pack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.digits import BASE, DigitsAttrs
from armillary.backends.cpu.gemm.low_bit.digits import digits as to_digits
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._dot_operands import BYTES
from armillary.ops._loops import load, loop, scratch, store
from armillary.ops.decoder.low_bit_dense import (
    WORD,
    LowBitDenseAttrs,
    expanded,
    planes_of,
    terms_of_step,
)
from armillary.ops.nn._windows import Tensor, need_rank, need_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.low_bit_dense"
# Bytes of weights that are asked for ahead, into the second cache: the processor's own prefetches end at pages. A step
# of 4 layers in Q4_K takes 8.0 ms with 2 KB, 7.3 with 4, 6.8 with 8, 5.9 with 16, 6.1 with 32 (a busy Zen 4).
_AHEAD, _LINE, _SECOND_CACHE = 16384, 64, 2
_INPUTS = ("digits", "factors", "sums", "weight", "scales", "zeros", "minima", "tops")


@record
class LowBitProductAttrs:
    """Bits of an integer, terms of a group, terms of a block of digits, units of the result.

    `rows` of them share a read of the weights: as many as registers hold sums of.
    """

    bits: int = 4
    group: int = 32
    block: int = 32
    units: int = 0
    rows: int = 4


low_bit_product = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Small integers times rows in digits, by blocks.")
low_bit_product.attrs(LowBitProductAttrs)


@low_bit_product.infer
def _infer(attrs: LowBitProductAttrs, *types: Type) -> TensorType:
    d, f, s, w, q, z, m, t = (
        need_rank(NAME, t, n, what) for t, n, what in zip(types, (3, 2, 3, 3, 3, 3, 3, 3), _INPUTS, strict=True)
    )
    count, places, inner = d.static
    outer, words, lanes = w.static
    if (str(d.dtype), str(w.dtype), str(z.dtype)) != ("int8", "uint32", "uint8") or not t.dtype.is_float:
        raise TypeMismatch(f"{NAME}: digits {d}, weight {w}, zeros {z}, tops {t}")
    if inner * attrs.bits != words * WORD or attrs.block % terms_of_step(attrs.bits):
        raise TypeMismatch(f"{NAME}: {words} words of {attrs.bits} bits for rows of {inner} in blocks of {attrs.block}")
    if attrs.group % attrs.block or inner % attrs.group or not 0 < attrs.units <= outer * lanes:
        raise TypeMismatch(
            f"{NAME}: groups of {attrs.group} and blocks of {attrs.block} in {inner}, {attrs.units} units"
        )
    blocks, groups = inner // attrs.block, inner // attrs.group
    need_shape(NAME, "factors", f, (count, blocks))
    need_shape(NAME, "sums", s, (count, blocks, places))
    need_shape(NAME, "scales", q, (outer, groups, lanes))
    for part, what in ((z, "zeros"), (m, "minima")):
        if part.static != (1, 1, 1):
            need_shape(NAME, what, part, (outer, groups, lanes))
    if t.static != (1, 1, 1):
        need_shape(NAME, "tops", t, (outer, t.static[1], lanes))
    return TensorType((count, attrs.units), DType("float32"))


@low_bit_product.macs
def _macs(attrs: LowBitProductAttrs, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[2])


def terms_of(words: Array, bits: int) -> Array:
    """(units, inner) integers of packed words."""
    outer, count, lanes = words.shape
    width, parts = terms_of_step(bits) * bits // WORD, []
    steps = np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(outer * lanes, count // width, width)
    for plane, part in zip(
        planes_of(bits), np.split(steps, [p.word for p in planes_of(bits)[1:]], axis=2), strict=True
    ):
        bytes_ = np.ascontiguousarray(part).view(np.uint8).reshape(*part.shape, 1, BYTES)
        fields = bytes_ >> np.arange(0, 8, plane.bits, dtype=np.uint8)[:, None] & np.uint8((1 << plane.bits) - 1)
        parts.append(fields.reshape(outer * lanes, -1) << np.uint8(plane.start))
    result: Array = np.bitwise_or.reduce(parts)
    return result


def by_units(part: Array) -> Array:
    """(units, groups) of what lies in blocks of lanes."""
    return part.transpose(0, 2, 1).reshape(-1, part.shape[1])


@low_bit_product.reference
def _reference(
    attrs: LowBitProductAttrs, digits: Array, factors: Array, sums: Array, weight: Array, *parts: Array
) -> Array:
    count, places, inner = digits.shape
    whole = sum(digits[:, p].astype(np.float64) * BASE**p for p in range(places)).reshape(count, -1, attrs.block)
    rows = (whole * factors.astype(np.float64)[:, :, None]).reshape(count, inner)
    named = LowBitDenseAttrs(8, attrs.group)
    scales, *others = map(by_units, parts)
    real = expanded(named, terms_of(weight, attrs.bits), scales.astype(np.float64), *others)
    single: Array = (rows @ real.T)[:, : attrs.units].astype(np.float32)
    return single


@low_bit_product.compute
def _compute(attrs: LowBitProductAttrs, *inputs: Tensor) -> Tensor:
    count, outer = te.static_shape(inputs[0])[0], te.static_shape(inputs[3])[0]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        kernel = _Kernel(attrs, ins, outs[0], [te.static_shape(t) for t in inputs])
        full, rest = divmod(count, attrs.rows)

        def panel(chunk: Scalar) -> Stmt:
            steps = (
                [loop("tile", full, lambda t: kernel.tile(chunk, T.mul(t, T.const(attrs.rows)), attrs.rows))]
                if full
                else []
            )
            steps += [kernel.tile(chunk, T.const(full * attrs.rows), rest)] if rest else []
            return S.seq(*steps)

        return loop("chunk", outer, panel, S.LoopKind.PARALLEL)

    shape = (count, attrs.units)
    result: Tensor = te.extern([shape], list(inputs), body, name="low_bit_dense", dtype=["float32"])
    return result


class _Kernel:
    """Statements for some rows and a block of units."""

    def __init__(
        self, attrs: LowBitProductAttrs, ins: list[Buffer], out: Buffer, shapes: list[tuple[int, ...]]
    ) -> None:
        self.attrs, self.out = attrs, out
        self.digits, self.factors, self.sums, self.weight = ins[:4]
        (_, self.places, inner), (_, _, self.lanes) = shapes[0], shapes[3]
        self.blocks, self.words = inner // attrs.block, attrs.block * attrs.bits // WORD
        self.numbers = Parameters(ins[4:], shapes[4:])
        self.by_group = [ins[4], *([ins[6]] if self.numbers.has_minima else [])]
        self.ahead = _AHEAD // (self.lanes * BYTES)  # words

    def _vector(self, body: object) -> Stmt:
        return loop("n", self.lanes, body, S.LoopKind.VECTORIZED)  # type: ignore[arg-type]

    def tile(self, chunk: Scalar, row: Scalar, count: int) -> Stmt:
        """All blocks of `count` rows, then the result."""
        totals = [scratch(f"total{r}", self.lanes, "float32", "local") for r in range(count)]
        zero = T.const(0.0, "float32")
        steps = S.seq(
            *(self._vector(lambda n, b=b: store(b, zero, n)) for b in totals),
            loop("block", self.blocks, lambda b: self._block(chunk, row, b, totals)),
            *(
                stored_units(self.out, self.attrs.units, self.lanes, chunk, T.add(row, T.const(r)), b)
                for r, b in enumerate(totals)
            ),
        )
        for buffer in totals:
            steps = S.Allocate(buffer, steps)
        return steps

    def _block(self, chunk: Scalar, row: Scalar, block: Scalar, totals: list[Buffer]) -> Stmt:
        """The exact sums of a block for all rows, added to the totals with their scales."""
        pairs = [(r, p) for r in range(len(totals)) for p in range(self.places)]
        sums = {pair: scratch(f"sum{k}", self.lanes, "int32", "local") for k, pair in enumerate(pairs)}
        group = T.floordiv(T.mul(block, T.const(self.attrs.block)), T.const(self.attrs.group))
        steps = [self._start(chunk, group, T.add(row, T.const(r)), block, p, sums[r, p]) for r, p in pairs]
        further = self.ahead * WORD // (self.attrs.bits * self.attrs.group)
        steps += (asked_for(b, chunk, T.add(group, T.const(further))) for b in self.by_group)
        for word in range(0, self.words, max(1, _LINE // (self.lanes * BYTES))):
            at = T.add(T.mul(block, T.const(self.words)), T.const(word + self.ahead))
            steps.append(asked_for(self.weight, chunk, at))
        for four in range(self.attrs.block // BYTES):
            steps += self._four(chunk, row, block, four, sums)
        for r, total in enumerate(totals):
            mine = [sums[r, p] for p in range(self.places)]
            steps.append(self._added(chunk, group, T.add(row, T.const(r)), block, mine, total))
        result = S.seq(*steps)
        for buffer in sums.values():
            result = S.Allocate(buffer, result)
        return result

    def _start(self, chunk: Scalar, group: Scalar, row: Scalar, block: Scalar, place: int, sums: Buffer) -> Stmt:
        """-zero times the sum of the block's digits; the second digits' is in the first one's, within 32 bits."""
        if place == 1:
            return self._vector(lambda n: store(sums, T.const(0), n))
        whole = load(self.sums, row, block, place)
        if place == 0 and self.places > 1:
            whole = T.add(T.shift_left(load(self.sums, row, block, 1), T.const(8)), whole)

        def first(n: Scalar) -> Stmt:
            return store(sums, T.sub(T.const(0), T.mul(self.numbers.zero(chunk, group, n), whole)), n)

        return self._vector(first)

    def _four(
        self, chunk: Scalar, row: Scalar, block: Scalar, four: int, sums: dict[tuple[int, int], Buffer]
    ) -> Iterator[Stmt]:
        """The products of four terms."""
        first = T.add(T.mul(block, T.const(self.attrs.block)), T.const(four * BYTES))
        words = T.mul(block, T.const(self.words))
        for (r, p), buffer in sums.items():
            numbers = [load(self.digits, T.add(row, T.const(r)), p, T.add(first, T.const(k))) for k in range(BYTES)]
            left = te.four_bytes(*numbers)

            def product(n: Scalar, left: Scalar = left, buffer: Buffer = buffer) -> Stmt:
                right = four_integers(
                    self.attrs.bits, four, lambda word: load(self.weight, chunk, T.add(words, T.const(word)), n)
                )
                return store(buffer, T.add(load(buffer, n), te.dot_bytes(left, right)), n)

            yield self._vector(product)

    def _added(
        self, chunk: Scalar, group: Scalar, row: Scalar, block: Scalar, sums: list[Buffer], total: Buffer
    ) -> Stmt:
        """The sums of all digits as one number, scaled; the minimum times the sum of the row's terms."""
        factor = load(self.factors, row, block)
        whole = _joined([load(self.sums, row, block, p) for p in range(self.places)])

        def lane(n: Scalar) -> Stmt:
            low = load(sums[0], n)
            if len(sums) > 1:
                low = T.add(T.shift_left(load(sums[1], n), T.const(8)), low)
            value = _joined([low, None, load(sums[2], n)] if len(sums) > 2 else [low])
            scale = T.mul(self.numbers.scale(chunk, group, n), factor)
            result = T.add(load(total, n), T.mul(value, scale))
            if self.numbers.has_minima:
                result = T.add(result, T.mul(self.numbers.minimum(chunk, group, n), T.mul(whole, factor)))
            return store(total, result, n)

        return self._vector(lane)


def stored_units(out: Buffer, units: int, lanes: int, chunk: Scalar, row: Scalar, total: Buffer) -> Stmt:
    """A block of units of a row; units beyond the last one are not stored."""
    first = T.mul(chunk, T.const(lanes))
    whole = loop("n", lanes, lambda n: store(out, load(total, n), row, T.add(first, n)), S.LoopKind.VECTORIZED)
    if units % lanes == 0:
        return whole
    last, rest = units // lanes, units % lanes
    few = S.seq(*(store(out, load(total, k), row, T.add(first, T.const(k))) for k in range(rest)))
    return S.IfThenElse(T.less(chunk, T.const(last)), whole, few)


def _joined(digits: Sequence[Scalar | None]) -> Scalar:
    """What digits of base 256 stand for, in float32."""
    result = None
    for place, digit in reversed(list(enumerate(digits))):
        if digit is not None:
            value = T.cast(digit, "float32")
            value = T.mul(value, T.const(float(BASE**place), "float32")) if place else value
            result = value if result is None else T.add(result, value)
    assert result is not None, "numbers have digits"
    return result


def four_integers(bits: int, four: int, word_at: Callable[[int], Scalar]) -> Scalar:
    """The four bytes of integers with that number, from words by their place behind the first step's."""
    terms = terms_of_step(bits)
    step, inside = four * BYTES // terms * (terms * bits // WORD), four % (terms // BYTES)
    result = None
    for plane in planes_of(bits):
        fields = 8 // plane.bits  # of a word
        value, shift = word_at(step + plane.word + inside // fields), inside % fields * plane.bits
        value = T.shift_right(value, T.const(shift, "uint32")) if shift else value
        if plane.bits < 8:
            value = T.bitwise_and(value, T.const(((1 << plane.bits) - 1) * 0x01010101, "uint32"))
        value = T.shift_left(value, T.const(plane.start, "uint32")) if plane.start else value
        result = value if result is None else T.bitwise_or(result, value)
    assert result is not None, "integers have bits"
    return result


class Parameters:
    """Scales, zeros, minima and tops of units as numbers; `at` reads one of them at a block, a place and a lane."""

    def __init__(
        self, ins: Sequence[object], shapes: Sequence[tuple[int, ...]], at: Callable[..., Scalar] = load
    ) -> None:
        self.scales, self.zeros, self.minima, self.tops = ins
        one, self.at = (1, 1, 1), at
        self.is_one, self.has_minima = shapes[1] == one, shapes[2] != one
        self.supers = 0 if shapes[3] == one else shapes[3][1] // (1 + self.has_minima)
        self.each = shapes[0][1] // max(1, self.supers)  # groups with one top

    def zero(self, chunk: Scalar, group: Scalar, n: Scalar) -> Scalar:
        """The integer that stands for 0."""
        return T.cast(self.at(self.zeros, *([T.const(0)] * 3 if self.is_one else (chunk, group, n))), "int32")

    def scale(self, chunk: Scalar, group: Scalar, n: Scalar) -> Scalar:
        """What an integer is multiplied with."""
        return self._number(self.scales, 0, chunk, group, n)

    def minimum(self, chunk: Scalar, group: Scalar, n: Scalar) -> Scalar:
        """What is added."""
        return self._number(self.minima, self.supers, chunk, group, n)

    def real(self, value: Scalar, chunk: Scalar, group: Scalar, n: Scalar) -> Scalar:
        """The number that an integer, given in float32, stands for."""
        value = T.sub(value, T.cast(self.zero(chunk, group, n), "float32"))
        value = T.mul(value, self.scale(chunk, group, n))
        return T.add(value, self.minimum(chunk, group, n)) if self.has_minima else value

    def _number(self, part: object, first: int, chunk: Scalar, group: Scalar, n: Scalar) -> Scalar:
        value = self.at(part, chunk, group, n)
        value = T.cast(value if value.dtype.is_float else T.cast(value, "int32"), "float32")
        if not self.supers:
            return value
        top = self.at(self.tops, chunk, T.add(T.floordiv(group, T.const(self.each)), T.const(first)), n)
        return T.mul(value, T.cast(top, "float32"))


def asked_for(buffer: Buffer, chunk: Scalar, at: Scalar) -> Stmt:
    """Ask for a line of units, which may be one of the next chunk, or of none: addresses are not checked."""
    place = load(buffer, chunk, at, T.const(0))
    return S.Evaluate(T.call("prefetch", place, T.const(_SECOND_CACHE), dtype="int32"))


def words_sample(bits: int, group: int, inner: int, units: int, form: str) -> tuple[Array, ...]:
    """Words, scales, zeros, minima and tops drawn at random; `form`: "one", "zeros", "levels" or "minima"."""
    random = np.random.default_rng(bits + units)
    lanes, outer = 16, -(-units // 16)
    words = random.integers(0, 1 << 32, (outer, inner * bits // WORD, lanes), dtype=np.uint32)
    shape = outer, inner // group, lanes
    scales, least = random.uniform(0.5, 1, shape).astype(np.float32) / np.float32(1 << bits), np.zeros((1, 1, 1))
    zeros, tops = np.full((1, 1, 1), 1 << (bits - 1), np.uint8), np.ones((1, 1, 1), np.float32)
    if form == "zeros":
        zeros = random.integers(0, 1 << bits, shape).astype(np.uint8)
    elif form != "one":
        scales = random.integers(-60, 60, shape).astype(np.int8)
        tops = random.uniform(0.01, 0.02, (outer, 2, lanes)).astype(np.float16) / np.float16(1 << bits)
        least = random.integers(-60, 60, shape).astype(np.float64) if form == "minima" else least
    return words, scales, zeros, least.astype(scales.dtype), tops


def _sample(bits: int, group: int, block: int, inner: int, count: int, units: int, places: int, form: str) -> Sample:
    data = np.random.default_rng(units).standard_normal((count, inner)).astype(np.float32)
    rows = to_digits.evaluate(DigitsAttrs(places, block), (data,))
    attrs = LowBitProductAttrs(bits, group, block, units)
    return Sample(attrs, (*rows, *words_sample(bits, group, inner, units, form)), rtol=2e-5, atol=1e-4)


@low_bit_product.samples
def _samples() -> Iterator[Sample]:
    yield _sample(4, 32, 32, 64, 1, 32, 3, "one")
    yield _sample(4, 64, 32, 128, 6, 35, 3, "zeros")
    yield _sample(8, 32, 16, 64, 3, 16, 2, "zeros")
    yield _sample(2, 16, 16, 32, 9, 20, 1, "zeros")
    yield _sample(8, 64, 64, 64, 2, 16, 3, "one")
    yield _sample(6, 16, 16, 64, 2, 20, 2, "levels")
    yield _sample(5, 32, 32, 128, 1, 32, 3, "minima")
    yield _sample(4, 32, 32, 64, 3, 16, 1, "minima")


@low_bit_product.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample(4, 32, 32, 64, 1, 32, 3, "one")
    yield BadSample(LowBitProductAttrs(4, 32, 32, 33), good.inputs, "33 units")
    yield BadSample(LowBitProductAttrs(8, 32, 32, 32), good.inputs, "words of 8 bits for rows of 64")
