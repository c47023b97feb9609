"""Attention of many rows over caches: blocks of keys go past the rows of a group, whose softmax is online.

In: a function anchored at nn.cached_attention, its masked or quantized form, with a fixed number of rows. Out: a
parallel loop over sequences, groups and blocks of rows. All heads of a group meet a block of keys, transposed once for
them, in register tiles of rows and lanes of keys; a row keeps the greatest score so far, and when that grows, its
sum and its mix of values shrink (online softmax). Invariant: scratch does not grow with the caches, and no inner loop
has a condition: a key that a row does not see has no weight. Values that no row of a block sees are not read. Fewer
rows: ops/decoder/cached_attention.py. Which blocks and tiles: cached_space.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from armillary import te
from armillary.backends.cpu.attention.cached_space import BlockPlan, block_plan
from armillary.backends.cpu.elementwise.default import schedule_default
from armillary.backends.registry import Fused, implement
from armillary.base.dtype import DType
from armillary.ops._loops import load, loop, rows, scratch, store
from armillary.ops.decoder.cached_attention import CachedAttentionAttrs, folded, greater
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S

FLOAT = "float32"  # of all that is computed
LOWEST, ZERO = T.const(-math.inf, FLOAT), T.const(0.0, FLOAT)


def _compute(attrs: CachedAttentionAttrs, *inputs: te.Tensor) -> te.Tensor:
    shapes = [te.static_shape(x) for x in inputs]
    plan = block_plan(shapes[0], shapes[1], shapes[2], cpu_model(Target.current() or Target("llvm")))

    def body(ins: list[S.Buffer], outs: list[S.Buffer]) -> S.Stmt:
        tasks = plan.batch, plan.groups, plan.blocks
        return rows(tasks, lambda at: _Block(attrs, plan, shapes, ins, outs[0], at).statement())

    shape = (*shapes[0][:3], plan.values)
    result: te.Tensor = te.extern([shape], list(inputs), body, name="cached_attention", dtype=[inputs[0].dtype])
    return result


@implement(
    "cached_attention_blocks",
    "cached_masked_attention_blocks",
    "cached_quantized_attention_blocks",
    family="cpu",
    compute=_compute,
)
def cached_attention_blocks(schedule: te.Schedule, fused: Fused) -> None:
    """The loops are written; what is fused with them has the default schedule."""
    schedule_default(schedule, fused)


class _Block:
    """The statement for a block of rows and the heads that share a group of keys: `lines`, a head of a row each."""

    def __init__(
        self,
        attrs: CachedAttentionAttrs,
        plan: BlockPlan,
        shapes: list[tuple[int, ...]],
        ins: list[S.Buffer],
        out: S.Buffer,
        at: list[E.Expr],
    ) -> None:
        self.attrs, self.plan, self.ins, self.out = attrs, plan, ins, out
        self.mask = ins[6] if len(ins) == 7 else None
        self.mask_shape = shapes[6] if len(ins) == 7 else ()
        self.scales = ins[6:] if len(ins) == 8 else None
        self.b, self.group, block = at
        self.start = T.mul(block, T.const(plan.rows))
        whole = plan.tiles * plan.height
        self.query = scratch("query", whole * plan.features, FLOAT)
        self.mix = scratch("mix", whole * plan.values, FLOAT)
        self.top, self.sums = scratch("top", whole, FLOAT), scratch("sums", whole * plan.lanes, FLOAT)
        self.keys = scratch("keys", plan.features * plan.keys, FLOAT)
        self.read = scratch("values", plan.keys * plan.values, FLOAT)
        self.scores, self.shrunk = scratch("scores", plan.height * plan.keys, FLOAT), scratch("by", plan.height, FLOAT)
        self.begin, self.end = E.Var("begin", DType("int32")), E.Var("end", DType("int32"))

    def statement(self) -> S.Stmt:
        """Rows are copied, blocks of keys go past them, results are divided and stored."""
        plan = self.plan
        first = T.floordiv(self.begin, T.const(plan.keys))
        last = T.floordiv(T.add(self.end, T.const(plan.keys - 1)), T.const(plan.keys))
        count = T.maximum(T.sub(last, first), T.const(0))
        steps = S.seq(
            loop("line", plan.tiles * plan.height, self._started),
            loop("block", count, lambda k: self._keys(T.mul(T.add(first, k), T.const(plan.keys)))),
            loop("line", plan.lines, self._stored),
        )
        last_row = T.minimum(T.add(self.start, T.const(plan.rows - 1)), T.const(plan.count - 1))
        steps = S.LetStmt(self.begin, self._begin(self.start), S.LetStmt(self.end, self._end(last_row), steps))
        for buffer in (self.query, self.mix, self.top, self.sums, self.keys, self.read, self.scores, self.shrunk):
            steps = S.Allocate(buffer, steps)
        return steps

    # ---- where a line is, and what it sees

    def _row(self, line: E.Expr) -> E.Expr:
        """The row of a line; behind the last one, that again."""
        row = T.add(self.start, T.floordiv(line, T.const(self.plan.shared)))
        return T.minimum(row, T.const(self.plan.count - 1))

    def _head(self, line: E.Expr) -> E.Expr:
        shared = T.const(self.plan.shared)
        return T.add(T.mul(self.group, shared), T.floormod(line, shared))

    def _place(self, row: E.Expr) -> E.Expr:
        return T.add(T.cast(load(self.ins[3], self.b), "int32"), row)

    def _end(self, row: E.Expr) -> E.Expr:
        limit = min((self.plan.capacity, *self.mask_shape[3:]))
        end = T.minimum(T.cast(load(self.ins[4], self.b), "int32"), T.const(limit))
        if self.attrs.causal:
            end = T.minimum(end, T.add(self._place(row), T.const(1)))
        return T.maximum(end, T.const(0))

    def _begin(self, row: E.Expr) -> E.Expr:
        if not self.attrs.window:
            return T.const(0)
        return T.maximum(T.add(self._place(row), T.const(1 - self.attrs.window)), T.const(0))

    # ---- what is copied

    def _vectors(self, count: int, body: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
        """`body` for elements of a row, by vectors where it is whole ones."""
        lanes = self.plan.lanes
        if count % lanes:
            return loop("i", count, body)

        def vector(v: E.Expr) -> S.Stmt:
            return self._vector(lambda n: body(T.add(T.mul(v, T.const(lanes)), n)))

        return loop("v", count // lanes, vector)

    def _vector(self, body: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
        return loop("n", self.plan.lanes, body, S.LoopKind.VECTORIZED)

    def _started(self, line: E.Expr) -> S.Stmt:
        """A scaled row of the query, and a softmax that has met the sink alone."""
        plan, head = self.plan, self._head(line)
        sink = _float(load(self.ins[5], head))
        share = T.select(T.equal(sink, LOWEST), ZERO, T.const(1.0, FLOAT))

        def copied(d: E.Expr) -> S.Stmt:
            value = T.mul(_float(load(self.ins[0], self.b, self._row(line), head, d)), T.const(self.attrs.scale, FLOAT))
            return store(self.query, value, T.add(T.mul(line, T.const(plan.features)), d))

        return S.seq(
            self._vectors(plan.features, copied),
            self._vectors(plan.values, lambda n: store(self.mix, ZERO, T.add(T.mul(line, T.const(plan.values)), n))),
            self._vector(lambda n: store(self.sums, ZERO, T.add(T.mul(line, T.const(plan.lanes)), n))),
            store(self.sums, share, T.mul(line, T.const(plan.lanes))),
            store(self.top, sink, line),
        )

    def _cached(self, which: int, key: E.Expr, at: E.Expr) -> E.Expr:
        """A number of the keys (0) or the values (1), times the scale of its row."""
        value = _float(load(self.ins[1 + which], self.b, self.group, key, at))
        if self.scales is None:
            return value
        return T.mul(value, _float(load(self.scales[which], self.b, self.group, key, T.const(0))))

    def _keys(self, first: E.Expr) -> S.Stmt:
        """A block of keys, transposed, and of values, then all tiles of lines."""
        plan, last = self.plan, T.const(self.plan.capacity - 1)

        def transposed(v: E.Expr) -> S.Stmt:
            def feature(d: E.Expr) -> S.Stmt:
                def lane(n: E.Expr) -> S.Stmt:
                    key = T.add(T.mul(v, T.const(plan.lanes)), n)
                    value = self._cached(0, T.minimum(T.add(first, key), last), d)
                    return store(self.keys, value, T.add(T.mul(d, T.const(plan.keys)), key))

                return self._vector(lane)

            return loop("d", plan.features, feature)

        def copied(key: E.Expr) -> S.Stmt:
            row = T.add(first, key)
            seen = T.all_of(T.greater_equal(row, self.begin), T.less(row, self.end))

            def into(value: Callable[[E.Expr], E.Expr]) -> S.Stmt:
                return self._vectors(
                    plan.values, lambda n: store(self.read, value(n), T.add(T.mul(key, T.const(plan.values)), n))
                )

            return S.IfThenElse(seen, into(lambda n: self._cached(1, row, n)), into(lambda n: ZERO))

        return S.seq(
            loop("v", plan.keys // plan.lanes, transposed),
            loop("key", plan.keys, copied),
            loop("tile", plan.tiles, lambda tile: self._tile(first, T.mul(tile, T.const(plan.height)))),
        )

    # ---- a tile of lines and a block of keys

    def _tile(self, first: E.Expr, line: E.Expr) -> S.Stmt:
        plan = self.plan
        steps = [
            loop("chunk", plan.keys // (plan.width * plan.lanes), lambda c: self._scores(line, c)),
            loop("i", plan.height, lambda i: self._powers(first, line, i)),
        ]
        vectors = plan.values // plan.lanes
        for v in range(0, vectors, plan.width):
            steps.append(self._mixed(line, range(v, min(v + plan.width, vectors))))
        return S.seq(*steps)

    def _scores(self, line: E.Expr, chunk: E.Expr) -> S.Stmt:
        """The products of the lines with some vectors of keys."""
        plan = self.plan
        places = [(i, v) for i in range(plan.height) for v in range(plan.width)]
        sums = {place: scratch("score{}_{}".format(*place), plan.lanes, FLOAT, "local") for place in places}
        column = T.mul(chunk, T.const(plan.width * plan.lanes))

        def term(d: E.Expr) -> S.Stmt:
            def one(i: int, v: int) -> S.Stmt:
                left = load(self.query, T.add(T.mul(T.add(line, T.const(i)), T.const(plan.features)), d))
                at = T.add(T.mul(d, T.const(plan.keys)), T.add(column, T.const(v * plan.lanes)))
                return self._vector(partial(_multiplied, sums[i, v], left, lambda n: load(self.keys, T.add(at, n))))

            return S.seq(*(one(i, v) for i, v in places))

        def stored(i: int, v: int) -> S.Stmt:
            at = T.add(column, T.const(i * plan.keys + v * plan.lanes))
            return self._vector(lambda n: store(self.scores, load(sums[i, v], n), T.add(at, n)))

        steps = S.seq(
            *(self._vector(lambda n, b=b: store(b, ZERO, n)) for b in sums.values()),  # type: ignore[misc]
            loop("d", plan.features, term),
            *(stored(i, v) for i, v in places),
        )
        return _allocated(sums.values(), steps)

    def _powers(self, first: E.Expr, tile: E.Expr, i: E.Expr) -> S.Stmt:
        """Scores of a line become exponentials; its greatest score, its sum and what its mix is to be multiplied by."""
        plan, line = self.plan, T.add(tile, i)
        row, count = self._row(line), plan.keys // plan.lanes
        best, safe = (scratch(name, plan.lanes, FLOAT, "local") for name in ("best", "safe"))
        sums = scratch("sum", plan.lanes, FLOAT, "local")
        begin, end = E.Var("from", DType("int32")), E.Var("to", DType("int32"))

        def place(v: E.Expr, n: E.Expr) -> E.Expr:
            return T.add(T.mul(i, T.const(plan.keys)), T.add(T.mul(v, T.const(plan.lanes)), n))

        def adjusted(v: E.Expr) -> S.Stmt:
            def one(n: E.Expr) -> S.Stmt:
                key = T.add(first, T.add(T.mul(v, T.const(plan.lanes)), n))
                seen = T.all_of(T.greater_equal(key, begin), T.less(key, end))
                value = self._adjusted(line, row, key, load(self.scores, place(v, n)))
                return store(self.scores, T.select(seen, value, LOWEST), place(v, n))

            return S.seq(
                self._vector(one),
                self._vector(lambda n: store(best, greater(load(self.scores, place(v, n)), load(best, n)), n)),
            )

        def raised(v: E.Expr) -> S.Stmt:
            def power(n: E.Expr) -> S.Stmt:
                value = te.exp_flushed(T.sub(load(self.scores, place(v, n)), load(safe, 0)))
                return store(self.scores, value, place(v, n))

            return S.seq(
                self._vector(power),
                self._vector(lambda n: store(sums, T.add(load(sums, n), load(self.scores, place(v, n))), n)),
            )

        total = T.mul(line, T.const(plan.lanes))
        top = greater(load(best, 0), load(self.top, line))
        steps = S.seq(
            self._vector(lambda n: store(best, LOWEST, n)),
            loop("v", count, adjusted),
            *folded(best, plan.lanes, greater),
            store(best, top, 0),
            store(safe, T.select(T.greater(load(best, 0), LOWEST), load(best, 0), ZERO), 0),
            store(self.shrunk, te.exp_flushed(T.sub(load(self.top, line), load(safe, 0))), i),
            store(self.top, load(best, 0), line),
            self._vector(lambda n: store(sums, T.mul(load(self.sums, T.add(total, n)), load(self.shrunk, i)), n)),
            loop("v", count, raised),
            self._vector(lambda n: store(self.sums, load(sums, n), T.add(total, n))),
        )
        steps = S.LetStmt(begin, self._begin(row), S.LetStmt(end, self._end(row), steps))
        return _allocated((best, safe, sums), steps)

    def _adjusted(self, line: E.Expr, row: E.Expr, key: E.Expr, score: E.Expr) -> E.Expr:
        """A score through the cap, with the mask."""
        cap = self.attrs.softcap
        if cap:
            score = T.mul(te.tanh(T.div(score, T.const(cap, FLOAT))), T.const(cap, FLOAT))
        if self.mask is None:
            return score
        place = T.minimum(key, T.const(self.mask_shape[3] - 1))
        index = zip(self.mask_shape, (self.b, self._head(line), row), strict=False)
        at = [T.const(0) if size == 1 else where for size, where in index]
        return T.add(score, _float(load(self.mask, *at, place)))

    def _mixed(self, tile: E.Expr, vectors: range) -> S.Stmt:
        """Some vectors of the lines' mixes, with the values of a block of keys."""
        plan = self.plan
        places = [(i, v) for i in range(plan.height) for v in vectors]
        sums = {place: scratch("mix{}_{}".format(*place), plan.lanes, FLOAT, "local") for place in places}

        def at(i: int, v: int, n: E.Expr) -> E.Expr:
            line = T.mul(T.add(tile, T.const(i)), T.const(plan.values))
            return T.add(line, T.add(n, T.const(v * plan.lanes)))

        def begun(i: int, v: int) -> S.Stmt:
            by = load(self.shrunk, T.const(i))
            return self._vector(lambda n: store(sums[i, v], T.mul(load(self.mix, at(i, v, n)), by), n))

        def term(key: E.Expr) -> S.Stmt:
            def one(i: int, v: int) -> S.Stmt:
                left = load(self.scores, T.add(key, T.const(i * plan.keys)))
                first = T.add(T.mul(key, T.const(plan.values)), T.const(v * plan.lanes))
                return self._vector(partial(_multiplied, sums[i, v], left, lambda n: load(self.read, T.add(first, n))))

            return S.seq(*(one(i, v) for i, v in places))

        def stored(i: int, v: int) -> S.Stmt:
            return self._vector(lambda n: store(self.mix, load(sums[i, v], n), at(i, v, n)))

        steps = S.seq(
            *(begun(i, v) for i, v in places), loop("key", plan.keys, term), *(stored(i, v) for i, v in places)
        )
        return _allocated(sums.values(), steps)

    def _stored(self, line: E.Expr) -> S.Stmt:
        """The result of a line; of what has seen nothing, 0."""
        plan = self.plan
        total = scratch("total", plan.lanes, FLOAT, "local")
        row = T.add(self.start, T.floordiv(line, T.const(plan.shared)))

        def element(n: E.Expr) -> S.Stmt:
            value = load(self.mix, T.add(T.mul(line, T.const(plan.values)), n))
            value = T.select(T.equal(load(total, 0), ZERO), ZERO, T.div(value, load(total, 0)))
            return store(self.out, value, self.b, row, self._head(line), n)

        first = T.mul(line, T.const(plan.lanes))
        steps = S.seq(
            self._vector(lambda n: store(total, load(self.sums, T.add(first, n)), n)),
            *folded(total, plan.lanes, T.add),
            self._vectors(plan.values, element),
        )
        whole = S.Allocate(total, steps)
        return whole if plan.count % plan.rows == 0 else S.IfThenElse(T.less(row, T.const(plan.count)), whole)


def _float(value: E.Expr) -> E.Expr:
    return value if str(value.dtype) == FLOAT else T.cast(value, FLOAT)


def _multiplied(total: S.Buffer, left: E.Expr, right: Callable[[E.Expr], E.Expr], n: E.Expr) -> S.Stmt:
    return store(total, T.add(load(total, n), T.mul(left, right(n))), n)


def _allocated(buffers: Iterable[S.Buffer], steps: S.Stmt) -> S.Stmt:
    for buffer in buffers:
        steps = S.Allocate(buffer, steps)
    return steps
