"""recognize-lrn: local response normalisation spelled with a pooling as nn.lrn.

In: a typed module. Out: one where x / (mean * alpha + k) ** beta is nn.lrn, if the mean is an average pooling of x * x,
padded with zeros, along what is the second axis of x. Invariant: the values are the same up to rounding; reshapes in
between may only regroup axes. nn.lrn is made over (outer, channels, inner), as its decomposition does.

    %0 = multiply(%x, %x);
    %1 = reshape(%0, newshape=[1, 1, 3, 20]);
    %2 = nn.pad(%1, pad_width=[[0, 0], [0, 0], [1, 1], [0, 0]], pad_value=0);
    %3 = nn.avg_pool2d(%2, pool_size=[3, 1]);
    %4 = reshape(%3, newshape=[1, 3, 4, 5]);
    %5 = multiply(%4, 0.5f);
    %6 = add(%5, 1f);
    %7 = power(%6, 0.75f);
    divide(%x, %7)
    ->
    %0 = reshape(%x, newshape=[1, 3, 20]);
    %1 = nn.lrn(%0, size=3, bias=1, alpha=0.5);
    reshape(%1, newshape=[1, 3, 4, 5])
"""

from __future__ import annotations

import math

from armillary.ir import IRModule
from armillary.ops.nn._windows import letters, reshape_to
from armillary.relay.expr import Call, Expr
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import call, is_square_of, op_name, rewrite_module, splat, tensor
from armillary.transform import define_pass

POOLINGS = ("nn.avg_pool2d", "nn.avg_pool3d")


@define_pass("recognize-lrn", opt_level=2)
def recognize_lrn(module: IRModule) -> IRModule:
    """Replace the arithmetic by the operator."""
    return rewrite_module(module, _rule)


def _rule(expr: Expr) -> Expr | None:
    """x / (pooled * alpha + k) ** beta"""
    if op_name(expr) != "divide" or not isinstance(expr, Call) or (ty := tensor(expr)) is None or ty.ndim < 2:
        return None
    x, below = expr.args[0], _unshaped(expr.args[1])
    if x.checked_type != expr.checked_type or str(ty.dtype) != "float32" or 0 in ty.shape:
        return None
    constants = [_constant(below, "power", False)]
    for name in ("add", "multiply"):
        constants.append(None if constants[-1] is None else _constant(constants[-1][0], name, True))
    if constants[-1] is None:
        return None
    beta, bias, alpha = (number for row in constants if row is not None for number in row[1:])
    size = _window(constants[-1][0], x, ty.static)
    if size is None:
        return None
    n, channels, *inner = ty.static
    flat = reshape_to(x, (n, channels, math.prod(inner)))
    return reshape_to(call("nn.lrn", flat, size=size, axis=1, bias=bias, alpha=alpha, beta=beta), ty.static)


def _unshaped(expr: Expr) -> Expr:
    """What an expression is without the reshapes around it."""
    while isinstance(expr, Call) and has(expr, Fact.VIEW):
        expr = expr.args[0]
    return expr


def _constant(expr: Expr, name: str, commutes: bool) -> tuple[Expr, float] | None:
    """(y, c) of `name`(y, c), or of `name`(c, y) if it commutes."""
    if not isinstance(expr, Call) or op_name(expr) != name:
        return None
    for value, factor in (expr.args, expr.args[::-1])[: 1 + commutes]:
        number = splat(factor)
        if number is not None and value.checked_type == expr.checked_type:
            return _unshaped(value), float(number)
    return None


def _window(pooled: Expr, x: Expr, shape: tuple[int, ...]) -> int | None:
    """The number of channels in a window, if `pooled` is the mean of squares of x around each channel."""
    if not isinstance(pooled, Call) or op_name(pooled) not in POOLINGS:
        return None
    attrs, padded = pooled.attrs, pooled.args[0]
    plain = not any((*attrs.padding, attrs.ceil_mode)) and {*attrs.strides, *attrs.dilation} == {1}
    wide = [n for n, size in enumerate(attrs.pool_size) if size > 1]
    if not plain or len(wide) != 1 or op_name(padded) != "nn.pad" or not isinstance(padded, Call):
        return None
    size: int = attrs.pool_size[wide[0]]
    axis = len(letters(attrs.layout)) - len(attrs.pool_size) + wide[0]
    source, before = padded.args[0], (size - 1) // 2
    have = tensor(source)
    pads = [(0, 0)] * len(letters(attrs.layout))
    pads[axis] = (before, size - 1 - before)
    if [tuple(pair) for pair in padded.attrs.pad_width] != pads or have is None or attrs.layout[:2] != "NC":
        return None
    is_zero = padded.attrs.pad_mode == "constant" and _pad_value(padded) == 0
    regrouped = (math.prod(have.static[:axis]), have.static[axis]) == shape[:2]
    return size if is_zero and regrouped and is_square_of(_unshaped(source), x) else None


def _pad_value(padded: Call) -> float | None:
    """The number a pad fills with: an attribute, or a second input."""
    if len(padded.args) > 1:
        return splat(padded.args[1])
    value: float = padded.attrs.pad_value
    return value
