"""The loop program by which dot products of words are tested: of four bytes, or of two bfloat16.

In: types of the numbers, the intrinsics. Out: a function of two arrays of numbers and two of sums, one word an element.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.dtype import DType
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S

WORDS = 48


@dataclass(frozen=True)
class Words:
    """Words of `size` numbers: the intrinsic that joins them, the one that multiplies two, and the type of its sum."""

    size: int
    join: str
    dot: str
    sums: str

    def load(self, buffer: S.Buffer, at: E.Expr, lanes: int) -> E.Expr:
        """Word `at`, or `lanes` words from it on."""
        index = [at * self.size + k for k in range(self.size)]
        steps = B.int32(self.size)
        loads = tuple(E.BufferLoad(buffer, (i if lanes == 1 else E.Ramp(i, steps, lanes),)) for i in index)
        name = "int32" if buffer.dtype.code == "int" else "uint32"
        return E.Call(DType(name).with_lanes(lanes), self.join, loads)

    def program(self, x: str, y: str, lanes: int) -> S.PrimFunc:
        """sums[i] += dot(a[i], b[i]); one[i] = dot(a[0], b[i]); `x`, `y`: the types of a and b."""
        a, b = (S.Buffer(n, (B.int32(self.size * WORDS),), DType(t)) for n, t in (("a", x), ("b", y)))
        sums, one = (S.Buffer(n, (B.int32(WORDS),), DType(self.sums)) for n in ("sums", "one"))
        i = E.Var("i")
        at = i * lanes
        index: E.Expr = at if lanes == 1 else E.Ramp(at, B.int32(1), lanes)
        kind = DType(self.sums).with_lanes(lanes)
        first = self.load(a, B.int32(0), 1)
        wide: E.Expr = first if lanes == 1 else E.Broadcast(first, lanes)
        products = E.Call(kind, self.dot, (self.load(a, at, lanes), self.load(b, at, lanes)))
        body = S.seq(
            S.BufferStore(sums, E.Add(E.BufferLoad(sums, (index,)), products), (index,)),
            S.BufferStore(one, E.Call(kind, self.dot, (wide, self.load(b, at, lanes))), (index,)),
        )
        loop = S.For(i, B.int32(0), B.int32(WORDS // lanes), S.LoopKind.PARALLEL, body)
        return S.PrimFunc((a, b, sums, one), loop)
