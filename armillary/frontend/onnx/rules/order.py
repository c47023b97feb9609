"""ONNX TopK, ArgMax, ArgMin, CumSum and CumProd: what goes along one axis.

In: nodes of any opset; k and the axis of a sum are known when compiling. Out: topk, argmax, argmin, cumsum, cumprod;
positions are int64. Invariant: a k of 0 means no elements, as ONNX says (to `topk` it means all).
"""

from __future__ import annotations

from armillary.base.extent import Known
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._deferred import by_name
from armillary.ops._types import axis_of
from armillary.relay.expr import Expr, TupleGetItem

argmax, argmin, cast, cumprod, cumsum, strided_slice, topk = map(
    by_name, ("argmax", "argmin", "cast", "cumprod", "cumsum", "strided_slice", "topk")
)


def _top(node: OnnxNode, k: Known, largest: bool) -> list[Expr]:
    axis, ty = node.int("axis", default=-1), node.type_of(0)
    size = ty.known[axis_of("TopK", axis, ty.ndim)]
    if not isinstance(k, int) or not isinstance(size, int):  # all in order, of which k are taken
        in_order = topk(node.input(0), 0, axis, "both", not largest, "int64")
        return [strided_slice(TupleGetItem(in_order, i), (0,), (k,), None, (axis,)) for i in (0, 1)]
    if not 0 <= k <= size:
        raise TypeMismatch(f"TopK node {node.name!r}: k is {k}, wanted 0 to {size}, the elements of axis {axis}")
    if k == 0:  # ONNX: none; this operator: all
        from_all = topk(node.input(0), 0, axis, "both", not largest, "int64")
        empty = [strided_slice(TupleGetItem(from_all, i), (0,), (0,), None, (axis,)) for i in (0, 1)]
        return list(empty)
    call = topk(node.input(0), k, axis, "both", not largest, "int64")
    return [TupleGetItem(call, 0), TupleGetItem(call, 1)]


@from_onnx("TopK")
def from_onnx_topk_attribute(node: OnnxNode) -> list[Expr]:
    return _top(node, int(node.int("k")), True)


@from_onnx("TopK", since=10)
def from_onnx_topk(node: OnnxNode) -> list[Expr]:
    return _top(node, node.sizes(1, "k")[0], node.flag("largest", True))


@from_onnx("ArgMax", "ArgMin")
def from_onnx_arg(node: OnnxNode) -> Expr:
    op = argmax if node.op_type == "ArgMax" else argmin
    keepdims, last = node.flag("keepdims", True), node.flag("select_last_index", False)
    return cast(op(node.input(0), node.int("axis", default=0), keepdims, False, last), "int64")


@from_onnx("CumSum", "CumProd")
def from_onnx_scan(node: OnnxNode) -> Expr:
    op = cumsum if node.op_type == "CumSum" else cumprod
    axis = int(node.const(1, "axis").reshape(-1)[0])
    exclusive, reverse = node.flag("exclusive", False), node.flag("reverse", False)
    return op(node.input(0), axis, None, exclusive, reverse)
