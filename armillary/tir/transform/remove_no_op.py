"""`remove-no-op`: drop statements that change nothing.

In: any loop program. Out: the same without empty loops, branches and lets, dead local stores, unused allocations.
Invariant: what a caller can see stays. Runs after `simplify`, which makes conditions constant.
"""

from __future__ import annotations

from armillary.base.node import reachable, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import is_pure
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.loop_pass import NOTHING, is_nothing, prim_pass, sequence, with_body


def remove_no_op(func: S.PrimFunc) -> S.PrimFunc:
    """Drop what does nothing.

    for i in range(4) { pass }  A[0] = A[0]  ->  pass
    """
    return with_body(func, _visit(func.body))


def _visit(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _visit)
    if isinstance(mapped, S.SeqStmt):
        return sequence(list(mapped.statements)) if any(is_nothing(s) for s in mapped.statements) else mapped
    if isinstance(mapped, S.For):
        extent = build.as_int(mapped.extent)
        return NOTHING if is_nothing(mapped.body) or (extent is not None and extent <= 0) else mapped
    if isinstance(mapped, S.IfThenElse):
        return _branch(mapped)
    if isinstance(mapped, S.LetStmt | S.AttrStmt):
        return NOTHING if is_nothing(mapped.body) else mapped
    if isinstance(mapped, S.Allocate):
        return _allocate(mapped)
    if isinstance(mapped, S.Evaluate):
        return NOTHING if is_pure(mapped.value) and not is_nothing(mapped) else mapped
    return NOTHING if isinstance(mapped, S.BufferStore) and _keeps_value(mapped) else mapped


def _branch(item: S.IfThenElse) -> S.Stmt:
    other = item.else_body if item.else_body is not None and not is_nothing(item.else_body) else None
    if is_nothing(item.then_body):
        return NOTHING if other is None else S.IfThenElse(E.Not(item.condition), other)
    result: S.Stmt = replace(item, else_body=other)
    return result


def _allocate(item: S.Allocate) -> S.Stmt:
    if is_nothing(item.body):
        return NOTHING
    is_used = any(node is item.buffer for node in reachable(item.body))
    return item if is_used else item.body


def _keeps_value(item: S.BufferStore) -> bool:
    """A[i] = A[i], with the very same index."""
    value = item.value
    return (
        isinstance(value, E.BufferLoad)
        and value.buffer is item.buffer
        and all(a is b or _equal_constants(a, b) for a, b in zip(value.indices, item.indices, strict=True))
    )


def _equal_constants(a: E.Expr, b: E.Expr) -> bool:
    return isinstance(a, E.IntImm) and isinstance(b, E.IntImm) and a.value == b.value


RemoveNoOp = prim_pass("remove-no-op", "tir.RemoveNoOp")(remove_no_op)
