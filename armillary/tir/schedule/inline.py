"""Blocks that are computed where they are read: `inlined(function, path)`, and who writes what others read.

    b[v] = a[v] * 2; c[v] = b[v] + 1  ->  c[v] = a[v] * 2 + 1

In: a function and the statements from its body to a BlockRealize. Out: the function without the block and without its
buffer. Invariant: refused (ScheduleError) unless the block stores every element of a buffer of the function's own once,
by one expression, and nothing that it reads is written after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, is_pure
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import block_regions
from armillary.tir.substitute import Substitution, map_all, map_stmt, substitute_expr


def leaves(body: S.Stmt) -> list[Block]:
    """The blocks without blocks inside, in their order."""
    blocks = [s for s in all_statements(body) if isinstance(s, Block)]
    return [b for b in blocks if not any(isinstance(s, Block) for s in all_statements(b.body))]


def touched(block: Block) -> tuple[set[S.Buffer], set[S.Buffer]]:
    """The buffers that a block reads and those that it writes."""
    reads, writes = block_regions(block)
    return {r.buffer for r in reads}, {w.buffer for w in writes}


def inlined(func: S.PrimFunc, path: Sequence[S.Stmt]) -> S.PrimFunc:
    """The function with the last block of the path computed by its readers."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    reason = _obstacle(func, path, realize, block)
    if reason is not None:
        raise ScheduleError(f"compute_inline: block {block.name_hint!r} {reason}")
    store = block.body
    assert isinstance(store, S.BufferStore), "checked above"

    def value(item: E.Expr) -> E.Expr | None:
        if isinstance(item, E.BufferLoad) and item.buffer is store.buffer:
            return substitute_expr(store.value, dict(zip(axes_of(block), item.indices, strict=True)))
        return None

    nest = next(s for s in path if alone(s, block))

    readers = {b.name_hint for b in leaves(func.body) if store.buffer in touched(b)[0]}
    result: S.PrimFunc = replace(
        func, body=with_regions(map_all(without(func.body, nest, store.buffer, old=store, new=store), value), readers)
    )
    return result


def without(body: S.Stmt, nest: S.Stmt, buffer: S.Buffer | None, *, old: S.Stmt, new: S.Stmt) -> S.Stmt:
    """The body without one of the statements that run in order, and without a buffer of its own; `new` for `old`."""

    def visit(item: S.Stmt) -> S.Stmt:
        if item is old:
            return new
        if isinstance(item, S.SeqStmt):
            return S.seq(*(visit(s) for s in item.statements if s is not nest))
        result = map_stmt(item, lambda e: e, visit)
        if isinstance(result, Block) and buffer in result.alloc_buffers:
            return replace(result, alloc_buffers=tuple(b for b in result.alloc_buffers if b is not buffer))
        return result

    return visit(body)


def axes_of(block: Block) -> list[E.Var]:
    """The variables of the axes of a block."""
    return [axis.var for axis in block.iter_vars]


def serial_loops(loops: Sequence[tuple[E.Var, E.Expr]], body: S.Stmt) -> S.Stmt:
    """The statement inside loops from 0 on, the outermost first: variables with their numbers of iterations."""
    for var, extent in reversed(loops):
        body = S.For(var, build.const(0, var.dtype), extent, S.LoopKind.SERIAL, body)
    return body


def moved(item: S.Stmt, values: dict[E.Var, E.Expr]) -> S.Stmt:
    """A statement, blocks included, with variables replaced."""
    mapper = Substitution(values)

    def visit(s: S.Stmt) -> S.Stmt:
        return map_stmt(s, mapper, visit)

    return visit(item)


def alone(item: S.Stmt, block: Block) -> bool:
    """Whether a block is the only one in a statement."""
    return [s for s in all_statements(item) if isinstance(s, Block)] == [block]


def with_regions(body: S.Stmt, names: set[str]) -> S.Stmt:
    """The body, whose blocks of these names say anew what they touch."""

    def visit(item: S.Stmt) -> S.Stmt:
        if isinstance(item, Block) and item.name_hint in names:
            reads, writes = block_regions(item)
            return replace(item, reads=reads, writes=writes)
        return map_stmt(item, lambda e: e, visit)

    return visit(body)


def _obstacle(func: S.PrimFunc, path: Sequence[S.Stmt], realize: BlockRealize, block: Block) -> str | None:
    """Why a block cannot be computed by its readers; None where it can."""
    store = block.body
    if not isinstance(store, S.BufferStore) or block.init is not None or block.match_buffers:
        return "is not one store of one expression"
    if list(store.indices) != axes_of(block) or not is_pure(store.value):
        return "does not store at its own axes, in their order"
    if not any(isinstance(s, Block) and store.buffer in s.alloc_buffers for s in path):
        return f"writes {store.buffer.name}, an argument of the function"
    if not covers(path, realize, block, store.buffer):
        return "does not store each element once (inline it before its loops are split)"
    blocks = leaves(func.body)
    at = blocks.index(block)
    if any(store.buffer in touched(b)[1] for b in blocks if b is not block):
        return f"is not the only one that writes {store.buffer.name}"
    if touched(block)[0] & {w for b in blocks[at:] for w in touched(b)[1]}:
        return "reads what is written after it"
    if not any(store.buffer in touched(b)[0] for b in blocks[at + 1 :]):
        return "is read by no block after it"
    return None


def covers(path: Sequence[S.Stmt], realize: BlockRealize, block: Block, buffer: S.Buffer) -> bool:
    """Whether loops of the block alone run through all elements of the buffer."""
    loops = {s.var: s.extent for s in path if isinstance(s, S.For) and _is_zero(s.min) and alone(s, block)}
    values = [v for v in realize.iter_values if isinstance(v, E.Var)]
    whole = isinstance(realize.predicate, E.IntImm) and bool(realize.predicate.value)
    if not whole or len({*values}) != len(buffer.shape) or not set(values) <= set(loops):
        return False
    return all(structural_equal(loops[v], size) for v, size in zip(values, buffer.shape, strict=True))


def _is_zero(item: E.Expr) -> bool:
    return isinstance(item, E.IntImm) and item.value == 0
