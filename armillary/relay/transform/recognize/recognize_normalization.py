"""recognize-normalization: the arithmetic of layer and RMS normalisation as nn.standardize.

In: a typed module. Out: one where (x - mean(x)) / sqrt(mean((x - mean(x))**2) + c) and x / sqrt(mean(x**2) + c), with
any of the ways to write the inverse root, are nn.standardize. Scale and shift stay as they are; they fuse. Invariant:
same values up to rounding; only where all statistics run over the same axes and c is one number.

    %0 = multiply(%x, %x);
    %1 = mean(%0, axis=[1], keepdims=True);
    %2 = add(%1, 1f);
    %3 = rsqrt(%2);
    multiply(%x, %3)
    ->
    nn.standardize(%x, axis=[1], epsilon=1, center=False)
"""

from __future__ import annotations

import math

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import call, is_square_of, op_name, rewrite_module, splat, tensor
from armillary.transform import define_pass

Axes = tuple[int, ...]
with deferred():
    from armillary.ops.reduce.reduce import reduced_axes


@define_pass("recognize-normalization", opt_level=2)
def recognize_normalization(module: IRModule) -> IRModule:
    """Replace the arithmetic by the operator."""
    return rewrite_module(module, _rule)


def _rule(expr: Expr) -> Expr | None:
    """y / sqrt(mean(y * y) + c)  ->  nn.standardize(y)   of x instead, if y = x - mean(x)"""
    for value, spread in _quotients(expr):
        spread_parts = _spread(spread, value)
        if spread_parts is None or value.checked_type != expr.checked_type:
            continue
        axes, epsilon = spread_parts
        source = _centred(value, axes)
        center = source is not None
        return call("nn.standardize", value if source is None else source, axis=axes, epsilon=epsilon, center=center)
    return None


def _quotients(expr: Expr) -> list[tuple[Expr, Expr]]:
    """(y, v) wherever the expression is y / sqrt(v)."""
    name = op_name(expr)
    if not isinstance(expr, Call) or name not in ("divide", "multiply"):
        return []
    if name == "divide":
        below = _under_root(expr.args[1])
        return [] if below is None else [(expr.args[0], below)]
    pairs = [(expr.args[0], _inverse_root(expr.args[1])), (expr.args[1], _inverse_root(expr.args[0]))]
    return [(y, v) for y, v in pairs if v is not None]


def _inverse_root(expr: Expr) -> Expr | None:
    """v of rsqrt(v), 1 / sqrt(v) or v ** -0.5."""
    if not isinstance(expr, Call):
        return None
    name, first = op_name(expr), expr.args[0] if expr.args else None
    if name == "rsqrt":
        return first
    if name == "power" and splat(expr.args[1]) == -0.5:
        return first
    if name != "divide" or first is None or splat(first) != 1:
        return None
    return _under_root(expr.args[1])


def _under_root(expr: Expr) -> Expr | None:
    """v of sqrt(v)."""
    return expr.args[0] if op_name(expr) == "sqrt" and isinstance(expr, Call) else None


def _spread(expr: Expr, value: Expr) -> tuple[Axes, float] | None:
    """(axes, c) of mean(value * value) + c."""
    if op_name(expr) != "add" or not isinstance(expr, Call):
        return None
    for moment, constant in (expr.args, expr.args[::-1]):
        epsilon, mean = splat(constant), _mean(moment)
        if epsilon is not None and mean is not None and is_square_of(mean[0], value):
            return mean[1], float(epsilon)
    return None


def _mean(expr: Expr) -> tuple[Expr, Axes] | None:
    """(x, axes) of mean(x, axes, keepdims) or of its sum divided by the count."""
    if not isinstance(expr, Call):
        return None
    if op_name(expr) == "mean":
        return _reduction(expr)
    if op_name(expr) != "divide" or op_name(expr.args[0]) != "sum" or not isinstance(expr.args[0], Call):
        return None
    result = _reduction(expr.args[0])
    ty = None if result is None else tensor(result[0])
    if result is None or ty is None:
        return None
    return result if splat(expr.args[1]) == math.prod(ty.static[a] for a in result[1]) else None


def _reduction(expr: Call) -> tuple[Expr, Axes] | None:
    ty = tensor(expr.args[0])
    if ty is None or not expr.attrs.keepdims or not ty.dtype.is_float or ty.dtype.bits < 32:
        return None
    axes = reduced_axes(op_name(expr), expr.attrs, ty.ndim)
    return (expr.args[0], axes) if axes else None


def _centred(value: Expr, axes: Axes) -> Expr | None:
    """x of x - mean(x) over these axes."""
    if op_name(value) != "subtract" or not isinstance(value, Call):
        return None
    mean = _mean(value.args[1])
    return value.args[0] if mean is not None and mean[0] is value.args[0] and mean[1] == axes else None
