"""cpu.narrow_tiles: the product of nn.narrow_dense for many rows, by matrix tiles of bfloat16 (AMX).

In: data of cpu.bfloat16_parts (row_parts.py); weight (units / lanes, inner, lanes), float16 or bfloat16, as a step for
few rows reads it (operator_narrow.py). Out: float32 (rows, units). A bfloat16 is one part as it is; a float16 is two,
or one that is rounded where the data has one part. Data of three parts is as good as float32. Invariant: weights are
put in the order of tiles for a slice of the terms at a time (tile_panels.py). Where there are no tiles, plain loops
compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.backends.cpu.gemm.low_bit.operator import by_units
from armillary.backends.cpu.gemm.low_bit.operator_tiles import rows_and_terms, term_in_loops, untiled
from armillary.backends.cpu.gemm.low_bit.row_parts import HIGH, MOST_PARTS, PartsAttrs, bfloat16_parts, bits_of_part
from armillary.backends.cpu.gemm.low_bit.tile_panels import DEEP, LANES, PanelSizes, TilePanels, has_tiles, requests
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, loop, store
from armillary.ops.decoder.narrow_dense import TYPES, drawn
from armillary.ops.nn._windows import Tensor, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type
from armillary.target import Target

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "cpu.narrow_tiles"


@record
class NarrowTilesAttrs:
    """Rows and units of the result."""

    rows: int = 0
    units: int = 0


narrow_tiles = Op(NAME, kind=Kind.OPAQUE, inputs=("data", "weight"), doc="16-bit floats times rows, by tiles.")
narrow_tiles.attrs(NarrowTilesAttrs)


@narrow_tiles.infer
def _infer(attrs: NarrowTilesAttrs, data: Type, weight: Type) -> TensorType:
    x, w = need_rank(NAME, data, 5, "data"), need_rank(NAME, weight, 3, "weight")
    whole, inner = rows_and_terms(x.static)
    outer, terms, lanes = w.static
    if str(x.dtype) != "uint16" or str(w.dtype) not in TYPES or lanes != LANES or terms != inner:
        raise TypeMismatch(f"{NAME}: data {x} and weight {w}")
    if not (whole - LANES < attrs.rows <= whole and 0 < attrs.units <= outer * lanes):
        raise TypeMismatch(f"{NAME}: {attrs.rows} rows of {whole} and {attrs.units} units of {outer * lanes}")
    return TensorType((attrs.rows, attrs.units), DType("float32"))


@narrow_tiles.reference
def _reference(attrs: NarrowTilesAttrs, data: Array, weight: Array) -> Array:
    real = by_units(weight).astype(np.float64)[: attrs.units]
    result: Array = (untiled(data)[: attrs.rows] @ real.T).astype(np.float32)
    return result


@narrow_tiles.compute
def _compute(attrs: NarrowTilesAttrs, data: Tensor, weight: Tensor) -> Tensor:
    parts, (_, inner) = te.static_shape(data)[0], rows_and_terms(te.static_shape(data))
    if not has_tiles(Target.current() or Target("llvm")):
        k = te.reduce_axis((0, inner), name="k")

        def element(i: te.Expr, u: te.Expr) -> te.Expr:
            value = weight(u // LANES, k, u % LANES).astype("float32")
            return te.sum(term_in_loops(data, parts, i, k) * value, axis=[k])

        plain: Tensor = te.compute((attrs.rows, attrs.units), element, name="narrow_tiles", tag="dense")
        return plain
    is_exact = str(weight.dtype) == "bfloat16" or parts == 1
    sizes = PanelSizes(attrs.rows, attrs.units, inner, (parts, 1 if is_exact else 2), DEEP)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        panels = TilePanels(sizes, ins[0], outs[0])
        return panels.statement(partial(_expand, panels, ins[1]))

    shape = (attrs.rows, attrs.units)
    result: Tensor = te.extern([shape], [data, weight], body, name="narrow_tiles", dtype=["float32"])
    return result


def _expand(panels: TilePanels, weight: Buffer, into: Buffer, sixteen: Scalar, column: Scalar, first: Scalar) -> Stmt:
    """Some terms of sixteen units as bfloat16, two of a unit side by side."""
    parts, inside = panels.sizes.parts[1], T.floormod(first, T.const(panels.sizes.slice))

    def bits(n: Scalar, term: int, part: int) -> Scalar:
        """The bits of a part, in the upper half of 32."""
        value = load(weight, sixteen, T.add(first, T.const(term)), n)
        return bits_of_part(T.cast(value, "float32"), part, parts, "uint32")

    def stored(term: int, part: int) -> Stmt:
        place = panels.place_of(part, column, T.add(inside, T.const(term)))

        def lane(n: Scalar) -> Stmt:
            low = T.shift_right(bits(n, term, part), T.const(16, "uint32"))
            value = T.bitwise_or(low, T.bitwise_and(bits(n, term + 1, part), T.const(HIGH, "uint32")))
            return store(into, value, T.add(place, n))

        return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

    lines = requests(weight, sixteen, first, panels.sizes.step, 2)
    return S.seq(*lines, *(stored(term, part) for term in range(0, panels.sizes.step, 2) for part in range(parts)))


def _sample(dtype: str, count: int, inner: int, units: int, parts: int) -> Sample:
    data = np.random.default_rng(units).standard_normal((count, inner)).astype(np.float32)
    x = bfloat16_parts.evaluate(PartsAttrs(parts), (data,))
    close = {1: 0.1, 2: 2e-4, MOST_PARTS: 2e-5}[parts]
    return Sample(NarrowTilesAttrs(count, units), (x, drawn(dtype, -(-units // 16), inner, 16)), rtol=close, atol=close)


@narrow_tiles.samples
def _samples() -> Iterator[Sample]:
    yield _sample("bfloat16", 32, 64, 64, 1)
    yield _sample("bfloat16", 19, 256, 35, 2)
    yield _sample("bfloat16", 50, 96, 48, 3)
    yield _sample("float16", 16, 64, 16, 1)
    yield _sample("float16", 33, 64, 40, 2)
    yield _sample("float16", 17, 128, 32, 3)


@narrow_tiles.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample("bfloat16", 32, 64, 64, 1)
    yield BadSample(NarrowTilesAttrs(33, 64), good.inputs, "33 rows of 32")
