"""Weights of few bits in a chunk of terms: which bytes they are in, what they are, and what scales them all.

In: the elements of a fused function, a weight as an expression of a column and a term. Out: a `Packed`, forms over a
column and the number of a chunk; None where a chunk's bytes are no whole words, or its terms have not one scale.
Invariant: scale times value is the weight. Who reads words first and scales sums: few_rows.py.
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
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import ExprMapper, substitute_expr


@record
class Packed:
    """A chunk of weights: `place` of its first byte in `memory`, `values` over its bytes, one `scale`."""

    column: E.Var
    chunk: E.Var
    memory: S.Buffer
    place: E.Expr
    words: int  # of four bytes
    values: tuple[E.Expr, ...]  # read byte k as element k of `memory`
    scale: E.Expr

    def at(self, item: E.Expr, column: E.Expr, chunk: E.Expr) -> E.Expr:
        """A form for a column and a chunk."""
        return substitute_expr(item, {self.column: column, self.chunk: chunk})

    def value(self, term: int, held: S.Buffer, begin: int) -> E.Expr:
        """The integer of a term as a number, whose bytes are held from place `begin` on."""

        def visit(item: E.Expr) -> E.Expr | None:
            if not isinstance(item, E.BufferLoad) or item.buffer is not self.memory:
                return None
            return E.BufferLoad(held, (T.add(item.indices[0], begin),))

        return ExprMapper(visit)(self.values[term])


def packed_of(elements: Elements, weight: Factor, size: int, columns: Known, terms: Known) -> Packed | None:
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
    return _in_words(column, chunk, factors)


def _in_words(column: E.Var, chunk: E.Var, factors: list[E.Mul]) -> Packed | None:
    loads = [n for form in factors for n in post_order(form.a) if isinstance(n, E.BufferLoad)]
    memories = {load.buffer for load in loads if load.buffer is loads[0].buffer}
    if not loads or loads[0].buffer.dtype.bits != 8:
        return None
    (memory,) = memories
    places = [Simplifier().linear(load.indices[0]) for load in loads if load.buffer is memory]
    first = places[0]
    offsets = [place.constant - first.constant for place in places]
    count = max(offsets) + 1
    if any(place.terms != first.terms for place in places) or min(offsets) or count % LANES:
        return None
    if first.constant % LANES or any(step % LANES for step in first.terms.values()):
        return None

    def as_held(item: E.Expr) -> E.Expr | None:
        if not isinstance(item, E.BufferLoad) or item.buffer is not memory:
            return None
        return E.BufferLoad(memory, (T.const(Simplifier().linear(item.indices[0]).constant - first.constant),))

    values = tuple(map(ExprMapper(as_held), (form.a for form in factors)))
    place = next(load.indices[0] for load in loads if load.buffer is memory)
    return Packed(column, chunk, memory, place, count // LANES, values, factors[0].b)
