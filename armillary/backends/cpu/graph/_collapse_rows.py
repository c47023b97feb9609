"""Kernels of 1x1 convolutions see each image as one row of pixels.

In: a fused function and its target. Out: the same function over (N, C/c, 1, H*W, c) for (N, C/c, H, W, c), or the
function itself where that is not possible or gains nothing. Invariant: every value is the same memory as before, so the
caller passes its tensors as they are; the kernel's descriptor keeps their shapes (kernel_code.py).
A register tile of pixels then need not divide the width, nor end with the row: 19x19 pixels are 40 tiles of 9 and one
pixel, not 38 tiles of 14 and of 5. Who tiles: backends/cpu/conv2d/direct/schedule.py.
"""

from __future__ import annotations

from armillary.base.extent import Extent, Known
from armillary.relay.expr import Call, Constant, Expr, Function, Var, shape_of, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import names_places
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order, substitute
from armillary.target import Target
from armillary.target.cpu import cpu_model

CONVOLUTIONS = (
    "nn.contrib_conv2d_NCHWc",
    *(f"cpu.conv2d_{kind}" for kind in ("NCHWc_int8", "NCHWc_bf16", "frames_NCHWc")),
)
ROWS, COLUMNS = -3, -2  # axes of blocked data


def collapse_rows(function: Function, target: Target) -> Function:
    """The function on images of one row of pixels, where it is a 1x1 convolution and what is elementwise around it."""
    if target.kind.family != "cpu" or cpu_model(target).fma_ports == 1:  # one port is busy with any tile
        return function
    convolution = _only_convolution(function)
    size = None if convolution is None else _size(convolution)
    if convolution is None or size is None:
        return function
    weight = convolution.args[1]
    changed: dict[int, Expr] = {}
    for leaf in post_order(function.body):
        if isinstance(leaf, Var | Constant) and leaf is not weight:
            shape = _flat_shape(leaf, size)
            if shape is None or (isinstance(leaf, Constant) and shape != leaf.data.shape):
                return function
            if isinstance(leaf, Var):
                ty = infer_type(leaf)
                assert isinstance(ty, TensorType), "shapes are known of tensors only"
                changed[id(leaf)] = var(leaf.name_hint, TensorType(shape, ty.dtype))
    body = substitute(function.body, changed)
    params = tuple(substitute(p, changed) for p in function.params)
    result = Function(params, body, None, function.attrs, function.span)  # type: ignore[arg-type]
    infer_type(result)
    return result


def _only_convolution(function: Function) -> Call | None:
    """The 1x1 convolution that is the only call of more than single elements."""
    result: Call | None = None
    for item in post_order(function.body):
        if isinstance(item, Var | Constant):
            continue
        if not isinstance(item, Call) or not isinstance(item.op, Op):
            return None
        if item.op.kind > Kind.BROADCAST:
            if result is not None or item.op.name not in CONVOLUTIONS:
                return None
            result = item
        elif names_places(item):
            return None
    return result


def _size(convolution: Call) -> tuple[Known, Known] | None:
    """Rows and columns of the image, where each output is of one pixel and there are several rows."""
    infer_type(convolution)
    data, weight, result = (shape_of(e) for e in (*convolution.args, convolution))
    if data is None or weight is None or result is None:
        return None
    rows, columns = data[2:4]
    is_pointwise = weight[2:4] == (1, 1) and result[2:4] == data[2:4] and set(convolution.attrs.strides) == {1}
    return (rows, columns) if is_pointwise and (isinstance(rows, Extent) or rows > 1) else None


def _flat_shape(leaf: Expr, size: tuple[Known, Known]) -> tuple[Known, ...] | None:
    """The shape of an operand on one row of pixels: all of them, or one value for all; None for others."""
    infer_type(leaf)
    shape = shape_of(leaf)
    if shape is None:
        return None
    pixels = ((1, 1, *shape) if len(shape) < 3 else shape)[ROWS : COLUMNS + 1]
    if len(shape) < 2 or pixels == (1, 1):
        return shape
    return (*shape[:ROWS], 1, size[0] * size[1], shape[-1]) if len(shape) > 2 and pixels == size else None
