"""Attention over caches: groups of work-items share the positions of a head's cache, then what they have is joined.

In: a function anchored at nn.cached_attention, its masked or quantized form. Out: two kernels. In the first a group
takes `SPLIT` positions of a cache for the heads that read it: two work-items have the scores of a position, half of
its features each, exponentials go to shared memory, and a work-item adds the values of a feature over all positions. In
the second a work-item joins the parts of a feature: each shrinks by how far its greatest score lies below the greatest
of all. Few positions of a group make its chain of loads short, which is what a step at a small position waits for.
Invariant: keys and values that no row sees are not read, so time follows the positions that count; all work-items pass
the same barriers. What is computed: ops/decoder/cached_attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.opencl.extents import shape_of
from armillary.backends.opencl.gemm.kernel import buffer_of
from armillary.backends.opencl.gemm.tile import LANES
from armillary.backends.opencl.schedules.default import schedule_default
from armillary.backends.opencl.written.elements import Elements
from armillary.backends.registry import Fused, implement
from armillary.base.dtype import DType
from armillary.ops.decoder.cached_attention import MASKED, PLAIN, QUANTIZED, CachedAttentionAttrs, greater
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr

Step = Callable[[int], Sequence[S.Stmt]]
Read = Callable[[E.Expr], E.Expr]
ITEMS = 128  # of a group
SPLIT = 64  # positions of a group
AHEAD = 8  # loads of four that a work-item waits for together
AHEAD_ONE = 16  # the same of single numbers
FLOAT = DType("float32")  # of all that is computed
ZERO, LOWEST = T.const(0.0, FLOAT), T.const(-math.inf, FLOAT)


def cached_attention(schedule: te.Schedule, fused: Fused) -> S.PrimFunc | None:
    """Both kernels; where something is fused with the operator, or numbers are float64, loops by elements."""
    (anchor, *_), inputs = fused.anchor, fused.anchor[0].op.input_tensors
    is_alone = tuple(fused.outputs) == (anchor,) and all(isinstance(t.op, te.PlaceholderOp) for t in inputs)
    if not is_alone or anchor.dtype.bits > FLOAT.bits:
        schedule_default(schedule, fused)
        return None
    return _Kernels(fused, anchor, list(inputs)).function()


for _name in (PLAIN, MASKED, QUANTIZED):
    implement(Candidate(_name, "cached_attention", sizes="any"), family="opencl")(cached_attention)


class _Kernels:
    """The kernels of one function."""

    def __init__(self, fused: Fused, anchor: te.Tensor, inputs: list[te.Tensor]) -> None:
        attrs = fused.workload.attrs
        assert isinstance(attrs, CachedAttentionAttrs), "those of the operator"
        self.attrs, self.anchor, self.elements = attrs, anchor, Elements(fused)
        self.query, self.key, self.value, self.start, self.total, self.sinks, *more = inputs
        self.mask = more[0] if len(more) == 1 else None
        self.scales = more if len(more) > 1 else None
        (self.batch, self.count, self.heads, self.features), key = shape_of(self.query), shape_of(self.key)
        self.groups, capacity, width = key[1], key[2], shape_of(self.value)[3]
        assert isinstance(self.heads, int) and isinstance(self.groups, int), "as inference has checked"
        assert isinstance(capacity, int) and isinstance(width, int), "as inference has checked"
        self.width = width
        is_float = self.key.dtype.is_float and self.query.dtype == FLOAT
        self.lanes = LANES if self.features % LANES == 0 and is_float else 1
        self.pair = ITEMS // SPLIT if self.features // self.lanes % (ITEMS // SPLIT) == 0 else 1  # for a position
        self.capacity, self.shared, self.splits = capacity, self.heads // self.groups, -(-capacity // SPLIT)
        self.own = -(-self.width // ITEMS)  # features of a work-item
        lines = self.batch * self.count * self.heads
        self.parts = buffer_of("parts", lines * (self.splits * self.width), FLOAT, "global")
        self.tops, self.sums = (buffer_of(n, lines * self.splits, FLOAT, "global") for n in ("tops", "part_sums"))
        self.row, self.item = E.Var("row", E.INT32), E.Var("item", E.INT32)
        self.b, self.t = (f(self.row, to_expr(self.count)) for f in (T.floordiv, T.floormod))

    def function(self) -> S.PrimFunc:
        """The function of both kernels."""
        body = S.seq(self._parts(), self._joined())
        for buffer in (self.parts, self.tops, self.sums):
            body = S.Allocate(buffer, body)
        return self.elements.function(body)

    # ---- what a row sees

    def _place(self) -> E.Expr:
        return T.add(T.cast(self.elements.at(self.start, (self.b,)), "int32"), self.t)

    def _bounds(self) -> tuple[E.Expr, E.Expr]:
        """The first position that a row sees, and the one behind the last."""
        limit, window = self.capacity, self.attrs.window
        if self.mask is not None:
            limit = min(limit, T.as_int(self.mask.shape[3]) or 0)
        end = T.minimum(T.cast(self.elements.at(self.total, (self.b,)), "int32"), T.const(limit))
        if self.attrs.causal:
            end = T.minimum(end, T.add(self._place(), 1))
        begin = T.maximum(T.add(self._place(), 1 - window), T.const(0)) if window else T.const(0)
        return begin, T.maximum(end, T.const(0))

    def _number(self, tensor: te.Tensor, *at: E.Expr) -> E.Expr:
        return T.cast(self.elements.at(tensor, at), FLOAT)

    def _line(self, head: E.Expr) -> E.Expr:
        return T.add(T.mul(self.row, self.heads), head)

    # ---- the first kernel

    def _parts(self) -> S.Stmt:
        split, group = E.Var("split", E.INT32), E.Var("group", E.INT32)
        begin, end = E.Var("begin", E.INT32), E.Var("end", E.INT32)
        self.split, self.group, first = split, group, T.mul(split, SPLIT)
        powers = buffer_of("powers", self.shared * SPLIT, FLOAT, "shared")
        # a buffer for each head: within a condition nothing of one work-item is then another's
        partial = [buffer_of(f"partial_{h}", ITEMS, FLOAT, "shared") for h in range(self.shared)]

        def is_seen(key: E.Expr) -> E.Expr:
            return T.all_of(T.greater_equal(key, begin), T.less(key, end))

        heads = range(self.shared)
        half, own = T.add(first, T.floordiv(self.item, self.pair)), T.add(first, self.item)
        is_here = T.all_of(is_seen(half), T.less(self.item, self.pair * SPLIT))
        statements = [
            S.IfThenElse(is_here, self._scores(half, partial)),
            *(
                self._each(S.BufferStore(powers, self._score(h, own, is_seen(own), partial[h]), (self._at(h),)))
                for h in heads
            ),
            *(self._each(S.BufferStore(partial[h], E.BufferLoad(powers, (self._at(h),)), (self.item,))) for h in heads),
            *self._greatest(partial),
            *(self._each(self._power(h, powers, partial[h])) for h in heads),
            self._mixed(first, end, powers, partial),
        ]
        low, high = self._bounds()
        inside: S.Stmt = S.LetStmt(begin, low, S.LetStmt(end, high, S.seq(*statements)))
        for buffer in (powers, *partial):
            inside = S.Allocate(buffer, inside)
        grid = (
            (self.item, ITEMS, "threadIdx.x"),
            (split, self.splits, "blockIdx.x"),
            (group, self.groups, "blockIdx.y"),
            (self.row, self.batch * self.count, "blockIdx.z"),
        )
        for variable, extent, tag in grid:
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _each(self, statement: S.Stmt) -> S.Stmt:
        """For each position of a group, by a work-item."""
        return S.IfThenElse(T.less(self.item, SPLIT), statement)

    def _at(self, head: int, item: E.Expr | None = None) -> E.Expr:
        return T.add(self.item if item is None else item, head * SPLIT)

    def _head(self, head: int) -> E.Expr:
        return T.add(T.mul(self.group, self.shared), head)

    def _scores(self, key: E.Expr, partial: list[S.Buffer]) -> S.Stmt:
        """A work-item's share of the products of one position, for all heads of a group."""
        lanes = self.lanes
        dots = buffer_of("dots", self.shared * lanes, FLOAT, "local")
        turn, lane = E.Var("turn", E.INT32), E.Var("lane", E.INT32)

        def each(store: S.BufferStore) -> S.Stmt:
            kind = S.LoopKind.VECTORIZED if lanes > 1 else S.LoopKind.UNROLLED
            return S.For(lane, T.const(0), T.const(lanes), kind, store)

        count, part = self.features // lanes // self.pair, T.floormod(self.item, self.pair)
        ahead = next(n for n in (AHEAD, 4, 2, 1) if count % n == 0)
        keys = buffer_of("keys", ahead * lanes, FLOAT, "local")

        def feature(step: int, lane: E.Expr) -> E.Expr:
            vector = T.add(T.mul(T.add(T.mul(turn, ahead), step), self.pair), part)  # both read one line of memory
            return T.add(T.mul(vector, lanes), lane)

        def read(step: int) -> S.Stmt:
            value = self._number(self.key, self.b, self.group, key, feature(step, lane))
            return each(S.BufferStore(keys, value, (T.add(lane, step * lanes),)))

        def added(step: int, head: int) -> S.Stmt:
            place = (T.add(lane, head * lanes),)
            q = self._number(self.query, self.b, self.t, self._head(head), feature(step, lane))
            total = T.call("fma", q, E.BufferLoad(keys, (T.add(lane, step * lanes),)), E.BufferLoad(dots, place))
            return each(S.BufferStore(dots, total, place))

        steps = [read(n) for n in range(ahead)]
        steps += [added(n, h) for n in range(ahead) for h in range(self.shared)]
        loop = S.For(turn, T.const(0), T.const(count // ahead), S.LoopKind.SERIAL, S.seq(*steps))
        stores: list[S.Stmt] = []
        for h in range(self.shared):
            total: E.Expr = E.BufferLoad(dots, (T.const(h * lanes),))
            for n in range(1, lanes):
                total = T.add(total, E.BufferLoad(dots, (T.const(h * lanes + n),)))
            stores.append(S.BufferStore(partial[h], total, (self.item,)))
        clear = [each(S.BufferStore(dots, ZERO, (T.add(lane, h * lanes),))) for h in range(self.shared)]
        return S.Allocate(dots, S.Allocate(keys, S.seq(*clear, loop, *stores)))

    def _score(self, head: int, key: E.Expr, is_seen: E.Expr, partial: S.Buffer) -> E.Expr:
        """The score of a work-item's position, from the shares of its product."""
        total: E.Expr = E.BufferLoad(partial, (T.mul(self.item, self.pair),))
        for n in range(1, self.pair):
            total = T.add(total, E.BufferLoad(partial, (T.add(T.mul(self.item, self.pair), n),)))
        return T.if_then_else(is_seen, self._adjusted(head, key, total), LOWEST)

    def _adjusted(self, head: int, key: E.Expr, score: E.Expr) -> E.Expr:
        """What becomes of a product of a query and a key."""
        cap = self.attrs.softcap
        if self.scales is not None:
            score = T.mul(score, self._number(self.scales[0], self.b, self.group, key, T.const(0)))
        score = T.mul(score, T.const(self.attrs.scale, FLOAT))
        if cap:
            score = T.mul(te.tanh(T.div(score, T.const(cap, FLOAT))), T.const(cap, FLOAT))
        if self.mask is None:
            return score
        where = (self.b, self._head(head), self.t, key)
        at = [T.const(0) if T.as_int(n) == 1 else i for n, i in zip(self.mask.shape[:3], where[:3], strict=True)]
        return T.add(score, self._number(self.mask, *at, key))

    def _greatest(self, partial: list[S.Buffer]) -> list[S.Stmt]:
        """The greatest scores of a group, by halves, in the first element of each."""
        statements: list[S.Stmt] = []
        half = SPLIT // 2
        while half:
            steps: list[S.Stmt] = []
            for buffer in partial:
                one, other = (E.BufferLoad(buffer, (T.add(self.item, n),)) for n in (0, half))
                steps.append(S.BufferStore(buffer, greater(one, other), (self.item,)))
            statements.append(S.IfThenElse(T.less(self.item, half), S.seq(*steps)))
            half //= 2
        return statements

    def _power(self, head: int, powers: S.Buffer, partial: S.Buffer) -> S.Stmt:
        score, top = E.BufferLoad(powers, (self._at(head),)), E.BufferLoad(partial, (T.const(0),))
        return S.BufferStore(powers, T.call("exp_flushed", T.sub(score, _finite(top))), (self._at(head),))

    def _mixed(self, first: E.Expr, end: E.Expr, powers: S.Buffer, partial: list[S.Buffer]) -> S.Stmt:
        """Add the values of a work-item's features, and the exponentials; keep both."""
        sums = buffer_of("sums", self.shared * self.own, FLOAT, "local")
        totals = buffer_of("totals", self.shared, FLOAT, "local")
        turn = E.Var("turn", E.INT32)
        count = T.maximum(T.minimum(T.sub(end, first), T.const(SPLIT)), T.const(0))
        values = buffer_of("values", AHEAD_ONE, FLOAT, "local")
        clear: list[S.Stmt] = [S.BufferStore(sums, ZERO, (T.const(n),)) for n in range(self.shared * self.own)]
        clear += [S.BufferStore(totals, ZERO, (T.const(h),)) for h in range(self.shared)]
        near = [T.add(T.mul(turn, AHEAD_ONE), n) for n in range(AHEAD_ONE)]
        steps = [
            self._added(totals, h, E.BufferLoad(powers, (self._at(h, k),))) for h in range(self.shared) for k in near
        ]
        stores: list[S.Stmt] = []
        for n in range(self.own):
            feature = T.add(self.item, n * ITEMS)
            inside = self.width % ITEMS == 0 or (n + 1) * ITEMS <= self.width
            at = feature if inside else T.minimum(feature, T.const(self.width - 1))
            for m, position in enumerate(near):
                value = self._value(T.add(first, position), at)
                value = T.if_then_else(T.less(position, count), value, ZERO)  # what lies behind may be no number
                steps.append(S.BufferStore(values, value, (T.const(m),)))
            for m, position in enumerate(near):
                for h in range(self.shared):
                    factors = E.BufferLoad(powers, (self._at(h, position),)), E.BufferLoad(values, (T.const(m),))
                    steps.append(self._added(sums, h * self.own + n, *factors))
            for h in range(self.shared):
                line = T.add(T.mul(self._line(self._head(h)), self.splits), self.split)
                total = E.BufferLoad(sums, (T.const(h * self.own + n),))
                store = S.BufferStore(self.parts, total, (T.add(T.mul(line, self.width), feature),))
                stores.append(store if inside else S.IfThenElse(T.less(feature, self.width), store))
        turns = T.floordiv(T.add(count, AHEAD_ONE - 1), AHEAD_ONE)
        loop = S.For(turn, T.const(0), turns, S.LoopKind.SERIAL, S.seq(*steps))
        own: list[S.Stmt] = []
        for h in range(self.shared):
            line = T.add(T.mul(self._line(self._head(h)), self.splits), self.split)
            own.append(S.BufferStore(self.tops, E.BufferLoad(partial[h], (T.const(0),)), (line,)))
            own.append(S.BufferStore(self.sums, E.BufferLoad(totals, (T.const(h),)), (line,)))
        body = S.seq(*clear, loop, *stores, S.IfThenElse(T.less(self.item, 1), S.seq(*own)))
        return S.Allocate(sums, S.Allocate(totals, S.Allocate(values, body)))

    def _value(self, key: E.Expr, feature: E.Expr) -> E.Expr:
        value = self._number(self.value, self.b, self.group, key, feature)
        if self.scales is None:
            return value
        return T.mul(value, self._number(self.scales[1], self.b, self.group, key, T.const(0)))

    def _added(self, sums: S.Buffer, at: int, *factors: E.Expr) -> S.Stmt:
        """Add a number, or a product, to a sum."""
        total = E.BufferLoad(sums, (T.const(at),))
        value = T.call("fma", *factors, total) if len(factors) > 1 else T.add(total, factors[0])
        return S.BufferStore(sums, value, (T.const(at),))

    # ---- the second kernel

    def _joined(self) -> S.Stmt:
        head, row, item, block = (E.Var(name, E.INT32) for name in ("head", "row", "item", "block"))
        self.row, self.item = row, item
        self.b, self.t = (f(row, to_expr(self.count)) for f in (T.floordiv, T.floormod))
        top, total, mix = (buffer_of(name, 1, FLOAT, "local") for name in ("top", "total", "mix"))
        at, feature = (T.const(0),), T.add(T.mul(block, ITEMS), item)
        sink = self._number(self.sinks, head)
        tops, totals, parts = (buffer_of(f"near_{x}", AHEAD_ONE, FLOAT, "local") for x in ("tops", "sums", "parts"))
        greatest, sums = E.BufferLoad(top, at), E.BufferLoad(total, at)

        def higher(k: int) -> Sequence[S.Stmt]:
            return (S.BufferStore(top, greater(E.BufferLoad(tops, (T.const(k),)), greatest), at),)

        def joined(k: int) -> Sequence[S.Stmt]:
            near = (T.const(k),)
            share = T.call("exp_flushed", T.sub(E.BufferLoad(tops, near), greatest))
            held = E.BufferLoad(tops, near)
            return (
                S.BufferStore(tops, share, near),
                S.BufferStore(total, T.call("fma", held, E.BufferLoad(totals, near), sums), at),
                S.BufferStore(mix, T.call("fma", held, E.BufferLoad(parts, near), E.BufferLoad(mix, at)), at),
            )

        of_tops = (tops, lambda line: E.BufferLoad(self.tops, (line,)))
        of_sums = (totals, lambda line: E.BufferLoad(self.sums, (line,)))
        inside_width = T.minimum(feature, T.const(self.width - 1))
        of_parts = (parts, lambda line: E.BufferLoad(self.parts, (T.add(T.mul(line, self.width), inside_width),)))
        result = T.select(T.equal(sums, ZERO), ZERO, T.div(E.BufferLoad(mix, at), sums))
        where = (self.b, self.t, head, feature)
        body = S.seq(
            S.BufferStore(top, sink, at),
            self._in_turns(head, tops, higher, of_tops),
            S.BufferStore(top, _finite(greatest), at),
            S.BufferStore(total, T.call("exp_flushed", T.sub(sink, greatest)), at),
            S.BufferStore(mix, ZERO, at),
            self._in_turns(head, tops, joined, of_tops, of_sums, of_parts),
            self.elements.store(self.anchor, where, T.cast(result, self.anchor.dtype)),
        )
        inside: S.Stmt = body if self.width % ITEMS == 0 else S.IfThenElse(T.less(feature, self.width), body)
        for buffer in (top, total, mix, tops, totals, parts):
            inside = S.Allocate(buffer, inside)
        grid = (
            (item, ITEMS, "threadIdx.x"),
            (block, self.own, "blockIdx.x"),
            (head, self.heads, "blockIdx.y"),
            (row, self.batch * self.count, "blockIdx.z"),
        )
        for variable, extent, tag in grid:
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _in_turns(self, head: E.Expr, tops: S.Buffer, step: Step, *loaded: tuple[S.Buffer, Read]) -> S.Stmt:
        """Steps over the groups whose positions count; what a turn of them reads is on its way together."""
        begin, end = self._bounds()
        last = T.floordiv(T.add(end, SPLIT - 1), SPLIT)
        first = T.floordiv(begin, SPLIT) if self.attrs.window else T.const(0)
        turn, start = E.Var("turn", E.INT32), T.mul(self._line(head), self.splits)
        groups = [T.add(T.add(first, T.mul(turn, AHEAD_ONE)), k) for k in range(AHEAD_ONE)]
        lines = [T.add(start, T.minimum(group, T.const(self.splits - 1))) for group in groups]
        loads = [S.BufferStore(to, read(line), (T.const(k),)) for to, read in loaded for k, line in enumerate(lines)]
        for k, group in enumerate(groups):  # behind the last one are the last one's numbers
            top = T.select(T.less(group, last), E.BufferLoad(tops, (T.const(k),)), LOWEST)
            loads.append(S.BufferStore(tops, top, (T.const(k),)))
        count = T.maximum(T.floordiv(T.add(T.sub(last, first), AHEAD_ONE - 1), AHEAD_ONE), T.const(0))
        steps = (s for k in range(AHEAD_ONE) for s in step(k))
        return S.For(turn, T.const(0), count, S.LoopKind.SERIAL, S.seq(*loads, *steps))


def _finite(top: E.Expr) -> E.Expr:
    """The greatest score; 0 of a row that sees nothing."""
    return T.select(T.greater(top, LOWEST), top, ZERO)
