"""Branches that shapes decide: once the shapes are known, the branch that is taken stands alone.

In: a function whose parameters have known shapes. Out: the same without each `If` whose condition is computed from
constants and shapes of tensors. Invariant: types are asked of conditions only, as a branch that is not taken may not
fit the shapes; the outermost condition is decided first.
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.analysis import free_vars
from armillary.relay.expr import Constant, Expr, Function, If
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform.simplify.dynamic_to_static import dynamic_to_static
from armillary.relay.walk import post_order, rewrite


def with_branches_chosen(function: Function) -> Function:
    """The function with the branches that its shapes choose."""
    if not any(isinstance(e, If) for e in post_order(function)):
        return function
    chosen = rewrite(function, _chosen)
    assert isinstance(chosen, Function), "only branches are replaced"
    return chosen


def values_read(expr: Expr) -> dict[int, Expr]:
    """The leaves, by id, whose values an expression reads: not those of which it asks the shape alone."""
    order = post_order(expr, lambda e: not has(e, Fact.TYPE_ONLY))
    return {id(e): e for e in order}


def _chosen(expr: Expr) -> Expr | None:
    if not isinstance(expr, If) or any(id(v) in values_read(expr.cond) for v in free_vars(expr.cond)):
        return None
    decided = dynamic_to_static(IRModule.from_expr(Function(tuple(free_vars(expr.cond)), expr.cond)))["main"]
    known = decided.body if isinstance(decided, Function) else None
    if not isinstance(known, Constant):
        return None
    return expr.true_branch if bool(known.data) else expr.false_branch
