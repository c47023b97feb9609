"""fast-math: replace exp, erf, tanh and softmax by their polynomial versions.

In: a module. Out: one that calls `fast_exp` and the like where such operators exist; today none does, because exp,
tanh and erf are compiled to vector polynomials anyway (codegen/llvm_math.py). Results of a fast version differ in the
last bits, so the pass is off below opt_level 4.
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import OPS
from armillary.relay.transform._rules import op_name, rewrite_module
from armillary.transform import define_pass

_FAST = {"exp": "fast_exp", "erf": "fast_erf", "tanh": "fast_tanh", "nn.softmax": "nn.fast_softmax"}


@define_pass("fast-math", opt_level=4)
def fast_math(module: IRModule) -> IRModule:
    """Use approximations of the expensive functions."""
    return rewrite_module(module, approximate)


def approximate(expr: Expr) -> Expr | None:
    """exp(x)  ->  fast_exp(x)"""
    fast = OPS.get(_FAST.get(op_name(expr), ""))
    if fast is None or not isinstance(expr, Call):
        return None
    return Call(fast, expr.args, expr.attrs, expr.span)
