"""`hoist-if-then-else`: conditions that a loop does not change move out of it.

In: `for i { if c { … } else { … } }` where c does not use i and reads no memory. Out: the condition outside, a loop in
each branch. Invariant: the same statements run in the same order. Only a condition that is the whole loop body
moves, so code grows by a loop head at most. Parallel loops stay outside (they start a phase), and so do loops bound to
GPU threads unless `tir.HoistIfThenElse` says {support_block_scope_hoisting: True}.
"""

from __future__ import annotations

from armillary.base.node import replace
from armillary.tir import stmt as S
from armillary.tir.analysis import has_loads, is_pure, uses_var
from armillary.tir.substitute import fresh_copy, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body
from armillary.transform import PassContext, register_config_option

HOIST = register_config_option(
    "tir.HoistIfThenElse", dict, {"support_block_scope_hoisting": False}, "what hoist-if-then-else may leave"
)


def hoist_if_then_else(func: S.PrimFunc) -> S.PrimFunc:
    """Test once instead of in every iteration.

    for i in range(4) { if n < 3 { A[i] = 0.0 } }  ->  if n < 3 { for i in range(4) { A[i] = 0.0 } }
    """
    outside = {S.LoopKind.PARALLEL, S.LoopKind.THREAD}
    if PassContext.current().get(HOIST)["support_block_scope_hoisting"]:
        outside.remove(S.LoopKind.THREAD)

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        if isinstance(mapped, S.For) and mapped.kind not in outside and isinstance(mapped.body, S.IfThenElse):
            return _hoisted(mapped, mapped.body)
        return mapped

    return with_body(func, visit(func.body))


def _hoisted(loop: S.For, test: S.IfThenElse) -> S.Stmt:
    if uses_var(test.condition, loop.var) or has_loads(test.condition) or not is_pure(test.condition):
        return loop
    other = None
    if test.else_body is not None:
        other = fresh_copy(replace(loop, body=test.else_body))
    return S.IfThenElse(test.condition, replace(loop, body=test.then_body), other)


HoistIfThenElse = prim_pass("hoist-if-then-else", "tir.HoistIfThenElse")(hoist_if_then_else)
