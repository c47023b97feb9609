"""cpu.narrow_dense: the product of nn.narrow_dense, whose 16-bit floats become float32 in registers.

In: data (rows, inner), float32; weight (units / lanes, inner, lanes), float16 or bfloat16, as pack.py lays out
parameters. Out: float32 (rows, units), units beyond the last one cut off. A tile of rows and one or two blocks of units
is summed in registers: each vector of weights is widened once for all its rows. Few rows, which wait for memory, have
several sums for each element, so that no multiply-add waits for the one before. Invariant: no widened weight is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.operator import asked_for, by_units, stored_units
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, loop, scratch, store
from armillary.ops.decoder.narrow_dense import TYPES, drawn
from armillary.ops.nn._windows import Tensor, f32, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.narrow_dense"
_SUMS = 8  # that hide the time of a multiply-add
_AHEAD, _LINE = 2048, 64  # bytes: 28 GB/s of a Zen 4's 29; 21 with none, 22 with 16 or 64 KB


@record
class NarrowProductAttrs:
    """Units of the result; rows of a tile at most, and blocks of units of one."""

    units: int = 0
    rows: int = 12
    blocks: int = 2


narrow_product = Op(NAME, kind=Kind.OPAQUE, inputs=("data", "weight"), doc="16-bit floats times rows of float32.")
narrow_product.attrs(NarrowProductAttrs)


@narrow_product.infer
def _infer(attrs: NarrowProductAttrs, data: Type, weight: Type) -> TensorType:
    x, w = need_rank(NAME, data, 2, "data"), need_rank(NAME, weight, 3, "weight")
    outer, inner, lanes = w.static
    if str(x.dtype) != "float32" or str(w.dtype) not in TYPES or x.static[1] != inner:
        raise TypeMismatch(f"{NAME}: data {x} and weight {w}")
    if not 0 < attrs.units <= outer * lanes or min(attrs.rows, attrs.blocks) < 1:
        raise TypeMismatch(f"{NAME}: {attrs.units} units of {outer * lanes}, tiles of {attrs.rows} by {attrs.blocks}")
    return TensorType((x.static[0], attrs.units), DType("float32"))


@narrow_product.macs
def _macs(attrs: NarrowProductAttrs, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[1])


@narrow_product.reference
def _reference(attrs: NarrowProductAttrs, data: Array, weight: Array) -> Array:
    real = by_units(weight).astype(np.float64)[: attrs.units]
    result: Array = (data.astype(np.float64) @ real.T).astype(np.float32)
    return result


@narrow_product.compute
def _compute(attrs: NarrowProductAttrs, data: Tensor, weight: Tensor) -> Tensor:
    (count, inner), (outer, _, lanes) = te.static_shape(data), te.static_shape(weight)
    tiles = -(-count // attrs.rows)
    rows = -(-count // max(1, tiles))  # as even as can be

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        kernel = _Kernel(attrs, ins, outs[0], inner, lanes)

        def panel(chunk: Scalar, blocks: int) -> Stmt:
            full, rest = divmod(count, rows)
            whole = loop("tile", full, lambda t: kernel.tile(chunk, blocks, T.mul(t, T.const(rows)), rows))
            return S.seq(whole, *([kernel.tile(chunk, blocks, T.const(full * rows), rest)] if rest else []))

        full, rest = divmod(outer, attrs.blocks)
        whole = loop("panel", full, lambda p: panel(T.mul(p, T.const(attrs.blocks)), attrs.blocks), S.LoopKind.PARALLEL)
        return S.seq(*([whole] if full else []), *([panel(T.const(outer - rest), rest)] if rest else []))

    result: Tensor = te.extern([(count, attrs.units)], [data, weight], body, name="narrow_dense", dtype=["float32"])
    return result


class _Kernel:
    """Statements for a tile."""

    def __init__(self, attrs: NarrowProductAttrs, ins: list[Buffer], out: Buffer, inner: int, lanes: int) -> None:
        (self.data, self.weight), self.out = ins, out
        self.units, self.inner, self.lanes = attrs.units, inner, lanes
        self.line = max(1, _LINE // (2 * lanes))  # terms of a line of memory

    def _vector(self, body: object) -> Stmt:
        return loop("n", self.lanes, body, S.LoopKind.VECTORIZED)  # type: ignore[arg-type]

    def tile(self, chunk: Scalar, blocks: int, row: Scalar, count: int) -> Stmt:
        """All terms of a tile, then the result."""
        parts = max(1, _SUMS // (count * blocks))
        places = [(r, b, p) for r in range(count) for b in range(blocks) for p in range(parts)]
        sums = {place: scratch("sum{}_{}_{}".format(*place), self.lanes, "float32", "local") for place in places}
        widened = [scratch(f"wide{b}", self.lanes, "float32", "local") for b in range(blocks)]
        zero, (turns, rest) = T.const(0.0, "float32"), divmod(self.inner, parts)

        def turn(first: Scalar, count: int) -> Stmt:
            asked = (
                asked_for(self.weight, T.add(chunk, T.const(b)), T.add(first, T.const(p + _AHEAD // (2 * self.lanes))))
                for b in range(blocks)
                for p in range(0, count, self.line)
            )
            steps = (
                s for p in range(count) for s in self._term(chunk, row, T.add(first, T.const(p)), p, sums, widened)
            )
            return S.seq(*asked, *steps)

        steps = [self._vector(lambda n, b=b: store(b, zero, n)) for b in sums.values()]
        steps += [loop("turn", turns, lambda t: turn(T.mul(t, T.const(parts)), parts))] if turns else []
        steps += [turn(T.const(turns * parts), rest)] if rest else []
        for (r, b, p), part in sums.items():
            if p:
                steps.append(self._vector(partial(_added, sums[r, b, 0], part)))
        for r, b in ((r, b) for r, b, p in places if not p):
            at = T.add(chunk, T.const(b))
            steps.append(stored_units(self.out, self.units, self.lanes, at, T.add(row, T.const(r)), sums[r, b, 0]))
        result = S.seq(*steps)
        for buffer in (*sums.values(), *widened):
            result = S.Allocate(buffer, result)
        return result

    def _term(
        self,
        chunk: Scalar,
        row: Scalar,
        term: Scalar,
        part: int,
        sums: dict[tuple[int, int, int], Buffer],
        widened: list[Buffer],
    ) -> Iterator[Stmt]:
        """A term of all elements, added to one part of their sums."""
        for b, wide in enumerate(widened):
            at = T.add(chunk, T.const(b))

            def widen(n: Scalar, wide: Buffer = wide, at: Scalar = at) -> Stmt:
                return store(wide, T.cast(load(self.weight, at, term, n), "float32"), n)

            yield self._vector(widen)
        for (r, b, p), total in sums.items():
            if p == part:
                left = load(self.data, T.add(row, T.const(r)), term)

                def add(n: Scalar, total: Buffer = total, wide: Buffer = widened[b], left: Scalar = left) -> Stmt:
                    return store(total, T.add(load(total, n), T.mul(left, load(wide, n))), n)

                yield self._vector(add)


def _added(total: Buffer, part: Buffer, n: Scalar) -> Stmt:
    return store(total, T.add(load(total, n), load(part, n)), n)


def _sample(dtype: str, count: int, inner: int, units: int, rows: int, blocks: int) -> Sample:
    weight = drawn(dtype, -(-units // 16), inner, 16)
    attrs = NarrowProductAttrs(units, rows, blocks)
    return Sample(attrs, (f32(count, inner), weight), rtol=1e-5, atol=1e-5)


@narrow_product.samples
def _samples() -> Iterator[Sample]:
    yield _sample("float16", 1, 64, 40, 12, 1)
    yield _sample("bfloat16", 3, 37, 48, 12, 2)
    yield _sample("bfloat16", 14, 24, 33, 6, 2)


@narrow_product.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample("float16", 1, 64, 40, 12, 1)
    yield BadSample(NarrowProductAttrs(49), good.inputs, "49 units of 48")
