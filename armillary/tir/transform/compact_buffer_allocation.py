"""`compact-buffer-allocation`: allocate only the part of a buffer that is used.

In: allocations of N-dimensional buffers (before storage-flatten), in blocks without axes too. Out: the same with each
dimension cut to the indices that occur where the buffer lives, and the indices counted from the first of them.
Invariant: every access means the element it meant; a dimension whose indices cannot be bounded, or that would not
shrink, stays. Loops around the allocation may shift the part: `B[i], B[i + 1]` inside a loop over i needs two elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars
from armillary.tir.blocks.block import Block, BufferRegion, MatchBufferRegion
from armillary.tir.bounds import INFINITE, Interval, add_intervals, scale_interval
from armillary.tir.linear import Linear
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import ExprMapper, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body


def compact_buffer_allocation(func: S.PrimFunc) -> S.PrimFunc:
    """Cut buffers to what is used.

    for i in range(8) { alloc X: Buffer[(9,), float32] {
        X[i] = A[i]  X[i + 1] = A[i + 1]  B[i] = X[i] + X[i + 1] } }
    ->
    for i in range(8) { alloc X: Buffer[(2,), float32] {
        X[0] = A[i]  X[1] = A[i + 1]  B[i] = X[0] + X[1] } }
    """

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        return _compacted(mapped) if isinstance(mapped, S.Allocate) else mapped

    return with_body(func, visit(func.body))


@dataclass
class _Uses:
    """Indices of every access to one buffer, with the ranges of the loops inside the allocation."""

    buffer: S.Buffer
    indices: list[tuple[E.Expr, ...]] = field(default_factory=list)
    is_plain: bool = True
    simplifier: Simplifier = field(default_factory=Simplifier)
    inner: set[E.Var] = field(default_factory=set)

    def collect(self, body: S.Stmt) -> None:
        for item in post_order(body):
            if isinstance(item, S.For):
                self.inner.add(item.var)
                low, extent = self.simplifier.bound(item.min), self.simplifier.bound(item.extent)
                high = INFINITE if INFINITE in (low[1], extent[1]) else low[1] + max(extent[1], 1) - 1
                self.simplifier.bind(item.var, (low[0], max(low[0], high)))
            elif isinstance(item, S.LetStmt):
                self.inner.add(item.var)
            elif isinstance(item, Block):
                self.inner.update(axis.var for axis in item.iter_vars)
            elif isinstance(item, MatchBufferRegion) and item.source.buffer is self.buffer:
                ends = [(r.min, build.sub(build.add(r.min, r.extent), 1)) for r in item.source.region]
                self.indices += zip(*ends, strict=True)
            elif isinstance(item, S.BufferStore | E.BufferLoad) and item.buffer is self.buffer:
                self.indices.append(item.indices)
            elif isinstance(item, S.AttrStmt) and item.node is self.buffer:
                self.is_plain = False

    def region(self, dimension: int) -> tuple[E.Expr, int] | None:
        """First index and extent of what is used of a dimension; None: cannot say, or nothing is saved."""
        outside: Linear | None = None
        spans: list[Interval] = []
        for row in self.indices:
            index = row[dimension]
            if index.dtype.lanes > 1:
                return None
            fixed, span = self._split(self.simplifier.linear(index))
            if outside is not None and fixed.terms != outside.terms:
                return None
            outside = fixed
            spans.append(span)
        if outside is None or any(abs(end) >= INFINITE for span in spans for end in span):
            return None
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        extent, whole = high - low + 1, build.as_int(self.buffer.shape[dimension])
        if whole is None or extent >= whole:
            return None
        first = Linear(dict(outside.terms), low).expr(self.buffer.shape[dimension].dtype)
        return first, extent

    def _split(self, form: Linear) -> tuple[Linear, Interval]:
        """The part that is fixed while the buffer lives, and the range of the rest."""
        fixed: dict[E.Expr, int] = {}
        span: Interval = (form.constant, form.constant)
        for atom, factor in form.terms.items():
            if self.inner.isdisjoint(free_vars(atom)):
                fixed[atom] = factor
            else:
                span = add_intervals(span, scale_interval(self.simplifier.bound(atom), factor))
        return Linear(fixed, 0), span


def _compacted(item: S.Allocate) -> S.Stmt:
    buffer = item.buffer
    uses = _Uses(buffer)
    uses.collect(item.body)
    if not uses.is_plain or buffer.strides or buffer.elem_offset is not None or not uses.indices:
        return item
    regions = [uses.region(d) for d in range(len(buffer.shape))]
    if not any(regions):
        return item
    shape = tuple(
        extent if region is None else build.const(region[1], extent.dtype)
        for extent, region in zip(buffer.shape, regions, strict=True)
    )
    small = replace(buffer, shape=shape)
    simplify = Simplifier()

    def place(indices: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        moved = zip(indices, regions, strict=True)
        return tuple(i if r is None else simplify(build.sub(i, build.cast(r[0], i.dtype))) for i, r in moved)

    mapper = ExprMapper(
        lambda e: E.BufferLoad(small, place(e.indices)) if isinstance(e, E.BufferLoad) and e.buffer is buffer else None
    )

    def moved(item: BufferRegion) -> BufferRegion:
        if item.buffer is not buffer:
            return item
        starts = place(tuple(r.min for r in item.region))
        parts = zip(starts, item.region, strict=True)
        return BufferRegion(small, tuple(E.Range.from_min_extent(low, r.extent) for low, r in parts))

    def visit(s: S.Stmt) -> S.Stmt:
        mapped = map_stmt(s, mapper, visit)
        if isinstance(mapped, Block):
            matched = tuple(replace(m, source=moved(m.source)) for m in mapped.match_buffers)
            reads, writes = (tuple(moved(r) for r in regions) for regions in (mapped.reads, mapped.writes))
            return replace(mapped, reads=reads, writes=writes, match_buffers=matched)
        if isinstance(mapped, S.BufferStore) and mapped.buffer is buffer:
            return S.BufferStore(small, mapped.value, place(mapped.indices))
        return mapped

    return S.Allocate(small, visit(item.body))


CompactBufferAllocation = prim_pass("compact-buffer-allocation", "tir.CompactBufferAllocation")(
    compact_buffer_allocation
)
