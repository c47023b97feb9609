"""Positions of extremes: argmax, argmin. And ONNX's ArgMax, ArgMin, Hardmax.

In: one tensor, the axes. Out: int32 positions; over several axes, positions in their flattened order. Invariant: of
equal values the first is chosen, or the last with select_last_index; NaN is beyond every number. Values: reduce.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import Index, check_kind, elements, f32, i32, ints, of_type
from armillary.ops.reduce.reduce import ReduceAttrs, full_index, reduced_axes, reduced_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

LAST = 2**31 - 1
BEYOND = 2**30  # more than the elements that one position is chosen from
_LOST = np.array([[1, np.nan, 3, np.nan], [4, 9, -9, 2]], np.float32)  # a sample with NaN


@record
class ArgReduceAttrs:
    """The axes (None: all; exclude: all others) and which of equal values wins."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False
    select_last_index: bool = False

    @property
    def plain(self) -> ReduceAttrs:
        return ReduceAttrs(self.axis, self.keepdims, self.exclude)


def _positions(attrs: ArgReduceAttrs, data: te.Tensor, name: str, largest: bool) -> te.Tensor:
    """The extreme, then the first (or last) position that has it: two reductions of single values, which fit vectors.

    A NaN is marked by moving its position out of the range of the others, to where it wins.
    """
    shape = te.extents(data)
    axes = reduced_axes(name, attrs.plain, len(shape))
    result, last = reduced_shape(shape, axes, attrs.keepdims), attrs.select_last_index
    beyond = BEYOND if last else -BEYOND

    def over(
        reducer: AnyFunction, value: AnyFunction, tag: str
    ) -> te.Tensor:  # Any: a te reduction; a function of both indices
        inner = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]
        outer = result or (1,)  # a schedule has lanes for a reduction with an axis that stays

        def element(*i: Index) -> Scalar:
            best: Scalar = reducer(value(i[: len(result)], inner), axis=inner)
            return best

        return elements(outer, element, name=f"{name}_{tag}", tag="comm_reduce")

    def read(i: Sequence[Index], inner: Sequence[Any]) -> Scalar:
        return T.convert(data(*full_index(i, axes, inner, len(shape), attrs.keepdims)))

    best = over(te.max if largest else te.min, read, "value")

    def position(i: Sequence[Index], inner: Sequence[Index]) -> Scalar:
        place: te.Index = 0
        for axis, k in zip(axes, inner, strict=True):
            place = T.add(T.mul(place, shape[axis]), k)
        place, value = T.cast(place, "int32"), read(i, inner)
        result = T.select(T.equal(value, best(*(i or (0,)))), place, T.const(-1 if last else LAST, "int32"))
        if not value.dtype.is_float:
            return result
        return T.select(T.not_equal(value, value), T.add(place, T.const(beyond, "int32")), result)

    where = over(te.max if last else te.min, position, "position")

    def back(*i: Index) -> Scalar:
        place = T.convert(where(*(i or (0,))))
        is_lost = T.greater_equal(place, beyond) if last else T.less(place, 0)
        return T.select(is_lost, T.sub(place, T.const(beyond, "int32")), place)

    pairs: te.Tensor = elements(result, back, name=name, tag="elemwise")
    return pairs


def _add_samples(op: Op, largest: bool) -> None:
    @op.samples
    def samples() -> Iterator[Sample]:
        yield Sample(ArgReduceAttrs(1), (f32(3, 5),))
        yield Sample(ArgReduceAttrs(), (f32(3, 5),))
        yield Sample(ArgReduceAttrs((0, -1), True), (i32(2, 3, 4),))
        yield Sample(ArgReduceAttrs(0), (ints([[1, 5], [1, 2], [0, 5]]),))
        yield Sample(ArgReduceAttrs(0, select_last_index=True), (ints([[1, 5], [1, 2], [0, 5]]),))
        yield Sample(ArgReduceAttrs(0), (np.full((4,), -np.inf if largest else np.inf, np.float32),))
        yield Sample(ArgReduceAttrs(1), (_LOST,))
        yield Sample(ArgReduceAttrs(1, select_last_index=True), (_LOST,))
        yield Sample(ArgReduceAttrs((1, 3)), (f32(2, 5, 3, 37),))
        yield Sample(ArgReduceAttrs(1, True), (f32(3, 41, 19),))

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        yield BadSample(ArgReduceAttrs(2), (f32(2, 3),), "axis 2 is out of range")
        yield BadSample(ArgReduceAttrs(1), (f32(2, 0),), "nothing to choose from")
        yield BadSample(ArgReduceAttrs(), (of_type("bool", 2),), "wanted numeric")
        yield BadSample(ArgReduceAttrs(), (f32(2**15, 2**15),), "too many positions, at most 2^30 - 1")


def _define(name: str, largest: bool) -> Op:
    op = Op(name, kind=Kind.REDUCE, doc=f"Position of the {'largest' if largest else 'smallest'} element along axes.")
    op.attrs(ArgReduceAttrs)

    @op.infer
    def infer(attrs: ArgReduceAttrs, data: TensorType) -> TensorType:
        check_kind(name, "its input", data, "numeric")
        axes = reduced_axes(name, attrs.plain, data.ndim)
        if any(data.shape[a] == 0 for a in axes):
            raise TypeMismatch(f"{name}: there is nothing to choose from along axes {axes} of {data.shape}")
        if math.prod(d for a in axes if isinstance(d := data.shape[a], int)) >= BEYOND:
            raise TypeMismatch(f"{name}: axes {axes} of {data.shape} have too many positions, at most 2^30 - 1")
        return TensorType(reduced_shape(data.shape, axes, attrs.keepdims), DType("int32"))

    @op.reference
    def reference(attrs: ArgReduceAttrs, data: Array) -> Array:
        axes = reduced_axes(name, attrs.plain, data.ndim)
        retained = [a for a in range(data.ndim) if a not in axes]
        count = math.prod(data.shape[a] for a in axes)
        rows = data.transpose([*retained, *axes]).reshape([*(data.shape[a] for a in retained), count])
        extreme = np.argmax if largest else np.argmin
        places = count - 1 - extreme(rows[..., ::-1], axis=-1) if attrs.select_last_index else extreme(rows, axis=-1)
        shape = [int(str(d)) for d in reduced_shape(data.shape, axes, attrs.keepdims)]
        return np.asarray(places).reshape(shape).astype(np.int32)

    @op.compute
    def compute(attrs: ArgReduceAttrs, data: te.Tensor) -> te.Tensor:
        shape = te.extents(data)
        axes = reduced_axes(name, attrs.plain, len(shape))
        if not axes:
            return elements(shape, lambda *i: T.const(0, "int32"), name=name)
        return _positions(attrs, data, name, largest)

    _add_samples(op, largest)
    return op


argmax, argmin = _define("argmax", True), _define("argmin", False)

state("argmax argmin", Fact.FLAT, Fact.ORDER_ONLY, precision=Precision.FOLLOW)
state("argmax argmin", follows=Follows.STATISTIC)
