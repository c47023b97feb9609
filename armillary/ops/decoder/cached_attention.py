"""nn.cached_attention, its masked and its quantized form: attention over the part of caches that the data says.

In: query (batch, rows, heads, features); key (batch, groups, capacity, features) and value (batch, groups, capacity,
e), each read by heads / groups neighbouring heads; start (batch,): the position of the first row; total (batch,): how
many positions of the caches count; sinks (heads,): a score per head that takes weight and has no value (-inf: none);
the mask (1 or batch, 1 or heads, rows, positions) is added to the scores; caches of integers have a scale for each row
(batch, groups, capacity, 1), those of floats may be narrower than the query. Out: (batch, rows, heads, e). Row t sees
the positions below total[b]; with `causal` none behind start[b] + t; with a window of w only the last w of those.
Scores are scale * q k, through softcap * tanh(score / softcap) where that is given. Invariant: a row that sees nothing
is 0; time follows the positions that count, not the capacity. Writing: cache_update.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import E, S, T, te
from armillary.ops._loops import load, loop, rows, scratch, store
from armillary.ops.decoder.cache_update import check_starts
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_float,
    need_rank,
    need_shape,
    need_tensor,
    same_dim,
    tensor,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

PLAIN, MASKED = "nn.cached_attention", "nn.cached_masked_attention"
QUANTIZED = "nn.cached_quantized_attention"
KEYS = 16  # positions whose scores are computed together
MOST_SUMS = 16  # vectors of a result that are in registers at once
Element: TypeAlias = "Callable[[Scalar], Scalar]"


@record
class CachedAttentionAttrs:
    """`window` 0: as far back as the cache goes; `softcap` 0: none."""

    scale: float = 1.0
    causal: bool = True
    window: int = 0
    softcap: float = 0.0


_INPUTS = ("query", "key", "value", "start", "total", "sinks")
cached_attention = Op(PLAIN, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Attention over the part of caches that counts.")
cached_masked_attention = Op(
    MASKED, kind=Kind.OPAQUE, inputs=(*_INPUTS, "mask"), doc="nn.cached_attention with a mask that is added to scores."
)
cached_quantized_attention = Op(
    QUANTIZED,
    kind=Kind.OPAQUE,
    inputs=(*_INPUTS, "key_scale", "value_scale"),
    doc="nn.cached_attention over caches of int8 with a scale for each row.",
)


def _infer(name: str, attrs: CachedAttentionAttrs, *types: Type) -> TensorType:
    q = need_float(name, need_rank(name, types[0], 4, "query"), "query")
    k, v = need_rank(name, types[1], 4, "key"), need_rank(name, types[2], 4, "value")
    need_dtype(name, k, v)
    if name == QUANTIZED:
        need_dtype(name, k, tensor("int8"))
    else:
        need_float(name, k, "key")
    batch, count, heads, features = q.shape
    groups, capacity, e = k.shape[1], k.shape[2], v.shape[3]
    if not all(isinstance(n, int) for n in (heads, features, groups, capacity, e)):
        message = f"query {q}, key {k} and value {v}: only the batch and the rows may be open"
        raise TypeMismatch(f"{name}: {message}", hint="fix the other sizes: shape=")
    need_shape(name, "key", k, (batch, groups, capacity, features))
    need_shape(name, "value", v, (batch, groups, capacity, e))
    if not groups or heads % groups:
        raise TypeMismatch(f"{name}: {heads} heads cannot be divided among {groups} groups of keys")
    if attrs.window < 0 or attrs.softcap < 0:
        raise TypeMismatch(f"{name}: window {attrs.window} and softcap {attrs.softcap}: wanted 0 or more")
    for ty, what in zip(types[3:5], _INPUTS[3:5], strict=True):
        check_starts(name, ty, q, what)
    need_shape(name, "sinks", need_float(name, need_tensor(name, types[5], "sinks"), "sinks"), (heads,))
    if name == QUANTIZED:
        for ty, what in zip(types[6:], ("key_scale", "value_scale"), strict=True):
            held = need_float(name, need_rank(name, ty, 4, what), what)
            need_shape(name, what, held, (batch, groups, capacity, 1))
    if name == MASKED:
        m = need_float(name, need_rank(name, types[6], 4, "mask"), "mask")
        fits = all(have == 1 or same_dim(have, want) for have, want in zip(m.shape, (batch, heads, count)))
        if not fits or not m.shape[3]:
            raise TypeMismatch(f"{name}: mask {m} does not broadcast to {(batch, heads, count, 'positions')}")
    return TensorType((batch, count, heads, e), q.dtype)


cached_attention.infer(lambda attrs, *types: _infer(PLAIN, attrs, *types))
cached_masked_attention.infer(lambda attrs, *types: _infer(MASKED, attrs, *types))
cached_quantized_attention.infer(lambda attrs, *types: _infer(QUANTIZED, attrs, *types))


def _reference(attrs: CachedAttentionAttrs, *inputs: Array) -> Array:
    query, key, value, start, total, sinks = inputs[:6]
    q, k, v = wide(query), wide(key), wide(value)
    if len(inputs) == 8:
        k, v = (x.astype(np.float32) * wide(scale) for x, scale in ((k, inputs[6]), (v, inputs[7])))
    (batch, count, heads, _), (groups, capacity) = q.shape, k.shape[1:3]
    result = np.zeros((batch, count, heads, v.shape[3]), q.dtype)
    mask = None
    if len(inputs) == 7:
        mask = np.broadcast_to(wide(inputs[6]), (batch, heads, count, inputs[6].shape[3]))
    for b, t, h in np.ndindex(batch, count, heads):
        place = int(start[b]) + t
        end = max(0, min(int(total[b]), capacity, *((place + 1,) if attrs.causal else ())))
        begin = max(0, place - attrs.window + 1) if attrs.window else 0
        if mask is not None:
            end = min(end, mask.shape[3])
        if begin >= end:
            continue
        group = h * groups // heads
        scores = k[b, group, begin:end] @ q[b, t, h] * q.dtype.type(attrs.scale)
        scores = attrs.softcap * np.tanh(scores / attrs.softcap) if attrs.softcap else scores
        scores = scores if mask is None else scores + mask[b, h, t, begin:end]
        top = max(scores.max(), float(sinks[h]))
        if top == -np.inf:
            continue
        powers = np.exp(scores - top)
        result[b, t, h] = powers @ v[b, group, begin:end] / (powers.sum() + np.exp(float(sinks[h]) - top))
    return result.astype(query.dtype)


@record
class _Sizes:
    """Batch, rows, heads, features of keys, groups, capacity, features of values; lanes of a vector; type of sums."""

    b: Known
    t: Known
    h: int
    d: int
    g: int
    n: int
    e: int
    lanes: int
    inner: str


def _compute(attrs: CachedAttentionAttrs, *inputs: Tensor) -> Tensor:
    (b, t, *own), (_, *caches), (*_, last) = (te.extents(x) for x in inputs[:3])
    h, d, g, n, e = (size for size in (*own, *caches[:2], last) if isinstance(size, int))  # as inference has checked
    lanes = next(x for x in (16, 8, 4, 2, 1) if d % x == 0 and e % x == 0)
    inner = "float32" if inputs[0].dtype.bits < 32 else str(inputs[0].dtype)
    size = _Sizes(b, t, h, d, g, n, e, lanes, inner)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return rows((b, g, t), lambda at: _Row(attrs, size, ins, outs[0], at).statement())

    result: Tensor = te.extern([(b, t, h, e)], list(inputs), body, name="cached_attention", dtype=[inputs[0].dtype])
    return result


def _vector(lanes: int, body: Callable[[Scalar], Stmt]) -> Stmt:
    return loop("n", lanes, body, S.LoopKind.VECTORIZED)


class _Row:
    """The statement for one row of a sequence and the heads that share a group of keys."""

    def __init__(
        self, attrs: CachedAttentionAttrs, size: _Sizes, ins: list[Buffer], out: Buffer, at: list[Scalar]
    ) -> None:
        self.attrs, self.size, self.ins, self.out = attrs, size, ins, out
        self.mask = ins[6] if len(ins) == 7 else None
        self.scales = ins[6:] if len(ins) == 8 else None
        self.b, self.group, self.t = at
        self.shared = size.h // size.g
        self.blocks = -(-size.n // KEYS)
        self.scores = scratch("scores", self.shared * self.blocks * KEYS, size.inner)
        self.totals = scratch("totals", self.shared, size.inner)
        self.begin, self.end = E.Var("begin", DType("int32")), E.Var("end", DType("int32"))
        self.first, self.count = E.Var("first", DType("int32")), E.Var("count", DType("int32"))

    def statement(self) -> Stmt:
        """Bounds, scores, their exponentials, the mix of values."""
        keys = T.const(KEYS)
        steps = S.seq(
            *(loop("block", self.count, partial(self._scores, h)) for h in range(self.shared)),
            *(self._powers(h) for h in range(self.shared)),
            self._mixes(),
        )
        body = S.LetStmt(self.first, T.floordiv(self.begin, keys), self._counted(steps))
        body = S.LetStmt(self.begin, self._begin(), body)
        return S.Allocate(self.scores, S.Allocate(self.totals, S.LetStmt(self.end, self._end(), body)))

    def _counted(self, body: Stmt) -> Stmt:
        """The number of blocks that count, none where the row sees nothing."""
        last = T.floordiv(T.add(self.end, T.const(KEYS - 1)), T.const(KEYS))
        return S.LetStmt(self.count, T.maximum(T.sub(last, self.first), T.const(0)), body)

    def _place(self) -> Scalar:
        return T.add(T.cast(load(self.ins[3], self.b), "int32"), self.t)

    def _end(self) -> Scalar:
        limit = self.size.n
        if self.mask is not None:
            limit = min(limit, _sizes(self.mask)[3])
        end = T.minimum(T.cast(load(self.ins[4], self.b), "int32"), T.const(limit))
        if self.attrs.causal:
            end = T.minimum(end, T.add(self._place(), T.const(1)))
        return T.maximum(end, T.const(0))

    def _begin(self) -> Scalar:
        if not self.attrs.window:
            return T.const(0)
        return T.maximum(T.add(self._place(), T.const(1 - self.attrs.window)), T.const(0))

    def _head(self, h: int) -> Scalar:
        return T.add(T.mul(self.group, T.const(self.shared)), T.const(h))

    def _wide(self, buffer: Buffer, *index: Scalar) -> Scalar:
        value = load(buffer, *index)
        return value if str(value.dtype) == self.size.inner else T.cast(value, self.size.inner)

    def _scores(self, h: int, block: Scalar) -> Stmt:
        """The scores of a head for a block of positions, -inf for those that are not seen."""
        first = T.mul(T.add(block, self.first), T.const(KEYS))
        sums = scratch("sums", self.size.lanes, self.size.inner, "local")

        def score(j: Scalar) -> Stmt:
            key = T.add(first, j)
            row = T.minimum(key, T.const(self.size.n - 1))
            seen = T.all_of(T.greater_equal(key, self.begin), T.less(key, self.end))
            value = T.select(seen, self._adjusted(h, row, load(sums, 0)), T.const(-math.inf, self.size.inner))
            place = T.add(T.mul(block, T.const(KEYS)), T.add(j, T.const(h * self.blocks * KEYS)))
            return S.Allocate(sums, S.seq(*self._dot(h, row, sums), store(self.scores, value, place)))

        return loop("j", KEYS, score)

    def _dot(self, h: int, row: Scalar, sums: Buffer) -> Iterator[Stmt]:
        """q k into the first element of `sums`: a vector of partial sums, then its halves."""
        lanes, head = self.size.lanes, self._head(h)

        def partial(n: Scalar) -> Stmt:
            total = None
            for v in range(self.size.d // lanes):
                at = T.add(n, T.const(v * lanes))
                q = self._wide(self.ins[0], self.b, self.t, head, at)
                term = T.mul(q, self._wide(self.ins[1], self.b, self.group, row, at))
                total = term if total is None else T.add(total, term)
            assert total is not None, "a head has features"
            return store(sums, total, n)

        yield _vector(lanes, partial)
        yield from folded(sums, lanes, T.add)

    def _scaled(self, which: int, row: Scalar, value: Scalar) -> Scalar:
        """A sum over a row of the keys' cache (0), or a factor of one of the values' (1), times the row's scale."""
        if self.scales is None:
            return value
        return T.mul(value, self._wide(self.scales[which], self.b, self.group, row, T.const(0)))

    def _adjusted(self, h: int, row: Scalar, score: Scalar) -> Scalar:
        inner, cap = self.size.inner, self.attrs.softcap
        score = self._scaled(0, row, score)
        score = T.mul(score, T.const(self.attrs.scale, inner))
        if cap:
            score = T.mul(te.tanh(T.div(score, T.const(cap, inner))), T.const(cap, inner))
        mask = self.mask
        if mask is None:
            return score
        sizes = _sizes(mask)
        place = T.minimum(row, T.const(sizes[3] - 1))
        at = [T.const(0) if n == 1 else i for n, i in zip(sizes, (self.b, self._head(h), self.t), strict=False)]
        return T.add(score, self._wide(mask, *at, place))

    def _powers(self, h: int) -> Stmt:
        """exp(score - greatest) in place of the scores, and their sum with the sink's.

        Subnormal ones are 0: each product with one would hold the processor up.
        """
        inner, base = self.size.inner, h * self.blocks * KEYS
        top, sums = (scratch(name, KEYS, inner, "local") for name in ("top", "sums"))
        sink = self._wide(self.ins[5], self._head(h))
        zero, lowest = T.const(0.0, inner), T.const(-math.inf, inner)

        def place(block: Scalar, n: Scalar) -> Scalar:
            return T.add(T.mul(block, T.const(KEYS)), T.add(n, T.const(base)))

        def met(block: Scalar) -> Stmt:
            return _vector(KEYS, lambda n: store(top, greater(load(self.scores, place(block, n)), load(top, n)), n))

        def raised(block: Scalar) -> Stmt:
            def element(n: Scalar) -> Stmt:
                return store(
                    self.scores,
                    te.exp_flushed(T.sub(load(self.scores, place(block, n)), load(top, 0))),
                    place(block, n),
                )

            def summed(n: Scalar) -> Stmt:
                return store(sums, T.add(load(sums, n), load(self.scores, place(block, n))), n)

            return S.seq(_vector(KEYS, element), _vector(KEYS, summed))

        greatest = greater(load(top, 0), sink)
        share = te.exp_flushed(T.sub(sink, load(top, 0)))
        steps = S.seq(
            _vector(KEYS, lambda n: store(top, lowest, n)),
            loop("block", self.count, met),
            *folded(top, KEYS, greater),
            store(top, T.select(T.greater(greatest, lowest), greatest, zero), 0),
            _vector(KEYS, lambda n: store(sums, zero, n)),
            loop("block", self.count, raised),
            *folded(sums, KEYS, T.add),
            store(self.totals, T.add(load(sums, 0), share), h),
        )
        return S.Allocate(top, S.Allocate(sums, steps))

    def _mixes(self) -> Stmt:
        """The results of all heads, as many at a time as registers hold sums of."""
        vectors = self.size.e // self.size.lanes
        heads = max(1, MOST_SUMS // vectors)
        each = min(vectors, MOST_SUMS)
        return S.seq(
            *(
                self._mix(range(h, min(h + heads, self.shared)), range(v, min(v + each, vectors)))
                for h in range(0, self.shared, heads)
                for v in range(0, vectors, each)
            )
        )

    def _mix(self, heads: Sequence[int], vectors: Sequence[int]) -> Stmt:
        """Some vectors of the results of some heads."""
        lanes, inner = self.size.lanes, self.size.inner
        pairs = [(h, v) for h in heads for v in vectors]
        sums = [scratch(f"sum{k}", lanes, inner, "local") for k in range(len(pairs))]
        zero = T.const(0.0, inner)

        def add(key: Scalar) -> Stmt:
            row = T.add(key, self.begin)
            place = T.sub(row, T.mul(self.first, T.const(KEYS)))

            def element(k: int, h: int, v: int) -> Stmt:
                power = self._scaled(1, row, load(self.scores, T.add(place, T.const(h * self.blocks * KEYS))))

                def lane(n: Scalar) -> Stmt:
                    value = self._wide(self.ins[2], self.b, self.group, row, T.add(n, T.const(v * lanes)))
                    return store(sums[k], T.add(load(sums[k], n), T.mul(power, value)), n)

                return _vector(lanes, lane)

            return S.seq(*(element(k, h, v) for k, (h, v) in enumerate(pairs)))

        def result(k: int, h: int, v: int) -> Stmt:
            total = load(self.totals, h)

            def lane(n: Scalar) -> Stmt:
                value = T.select(T.equal(total, zero), zero, T.div(load(sums[k], n), total))
                return store(self.out, value, self.b, self.t, self._head(h), T.add(n, T.const(v * lanes)))

            return _vector(lanes, lane)

        steps = S.seq(
            *(_vector(lanes, partial(store, buffer, zero)) for buffer in sums),
            loop("key", T.maximum(T.sub(self.end, self.begin), T.const(0)), add),
            *(result(k, h, v) for k, (h, v) in enumerate(pairs)),
        )
        for buffer in sums:
            steps = S.Allocate(buffer, steps)
        return steps


def _sizes(buffer: Buffer) -> list[int]:
    return [T.as_int(size) or 0 for size in buffer.shape]


def greater(x: Scalar, y: Scalar) -> Scalar:
    """The greater one; what is no number is lost here and comes back by the sum of exponentials."""
    return T.select(T.greater(x, y), x, y)


def folded(buffer: Buffer, lanes: int, combine: Callable[[Scalar, Scalar], Scalar]) -> Iterator[Stmt]:
    """All elements combined in the first one, by halves."""
    while lanes > 1:
        lanes //= 2

        def half(n: Scalar, width: int = lanes) -> Stmt:
            return store(buffer, combine(load(buffer, n), load(buffer, T.add(n, T.const(width)))), n)

        yield _vector(lanes, half) if lanes > 1 else half(T.const(0))


def _samples(is_masked: bool) -> Iterator[Sample]:
    none = np.full(4, -np.inf, np.float32)
    cache, i32 = (f32(2, 2, 37, 16), f32(2, 2, 37, 16)), np.int32
    places = np.array([5, 33], i32), np.array([8, 36], i32)
    mask = (f32(1, 4, 3, 37),) if is_masked else ()
    yield Sample(CachedAttentionAttrs(0.5), (f32(2, 3, 4, 16), *cache, *places, none, *mask))
    some = np.array([0.5, -np.inf, 1.0, 2.0], np.float32)
    limited = CachedAttentionAttrs(0.25, window=7, softcap=3.0)
    yield Sample(limited, (f32(2, 3, 4, 16), *cache, *places, some, *mask))
    mask = (f32(1, 1, 1, 9),) if is_masked else ()
    small = f32(1, 2, 6, 12), f32(1, 1, 9, 12), f32(1, 1, 9, 20), np.array([0], i32), np.array([0], i32)
    sinks = np.full(6, -np.inf, np.float32)
    yield Sample(CachedAttentionAttrs(causal=False), (*small, sinks, *mask))
    halves = tensor("float16", 1, 1, 2, 8), tensor("float16", 1, 1, 5, 8), tensor("float16", 1, 1, 5, 8)
    mask = (f32(1, 1, 1, 5),) if is_masked else ()
    whole = np.array([4], np.int64), np.array([5], np.int64)
    yield Sample(CachedAttentionAttrs(), (*halves, *whole, np.zeros(2, np.float32), *mask), rtol=0.01, atol=0.01)


def _bad_samples(is_masked: bool) -> Iterator[BadSample]:
    mask = (f32(1, 4, 3, 37),) if is_masked else ()
    cache, places = (f32(2, 2, 37, 16), f32(2, 2, 37, 16)), (tensor("int32", 2), tensor("int32", 2))
    attrs, query = CachedAttentionAttrs(), f32(2, 3, 4, 16)
    yield BadSample(attrs, (f32(2, 3, 3, 16), *cache, *places, f32(3), *mask), "3 heads cannot be divided among 2")
    yield BadSample(attrs, (f32(2, 3, 4, 8), *cache, *places, f32(4), *mask), "key has shape")
    yield BadSample(attrs, (query, *cache, tensor("int32", 1), places[1], f32(4), *mask), "start has shape")
    yield BadSample(CachedAttentionAttrs(window=-1), (query, *cache, *places, f32(4), *mask), "window -1")
    if is_masked:
        yield BadSample(attrs, (query, *cache, *places, f32(4), f32(1, 3, 3, 37)), "does not broadcast")


def _quantized_samples() -> Iterator[Sample]:
    places, none = (np.array([5, 33], np.int32), np.array([8, 36], np.int32)), np.full(4, -np.inf, np.float32)
    cache, scales = (tensor("int8", 2, 2, 37, 16),) * 2, (f32(2, 2, 37, 1),) * 2
    yield Sample(CachedAttentionAttrs(0.01), (f32(2, 3, 4, 16), *cache, *places, none, *scales))
    limited = CachedAttentionAttrs(0.01, window=7, softcap=3.0)
    yield Sample(limited, (f32(2, 3, 4, 16), *cache, *places, none, *scales))


def _bad_quantized_samples() -> Iterator[BadSample]:
    cache, rest = (tensor("int8", 2, 2, 37, 16),) * 2, (tensor("int32", 2), tensor("int32", 2), f32(4))
    attrs, query, scale = CachedAttentionAttrs(), f32(2, 3, 4, 16), f32(2, 2, 37, 1)
    yield BadSample(attrs, (query, f32(2, 2, 37, 16), f32(2, 2, 37, 16), *rest, scale, scale), "the dtypes differ")
    yield BadSample(attrs, (query, *cache, *rest, f32(2, 2, 36, 1), scale), "key_scale has shape")


for _op in (cached_attention, cached_masked_attention, cached_quantized_attention):
    _op.attrs(CachedAttentionAttrs)
    _op.reference(_reference)
    _op.compute(_compute)
for _op, _masked in ((cached_attention, False), (cached_masked_attention, True)):
    _op.samples(partial(_samples, _masked))
    _op.bad_samples(partial(_bad_samples, _masked))
cached_quantized_attention.samples(_quantized_samples)
cached_quantized_attention.bad_samples(_bad_quantized_samples)
state(f"{PLAIN} {MASKED} {QUANTIZED}", Fact.READS_NARROW)
