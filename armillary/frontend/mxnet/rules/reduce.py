"""MXNet's sums, maxima and their places, orders, and products of matrices.

In: nodes with typed inputs. Out: Relay's operators. Invariant: places and orders are float32 unless the node says
another type, as MXNet has it.
"""

from __future__ import annotations

import math

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.mxnet.rules.elementwise import dtype_attr
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, TupleGetItem

_REDUCTIONS = {
    "sum": "sum",
    "sum_axis": "sum",
    "nansum": "sum",
    "mean": "mean",
    "prod": "prod",
    "max": "max",
    "max_axis": "max",
    "min": "min",
    "min_axis": "min",
    "_np_sum": "sum",
    "_npi_mean": "mean",
    "_np_max": "max",
    "_np_min": "min",
    "_np_prod": "prod",
}


def _axes(node: MxnetNode) -> tuple[int, ...]:
    """The axes that go."""
    rank = len(node.shape)
    named = tuple(axis % rank for axis in node.wholes("axis", ()))
    if node.flag("exclude"):
        return tuple(axis for axis in range(rank) if axis not in named)
    return named or tuple(range(rank))


def _shaped(node: MxnetNode, value: Expr) -> Expr:
    """A result of all axes is a vector of one number, as MXNet has no scalars; numpy's interface has."""
    return value if shape_of(value) or node.op.startswith("_np") else reshape_to(value, (1,))


@mxnet(*(name for name in _REDUCTIONS if name != "nansum"))
def reduction(node: MxnetNode) -> Expr:
    return _shaped(node, op(_REDUCTIONS[node.op], node.x, axis=_axes(node), keepdims=node.flag("keepdims")))


@mxnet("norm")
def norm(node: MxnetNode) -> Expr:
    order, axes, keeps = node.whole("ord", 2), _axes(node), node.flag("keepdims")
    if order == 1:
        return _shaped(node, op("sum", op("abs", node.x), axis=axes, keepdims=keeps))
    if order != 2:
        node.refuse(f"ord is {order}", "1 or 2")
    return _shaped(node, op("sqrt", op("sum", op("multiply", node.x, node.x), axis=axes, keepdims=keeps)))


@mxnet("argmax", "argmin", "argmax_channel", "_npi_argmax", "_npi_argmin")
def place(node: MxnetNode) -> Expr:
    name = "argmin" if "argmin" in node.op else "argmax"
    is_channel = node.op == "argmax_channel"
    (axis,) = (1,) if is_channel else node.axes("axis", (None,))
    x = node.x if axis is not None else reshape_to(node.x, (math.prod(node.shape),))
    position = op(name, x, axis=axis or 0, keepdims=node.flag("keepdims") and axis is not None)
    return _shaped(node, cast(position, "int64" if node.op.startswith("_np") else "float32"))


def _order(node: MxnetNode) -> tuple[Expr, int]:
    (axis,) = node.axes("axis", (-1,))
    return (reshape_to(node.x, (math.prod(node.shape),)), 0) if axis is None else (node.x, axis)


@mxnet("argsort")
def argsort(node: MxnetNode) -> Expr:
    x, axis = _order(node)
    return cast(op("argsort", x, axis=axis, is_ascend=node.flag("is_ascend", True)), dtype_attr(node))


@mxnet("sort")
def sort(node: MxnetNode) -> Expr:
    x, axis = _order(node)
    return op("sort", x, axis=axis, is_ascend=node.flag("is_ascend", True))


@mxnet("topk", "_npx_topk")
def topk(node: MxnetNode) -> Expr | list[Expr]:
    x, axis = _order(node)
    kind = node.one_of("ret_typ", ("indices", "value", "both"), "indices")
    k = node.whole("k", 1) or shape_of(x)[axis]
    both = op("topk", x, k=k, axis=axis, ret_type="both", is_ascend=node.flag("is_ascend"))
    values, places = TupleGetItem(both, 0), cast(TupleGetItem(both, 1), dtype_attr(node))
    return [values, places] if kind == "both" else [values if kind == "value" else places]


def _turned(x: Expr) -> Expr:
    rank = len(shape_of(x))
    return op("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


@mxnet("dot")
def dot(node: MxnetNode) -> Expr:
    """A sum over the last axis of the first and the first axis of the second tensor."""
    a, b = node.inputs
    a = op("transpose", a, axes=(*range(1, len(shape_of(a))), 0)) if node.flag("transpose_a") else a
    rank = len(shape_of(b))
    b = op("transpose", b, axes=(rank - 1, *range(rank - 1))) if node.flag("transpose_b") else b
    (*rows, inner), (_, *columns) = shape_of(a), shape_of(b)
    product = op("nn.matmul", reshape_to(a, (math.prod(rows), inner)), reshape_to(b, (inner, math.prod(columns))))
    return _shaped(node, reshape_to(product, (*rows, *columns)))


@mxnet("batch_dot", "_npx_batch_dot", "_linalg_gemm2")
def batch_dot(node: MxnetNode) -> Expr:
    a, b = node.inputs
    lead = shape_of(a)[:-2]
    sides = [reshape_to(x, (math.prod(lead), *shape_of(x)[-2:])) if len(lead) != 1 else x for x in (a, b)]
    product = op("nn.batch_matmul", *sides, transpose_a=node.flag("transpose_a"), transpose_b=node.flag("transpose_b"))
    alpha = node.number("alpha", 1.0)
    result = op("multiply", product, scalar(alpha, dtype_of(a))) if alpha != 1 else product
    return reshape_to(result, (*lead, *shape_of(result)[-2:])) if len(lead) != 1 else result


@mxnet("cumsum", "_np_cumsum")
def cumsum(node: MxnetNode) -> Expr:
    x, axis = _order(node) if node.text("axis") else (reshape_to(node.x, (math.prod(node.shape),)), 0)
    return op("cumsum", x, axis=axis)
