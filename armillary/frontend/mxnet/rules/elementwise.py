"""MXNet's operators on single elements: of one tensor, of two, of a tensor and a number.

In: nodes with typed inputs. Out: Relay's operators of the same meaning. Invariant: a comparison has the type of its
first operand (1 and 0), as MXNet's has, except in the numpy interface (`_npi_`), where it is bool.
"""

from __future__ import annotations

import numpy as np

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.mxnet.params import DTYPES
from armillary.frontend.values import cast, dtype_of, op, scalar
from armillary.relay.expr import Expr

_SAME = "abs exp log log2 log10 sqrt rsqrt floor ceil trunc round sign sigmoid erf sin cos tan sinh cosh tanh negative"
_UNARY = {name: name for name in _SAME.split()} | {
    "fix": "trunc",
    "relu": "nn.relu",
    "_copy": "copy",
    "BlockGrad": "copy",
    "make_loss": "copy",
    "MakeLoss": "copy",
    "identity": "copy",
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
_BINARY = {
    "add": "add plus",
    "subtract": "sub minus subtract",
    "multiply": "mul multiply",
    "divide": "div true_divide",
    "mod": "mod",
    "power": "power",
    "maximum": "maximum",
    "minimum": "minimum",
    "equal": "equal",
    "not_equal": "not_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "less": "lesser less",
    "less_equal": "lesser_equal less_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
}
_COMPARES = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
_WORDS = {word: name for name, words in _BINARY.items() for word in words.split()}


def _pairs() -> dict[str, tuple[str, str]]:
    """Every name of an operator of two tensors, with Relay's and the kind of the names."""
    result = {}
    for word, name in _WORDS.items():
        for old in (f"elemwise_{word}", f"broadcast_{word}", f"_{word}", f"_{word.title()}"):
            result[old] = (name, "")
        result[f"_npi_{word}"] = (name, "_npi_")
    return result


def _scalars() -> dict[str, tuple[str, bool]]:
    """Every name of an operator of a tensor and a number: Relay's, and whether the number stands first."""
    result = {}
    for word, name in _WORDS.items():
        for prefix in ("_", "_npi_"):
            result[f"{prefix}{word}_scalar"] = (name, False)
            result[f"{prefix}r{word}_scalar"] = (name, True)
        result[f"_{word.title()}Scalar"] = (name, False)
        result[f"_R{word.title()}Scalar"] = (name, True)
    return result


_PAIRS, _SCALARS = _pairs(), _scalars()


def _computed(node: MxnetNode, name: str, a: Expr, b: Expr) -> Expr:
    """An operator of two operands; what is true has the type that MXNet gives it."""
    dtype = dtype_of(node.x)
    if name.startswith("logical"):
        a, b = cast(a, "bool"), cast(b, "bool")
    elif name == "mod":
        name = "floor_mod"
    result = op(name, a, b)
    is_truth = name in _COMPARES or name.startswith("logical")
    return cast(result, dtype) if is_truth and not node.op.startswith("_np") else result


@mxnet(*_UNARY)
def unary(node: MxnetNode) -> Expr:
    return op(_UNARY[node.op], node.x)


@mxnet(*(f"_np{kind}_{name}" for name in _UNARY for kind in "ix"))
def unary_of_numpy(node: MxnetNode) -> Expr:
    return op(_UNARY[node.op.split("_", 2)[2]], node.x)


@mxnet(*_PAIRS)
def binary(node: MxnetNode) -> Expr:
    return _computed(node, _PAIRS[node.op][0], *node.inputs)


@mxnet(*_SCALARS)
def with_number(node: MxnetNode) -> Expr:
    name, is_first = _SCALARS[node.op]
    value, dtype = node.number("scalar"), dtype_of(node.x)
    x = node.x
    if not dtype.startswith(("float", "bfloat")) and (value % 1 or name == "divide") and node.op.startswith("_np"):
        x, dtype = cast(x, "float32"), "float32"
    number = scalar(value, dtype)
    return _computed(node, name, number, x) if is_first else _computed(node, name, x, number)


@mxnet("add_n", "ElementWiseSum", "_sum")
def add_n(node: MxnetNode) -> Expr:
    result = node.x
    for other in node.inputs[1:]:
        result = op("add", result, other)
    return result


@mxnet("logical_not", "_npi_logical_not")
def logical_not(node: MxnetNode) -> Expr:
    result = op("logical_not", cast(node.x, "bool"))
    return result if node.op.startswith("_np") else cast(result, dtype_of(node.x))


@mxnet("square", "_npi_square")
def square(node: MxnetNode) -> Expr:
    return op("multiply", node.x, node.x)


@mxnet("reciprocal", "_npi_reciprocal")
def reciprocal(node: MxnetNode) -> Expr:
    return op("divide", _number(node, 1), node.x)


@mxnet("cbrt", "rcbrt")
def cube_root(node: MxnetNode) -> Expr:
    power = op("power", op("abs", node.x), _number(node, 1 / 3))
    root = op("multiply", op("sign", node.x), power)
    return op("divide", _number(node, 1), root) if node.op == "rcbrt" else root


@mxnet("rint")
def rint(node: MxnetNode) -> Expr:
    """To the nearest whole number; halves go down."""
    floor = op("floor", node.x)
    is_above = op("greater", op("subtract", node.x, floor), _number(node, 0.5))
    return op("where", is_above, op("add", floor, _number(node, 1)), floor)


@mxnet("expm1", "_npi_expm1")
def expm1(node: MxnetNode) -> Expr:
    return op("subtract", op("exp", node.x), _number(node, 1))


@mxnet("log1p", "_npi_log1p")
def log1p(node: MxnetNode) -> Expr:
    return op("log", op("add", node.x, _number(node, 1)))


@mxnet("radians", "degrees")
def angle(node: MxnetNode) -> Expr:
    return op("multiply", node.x, _number(node, np.pi / 180 if node.op == "radians" else 180 / np.pi))


@mxnet("softsign")
def softsign(node: MxnetNode) -> Expr:
    return op("divide", node.x, op("add", op("abs", node.x), _number(node, 1)))


@mxnet("hard_sigmoid")
def hard_sigmoid(node: MxnetNode) -> Expr:
    scaled = op("multiply", node.x, _number(node, node.number("alpha", 0.2)))
    return op("clip", op("add", scaled, _number(node, node.number("beta", 0.5))), a_min=0.0, a_max=1.0)


@mxnet("smooth_l1")
def smooth_l1(node: MxnetNode) -> Expr:
    square_of_scale = node.number("scalar", 1.0) ** 2
    size = op("abs", node.x)
    inner = op("multiply", op("multiply", node.x, node.x), _number(node, square_of_scale / 2))
    outer = op("subtract", size, _number(node, 0.5 / square_of_scale))
    return op("where", op("less", size, _number(node, 1 / square_of_scale)), inner, outer)


@mxnet("clip", "_npi_clip")
def clip(node: MxnetNode) -> Expr:
    low, high = node.number("a_min", -np.inf), node.number("a_max", np.inf)
    return op("clip", node.x, a_min=low, a_max=high)


@mxnet("Cast", "cast", "amp_cast", "_npi_cast")
def cast_to(node: MxnetNode) -> Expr:
    return cast(node.x, dtype_attr(node))


@mxnet("where", "_npi_where")
def where(node: MxnetNode) -> Expr:
    condition, a, b = node.inputs
    return op("where", cast(condition, "bool"), a, b)


@mxnet("zeros_like", "ones_like", "_np_zeros_like", "_np_ones_like")
def filled_like(node: MxnetNode) -> Expr:
    return op(node.op.removeprefix("_np_"), node.x)


def _number(node: MxnetNode, value: float) -> Expr:
    """A number in the type of the first input."""
    return scalar(value, dtype_of(node.x))


def dtype_attr(node: MxnetNode, default: str = "float32") -> str:
    """The attribute `dtype`: a name, or a number in old files."""
    text = node.text("dtype", default)
    name = DTYPES.get(int(text), "") if text.isdecimal() else text
    return (
        name if name in DTYPES.values() else node.refuse(f"dtype is {text!r}", f"one of {', '.join(DTYPES.values())}")
    )
