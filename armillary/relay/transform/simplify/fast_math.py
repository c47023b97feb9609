"""fast-math: replace exp, erf, tanh and softmax of float32 by formulas of five to six correct digits.

In: a module. Out: calls of fast_exp, fast_erf, fast_tanh and nn.fast_softmax (errors: ops/elementwise/fast_math.py).
Invariant: results differ in the sixth digit, infinities become large numbers; so the pass is off below opt_level 4.
What it gains, and why level 3 keeps the exact functions: docs/decisions/pass-defaults.md.

    def @main(%x: Tensor[(2,), float32], %y: Tensor[(2,), float64]) { (exp(%x), exp(%y)) }
    ->
    def @main(%x: Tensor[(2,), float32], %y: Tensor[(2,), float64]) { (fast_exp(%x), exp(%y)) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, known_of
from armillary.relay.op import Op, get_op
from armillary.relay.transform._rules import rewrite_module
from armillary.transform import define_pass


@define_pass("fast-math", opt_level=4)
def fast_math(module: IRModule) -> IRModule:
    """Use approximations of the expensive functions."""
    return rewrite_module(module, approximate)


def approximate(expr: Expr) -> Expr | None:
    """exp(x)  ->  fast_exp(x)   if x is float32"""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not expr.op.fast:
        return None
    ty = known_of(expr)
    if ty is None or ty.dtype != "float32":
        return None
    return Call(get_op(expr.op.fast), expr.args, expr.attrs, expr.span)
