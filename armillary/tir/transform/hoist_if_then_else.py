"""`hoist-if-then-else`: conditions that a loop does not change move out of it.

In: `for i { if c { … } }` where c does not use i and reads no memory. Out: `if c { for i { … } }`. Invariant: the same
statements run in the same order. Only a condition that is the whole loop body moves, so code never grows.
Parallel loops
stay outside (they start a phase).
"""

from __future__ import annotations

from armillary.node import replace
from armillary.tir import stmt as S
from armillary.tir.analysis import has_loads, is_pure, uses_var
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.common import prim_pass, with_body


def hoist_if_then_else(func: S.PrimFunc) -> S.PrimFunc:
    """Test once instead of in every iteration.

        for i in range(4) { if n < 3 { A[i] = 0.0 } }  ->  if n < 3 { for i in range(4) { A[i] = 0.0 } }
    """
    return with_body(func, _visit(func.body))


def _visit(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _visit)
    if not isinstance(mapped, S.For) or mapped.kind in (S.LoopKind.PARALLEL, S.LoopKind.THREAD):
        return mapped
    test = mapped.body
    if not isinstance(test, S.IfThenElse) or test.else_body is not None:
        return mapped
    if uses_var(test.condition, mapped.var) or has_loads(test.condition) or not is_pure(test.condition):
        return mapped
    return S.IfThenElse(test.condition, replace(mapped, body=test.then_body))


HoistIfThenElse = prim_pass("hoist-if-then-else", "tir.HoistIfThenElse")(hoist_if_then_else)
