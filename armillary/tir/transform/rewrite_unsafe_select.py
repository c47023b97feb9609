"""`rewrite-unsafe-select`: a select with a branch that must not always run becomes if_then_else.

In: Select nodes, whose two branches are both evaluated. Out: if_then_else where a branch reads memory or divides by a
variable; plain selects stay (they become one instruction). Invariant: no value changes. Vector conditions stay selects.
"""

from __future__ import annotations

from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import is_unsafe
from armillary.tir.substitute import map_all
from armillary.tir.transform.common import prim_pass, with_body


def rewrite_unsafe_select(func: S.PrimFunc) -> S.PrimFunc:
    """Guard unsafe branches.

        B[0] = select(n < 4, A[n], 0.0)  ->  B[0] = if_then_else(n < 4, A[n], 0.0)
    """
    return with_body(func, map_all(func.body, _rule))


def _rule(item: E.Expr) -> E.Expr | None:
    if type(item) is not E.Select or item.condition.dtype.lanes != 1:
        return None
    if not (is_unsafe(item.true_value) or is_unsafe(item.false_value)):
        return None
    return E.Call(item.dtype, "if_then_else", (item.condition, item.true_value, item.false_value))


RewriteUnsafeSelect = prim_pass("rewrite-unsafe-select", "tir.RewriteUnsafeSelect")(rewrite_unsafe_select)
