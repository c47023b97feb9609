"""ONNX GridSample: one row of places, so that no vector of them ends with a line of the image.

In: nodes from opset 16 on; the grid may have another float type than the data. Out: image.grid_sample between two
reshapes. Invariant: the result has the type of the data.
"""

from __future__ import annotations

import math

from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr
from armillary.relay.types import AnyDim


@from_onnx("GridSample", since=16)
def from_onnx_grid_sample(node: OnnxNode) -> Expr:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.string("mode", "linear") or "linear"
    grid = node.input(1)
    if node.type_of(1).dtype != node.type_of(0).dtype:  # the standard lets them differ; the result has the data's
        grid = call("cast", grid, dtype=str(node.type_of(0).dtype))
    data, places = node.type_of(0), type_of(grid)
    is_known = not any(isinstance(d, AnyDim) for d in (*data.shape, *places.shape))
    if is_known:  # one row of places: no vector of them ends with a line of the image
        batch, *spots, rank = places.static
        grid = reshape_to(grid, (batch, *(1,) * (len(spots) - 1), math.prod(spots), rank))
    result = call(
        "image.grid_sample",
        node.input(0),
        grid,
        method=names.get(mode, mode),
        layout="NCDHW" if data.ndim == 5 else "NCHW",
        padding_mode=node.string("padding_mode", "zeros") or "zeros",
        align_corners=node.flag("align_corners", False),
        grid_axis=-1,
    )
    return reshape_to(result, (*data.static[:2], *places.static[1:-1])) if is_known else result
