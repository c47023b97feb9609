"""`rewrite-unsafe-select`: a select with a branch that must not always run becomes if_then_else.

In: Select nodes, whose two branches are both evaluated. Out: if_then_else where a branch reads memory or divides by a
variable; plain selects stay (they become one instruction), and so do those of what their condition compares, which is
read in any case. Invariant: no value changes. Vector conditions stay selects, and so do selects over expressions that
many selects share: what each guards alone would be emitted for each.
"""

from __future__ import annotations

from armillary.base.node import children, post_order, structural_equal
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import is_unsafe
from armillary.tir.substitute import map_all
from armillary.tir.transform.loop_pass import prim_pass, with_body

MAX_SIZE = 4096  # nodes of a select that is guarded, counting what is shared as often as it is read


def rewrite_unsafe_select(func: S.PrimFunc) -> S.PrimFunc:
    """Guard unsafe branches.

    B[0] = select(n < 4, A[n], 0.0)  ->  B[0] = if_then_else(n < 4, A[n], 0.0)
    """
    sizes: dict[E.Expr, int] = {}
    return with_body(func, map_all(func.body, lambda item: _guarded(item, sizes)))


def _size(item: E.Expr, sizes: dict[E.Expr, int]) -> int:
    """Nodes of an expression, counting what is shared as often as it is read."""
    for part in post_order(item, lambda n: n not in sizes):
        if isinstance(part, E.Expr) and part not in sizes:
            sizes[part] = 1 + sum(sizes[c] for c in children(part) if isinstance(c, E.Expr))
    return sizes[item]


def _guarded(item: E.Expr, sizes: dict[E.Expr, int]) -> E.Expr | None:
    if type(item) is not E.Select or item.condition.dtype.lanes != 1:
        return None
    if not any(is_unsafe(x) and not _is_compared(x, item.condition) for x in (item.true_value, item.false_value)):
        return None
    if _size(item, sizes) > MAX_SIZE:
        return None
    return E.Call(item.dtype, "if_then_else", (item.condition, item.true_value, item.false_value))


def _is_compared(value: E.Expr, condition: E.Expr) -> bool:
    """Whether a condition has evaluated a value already.

    B[0] = select(A[n] < A[m], A[m], A[n])  ->  B[0] = select(A[n] < A[m], A[m], A[n])
    """
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE | E.EQ | E.NE):
        return False
    return structural_equal(value, condition.a) or structural_equal(value, condition.b)


RewriteUnsafeSelect = prim_pass("rewrite-unsafe-select", "tir.RewriteUnsafeSelect")(rewrite_unsafe_select)
