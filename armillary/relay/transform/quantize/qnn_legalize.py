"""qnn-legalize: bring quantised operators into the form that is cheapest to compute.

In: a module. Out: one where the unsigned operands of qnn.conv2d whose zero point is 128 are signed, with zero point 0:
q - 128 as int8 is the same real number, no correction is left to do in the product, and weights stay one byte.
Convolutions that are exact in float32 (ops/qnn/product.py) stay: there a correction is free. qnn.dense chooses its
signs by the target's dot products (ops/qnn/_byte_products.py). Rules that users register
(`relay.qnn.op.register_qnn_legalize`) go first. Invariant: the same bits; the result stays in the qnn dialect. What it
gains: docs/decisions/pass-defaults.md.

    def @main(%x: Tensor[(1, 4, 1, 1), uint8], %w: Tensor[(2, 4, 1, 1), int8]) {
      qnn.conv2d(%x, %w, 128, 0, 0.5f, 1f)
    }
    ->
    def @main(%x: Tensor[(1, 4, 1, 1), uint8], %w: Tensor[(2, 4, 1, 1), int8]) {
      %0 = cast(%x, dtype="int16");
      %1 = subtract(%0, 128i16);
      %2 = cast(%1, dtype="int8");
      qnn.conv2d(%2, %w, 0, 0, 0.5f, 1f)
    }
"""

from __future__ import annotations

import numpy as np

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import op_name, tensor
from armillary.relay.transform.simplify._registered import apply_registered
from armillary.transform import define_pass

_MIDDLE = 128
with deferred():
    from armillary.ops.qnn._byte_convolutions import conv2d_of_bytes
    from armillary.ops.qnn.product import conv2d_in_float


@define_pass("qnn-legalize", opt_level=1)
def qnn_legalize(module: IRModule, *, target: object = None) -> IRModule:
    """Make operands of quantised products signed where that is free of corrections."""
    return apply_registered(module, "FTVMQnnLegalize", target, signed_operands)


def signed_operands(expr: Expr) -> Expr | None:
    """qnn.conv2d(x: uint8, zero point 128)  ->  qnn.conv2d(x - 128: int8, zero point 0), and so for the weight"""
    if op_name(expr) != "qnn.conv2d" or not isinstance(expr, Call):
        return None
    if conv2d_in_float(expr.attrs, expr.args) is not None:
        return None
    if conv2d_of_bytes(expr.attrs, *expr.args[:4]) is not None:
        return None
    args = list(expr.args)
    for operand, zero in ((0, 2), (1, 3)):
        if _is_centred(args[operand], args[zero]):
            args[operand] = _signed(args[operand])
            args[zero] = Constant(np.zeros_like(args[zero].data))  # type: ignore[attr-defined]
    if all(a is b for a, b in zip(args, expr.args, strict=True)):
        return None
    return Call(expr.op, tuple(args), expr.attrs, expr.span)


def _is_centred(operand: Expr, zero: Expr) -> bool:
    ty = tensor(operand)
    return ty is not None and ty.dtype == "uint8" and isinstance(zero, Constant) and bool((zero.data == _MIDDLE).all())


def _signed(operand: Expr) -> Expr:
    if isinstance(operand, Constant):
        return Constant((operand.data.astype(np.int16) - _MIDDLE).astype(np.int8), operand.span)
    middle = Constant(np.array(_MIDDLE, np.int16))
    return (operand.astype("int16") - middle).astype("int8")
