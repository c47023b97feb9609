"""`plan-and-update-buffer-allocation-location`: allocate buffers as far inside as their uses allow.

In: any loop program. Out: each allocation around the smallest run of statements that touches the buffer, and inside a
loop where every iteration first writes the whole buffer. Invariant: no value that one iteration leaves for the next is
lost: into a loop a buffer moves only if its first use there is a nest of loops that stores every element. Buffers that
live shorter share memory (storage-rewrite), and small ones stay in cache.
"""

from __future__ import annotations

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
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
        return _place(mapped.buffer, mapped.body) if isinstance(mapped, S.Allocate) else mapped

    return with_body(func, visit(func.body))


def _touches(item: object, buffer: S.Buffer) -> bool:
    return any(node is buffer for node in post_order(item))  # type: ignore[arg-type]


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
    elif isinstance(item, S.Allocate) and item.buffer is not buffer:
        return S.Allocate(item.buffer, _place(buffer, item.body))
    elif isinstance(item, S.LetStmt) and not _touches(item.value, buffer):
        return replace(item, body=_place(buffer, item.body))
    elif isinstance(item, S.IfThenElse) and not _touches(item.condition, buffer) and item.else_body is None:
        return replace(item, then_body=_place(buffer, item.then_body))
    return S.Allocate(buffer, item)


def _begins_with_whole_write(body: S.Stmt, buffer: S.Buffer) -> bool:
    """Whether the first statement of `body` that touches the buffer stores all of its elements, reading none."""
    while isinstance(body, S.Allocate | S.LetStmt | S.AttrStmt) and not _touches(getattr(body, "value", body), buffer):
        body = body.body
    first = next((s for s in statements_of(body) if _touches(s, buffer)), None)
    loops: dict[E.Var, E.Expr] = {}
    while isinstance(first, S.For) and build.as_int(first.min) == 0:
        loops[first.var] = first.extent
        first = first.body
    if not isinstance(first, S.BufferStore) or first.buffer is not buffer or _touches(first.value, buffer):
        return False
    return len(set(first.indices)) == len(first.indices) and all(
        isinstance(i, E.Var) and i in loops and build.as_int(loops[i]) == build.as_int(extent) is not None
        for i, extent in zip(first.indices, buffer.shape, strict=True)
    )


PlanAndUpdateBufferAllocationLocation = prim_pass(
    "plan-and-update-buffer-allocation-location", "tir.PlanAndUpdateBufferAllocationLocation"
)(plan_and_update_buffer_allocation_location)
