"""Which elements of which buffers a block reads and writes.

In: a block, as its axes stand. Out: two tuples of BufferRegion, in the order in which the body meets the buffers.
Invariant: every element that is touched lies in the region of its buffer; a region is exact where the indices are sums
of products of loop variables with constants, else it may be larger. Buffers of the block itself are left out, and, of
what is read, those that a reduction writes.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.node import Visits
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_any
from armillary.tir.blocks.block import Block, BlockRealize, BufferRegion
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

Span = tuple[E.Expr, E.Expr]  # the least and the largest value


def block_regions(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """What a block reads and what it writes."""
    detector = _Detector({m.buffer for m in block.match_buffers} | set(block.alloc_buffers))
    if block.init is not None:
        detector.stmt(block.init)
    detector.stmt(block.body)
    for match in block.match_buffers:
        detector.reads.setdefault(match.source.buffer, _spans_of(match.source))
    written = detector.writes if block.init is not None else {}
    reads = {buffer: spans for buffer, spans in detector.reads.items() if buffer not in written}
    return detector.regions(reads), detector.regions(detector.writes)


def read_spans(item: S.Stmt, buffer: S.Buffer) -> list[Span]:
    """Which elements of a buffer a statement reads, a span along each dimension, over all its loops."""
    detector = _Detector(set())
    detector.stmt(item)
    return detector.reads[buffer]


def _spans_of(region: BufferRegion) -> list[Span]:
    return [(r.min, simplify(r.min + r.extent - 1)) for r in region.region]


class _Detector:
    """One walk over a body."""

    def __init__(self, own: set[S.Buffer]) -> None:
        self.own = own
        self.loops: dict[E.Var, Span] = {}
        self.reads: dict[S.Buffer, list[Span]] = {}
        self.writes: dict[S.Buffer, list[Span]] = {}

    def regions(self, spans_of: dict[S.Buffer, list[Span]]) -> tuple[BufferRegion, ...]:
        result = []
        for buffer, spans in spans_of.items():
            ranges = [E.Range.from_min_extent(low, simplify(high - low + 1)) for low, high in spans]
            if buffer not in self.own:
                result.append(BufferRegion(buffer, tuple(ranges)))
        return tuple(result)

    def touch(self, spans_of: dict[S.Buffer, list[Span]], buffer: S.Buffer, spans: list[Span]) -> None:
        before = spans_of.get(buffer)
        if before is not None:
            spans = [_union(a, b) for a, b in zip(before, spans, strict=True)]
        spans_of[buffer] = spans

    def access(self, spans_of: dict[S.Buffer, list[Span]], buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> None:
        spans = [self.span(i, size) for i, size in zip(indices, buffer.shape, strict=True)]
        self.touch(spans_of, buffer, spans)

    def span(self, index: E.Expr, size: E.Expr) -> Span:
        """The values of an index over the loops inside the block."""
        if not isinstance(index, E.Ramp) and not uses_any(index, set(self.loops)):
            return index, index
        interval = self._span(index)
        if interval is None:
            return build.const(0, size.dtype), build.sub(size, 1)
        return simplify(interval[0]), simplify(interval[1])

    def _span(self, item: E.Expr) -> Span | None:
        if isinstance(item, E.Var):
            return self.loops.get(item, (item, item))
        rule = _SPANS.get(type(item))
        if rule is not None:
            return rule(self, item)
        return None if uses_any(item, set(self.loops)) else (item, item)

    def expr(self, item: E.Expr) -> None:
        """The loads of an expression, outer ones first."""
        stack = [item]
        while stack:
            one = stack.pop()
            if isinstance(one, E.BufferLoad):
                self.access(self.reads, one.buffer, one.indices)
            parts = [v for n in one._fields for v in _expressions(getattr(one, n))]
            stack += reversed(parts)

    def stmt(self, item: S.Stmt) -> None:
        if isinstance(item, S.BufferStore):
            self.access(self.writes, item.buffer, item.indices)
            for value in (item.value, *item.indices):
                self.expr(value)
        elif isinstance(item, S.For):
            self.loops[item.var] = (item.min, build.sub(build.add(item.min, item.extent), 1))
            self.expr(item.min)
            self.expr(item.extent)
            self.stmt(item.body)
        elif isinstance(item, BlockRealize):
            self.nested(item)
        else:
            self.own |= {item.buffer} if isinstance(item, S.Allocate) else set()
            for name in item._fields:
                value = getattr(item, name)
                for part in value if isinstance(value, tuple) else (value,):
                    if isinstance(part, E.Expr):
                        self.expr(part)
                    elif isinstance(part, S.Stmt):
                        self.stmt(part)

    def nested(self, item: BlockRealize) -> None:
        """A block inside counts by its own regions, at the values of its axes."""
        self.expr(item.predicate)
        values = {a.var: v for a, v in zip(item.block.iter_vars, item.iter_values, strict=True)}
        for regions, touched_regions in ((item.block.reads, self.reads), (item.block.writes, self.writes)):
            for region in regions:
                spans = []
                for one, size in zip(region.region, region.buffer.shape, strict=True):
                    low = self.span(substitute_expr(one.min, values), size)
                    last = build.sub(build.add(one.min, one.extent), 1)
                    spans.append((low[0], self.span(simplify(substitute_expr(last, values)), size)[1]))
                self.touch(touched_regions, region.buffer, spans)


def _expressions(value: object) -> list[E.Expr]:
    if isinstance(value, E.Expr):
        return [value]
    return [v for v in value if isinstance(v, E.Expr)] if isinstance(value, tuple) else []


def _union(a: Span, b: Span) -> Span:
    """The least span that holds both."""
    low, high = (_least(a[0], b[0], build.minimum, True), _least(a[1], b[1], build.maximum, False))
    return low, high


def _least(a: E.Expr, b: E.Expr, choose: Callable[[E.Expr, E.Expr], E.Expr], smaller: bool) -> E.Expr:
    apart = build.as_int(simplify(build.sub(a, b)))
    if apart is None:
        return simplify(choose(a, b))
    return a if (apart <= 0) == smaller else b


def _sum(d: _Detector, item: E.Add) -> Span | None:
    a, b = d._span(item.a), d._span(item.b)
    return None if a is None or b is None else (build.add(a[0], b[0]), build.add(a[1], b[1]))


def _difference(d: _Detector, item: E.Sub) -> Span | None:
    a, b = d._span(item.a), d._span(item.b)
    return None if a is None or b is None else (build.sub(a[0], b[1]), build.sub(a[1], b[0]))


def _product(d: _Detector, item: E.Mul) -> Span | None:
    for side, other in ((item.a, item.b), (item.b, item.a)):
        factor, span = build.as_int(other), d._span(side)
        if factor is not None and span is not None:
            ends = build.mul(span[0], other), build.mul(span[1], other)
            return ends if factor >= 0 else (ends[1], ends[0])
    return None if uses_any(item, set(d.loops)) else (item, item)


def _quotient(d: _Detector, item: E.FloorDiv) -> Span | None:
    divisor, span = build.as_int(item.b), d._span(item.a)
    if divisor is not None and divisor > 0 and span is not None:
        return build.floordiv(span[0], item.b), build.floordiv(span[1], item.b)
    return None if uses_any(item, set(d.loops)) else (item, item)


def _remainder(d: _Detector, item: E.FloorMod) -> Span | None:
    divisor = build.as_int(item.b)
    if divisor is None or divisor <= 0:
        return None if uses_any(item, set(d.loops)) else (item, item)
    if not uses_any(item, set(d.loops)):
        return item, item
    return build.const(0, item.dtype), build.const(divisor - 1, item.dtype)


def _ramp(d: _Detector, item: E.Ramp) -> Span | None:
    base, step = d._span(item.base), build.as_int(item.stride)
    if base is None or step is None:
        return None
    far = build.const(step * (item.lanes - 1), item.base.dtype)
    return (base[0], build.add(base[1], far)) if step >= 0 else (build.add(base[0], far), base[1])


_SPANS: Visits[_Detector, [], Span | None] = {
    E.Add: _sum,
    E.Sub: _difference,
    E.Mul: _product,
    E.FloorDiv: _quotient,
    E.FloorMod: _remainder,
    E.Ramp: _ramp,
}
