"""Weights of few bits in a chunk of terms: which words they are in, the integer that stands for 0, their scale.

In: the elements of a fused function, a weight as an expression of a column and a term, its bits. Out: a `Packed`, forms
over a column and the number of a chunk; None where a chunk's bytes are no whole words, or its terms have not one scale.
Invariant: the weight is scale times (field - zero); the first term has the lowest bits. Fields become numbers where
they lie in a word, as the last bits of a float whose other bits are known: no shift, no conversion. So a field at bit p
stands for 2^p as much, by which the data is divided, exactly. Who reads words first and scales sums: few_rows.py.
"""

from __future__ import annotations

from armillary.backends.opencl.gemm.operand import Factor
from armillary.backends.opencl.gemm.tile import LANES
from armillary.backends.opencl.written.elements import Elements
from armillary.base.extent import Known, bounds
from armillary.base.node import post_order, structural_equal
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import ExprMapper, substitute_expr

MANTISSA = 23  # bits of a float32 behind its exponent
UNIT = 0x4B000000  # the float 2^23, whose last bit is 1
WORD = 32


@record
class Packed:
    """A chunk of weights: `place` of its first byte in `memory`, `zero` and `scale` of all."""

    column: E.Var
    chunk: E.Var
    memory: S.Buffer
    place: E.Expr
    bits: int
    words: int
    zero: E.Expr
    scale: E.Expr

    def at(self, item: E.Expr, column: E.Expr, chunk: E.Expr) -> E.Expr:
        """A form for a column and a chunk."""
        return substitute_expr(item, {self.column: column, self.chunk: chunk})

    def power(self, term: int) -> int:
        """The bit of a float at which a term's field lies: that of its word, or of the word's upper part."""
        position = term * self.bits % WORD
        return position if position + self.bits <= MANTISSA else (position - self._dropped(position))

    def _dropped(self, position: int) -> int:
        """Bits that are shifted out of a word: the same for all fields that do not fit below the exponent."""
        return 0 if position + self.bits <= MANTISSA else (MANTISSA // self.bits) * self.bits

    def field(self, term: int, word: E.Expr, zero: E.Expr) -> E.Expr:
        """(field - zero) * 2^power of a term of a word (uint32)."""
        power, dropped = self.power(term), self._dropped(term * self.bits % WORD)
        moved = T.shift_right(word, T.const(dropped, "uint32")) if dropped else word
        inside = T.bitwise_and(moved, T.const(((1 << self.bits) - 1) << power, "uint32"))
        number = T.call("reinterpret", T.bitwise_or(inside, T.const(UNIT, "uint32")), dtype="float32")
        base = T.add(T.mul(zero, T.const(float(1 << power), "float32")), T.const(float(1 << MANTISSA), "float32"))
        return T.sub(number, simplify(base))


def packed_of(elements: Elements, weight: Factor, bits: int, size: int, columns: Known, terms: Known) -> Packed | None:
    """The weights of `size` neighbouring terms."""
    column, chunk = E.Var("column", E.INT32), E.Var("chunk", E.INT32)
    ranges = {column: (0, bounds(columns)[1] - 1), chunk: (0, bounds(terms)[1] // size - 1)}
    forms = []
    for n in range(size):
        term = T.add(T.mul(chunk, size), n)
        forms.append(elements.with_ranges(ranges, lambda term=term: weight(column, term)))  # type: ignore[misc]
    factors = [form for form in forms if isinstance(form, E.Mul)]
    if len(factors) < size or any(not structural_equal(form.b, factors[0].b) for form in factors):
        return None
    return _in_words(column, chunk, factors, bits)


def _in_words(column: E.Var, chunk: E.Var, factors: list[E.Mul], bits: int) -> Packed | None:
    loads = [n for form in factors for n in post_order(form.a) if isinstance(n, E.BufferLoad)]
    if not loads or loads[0].buffer.dtype.bits != 8:
        return None
    memory, count = loads[0].buffer, len(factors) * bits // 8
    first = Simplifier().linear(loads[0].indices[0])
    if count % LANES or first.constant % LANES or any(step % LANES for step in first.terms.values()):
        return None
    zeros = [_zero(form.a, memory) for form in factors]
    if any(not structural_equal(zero, zeros[0]) for zero in zeros):
        return None
    return Packed(column, chunk, memory, loads[0].indices[0], bits, count // LANES, zeros[0], factors[0].b)


def _zero(value: E.Expr, memory: S.Buffer) -> E.Expr:
    """The integer that stands for 0, as a number: `value` is the cast of its difference from a field of a byte."""

    def visit(item: E.Expr) -> E.Expr | None:
        is_field = (
            isinstance(item, E.Call)
            and item.name == "bitwise_and"
            and any(isinstance(n, E.BufferLoad) and n.buffer is memory for n in post_order(item))
        )
        return T.const(0, item.dtype) if is_field else None

    rest = simplify(ExprMapper(visit)(value.value if isinstance(value, E.Cast) else value))
    return T.cast(T.sub(T.const(0, rest.dtype), rest), value.dtype)
