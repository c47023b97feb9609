"""Elementwise operators of two inputs that broadcast, one row each; and where.

In: two tensors of one dtype (numpy's broadcasting; an unknown dimension stays unknown). Out: the broadcast shape, the
inputs' dtype, or bool for comparisons. Invariant: integer division by zero gives 0 and shifts by too much give 0 or the
sign, as numpy does; no input makes the process trap. To add an operator, add a row. ONNX rules: broadcast.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from armillary.base.dtype import DType
from armillary.base.float_range import may_multiply
from armillary.base.record import record
from armillary.ops._convert import convert
from armillary.ops._deferred import T, scalar, te
from armillary.ops._types import (
    Index,
    broadcast_index,
    broadcast_shapes,
    check_kind,
    check_same_dtype,
    elements,
    f32,
    i32,
    ints,
    of_type,
    quiet,
)
from armillary.relay.expr import Call, Constant, Expr, splat
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op, state
from armillary.relay.op.facts import Fact, Precision
from armillary.relay.types import TensorType, tensor_fields

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

BOOL = DType("bool")
Binary: TypeAlias = "Callable[[Scalar, Scalar], Scalar]"


@record
class Row:
    """One operator. `result` of None: the dtype of the inputs."""

    name: str
    accepts: str
    scalar: Binary
    numpy: Callable[[Array, Array], Array]
    result: DType | None = None
    domain: tuple[float, float] = (-2.0, 2.0)


def _guarded(divide: Binary, by_minus_one: Binary, floats: Binary) -> Binary:
    """Integer division that cannot trap: x/0 is 0, and the least integer by -1 wraps."""

    def build(a: Scalar, b: Scalar) -> Scalar:
        if a.dtype.is_float:
            quotient: Scalar = floats(a, b)
            return quotient
        zero, one = T.const(0, b.dtype), T.const(1, b.dtype)
        special = T.equal(b, zero)
        if b.dtype.code == "int":
            minus = T.equal(b, T.const(-1, b.dtype))
            safe = T.select(T.logical_or(special, minus), one, b)
            return T.select(minus, by_minus_one(a, b), T.select(special, zero, divide(a, safe)))
        return T.select(special, zero, divide(a, T.select(special, one, b)))

    return build


def _zero(a: Scalar, b: Scalar) -> Scalar:
    return T.const(0, a.dtype)


def _negate(a: Scalar, b: Scalar) -> Scalar:
    return T.sub(T.const(0, a.dtype), a)


def _floor_of_quotient(a: Scalar, b: Scalar) -> Scalar:
    return T.call("floor", T.div(a, b))


def _trunc_of_quotient(a: Scalar, b: Scalar) -> Scalar:
    return T.call("trunc", T.div(a, b))


def _fmod(a: Scalar, b: Scalar) -> Scalar:
    return T.call("fmod", a, b)


def _float_floormod(a: Scalar, b: Scalar) -> Scalar:
    rest, zero = _fmod(a, b), T.const(0.0, a.dtype)
    differs = T.not_equal(T.less(rest, zero), T.less(b, zero))
    return T.select(T.logical_and(T.not_equal(rest, zero), differs), T.add(rest, b), rest)


def _power(a: Scalar, b: Scalar) -> Scalar:
    if a.dtype.is_float:
        return T.call("pow", a, b)
    rounded = T.call("pow", T.cast(a, "float64"), T.cast(b, "float64"))
    if a.dtype.bits < 64:  # float64 holds what the type holds
        return convert(rounded, a.dtype)
    zero, last = T.const(0, b.dtype), T.const(2.0 ** (a.dtype.bits - (a.dtype.code == "int")), "float64")
    fits = T.logical_and(T.greater_equal(b, zero), T.less_equal(T.call("abs", rounded), last))
    return T.select(fits, _by_squaring(a, b), convert(rounded, a.dtype))


def _by_squaring(a: Scalar, b: Scalar) -> Scalar:
    """a to the power of b >= 0, of 64-bit integers: exact if it fits, so that b is under 64 or a one of -1, 0, 1."""
    one, high = T.const(1, b.dtype), T.const(62, b.dtype)
    exponent = T.select(T.less(b, T.const(64, b.dtype)), b, T.add(high, T.bitwise_and(b, one)))
    product: Scalar = T.const(1, a.dtype)
    for bit in range(6):
        is_set = T.not_equal(T.bitwise_and(exponent, T.const(1 << bit, b.dtype)), T.const(0, b.dtype))
        product = T.select(is_set, T.mul(product, a), product)
        a = T.mul(a, a)
    return product


def _shift(left: bool) -> Binary:
    def build(a: Scalar, b: Scalar) -> Scalar:
        zero, last = T.const(0, b.dtype), T.const(a.dtype.bits - 1, b.dtype)
        inside = T.less_equal(b, last)
        if b.dtype.code == "int":
            inside = T.logical_and(inside, T.greater_equal(b, zero))
        safe = T.select(inside, b, zero if left else last)
        shifted = T.shift_left(a, safe) if left else T.shift_right(a, safe)
        beyond = T.const(0, a.dtype) if left or a.dtype.code == "uint" else shifted
        return T.select(inside, shifted, beyond)

    return build


def _numpy_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    quotient = np.where(b == 0, 0, a // np.where(b == 0, 1, b))
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(quotient + inexact).astype(a.dtype)


def _numpy_trunc_divide(a: Array, b: Array) -> Array:
    quotient = _numpy_divide(a, b)
    return quotient if a.dtype.kind in "iu" else np.asarray(np.trunc(quotient)).astype(a.dtype)


def _numpy_floor_divide(a: Array, b: Array) -> Array:
    return np.asarray(a // b if a.dtype.kind in "iu" else np.floor(a / b)).astype(a.dtype)


def _numpy_power(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.power(a, b))
    rounded = np.asarray(np.power(a.astype(np.float64), b.astype(np.float64)))
    if a.dtype.itemsize < 8:
        return rounded.astype(a.dtype)
    fits = (b >= 0) & (np.abs(rounded) <= 2.0 ** (63 if a.dtype.kind == "i" else 64))
    return np.where(fits, np.power(a, np.maximum(b, 0)), rounded.astype(a.dtype))


_TABLE = (
    Row("add", "numeric", scalar("add"), np.add),
    Row("subtract", "numeric", scalar("sub"), np.subtract),
    Row("multiply", "numeric", scalar("mul"), np.multiply),
    Row("divide", "numeric", _guarded(scalar("truncdiv"), _negate, scalar("div")), _numpy_divide),
    Row("floor_divide", "numeric", _guarded(scalar("floordiv"), _negate, _floor_of_quotient), _numpy_floor_divide),
    Row("trunc_divide", "numeric", _guarded(scalar("truncdiv"), _negate, _trunc_of_quotient), _numpy_trunc_divide),
    Row("mod", "numeric", _guarded(scalar("truncmod"), _zero, _fmod), np.fmod),
    Row("trunc_mod", "numeric", _guarded(scalar("truncmod"), _zero, _fmod), np.fmod),
    Row("floor_mod", "numeric", _guarded(scalar("floormod"), _zero, _float_floormod), np.mod),
    Row("power", "numeric", _power, _numpy_power, domain=(0.1, 2.0)),
    Row("maximum", "numeric", scalar("maximum"), np.maximum),
    Row("minimum", "numeric", scalar("minimum"), np.minimum),
    Row("equal", "any", scalar("equal"), np.equal, BOOL),
    Row("not_equal", "any", scalar("not_equal"), np.not_equal, BOOL),
    Row("less", "numeric", scalar("less"), np.less, BOOL),
    Row("less_equal", "numeric", scalar("less_equal"), np.less_equal, BOOL),
    Row("greater", "numeric", scalar("greater"), np.greater, BOOL),
    Row("greater_equal", "numeric", scalar("greater_equal"), np.greater_equal, BOOL),
    Row("logical_and", "bool", scalar("logical_and"), np.logical_and),
    Row("logical_or", "bool", scalar("logical_or"), np.logical_or),
    Row("logical_xor", "bool", scalar("not_equal"), np.logical_xor),
    Row("bitwise_and", "integer or bool", scalar("bitwise_and"), np.bitwise_and),
    Row("bitwise_or", "integer or bool", scalar("bitwise_or"), np.bitwise_or),
    Row("bitwise_xor", "integer or bool", scalar("bitwise_xor"), np.bitwise_xor),
    Row("left_shift", "integer", _shift(True), np.left_shift),
    Row("right_shift", "integer", _shift(False), np.right_shift),
    Row("atan2", "float", lambda a, b: T.call("atan2", a, b), np.arctan2),
)

_B = ints([1, 0, 2, -1, 3])
_SAMPLES = {
    "float": ((f32(3, 5), f32(3, 5)), (f32(2, 3, 4), f32(3, 1)), (f32(), f32(4)), (f32(2, 1, 3), f32(0, 3))),
    "integer": ((i32(3, 5), ints([0, 1, 31, 40, 2])), (ints([200, 3], "uint8"), ints([1, 9], "uint8"))),
    "bool": ((of_type("bool", 3, 4), of_type("bool", 4)), (of_type("bool", 2, 1), of_type("bool", 2, 3))),
}
_SAMPLES["numeric"] = (
    *_SAMPLES["float"],
    (ints([[7, 5, -7, -(2**31), 9]]), _B),
    (ints([9, 4, 255], "uint8"), ints([2, 0, 7], "uint8")),
)
_SAMPLES["any"] = (*_SAMPLES["numeric"], *_SAMPLES["bool"])
_SAMPLES["integer or bool"] = ((i32(2, 5), _B), *_SAMPLES["bool"], (ints([9, 4], "uint8"), ints([2, 0], "uint8")))
_LARGE_POWERS = (
    ints([3, -3, 3037000499, (1 << 63) - 1, -1, -1, 0, 1, 2, -7], "int64"),
    ints([39, 39, 2, 1, (1 << 53) + 1, 1 << 54, 99, -4, -1, 22], "int64"),
)
_POWER_SAMPLES = (*_SAMPLES["float"], (ints([2, -3, 5]), ints([3, 2, 0])), _LARGE_POWERS)
_WRONG = {
    "float": (i32(2), i32(2)),
    "integer": (f32(2), f32(2)),
    "bool": (f32(2), f32(2)),
    "numeric": (of_type("bool", 2), of_type("bool", 2)),
    "integer or bool": (f32(2), f32(2)),
}
_DTYPES = {"float": "float32", "integer": "int32", "bool": "bool", "numeric": "float32", "any": "float32"}


def _define(row: Row) -> Op:
    """The operator of a row."""
    op = Op(row.name, kind=Kind.BROADCAST, inputs=("lhs", "rhs"), doc=f"{row.name} of two tensors, broadcasting.")

    @op.infer
    def infer(attrs: None, lhs: TensorType, rhs: TensorType) -> TensorType:
        dtype = check_same_dtype(row.name, (lhs, rhs))
        check_kind(row.name, "its input", lhs, row.accepts)
        return TensorType(broadcast_shapes(row.name, lhs.shape, rhs.shape), row.result or dtype)

    @op.reference
    @quiet
    def reference(attrs: None, lhs: Array, rhs: Array) -> Array:
        return np.asarray(row.numpy(np.asarray(lhs), np.asarray(rhs)))

    @op.compute
    def compute(attrs: None, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        if not (lhs.shape and rhs.shape):  # a scalar, beside which sizes may be symbolic
            shape = lhs.shape or rhs.shape
            return elements(shape, lambda *i: row.scalar(*(t(*i[: t.ndim]) for t in (lhs, rhs))), name=row.name)
        a, b = te.extents(lhs), te.extents(rhs)
        sizes = broadcast_shapes(row.name, a, b)
        return elements(
            sizes, lambda *i: row.scalar(lhs(*broadcast_index(a, i)), rhs(*broadcast_index(b, i))), name=row.name
        )

    @op.samples
    def samples() -> Iterator[Sample]:
        for pair in _POWER_SAMPLES if row.name == "power" else _SAMPLES[row.accepts]:
            yield Sample(None, pair, domain=row.domain)

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        dtype = _DTYPES.get(row.accepts, "int32")
        yield BadSample(None, (of_type(dtype, 2, 3), of_type(dtype, 4)), "do not broadcast: got (2, 3) and (4,)")
        yield BadSample(None, (of_type(dtype, 2), of_type("int16", 2)), f"got int16, wanted {dtype}")
        if row.accepts in _WRONG:
            yield BadSample(None, _WRONG[row.accepts], f"wanted {row.accepts}")

    return op


BINARY = {row.name: _define(row) for row in _TABLE}
add, subtract, multiply, divide = (BINARY[n] for n in ("add", "subtract", "multiply", "divide"))
floor_divide, mod, floor_mod, power = (BINARY[n] for n in ("floor_divide", "mod", "floor_mod", "power"))
maximum, minimum, equal, not_equal = (BINARY[n] for n in ("maximum", "minimum", "equal", "not_equal"))
less, less_equal, greater, greater_equal = (BINARY[n] for n in ("less", "less_equal", "greater", "greater_equal"))
logical_and, logical_or, logical_xor = (BINARY[n] for n in ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = (BINARY[n] for n in ("bitwise_and", "bitwise_or", "bitwise_xor"))
left_shift, right_shift = BINARY["left_shift"], BINARY["right_shift"]


# --- where --------------------------------------------------------------------------------------------------------

where = Op("where", kind=Kind.BROADCAST, inputs=("condition", "x", "y"), doc="x where condition is not 0, else y.")


@where.infer
def infer_where(attrs: None, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    return TensorType(broadcast_shapes("where", condition.shape, x.shape, y.shape), check_same_dtype("where", (x, y)))


@where.reference
def where_reference(attrs: None, condition: Array, x: Array, y: Array) -> Array:
    return np.where(np.asarray(condition) != 0, x, y).astype(x.dtype)


@where.compute
def where_compute(attrs: None, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    c, a, b = (te.extents(t) for t in (condition, x, y))
    shape = broadcast_shapes("where", c, a, b)

    def element(*i: Index) -> Scalar:
        test = condition(*broadcast_index(c, i))
        test = test if DType(condition.dtype).is_bool else T.not_equal(test, T.const(0, condition.dtype))
        return T.select(test, x(*broadcast_index(a, i)), y(*broadcast_index(b, i)))

    return elements(shape, element, name="where")


@where.samples
def where_samples() -> Iterator[Sample]:
    yield Sample(None, (of_type("bool", 3, 4), f32(3, 4), f32(3, 4)))
    yield Sample(None, (of_type("bool", 4), f32(3, 1), f32()))
    yield Sample(None, (ints([0, 2]), i32(3, 2), i32(1)))
    yield Sample(None, (np.array([0.0, -0.5, np.nan], "float32"), f32(3), f32(3)))


@where.bad_samples
def where_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (of_type("bool", 2), f32(2), i32(2)), "got int32, wanted float32")
    yield BadSample(None, (of_type("bool", 2), f32(3), f32(3)), "do not broadcast")


# --- simpler forms ----------------------------------------------------------------------------------------------------


def _neutral(value: float, right_only: bool) -> Callable[[Call], Expr | None]:
    def rule(expr: Call) -> Expr | None:
        lhs, rhs = expr.args
        if splat(rhs) == value:
            return lhs
        return rhs if not right_only and splat(lhs) == value else None

    return rule


def _neutral_zero(wanted_sign: bool, right_only: bool) -> Callable[[Call], Expr | None]:
    """Zeros of integers, and the zero of that sign of floats: -0.0 + 0.0 is 0.0, not -0.0."""
    drop = _neutral(0, right_only)

    def rule(expr: Call) -> Expr | None:
        retained = drop(expr)
        zero = next((a for a in expr.args[::-1] if a is not retained), None)
        if retained is None or not isinstance(zero, Constant):
            return None
        floating = np.issubdtype(zero.data.dtype, np.floating)
        return retained if not floating or bool((np.signbit(zero.data) == wanted_sign).all()) else None

    return rule


def _reassociate(expr: Call) -> Expr | None:
    """(x + c1) + c2  ->  x + (c1 + c2);  (x * c1) * c2  ->  x * (c1 * c2)"""
    for inner, outer in (expr.args, expr.args[::-1]):
        if not isinstance(outer, Constant) or not isinstance(inner, Call) or inner.op is not expr.op:
            continue
        for value, constant in (inner.args, inner.args[::-1]):
            if isinstance(constant, Constant) and not isinstance(value, Constant):
                return _joined(expr.op, value, constant.data, outer.data)
    return None


def _joined(op: Op, value: Expr, first: Array, second: Array) -> Expr | None:
    if op is multiply and first.dtype.kind in "fV" and not may_multiply(first, second):
        return None
    with np.errstate(all="ignore"):
        data = first + second if op is add else first * second
    if data.size > max(first.size, second.size) or not np.isfinite(data).all():
        return None
    return op(value, Constant(data.astype(first.dtype)))


def affine_twice(expr: Call) -> Expr | None:
    """(x * a + b) * c  ->  x * (a * c) + b * c   (a normalisation and the scale that importers keep beside it)"""
    for total, factor in (expr.args, expr.args[::-1]):
        if not isinstance(factor, Constant) or not isinstance(total, Call) or total.op is not add:
            continue
        for product, offset in (total.args, total.args[::-1]):
            if isinstance(product, Call) and product.op is multiply and isinstance(offset, Constant):
                return _scaled(product, offset.data, factor.data)
    return None


def _scaled(product: Call, offset: Array, factor: Array) -> Expr | None:
    """product * factor + offset * factor, the first in its constant."""
    for value, inner in (product.args, product.args[::-1]):
        if isinstance(inner, Constant) and not isinstance(value, Constant):
            scaled = _joined(multiply, value, inner.data, factor)
            moved = _joined(multiply, value, offset, factor)
            if scaled is None or not isinstance(moved, Call):
                return None
            return add(scaled, moved.args[1])
    return None


def small_power(expr: Call) -> Expr | None:
    """x ** 1  ->  x;  x ** 2  ->  x * x;  x ** 3  ->  x * x * x;  x ** -1  ->  1 / x;  x ** 0.5  ->  sqrt(x)

    if x is float32 or float64: the cube of a narrower type would be rounded twice, and integers saturate. A product
    takes a twentieth of the time of pow. As numpy's power, the root of -infinity is NaN, which for C's pow is infinity.
    """
    x, (ty,), exponent = expr.args[0], tensor_fields(expr.args[0].checked_type), splat(expr.args[1])
    if not ty.dtype.is_float or ty.dtype.bits < 32:
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return multiply(x, x)
    if exponent == 3:
        return multiply(multiply(x, x), x)
    if exponent == -1:
        return divide(Constant(np.ones((), ty.dtype.numpy)), x)
    return get_op("sqrt")(x) if exponent == 0.5 else None


add.simplify(_neutral_zero(True, False), _reassociate, after_layouts=True)  # x + -0.0  ->  x;  x + 0  ->  x
subtract.simplify(_neutral_zero(False, True), after_layouts=True)  # x - 0.0  ->  x
multiply.simplify(_neutral(1, False), _reassociate, affine_twice, after_layouts=True)  # x * 1  ->  x
divide.simplify(_neutral(1, True), after_layouts=True)  # x / 1  ->  x
power.simplify(small_power)

state("add maximum minimum subtract", Fact.ARITHMETIC, precision=Precision.FOLLOW)
state("divide multiply", Fact.ARITHMETIC, Fact.VANISHES, precision=Precision.FOLLOW)
state("equal greater greater_equal less less_equal not_equal where", precision=Precision.FOLLOW)
state("power", Fact.VANISHES, precision=Precision.NEVER)
state("bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor", Fact.FLAT)
state("equal greater greater_equal less less_equal not_equal", Fact.FLAT)
state("add", Fact.ADDITIVE, quantized="qnn.add")
state("subtract", Fact.ADDITIVE, quantized="qnn.subtract")
state("multiply", quantized="qnn.mul")
