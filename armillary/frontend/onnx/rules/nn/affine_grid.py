"""ONNX AffineGrid: where a picture or volume is read when it is turned, moved or scaled.

In: theta (N, 2, 3) or (N, 3, 4), the size (N, C, H, W) or (N, C, D, H, W), known when importing. Out: points
(N, H, W, 2) or (N, D, H, W, 3), x first. Invariant: one product of theta with a constant, the homogeneous coordinates
of the unmoved points. A rule of its own, since the standard's function squeezes away a batch of one.
"""

from __future__ import annotations

import math

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._types import int_list
from armillary.ops.nn._windows import call, reshape_to
from armillary.ops.vision.affine_grid import points
from armillary.relay.expr import Expr, const


@from_onnx("AffineGrid", since=20)
def affine_grid(node: OnnxNode) -> Expr:
    theta, (n, _, *sides) = node.type_of(0), int_list(node.const(1, "size"))
    axes = len(sides)
    if axes not in (2, 3) or theta.static != (n, axes, axes + 1):
        got = f"theta {theta.static} for the size {(n, '…', *sides)}"
        raise TypeMismatch(f"AffineGrid node {node.name!r}: got {got}; wanted theta (N, 2, 3) or (N, 3, 4)")
    if min(sides) < 1:
        raise TypeMismatch(f"AffineGrid node {node.name!r}: size {(n, '…', *sides)}; each axis has an element at least")
    node.check_elements(math.prod(sides) * (axes + 1))
    unmoved = points(tuple(sides), node.flag("align_corners", False)).astype(theta.dtype.numpy)
    product = call("nn.dense", const(unmoved), reshape_to(node.input(0), (n * axes, axes + 1)))  # (points, n * axes)
    placed = call("transpose", reshape_to(product, (len(unmoved), n, axes)), axes=(1, 0, 2))
    return reshape_to(placed, (n, *sides, axes))
