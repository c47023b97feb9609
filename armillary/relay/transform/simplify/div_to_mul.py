"""div-to-mul: a division by constants is a product with their reciprocals.

In: a module. Out: the same with `x / constant` as `x * (1 / constant)` for floats. Invariant: results may differ in the
last digit, so no build runs the pass by itself.

    def @main(%x: Tensor[(2,), float32]) { divide(%x, 4f) }
    ->
    def @main(%x: Tensor[(2,), float32]) { multiply(%x, 0.25f) }
"""

from __future__ import annotations

import numpy as np

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, known_of
from armillary.relay.transform._rules import op_name, rewrite_module, with_span
from armillary.transform import define_pass


@define_pass("div-to-mul")
def div_to_mul(module: IRModule) -> IRModule:
    """Multiply by reciprocals."""
    return rewrite_module(module, as_product)


def as_product(expr: Expr) -> Expr | None:
    """divide(x, c)  ->  multiply(x, 1 / c)   if c is a constant of floats without a zero"""
    if op_name(expr) != "divide" or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return None
    ty, held = known_of(expr), expr.args[1]
    if ty is None or not ty.dtype.is_float or not np.all(held.data):
        return None
    data = np.asarray(held.data)
    reciprocals = np.asarray(1.0 / data.astype("float64"), data.dtype)
    return with_span(expr.args[0] * Constant(reciprocals), expr)
