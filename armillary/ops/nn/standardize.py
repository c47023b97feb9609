"""nn.standardize: the core of layer, instance, group and RMS normalisation, without scale and shift.

In: float data, the axes that share their statistics. Out: the same type; (x - mean) / sqrt(variance + epsilon), or x /
sqrt(mean of squares + epsilon) when `center` is False. Invariant: two passes over the data, never the difference of
moments. TE: stages standardize_sum, standardize_squares, standardize_inverse and the result, so that a schedule can
keep a row in cache. The nn.*_norm operators decompose into it; recognize-normalization finds it in exported arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import dims_product, number
from armillary.ops.nn._windows import Tensor, axis_of, f32, need_float, need_tensor, reduce_axes, tensor, wide
from armillary.ops.reduce.reduce import full_index
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type


@record
class StandardizeAttrs:
    axis: int | tuple[int, ...] = -1
    epsilon: float = 1e-5
    center: bool = True


standardize = Op("nn.standardize", kind=Kind.CONTRACTION, doc="Zero mean (if center) and unit variance along axes.")
standardize.attrs(StandardizeAttrs)


def _axes(attrs: StandardizeAttrs, ndim: int) -> tuple[int, ...]:
    axes = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    return tuple(sorted(axis_of("nn.standardize", a, ndim) for a in axes))


@standardize.infer
def infer(attrs: StandardizeAttrs, data: Type) -> TensorType:
    x = need_float("nn.standardize", need_tensor("nn.standardize", data))
    axes = _axes(attrs, x.ndim)
    if not axes or len(set(axes)) < len(axes):
        raise TypeMismatch(f"nn.standardize: axis {attrs.axis} names no axis, or one twice", hint="each axis once")
    return x


@standardize.reference
def reference(attrs: StandardizeAttrs, x: Array) -> Array:
    y, axes = wide(x), _axes(attrs, x.ndim)
    y = y - y.mean(axes, keepdims=True) if attrs.center else y
    spread = np.square(y).mean(axes, keepdims=True)
    result: Array = (y / np.sqrt(spread + y.dtype.type(attrs.epsilon))).astype(x.dtype)
    return result


@standardize.compute
def compute(attrs: StandardizeAttrs, x: Tensor) -> Tensor:
    shape, axes = te.extents(x), _axes(attrs, len(x.shape))
    dtype = "float32" if T.convert(x(*[0] * len(shape))).dtype.bits < 32 else x.dtype
    count = number(dims_product(shape[a] for a in axes), dtype)
    rest: list[te.Index] = [d for n, d in enumerate(shape) if n not in axes]

    def over(value: Callable[[list[te.Expr]], te.Expr], name: str) -> Tensor:
        inner = reduce_axes([shape[a] for a in axes], [f"k{a}" for a in axes])
        return te.compute(
            rest,
            lambda *i: te.sum(value(full_index(i, axes, inner, len(shape), False)), axis=inner),
            name=f"standardize_{name}",
            tag=f"standardize_{name}",
        )

    def outside(index: Sequence[te.Expr]) -> list[te.Expr]:
        return [v for n, v in enumerate(index) if n not in axes]

    def centre() -> Tensor:
        total = over(lambda index: x(*index).astype(dtype), "sum")
        name = "standardize_mean"
        return te.compute(rest, lambda *i: total(*i) / count, name=name, tag=name)

    mean = centre() if attrs.center else None

    def centred(index: Sequence[te.Expr]) -> te.Expr:
        value = x(*index).astype(dtype)
        result: te.Expr = value if mean is None else value - mean(*outside(index))
        return result

    squares = over(lambda index: centred(index) * centred(index), "squares")
    inverse = te.compute(
        rest,
        lambda *i: T.const(1.0, dtype) / te.sqrt(squares(*i) / count + T.const(attrs.epsilon, dtype)),
        name="standardize_inverse",
        tag="standardize_inverse",
    )
    result: Tensor = te.compute(
        shape, lambda *i: (centred(i) * inverse(*outside(i))).astype(x.dtype), name="standardize", tag="standardize"
    )
    return result


@standardize.samples
def samples() -> Iterator[Sample]:
    yield Sample(StandardizeAttrs(), (f32(2, 3, 37),))
    yield Sample(StandardizeAttrs(center=False), (f32(3, 64),))
    yield Sample(StandardizeAttrs((1, 2)), (f32(2, 3, 7),))
    yield Sample(StandardizeAttrs(0), (f32(6, 5),))


@standardize.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(StandardizeAttrs(3), (f32(2, 4),), "axis 3 is out of range")
    yield BadSample(StandardizeAttrs((1, 1)), (f32(2, 4),), "or one twice")
    yield BadSample(StandardizeAttrs(), (tensor("int32", 2, 4),), "floating-point dtype")
