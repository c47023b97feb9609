"""ONNX AffineGrid: where a picture or volume is read when it is turned, moved or scaled.

In: theta (N, 2, 3) or (N, 3, 4), the size (N, C, H, W) or (N, C, D, H, W), known when importing. Out: points
(N, H, W, 2) or (N, D, H, W, 3), x first. Invariant: one product of theta with a constant, the homogeneous coordinates
of the unmoved points. A rule of its own, since the standard's function squeezes away a batch of one.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._common import int_list
from armillary.ops.nn._windows import call, reshape_to
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array


@from_onnx("AffineGrid", since=20)
def affine_grid(node: OnnxNode) -> Expr:
    theta, (n, _, *sides) = node.type_of(0), int_list(node.const(1, "size"))
    axes = len(sides)
    if axes not in (2, 3) or theta.static != (n, axes, axes + 1):
        got = f"theta {theta.static} for the size {(n, '…', *sides)}"
        raise TypeMismatch(f"AffineGrid node {node.name!r}: got {got}; wanted theta (N, 2, 3) or (N, 3, 4)")
    points = _points(sides, bool(node.int("align_corners", default=0)))
    unmoved = const(points.astype(theta.dtype.numpy))
    product = call("nn.dense", unmoved, reshape_to(node.input(0), (n * axes, axes + 1)))  # (points, n * axes)
    placed = call("transpose", reshape_to(product, (len(points), n, axes)), axes=(1, 0, 2))
    return reshape_to(placed, (n, *sides, axes))


def _points(sides: list[int], to_corners: bool) -> Array:
    """Coordinates of every pixel, x first, and a one: from -1 to 1 between the outer edges, or the outer centres."""
    lines = [_line(side, to_corners) for side in sides]
    grid = np.meshgrid(*lines, indexing="ij")
    return np.stack([*(axis.reshape(-1) for axis in reversed(grid)), np.ones(grid[0].size)], axis=1)


def _line(side: int, to_corners: bool) -> Array:
    if to_corners:
        return np.linspace(-1.0, 1.0, side) if side > 1 else np.zeros(side)
    return (2 * np.arange(side) + 1) / side - 1
