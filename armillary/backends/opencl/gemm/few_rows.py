"""Products of few rows: work-items share the sum of a column, and read four neighbouring terms of it at once.

In: the elements of a fused function, its contraction. Out: loops over `blockIdx` and `threadIdx`. `lanes` work-items
sum each column (each of a few columns, where there are many), for all rows, so that weights are read once; what they
have is added in shared memory. Weights of few bits become numbers where they are read: their bytes are read four at
once, those of several chunks and columns before any is used, and a chunk's sum is scaled, not its terms. Invariant: a
row of weights lies along the terms, whose number four divides; all work-items pass the same barriers, as what lies
beside the last column is computed like the last, and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from armillary import te
from armillary.backends.opencl.extents import unravel
from armillary.backends.opencl.gemm.contraction import Axes, Contraction, extents
from armillary.backends.opencl.gemm.kernel import Emit, buffer_of
from armillary.backends.opencl.gemm.operand import way_of
from armillary.backends.opencl.gemm.packed import Packed, packed_of
from armillary.backends.opencl.gemm.tile import LANES
from armillary.backends.opencl.graph.apply_records import has_textures
from armillary.backends.opencl.written.elements import Elements
from armillary.base.dtype import DType
from armillary.base.extent import ceil_div, divides, typical
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr

UINT8 = DType("uint8")
ITEMS = 128  # of a group
MOST_ROWS = 8  # of one kernel: more sums than registers hold
CHUNK = 8  # terms that a work-item reads in a turn
BUSY = 132 * 1024  # work-items that keep a large GPU's memory busy
LINE = 32  # work-items that read neighbouring vectors
MANY = 4 * 4096  # columns from which on a work-item has two
PACKED_LANES = 32  # the same of weights of few bits, for any number of columns
PACKED_CHUNKS = 4  # whose bytes a work-item reads before it uses any
PACKED_SUMS = 4  # columns of a work-item there: what is read of the data serves for all, if rows leave registers
PACKED_SUMS_ADRENO = 2  # the same of Adreno GPUs: of four words and scales spill
PACKED_BUSY = 64 * 1024  # work-items there that keep memory busy: 32,768 read 1.5 TB/s of an H200's 4.3, 114,688 2.0


@record
class Shares:
    """`lanes` work-items for the sum of each column, `own` columns for each of them."""

    lanes: int
    own: int


def shares_of(columns: int, terms: int) -> Shares:
    """As many work-items for a column as keep memory busy, but whole lines of memory, with a turn of terms each."""
    lanes = 8
    while lanes < ITEMS and terms >= 2 * lanes * CHUNK and (columns * lanes < BUSY or lanes < LINE):
        lanes *= 2
    return Shares(lanes, 2 if columns >= MANY else 1)


def packed_shares_of(rows: int, columns: int, terms: int, sums: int = PACKED_SUMS) -> Shares:
    """The same of weights of few bits: a warp for up to `sums` columns, which read the same terms of the data."""
    if terms < PACKED_LANES * CHUNK:
        return shares_of(columns, terms)
    own = sums
    while own > 1 and (rows * own > 2 * MOST_ROWS or columns // own * PACKED_LANES < PACKED_BUSY):
        own //= 2
    return Shares(PACKED_LANES, own)


def few_rows(elements: Elements, anchor: te.Tensor, work: Contraction, emit: Emit) -> S.Stmt | None:
    """The kernel; None where weights do not lie along the terms, or terms come not in chunks."""
    terms = work.sizes[3]
    if not divides(CHUNK, terms):
        return None
    kernel = _Kernel(elements, anchor, work, emit)
    return kernel.loops() if kernel.is_along_terms() else None


class _Kernel:
    """One kernel being written."""

    def __init__(self, elements: Elements, anchor: te.Tensor, work: Contraction, emit: Emit) -> None:
        self.elements, self.anchor, self.work, self.emit = elements, anchor, work, emit
        batches, rows, columns, terms = work.sizes
        self.rows = rows if isinstance(rows, int) and rows <= MOST_ROWS else 1
        self.shares = shares_of(typical(columns) * typical(batches), typical(terms))
        self.group, self.row, self.batch, self.item = (E.Var(n, E.INT32) for n in ("group", "row", "batch", "item"))
        self.packed = packed_of(elements, self._right, CHUNK, columns, terms)
        if self.packed is not None:
            most = PACKED_SUMS_ADRENO if has_textures(elements.fused.workload.target) else PACKED_SUMS
            self.shares = packed_shares_of(self.rows, typical(columns) * typical(batches), typical(terms), most)
        lanes, own = self.shares.lanes, self.shares.own
        self.across = ITEMS // lanes * own  # columns of a group
        self.apart = LANES  # terms from one load of four to the next of a work-item
        self.lane, self.part = T.floormod(self.item, lanes), T.floordiv(self.item, lanes)
        count, dtype = self.rows * own, anchor.dtype
        self.sums = buffer_of("sums", count * LANES, dtype, "local")
        self.left = buffer_of("left_part", self.rows * CHUNK, work.left.dtype, "local")
        self.right = buffer_of("right_part", own * CHUNK, work.right.dtype, "local")
        self.chunks = self._chunks() if self.packed is not None else 1
        words = own * self.chunks * (self.packed.words if self.packed is not None else 0) * LANES
        self.words = buffer_of("words", max(1, words), UINT8, "local")
        self.scales = buffer_of("scales", max(1, own * self.chunks), dtype, "local")
        self.part_sums = buffer_of("part_sums", LANES, dtype, "local")
        # a buffer for each sum: within a condition nothing of one work-item is then another's
        self.shared = [buffer_of(f"partial_{n}", ITEMS, dtype, "shared") for n in range(count)]

    def is_along_terms(self) -> bool:
        """Whether neighbouring terms of a column are neighbours in memory, or parts of one number; how far loads lie
        apart."""
        columns, terms = self.work.sizes[2:]
        way = way_of(self.elements, self._right, columns, terms)
        if way.lanes == LANES and divides(self.shares.lanes * CHUNK, terms):
            self.apart = self.shares.lanes * LANES  # neighbouring work-items read neighbouring vectors
        return way.along_terms

    def loops(self) -> S.Stmt:
        """The whole kernel."""
        batches, rows, columns, _ = self.work.sizes
        zero = E.Broadcast(T.const(0, self.sums.dtype), LANES)
        count = self.rows * self.shares.own
        clear = (S.BufferStore(self.sums, zero, (_four(n * LANES),)) for n in range(count))
        summed = self._sum() if self.packed is None else self._sum_packed(self.packed)
        inside = S.seq(*clear, summed, *self._combine(), self._results())
        held = () if self.packed is None else (self.words, self.scales, self.part_sums)
        for buffer in (self.sums, self.left, self.right, *held, *self.shared):
            inside = S.Allocate(buffer, inside)
        grid = (
            (self.item, ITEMS, "threadIdx.x"),
            (self.group, ceil_div(columns, self.across), "blockIdx.x"),
            (self.row, ceil_div(rows, self.rows), "blockIdx.y"),
            (self.batch, batches, "blockIdx.z"),
        )
        for variable, extent, tag in grid:
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _at(self, *places: tuple[Axes, E.Expr]) -> dict[E.Var, E.Expr]:
        result: dict[E.Var, E.Expr] = {}
        for axes, flat in ((self.work.batch, self.batch), *places):
            result |= zip((a.var for a in axes), unravel(flat, extents(axes)), strict=True)
        return result

    def _right(self, column: E.Expr, term: E.Expr) -> E.Expr:
        return self.elements.inside(self.work.right, self._at((self.work.columns, column), (self.work.terms, term)))

    def _left(self, row: E.Expr, term: E.Expr) -> E.Expr:
        return self.elements.inside(self.work.left, self._at((self.work.rows, row), (self.work.terms, term)))

    def _column(self, own: int) -> E.Expr:
        return T.add(T.add(T.mul(self.group, self.across), T.mul(self.part, self.shares.own)), own)

    def _row(self, own: int) -> E.Expr:
        return T.add(T.mul(self.row, self.rows), own)

    def _sum(self) -> S.Stmt:
        """Each work-item adds its chunks of terms."""
        terms = self.work.sizes[3]
        turn = E.Var("turn", E.INT32)
        each = self.shares.lanes * CHUNK
        first = T.add(T.mul(turn, each), T.mul(self.lane, LANES if self.apart > LANES else CHUNK))
        statements: list[S.Stmt] = []
        for own in range(self.rows):
            statements += self._loaded(self.left, own * CHUNK, partial(self._left, self._row(own)), first)
        for own in range(self.shares.own):
            right = partial(self._right, self._inside_column(own))
            statements += self._loaded(self.right, own * CHUNK, right, first)
        for row in range(self.rows):
            for own in range(self.shares.own):
                place = (_four((row * self.shares.own + own) * LANES),)
                for n in range(0, CHUNK, LANES):
                    a, b = (
                        E.BufferLoad(self.left, (_four(row * CHUNK + n),)),
                        E.BufferLoad(self.right, (_four(own * CHUNK + n),)),
                    )
                    factors = (T.cast(x, self.sums.dtype) for x in (a, b))
                    total = T.call("fma", *factors, E.BufferLoad(self.sums, place))
                    statements.append(S.BufferStore(self.sums, total, place))
        body = S.seq(*statements)
        if not divides(each, terms):
            body = S.IfThenElse(T.less(first, to_expr(terms)), body)
        return S.For(turn, T.const(0), to_expr(ceil_div(terms, each)), S.LoopKind.SERIAL, body)

    def _chunks(self) -> int:
        """Chunks in a turn."""
        terms, count = self.work.sizes[3], PACKED_CHUNKS
        while count > 1 and not divides(count * self.shares.lanes * CHUNK, terms):
            count //= 2
        return count

    def _inside_column(self, own: int) -> E.Expr:
        """A column of a work-item; the last one, where that lies behind it."""
        column, columns = self._column(own), self.work.sizes[2]
        return column if divides(self.across, columns) else T.minimum(column, to_expr(columns - 1))

    def _sum_packed(self, packed: Packed) -> S.Stmt:
        """The same of weights of few bits: words and scales of some chunks of all columns first, then their sums."""
        terms, own_columns, lanes = self.work.sizes[3], self.shares.own, self.shares.lanes
        turn, each = E.Var("turn", E.INT32), self.chunks * self.shares.lanes
        first: list[S.Stmt] = []
        then: list[S.Stmt] = []
        for number in range(self.chunks):
            chunk = T.add(T.add(T.mul(turn, each), number * lanes), self.lane)
            begin = T.mul(chunk, CHUNK)
            for row in range(self.rows):
                then += self._loaded(self.left, row * CHUNK, partial(self._left, self._row(row)), begin)
            for own in range(own_columns):
                column, at = self._inside_column(own), number * own_columns + own
                place = packed.at(packed.place, column, chunk)
                for word in range(packed.words):
                    held = (at * packed.words + word) * LANES
                    first.append(_four_bytes(self.words, held, packed.memory, T.add(place, word * LANES)))
                scale = T.cast(packed.at(packed.scale, column, chunk), self.sums.dtype)
                first.append(S.BufferStore(self.scales, scale, (T.const(at),)))
                then += self._add_packed(packed, own, at, (column, chunk))
        body = S.seq(*first, *then)
        if not divides(each * CHUNK, terms):
            body = S.IfThenElse(T.less(T.mul(T.add(T.mul(turn, each), self.lane), CHUNK), to_expr(terms)), body)
        return S.For(turn, T.const(0), to_expr(ceil_div(terms, each * CHUNK)), S.LoopKind.SERIAL, body)

    def _add_packed(self, packed: Packed, own: int, at: int, place: tuple[E.Expr, E.Expr]) -> list[S.Stmt]:
        """Add a chunk of a column to the sums of all rows."""
        statements: list[S.Stmt] = []
        for n in range(CHUNK):
            value = packed.at(packed.value(n, self.words, at * packed.words * LANES), *place)
            statements.append(S.BufferStore(self.right, value, (T.const(own * CHUNK + n),)))
        scale = E.Broadcast(E.BufferLoad(self.scales, (T.const(at),)), LANES)
        part, dtype = (_four(0),), self.sums.dtype
        for row in range(self.rows):
            for n in range(0, CHUNK, LANES):
                a = T.cast(E.BufferLoad(self.left, (_four(row * CHUNK + n),)), dtype)
                b = T.cast(E.BufferLoad(self.right, (_four(own * CHUNK + n),)), dtype)
                total = T.call("fma", a, b, E.BufferLoad(self.part_sums, part)) if n else T.mul(a, b)
                statements.append(S.BufferStore(self.part_sums, total, part))
            sums = (_four((row * self.shares.own + own) * LANES),)
            total = T.call("fma", E.BufferLoad(self.part_sums, part), scale, E.BufferLoad(self.sums, sums))
            statements.append(S.BufferStore(self.sums, total, sums))
        return statements

    def _loaded(self, target: S.Buffer, at: int, element: Callable[[E.Expr], E.Expr], first: E.Expr) -> list[S.Stmt]:
        """Load a chunk, four at once where memory has them side by side."""
        columns, terms = self.work.sizes[2:]
        lanes = way_of(self.elements, lambda _, term: element(term), columns, terms).lanes
        statements: list[S.Stmt] = []
        for n in range(0, CHUNK, lanes):
            lane = E.Var("lane", E.INT32)
            offset = n // LANES * self.apart + n % LANES
            term, place = (
                (T.add(lane, offset), T.add(lane, at + n)) if lanes > 1 else (T.const(offset), T.const(at + n))
            )
            store = S.BufferStore(target, element(T.add(first, term)), (place,))
            whole = S.For(lane, T.const(0), T.const(lanes), S.LoopKind.VECTORIZED, store)
            statements.append(whole if lanes > 1 else store)
        return statements

    def _combine(self) -> list[S.Stmt]:
        """What the work-items of a column have, added up by halves."""
        statements: list[S.Stmt] = []
        count = self.rows * self.shares.own
        for k in range(count):
            parts = [E.BufferLoad(self.sums, (T.const(k * LANES + n),)) for n in range(LANES)]
            total = T.add(T.add(parts[0], parts[1]), T.add(parts[2], parts[3]))
            statements.append(S.BufferStore(self.shared[k], total, (self.item,)))
        half = self.shares.lanes // 2
        while half:
            adds: list[S.Stmt] = []
            for buffer in self.shared:
                other = E.BufferLoad(buffer, (T.add(self.item, half),))
                adds.append(S.BufferStore(buffer, T.add(E.BufferLoad(buffer, (self.item,)), other), (self.item,)))
            statements.append(S.IfThenElse(T.less(self.lane, half), S.seq(*adds)))
            half //= 2
        return statements

    def _results(self) -> S.Stmt:
        """The first work-item of a column stores what becomes of its sums."""
        columns, op, work = self.work.sizes[2], self.anchor.op, self.work
        assert isinstance(op, te.ComputeOp), "a contraction is computed"
        statements: list[S.Stmt] = []
        for own in range(self.shares.own):
            column = self._column(own)
            stores: list[S.Stmt] = []
            for row in range(self.rows):
                where = self._at((work.rows, self._row(row)), (work.columns, column))
                total = E.BufferLoad(self.shared[row * self.shares.own + own], (self.item,))
                stores.append(self.emit(tuple(where[a.var] for a in op.axis), total))
            inside = S.seq(*stores)
            is_whole = divides(self.across, columns)
            statements.append(inside if is_whole else S.IfThenElse(T.less(column, to_expr(columns)), inside))
        return S.IfThenElse(T.less(self.lane, 1), S.seq(*statements))


def _four_bytes(words: S.Buffer, at: int, memory: S.Buffer, place: E.Expr) -> S.Stmt:
    """Load four bytes at once."""
    lane = E.Var("lane", E.INT32)
    load = E.BufferLoad(memory, (T.add(place, lane),))
    store = S.BufferStore(words, load, (T.add(lane, at),))
    return S.For(lane, T.const(0), T.const(LANES), S.LoopKind.VECTORIZED, store)


def _four(begin: int) -> E.Expr:
    return E.Ramp(T.const(begin), T.const(1), LANES)
