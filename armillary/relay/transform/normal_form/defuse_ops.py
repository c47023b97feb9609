"""defuse-ops: take kernels apart again.

In: a module after fuse-ops. Out: one where the bodies of primitive functions stand in place of their calls: what
fuse-ops was given. Invariant: functions that belong to a library or are composite stay closed.

    def @main(%x: Tensor[(2,), float32]) {
      %2 = fn (%p0: Tensor[(2,), float32], Primitive=1) -> Tensor[(2,), float32] {
        %0 = nn.relu(%p0);
        negative(%0)
      };
      %2(%x)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) { %0 = nn.relu(%x); negative(%0) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import is_primitive
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.walk import substitute
from armillary.transform import define_pass


@define_pass("defuse-ops")
def defuse_ops(module: IRModule) -> IRModule:
    """Inline primitive functions."""
    return rewrite_module(module, _opened)


def _opened(expr: Expr) -> Expr | None:
    if not isinstance(expr, Call) or not isinstance(expr.op, Function) or not is_primitive(expr.op):
        return None
    function = expr.op
    if function.get_attr("Compiler") or function.get_attr("Composite"):
        return None
    return substitute(function.body, {id(p): a for p, a in zip(function.params, expr.args, strict=True)})
