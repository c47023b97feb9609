"""Constructors of scalar expressions: convert Python values, match dtypes, fold constants.

In: expressions, Python numbers, strings, IterVars. Out: a node whose operands agree in dtype, or a folded constant.
Invariant: folding never changes a value (integers wrap as the dtype does; floats fold in that float type; `x + 0.0`
is left alone, because of -0.0). Deeper rules: `tir/simplify.py`. The operators of `Expr` are installed from here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.errors import TypeMismatch
from armillary.tir import expr as E
from armillary.tir.expr import BOOL, INT32, Call, Cast, Expr, ExprLike, FloatImm, IntImm, IterVar, StringImm, Var
from armillary.tir.extents import to_expr

_NUMBERS = frozenset({IntImm, FloatImm})
EVERY_CACHE = 3  # the locality of a prefetch that says none

_FLOAT32_MAX = float(np.finfo(np.float32).max)
Value: TypeAlias = ExprLike  # what user code may pass for an expression
Operation: TypeAlias = Callable[[Value, Value], Expr]
Number: TypeAlias = int | float | np.generic


def const(value: Value, dtype: str | None = None) -> Expr:
    """An immediate; the dtype defaults to numpy's of the value, else bool, int32 or float32 (64 bits beyond).

    Raises TypeMismatch for what is no number, NaN or infinity as an integer, and integers beyond 64 bits.
    """
    if not isinstance(value, bool | int | float | np.generic):
        value = _number(value)
    if dtype is None:
        if isinstance(value, np.generic):
            dtype = value.dtype.name
        elif isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        else:
            dtype = "float32" if abs(value) <= _FLOAT32_MAX or not math.isfinite(value) else "float64"
    kind = DType(dtype)
    if kind.lanes > 1:
        return E.Broadcast(const(value, kind.element), kind.lanes)
    if kind.is_int or kind.is_bool:
        return IntImm(kind, wrap(_whole(value, kind), kind))
    if kind.is_float:
        return FloatImm(kind, round_float(_real(value, kind), kind))
    raise TypeMismatch(f"no constant of dtype {dtype}")


def checked_const(value: Value, dtype: str | None = None) -> Expr:
    """`const` as scripts call it: a number that the dtype does not have is a TypeMismatch, not another number."""
    result = const(value, dtype)
    number = value if isinstance(value, bool | int | float | np.generic) else _number(value)
    message = f"tir.const: {number} does not fit {result.dtype}"
    if isinstance(result, IntImm) and isinstance(number, int | np.integer) and not result.dtype.is_bool:
        if int(number) not in (result.value, result.value + (1 << 64)):
            raise TypeMismatch(message, hint="take a wider dtype, or a cast")
    elif isinstance(result, FloatImm) and math.isfinite(float(number)) and not _is_in_range(float(number), result):
        raise TypeMismatch(message, hint="take a wider dtype")
    return result


def _is_in_range(number: float, constant: FloatImm) -> bool:
    """Not beyond the largest number of its dtype, to which what lies just beyond it would be rounded."""
    if constant.dtype.code != "float":
        return math.isfinite(constant.value)
    return abs(number) <= float(np.finfo(constant.dtype.element.numpy).max)


def _number(value: Value) -> int | float:
    if isinstance(value, IntImm | FloatImm):
        return value.value
    raise TypeMismatch(f"tir.const: got {type(value).__name__} {value!r:.60}, wanted a number")


def _whole(value: Number, dtype: DType) -> int:
    """The integer that a constant of an integer dtype is made of (floats are cut toward zero, as in C)."""
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise TypeMismatch(f"tir.const: {value!s:.60} does not fit {dtype}, nor any 64 bits")
        return value
    if not math.isfinite(value):
        raise TypeMismatch(f"tir.const: {value} has no value of dtype {dtype}", hint="give a float dtype")
    return int(value)


def _real(value: Number, dtype: DType) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        got = f"{type(value).__name__} {value!r:.60}"
        raise TypeMismatch(f"tir.const: got {got}, wanted a number for {dtype}") from None


def wrap(value: int, dtype: DType) -> int:
    """`value` as the integer dtype would hold it (two's complement)."""
    if dtype.is_bool:
        return int(value != 0)
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.code == "int" and value >> (dtype.bits - 1) else value


def round_float(value: float, dtype: DType) -> float:
    """`value` rounded to the float dtype."""
    if dtype.bits == 64 or dtype.is_custom:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.array(value).astype(dtype.numpy))


def convert(value: Value) -> Expr:
    """Any user value as an expression."""
    if isinstance(value, Expr):
        return value.var if type(value) is IterVar else value
    if isinstance(value, Extent):
        return to_expr(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, bool | int | float | np.generic):
        dtype = None
        if isinstance(value, np.generic):
            dtype = value.dtype.name
        return const(value, dtype)
    as_expr: Callable[[], Expr] | None = getattr(value, "as_expr", None)  # rank-0 tensors, slices of tensors
    if as_expr is not None:
        return as_expr()
    raise TypeMismatch(f"cannot use {type(value).__name__} {value!r} in an expression", hint="expected Expr or number")


def cast(value: Value, dtype: str) -> Expr:
    """`value` converted to `dtype` (lanes follow the value when `dtype` is scalar)."""
    e, to = convert(value), DType(dtype)
    if to.lanes == 1 and e.dtype.lanes > 1:
        to = to.with_lanes(e.dtype.lanes)
    if e.dtype == to:
        return e
    if e.dtype.code == "string":
        raise TypeMismatch(f"Can't cast a handle to other types: the text {e!r} is no {to}")
    if to.lanes > 1 and e.dtype.lanes == 1:
        return E.Broadcast(cast(e, to.element), to.lanes)
    if isinstance(e, E.Broadcast):
        return E.Broadcast(cast(e.value, to.with_lanes(to.lanes // e.lanes)), e.lanes)
    if isinstance(e, IntImm | FloatImm) and (to.is_float or to.is_int or to.is_bool):
        if isinstance(e, IntImm):
            return const(e.value, to)
        if to.is_float:
            return const(e.value, to)
        if to.is_int and np.isfinite(e.value) and to.min_value <= int(e.value) <= to.max_value:
            return const(int(e.value), to)
    return Cast(to, e)


def as_shape(shape: ExprLike | Sequence[ExprLike], where: str) -> tuple[Expr, ...]:
    """A shape as expressions: ints, numpy integers, integer expressions; one number means rank 1."""
    entries = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return tuple(as_extent(e, where) for e in entries)


def as_extent(value: ExprLike, where: str) -> Expr:
    """One dimension as an expression; TypeMismatch, naming `where`, if it is no integer or negative.

    A whole float is one: scripts write `N / bn`.
    """
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, bool) or not isinstance(value, int | np.integer | Expr | Extent):
        raise TypeMismatch(f"{where}: a dimension is {value!r}, wanted an int or an integer expression")
    result = const(int(value)) if isinstance(value, int | np.integer) else convert(value)
    if not result.dtype.is_int:
        raise TypeMismatch(f"{where}: a dimension has dtype {result.dtype}, wanted an integer")
    if isinstance(result, IntImm) and result.value < 0:
        raise TypeMismatch(f"{where}: a dimension is negative ({result.value})")
    return result


def match_types(a: Value, b: Value) -> tuple[Expr, Expr]:
    """Both operands with one dtype: immediates follow the other side; else the wider kind wins (int < uint < float)."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype and IterVar not in (type(a), type(b)):
        return a, b
    x, y = convert(a), convert(b)
    if x.dtype is y.dtype:
        return x, y
    if x.dtype.lanes != y.dtype.lanes:
        lanes = max(x.dtype.lanes, y.dtype.lanes)
        if min(x.dtype.lanes, y.dtype.lanes) != 1:
            raise TypeMismatch(f"operands have {x.dtype} and {y.dtype}: different numbers of lanes")
        x, y = (v if v.dtype.lanes == lanes else E.Broadcast(v, lanes) for v in (x, y))
        if x.dtype is y.dtype:
            return x, y
    x_number, y_number = isinstance(a, bool | int | float), isinstance(b, bool | int | float)
    if x_number != y_number and not (x.dtype.is_float != y.dtype.is_float and (x if x_number else y).dtype.is_float):
        number, other = (x, y) if x_number else (y, x)
        if _holds(other.dtype, number):
            return (cast(x, y.dtype), y) if x_number else (x, cast(y, x.dtype))
        if other.dtype.is_float:
            wide = DType("float32" if other.dtype.bits < 32 else "float64").with_lanes(other.dtype.lanes)
            return cast(x, wide), cast(y, wide)
    to = _wider(x.dtype, y.dtype)
    return cast(x, to), cast(y, to)


def _holds(dtype: DType, number: Expr) -> bool:
    """Whether a dtype has that number; a negative one stands for the bits of an unsigned one."""
    while isinstance(number, E.Broadcast):
        number = number.value
    if isinstance(number, IntImm) and dtype.is_int:
        lowest = dtype.min_value or -(1 << (dtype.bits - 1))
        return lowest <= number.value <= dtype.max_value
    if isinstance(number, IntImm | FloatImm) and dtype.is_float:
        return not math.isfinite(number.value) or math.isfinite(round_float(float(number.value), dtype.element))
    return True


def _wider(a: DType, b: DType) -> DType:
    def rank(t: DType) -> tuple[bool, int, bool]:
        return (t.is_float, t.bits, t.code == "uint")

    return max(a, b, key=rank)


def _compute(function: Callable[..., Number], x: IntImm | FloatImm, y: IntImm | FloatImm) -> Expr:
    if isinstance(x, IntImm):
        return IntImm(x.dtype, wrap(int(function(x.value, y.value)), x.dtype))
    with np.errstate(all="ignore"):
        kind = x.dtype.numpy.type
        return const(float(function(kind(x.value), kind(y.value))), x.dtype)


def _constants(x: Expr, y: Expr) -> bool:
    return type(x) in _NUMBERS and type(y) in _NUMBERS and not x.dtype.is_custom


def add(a: Value, b: Value) -> Expr:
    """a + b."""
    x, y = match_types(a, b)
    if _constants(x, y):
        return _compute(operator.add, x, y)  # type: ignore[arg-type]
    if isinstance(y, IntImm) and y.value == 0:
        return x
    if isinstance(x, IntImm) and x.value == 0:
        return y
    return E.Add(x, y)


def sub(a: Value, b: Value) -> Expr:
    """a - b."""
    x, y = match_types(a, b)
    if _constants(x, y):
        return _compute(operator.sub, x, y)  # type: ignore[arg-type]
    if isinstance(y, IntImm) and y.value == 0:
        return x
    return E.Sub(x, y)


def mul(a: Value, b: Value) -> Expr:
    """a * b."""
    x, y = match_types(a, b)
    if _constants(x, y):
        return _compute(operator.mul, x, y)  # type: ignore[arg-type]
    for one, other in ((x, y), (y, x)):
        if isinstance(one, IntImm) and one.value in (0, 1):
            return other if one.value else one
        if isinstance(one, FloatImm) and one.value == 1.0:
            return other
    return E.Mul(x, y)


def div(a: Value, b: Value) -> Expr:
    """`a / b`: true division for floats; integers divide as C does (TruncDiv)."""
    x, y = match_types(a, b)
    if not x.dtype.is_float:
        return truncdiv(x, y)
    if _constants(x, y):
        return _compute(np.divide, x, y)  # type: ignore[arg-type]
    return x if isinstance(y, FloatImm) and y.value == 1.0 else E.Div(x, y)


def _integer_division(
    cls: type, rounding: Callable[[int, int], int], one: int | None
) -> Callable[[Value, Value], Expr]:
    def build(a: Value, b: Value) -> Expr:
        x, y = match_types(a, b)
        if isinstance(y, IntImm):
            if y.value == 0:
                raise TypeMismatch(f"division of an expression by zero ({cls.__name__})")
            if isinstance(x, IntImm):
                return const(rounding(x.value, y.value), x.dtype)
            if y.value == 1:
                return x if one is None else const(0, x.dtype)
        if isinstance(x, IntImm) and x.value == 0:
            return x
        result: Expr = cls(x, y)
        return result

    return build


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


truncdiv: Operation = _integer_division(E.TruncDiv, _trunc_div, None)
truncmod: Operation = _integer_division(E.TruncMod, lambda a, b: a - b * _trunc_div(a, b), 0)
floordiv: Operation = _integer_division(E.FloorDiv, operator.floordiv, None)
floormod: Operation = _integer_division(E.FloorMod, operator.mod, 0)
indexdiv, indexmod = floordiv, floormod


def ceildiv(a: Value, b: Value) -> Expr:
    """The quotient rounded toward plus infinity."""
    return floordiv(add(a, sub(b, 1)), b)


def minimum(a: Value, b: Value, *others: Value) -> Expr:
    """The smallest value."""
    if others:
        return minimum(minimum(a, b), *others)
    x, y = match_types(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return x if x.value <= y.value else y
    return x if x is y else E.Min(x, y)


def maximum(a: Value, b: Value, *others: Value) -> Expr:
    """The largest value."""
    if others:
        return maximum(maximum(a, b), *others)
    x, y = match_types(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return x if x.value >= y.value else y
    return x if x is y else E.Max(x, y)


def _comparison(cls: type, test: Callable[[float, float], bool]) -> Callable[[Value, Value], Expr]:
    def build(a: Value, b: Value) -> Expr:
        x, y = match_types(a, b)
        if _constants(x, y):
            return IntImm(BOOL, int(test(x.value, y.value)))  # type: ignore[attr-defined]
        result: Expr = cls(x, y)
        return result

    return build


equal: Operation = _comparison(E.EQ, operator.eq)
not_equal: Operation = _comparison(E.NE, operator.ne)
less: Operation = _comparison(E.LT, operator.lt)
less_equal: Operation = _comparison(E.LE, operator.le)
greater: Operation = _comparison(E.GT, operator.gt)
greater_equal: Operation = _comparison(E.GE, operator.ge)


def logical_and(a: Value, b: Value) -> Expr:
    """Whether both conditions hold; folded where one of them is known."""
    x, y = cast(a, "bool"), cast(b, "bool")
    for one, other in ((x, y), (y, x)):
        if isinstance(one, IntImm):
            return other if one.value else one
    return E.And(x, y)


def logical_or(a: Value, b: Value) -> Expr:
    """Whether either condition holds; folded where one of them is known."""
    x, y = cast(a, "bool"), cast(b, "bool")
    for one, other in ((x, y), (y, x)):
        if isinstance(one, IntImm):
            return one if one.value else other
    return E.Or(x, y)


def logical_not(a: Value) -> Expr:
    """The opposite condition."""
    x = cast(a, "bool")
    return IntImm(BOOL, 1 - x.value) if isinstance(x, IntImm) else E.Not(x)


def all_of(*conditions: Value) -> Expr:
    """The conjunction; true when there are none."""
    result: Expr = IntImm(BOOL, 1)
    for condition in conditions:
        result = logical_and(result, condition)
    return result


def any_of(*conditions: Value) -> Expr:
    """The disjunction; false when there are none."""
    result: Expr = IntImm(BOOL, 0)
    for condition in conditions:
        result = logical_or(result, condition)
    return result


def select(condition: Value, true_value: Value, false_value: Value) -> Expr:
    """Lane-wise choice; both sides are evaluated."""
    test, (x, y) = cast(condition, "bool"), match_types(true_value, false_value)
    if isinstance(test, IntImm):
        return x if test.value else y
    return E.Select(test, x, y)


def if_then_else(condition: Value, true_value: Value, false_value: Value) -> Expr:
    """Like select, but only the chosen side is evaluated: use it to guard loads."""
    test, (x, y) = cast(condition, "bool"), match_types(true_value, false_value)
    if isinstance(test, IntImm):
        return x if test.value else y
    return Call(x.dtype, "if_then_else", (test, x, y))


def likely(cond: Value) -> Expr:
    """A condition that loop partitioning should make true in the main part."""
    test = cast(cond, "bool")
    return test if isinstance(test, IntImm) else Call(BOOL, "likely", (test,))


def neg(a: Value) -> Expr:
    """The negative of an expression."""
    x = convert(a)
    if isinstance(x, FloatImm):
        return FloatImm(x.dtype, -x.value)
    return sub(const(0, x.dtype), x) if not x.dtype.is_float else E.Mul(x, const(-1.0, x.dtype))


def call(name: str, *args: Value, dtype: str | None = None) -> Expr:
    """An intrinsic call; the dtype defaults to that of the first argument."""
    values = tuple(convert(a) for a in args)
    return Call(DType(dtype) if dtype is not None else values[0].dtype, name, values)


def _bitwise(name: str, function: Callable[[int, int], int], logical: Callable[..., Expr]) -> Callable[..., Expr]:
    def build(a: Value, b: Value) -> Expr:
        x, y = match_types(a, b)
        if x.dtype.is_bool and name != "bitwise_xor":
            return logical(x, y)
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            return const(function(x.value, y.value), x.dtype)
        return Call(x.dtype, name, (x, y))

    return build


bitwise_and: Operation = _bitwise("bitwise_and", operator.and_, logical_and)
bitwise_or: Operation = _bitwise("bitwise_or", operator.or_, logical_or)
bitwise_xor: Operation = _bitwise("bitwise_xor", operator.xor, not_equal)
shift_left: Operation = _bitwise("shift_left", operator.lshift, logical_and)
shift_right: Operation = _bitwise("shift_right", operator.rshift, logical_and)


def bitwise_not(a: Value) -> Expr:
    """Every bit (or the condition) inverted."""
    x = convert(a)
    return logical_not(x) if x.dtype.is_bool else bitwise_xor(x, const(-1, x.dtype))


def var(name: str = "n", dtype: str = "int32") -> Var:
    """A new scalar variable."""
    return Var(name, DType(dtype))


def int32(value: int) -> IntImm:
    """An int32 constant."""
    return IntImm(INT32, value)


def as_int(value: Value) -> int | None:
    """The value of an integer constant, or None."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, IntImm):
        return value.value
    return value.value.value if isinstance(value, E.Broadcast) and isinstance(value.value, IntImm) else None


def _reflected(function: Callable[[Value, Value], Expr]) -> Callable[[Value, Value], Expr]:
    return lambda a, b: function(b, a)


_BINARY = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "truediv": div,
    "floordiv": floordiv,
    "mod": floormod,
    "and": bitwise_and,
    "or": bitwise_or,
    "xor": bitwise_xor,
    "lshift": shift_left,
    "rshift": shift_right,
}
_COMPARE = {"lt": less, "le": less_equal, "gt": greater, "ge": greater_equal, "eq": equal, "ne": not_equal}


def _comparable(function: Callable[[Value, Value], Expr]) -> Callable[[Value, Value], object]:
    def build(a: Value, b: Value) -> object:  # NotImplemented for None and foreign objects, as Python wants
        known = isinstance(b, Expr | bool | int | float | np.generic) or hasattr(b, "as_expr")
        return function(a, b) if known else NotImplemented

    return build


E.install_operators(
    {f"__{n}__": f for n, f in _BINARY.items()}
    | {f"__r{n}__": _reflected(f) for n, f in _BINARY.items()}
    | {f"__{n}__": _comparable(f) for n, f in _COMPARE.items()}
    | {"__neg__": neg, "__invert__": bitwise_not},
    cast,
)
