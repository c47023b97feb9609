"""Elementwise operators of one input: one row each.

In: one tensor. Out: a tensor of the same shape; its dtype is the input's, or bool for tests such as isnan.
A row holds the name, which dtypes it takes, the scalar expression, the numpy function and the domain of the samples.
 Invariant: scalar expression and numpy function agree on every value of the domain, NaN and infinities
included. To add an operator, add a row. Two inputs: broadcast.py. Conversions and clip: elementwise/cast.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.ops._deferred import T, scalar, te
from armillary.ops._deferred import erf as numpy_erf
from armillary.ops._types import check_kind, elements, f32, i32, of_type, quiet
from armillary.relay.expr import Call, Constant, Expr, splat, tensor_of
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, get_op, is_call, state
from armillary.relay.op.facts import Fact, Precision
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

BOOL = DType("bool")


@record
class Unary:
    """One row. `result` of None: the dtype of the input."""

    name: str
    accepts: str
    scalar: Callable[[Scalar], Scalar]
    numpy: Callable[[Array], Array]
    domain: tuple[float, float] = (-2.0, 2.0)
    result: DType | None = None
    doc: str = ""


def _float(name: str) -> Callable[[Scalar], Scalar]:
    return lambda x: T.call(name, x)


def _test(name: str) -> Callable[[Scalar], Scalar]:
    return lambda x: T.call(name, x, dtype="bool")


def _rounding(name: str) -> Callable[[Scalar], Scalar]:
    return lambda x: T.call(name, x) if x.dtype.is_float else x


def _abs(x: Scalar) -> Scalar:
    if x.dtype.is_float:
        return T.call("fabs", x)
    return T.call("abs", x) if x.dtype.code == "int" else x


def _sign(x: Scalar) -> Scalar:
    zero = T.const(0, x.dtype)
    below = T.select(T.less(x, zero), T.const(-1, x.dtype), x) if x.dtype.code != "uint" else x
    return T.select(T.greater(x, zero), T.const(1, x.dtype), below)


def _numpy_erf(x: Array) -> Array:
    return np.asarray(numpy_erf(np.asarray(x, np.float64))).astype(x.dtype) if x.size else x


def _whole(rule: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding; integers are whole already, and would lose digits on the way through float64."""
    return lambda x: np.array(x) if x.dtype.kind in "iu" else rule(x).astype(x.dtype)


def _half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole)


def _numpy_copy(x: Array) -> Array:
    return np.array(x)


def _numpy_sign(x: Array) -> Array:
    return np.where(x > 0, np.ones_like(x), np.where(x < 0, -np.ones_like(x), x)).astype(x.dtype)


_TABLE = (
    Unary("exp", "float", _float("exp"), np.exp),
    Unary("log", "float", _float("log"), np.log, (0.1, 4.0)),
    Unary("log2", "float", _float("log2"), np.log2, (0.1, 4.0)),
    Unary("log10", "float", _float("log10"), np.log10, (0.1, 4.0)),
    Unary("sqrt", "float", _float("sqrt"), np.sqrt, (0.0, 4.0)),
    Unary("rsqrt", "float", _float("rsqrt"), lambda x: (1 / np.sqrt(x)).astype(x.dtype), (0.1, 4.0)),
    Unary("sigmoid", "float", _float("sigmoid"), lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype)),
    Unary("tanh", "float", _float("tanh"), np.tanh),
    Unary("sin", "float", _float("sin"), np.sin),
    Unary("cos", "float", _float("cos"), np.cos),
    Unary("tan", "float", _float("tan"), np.tan, (-1.0, 1.0)),
    Unary("asin", "float", _float("asin"), np.arcsin, (-1.0, 1.0)),
    Unary("acos", "float", _float("acos"), np.arccos, (-1.0, 1.0)),
    Unary("atan", "float", _float("atan"), np.arctan),
    Unary("sinh", "float", _float("sinh"), np.sinh),
    Unary("cosh", "float", _float("cosh"), np.cosh),
    Unary("asinh", "float", _float("asinh"), np.arcsinh),
    Unary("acosh", "float", _float("acosh"), np.arccosh, (1.1, 4.0)),
    Unary("atanh", "float", _float("atanh"), np.arctanh, (-0.9, 0.9)),
    Unary("erf", "float", _float("erf"), _numpy_erf),
    Unary("floor", "numeric", _rounding("floor"), _whole(np.floor)),
    Unary("ceil", "numeric", _rounding("ceil"), _whole(np.ceil)),
    Unary("trunc", "numeric", _rounding("trunc"), _whole(np.trunc)),
    Unary("round", "numeric", _rounding("round"), _whole(_half_away), doc="To nearest, halves away from zero."),
    Unary("nearbyint", "numeric", _rounding("nearbyint"), _whole(np.rint), doc="To nearest, halves to even."),
    Unary("sign", "numeric", _sign, _numpy_sign),
    Unary("abs", "numeric", _abs, np.abs),
    Unary("negative", "numeric", scalar("neg"), np.negative),
    Unary("logical_not", "bool", scalar("logical_not"), np.logical_not),
    Unary("bitwise_not", "integer or bool", scalar("bitwise_not"), np.bitwise_not),
    Unary("isnan", "float", _test("isnan"), np.isnan, result=BOOL),
    Unary("isinf", "float", _test("isinf"), np.isinf, result=BOOL),
    Unary("isfinite", "float", _test("isfinite"), np.isfinite, result=BOOL),
    Unary("copy", "any", lambda x: x, _numpy_copy, doc="The value itself, in memory of its own."),
)

_SAMPLE_TYPES = {
    "float": (f32(3, 5), of_type("float64", 7), f32(), f32(2, 0, 3)),
    "numeric": (f32(3, 5), i32(4), f32()),
    "bool": (of_type("bool", 3, 5),),
    "integer or bool": (i32(3, 5), of_type("uint8", 6), of_type("bool", 4)),
    "any": (f32(3, 5), i32(4), of_type("bool", 2, 2), of_type("float16", 3)),
}
_WRONG_TYPE = {"float": i32(3), "numeric": of_type("bool", 3), "bool": f32(3), "integer or bool": f32(3)}


def define_unary(row: Unary) -> Op:
    """The operator of a row."""
    op = Op(row.name, kind=Kind.ELEMENTWISE, doc=row.doc or f"{row.name} of each element.")

    @op.infer
    def infer(attrs: None, data: TensorType) -> TensorType:
        check_kind(row.name, "its input", data, row.accepts)
        return data if row.result is None else TensorType(data.shape, row.result)

    @op.reference
    @quiet
    def reference(attrs: None, data: Array) -> Array:
        return np.asarray(row.numpy(data))

    @op.compute
    def compute(attrs: None, data: te.Tensor) -> te.Tensor:
        return elements(data.shape, lambda *i: row.scalar(data(*i)), name=row.name)

    @op.samples
    def samples() -> Iterator[Sample]:
        for ty in _SAMPLE_TYPES[row.accepts]:
            yield Sample(None, (ty,), domain=row.domain)

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        if row.accepts in _WRONG_TYPE:
            yield BadSample(None, (_WRONG_TYPE[row.accepts],), f"wanted {row.accepts}")

    return op


UNARY = {row.name: define_unary(row) for row in _TABLE}
exp, log, sqrt, sigmoid, tanh = UNARY["exp"], UNARY["log"], UNARY["sqrt"], UNARY["sigmoid"], UNARY["tanh"]
floor, absolute, negative, logical_not = UNARY["floor"], UNARY["abs"], UNARY["negative"], UNARY["logical_not"]
isinf, isnan, isfinite = UNARY["isinf"], UNARY["isnan"], UNARY["isfinite"]
copy, round_half_even = UNARY["copy"], UNARY["nearbyint"]


def tanh_of_softplus(expr: Call) -> Expr | None:
    """tanh(relu(x) + log(exp(-abs(x)) + 1))  ->  n / (n + 2) with n = e * (e + 2), e = exp(min(x, 20))   of float32

    The logarithm may also be log1p as ONNX's Softplus is imported.

    As tanh(log(y)) is (y * y - 1) / (y * y + 1): one function of three is left of mish. From 20 on it is 1.
    """
    ty, total = tensor_of(expr), expr.args[0]
    if ty is None or ty.dtype != "float32" or not is_call(total, "add"):
        return None
    for ramp, rest in (total.args, total.args[::-1]):
        x = _argument(ramp, "nn.relu")
        shrunk = _argument(_argument(rest, "log"), "add", 1.0) or _of_log1p(rest)
        if x is not None and _argument(_argument(_argument(shrunk, "exp"), "negative"), "abs") is x:
            power = exp(get_op("minimum")(x, Constant(np.array(_ALL, np.float32))))
            two = Constant(np.array(2, np.float32))
            less_one = power * (power + two)
            return less_one / (less_one + two)
    return None


def _of_log1p(expr: Expr) -> Expr | None:
    """e of where(e + 1 == 1, e, log(e + 1) * (e / (e + 1 - 1)))."""
    if not is_call(expr, "where"):
        return None
    condition, e, product = expr.args
    if not is_call(product, "multiply") or not is_call(product.args[1], "divide"):
        return None
    more = _argument(product.args[0], "log")
    quotient, below = product.args[1].args
    is_whole = _argument(more, "add", 1.0) is e and quotient is e and _argument(condition, "equal", 1.0) is more
    is_less_one = is_call(below, "subtract") and below.args[0] is more and splat(below.args[1]) == 1
    return e if is_whole and is_less_one else None


def _argument(expr: Expr | None, name: str, other: float | None = None) -> Expr | None:
    """What an operator of that name is applied to, and added to `other`."""
    if not is_call(expr, name):
        return None
    if other is None:
        return expr.args[0]
    return next((a for a, b in (expr.args, expr.args[::-1]) if splat(b) == other), None)


_ALL = 20.0  # exp(2 * 20) + 2 is exp(2 * 20)
tanh.simplify(tanh_of_softplus)
copy.simplify(lambda call: call.args[0], after_layouts=True)

state("abs negative sqrt", precision=Precision.FOLLOW)
state("copy", Fact.PICKS, precision=Precision.FOLLOW)
state("erf", precision=Precision.NEVER, fast="fast_erf")
state("exp", Fact.VANISHES, precision=Precision.NEVER, fast="fast_exp")
state("log", precision=Precision.NEVER)
state("sigmoid", Fact.VANISHES, precision=Precision.FOLLOW)
state("tanh", precision=Precision.FOLLOW, fast="fast_tanh")
state("bitwise_not ceil floor isfinite isinf isnan logical_not nearbyint round sign trunc", Fact.FLAT)
for _name in ("abs", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt", "tanh"):
    state(_name, quantized=f"qnn.{_name}")
