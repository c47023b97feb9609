"""cpu.low_bit_dense: the product of nn.low_bit_dense over weights in words, for rows in digits (digits.py).

In: digits int8 (rows, digits, inner), their scales (rows, blocks) and sums (rows, blocks, digits); weight, uint32
(units / lanes, words, lanes): a word has four terms for each shift by `bits`, the first four in the lowest bits of its
bytes; scales (units / lanes, groups, lanes); zeros (units / lanes, groups, lanes) or (1, 1, 1). Out: float32 (rows,
units), units beyond the last one cut off. Invariant: a block's sum of products is an exact integer, (integer - zero)
times digits, before it is scaled: blocks divide groups. A step of four terms of `lanes` units is one dot product of
bytes for each digit; the words of a block of units are read once for `rows` rows. Packing: pack.py.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from armillary.ops.nn._windows import Tensor, need_rank, need_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.low_bit_dense"
# Bytes of weights that are asked for ahead, into the second cache: the processor's own prefetches end at pages. Where
# a loop reads 18.1 GB/s, products of one row read 15.6; 14.5 with 2 KB and the first cache.
_AHEAD, _LINE, _SECOND_CACHE = 4096, 64, 2
_INPUTS = ("digits", "factors", "sums", "weight", "scales", "zeros")


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


def terms_of_word(bits: int) -> int:
    """Terms that a word of 32 bits has."""
    return 32 // bits


@low_bit_product.infer
def _infer(attrs: LowBitProductAttrs, *types: Type) -> TensorType:
    d, f, s, w, q, z = (
        need_rank(NAME, t, n, what) for t, n, what in zip(types, (3, 2, 3, 3, 3, 3), _INPUTS, strict=True)
    )
    count, places, inner = d.static
    outer, words, lanes = w.static
    if (str(d.dtype), str(w.dtype), str(z.dtype)) != ("int8", "uint32", "uint8") or not q.dtype.is_float:
        raise TypeMismatch(f"{NAME}: digits {d}, weight {w}, scales {q}, zeros {z}")
    if inner != words * terms_of_word(attrs.bits) or attrs.block % terms_of_word(attrs.bits):
        raise TypeMismatch(f"{NAME}: {words} words of {attrs.bits} bits for rows of {inner} in blocks of {attrs.block}")
    if attrs.group % attrs.block or inner % attrs.group or not 0 < attrs.units <= outer * lanes:
        raise TypeMismatch(
            f"{NAME}: groups of {attrs.group} and blocks of {attrs.block} in {inner}, {attrs.units} units"
        )
    blocks, groups = inner // attrs.block, inner // attrs.group
    need_shape(NAME, "factors", f, (count, blocks))
    need_shape(NAME, "sums", s, (count, blocks, places))
    need_shape(NAME, "scales", q, (outer, groups, lanes))
    if z.static != (1, 1, 1):
        need_shape(NAME, "zeros", z, (outer, groups, lanes))
    return TensorType((count, attrs.units), DType("float32"))


@low_bit_product.macs
def _macs(attrs: LowBitProductAttrs, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[2])


def terms_of(words: Array, bits: int) -> Array:
    """(units, inner) integers of packed words."""
    outer, count, lanes = words.shape
    bytes_ = np.ascontiguousarray(words).view(np.uint8).reshape(outer, count, lanes, BYTES)
    fields = [bytes_ >> np.uint8(k) & np.uint8((1 << bits) - 1) for k in range(0, 8, bits)]
    whole = np.stack(fields, axis=3)  # outer, count, lanes, field, byte
    result: Array = whole.transpose(0, 2, 1, 3, 4).reshape(outer * lanes, -1)
    return result


@low_bit_product.reference
def _reference(
    attrs: LowBitProductAttrs, digits: Array, factors: Array, sums: Array, weight: Array, scales: Array, zeros: Array
) -> Array:
    count, places, inner = digits.shape
    whole = sum(digits[:, p].astype(np.int64) * BASE**p for p in range(places)).reshape(count, -1, attrs.block)
    values = terms_of(weight, attrs.bits).astype(np.int64)
    units, groups = values.shape[0], inner // attrs.group
    by_unit = [
        np.broadcast_to(p.transpose(0, 2, 1), (*p.shape[::2], p.shape[1])).reshape(-1, p.shape[1])
        for p in (scales, zeros)
    ]
    values = values.reshape(units, groups, attrs.group) - by_unit[1].astype(np.int64)[:, :, None]
    blocks = values.reshape(units, -1, attrs.block)
    exact = np.einsum("rbk,ubk->rub", whole, blocks).astype(np.float64)
    per_block = np.repeat(by_unit[0].astype(np.float64), attrs.group // attrs.block, axis=1)
    result = np.einsum("rub,rb,ub->ru", exact, factors.astype(np.float64), per_block)
    single: Array = result[:, : attrs.units].astype(np.float32)
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
        self.digits, self.factors, self.sums, self.weight, self.scales, self.zeros = ins
        (_, self.places, inner), (_, _, self.lanes) = shapes[0], shapes[3]
        self.blocks, self.is_one = inner // attrs.block, shapes[5] == (1, 1, 1)
        self.words = attrs.block // terms_of_word(attrs.bits)
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
            *(self._result(chunk, T.add(row, T.const(r)), b) for r, b in enumerate(totals)),
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
        further = self.ahead * terms_of_word(self.attrs.bits) // self.attrs.group
        steps.append(_asked_for(self.scales, chunk, T.add(group, T.const(further))))
        for word in range(self.words):
            if word * self.lanes * BYTES % _LINE == 0:
                at = T.add(T.mul(block, T.const(self.words)), T.const(word + self.ahead))
                steps.append(_asked_for(self.weight, chunk, at))
            steps += self._word(chunk, row, block, word, sums)
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
            zero = load(self.zeros, 0, 0, 0) if self.is_one else load(self.zeros, chunk, group, n)
            return store(sums, T.sub(T.const(0), T.mul(T.cast(zero, "int32"), whole)), n)

        return self._vector(first)

    def _word(
        self, chunk: Scalar, row: Scalar, block: Scalar, word: int, sums: dict[tuple[int, int], Buffer]
    ) -> Iterator[Stmt]:
        """The products of a word's terms."""
        bits, terms = self.attrs.bits, terms_of_word(self.attrs.bits)
        mask = T.const(((1 << bits) - 1) * 0x01010101, "uint32")
        at = T.add(T.mul(block, T.const(self.words)), T.const(word))
        for field in range(terms // BYTES):
            first = T.add(T.mul(block, T.const(self.attrs.block)), T.const(word * terms + field * BYTES))
            for (r, p), buffer in sums.items():
                numbers = [load(self.digits, T.add(row, T.const(r)), p, T.add(first, T.const(k))) for k in range(BYTES)]
                left = te.four_bytes(*numbers)

                def product(n: Scalar, left: Scalar = left, buffer: Buffer = buffer, shift: int = field * bits) -> Stmt:
                    value = load(self.weight, chunk, at, n)
                    value = T.shift_right(value, T.const(shift, "uint32")) if shift else value
                    value = value if bits == 8 else T.bitwise_and(value, mask)
                    return store(buffer, T.add(load(buffer, n), te.dot_bytes(left, value)), n)

                yield self._vector(product)

    def _added(
        self, chunk: Scalar, group: Scalar, row: Scalar, block: Scalar, sums: list[Buffer], total: Buffer
    ) -> Stmt:
        """The sums of all digits as one number, scaled."""

        def lane(n: Scalar) -> Stmt:
            low = load(sums[0], n)
            if len(sums) > 1:
                low = T.add(T.shift_left(load(sums[1], n), T.const(8)), low)
            value = T.cast(low, "float32")
            if len(sums) > 2:
                high = T.cast(load(sums[2], n), "float32")
                value = T.add(T.mul(high, T.const(float(BASE**2), "float32")), value)
            scale = T.mul(T.cast(load(self.scales, chunk, group, n), "float32"), load(self.factors, row, block))
            return store(total, T.add(load(total, n), T.mul(value, scale)), n)

        return self._vector(lane)

    def _result(self, chunk: Scalar, row: Scalar, total: Buffer) -> Stmt:
        """Units beyond the last one are not stored."""
        first = T.mul(chunk, T.const(self.lanes))
        whole = self._vector(lambda n: store(self.out, load(total, n), row, T.add(first, n)))
        if self.attrs.units % self.lanes == 0:
            return whole
        last, rest = self.attrs.units // self.lanes, self.attrs.units % self.lanes
        few = S.seq(
            *(store(self.out, load(total, k), row, T.add(first, T.const(k))) for k in range(rest)),
        )
        return S.IfThenElse(T.less(chunk, T.const(last)), whole, few)


def _asked_for(buffer: Buffer, chunk: Scalar, at: Scalar) -> Stmt:
    """Ask for a line of units, which may be one of the next chunk, or of none: addresses are not checked."""
    place = load(buffer, chunk, at, T.const(0))
    return S.Evaluate(T.call("prefetch", place, T.const(_SECOND_CACHE), dtype="int32"))


def _sample(
    bits: int, group: int, block: int, inner: int, count: int, units: int, places: int, has_zeros: bool
) -> Sample:
    random = np.random.default_rng(bits + units)
    data = random.standard_normal((count, inner)).astype(np.float32)
    lanes, outer = 16, -(-units // 16)
    words = random.integers(0, 1 << 32, (outer, inner // terms_of_word(bits), lanes), dtype=np.uint32)
    scales = random.uniform(0.5, 1, (outer, inner // group, lanes)).astype(np.float32)
    zeros = np.full((1, 1, 1), 1 << (bits - 1), np.uint8)
    if has_zeros:
        zeros = random.integers(0, 1 << bits, scales.shape).astype(np.uint8)
    rows = to_digits.evaluate(DigitsAttrs(places, block), (data,))
    attrs = LowBitProductAttrs(bits, group, block, units)
    return Sample(attrs, (*rows, words, scales, zeros), rtol=2e-5, atol=1e-4)


@low_bit_product.samples
def _samples() -> Iterator[Sample]:
    yield _sample(4, 32, 32, 64, 1, 32, 3, False)
    yield _sample(4, 64, 32, 128, 6, 35, 3, True)
    yield _sample(8, 32, 16, 64, 3, 16, 2, True)
    yield _sample(2, 16, 16, 32, 9, 20, 1, False)
    yield _sample(8, 64, 64, 64, 2, 16, 3, False)


@low_bit_product.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample(4, 32, 32, 64, 1, 32, 3, False)
    yield BadSample(LowBitProductAttrs(4, 32, 32, 33), good.inputs, "33 units")
    yield BadSample(LowBitProductAttrs(8, 32, 32, 32), good.inputs, "words of 8 bits for rows of 64")
