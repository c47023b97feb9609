"""bounded_nonzero: where a tensor is not zero, in a result of the largest size.

In: one tensor of at least one axis. Out: int64 coordinates (axes, elements), in the order of the elements, a column for
each that is not zero and zeros behind them, and how many there are, (1,). The loops write the place of every element
where the next one found belongs and move on by one if it is not zero: no branch to mispredict, but for vectors that
hold none. The coordinates of a row are filled in when the row is done. Invariant: NaN is not zero, -0 is. ONNX's
NonZero, Compress and others that count on it: frontend/onnx/bounded.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known, bounds
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import LANES, Index, load, loop, nest, scratch, store
from armillary.ops._types import f32, of_type
from armillary.ops.reduce._order import allocate, lanes_sum, let
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.expr import Var
    from armillary.tir.stmt import Buffer, Stmt

NAME = "bounded_nonzero"
MOST = 2**31 - 1  # elements: places are counted in 32 bits
bounded_nonzero = Op(NAME, kind=Kind.OPAQUE, doc="Coordinates of what is not zero, zeros behind them, and the count.")


@bounded_nonzero.infer
def infer(attrs: None, data: Type) -> TupleType:
    if not isinstance(data, TensorType) or data.ndim < 1:
        raise TypeMismatch(f"{NAME}: got {data}, wanted a tensor of at least one axis")
    size = math.prod(data.known)
    if isinstance(size, int) and size > MOST:
        raise TypeMismatch(f"{NAME}: {data} has {size} elements, wanted at most {MOST}")
    places = DType("int64")
    return TupleType((TensorType((data.ndim, size), places), TensorType((1,), places)))


@bounded_nonzero.reference
def reference(attrs: None, data: Array) -> tuple[Array, Array]:
    coordinates, places = np.array(np.nonzero(data), np.int64), np.zeros((data.ndim, data.size), np.int64)
    places[:, : coordinates.shape[1]] = coordinates
    return places, np.array([coordinates.shape[1]], np.int64)


@bounded_nonzero.compute
def compute(attrs: None, data: te.Tensor) -> Any:  # Any: two tensors
    shape = te.extents(data)
    size = math.prod(shape)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (places, counted), count = outs, scratch("count", 1, "int32", "local")
        steps = [store(count, 0, 0)]
        if bounds(size)[1]:
            steps += [
                nest(shape[:-1], lambda row: _row(ins[0], places, count, row, shape[-1])),
                _zeros(places, count, size),
            ]
        return allocate([count], *steps, store(counted, load(count, 0), 0))

    return te.extern([(len(shape), size), (1,)], [data], body, name=NAME, dtype=["int64", "int64"])


def _is_nonzero(data: Buffer, *index: Index) -> Scalar:
    value = load(data, *index)
    return T.cast(value if str(data.dtype) == "bool" else T.not_equal(value, T.const(0, data.dtype)), "int32")


def _row(data: Buffer, places: Buffer, count: Buffer, row: list[Scalar], length: Known) -> Stmt:
    """What a row holds, along the last axis, and then along the others."""
    last, coordinates = len(row), scratch("found", LANES, "int32", "local")

    def offer(i: Scalar) -> Stmt:
        here = store(places, i, last, load(count, 0))
        return S.seq(here, store(count, T.add(load(count, 0), _is_nonzero(data, *row, i)), 0))

    def vector(v: Var) -> Stmt:
        def lane(n: Var) -> Stmt:
            return store(coordinates, _is_nonzero(data, *row, v * LANES + n), n)

        some = loop("n", LANES, lambda n: offer(v * LANES + n), S.LoopKind.UNROLLED)
        tested = S.IfThenElse(T.greater(lanes_sum(coordinates), 0), some)
        return allocate([coordinates], loop("n", LANES, lane, S.LoopKind.VECTORIZED), tested)

    def filled(before: Var) -> Stmt:
        more = T.sub(load(count, 0), before)

        def along(axis: int) -> Stmt:
            return loop("j", more, lambda j: store(places, row[axis], axis, T.add(before, j)))

        return S.seq(line, *map(along, range(last)))

    whole = length // LANES
    rest = length - whole * LANES
    tail = loop("i", rest, lambda i: offer(T.add(i, whole * LANES)))
    line = S.seq(*([loop("v", whole, vector)] if whole != 0 else []), *([tail] if rest != 0 else []))
    return let(load(count, 0), filled) if row else line


def _zeros(places: Buffer, count: Buffer, size: Known) -> Stmt:
    """Zeros behind what was found."""
    axes = int(places.shape[0].value)  # type: ignore[attr-defined]  # a number

    def behind(axis: int) -> Stmt:
        def from_here(begin: Var) -> Stmt:
            vectors = T.floordiv(T.sub(size, begin), LANES)
            done = T.add(begin, T.mul(vectors, LANES))
            by_vectors = loop(
                "v",
                vectors,
                lambda v: loop(
                    "n", LANES, lambda n: store(places, 0, axis, T.add(begin, v * LANES + n)), S.LoopKind.VECTORIZED
                ),
            )
            return S.seq(by_vectors, loop("j", T.sub(size, done), lambda j: store(places, 0, axis, T.add(done, j))))

        return let(load(count, 0), from_here)

    return S.seq(*map(behind, range(axes)))


@bounded_nonzero.samples
def samples() -> Iterator[Sample]:
    yield Sample(None, (np.array([0.0, -0.0, np.nan, 2, 0, -1], np.float32),))
    yield Sample(None, (of_type("bool", 3, 37),))
    yield Sample(None, (np.eye(5, 40, 3, np.int64),))
    yield Sample(None, (np.zeros((2, 3, 4), np.uint8),))
    yield Sample(None, (np.ones((2, 33), np.float32),))
    yield Sample(None, (f32(2, 0, 3),))


@bounded_nonzero.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(),), "at least one axis")
