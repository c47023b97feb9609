"""ONNX operators of one input that are one operator here, element by element; Identity.

In: a node. Out: a call of the operator of the row. Invariant: the standard and the operator agree on every value.
"""

from __future__ import annotations

from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.elementwise.elementwise import UNARY
from armillary.relay.expr import Expr

_SAME = {
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Erf": "erf",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "nearbyint",
    "Sign": "sign",
    "Abs": "abs",
    "Neg": "negative",
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
    "IsNaN": "isnan",
}


def _unary(node: OnnxNode) -> Expr:
    return UNARY[_SAME[node.op_type]](node.input(0))


from_onnx(*_SAME)(_unary)


@from_onnx("Identity")
def from_onnx_identity(node: OnnxNode) -> Expr:
    """Nothing happens: the value itself."""
    return node.input(0)
