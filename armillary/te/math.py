"""Scalar functions for tensor expressions: exp, sqrt, floordiv, select…

In: expressions, numbers, elements of tensors. Out: an expression. Invariant: every function here is a row of
`tir/intrinsics.py` or a constructor of `tir/build.py`; nothing is evaluated except constants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from armillary.base.dtype import DType
from armillary.tir import build as T
from armillary.tir.build import (
    ceildiv,
    const,
    div,
    floordiv,
    floormod,
    if_then_else,
    indexdiv,
    indexmod,
    likely,
    select,
    truncdiv,
    truncmod,
)
from armillary.tir.expr import Expr, ExprLike
from armillary.tir.intrinsics import (
    Unary,
    dot_bf16,
    dot_bytes,
    dot_symmetric_bytes,
    eight_bytes,
    flipped_bytes,
    four_bytes,
    pack_bf16,
    unary,
)

exp, exp2 = unary("exp"), unary("exp2")
log, log2, log10, log1p, expm1 = unary("log"), unary("log2"), unary("log10"), unary("log1p"), unary("expm1")
sqrt, rsqrt, sigmoid, erf = unary("sqrt"), unary("rsqrt"), unary("sigmoid"), unary("erf")
normcdf = unary("normcdf")
exp_flushed = unary("exp_flushed")  # 0 where exp is next to subnormal; of arguments up to 88
sin, cos, tan, sinh, cosh, tanh = (unary(n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
asin, acos, atan, asinh, acosh, atanh = (unary(n) for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh"))


def _rounding(name: str) -> Unary:
    whole = unary(name)

    def construct(x: ExprLike) -> Expr:
        value = T.convert(x)
        return whole(value) if value.dtype.is_float else value

    construct.__name__ = name
    construct.__doc__ = f"{name}(x); integers are left as they are."
    return construct


floor, ceil, trunc, round, nearbyint = (_rounding(n) for n in ("floor", "ceil", "trunc", "round", "nearbyint"))


def _float_test(name: str, answer_for_int: bool) -> Unary:
    test = unary(name)

    def construct(x: ExprLike) -> Expr:
        value = T.convert(x)
        return test(value) if value.dtype.is_float else T.const(answer_for_int)

    construct.__name__ = name
    construct.__doc__ = f"{name}(x); of an integer always {answer_for_int}."
    return construct


isnan, isinf, isfinite = _float_test("isnan", False), _float_test("isinf", False), _float_test("isfinite", True)


def exp10(x: ExprLike) -> Expr:
    """10 to the power x."""
    return T.call("pow", T.cast(10.0, T.convert(x).dtype), x)


def abs(x: ExprLike) -> Expr:
    """The absolute value."""
    value = T.convert(x)
    if value.dtype.code in ("uint", "bool"):
        return value
    return T.call("fabs" if value.dtype.is_float else "abs", value)


def _binary(name: str, needs_float: bool = True) -> Callable[[ExprLike, ExprLike], Expr]:
    def construct(a: ExprLike, b: ExprLike) -> Expr:
        x, y = T.match_types(a, b)
        if needs_float and not x.dtype.is_float:
            x, y = T.cast(x, "float32"), T.cast(y, "float32")
        return T.call(name, x, y)

    construct.__name__ = name
    construct.__doc__ = f"{name}(a, b), element-wise."
    return construct


power = pow = _binary("pow")
atan2, fmod, hypot, copysign, nextafter = (_binary(n) for n in ("atan2", "fmod", "hypot", "copysign", "nextafter"))


def popcount(x: ExprLike) -> Expr:
    """The number of set bits."""
    return T.call("popcount", x)


def clz(x: ExprLike) -> Expr:
    """The number of leading zero bits."""
    return T.call("clz", x)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """a * b + c with one rounding."""
    x, y = T.match_types(a, b)
    return T.call("fma", x, y, T.cast(c, x.dtype))


def min_value(dtype: str) -> Expr:
    """The smallest finite value of a dtype."""
    kind = DType(dtype)
    return const(-_largest(kind) if kind.is_float else kind.min_value, kind)


def max_value(dtype: str) -> Expr:
    """The largest finite value of a dtype."""
    kind = DType(dtype)
    return const(_largest(kind) if kind.is_float else kind.max_value, kind)


def infinity(dtype: str) -> Expr:
    """Positive infinity in a floating-point type."""
    return const(float("inf"), dtype)


def _largest(kind: DType) -> float:
    if kind.bits == 64:
        return sys.float_info.max
    if kind.code == "float" and kind.bits in (16, 32):
        return float(np.finfo(kind.numpy).max)
    if kind == "bfloat16":
        return float(np.array(0x7F7F, np.uint16).view(kind.numpy))
    return 448.0 if kind.startswith("float8_e4m3") else 57344.0


__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceildiv",
    "clz",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "dot_bf16",
    "dot_bytes",
    "dot_symmetric_bytes",
    "eight_bytes",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "exp_flushed",
    "expm1",
    "flipped_bytes",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "four_bytes",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "max_value",
    "min_value",
    "nearbyint",
    "nextafter",
    "normcdf",
    "pack_bf16",
    "popcount",
    "pow",
    "power",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]
