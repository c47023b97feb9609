"""canonicalize-ops: fewer ways to say the same.

In: a module. Out: one where adding a bias is a plain broadcast addition, so that folding and fusion see one form.

    def @main(%x: Tensor[(1, 4, 2, 2), float32], %b: Tensor[(4,), float32]) { nn.bias_add(%x, %b) }
    ->
    def @main(%x: Tensor[(1, 4, 2, 2), float32], %b: Tensor[(4,), float32]) {
      %0 = expand_dims(%b, axis=1, num_newaxis=2);
      add(%x, %0)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import call, op_name, rewrite_module
from armillary.relay.types import TensorType
from armillary.transform import define_pass


@define_pass("canonicalize-ops", opt_level=3)
def canonicalize_ops(module: IRModule) -> IRModule:
    """Write bias_add as expand_dims and add."""
    return rewrite_module(module, bias_add)


def bias_add(expr: Expr) -> Expr | None:
    """nn.bias_add(x, b, axis)  ->  add(x, expand_dims(b))"""
    if op_name(expr) != "nn.bias_add" or not isinstance(expr, Call):
        return None
    data, bias = expr.args
    ty = data.checked_type
    if not isinstance(ty, TensorType):
        return None
    after = ty.ndim - 1 - expr.attrs.axis % ty.ndim
    if after:
        bias = call("expand_dims", bias, axis=1, num_newaxis=after)
    made = call("add", data, bias)
    return Call(made.op, made.args, made.attrs, expr.span)
