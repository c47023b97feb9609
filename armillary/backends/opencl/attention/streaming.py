"""Attention in one kernel: scores of 64 keys at a time stay in shared memory, softmax is corrected as they come.

In: the elements of a function, the stages of its attention, a number of query rows for a work-group. Out: loops over
`blockIdx` and `threadIdx`. For each block of keys a group sums its scores, turns them into exponentials relative to the
largest score so far, and adds their products with values; what was added before is scaled down when a larger score
comes (online softmax). Invariant: memory holds no scores, whatever the length; all work-items pass the same barriers,
since what lies beside rows and keys is 0 and not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary import te
from armillary.backends.opencl.extents import unravel
from armillary.backends.opencl.gemm.contraction import Contraction, contraction_of, count, extents
from armillary.backends.opencl.gemm.kernel import Emit, buffer_of, copied, steps_of, vector
from armillary.backends.opencl.gemm.operand import Side, Way, load, put, registers_of, way_of
from armillary.backends.opencl.gemm.tile import LANES, PROCESSORS, line
from armillary.backends.opencl.written.elements import Elements, Read
from armillary.base.extent import Known, ceil_div, divides
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr

ITEMS, KEYS, STEP = 256, 64, 16  # work-items of a group; keys of a block; terms of a step of both products
ACROSS = KEYS // LANES  # work-items along the keys of a block
ROWS = (64, 32, 16)  # query rows of a group, any of which may be taken
LEAST_ROWS = 16  # fewer leave most work-items idle: a step of a decoder
BUSY = PROCESSORS * 3 // 4  # groups from which on more rows for each are better than more groups
BUSY_ADRENO = 12  # the same of Adreno GPUs, which have up to six processors
MOST_OWN = 32  # sums of values of a work-item
LOWEST = -3.4028234663852886e38  # below which no finite score lies, so a row of such scores alone is right too


@record
class Plan:
    """Rows of a group; `across` work-items along values' features, each with `own_rows` x `own_columns` sums."""

    rows: int
    across: int
    own_rows: int
    own_columns: int


def plan_of(groups: int, rows: int, features: Known, shared: int, busy: int = BUSY) -> Plan | None:
    """The most rows for a group that leave `busy` groups or more; None where one kernel does not pay or fit."""
    if rows < LEAST_ROWS or not isinstance(features, int) or features % LANES:
        return None
    plans = [plan for own in ROWS if (plan := _plan(own, features, shared)) is not None]
    many = [plan for plan in plans if groups * -(-rows // plan.rows) >= busy]
    best = many[:1] or plans[-1:]
    return best[0] if best else None


def _plan(rows: int, features: int, shared: int) -> Plan | None:
    vectors = features // LANES
    for across in (16, 8, 4):
        down = ITEMS // across
        if vectors % across or rows % down:
            continue
        plan = Plan(rows, across, rows // down, features // across)
        used = 4 * (STEP * (line(rows) + line(KEYS) + line(features)) + KEYS * line(rows) + ITEMS + rows)
        return plan if plan.own_rows * plan.own_columns <= MOST_OWN and used <= shared else None
    return None


def streaming_products(stages: Mapping[str, te.Tensor]) -> tuple[Contraction, Contraction] | None:
    """Both products, if rows, keys and features are an axis each, and batches are the same; None for others."""
    scores, mix = (contraction_of(stages[f"attention_{name}"].op) for name in ("scores", "mix"))
    if scores is None or mix is None or extents(scores.batch) != extents(mix.batch):
        return None
    for name, work in (("scores", scores), ("mix", mix)):
        op = stages[f"attention_{name}"].op
        assert isinstance(op, te.ComputeOp), "a contraction is computed"
        if (*work.batch, *work.rows, *work.columns) != op.axis:
            return None
    single = all(len(axes) == 1 for w in (scores, mix) for axes in (w.rows, w.columns, w.terms))
    return (scores, mix) if single else None


class StreamingKernel:
    """One kernel being written."""

    def __init__(
        self, elements: Elements, stages: Mapping[str, te.Tensor], works: tuple[Contraction, Contraction], plan: Plan
    ) -> None:
        self.elements, self.stages, self.plan = elements, stages, plan
        self.scores, self.mix = works
        self.group, self.block, self.item = (E.Var(name, E.INT32) for name in ("group", "block", "item"))
        self.turn = E.Var("keys", E.INT32)
        self.total_rows, self.total_keys, self.features = (
            count(self.scores.rows),
            count(self.scores.columns),
            plan.across * plan.own_columns,
        )
        dtype = self.stages["attention_scores"].dtype
        rows, parts = plan.rows, ITEMS // plan.rows
        self.parts = parts
        self.first_row = T.mul(self.block, rows)
        self.own_scores = rows // (ITEMS // ACROSS)
        self.products = buffer_of("products", self.own_scores * LANES, dtype, "local")
        self.sums = buffer_of("sums", plan.own_rows * plan.own_columns, dtype, "local")
        self.left_part = buffer_of("left_part", max(self.own_scores, plan.own_rows), dtype, "local")
        self.right_part = buffer_of("right_part", max(LANES, plan.own_columns), dtype, "local")
        self.best, self.scale, self.total = (buffer_of(n, 1, dtype, "local") for n in ("best", "scale", "total"))
        self.powers = buffer_of("powers", KEYS * line(rows), dtype, "shared")
        self.partial = buffer_of("partial", ITEMS, dtype, "shared")
        self.of_rows = buffer_of("of_rows", rows, dtype, "shared")
        self.sides = {
            "query": self._side("query", self.scores, self.scores.left, (self.total_rows, rows, self.first_row)),
            "key": self._side("key", self.scores, self.scores.right, (self.total_keys, KEYS, T.mul(self.turn, KEYS))),
            "value": self._side("value", self.mix, self.mix.right, (self.features, self.features, T.const(0))),
        }
        self.stage = {
            name: buffer_of(name, STEP * line(side.places), dtype, "shared") for name, side in self.sides.items()
        }

    def _side(self, name: str, work: Contraction, factor: E.Expr, places: tuple[Known, int, E.Expr]) -> Side:
        axes = work.rows if name == "query" else work.columns
        (place_axis,), (term_axis,) = axes, work.terms
        batch = self._batch(work)

        def element(place: E.Expr, term: E.Expr) -> E.Expr:
            return self.elements.inside(factor, {**batch, place_axis.var: place, term_axis.var: term})

        total, many, begin = places
        way = way_of(self.elements, element, total, count(work.terms))
        if many * STEP % (ITEMS * way.lanes):
            way = Way(way.along_terms, 1)
        registers = registers_of(name, many, STEP, ITEMS, factor.dtype)
        return Side(name, element, way, total, many, STEP, begin, self.item, ITEMS, registers)

    def _batch(self, work: Contraction) -> dict[E.Var, E.Expr]:
        return dict(zip((a.var for a in work.batch), unravel(self.group, extents(work.batch)), strict=True))

    def loops(self, emit: Emit) -> S.Stmt:
        """The whole kernel; `emit` stores what becomes of a sum of values, whose place in the mix it is told."""
        blocks = S.For(self.turn, T.const(0), to_expr(ceil_div(self.total_keys, KEYS)), S.LoopKind.SERIAL, self._keys())
        inside = S.seq(self._begin(), blocks, *self._totals(), self._results(emit))
        local = (self.products, self.sums, self.left_part, self.right_part, self.best, self.scale, self.total)
        registers = (side.registers for side in self.sides.values())
        for buffer in (*local, *registers, self.powers, self.partial, self.of_rows, *self.stage.values()):
            inside = S.Allocate(buffer, inside)
        grid = (
            (self.item, ITEMS, "threadIdx.x"),
            (self.block, ceil_div(self.total_rows, self.plan.rows), "blockIdx.x"),
            (self.group, count(self.scores.batch), "blockIdx.y"),
        )
        for variable, extent, tag in grid:
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _begin(self) -> S.Stmt:
        at, dtype = (T.const(0),), self.sums.dtype
        return S.seq(
            _clear(self.sums, self.plan.own_rows * self.plan.own_columns),
            S.BufferStore(self.best, T.const(LOWEST, dtype), at),
            S.BufferStore(self.total, T.const(0.0, dtype), at),
        )

    def _keys(self) -> S.Stmt:
        """What a block of keys adds."""
        down = ITEMS // ACROSS
        row = T.mul(T.floordiv(self.item, ACROSS), self.own_scores)
        column = T.mul(T.floormod(self.item, ACROSS), LANES)
        assert self.plan.rows == down * self.own_scores, "work-items share rows evenly"

        def products(term: E.Expr) -> list[S.Stmt]:
            query, key = self.stage["query"], self.stage["key"]
            base = T.add(T.mul(term, line(self.plan.rows)), row)
            read = copied(self.left_part, 0, query, base, self.own_scores)
            read += copied(self.right_part, 0, key, T.add(T.mul(term, line(KEYS)), column), LANES)
            return read + _multiply(self.products, self.left_part, self.right_part, self.own_scores, LANES)

        summed = self._steps(("query", "key"), count(self.scores.terms), products)
        return S.seq(
            _clear(self.products, self.own_scores * LANES),
            summed,
            self._first_values(),  # on their way while exponentials are computed
            self._keep_scores(row, column),
            *self._softmax(),
            self._add_values(),
        )

    def _steps(self, names: tuple[str, ...], terms: Known, body: Callable[[E.Expr], list[S.Stmt]]) -> S.Stmt:
        """Load terms step by step, the next while one is summed."""
        sides = [self.sides[name] for name in names]
        turn, term = E.Var("turn", E.INT32), E.Var("term", E.INT32)
        steps = ceil_div(terms, STEP)
        inner = steps_of(self.elements, term, STEP, body(term))
        following = T.mul(T.add(turn, 1), STEP)
        end = to_expr(terms)
        retained = [put(side, self.stage[side.name], T.const(0)) for side in sides]
        fetch = [load(side, following, end, whole=False) for side in sides]
        loop = S.For(turn, T.const(0), to_expr(steps), S.LoopKind.SERIAL, S.seq(*retained, *fetch, inner))
        return S.seq(*(load(side, T.const(0), end, whole=divides(STEP, terms)) for side in sides), loop)

    def _keep_scores(self, row: E.Expr, column: E.Expr) -> S.Stmt:
        """Store scores, a row of each key after the other, masked, for those that read rows."""
        op = self.stages["attention_max"].op
        assert isinstance(op, te.ComputeOp), "a reduction is computed"
        reduce = op.body[0]
        assert isinstance(reduce, E.Reduce), "of scores"
        batch = unravel(self.group, extents(self.scores.batch))
        is_even = divides(KEYS, self.total_keys)
        statements: list[S.Stmt] = []
        for i in range(self.own_scores):
            for j in range(LANES):
                own_row, own_key = T.add(row, i), T.add(column, j)
                at_row, at_key = T.add(self.first_row, own_row), T.add(T.mul(self.turn, KEYS), own_key)
                product = E.BufferLoad(self.products, (T.const(i * LANES + j),))
                self.elements.held[self.stages["attention_scores"]] = _always(product)
                self.elements.forget()
                axes, own = (*op.axis, *op.reduce_axis), (*batch, at_row, at_key)
                variables = {axis.var: index for axis, index in zip(axes, own, strict=True)}
                value = self.elements.inside(reduce.source[0], variables)
                tests = [] if is_even else [T.less(at_key, to_expr(self.total_keys))]
                tests += [] if divides(self.plan.rows, self.total_rows) else [T.less(at_row, to_expr(self.total_rows))]
                if tests:
                    value = T.if_then_else(T.all_of(*tests), value, T.const(float("-inf"), self.powers.dtype))
                statements.append(S.BufferStore(self.powers, value, (self._power(own_key, own_row),)))
        return S.seq(*statements)

    def _power(self, key: E.Expr, row: E.Expr) -> E.Expr:
        return T.add(T.mul(key, line(self.plan.rows)), row)

    def _softmax(self) -> list[S.Stmt]:
        """Exponentials relative to the largest score so far, `parts` work-items for a row."""
        rows, parts, at = self.plan.rows, self.parts, (T.const(0),)
        row, part = T.floormod(self.item, rows), T.floordiv(self.item, rows)
        old, top = E.BufferLoad(self.scale, at), E.BufferLoad(self.best, at)

        def over(body: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
            n = E.Var("n", E.INT32)
            place = self._power(T.add(T.mul(n, parts), part), row)
            return S.For(n, T.const(0), T.const(KEYS // parts), S.LoopKind.SERIAL, body(place))

        def power(place: E.Expr) -> S.Stmt:
            score = E.BufferLoad(self.powers, (place,))
            value = T.call("exp_flushed", T.sub(score, top))
            added = T.add(E.BufferLoad(self.total, at), E.BufferLoad(self.powers, (place,)))
            return S.seq(S.BufferStore(self.powers, value, (place,)), S.BufferStore(self.total, added, at))

        def greater(value: E.Expr) -> S.Stmt:
            return S.BufferStore(self.best, T.select(T.greater(value, top), value, top), at)

        scaled = T.call("exp_flushed", T.sub(old, top))
        return [
            S.BufferStore(self.scale, top, at),
            over(lambda place: greater(E.BufferLoad(self.powers, (place,)))),
            S.BufferStore(self.partial, top, (self.item,)),
            *(greater(E.BufferLoad(self.partial, (T.add(row, n * rows),))) for n in range(parts)),
            S.BufferStore(self.scale, scaled, at),
            S.BufferStore(self.total, T.mul(E.BufferLoad(self.total, at), E.BufferLoad(self.scale, at)), at),
            over(power),
            S.IfThenElse(T.less(part, 1), S.BufferStore(self.of_rows, E.BufferLoad(self.scale, at), (row,))),
        ]

    def _place(self) -> tuple[E.Expr, E.Expr]:
        """The first row and column of a work-item's sums of values."""
        plan = self.plan
        down, right = T.floordiv(self.item, plan.across), T.floormod(self.item, plan.across)
        return T.mul(down, plan.own_rows), T.mul(right, LANES)

    def _add_values(self) -> S.Stmt:
        """Scale what was added before, and add the products with a block's values."""
        plan, (row, column) = self.plan, self._place()
        vectors = plan.own_columns // LANES
        scaled: list[S.Stmt] = []
        for i in range(plan.own_rows):
            factor = E.Broadcast(E.BufferLoad(self.of_rows, (T.add(row, i),)), LANES)
            for j in range(vectors):
                place = (vector(i * plan.own_columns + j * LANES),)
                scaled.append(S.BufferStore(self.sums, T.mul(E.BufferLoad(self.sums, place), factor), place))
        turn = E.Var("turn", E.INT32)
        side = self.sides["value"]
        first, end = T.add(T.mul(self.turn, KEYS), T.mul(turn, STEP)), to_expr(self.total_keys)

        def products(term: E.Expr) -> list[S.Stmt]:
            power = self._power(T.add(T.mul(turn, STEP), term), row)
            read = copied(self.left_part, 0, self.powers, power, plan.own_rows)
            for j in range(vectors):
                base = T.add(T.add(T.mul(term, line(self.features)), column), j * LANES * plan.across)
                read += copied(self.right_part, j * LANES, self.stage["value"], base, LANES)
            return read + _multiply(self.sums, self.left_part, self.right_part, plan.own_rows, plan.own_columns)

        term = E.Var("term", E.INT32)
        inner = steps_of(self.elements, term, STEP, products(term))
        retained = put(side, self.stage["value"], T.const(0))
        follows = load(side, T.add(first, STEP), end, whole=False)
        loop = S.For(turn, T.const(0), T.const(KEYS // STEP), S.LoopKind.SERIAL, S.seq(retained, follows, inner))
        return S.seq(*scaled, loop)

    def _first_values(self) -> S.Stmt:
        is_whole = divides(KEYS, self.total_keys)
        return load(self.sides["value"], T.mul(self.turn, KEYS), to_expr(self.total_keys), whole=is_whole)

    def _totals(self) -> list[S.Stmt]:
        """The sums of exponentials of all rows, in shared memory."""
        rows, at = self.plan.rows, (T.const(0),)
        value: E.Expr = E.BufferLoad(self.partial, (self.item,))
        for n in range(1, self.parts):
            value = T.add(value, E.BufferLoad(self.partial, (T.add(self.item, n * rows),)))
        return [
            S.BufferStore(self.partial, E.BufferLoad(self.total, at), (self.item,)),
            S.IfThenElse(T.less(self.item, rows), S.BufferStore(self.of_rows, value, (self.item,))),
        ]

    def _results(self, emit: Emit) -> S.Stmt:
        """What becomes of the sums of a work-item."""
        plan, (row, column) = self.plan, self._place()
        batch = unravel(self.group, extents(self.mix.batch))
        statements: list[S.Stmt] = []
        for i in range(plan.own_rows):
            own = T.add(row, i)
            at_row = T.add(self.first_row, own)
            total = E.BufferLoad(self.of_rows, (own,))
            self.elements.held[self.stages["attention_sum"]] = _always(total)
            parts: list[S.Stmt] = []
            for j in range(plan.own_columns // LANES):
                lane = E.Var("lane", E.INT32)
                feature = T.add(T.add(column, j * LANES * plan.across), lane)
                value = E.BufferLoad(self.sums, (T.add(lane, i * plan.own_columns + j * LANES),))
                stored = emit((*batch, at_row, feature), value)
                parts.append(S.For(lane, T.const(0), T.const(LANES), S.LoopKind.VECTORIZED, stored))
            is_whole = divides(plan.rows, self.total_rows)
            inside = S.seq(*parts)
            statements.append(inside if is_whole else S.IfThenElse(T.less(at_row, to_expr(self.total_rows)), inside))
        return S.seq(*statements)


def _always(value: E.Expr) -> Read:
    """What is read wherever."""
    return lambda _: value


def _clear(buffer: S.Buffer, size: int) -> S.Stmt:
    zero = E.Broadcast(T.const(0, buffer.dtype), LANES)
    return S.seq(*(S.BufferStore(buffer, zero, (vector(n),)) for n in range(0, size, LANES)))


def _multiply(sums: S.Buffer, left: S.Buffer, right: S.Buffer, rows: int, columns: int) -> list[S.Stmt]:
    """Add the products of rows and columns of a term."""
    statements: list[S.Stmt] = []
    for i in range(rows):
        for j in range(0, columns, LANES):
            place = (vector(i * columns + j),)
            factor: E.Expr = E.Broadcast(E.BufferLoad(left, (T.const(i),)), LANES)
            other: E.Expr = E.BufferLoad(right, (vector(j),))
            factor, other = (T.cast(x, sums.dtype) for x in (factor, other))
            statements.append(S.BufferStore(sums, T.call("fma", factor, other, E.BufferLoad(sums, place)), place))
    return statements
