"""The product kernel: a work-group computes a tile of rows and columns, step by step over the terms.

In: the elements of a fused function, its contraction, a tile. Out: loops over `blockIdx` and `threadIdx`. While a step
is summed from one stage of shared memory, the next is on its way from global memory to registers, and goes to the other
stage. Work-items that share a sum (slices) take every so-manieth step, and add up at the end. What follows the product
is computed from the sums. Invariant: all work-items pass the same barriers, as what lies beside the product is 0 and
not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.opencl.extents import unravel
from armillary.backends.opencl.gemm.contraction import Contraction, extents
from armillary.backends.opencl.gemm.operand import Factor, Side, load, put, registers_of, simplified, way_of
from armillary.backends.opencl.gemm.tile import LANES, MOST_SUMS, line
from armillary.backends.opencl.graph.apply_records import has_textures
from armillary.backends.opencl.tiles import Tile
from armillary.backends.opencl.written.elements import Elements, Index
from armillary.base.dtype import DType
from armillary.base.extent import Known, ceil_div, divides
from armillary.codegen.opencl.half_bits import bits_of_half
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr
from armillary.tir.simplify import simplify
from armillary.tir.transform.insert_barriers import DOUBLE_BUFFER_WRITE
from armillary.tir.transform.unroll_loop import MAX_STATEMENTS, UNROLL_COUNT

TOGETHER = 8  # terms that the driver's compiler writes out
ADDERS = 64  # work-items of a group that adds parts
Emit = Callable[[Index, E.Expr], S.Stmt]


def buffer_of(name: str, size: Known, dtype: DType, scope: str) -> S.Buffer:
    """Memory of a work-item, of a group, or of the whole function."""
    return S.Buffer(name, (to_expr(size),), dtype, scope)


class ProductKernel:
    """One kernel being written."""

    def __init__(self, elements: Elements, anchor: te.Tensor, work: Contraction, tile: Tile) -> None:
        self.elements, self.anchor, self.work, self.tile = elements, anchor, work, tile
        (self.down, self.slices, self.across), (self.own_rows, self.parts, self.own_columns) = tile.threads, tile.sums
        self.chunk = min(LANES, self.own_rows)  # rows of a work-item that are neighbours
        self.rows, self.columns = self.down * self.own_rows, self.across * self.own_columns
        self.loaders = self.down * self.across
        self.block_x, self.block_y, self.block_z = (E.Var(f"group_{tag}", E.INT32) for tag in "xyz")
        self.batch: E.Expr = self.block_z
        self.part: E.Expr = T.const(0)
        if self.parts > 1:
            self.batch, self.part = T.floordiv(self.block_z, self.parts), T.floormod(self.block_z, self.parts)
        self.thread = E.Var("item", E.INT32)
        self.item = T.floormod(self.thread, self.loaders) if self.slices > 1 else self.thread
        self.slice = T.floordiv(self.thread, self.loaders) if self.slices > 1 else T.const(0)
        self.item_x, self.item_y = T.floormod(self.item, self.across), T.floordiv(self.item, self.across)
        dtype = work.left.dtype
        self.sums = buffer_of("sums", self.own_rows * self.own_columns, anchor.dtype, "local")
        self.left_part = buffer_of("left_part", self.own_rows, dtype, "local")
        self.right_part = buffer_of("right_part", self.own_columns, dtype, "local")
        self.sides = (self._side("left", dtype), self._side("right", dtype))
        self.stages = [buffer_of(f"{s.name}_stages", 2 * self._stage(s), dtype, "shared") for s in self.sides]

    def _stage(self, side: Side) -> int:
        """Elements of a side that a stage of shared memory holds."""
        return self.slices * self.tile.step * line(side.places)

    def _side(self, name: str, dtype: DType) -> Side:
        is_left = name == "left"
        axes, factor = (self.work.rows, self.work.left) if is_left else (self.work.columns, self.work.right)
        _, rows, columns, terms = self.work.sizes
        total, places = (rows, self.rows) if is_left else (columns, self.columns)
        batch = dict(zip((a.var for a in self.work.batch), unravel(self.batch, extents(self.work.batch)), strict=True))

        def factor_at(place: E.Expr, term: E.Expr) -> E.Expr:
            variables = dict(batch)
            for group, flat in ((axes, place), (self.work.terms, term)):
                variables |= zip((a.var for a in group), unravel(flat, extents(group)), strict=True)
            return self.elements.inside(factor, variables)

        element = simplified(self.elements, factor_at, total, terms)
        way = way_of(self.elements, element, total, terms)
        begin = T.mul(self.block_y if is_left else self.block_x, places)
        if places * self.tile.step % (self.loaders * way.lanes):
            way = type(way)(way.along_terms, 1)
        form = element(E.Var("place", E.INT32), E.Var("term", E.INT32))
        if bits_of_half(form) is not None and not has_textures(self.elements.fused.workload.target):
            element, dtype = _as_bits(element), DType("uint16")
        registers = registers_of(name, places, self.tile.step, self.loaders, dtype)
        return Side(name, element, way, total, places, self.tile.step, begin, self.item, self.loaders, registers)

    def loops(self, emit: Emit) -> S.Stmt:
        """All kernels; `emit` stores what becomes of a sum, whose place in the result it is told."""
        if self.parts == 1:
            return self._product(emit)
        batches, rows, columns, _ = self.work.sizes
        count = batches * rows * columns
        memory = buffer_of("parts", self.parts * count, self.sums.dtype, "global")
        work = self.work

        def keep(indices: Index, value: E.Expr) -> S.Stmt:
            at = dict(zip(self.anchor_axes, indices, strict=True))
            place = self.part
            for axes in (work.batch, work.rows, work.columns):
                for axis, extent in zip(axes, extents(axes), strict=True):
                    place = T.add(T.mul(place, to_expr(extent)), at[axis])
            return S.BufferStore(memory, value, (simplify(place),))

        return S.Allocate(memory, S.seq(self._product(keep), self._add_parts(memory, emit)))

    @property
    def anchor_axes(self) -> tuple[E.IterVar, ...]:
        """The axes of the product's result."""
        op = self.anchor.op
        assert isinstance(op, te.ComputeOp), "a contraction is computed"
        return op.axis

    def _add_parts(self, memory: S.Buffer, emit: Emit) -> S.Stmt:
        """A kernel that adds what groups have summed, a work-item for four neighbours where rows have them."""
        batches, rows, columns, _ = self.work.sizes
        lanes = LANES if divides(LANES, columns) else 1
        count = batches * rows * columns
        group, item, lane = E.Var("group", E.INT32), E.Var("item", E.INT32), E.Var("lane", E.INT32)
        first = T.mul(T.add(T.mul(group, ADDERS), item), lanes)
        total = buffer_of("total", lanes, memory.dtype, "local")

        def at(part: int) -> E.Expr:
            place = T.add(first, to_expr(part * count))
            return E.BufferLoad(memory, (E.Ramp(place, T.const(1), lanes) if lanes > 1 else place,))

        own = (vector(0) if lanes > 1 else T.const(0),)
        value = at(0)
        for part in range(1, self.parts):
            value = T.add(value, at(part))
        place = T.add(first, lane)
        column, rest = T.floormod(place, to_expr(columns)), T.floordiv(place, to_expr(columns))
        row, batch = T.floormod(rest, to_expr(rows)), T.floordiv(rest, to_expr(rows))
        store = self._element(emit, row, column, lane, T.const(0) if batches == 1 else batch, total)
        kind = S.LoopKind.VECTORIZED if lanes > 1 else S.LoopKind.UNROLLED
        inside = S.seq(S.BufferStore(total, value, own), S.For(lane, T.const(0), T.const(lanes), kind, store))
        if not divides(ADDERS * lanes, count):
            inside = S.IfThenElse(T.less(first, to_expr(count)), inside)
        inside = S.For(item, T.const(0), T.const(ADDERS), S.LoopKind.THREAD, S.Allocate(total, inside), "threadIdx.x")
        groups = to_expr(ceil_div(count, ADDERS * lanes))
        return S.For(group, T.const(0), groups, S.LoopKind.THREAD, inside, "blockIdx.x")

    def _product(self, emit: Emit) -> S.Stmt:
        """The kernel of sums."""
        batches, rows, columns, _ = self.work.sizes
        statements = [self._clear(), self._sum(), *self._combine(), self._results(emit)]
        inside = S.seq(*statements)
        memory = [self.sums, self.left_part, self.right_part, *(side.registers for side in self.sides)]
        for buffer in (*memory, *self.stages):
            inside = S.Allocate(buffer, inside)
        grid = (
            (self.thread, self.tile.items, "threadIdx.x"),
            (self.block_x, ceil_div(columns, self.columns), "blockIdx.x"),
            (self.block_y, ceil_div(rows, self.rows), "blockIdx.y"),
            (self.block_z, batches * self.parts, "blockIdx.z"),
        )
        for variable, extent, tag in grid:
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _clear(self) -> S.Stmt:
        zero = E.Broadcast(T.const(0, self.sums.dtype), LANES)
        count = self.own_rows * self.own_columns // LANES
        return S.seq(*(S.BufferStore(self.sums, zero, (vector(n * LANES),)) for n in range(count)))

    def _sum(self) -> S.Stmt:
        """Load a step while the one before is added, and put it into the other stage of shared memory."""
        terms = self.work.sizes[3]
        each = self.tile.step * self.slices
        steps = ceil_div(terms, each * self.parts)
        share = to_expr(steps * each)
        begin = T.mul(self.part, share)
        end = T.minimum(T.add(begin, share), to_expr(terms)) if self.parts > 1 else to_expr(terms)

        def fetch(number: E.Expr, *, whole: bool = False) -> S.Stmt:
            first = T.add(T.add(begin, T.mul(number, each)), T.mul(self.slice, self.tile.step))
            return S.seq(*(load(side, first, end, whole=whole) for side in self.sides))

        turn = E.Var("turn", E.INT32)
        if self.own_rows * self.own_columns == MOST_SUMS and all(side.way.lanes > 1 for side in self.sides):
            return self._in_pairs(turn, steps, fetch(T.const(0), whole=terms == each * self.parts * steps), fetch)
        # The text has each part once, as the first turn adds nothing and the last one loads zeros: a driver's compiler
        # takes half the time or less, most where loads are one by one, with tests of borders.
        add = S.IfThenElse(T.less(0, turn), self._step(self._offsets(T.floormod(T.add(turn, 1), 2))))
        body = S.seq(fetch(turn), add, *self._keep(T.floormod(turn, 2)))
        return S.For(turn, T.const(0), to_expr(steps + 1), S.LoopKind.SERIAL, body)

    def _in_pairs(self, turn: E.Var, steps: Known, first: S.Stmt, fetch: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
        """Two steps in each turn, so that stages lie where constants say and nothing branches.

        Where sums take most registers, one step in a turn with a test took 1.19 of a Llama block's time on an H200.
        What is fetched behind the last step is 0, and so is what an odd number of steps adds.
        """
        second = T.add(T.mul(turn, 2), 1)
        body: list[S.Stmt] = []
        for stage, following in enumerate((second, T.add(second, 1))):
            body += [fetch(following), self._step(self._offsets(T.const(stage))), *self._keep(T.const(1 - stage))]
        loop = S.For(turn, T.const(0), to_expr(ceil_div(steps, 2)), S.LoopKind.SERIAL, S.seq(*body))
        return S.seq(first, *self._keep(T.const(0)), loop)

    def _keep(self, stage: E.Expr) -> list[S.Stmt]:
        """Put what was fetched into a stage, which is not the one that is added."""
        return [
            S.AttrStmt(DOUBLE_BUFFER_WRITE, T.const(1), put(side, buffer, offset), buffer)
            for side, buffer, offset in zip(self.sides, self.stages, self._offsets(stage), strict=True)
        ]

    def _offsets(self, stage: E.Expr) -> list[E.Expr]:
        """Where a stage begins in shared memory, of each side, for a slice."""
        own = (T.mul(self.slice, self.tile.step * line(side.places)) for side in self.sides)
        return [T.add(T.mul(stage, self._stage(side)), at) for side, at in zip(self.sides, own, strict=True)]

    def _step(self, offsets: Sequence[E.Expr]) -> S.Stmt:
        """Add the products of a step that lies in shared memory."""
        term = E.Var("term", E.INT32)
        (left, right), (at_left, at_right) = self.stages, offsets
        statements: list[S.Stmt] = []
        at_rows, at_columns = T.mul(self.item_y, self.chunk), T.mul(self.item_x, LANES)
        for buffer, part, side, own, size, at, many in (
            (left, self.left_part, self.sides[0], self.own_rows, self.chunk, T.add(at_left, at_rows), self.down),
            (right, self.right_part, self.sides[1], self.own_columns, LANES, T.add(at_right, at_columns), self.across),
        ):
            for n in range(own // size):
                base = T.add(T.mul(term, line(side.places)), T.add(at, n * size * many))
                statements += copied(part, n * size, buffer, base, size)
        for i in range(self.own_rows):
            for j in range(self.own_columns // LANES):
                place = vector(i * self.own_columns + j * LANES)
                factor: E.Expr = E.Broadcast(E.BufferLoad(self.left_part, (T.const(i),)), LANES)
                other: E.Expr = E.BufferLoad(self.right_part, (vector(j * LANES),))
                factor, other = (T.cast(x, self.sums.dtype) for x in (factor, other))
                total = T.call("fma", factor, other, E.BufferLoad(self.sums, (place,)))
                statements.append(S.BufferStore(self.sums, total, (place,)))
        return steps_of(self.elements, term, self.tile.step, statements)

    def _combine(self) -> list[S.Stmt]:
        """Slices add up: the upper half gives its sums to the lower, until one has all."""
        statements: list[S.Stmt] = []
        count = self.own_rows * self.own_columns // LANES
        half = self.slices // 2
        if not half:
            return []
        shared = buffer_of("slices", half * self.rows * self.columns, self.sums.dtype, "shared")
        while half:

            def place(n: int, slice_: E.Expr) -> E.Expr:
                number = T.add(T.mul(T.add(T.mul(slice_, count), n), self.loaders), self.item)
                return E.Ramp(T.mul(number, LANES), T.const(1), LANES)

            give = [
                S.BufferStore(
                    shared, E.BufferLoad(self.sums, (vector(n * LANES),)), (place(n, T.sub(self.slice, half)),)
                )
                for n in range(count)
            ]
            take = [
                S.BufferStore(
                    self.sums,
                    T.add(E.BufferLoad(self.sums, (vector(n * LANES),)), E.BufferLoad(shared, (place(n, self.slice),))),
                    (vector(n * LANES),),
                )
                for n in range(count)
            ]
            upper = T.all_of(T.greater_equal(self.slice, half), T.less(self.slice, 2 * half))
            statements += [S.IfThenElse(upper, S.seq(*give)), S.IfThenElse(T.less(self.slice, half), S.seq(*take))]
            half //= 2
        return [S.Allocate(shared, S.seq(*statements))]

    def _results(self, emit: Emit) -> S.Stmt:
        """What becomes of the sums of a work-item."""
        _, rows, _, _ = self.work.sizes
        statements: list[S.Stmt] = []
        for i in range(self.own_rows):
            chunk, inside = divmod(i, self.chunk)
            row = T.add(
                T.add(T.mul(self.block_y, self.rows), chunk * self.chunk * self.down + inside),
                T.mul(self.item_y, self.chunk),
            )
            parts: list[S.Stmt] = []
            for j in range(self.own_columns // LANES):
                column = T.add(
                    T.add(T.mul(self.block_x, self.columns), j * LANES * self.across), T.mul(self.item_x, LANES)
                )
                parts.append(self._result(emit, row, column, i * self.own_columns + j * LANES))
            inside_rows = S.seq(*parts)
            is_whole = divides(self.rows, rows)
            statements.append(inside_rows if is_whole else S.IfThenElse(T.less(row, to_expr(rows)), inside_rows))
        total = S.seq(*statements)
        return S.IfThenElse(T.less(self.slice, 1), total) if self.slices > 1 else total

    def _result(self, emit: Emit, row: E.Expr, column: E.Expr, place: int) -> S.Stmt:
        columns = self.work.sizes[2]
        lane = E.Var("lane", E.INT32)
        if divides(LANES, columns):
            store = self._element(emit, row, T.add(column, lane), T.add(lane, place))
            whole: S.Stmt = S.For(lane, T.const(0), T.const(LANES), S.LoopKind.VECTORIZED, store)
            return whole if divides(self.columns, columns) else S.IfThenElse(T.less(column, to_expr(columns)), whole)
        singles: list[S.Stmt] = []
        for n in range(LANES):
            at = T.add(column, n)
            singles.append(S.IfThenElse(T.less(at, to_expr(columns)), self._element(emit, row, at, T.const(place + n))))
        return S.seq(*singles)

    def _element(
        self,
        emit: Emit,
        row: E.Expr,
        column: E.Expr,
        place: E.Expr,
        batch: E.Expr | None = None,
        sums: S.Buffer | None = None,
    ) -> S.Stmt:
        """Store what becomes of one sum."""
        work = self.work
        where: dict[E.IterVar, E.Expr] = {}
        batch = self.batch if batch is None else batch
        for axes, flat in ((work.batch, batch), (work.rows, row), (work.columns, column)):
            where |= dict(zip(axes, unravel(flat, extents(axes)), strict=True))
        return emit(tuple(where[axis] for axis in self.anchor_axes), E.BufferLoad(sums or self.sums, (place,)))


def _as_bits(factor: Factor) -> Factor:
    """A factor that is a half in memory, as its bits."""

    def bits(place: E.Expr, term: E.Expr) -> E.Expr:
        result = bits_of_half(factor(place, term))
        assert result is not None, "it is one at every place"
        return result

    return bits


def steps_of(elements: Elements, term: E.Var, count: int, body: Sequence[S.Stmt]) -> S.Stmt:
    """A loop over the terms of a step, which the driver repeats, eight at a time, so that text and code stay short.

    Code of 16 terms takes a driver's compiler twice as long; four at a time take up to 1.6 times as long to run.
    For Adreno GPUs the text has each term: a driver's compiler that keeps the loop (Mesa's does, of more than 8 sums)
    computes places anew for each term, 51 instructions beside 32 multiply-adds.
    """
    in_text = T.const(int(has_textures(elements.fused.workload.target)))
    notes = ((UNROLL_COUNT, TOGETHER),) if count > TOGETHER else ()
    loop = S.For(term, T.const(0), T.const(count), S.LoopKind.SERIAL, S.seq(*body), annotations=notes)
    stated = S.AttrStmt("pragma_unroll_explicit", in_text, loop)
    return S.AttrStmt("pragma_auto_unroll_max_step", T.const(MAX_STATEMENTS), stated)


def vector(begin: int) -> E.Expr:
    """The places of four neighbours."""
    return E.Ramp(T.const(begin), T.const(1), LANES)


def copied(part: S.Buffer, at: int, source: S.Buffer, base: E.Expr, size: int) -> list[S.Stmt]:
    """Copy neighbours from shared memory to registers."""
    if size == LANES:
        value = E.BufferLoad(source, (E.Ramp(base, T.const(1), LANES),))
        return [S.BufferStore(part, value, (vector(at),))]
    return [S.BufferStore(part, E.BufferLoad(source, (T.add(base, n),)), (T.const(at + n),)) for n in range(size)]
