"""ONNX import of reductions: the Reduce* family.

In: an ONNX node; axes are an attribute or, from opset 13 (ReduceSum) and 18 (the others) on, an input known when
compiling. Out: reductions of reduce.py between elementwise operators. Invariant: with noop_with_empty_axes and no axes,
nothing is reduced but the elementwise parts still apply.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._types import int_list
from armillary.ops.elementwise.broadcast import multiply
from armillary.ops.elementwise.cast import cast
from armillary.ops.elementwise.elementwise import absolute, log, sqrt
from armillary.ops.nn.norm import narrowed, widened
from armillary.ops.reduce.reduce import all_, any_, logsumexp, max_, mean, min_, prod, sum_
from armillary.relay.expr import Expr
from armillary.relay.op import Op

Axes = tuple[int, ...] | None
Reduce = Callable[[Expr, Axes, bool], Expr]


def _plain(op: Op) -> Reduce:
    return lambda data, axes, keepdims: data if axes == () else op(data, axes, keepdims)


_SUM = _plain(sum_)


def _in_float(function: Callable[[Expr], Expr], data: Expr) -> Expr:
    """Apply a float function; integers go through float64, float16 through float32, whose squares they cannot hold."""
    ty = data.checked_type
    dtype = ty.dtype if hasattr(ty, "dtype") else "float32"
    if str(dtype).lstrip("u").startswith("int"):
        return cast(function(cast(data, "float64")), dtype)
    return narrowed(function(widened(data)), data)


def _extreme(number: Op, truth: Op) -> Reduce:
    """max and min; of booleans any and all."""

    def reduce(data: Expr, axes: Axes, keepdims: bool) -> Expr:
        ty = data.checked_type
        op = truth if getattr(ty, "dtype", "") == "bool" else number
        return _plain(op)(data, axes, keepdims)

    return reduce


_REDUCE: dict[str, Reduce] = {
    "ReduceSum": _SUM,
    "ReduceProd": _plain(prod),
    "ReduceMean": _plain(mean),
    "ReduceMax": _extreme(max_, any_),
    "ReduceMin": _extreme(min_, all_),
    "ReduceL1": lambda x, axes, keep: _SUM(absolute(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _in_float(lambda y: sqrt(_SUM(multiply(y, y), axes, keep)), x),
    "ReduceSumSquare": lambda x, axes, keep: narrowed(_SUM(multiply(widened(x), widened(x)), axes, keep), x),
    "ReduceLogSum": lambda x, axes, keep: _in_float(lambda y: log(_SUM(y, axes, keep)), x),
    "ReduceLogSumExp": lambda x, axes, keep: x if axes == () else _in_float(lambda y: logsumexp(y, axes, keep), x),
}


def _by_attribute(node: OnnxNode) -> Expr:
    axes = node.ints("axes", default=None)
    keepdims = node.flag("keepdims", True)
    return _REDUCE[node.op_type](node.input(0), int_list(axes) if axes else None, keepdims)


def _by_input(node: OnnxNode) -> Expr:
    axes = node.optional_const(1, "axes")
    numbers = None if axes is None or axes.size == 0 else int_list(axes)
    nothing = node.flag("noop_with_empty_axes", False)  # says nothing about axes that are there
    if numbers is None and nothing:
        numbers = ()
    return _REDUCE[node.op_type](node.input(0), numbers, node.flag("keepdims", True))


for _name in _REDUCE:
    from_onnx(_name)(_by_attribute)
    from_onnx(_name, since=13 if _name == "ReduceSum" else 18)(_by_input)
