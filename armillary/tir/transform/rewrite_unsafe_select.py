"""`rewrite-unsafe-select`: a select with a branch that must not always run becomes if_then_else.

In: Select nodes, whose two branches are both evaluated. Out: if_then_else where a branch reads memory or divides by a
variable; plain selects stay (they become one instruction). Invariant: no value changes. Vector conditions stay selects,
and so do selects over expressions that many selects share: what each guards alone would be emitted for each.
"""

from __future__ import annotations

from armillary.node import children
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import is_unsafe
from armillary.tir.substitute import map_all
from armillary.tir.transform.common import prim_pass, with_body

MAX_SIZE = 4096  # nodes of a select that is guarded, counting what is shared as often as it is read


def rewrite_unsafe_select(func: S.PrimFunc) -> S.PrimFunc:
    """Guard unsafe branches.

        B[0] = select(n < 4, A[n], 0.0)  ->  B[0] = if_then_else(n < 4, A[n], 0.0)
    """
    sizes: dict[E.Expr, int] = {}

    def rule(item: E.Expr) -> E.Expr | None:
        size = 1 + sum(sizes.get(part, 1) for part in children(item) if isinstance(part, E.Expr))
        changed = _guarded(item) if size <= MAX_SIZE else None
        sizes[item if changed is None else changed] = size
        return changed

    return with_body(func, map_all(func.body, rule))


def _guarded(item: E.Expr) -> E.Expr | None:
    if type(item) is not E.Select or item.condition.dtype.lanes != 1:
        return None
    if not (is_unsafe(item.true_value) or is_unsafe(item.false_value)):
        return None
    return E.Call(item.dtype, "if_then_else", (item.condition, item.true_value, item.false_value))


RewriteUnsafeSelect = prim_pass("rewrite-unsafe-select", "tir.RewriteUnsafeSelect")(rewrite_unsafe_select)
