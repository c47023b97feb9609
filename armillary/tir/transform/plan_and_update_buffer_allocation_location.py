"""`plan-and-update-buffer-allocation-location`: allocate buffers as far inside as their uses allow.

In: any loop program, with blocks or without. Out: each allocation around the smallest run of statements that touches
the buffer, and inside a loop where every iteration first writes the whole buffer. Invariant: no value that one
iteration leaves for the next is lost: into a loop a buffer moves only if its first use there is a nest of loops that
stores every element. Buffers that live shorter share memory (storage-rewrite), and small ones stay in cache. Buffers of
a block, but those that its start or its matched regions name, become allocations inside it.
"""

from __future__ import annotations

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.loop_pass import prim_pass, statements_of, with_body


def plan_and_update_buffer_allocation_location(func: S.PrimFunc) -> S.PrimFunc:
    """Move allocations inward.

    alloc X: Buffer[(4,), float32] {
        A[0] = 0.0
        for i in range(8) { for j in range(4) { X[j] = A[i + j] }  B[i] = X[0] + X[3] } }
    ->
    A[0] = 0.0
    for i in range(8) { alloc X: Buffer[(4,), float32] {
        for j in range(4) { X[j] = A[i + j] }  B[i] = X[0] + X[3] } }
    """

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        if isinstance(mapped, Block) and mapped.alloc_buffers:
            return _placed_in(mapped)
        return _place(mapped.buffer, mapped.body) if isinstance(mapped, S.Allocate) else mapped

    return with_body(func, visit(func.body))


def _touches(item: object, buffer: S.Buffer) -> bool:
    return any(node is buffer for node in post_order(item))  # type: ignore[arg-type]


def _placed_in(block: Block) -> Block:
    """The block with allocations in its body in the place of its buffers."""
    outside = tuple(b for b in block.alloc_buffers if _is_bound(block, b))
    body = block.body
    for buffer in reversed([b for b in block.alloc_buffers if b not in outside]):
        body = _place(buffer, body)
    placed: Block = replace(block, body=body, alloc_buffers=outside)
    return placed


def _is_bound(block: Block, buffer: S.Buffer) -> bool:
    """Whether more than the body of a block names the buffer, so that it cannot live inside."""
    parts = [*([] if block.init is None else [block.init]), *block.match_buffers]
    return any(_touches(part, buffer) for part in parts)


def _place(buffer: S.Buffer, body: S.Stmt) -> S.Stmt:
    """`body` with the allocation around as little of it as possible."""
    parts = statements_of(body)
    used = [k for k, part in enumerate(parts) if _touches(part, buffer)]
    if not used:
        return body
    first, last = used[0], used[-1]
    inside = parts[first : last + 1]
    placed = _inside(buffer, inside[0]) if len(inside) == 1 else S.Allocate(buffer, S.seq(*inside))
    return S.seq(*parts[:first], placed, *parts[last + 1 :])


def _inside(buffer: S.Buffer, item: S.Stmt) -> S.Stmt:
    """The allocation inside one statement, if it may go there."""
    if isinstance(item, S.For) and not _touches(item.min, buffer) and not _touches(item.extent, buffer):
        if _begins_with_whole_write(item.body, buffer):
            return replace(item, body=_place(buffer, item.body))
    elif isinstance(item, BlockRealize):
        values, block = (*item.iter_values, item.predicate), item.block
        if not _is_bound(block, buffer) and not any(_touches(e, buffer) for e in values):
            reads, writes = (tuple(r for r in rs if r.buffer is not buffer) for rs in (block.reads, block.writes))
            placed = replace(block, reads=reads, writes=writes, body=_place(buffer, block.body))
            return replace(item, block=placed)
    elif isinstance(item, S.Allocate) and item.buffer is not buffer:
        return S.Allocate(item.buffer, _place(buffer, item.body))
    elif isinstance(item, S.LetStmt) and not _touches(item.value, buffer):
        return replace(item, body=_place(buffer, item.body))
    elif isinstance(item, S.IfThenElse) and not _touches(item.condition, buffer) and item.else_body is None:
        return replace(item, then_body=_place(buffer, item.then_body))
    return S.Allocate(buffer, item)


def _begins_with_whole_write(body: S.Stmt, buffer: S.Buffer) -> bool:
    """Whether the first statement of `body` that touches the buffer stores all of its elements, reading none."""
    axes: dict[E.Var, E.Expr] = {}
    while True:
        if isinstance(body, BlockRealize) and _runs_its_body(body):
            axes |= _axes(body)
            body = body.block.body
        elif isinstance(body, S.Allocate | S.LetStmt | S.AttrStmt):
            if _touches(getattr(body, "value", body), buffer):
                break
            body = body.body
        else:
            break
    first = next((s for s in statements_of(body) if _touches(s, buffer)), None)
    loops: dict[E.Var, E.Expr] = {}
    while isinstance(first, S.For | BlockRealize):
        if isinstance(first, S.For) and build.as_int(first.min) == 0:
            loops[first.var] = first.extent
            first = first.body
        elif isinstance(first, BlockRealize) and _runs_its_body(first):
            axes |= _axes(first)
            first = first.block.body
        else:
            return False
    if not isinstance(first, S.BufferStore) or first.buffer is not buffer or _touches(first.value, buffer):
        return False
    places = [axes.get(i, i) if isinstance(i, E.Var) else i for i in first.indices]
    return len(set(places)) == len(places) and all(
        isinstance(i, E.Var) and i in loops and build.as_int(loops[i]) == build.as_int(extent) is not None
        for i, extent in zip(places, buffer.shape, strict=True)
    )


def _runs_its_body(item: BlockRealize) -> bool:
    """Whether a block always runs, and is its body alone."""
    return build.as_int(item.predicate) == 1 and item.block.init is None and not item.block.match_buffers


def _axes(item: BlockRealize) -> dict[E.Var, E.Expr]:
    return {axis.var: value for axis, value in zip(item.block.iter_vars, item.iter_values, strict=True)}


PlanAndUpdateBufferAllocationLocation = prim_pass(
    "plan-and-update-buffer-allocation-location", "tir.PlanAndUpdateBufferAllocationLocation"
)(plan_and_update_buffer_allocation_location)
