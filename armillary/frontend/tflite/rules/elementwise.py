"""TFLite's elementwise operators in real numbers, of one, two and three tensors, and reductions.

In: nodes with typed inputs. Out: Relay's operators. Invariant: tensors broadcast as numpy's do; integer division and
remainder round towards minus infinity.
"""

from __future__ import annotations

from armillary.frontend.tflite.node import TfliteNode, in_integers, tflite
from armillary.frontend.values import cast, dtype_of, is_float, op, scalar
from armillary.relay.expr import Expr

_UNARY = {
    "ABS": "abs",
    "CEIL": "ceil",
    "COS": "cos",
    "EXP": "exp",
    "FLOOR": "floor",
    "LOG": "log",
    "LOGISTIC": "sigmoid",
    "NEG": "negative",
    "ROUND": "nearbyint",
    "RSQRT": "rsqrt",
    "SIGN": "sign",
    "SIN": "sin",
    "SQRT": "sqrt",
    "TANH": "tanh",
    "ZEROS_LIKE": "zeros_like",
    "LOGICAL_NOT": "logical_not",
}
_BINARY = {
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "POW": "power",
    "FLOOR_MOD": "floor_mod",
    "ATAN2": "atan2",
    "EQUAL": "equal",
    "NOT_EQUAL": "not_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_OR": "logical_or",
    "BITWISE_XOR": "bitwise_xor",
    "RIGHT_SHIFT": "right_shift",
}
_ACTIVATED = {"ADD": "add", "SUB": "subtract", "MUL": "multiply", "DIV": "divide"}
_REDUCED = {
    "MEAN": "mean",
    "SUM": "sum",
    "REDUCE_PROD": "prod",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_ANY": "any",
    "REDUCE_ALL": "all",
}


@tflite(*_UNARY)
def unary(node: TfliteNode) -> Expr:
    return op(_UNARY[node.op], node.x)


@tflite(*_BINARY)
def binary(node: TfliteNode) -> Expr:
    return op(_BINARY[node.op], node.x, node.input(1))


@tflite(*_ACTIVATED, options="activation:b")
def activated(node: TfliteNode) -> Expr:
    name = _ACTIVATED[node.op]
    if name == "divide" and not is_float(node.x):
        name = "trunc_divide"
    return node.activated(op(name, node.x, node.input(1)))


@tflite("FLOOR_DIV")
def floor_div(node: TfliteNode) -> Expr:
    return op("floor_divide", node.x, node.input(1))


@tflite("SQUARE")
def square(node: TfliteNode) -> Expr:
    return op("multiply", node.x, node.x)


@tflite("SQUARED_DIFFERENCE")
def squared_difference(node: TfliteNode) -> Expr:
    apart = op("subtract", node.x, node.input(1))
    return op("multiply", apart, apart)


@tflite("ADD_N")
def add_n(node: TfliteNode) -> Expr:
    result = node.x
    for other in node.present[1:]:
        result = op("add", result, other)
    return result


@tflite("SELECT", "SELECT_V2")
@in_integers("SELECT", "SELECT_V2")
def select(node: TfliteNode) -> Expr:
    condition, rank = node.x, len(node.writes[0].shape)
    if node.op == "SELECT" and len(node.shape) == 1 < rank:  # of whole rows
        condition = op("expand_dims", condition, axis=1, num_newaxis=rank - 1)
    return op("where", condition, node.input(1), node.input(2))


@tflite("CAST", options="of:b to:b")
def cast_to(node: TfliteNode) -> Expr:
    return cast(node.x, node.writes[0].dtype)


@tflite(*_REDUCED, options="keep_dims:?")
@in_integers("REDUCE_MAX", "REDUCE_MIN")
def reduced(node: TfliteNode) -> Expr:
    axes = node.wholes(1, "the axes")
    if not axes:
        return node.x
    result = op(_REDUCED[node.op], node.x, axis=axes, keepdims=bool(node.option("keep_dims")))
    return result if dtype_of(result) == node.writes[0].dtype else cast(result, node.writes[0].dtype)


@tflite("ARG_MAX", "ARG_MIN", options="type:b")
@in_integers("ARG_MAX", "ARG_MIN")
def arg(node: TfliteNode) -> Expr:
    (axis,) = node.wholes(1, "the axis")
    result = op("argmax" if node.op == "ARG_MAX" else "argmin", node.x, axis=axis)
    return cast(result, node.writes[0].dtype)


@tflite("CUMSUM", options="exclusive:? reverse:?")
def cumsum(node: TfliteNode) -> Expr:
    (axis,) = node.wholes(1, "the axis")
    x = node.x
    is_reverse = bool(node.option("reverse"))
    if is_reverse:
        x = op("reverse", x, axis=axis)
    result = op("cumsum", x, axis=axis, dtype=dtype_of(x), exclusive=bool(node.option("exclusive")))
    return op("reverse", result, axis=axis) if is_reverse else result


@tflite("FAKE_QUANT", options="min:f max:f bits:i narrow:?")
def fake_quant(node: TfliteNode) -> Expr:
    """Real numbers as rounded as integers of some bits would be."""
    low, high, least = float(node.option("min")), float(node.option("max")), int(bool(node.option("narrow")))
    most = (1 << node.whole("bits")) - 1
    scale = (high - low) / (most - least)
    shift = min(max(round(least - low / scale), least), most) if scale else least
    x = op("clip", node.x, a_min=(least - shift) * scale, a_max=(most - shift) * scale)
    steps = op("floor", op("add", op("divide", x, scalar(scale, "float32")), scalar(0.5, "float32")))
    return op("multiply", steps, scalar(scale, "float32"))
