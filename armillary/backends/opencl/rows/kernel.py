"""The kernel of rows: work-items share a row, reduce it, and compute what follows from its results.

In: the elements of a function, its `Rows`. Out: loops over `blockIdx` and `threadIdx`. Each work-item of a row takes
every so-manieth element; what they have is combined through shared memory, and each of them gets the result. Invariant:
neighbouring work-items read neighbours in memory: elements of a row, or, where rows lie side by side, rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary import te
from armillary.backends.opencl.extents import axis_extent, places, product, shape_of, unravel
from armillary.backends.opencl.gemm.operand import steps_along
from armillary.backends.opencl.rows.analysis import Rows
from armillary.backends.opencl.written.elements import Elements, Index
from armillary.base.dtype import DType
from armillary.base.extent import Known, ceil_div, divides, typical
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.extents import to_expr
from armillary.tir.substitute import substitute_expr

GROUP, MOST_PARTS = 256, 256  # work-items of a group, and of a row
EACH = 4  # elements of a row that a work-item should have at least
FEW = 16  # partial results that every work-item combines by itself
BUSY = 132 * 512  # work-items that keep a large GPU busy
Store = Callable[[te.Tensor, Index, E.Expr], S.Stmt]


@record
class Shares:
    """`parts` work-items for a row, `rows` of them in a group; `apart`: neighbours have neighbouring rows."""

    parts: int
    rows: int
    apart: bool


def shares_of(rows: int, terms: int, *, apart: bool) -> Shares:
    """How work-items share rows."""
    parts = 1
    while parts < MOST_PARTS and terms >= 2 * parts * EACH and (rows * parts < BUSY or (parts < 32 and not apart)):
        parts *= 2
    many = max(1, (64 if parts <= 64 else GROUP) // parts)
    if apart:
        many = max(1, min(32, rows, GROUP // parts))
    return Shares(parts, many, apart)


class RowKernel:
    """One kernel being written."""

    def __init__(self, elements: Elements, work: Rows) -> None:
        self.elements, self.work = elements, work
        self.group, self.item = E.Var("group", E.INT32), E.Var("item", E.INT32)
        self.count = product(work.shape)
        self.shares = shares_of(typical(self.count), typical(work.terms), apart=self._is_apart())
        parts, rows = self.shares.parts, self.shares.rows
        if self.shares.apart:
            self.part, self.own = T.floordiv(self.item, rows), T.floormod(self.item, rows)
        else:
            self.part, self.own = T.floormod(self.item, parts), T.floordiv(self.item, parts)
        if parts == 1:
            self.part, self.own = T.const(0), self.item
        self.is_whole = divides(rows, self.count)
        row = T.add(T.mul(self.group, rows), self.own)
        self.row = row
        # rows beside the last are reduced like the last, and not stored
        self.read_row = row if self.is_whole else T.minimum(row, to_expr(self.count - 1))
        self.memory: list[S.Buffer] = []

    def body(self, store: Store) -> S.Stmt:
        """The whole kernel; `store` stores an element of a result."""
        statements: list[S.Stmt] = []
        for op in self.work.reductions:
            statements += self._reduce(op)
        for tensor, positions in zip(self.work.results, self.work.positions, strict=True):
            statements.append(self._result(tensor, positions, store))
        inside = S.seq(*statements)
        for buffer in self.memory:
            inside = S.Allocate(buffer, inside)
        groups = ceil_div(self.count, self.shares.rows)
        items = self.shares.parts * self.shares.rows
        for variable, extent, tag in ((self.item, items, "threadIdx.x"), (self.group, groups, "blockIdx.x")):
            inside = S.For(variable, T.const(0), to_expr(extent), S.LoopKind.THREAD, inside, tag)
        return inside

    def _is_apart(self) -> bool:
        """Whether elements of a row lie apart, and rows side by side."""
        op = self.work.reductions[0]
        row, term = E.Var("row", E.INT32), E.Var("term", E.INT32)
        ranges = {row: places(self.count), term: places(self.work.terms)}
        element = self.elements.with_ranges(ranges, lambda: self._source(op, row, term))
        return 1 not in steps_along(element, term) and 1 in steps_along(element, row)

    def _source(self, op: te.ComputeOp, row: E.Expr, term: E.Expr) -> E.Expr:
        reduce = op.body[0]
        assert isinstance(reduce, E.Reduce), "a reduction"
        return self.elements.inside(reduce.source[0], self._variables(op, row, term))

    def _variables(self, op: te.ComputeOp, row: E.Expr, term: E.Expr) -> Mapping[E.Var, E.Expr]:
        own = unravel(row, [axis_extent(a) for a in op.axis])
        summed = unravel(term, [axis_extent(a) for a in op.reduce_axis])
        axes = (*op.axis, *op.reduce_axis)
        return {axis.var: index for axis, index in zip(axes, (*own, *summed), strict=True)}

    def _local(self, name: str, dtype: DType, size: int = 1, scope: str = "local") -> S.Buffer:
        buffer = S.Buffer(name, (T.const(size),), dtype, scope)
        self.memory.append(buffer)
        return buffer

    def _reduce(self, op: te.ComputeOp) -> list[S.Stmt]:
        """Each work-item reduces its elements; then all get what they have together."""
        reduce = op.body[0]
        assert isinstance(reduce, E.Reduce), "a reduction"
        combiner = reduce.combiner
        own = self._local(f"{op.name}_own", op.output(0).dtype)
        at = (T.const(0),)

        def add(value: E.Expr) -> S.Stmt:
            pair = {combiner.lhs[0]: E.BufferLoad(own, at), combiner.rhs[0]: value}
            return S.BufferStore(own, substitute_expr(combiner.result[0], pair), at)

        statements: list[S.Stmt] = [S.BufferStore(own, combiner.identity[0], at)]
        statements.append(self._over_terms(lambda term: add(self._source(op, self.read_row, term))))
        self.elements.held[op.output(0)] = lambda _: E.BufferLoad(own, at)
        self.elements.forget()
        parts = self.shares.parts
        while parts > 1:
            left = FEW if parts > FEW else 1
            statements += self._combine(op, own, parts, left, add)
            parts = left
        return statements

    def _combine(
        self, op: te.ComputeOp, own: S.Buffer, parts: int, left: int, add: Callable[[E.Expr], S.Stmt]
    ) -> list[S.Stmt]:
        """What `parts` work-items of a row have becomes what `left` of them have; 1: what each has."""
        rows, at = self.shares.rows, (T.const(0),)
        shared = self._local(f"{op.name}_{parts}", own.dtype, parts * rows, "shared")

        def place(part: E.Expr) -> E.Expr:
            if self.shares.apart:
                return T.add(T.mul(part, rows), self.own)
            return T.add(T.mul(self.own, parts), part)

        give: S.Stmt = S.BufferStore(shared, E.BufferLoad(own, at), (place(self.part),))
        if parts < self.shares.parts:
            give = S.IfThenElse(T.less(self.part, parts), give)
        begin = S.BufferStore(own, E.BufferLoad(shared, (place(self.part if left > 1 else T.const(0)),)), at)
        n = E.Var("n", E.INT32)
        other = T.mul(T.add(n, 1), left)
        rest = add(E.BufferLoad(shared, (place(T.add(other, self.part) if left > 1 else other),)))
        take = S.seq(begin, S.For(n, T.const(0), T.const(parts // left - 1), S.LoopKind.SERIAL, rest))
        return [give, S.IfThenElse(T.less(self.part, left), take) if left > 1 else take]

    def _over_terms(self, statement: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
        """A statement for each of a work-item's elements of the row."""
        return self._over(self.work.terms, statement)

    def _over(self, total: Known, statement: Callable[[E.Expr], S.Stmt]) -> S.Stmt:
        parts = self.shares.parts
        turn = E.Var("turn", E.INT32)
        place = T.add(T.mul(turn, parts), self.part)
        body = statement(place)
        if not divides(parts, total):
            body = S.IfThenElse(T.less(place, to_expr(total)), body)
        return S.For(turn, T.const(0), to_expr(ceil_div(total, parts)), S.LoopKind.SERIAL, body)

    def _result(self, tensor: te.Tensor, positions: Sequence[int], store: Store) -> S.Stmt:
        """Store a row of a result: each work-item its elements."""
        shape = shape_of(tensor)
        inner = [n for n in range(len(shape)) if n not in positions]
        size = product(shape[n] for n in inner)

        def element(row: E.Expr, term: E.Expr) -> S.Stmt:
            where: dict[int, E.Expr] = dict(zip(positions, unravel(row, self.work.shape), strict=True))
            where |= zip(inner, unravel(term, [shape[n] for n in inner]), strict=True)
            indices = tuple(where[n] for n in range(len(shape)))
            return store(tensor, indices, self.elements.at(tensor, indices))

        if size != 1:
            stored = self._over(size, lambda term: element(self.row, term))
        else:
            stored = element(self.row, T.const(0))
            stored = S.IfThenElse(T.less(self.part, 1), stored) if self.shares.parts > 1 else stored
        return stored if self.is_whole else S.IfThenElse(T.less(self.row, to_expr(self.count)), stored)
