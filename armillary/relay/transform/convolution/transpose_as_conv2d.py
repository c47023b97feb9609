"""transpose-as-conv2d: transposed convolutions with stride 1 as convolutions; dilated kernels as kernels with zeros.

In: a typed module in NCHW, constant weights. Out: with stride 1, an nn.conv2d of the kernel turned by half a turn, with
any groups and dilation, padded by what the kernel reaches less the padding; with larger strides, a dilated kernel is
one with zeros between its taps. Invariant: same products (and some with zeros), same types. Paddings beyond the reach
of the kernel stay as they are. Groups with larger strides: transpose_as_shuffle.py.

    nn.conv2d_transpose(%x, %w, padding=[1, 1])
    ->
    nn.conv2d(%x, turned[O, I, 3, 3], padding=[1, 1, 1, 1])
"""

from __future__ import annotations

import math

import numpy as np

from armillary.ir import IRModule
from armillary.ops.nn._windows import per_axis
from armillary.ops.nn.conv import window
from armillary.relay.expr import Call, Constant, Expr, known_of
from armillary.relay.transform._rules import call, is_filled_little, op_name, rewrite_module
from armillary.transform import define_pass

NAME = "nn.conv2d_transpose"


@define_pass("transpose-as-conv2d", opt_level=3)
def transpose_as_conv2d(module: IRModule) -> IRModule:
    """Make convolutions of transposed ones without strides, and none dilated of the others."""
    return rewrite_module(module, _turned, _spread)


def _is_plain(expr: Expr) -> bool:
    if op_name(expr) != NAME or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return False
    a = expr.attrs
    return known_of(expr) is not None and (a.data_layout, a.kernel_layout, a.out_layout or "NCHW") == (
        "NCHW",
        "IOHW",
        "NCHW",
    )


def _turned(expr: Expr) -> Expr | None:
    """conv2d_transpose(x, w)  ->  conv2d(x, turned w)   if the strides are 1"""
    if not _is_plain(expr) or not isinstance(expr, Call):
        return None
    attrs, weight = expr.attrs, expr.args[1].data  # type: ignore[attr-defined]
    win, more = window(NAME, attrs, 2), per_axis(NAME, "output_padding", attrs.output_padding, 2, 0)
    inputs, outputs, *kernel = weight.shape
    reach = [(size - 1) * step for size, step in zip(kernel, win.dilation, strict=True)]
    before = [r - pad for r, (pad, _) in zip(reach, win.pads, strict=True)]
    after = [r - pad + m for r, (_, pad), m in zip(reach, win.pads, more, strict=True)]
    if set(win.strides) != {1} or min(*before, *after) < 0:
        return None
    groups = attrs.groups
    parts = weight.reshape(groups, inputs // groups, outputs, *kernel)[..., ::-1, ::-1].swapaxes(1, 2)
    turned = np.ascontiguousarray(parts.reshape(groups * outputs, inputs // groups, *kernel))
    return call(
        "nn.conv2d",
        expr.args[0],
        Constant(turned),
        padding=(*before, *after),
        dilation=win.dilation,
        groups=groups,
        channels=groups * outputs,
        kernel_size=tuple(kernel),
        out_dtype=attrs.out_dtype,
    )


def _spread(expr: Expr) -> Expr | None:
    """conv2d_transpose(x, w, dilation=d)  ->  conv2d_transpose(x, w with zeros)"""
    if not _is_plain(expr) or not isinstance(expr, Call):
        return None
    win, weight = window(NAME, expr.attrs, 2), expr.args[1].data  # type: ignore[attr-defined]
    if set(win.dilation) == {1}:
        return None
    kernel = tuple((size - 1) * step + 1 for size, step in zip(weight.shape[2:], win.dilation, strict=True))
    if not is_filled_little(math.prod((*weight.shape[:2], *kernel)), weight.size):
        return None
    full = np.zeros((*weight.shape[:2], *kernel), weight.dtype)
    full[:, :, :: win.dilation[0], :: win.dilation[1]] = weight
    attrs = {name: getattr(expr.attrs, name) for name in expr.attrs.__dataclass_fields__}
    return call(NAME, expr.args[0], Constant(full), **attrs | {"dilation": (1, 1), "kernel_size": kernel})
