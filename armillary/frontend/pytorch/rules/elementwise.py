"""ATen's functions of one tensor: arithmetic, trigonometry, rounding, predicates.

In: a tensor. Out: calls of the elementwise operators. Invariant: a function of reals takes integers and booleans in
float32, as ATen does; rounding leaves integers as they are.
"""

from __future__ import annotations

import math

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import as_float, cast, dtype_of, is_float, op, scalar
from armillary.relay.expr import Expr

_REAL = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "log2", "log10"),
    *("rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_ALIASES = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh", "asinh": "arcsinh"}
_ROUNDING = ("ceil", "floor", "trunc")


def _register_real(name: str) -> None:
    @aten(name, *([_ALIASES[name]] if name in _ALIASES else []))
    def rule(call: AtenCall, x: Expr) -> Expr:
        return op(name, as_float(x))


def _register_rounding(name: str) -> None:
    @aten(name, *(["fix"] if name == "trunc" else []))
    def rule(call: AtenCall, x: Expr) -> Expr:
        return op(name, x) if is_float(x) else x


for _name in _REAL:
    _register_real(_name)
for _name in _ROUNDING:
    _register_rounding(_name)


@aten("abs", "absolute")
def absolute(call: AtenCall, x: Expr) -> Expr:
    return x if dtype_of(x) == "bool" else op("abs", x)


@aten("neg", "negative")
def negative(call: AtenCall, x: Expr) -> Expr:
    return op("negative", x)


@aten("positive")
def positive(call: AtenCall, x: Expr) -> Expr:
    return x


@aten("sign", "sgn")
def sign(call: AtenCall, x: Expr) -> Expr:
    return x if dtype_of(x) == "bool" else op("sign", x)


@aten("round")
def round_(call: AtenCall, x: Expr) -> Expr:
    return _rounded(x)


def _rounded(x: Expr) -> Expr:
    return op("nearbyint", x) if is_float(x) else x


@aten("round.decimals")
def round_decimals(call: AtenCall, x: Expr, decimals: int) -> Expr:
    if not is_float(x) or decimals == 0:
        return _rounded(x)
    power = scalar(10.0 ** abs(decimals), dtype_of(x))
    before, after = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return op(after, op("nearbyint", op(before, x, power)), power)


@aten("frac")
def frac(call: AtenCall, x: Expr) -> Expr:
    return op("subtract", x, op("trunc", x))


@aten("reciprocal")
def reciprocal(call: AtenCall, x: Expr) -> Expr:
    value = as_float(x)
    return op("divide", scalar(1, dtype_of(value)), value)


@aten("square")
def square(call: AtenCall, x: Expr) -> Expr:
    number = cast(x, "int64") if dtype_of(x) == "bool" else x
    return op("multiply", number, number)


@aten("exp2", "special_exp2")
def exp2(call: AtenCall, x: Expr) -> Expr:
    value = as_float(x)
    return op("power", scalar(2, dtype_of(value)), value)


@aten("expm1", "special_expm1")
def expm1(call: AtenCall, x: Expr) -> Expr:
    """exp(x) - 1; near 0 by the tangent of half the argument, which loses no digits."""
    value = as_float(x)
    one, two = scalar(1, dtype_of(value)), scalar(2, dtype_of(value))
    tangent = op("tanh", op("divide", value, two))
    near = op("divide", op("multiply", two, tangent), op("subtract", one, tangent))
    return op("where", op("less", op("abs", value), one), near, op("subtract", op("exp", value), one))


@aten("log1p", "special_log1p")
def log1p(call: AtenCall, x: Expr) -> Expr:
    """log(1 + x); near 0 corrected by what 1 + x has lost."""
    value = as_float(x)
    one = scalar(1, dtype_of(value))
    total = op("add", value, one)
    lost = op("subtract", total, one)
    is_lost = op("equal", lost, scalar(0, dtype_of(value)))
    near = op("where", is_lost, value, op("multiply", op("log", total), op("divide", value, lost)))
    return op("where", op("less", op("abs", value), one), near, op("log", total))


@aten("erfc", "special_erfc")
def erfc(call: AtenCall, x: Expr) -> Expr:
    value = as_float(x)
    return op("subtract", scalar(1, dtype_of(value)), op("erf", value))


@aten("logit", "special_logit")
def logit(call: AtenCall, x: Expr, eps: float | None) -> Expr:
    value = as_float(x)
    if eps is not None:
        value = op("clip", value, a_min=float(eps), a_max=1.0 - float(eps))
    return op("log", op("divide", value, op("subtract", scalar(1, dtype_of(value)), value)))


@aten("deg2rad")
def deg2rad(call: AtenCall, x: Expr) -> Expr:
    value = as_float(x)
    return op("multiply", value, scalar(math.pi / 180, dtype_of(value)))


@aten("rad2deg")
def rad2deg(call: AtenCall, x: Expr) -> Expr:
    value = as_float(x)
    return op("multiply", value, scalar(180 / math.pi, dtype_of(value)))


def _nowhere(x: Expr) -> Expr:
    return op("not_equal", x, x)


@aten("isnan")
def isnan(call: AtenCall, x: Expr) -> Expr:
    return op("isnan", x) if is_float(x) else _nowhere(x)


@aten("isinf")
def isinf(call: AtenCall, x: Expr) -> Expr:
    return op("isinf", x) if is_float(x) else _nowhere(x)


@aten("isfinite")
def isfinite(call: AtenCall, x: Expr) -> Expr:
    return op("isfinite", x) if is_float(x) else op("equal", x, x)


@aten("isposinf", "isneginf")
def is_one_infinity(call: AtenCall, x: Expr) -> Expr:
    if not is_float(x):
        return _nowhere(x)
    infinity = math.inf if "isposinf" in call.name else -math.inf
    return op("equal", x, scalar(infinity, dtype_of(x)))


@aten("signbit")
def signbit(call: AtenCall, x: Expr) -> Expr:
    if not is_float(x):
        return _nowhere(x) if dtype_of(x) == "bool" else op("less", x, scalar(0, dtype_of(x)))
    bits = "int64" if dtype_of(x) == "float64" else "int32" if dtype_of(x) == "float32" else "int16"
    return op("less", op("reinterpret", x, dtype=bits), scalar(0, bits))


@aten("angle")
def angle(call: AtenCall, x: Expr) -> Expr:
    """Of a real number: pi below 0, else 0; NaN of NaN."""
    value = as_float(x)
    zero, half_turn = (scalar(number, dtype_of(value)) for number in (0, math.pi))
    turned = op("where", op("less", value, zero), half_turn, zero)
    return op("where", op("isnan", value), value, turned)


@aten("logical_not")
def logical_not(call: AtenCall, x: Expr) -> Expr:
    return op("logical_not", cast(x, "bool"))


@aten("bitwise_not")
def bitwise_not(call: AtenCall, x: Expr) -> Expr:
    return op("logical_not", x) if dtype_of(x) == "bool" else op("bitwise_not", x)


@aten("nan_to_num")
def nan_to_num(call: AtenCall, x: Expr, nan: float | None, posinf: float | None, neginf: float | None) -> Expr:
    if not is_float(x):
        return x
    dtype = dtype_of(x)
    largest = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
    most = largest.get(dtype, 1.7976931348623157e308)
    high, low = scalar(most if posinf is None else posinf, dtype), scalar(-most if neginf is None else neginf, dtype)
    value = op("where", op("isnan", x), scalar(nan or 0.0, dtype), x)
    value = op("where", op("equal", value, scalar(math.inf, dtype)), high, value)
    return op("where", op("equal", value, scalar(-math.inf, dtype)), low, value)


@aten("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "lift", "resolve_conj", "resolve_neg")
def same(call: AtenCall, x: Expr, *_: object) -> Expr:
    return x


@aten("_to_copy")
def to_copy(call: AtenCall, x: Expr, dtype: str | None, *_: object) -> Expr:
    return x if dtype is None else _converted(x, dtype)


@aten("to", "to.dtype", "type_as", "to.dtype_layout", "to.device", "to.other", "to.prim_dtype")
def to(call: AtenCall, x: Expr, *arguments: object) -> Expr:
    dtype = next((a for a in arguments if isinstance(a, str)), None)
    other = next((a for a in arguments if isinstance(a, Expr)), None)
    wanted = dtype_of(other) if other is not None else dtype
    return x if wanted is None else _converted(x, wanted)


@aten("convert_element_type", namespace="prims")
def convert_element_type(call: AtenCall, x: Expr, dtype: str) -> Expr:
    return _converted(x, dtype)


@aten("float", "double", "half", "int", "long", "bool")
def to_named(call: AtenCall, x: Expr, *_: object) -> Expr:
    names = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}
    return _converted(x, names.get(call.name.split(".")[1], "bool"))


def _converted(x: Expr, dtype: str) -> Expr:
    """To another dtype as C does it: floats to narrow integers go through int64, whose low bits stay."""
    if is_float(x) and dtype in ("uint8", "int8", "int16", "uint16"):
        return cast(cast(x, "int64"), dtype)
    return cast(x, dtype)
