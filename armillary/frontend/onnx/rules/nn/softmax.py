"""ONNX Softmax, LogSoftmax, Hardmax and Flatten.

In: nodes of any opset: before 13 the axes from `axis` on count as one. Out: nn.softmax or nn.log_softmax along one
axis, between reshapes where the axes count as one; one_hot of argmax. Invariant: the result has the shape of the data.
"""

from __future__ import annotations

import math

from armillary.base.extent import Extent, is_known
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._deferred import by_name
from armillary.ops._types import dims_product, like_const
from armillary.ops.nn._windows import axis_of, call, reshape_to, type_of
from armillary.relay.expr import Expr
from armillary.relay.types import AnyDim

argmax, one_hot = map(by_name, ("argmax", "one_hot"))


def _relay_name(node: OnnxNode) -> str:
    return "nn.softmax" if node.op_type == "Softmax" else "nn.log_softmax"


@from_onnx("Softmax", "LogSoftmax", since=13)
def softmax_13(node: OnnxNode) -> Expr:
    return call(_relay_name(node), node.input(0), axis=node.int("axis", -1))


@from_onnx("Softmax", "LogSoftmax", since=1)
def softmax_1(node: OnnxNode) -> Expr:
    """The axes from `axis` on count as one."""
    x, ty = node.input(0), node.type_of(0)
    axis = node.int("axis", 1)
    axis = axis_of(node.op_type, axis, ty.ndim) if axis != ty.ndim else axis
    if axis == ty.ndim - 1 or all(d == 1 for d in ty.shape[axis + 1 :]):
        return call(_relay_name(node), x, axis=axis)
    flat = call(_relay_name(node), flatten_from(x, axis), axis=-1)
    if sum(not is_known(d) for d in ty.shape) > 1:
        return call("reshape_like", flat, x)
    return reshape_to(flat, tuple(d if isinstance(d, int | Extent) else -1 for d in ty.shape))


def flatten_from(x: Expr, axis: int) -> Expr:
    """A matrix: the axes before `axis`, and those from it on."""
    shape = type_of(x).shape
    sizes = (dims_product(shape[:axis]), dims_product(shape[axis:]))
    return reshape_to(x, [d if isinstance(d, int | Extent) else -1 for d in sizes])


@from_onnx("Flatten")
def flatten(node: OnnxNode) -> Expr:
    ty, axis = node.type_of(0), node.int("axis", 1)
    if not -ty.ndim <= axis <= ty.ndim:
        raise TypeMismatch(f"Flatten node {node.name!r}: axis {axis}, wanted {-ty.ndim} to {ty.ndim}")
    return flatten_from(node.input(0), axis if axis >= 0 else axis + ty.ndim)


def _hardmax(node: OnnxNode, axis: int) -> Expr:
    data, ty = node.input(0), node.type_of(0)
    axis = axis_of("Hardmax", axis, ty.ndim)
    depth = ty.shape[axis]
    if isinstance(depth, AnyDim):
        raise TypeMismatch(f"Hardmax node {node.name!r}: axis {axis} has an unknown size")
    return one_hot(argmax(data, axis), like_const(1.0, data), like_const(0.0, data), depth, axis, ty.dtype)


@from_onnx("Hardmax")
def from_onnx_hardmax_2d(node: OnnxNode) -> Expr:
    ty, axis = node.type_of(0), node.int("axis", default=1)
    axis = axis_of("Hardmax", axis, ty.ndim)
    data, rows = node.input(0), math.prod(ty.static[:axis])
    flat = reshape_to(data, (rows, math.prod(ty.static[axis:])))
    place = argmax(flat, 1)
    hot = one_hot(place, like_const(1.0, data), like_const(0.0, data), math.prod(ty.static[axis:]), 1, ty.dtype)
    return reshape_to(hot, ty.static)


@from_onnx("Hardmax", since=13)
def from_onnx_hardmax(node: OnnxNode) -> Expr:
    return _hardmax(node, node.int("axis", default=-1))
