"""ONNX Einsum: products and sums of other operators.

In: an equation and inputs of known shapes. Out: the operators that ops/misc/linalg.py makes of it. Invariant: what is
summed away early is summed away before it is multiplied.
"""

from __future__ import annotations

from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.misc.linalg import decomposed, parse
from armillary.relay.expr import Expr


@from_onnx("Einsum")
def from_onnx_einsum(node: OnnxNode) -> Expr:
    parts = node.present
    shapes = [node.type_of(i).static for i in range(len(parts))]
    return decomposed(parse(node.string("equation", default=""), shapes), parts)
