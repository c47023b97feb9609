"""Products of few rows: work-items share the sum of a column, and read four neighbouring terms of it at once.

In: the elements of a fused function, its contraction. Out: loops over `blockIdx` and `threadIdx`. `lanes` work-items
sum each column (each of a few columns, where there are many), for all rows, so that weights are read once; what they
have is added in shared memory. Weights of few bits become numbers where they are read: words of several chunks and
columns are read a turn before they are used, and a chunk's sum is scaled, not its terms (packed.py). Invariant: a
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

UINT32 = DType("uint32")
ITEMS = 128  # of a group
MOST_ROWS = 8  # of one kernel: more sums than registers hold
CHUNK = 8  # terms that a work-item reads in a turn
BUSY = 132 * 1024  # work-items that keep a large GPU's memory busy
LINE = 32  # work-items that read neighbouring vectors
MANY = 4 * 4096  # columns from which on a work-item has two
PACKED_LANES = 32  # the same of weights of few bits, where columns are many
PACKED_CHUNKS = 4  # whose bytes a work-item reads before it uses any; half as many where columns are many, as then
# registers decide how many work-items are there at once: 4096 x 14336 takes 18.9 us of an H200 with two, 20.5 with four
PACKED_SUMS = 4  # columns of a work-item there: what is read of the data serves for all, if rows leave registers
PACKED_SUMS_ADRENO = 2  # the same of Adreno GPUs: of four words and scales spill
PACKED_BUSY = 48 * 1024  # work-items there that keep memory busy: with fewer, more share a column (14336 x 4096 takes
# 19.1 us with 64 for four columns, 22.8 with 32 for two)


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
    """The same of weights of few bits: a warp or more for up to `sums` columns that read the same terms of the data."""
    if terms < PACKED_LANES * CHUNK:
        return shares_of(columns, terms)
    own, lanes = sums, PACKED_LANES
    while own > 1 and rows * own > 2 * MOST_ROWS:
        own //= 2
    while lanes < ITEMS and columns // own * lanes < PACKED_BUSY and divides(2 * lanes * CHUNK, terms):
        lanes *= 2
    while own > 1 and columns // own * lanes < PACKED_BUSY:
        own //= 2
    return Shares(lanes, own)


def few_rows(elements: Elements, anchor: te.Tensor, work: Contraction, emit: Emit, bits: int = 0) -> S.Stmt | None:
    """The kernel; `bits`: of a weight that is a part of a byte or one, else 0.

    None where weights do not lie along the terms, or terms come not in chunks.
    """
    terms = work.sizes[3]
    if not divides(CHUNK, terms):
        return None
    kernel = _Kernel(elements, anchor, work, emit, bits)
    return kernel.loops() if kernel.is_along_terms() else None


class _Kernel:
    """One kernel being written."""

    def __init__(self, elements: Elements, anchor: te.Tensor, work: Contraction, emit: Emit, bits: int) -> None:
        self.elements, self.anchor, self.work, self.emit = elements, anchor, work, emit
        batches, rows, columns, terms = work.sizes
        self.rows = rows if isinstance(rows, int) and rows <= MOST_ROWS else 1
        self.shares = shares_of(typical(columns) * typical(batches), typical(terms))
        self.group, self.row, self.batch, self.item = (E.Var(n, E.INT32) for n in ("group", "row", "batch", "item"))
        self.packed = packed_of(elements, self._right, bits, CHUNK, columns, terms) if bits else None
        if self.packed is not None:
            most = PACKED_SUMS_ADRENO if has_textures(elements.fused.workload.target) else PACKED_SUMS
            self.shares = packed_shares_of(self.rows, typical(columns) * typical(batches), typical(terms), most)
        lanes, own = self.shares.lanes, self.shares.own
        self.across = ITEMS // lanes * own  # columns of a group
        self.apart = LANES  # terms from one load of four to the next of a work-item
        self.lane, self.part = T.floormod(self.item, lanes), T.floordiv(self.item, lanes)
        count, dtype = self.rows * own, anchor.dtype
        self.wide = LANES if self.packed is None else 1  # numbers that a sum is in, until all work-items' are added
        self.sums = buffer_of("sums", count * self.wide, dtype, "local")
        self.left = buffer_of("left_part", self.rows * CHUNK, work.left.dtype, "local")
        self.right = buffer_of("right_part", own * CHUNK, work.right.dtype, "local")
        self.chunks = self._chunks() if self.packed is not None else 1
        held = own * self.chunks
        words = held * (self.packed.words if self.packed is not None else 1)
        self.words = buffer_of("words", words, UINT32, "local")
        self.scales, self.zeros = (buffer_of(name, held, dtype, "local") for name in ("scales", "zeros"))
        self.part_sum = buffer_of("part_sum", 1, dtype, "local")
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
        zero, count = T.const(0, self.sums.dtype), self.rows * self.shares.own
        if self.packed is None:
            clear = [S.BufferStore(self.sums, E.Broadcast(zero, LANES), (_four(n * LANES),)) for n in range(count)]
        else:
            clear = [S.BufferStore(self.sums, zero, (T.const(n),)) for n in range(count)]
        summed = self._sum() if self.packed is None else self._sum_packed(self.packed)
        inside = S.seq(*clear, summed, *self._combine(), self._results())
        held = () if self.packed is None else (self.words, self.scales, self.zeros, self.part_sum)
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
        terms, count = self.work.sizes[3], PACKED_CHUNKS if self.shares.lanes > PACKED_LANES else PACKED_CHUNKS // 2
        while count > 1 and not divides(count * self.shares.lanes * CHUNK, terms):
            count //= 2
        return count

    def _inside_column(self, own: int) -> E.Expr:
        """A column of a work-item; the last one, where that lies behind it."""
        column, columns = self._column(own), self.work.sizes[2]
        return column if divides(self.across, columns) else T.minimum(column, to_expr(columns - 1))

    def _sum_packed(self, packed: Packed) -> S.Stmt:
        """The same of weights of few bits, whose words are on their way while the turn before is added."""
        terms, turn = self.work.sizes[3], E.Var("turn", E.INT32)
        each = self.chunks * self.shares.lanes
        turns = ceil_div(terms, each * CHUNK)

        def chunk(turn: E.Expr, number: int) -> E.Expr:
            return T.add(T.add(T.mul(turn, each), number * self.shares.lanes), self.lane)

        if not divides(each * CHUNK, terms):  # the last turn is not for all: loads would have to be guarded
            only = chunk(turn, 0)
            both = S.seq(*self._words(packed, only, 0), *self._chunk(packed, only, 0))
            body = S.IfThenElse(T.less(T.mul(only, CHUNK), to_expr(terms)), both)
            return S.For(turn, T.const(0), to_expr(turns), S.LoopKind.SERIAL, body)
        first = [s for n in range(self.chunks) for s in self._words(packed, chunk(T.const(0), n), n)]
        statements: list[S.Stmt] = []
        for n in range(self.chunks):
            following = S.seq(*self._words(packed, chunk(T.add(turn, 1), n), n))
            statements += self._chunk(packed, chunk(turn, n), n)
            statements.append(S.IfThenElse(T.less(T.add(turn, 1), to_expr(turns)), following))
        return S.seq(*first, S.For(turn, T.const(0), to_expr(turns), S.LoopKind.SERIAL, S.seq(*statements)))

    def _words(self, packed: Packed, chunk: E.Expr, number: int) -> list[S.Stmt]:
        """Load the words of a chunk of all columns, their scales and zeros."""
        statements: list[S.Stmt] = []
        for own in range(self.shares.own):
            column, at = self._inside_column(own), number * self.shares.own + own
            place = packed.at(packed.place, column, chunk)
            for word in range(packed.words):
                bytes_ = E.BufferLoad(packed.memory, (E.Ramp(T.add(place, word * LANES), T.const(1), LANES),))
                load = T.call("reinterpret", bytes_, dtype="uint32")
                statements.append(S.BufferStore(self.words, load, (T.const(at * packed.words + word),)))
            for buffer, form in ((self.scales, packed.scale), (self.zeros, packed.zero)):
                if not isinstance(form, E.FloatImm):
                    value = T.cast(packed.at(form, column, chunk), buffer.dtype)
                    statements.append(S.BufferStore(buffer, value, (T.const(at),)))
        return statements

    def _chunk(self, packed: Packed, chunk: E.Expr, number: int) -> list[S.Stmt]:
        """Add a chunk, whose words are there, to the sums of all rows and columns."""
        statements: list[S.Stmt] = []
        for row in range(self.rows):
            data = partial(self._left, self._row(row))
            statements += self._loaded(self.left, row * CHUNK, data, T.mul(chunk, CHUNK))
            statements += self._scaled(packed, row)
        for own in range(self.shares.own):
            statements += self._add_packed(packed, own, number * self.shares.own + own)
        return statements

    def _scaled(self, packed: Packed, row: int) -> list[S.Stmt]:
        """Divide a chunk of the data by what fields stand for where they lie."""
        statements: list[S.Stmt] = []
        for n in range(CHUNK):
            place = (T.const(row * CHUNK + n),)
            value = T.mul(E.BufferLoad(self.left, place), T.const(0.5 ** packed.power(n), self.left.dtype))
            statements += [S.BufferStore(self.left, value, place)] if packed.power(n) else []
        return statements

    def _add_packed(self, packed: Packed, own: int, at: int) -> list[S.Stmt]:
        """Add a chunk of a column to the sums of all rows."""
        each, statements = 32 // packed.bits, list[S.Stmt]()
        scale, zero = (
            form if isinstance(form, E.FloatImm) else E.BufferLoad(buffer, (T.const(at),))
            for buffer, form in ((self.scales, packed.scale), (self.zeros, packed.zero))
        )
        for n in range(CHUNK):
            word = E.BufferLoad(self.words, (T.const(at * packed.words + n // each),))
            statements.append(S.BufferStore(self.right, packed.field(n, word, zero), (T.const(own * CHUNK + n),)))
        part, dtype = (T.const(0),), self.sums.dtype
        for row in range(self.rows):
            for n in range(CHUNK):
                a = T.cast(E.BufferLoad(self.left, (T.const(row * CHUNK + n),)), dtype)
                b = T.cast(E.BufferLoad(self.right, (T.const(own * CHUNK + n),)), dtype)
                total = T.call("fma", a, b, E.BufferLoad(self.part_sum, part)) if n else T.mul(a, b)
                statements.append(S.BufferStore(self.part_sum, total, part))
            sums = (T.const(row * self.shares.own + own),)
            total = T.call("fma", E.BufferLoad(self.part_sum, part), scale, E.BufferLoad(self.sums, sums))
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
            parts = [E.BufferLoad(self.sums, (T.const(k * self.wide + n),)) for n in range(self.wide)]
            total = T.add(T.add(parts[0], parts[1]), T.add(parts[2], parts[3])) if len(parts) > 1 else parts[0]
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


def _four(begin: int) -> E.Expr:
    return E.Ramp(T.const(begin), T.const(1), LANES)
