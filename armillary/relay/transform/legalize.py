"""legalize: replace the operators that no kernel can compute as such.

In: a module. Out: one in which an operator without a tensor-expression form is written in terms of others, by the
`decompose` rule of its record. Invariant: the result computes the same values; a build needs it even when
simplify-inference, which does this and more, is switched off.

    def @main(%x: Tensor[(2, 2), float32]) { nn.l2_normalize(%x, eps=1e-05f, axis=[1]) }
    ->
    def @main(%x: Tensor[(2, 2), float32]) {
      %0 = multiply(%x, %x);
      %1 = sum(%0, axis=[1], keepdims=True);
      %2 = maximum(%1, 1e-05f);
      %3 = sqrt(%2);
      divide(%x, %3)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Op
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.simplify_inference import decompose, pick_field
from armillary.transform import define_pass

_ROUNDS = 8


@define_pass("legalize")
def legalize(module: IRModule) -> IRModule:
    """Decompose what has no compute of its own.

    nn.batch_norm(x, …)  ->  x * scale + shift
    """
    for _ in range(_ROUNDS):
        changed = rewrite_module(module, _without_compute, pick_field)
        if changed is module:
            break
        module = changed
    return module


def _without_compute(expr: Expr) -> Expr | None:
    has_none = isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.compute_rule is None
    return decompose(expr) if has_none else None
