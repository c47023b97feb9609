"""dynamic-to-static: what takes its shape from another tensor takes it from attributes.

In: a module. Out: one where `*_like` operators whose model has a known shape are their explicit forms, `dynamic` calls
whose values are known those of the operator, and what was computed from shapes is constant. Invariant: shapes that only
the running program knows stay as they were.

    def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3, 2), float32]) {
      %0 = reshape_like(%x, %y);
      %1 = ndarray_size(%0, dtype="int32");
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3, 2), float32]) {
      %0 = reshape(%x, newshape=(3, 2));
      (%0, 6)
    }
"""

from __future__ import annotations

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.transform.simplify.simplify_expr import simplify
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass

with deferred():
    from armillary.ops.shape.dynamic import resolved

_ROUNDS = 16  # a shape computed from a shape computed from a shape…


@define_pass("dynamic-to-static", opt_level=2)
def dynamic_to_static(module: IRModule) -> IRModule:
    """Replace the models of shapes by the shapes, and fold what follows from them."""
    for _ in range(_ROUNDS):
        changed = rewrite_module(module, _explicit)
        if changed is not module or _reads_shapes(module):
            changed = fold_constant(changed)
        if changed is module:
            break
        module = changed
    return module


def _explicit(expr: Expr) -> Expr | None:
    if not isinstance(expr, Call):
        return None
    return simplify(expr) if has(expr, Fact.LIKE) else resolved(expr) if has(expr, Fact.DYNAMIC) else None


def _reads_shapes(module: IRModule) -> bool:
    functions = (f for _, f in module.items() if isinstance(f, Function))
    return any(has(e, Fact.TYPE_ONLY) for f in functions for e in post_order(f, not_primitive))
