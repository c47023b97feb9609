"""TensorFlow's elementwise operators of one, two and three tensors, and reductions.

In: nodes with typed inputs. Out: Relay's operators. Invariant: tensors broadcast as numpy's do; `Mod` and `FloorMod`
round towards minus infinity, `Div` of integers towards zero.
"""

from __future__ import annotations

from armillary.frontend.tensorflow.node import TensorflowNode, tensorflow
from armillary.frontend.values import cast, dtype_of, is_float, op, scalar, shape_of
from armillary.relay.expr import Expr

_UNARY = {
    **{name: name.lower() for name in ("Abs", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Rsqrt", "Sigmoid")},
    **{name: name.lower() for name in ("Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh", "Acos", "Asin", "Atan", "Asinh")},
    **{name: name.lower() for name in ("Acosh", "Atanh")},
    "IsFinite": "isfinite",
    "IsInf": "isinf",
    "IsNan": "isnan",
    "LogicalNot": "logical_not",
    "Neg": "negative",
    "OnesLike": "ones_like",
    "Rint": "nearbyint",
    "Round": "nearbyint",
    "ZerosLike": "zeros_like",
}
_BINARY = {
    "Add": "add",
    "AddV2": "add",
    "Atan2": "atan2",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "FloorDiv": "floor_divide",
    "FloorMod": "floor_mod",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "LeftShift": "left_shift",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "trunc_mod",
    "Mul": "multiply",
    "NotEqual": "not_equal",
    "Pow": "power",
    "RightShift": "right_shift",
    "Sub": "subtract",
    "TruncateDiv": "trunc_divide",
    "TruncateMod": "trunc_mod",
}
_REDUCED = {"Mean": "mean", "Sum": "sum", "Prod": "prod", "Max": "max", "Min": "min", "Any": "any", "All": "all"}


@tensorflow(*_UNARY)
def unary(node: TensorflowNode) -> Expr:
    return op(_UNARY[node.op], node.x)


@tensorflow(*_BINARY)
def binary(node: TensorflowNode) -> Expr:
    return op(_BINARY[node.op], node.x, node.inputs[1])


@tensorflow("Div", "RealDiv")
def divide(node: TensorflowNode) -> Expr:
    return op("divide" if is_float(node.x) else "trunc_divide", node.x, node.inputs[1])


@tensorflow("DivNoNan")
def divide_no_nan(node: TensorflowNode) -> Expr:
    is_zero = op("equal", node.inputs[1], node.number(0))
    quotient = op("divide", node.x, op("where", is_zero, node.number(1), node.inputs[1]))
    return op("where", is_zero, node.number(0), quotient)


@tensorflow("Square")
def square(node: TensorflowNode) -> Expr:
    return op("multiply", node.x, node.x)


@tensorflow("SquaredDifference")
def squared_difference(node: TensorflowNode) -> Expr:
    apart = op("subtract", node.x, node.inputs[1])
    return op("multiply", apart, apart)


@tensorflow("Reciprocal", "Inv")
def reciprocal(node: TensorflowNode) -> Expr:
    return op("divide", node.number(1), node.x)


@tensorflow("Erfc")
def erfc(node: TensorflowNode) -> Expr:
    return op("subtract", node.number(1), op("erf", node.x))


@tensorflow("Expm1")
def expm1(node: TensorflowNode) -> Expr:
    return op("subtract", op("exp", node.x), node.number(1))


@tensorflow("Log1p")
def log1p(node: TensorflowNode) -> Expr:
    return op("log", op("add", node.x, node.number(1)))


@tensorflow("AddN", "AccumulateNV2")
def add_n(node: TensorflowNode) -> Expr:
    result = node.x
    for other in node.inputs[1:]:
        result = op("add", result, other)
    return result


@tensorflow("Select", "SelectV2")
def select(node: TensorflowNode) -> Expr:
    condition, rank = node.x, len(shape_of(node.inputs[1]))
    if node.op == "Select" and len(node.shape) == 1 < rank:  # of whole rows
        condition = op("expand_dims", condition, axis=1, num_newaxis=rank - 1)
    return op("where", condition, node.inputs[1], node.inputs[2])


@tensorflow("ClipByValue")
def clip_by_value(node: TensorflowNode) -> Expr:
    return op("minimum", op("maximum", node.x, node.inputs[1]), node.inputs[2])


@tensorflow("Cast")
def cast_to(node: TensorflowNode) -> Expr:
    return cast(node.x, node.dtype("DstT", "float32"))


@tensorflow(*_REDUCED)
def reduced(node: TensorflowNode) -> Expr:
    axes = node.numbers(1, "the axes")
    result = op(_REDUCED[node.op], node.x, axis=axes, keepdims=node.flag("keep_dims")) if axes else node.x
    return cast(result, dtype_of(node.x))


@tensorflow("ArgMax", "ArgMin")
def arg(node: TensorflowNode) -> Expr:
    (axis,) = node.numbers(1, "the axis")
    result = op("argmax" if node.op == "ArgMax" else "argmin", node.x, axis=axis)
    return cast(result, node.dtype("output_type", "int64"))


@tensorflow("Cumsum", "Cumprod")
def cumulated(node: TensorflowNode) -> Expr:
    (axis,) = node.numbers(1, "the axis")
    x = op("reverse", node.x, axis=axis) if node.flag("reverse") else node.x
    result = op(node.op.lower(), x, axis=axis, dtype=dtype_of(x), exclusive=node.flag("exclusive"))
    return op("reverse", result, axis=axis) if node.flag("reverse") else result


@tensorflow("L2Loss")
def l2_loss(node: TensorflowNode) -> Expr:
    return op("multiply", op("sum", op("multiply", node.x, node.x)), scalar(0.5, dtype_of(node.x)))
