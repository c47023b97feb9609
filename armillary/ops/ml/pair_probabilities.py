"""ml.pair_probabilities: probabilities of classes from those of each pair of them (Wu, Lin and Weng, 2004).

In: (rows, pairs): for each pair of classes i < j, in order, the probability of i where only those two could be. Out:
(rows, classes), which add up to 1. Invariant: the second method of the paper, solved as libsvm does: at most a hundred
sweeps, until no condition is violated by more than 0.005 divided by the number of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import Index, load, loop, rows, scratch, store
from armillary.ops.nn._windows import Tensor, f32, need_float, need_rank, wide, widened_call
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer, Stmt

NAME = "ml.pair_probabilities"
SWEEPS, TOLERANCE = 100, 0.005


@record
class PairProbabilitiesAttrs:
    classes: int = 2


pair_probabilities = Op(NAME, kind=Kind.OPAQUE, doc="Probabilities of classes from those of each pair of them.")
pair_probabilities.attrs(PairProbabilitiesAttrs)
pair_probabilities.decompose(partial(widened_call, pair_probabilities))


@pair_probabilities.infer
def _infer(attrs: PairProbabilitiesAttrs, data: Type) -> TensorType:
    x, classes = need_float(NAME, need_rank(NAME, data, 2)), attrs.classes
    if classes < 2 or x.shape[1] != classes * (classes - 1) // 2:
        raise TypeMismatch(f"{NAME}: {x} for {classes} classes, wanted a column for each pair")
    return TensorType((x.shape[0], classes), x.dtype)


@pair_probabilities.reference
def _reference(attrs: PairProbabilitiesAttrs, data: Array) -> Array:
    classes, x = attrs.classes, wide(data)  # sweeps in half lose the last condition
    real, out = x.dtype.type, np.empty((len(x), classes), data.dtype)
    upper = np.triu_indices(classes, 1)
    for row, pairs in zip(out, x, strict=True):
        against = np.zeros((classes, classes), x.dtype)  # against[i, j]: of i where it is i or j
        against[upper] = pairs
        against.T[upper] = 1 - pairs
        q = -against.T * against
        np.fill_diagonal(q, (against.T * against.T).sum(1))
        p = np.full(classes, 1 / classes, x.dtype)
        for _ in range(SWEEPS):
            slope = q @ p
            value = p @ slope
            if np.abs(slope - value).max() < real(TOLERANCE / classes):
                break
            for i in range(classes):
                step = (value - slope[i]) / q[i, i]
                p[i] += step
                value = (value + step * (step * q[i, i] + 2 * slope[i])) / (1 + step) / (1 + step)
                slope = (slope + step * q[i]) / (1 + step)
                p /= 1 + step
        row[:] = p
    return out


@pair_probabilities.compute
def _compute(attrs: PairProbabilitiesAttrs, data: Tensor) -> Tensor:
    count, classes, dtype = te.extents(data)[0], attrs.classes, str(data.dtype)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return rows([count], lambda at: _row(ins[0], outs[0], at[0], classes, dtype))

    result: Tensor = te.extern([(count, classes)], [data], body, name="pair_probabilities", dtype=[dtype])
    return result


def _conditions(data: Buffer, q: Buffer, row: Index, classes: int, dtype: str) -> Stmt:
    """The matrix of the conditions of a row."""
    one = T.const(1.0, dtype)

    def at(i: int, j: int) -> Index:
        return T.const(i * classes + j)

    steps = [store(q, 0, at(i, i)) for i in range(classes)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    for k, (i, j) in enumerate(pairs):
        of_i = load(data, row, k)
        of_j = one - of_i
        for a, b, against in ((i, j, of_j), (j, i, of_i)):
            steps.append(store(q, T.const(0.0, dtype) - of_i * of_j, at(a, b)))
            steps.append(store(q, load(q, at(a, a)) + against * against, at(a, a)))
    return S.seq(*steps)


def _row(data: Buffer, out: Buffer, row: Index, classes: int, dtype: str) -> Stmt:
    q, slope = scratch("q", classes * classes, dtype), scratch("slope", classes, dtype)
    numbers, done = scratch("numbers", 3, dtype, "local"), scratch("done", 1, "int32", "local")
    value, step, worst = range(3)

    def one(number: float) -> Index:
        return T.const(number, dtype)

    def each(name: str, body: object) -> Stmt:
        return loop(name, classes, body)  # type: ignore[arg-type]  # a function of the class

    def at(i: Index, j: Index) -> Index:
        return T.add(T.mul(i, classes), j)

    def known(name: int) -> Index:
        return load(numbers, name)

    def measure(i: Index) -> Stmt:
        add = each("j", lambda j: store(slope, load(slope, i) + load(q, at(i, j)) * load(out, row, j), i))
        return S.seq(
            store(slope, one(0), i), add, store(numbers, known(value) + load(out, row, i) * load(slope, i), value)
        )

    def check(i: Index) -> Stmt:
        off = load(slope, i) - known(value)
        return store(numbers, T.maximum(known(worst), T.maximum(off, one(0) - off)), worst)

    def improve(i: Index) -> Stmt:
        scale = one(1) + known(step)
        own, slant = load(q, at(i, i)), load(slope, i)
        moved = known(value) + known(step) * (known(step) * own + one(2) * slant)
        return S.seq(
            store(numbers, (known(value) - slant) / own, step),
            store(out, load(out, row, i) + known(step), row, i),
            store(numbers, moved / scale / scale, value),
            each("j", lambda j: store(slope, (load(slope, j) + known(step) * load(q, at(i, j))) / scale, j)),
            each("j", lambda j: store(out, load(out, row, j) / scale, row, j)),
        )

    def sweep(_: Index) -> Stmt:
        begin = S.seq(
            store(numbers, one(0), value), store(numbers, one(0), worst), each("i", measure), each("i", check)
        )
        ends = T.less(known(worst), one(TOLERANCE / classes))
        rest = S.IfThenElse(ends, store(done, 1, 0), each("i", improve))
        return S.IfThenElse(T.equal(load(done, 0), 0), S.seq(begin, rest))

    begin = _conditions(data, q, row, classes, dtype)
    even = each("i", lambda i: store(out, one(1 / classes), row, i))
    result: Stmt = S.seq(store(done, 0, 0), begin, even, loop("sweep", SWEEPS, sweep))
    for buffer in (q, slope, numbers, done):
        result = S.Allocate(buffer, result)
    return result


@pair_probabilities.samples
def _samples() -> Iterator[Sample]:
    yield Sample(PairProbabilitiesAttrs(2), (f32(5, 1),), (0.05, 0.95))
    yield Sample(PairProbabilitiesAttrs(4), (f32(3, 6),), (0.05, 0.95), rtol=1e-4)


@pair_probabilities.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(PairProbabilitiesAttrs(3), (f32(5, 2),), "wanted a column for each pair")
