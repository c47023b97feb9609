"""simplify-expr-post-alter-op: the rules of simplify-expr that changes of layout make useful again.

In: a module after alter-op-layout. Out: one without identities, without reshapes, casts, clips or layout changes of
their own kind's results. Invariant: the rules of an operator are asked only if it says so
(`add.simplify(…, after_layouts=True)`), and change no call that computes, so what a target chose stays chosen.

    def @main(%x: Tensor[(1, 8, 2, 2), float32]) {
      %0 = layout_transform(%x, dst_layout="NCHW4c");
      %1 = layout_transform(%0, src_layout="NCHW4c");
      %2 = reshape(%1, newshape=(8, 4));
      reshape(%2, newshape=(32,))
    }
    ->
    def @main(%x: Tensor[(1, 8, 2, 2), float32]) { reshape(%x, newshape=(32,)) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.simplify.simplify_expr import simplify
from armillary.transform import define_pass


@define_pass("simplify-expr-post-alter-op")
def simplify_expr_post_alter_op(module: IRModule) -> IRModule:
    """Apply the rules bottom-up until none applies."""
    while (changed := rewrite_module(module, _simplify)) is not module:
        module = changed
    return module


def _simplify(expr: Expr) -> Expr | None:
    return simplify(expr) if has(expr, Fact.VIEW) or _is_asked_again(expr) else None


def _is_asked_again(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.simplify_after_layouts
