"""fast_exp, fast_tanh, fast_erf, nn.fast_softmax: shorter formulas for float32, of five to six correct digits.

In: floating-point data (other formats compute in float32). Out: the same type. Relative errors over all finite inputs
(measured in tests/relay/test_fast_math.py): fast_exp 7e-6 between -87 and 88, beyond which it stays at its values there
(no infinity, no zero); fast_tanh and fast_erf 3e-6. Invariant: NaN gives NaN. Coefficients are minimax fits in float64,
by reweighted least squares. Written in TE, so every target vectorises them. The pass fast-math puts them into a
network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import e, log2
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.ops._deferred import T, te
from armillary.ops._deferred import erf as numpy_erf
from armillary.ops._types import check_kind, elements, f32, i32, of_type, quiet
from armillary.ops.nn.softmax import SoftmaxAttrs, softmax
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Precision
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

# 2**f, |f| <= 1/2
_EXP2 = (0.9999992847442627, 0.6931218504905701, 0.2402474582195282, 0.05591755360364914, 0.009569920599460602)
_LOG2_E = log2(e)
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds a float32 to an integer, which then lies in the low bits
_EXPONENT, _BIAS = 23, 127 << 23
_LOWEST, _HIGHEST = -87.0, 88.0  # where 2**n is a normal number
# x * P(x**2) / (1 + x**2 * Q(x**2)), up to the limit; beyond it the value there, which is 1 to 3e-6
_TANH = (
    7.0,
    (0.9999989669354168, 0.12322054877983875, 0.0022930889440154973, 3.9958726772164364e-06),
    (0.45654614750931793, 0.02115161430079207, 0.00014398447981803304),
)
_ERF = (
    3.3,
    (1.1283771787839105, 0.15474519487703003, 0.04312680055385369, 0.0007446245173454705),
    (0.4704852640488127, 0.09494963656285563, 0.009254742518362122),
)
_TOLERANCE = 1e-5


def _polynomial(x: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    result = T.const(coefficients[-1], "float32")
    for c in reversed(coefficients[:-1]):
        result = result * x + T.const(c, "float32")
    return result


def _limited(x: Scalar, low: float, high: float) -> Scalar:
    return T.maximum(T.minimum(x, T.const(high, "float32")), T.const(low, "float32"))


def exp_of(x: Scalar) -> Scalar:
    """e**x = 2**n * 2**f of a float32."""
    powers = _limited(x, _LOWEST, _HIGHEST) * T.const(_LOG2_E, "float32")
    shifted = powers + T.const(_MAGIC, "float32")
    fraction = powers - (shifted - T.const(_MAGIC, "float32"))
    whole = T.shift_left(T.call("reinterpret", shifted, dtype="int32"), _EXPONENT) + _BIAS
    return _polynomial(fraction, _EXP2) * T.call("reinterpret", whole, dtype="float32")


def _rational(row: tuple[float, tuple[float, ...], tuple[float, ...]]) -> Callable[[Scalar], Scalar]:
    limit, top, bottom = row

    def formula(x: Scalar) -> Scalar:
        value = _limited(x, -limit, limit)
        square = value * value
        return value * _polynomial(square, top) / _polynomial(square, (1.0, *bottom))

    return formula


def _in_float32(formula: Callable[[Scalar], Scalar], x: Scalar) -> Scalar:
    return T.cast(formula(T.cast(x, "float32")), x.dtype)


def _define(name: str, formula: Callable[[Scalar], Scalar], reference: Callable[[Array], Array], doc: str) -> Op:
    op = Op(name, kind=Kind.ELEMENTWISE, doc=doc)

    @op.infer
    def infer(attrs: None, data: TensorType) -> TensorType:
        check_kind(name, "its input", data, "float")
        return data

    @op.reference
    @quiet
    def exact(attrs: None, data: Array) -> Array:
        return np.asarray(reference(data)).astype(data.dtype)

    @op.compute
    def compute(attrs: None, data: te.Tensor) -> te.Tensor:
        return elements(data.shape, lambda *i: _in_float32(formula, data(*i)), name=name)

    @op.samples
    def samples() -> Iterator[Sample]:
        yield Sample(None, (f32(3, 50),), (-6.0, 6.0), _TOLERANCE, 1e-7)
        yield Sample(None, (of_type("float16", 7),), (-6.0, 6.0), 2e-3, 1e-3)

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        yield BadSample(None, (i32(3),), "has dtype int32, wanted float")

    return op


fast_exp = _define("fast_exp", exp_of, np.exp, "exp to 7e-6, between -87 and 88.")
fast_tanh = _define("fast_tanh", _rational(_TANH), np.tanh, "tanh to 3e-6.")
fast_erf = _define("fast_erf", _rational(_ERF), numpy_erf, "erf to 3e-6.")

fast_softmax = Op("nn.fast_softmax", kind=Kind.CONTRACTION, doc="nn.softmax by fast_exp.")
fast_softmax.attrs(SoftmaxAttrs)
fast_softmax.infer(lambda attrs, data: softmax.infer_type(attrs, (data,)))
fast_softmax.reference(lambda attrs, data: softmax.evaluate(attrs, (data,)))


@fast_softmax.compute
def _softmax(attrs: SoftmaxAttrs, x: te.Tensor) -> te.Tensor:
    """The stages of nn.softmax, under the same names and tags, so that its schedules fit."""
    axis = attrs.axis % len(x.shape)
    rest = [d for n, d in enumerate(x.shape) if n != axis]
    k_max, k_sum = te.reduce_axis((0, x.shape[axis]), "k"), te.reduce_axis((0, x.shape[axis]), "k")

    def at(index: Sequence[te.Expr], k: te.Expr) -> list[te.Expr]:
        return [*index[:axis], k, *index[axis:]]

    def row(index: Sequence[te.Expr]) -> list[te.Expr]:
        return [*index[:axis], *index[axis + 1 :]]

    def power(*i: te.Expr) -> Scalar:
        return exp_of(T.cast(x(*i), "float32") - T.cast(top(*row(i)), "float32"))

    top = te.compute(rest, lambda *i: te.max(x(*at(i, k_max)), axis=[k_max]), name="softmax_max", tag="softmax_max")
    powers = te.compute(x.shape, power, name="softmax_exp", tag="softmax_exp")
    total = te.compute(
        rest, lambda *i: te.sum(powers(*at(i, k_sum)), axis=[k_sum]), name="softmax_sum", tag="softmax_sum"
    )
    result: te.Tensor = te.compute(
        x.shape, lambda *i: T.cast(powers(*i) / total(*row(i)), DType(x.dtype)), name="softmax", tag="softmax"
    )
    return result


@fast_softmax.samples
def _samples() -> Iterator[Sample]:
    yield Sample(SoftmaxAttrs(), (f32(2, 7),), (-9.0, 9.0), _TOLERANCE, 1e-7)
    yield Sample(SoftmaxAttrs(axis=1), (f32(2, 3, 5),), (-50.0, 50.0), _TOLERANCE, 1e-7)


@fast_softmax.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(SoftmaxAttrs(axis=2), (f32(2, 7),), "axis 2 is out of range")
    yield BadSample(SoftmaxAttrs(), (i32(2, 7),), "must have a floating-point dtype")


state("fast_erf fast_exp fast_tanh", precision=Precision.FOLLOW)
