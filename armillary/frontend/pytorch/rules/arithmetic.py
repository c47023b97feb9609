"""ATen's functions of two tensors: arithmetic, division, powers, comparisons, logic, selection.

In: tensors and numbers. Out: calls of the broadcasting operators. Invariant: operands are promoted as ATen promotes
them; sums and products of booleans are their disjunction and conjunction.
"""

from __future__ import annotations

import math

from armillary.frontend.pytorch.table import AtenCall, AtenRule, aten
from armillary.frontend.values import (
    DEFAULT_FLOAT,
    Value,
    cast,
    category,
    dtype_of,
    is_tensor,
    op,
    promoted,
    result_dtype,
    scalar,
)
from armillary.relay.expr import Expr

_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"} | {
    "gt": "greater",
    "ge": "greater_equal",
}
_LONG = {"not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}
_BITS = ("and", "or", "xor")


def times(x: Value, factor: Value) -> Value:
    """A tensor or number times a number, which may be 1."""
    if not is_tensor(factor) and factor == 1:
        return x
    if not is_tensor(x) and not is_tensor(factor):
        return x * factor
    return product_of(*promoted(x, factor) if is_tensor(factor) else (x, scalar(factor, dtype_of(x))))


def product_of(a: Expr, b: Expr) -> Expr:
    """The product of tensors of one dtype; of booleans their conjunction."""
    return op("logical_and" if dtype_of(a) == "bool" else "multiply", a, b)


@aten("add", "add_")
def add(call: AtenCall, x: Value, y: Value, alpha: Value = 1) -> Expr:
    a, b = promoted(x, times(y, alpha))
    return op("logical_or" if dtype_of(a) == "bool" else "add", a, b)


@aten("sub", "subtract")
def subtract(call: AtenCall, x: Value, y: Value, alpha: Value = 1) -> Expr:
    a, b = promoted(x, times(y, alpha))
    return op("subtract", a, b)


@aten("rsub")
def reverse_subtract(call: AtenCall, x: Value, y: Value, alpha: Value = 1) -> Expr:
    return subtract(call, y, x, alpha)  # type: ignore[no-any-return]  # a rule of this file


@aten("mul", "multiply")
def multiply(call: AtenCall, x: Value, y: Value) -> Expr:
    return product_of(*promoted(x, y))


@aten("div", "divide", "true_divide")
def divide(call: AtenCall, x: Value, y: Value, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is None:
        return op("divide", *promoted(x, y, at_least_float=True))
    a, b = promoted(x, y)
    if category(dtype_of(a)) == 2:
        return op("floor" if rounding_mode == "floor" else "trunc", op("divide", a, b))
    return op("floor_divide" if rounding_mode == "floor" else "trunc_divide", a, b)


@aten("floor_divide")
def floor_divide(call: AtenCall, x: Value, y: Value) -> Expr:
    return divide(call, x, y, "floor")  # type: ignore[no-any-return]  # a rule of this file


@aten("remainder")
def remainder(call: AtenCall, x: Value, y: Value) -> Expr:
    return op("floor_mod", *promoted(x, y))


@aten("fmod")
def fmod(call: AtenCall, x: Value, y: Value) -> Expr:
    a, b = promoted(x, y)
    return op("mod" if category(dtype_of(a)) == 2 else "trunc_mod", a, b)


@aten("pow", "float_power")
def power(call: AtenCall, x: Value, y: Value) -> Expr:
    """Small whole powers are products, the power of one half is a root."""
    if "float_power" in call.name:
        return op("power", cast(x, "float64"), cast(y, "float64"))
    if is_tensor(x) and not is_tensor(y):
        base = cast(x, result_dtype(x, y))
        if y in (1, 2, 3) and dtype_of(base) != "bool":
            return op("multiply", base if y == 2 else op("multiply", base, base), base) if y > 1 else base
        if y == 0.5:
            return op("sqrt", base)
        if y == -0.5:
            return op("rsqrt", base)
        if y == -1 and category(dtype_of(base)) == 2:
            return op("divide", scalar(1, dtype_of(base)), base)
    return op("power", *promoted(x, y))


@aten("ldexp")
def ldexp(call: AtenCall, x: Value, exponent: Value) -> Expr:
    return op("multiply", *promoted(x, op("power", scalar(2.0, DEFAULT_FLOAT), cast(exponent, DEFAULT_FLOAT))))


@aten("atan2", "arctan2")
def atan2(call: AtenCall, y: Value, x: Value) -> Expr:
    return op("atan2", *promoted(y, x, at_least_float=True))


def _extreme(name: str, truth: str) -> AtenRule:
    @aten(name)
    def rule(call: AtenCall, x: Value, y: Value) -> Expr:
        a, b = promoted(x, y)
        return op(truth if dtype_of(a) == "bool" else name, a, b)

    @aten(f"{name[:3]}.other")
    def other(call: AtenCall, x: Value, y: Value) -> Expr:
        return rule(call, x, y)  # type: ignore[no-any-return]  # a rule of this file

    return rule


maximum, minimum = _extreme("maximum", "logical_or"), _extreme("minimum", "logical_and")


@aten("fmax", "fmin")
def extreme_without_nan(call: AtenCall, x: Value, y: Value) -> Expr:
    """The larger or smaller; a number wins over NaN."""
    is_max = "fmax" in call.name
    a, b = promoted(x, y)
    if dtype_of(a) == "bool":
        return op("logical_or" if is_max else "logical_and", a, b)
    value = op("maximum" if is_max else "minimum", a, b)
    if category(dtype_of(a)) < 2:
        return value
    return op("where", op("isnan", a), b, op("where", op("isnan", b), a, value))


def _register_comparison(name: str, relay: str) -> None:
    @aten(name, *(long for long, short in _LONG.items() if short == name))
    def rule(call: AtenCall, x: Value, y: Value) -> Expr:
        if is_tensor(x) and isinstance(y, int | float) and not isinstance(y, bool) and not _fits(dtype_of(x), y):
            always = {"eq": False, "ne": True, "lt": y > 0, "le": y > 0, "gt": y < 0, "ge": y < 0}[name]
            return op("full_like", op("equal", x, x), scalar(always, "bool"))
        a, b = promoted(x, y)
        is_ordered = dtype_of(a) == "bool" and relay not in ("equal", "not_equal")
        return op(relay, cast(a, "uint8"), cast(b, "uint8")) if is_ordered else op(relay, a, b)


def _fits(dtype: str, number: float) -> bool:
    """Whether an integer dtype holds a whole number; a comparison with any other is decided."""
    if category(dtype) != 1 or not isinstance(number, int):
        return True
    bits, is_signed = int(dtype.lstrip("uint")), not dtype.startswith("u")
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return low <= number <= high


for _name, _relay in _COMPARISONS.items():
    _register_comparison(_name, _relay)


def _register_logic(name: str) -> None:
    @aten(f"logical_{name}")
    def logical(call: AtenCall, x: Value, y: Value) -> Expr:
        return op(f"logical_{name}", cast(x, "bool"), cast(y, "bool"))

    @aten(f"bitwise_{name}", f"__{name}__")
    def bitwise(call: AtenCall, x: Value, y: Value) -> Expr:
        a, b = promoted(x, y)
        return op(f"logical_{name}" if dtype_of(a) == "bool" else f"bitwise_{name}", a, b)


for _name in _BITS:
    _register_logic(_name)


@aten("bitwise_left_shift", "__lshift__")
def left_shift(call: AtenCall, x: Value, y: Value) -> Expr:
    return op("left_shift", *promoted(x, y))


@aten("bitwise_right_shift", "__rshift__")
def right_shift(call: AtenCall, x: Value, y: Value) -> Expr:
    return op("right_shift", *promoted(x, y))


@aten("where")
def where(call: AtenCall, condition: Expr, x: Value, y: Value) -> Expr:
    return op("where", cast(condition, "bool"), *promoted(x, y))


@aten("clamp", "clip")
def clamp(call: AtenCall, x: Expr, low: Value = None, high: Value = None) -> Expr:
    limits = [v for v in (low, high) if v is not None]
    dtype = result_dtype(x, *limits)
    data = cast(x, dtype)
    are_numbers = isinstance(low, int | float) and isinstance(high, int | float)
    if are_numbers and category(dtype) == 2 and -math.inf < low <= high < math.inf:
        return op("clip", data, a_min=float(low), a_max=float(high))
    data = data if low is None else maximum(call, data, cast(low, dtype))
    return data if high is None else minimum(call, data, cast(high, dtype))


@aten("clamp_min", "clamp_max")
def clamp_one(call: AtenCall, x: Expr, limit: Value) -> Expr:
    is_min = "clamp_min" in call.name
    return clamp(call, x, limit if is_min else None, None if is_min else limit)  # type: ignore[no-any-return]


@aten("addcmul", "addcdiv")
def add_product(call: AtenCall, x: Expr, a: Expr, b: Expr, value: Value = 1) -> Expr:
    inner = (multiply if "addcmul" in call.name else divide)(call, a, b)
    return add(call, x, inner, value)  # type: ignore[no-any-return]  # a rule of this file


@aten("lerp")
def lerp(call: AtenCall, start: Expr, end: Expr, weight: Value) -> Expr:
    step = op("subtract", end, start)
    return op("add", start, op("multiply", cast(weight, dtype_of(start)), step))


@aten("copysign")
def copysign(call: AtenCall, x: Value, y: Value) -> Expr:
    a, b = promoted(x, y, at_least_float=True)
    size = op("abs", a)
    bits = {"float64": "int64", "float32": "int32"}.get(dtype_of(b), "int16")
    is_below = op("less", op("reinterpret", b, dtype=bits), scalar(0, bits))
    return op("where", is_below, op("negative", size), size)


@aten("hypot")
def hypot(call: AtenCall, x: Value, y: Value) -> Expr:
    a, b = promoted(x, y)
    return op("sqrt", op("add", op("multiply", a, a), op("multiply", b, b)))


@aten("xlogy", "special_xlogy")
def xlogy(call: AtenCall, x: Value, y: Value) -> Expr:
    """x log(y); 0 where x is 0, unless y is NaN."""
    a, b = promoted(x, y, at_least_float=True)
    zero = scalar(0, dtype_of(a))
    is_plain = op("logical_or", op("not_equal", a, zero), op("isnan", b))
    return op("where", is_plain, op("multiply", a, op("log", b)), zero)


@aten("logaddexp")
def logaddexp(call: AtenCall, x: Expr, y: Expr) -> Expr:
    a, b = promoted(x, y)
    high, low = op("maximum", a, b), op("minimum", a, b)
    gap = op("exp", op("subtract", low, high))
    total = op("add", high, op("log", op("add", gap, scalar(1, dtype_of(a)))))
    return op("where", op("equal", a, b), op("add", a, scalar(math.log(2), dtype_of(a))), total)
