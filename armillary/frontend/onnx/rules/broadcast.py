"""ONNX import of the broadcasting operators: arithmetic, comparisons, logic, Sum/Max/Min/Mean, Mod, Pow, Where.

In: an ONNX node. Out: calls of the operators of broadcast.py. Invariant: before opset 7 an operator broadcasts only
when asked to, and lines its second input up with `axis`; from 7 on as numpy does.
"""

from __future__ import annotations

from functools import partial, reduce

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.ops._types import like_const
from armillary.ops.check_values import NOT_ZERO
from armillary.ops.elementwise.broadcast import (
    BINARY,
    divide,
    floor_mod,
    left_shift,
    maximum,
    minimum,
    mod,
    multiply,
    power,
    right_shift,
    where,
)
from armillary.ops.elementwise.cast import cast
from armillary.ops.elementwise.elementwise import sqrt
from armillary.ops.shape.shape import expand_dims
from armillary.relay.expr import Expr
from armillary.relay.op import Op

_PLAIN = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Equal": "equal",
    "Less": "less",
    "Greater": "greater",
    "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}
_LEGACY = ("Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "And", "Or", "Xor")


def _aligned(node: OnnxNode) -> Expr:
    """The second input of an operator before opset 7, with trailing axes so that numpy's rule places it."""
    rhs = node.input(1)
    axis = node.int("axis", default=None)
    if not node.flag("broadcast", False) or axis is None:
        return rhs
    missing = node.type_of(0).ndim - node.type_of(1).ndim - (axis % max(1, node.type_of(0).ndim))
    return expand_dims(rhs, node.type_of(1).ndim, missing) if missing > 0 else rhs


def _divisor(node: OnnxNode) -> Expr:
    """The second input of a division: no integer may be divided by 0."""
    if node.type_of(1).dtype.is_float:
        return node.input(1)
    return checked(node, 1, [NOT_ZERO], "divisor", node.type_of(0).size)


def _plain_second(node: OnnxNode) -> Expr:
    return node.input(1)


def _register(onnx_name: str, op: Op) -> None:
    second = _divisor if onnx_name == "Div" else _plain_second
    from_onnx(onnx_name, since=7)(lambda node: op(node.input(0), second(node)))
    if onnx_name in _LEGACY:
        from_onnx(onnx_name)(lambda node: op(node.input(0), _aligned(node)))


for _onnx_name, _name in _PLAIN.items():
    _register(_onnx_name, BINARY[_name])


def _pow(node: OnnxNode, base: Expr, exponent: Expr) -> Expr:
    """x**2, x**3 and x**0.5 as products and a root; mixed dtypes as ONNX wants: the result has the base's."""
    known = node.constants[1] if len(node.constants) > 1 else None
    base_type = node.type_of(0)
    if known is not None and known.size == 1 and known.ndim <= base_type.ndim:
        value = known.reshape(()).item()
        if value in (2, 3):
            return multiply(base, base) if value == 2 else multiply(multiply(base, base), base)
        if value == 0.5 and base_type.dtype.is_float:
            return sqrt(base)
    exponent_dtype = node.type_of(1).dtype
    if exponent_dtype == base_type.dtype:
        return power(base, exponent)
    if base_type.dtype.is_float:
        return power(base, cast(exponent, base_type.dtype))
    wide = cast(base, "float64"), cast(exponent, "float64")
    return cast(power(*wide), base_type.dtype)


@from_onnx("Pow")
def from_onnx_pow_legacy(node: OnnxNode) -> Expr:
    return _pow(node, node.input(0), _aligned(node))


@from_onnx("Pow", since=7)
def from_onnx_pow(node: OnnxNode) -> Expr:
    return _pow(node, node.input(0), node.input(1))


@from_onnx("Mod")
def from_onnx_mod(node: OnnxNode) -> Expr:
    return (mod if node.flag("fmod", False) else floor_mod)(node.input(0), _divisor(node))


@from_onnx("BitShift")
def from_onnx_bit_shift(node: OnnxNode) -> Expr:
    direction = node.string("direction", default="")
    if direction not in ("LEFT", "RIGHT"):
        raise TypeMismatch(f"BitShift node {node.name!r}: direction {direction!r}, wanted LEFT or RIGHT")
    return (left_shift if direction == "LEFT" else right_shift)(node.input(0), node.input(1))


def _fold(op: Op, node: OnnxNode) -> Expr:
    if not node.present:
        raise TypeMismatch(f"{node.op_type} node {node.name!r} has no inputs")
    result: Expr = reduce(op, node.present)
    return result


from_onnx("Sum")(partial(_fold, BINARY["add"]))
from_onnx("Max")(partial(_fold, maximum))
from_onnx("Min")(partial(_fold, minimum))


@from_onnx("Mean")
def from_onnx_mean(node: OnnxNode) -> Expr:
    total = _fold(BINARY["add"], node)
    return divide(total, like_const(len(node.present), total))


@from_onnx("Where")
def from_onnx_where(node: OnnxNode) -> Expr:
    return where(node.input(0), node.input(1), node.input(2))


@from_onnx("Reciprocal")
def from_onnx_reciprocal(node: OnnxNode) -> Expr:
    return divide(like_const(1.0, node.input(0)), node.input(0))
