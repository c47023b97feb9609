"""Blocks of TensorIR: computations with axes of their own, as TVMScript writes and `te.create_prim_func` makes them.

    stmt = BlockRealize(iter_values, predicate, block)         run the block at these values of its axes, if it holds
         | Block(iter_vars, reads, writes, name_hint, body, init?, alloc_buffers, match_buffers, annotations)
    region = BufferRegion(buffer, region)                      elements, a Range along each dimension
           | MatchBufferRegion(buffer, source)                 `buffer` is another name for the elements `source`

In: nodes of `expr.py` and `stmt.py`. Out: statements that passes before `LowerOpaqueBlock` see. Invariant: a block
stands only inside its BlockRealize; what `alloc_buffers` names exists while the body runs; `init` runs where all
reduction axes are at their beginning. No back end knows blocks: `tir/transform/scripts/blocks.py` makes loops of them.
Which elements a block touches: `tir/blocks/regions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from armillary.base.node import Coercion, Node, Pairs, Refuse, node, replace
from armillary.tir import analysis, printer, substitute
from armillary.tir import expr as E
from armillary.tir import stmt as S


def _nodes(kind: str) -> str:
    return f"type({{0}}) is tuple and all(isinstance(one, {kind}) for one in {{0}})"


@node
class BufferRegion(Node):
    """Some elements of a buffer: a range along each of its dimensions."""

    buffer: S.Buffer
    region: tuple[E.Range, ...]

    @staticmethod
    def full(buffer: S.Buffer) -> BufferRegion:
        """The region of all elements of a buffer."""
        return BufferRegion(buffer, tuple(E.Range(size) for size in buffer.shape))


@node
class MatchBufferRegion(Node):
    """`buffer` names the elements of `source`, whose trailing dimensions are its own."""

    buffer: S.Buffer
    source: BufferRegion


@node
class Block(S.Stmt):
    """A computation over its own axes; compared without its name."""

    _binds: ClassVar[bool] = True
    _accepts: ClassVar[dict[str, str]] = {
        **S.Stmt._accepts,
        "tuple[E.IterVar, ...]": _nodes("IterVar"),
        "tuple[BufferRegion, ...]": _nodes("BufferRegion"),
        "tuple[S.Buffer, ...]": _nodes("Buffer"),
        "tuple[MatchBufferRegion, ...]": _nodes("MatchBufferRegion"),
        "S.Stmt": S.Stmt._accepts["Stmt"],
        "S.Stmt | None": S.Stmt._accepts["Stmt | None"],
    }
    _scope: ClassVar[dict[str, object]] = {
        **E.SCOPE,
        "IterVar": E.IterVar,
        "Buffer": S.Buffer,
        "BufferRegion": BufferRegion,
        "MatchBufferRegion": MatchBufferRegion,
    }
    _coerce: ClassVar[Coercion | None] = E.Expr._coerce
    _refuse: ClassVar[Refuse | None] = E.Expr._refuse
    iter_vars: tuple[E.IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: S.Stmt
    init: S.Stmt | None = None
    alloc_buffers: tuple[S.Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Pairs = ()


@node
class BlockRealize(S.Stmt):
    """Run `block` with its axes at `iter_values` where `predicate`, a bool, holds."""

    iter_values: tuple[E.Expr, ...]
    predicate: E.Expr
    block: Block

    @property
    def body(self) -> Block:
        """The block, as walks over statements look for it."""
        return self.block


def has_blocks(item: Node) -> bool:
    """Whether a statement or a function holds blocks."""
    body = item.body if isinstance(item, S.PrimFunc) else item
    return isinstance(body, S.Stmt) and any(isinstance(s, Block) for s in analysis.all_statements(body))


def map_range(item: E.Range, on_expr: substitute.Mapper) -> E.Range:
    """A range with its expressions mapped."""
    low, extent = on_expr(item.min), on_expr(item.extent)
    return item if low is item.min and extent is item.extent else E.Range.from_min_extent(low, extent)


def map_region(item: BufferRegion, on_expr: substitute.Mapper) -> BufferRegion:
    """A region with its expressions mapped."""
    mapped = tuple(map_range(r, on_expr) for r in item.region)
    return item if all(a is b for a, b in zip(mapped, item.region, strict=True)) else BufferRegion(item.buffer, mapped)


def _map_realize(item: BlockRealize, on_expr: substitute.Mapper, on_stmt: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    values, block = tuple(on_expr(v) for v in item.iter_values), on_stmt(item.block)
    return replace(item, iter_values=values, predicate=on_expr(item.predicate), block=block)


def _map_block(item: Block, on_expr: substitute.Mapper, on_stmt: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    axes = tuple(replace(a, dom=map_range(a.dom, on_expr)) if isinstance(a.dom, E.Range) else a for a in item.iter_vars)
    matched = tuple(replace(m, source=map_region(m.source, on_expr)) for m in item.match_buffers)
    return replace(
        item,
        iter_vars=axes,
        reads=tuple(map_region(r, on_expr) for r in item.reads),
        writes=tuple(map_region(r, on_expr) for r in item.writes),
        init=None if item.init is None else on_stmt(item.init),
        match_buffers=matched,
        body=on_stmt(item.body),
    )


def region_text(p: printer.Printer, item: BufferRegion) -> str:
    """The region as programs write it: `A[i, 0:4]`."""
    parts = []
    for one in item.region:
        is_point = isinstance(one.extent, E.IntImm) and one.extent.value == 1
        parts.append(p.expr(one.min) if is_point else f"{p.expr(one.min)}:{p.expr(one.min + one.extent)}")
    return f"{p.names.of(item.buffer, item.buffer.name)}[{', '.join(parts)}]"


def _print_realize(p: printer.Printer, s: BlockRealize, is_last: bool) -> None:
    pairs = zip(s.block.iter_vars, s.iter_values, strict=True)
    axes = ", ".join(f"{p.declare(a.var)} = {a.kind}({p.expr(value)})" for a, value in pairs)
    with p.writer.block(f"block {printer.quote(s.block.name_hint)}({axes}) where {p.expr(s.predicate)} {{"):
        for buffer in s.block.alloc_buffers:
            p.writer.line(f"alloc {p.buffer(buffer)}")
        for match in s.block.match_buffers:
            p.writer.line(f"match {p.buffer(match.buffer)} = {region_text(p, match.source)}")
        for word, regions in (("reads", s.block.reads), ("writes", s.block.writes)):
            p.writer.line(f"{word} {', '.join(region_text(p, r) for r in regions)}".rstrip())
        if s.block.annotations:
            p.writer.line(f"with ({p.pairs(s.block.annotations)})")
        if s.block.init is not None:
            with p.writer.block("init {"):
                p.stmt(s.block.init)
        p.stmt(s.block.body)


substitute.STATEMENTS[BlockRealize] = _map_realize
substitute.STATEMENTS[Block] = _map_block
analysis.BINDERS[Block] = lambda item: tuple(a.var for a in item.iter_vars)
printer.STATEMENTS[BlockRealize] = _print_realize
