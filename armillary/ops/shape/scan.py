"""Running sums and products: cumsum, cumprod.

In: one tensor, an axis (None: of the flattened tensor). Out: the same shape. Invariant: rows are independent; along the
axis the result is computed in order, so float rounding is that of a plain loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.extent import Known, least
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._convert import convert
from armillary.ops._deferred import S, T, scalar, te
from armillary.ops._loops import load, loop, nest, rows, run_apart, scratch, store
from armillary.ops._types import Index, axis_of, check_kind, f32, i32, of_type, quiet, unravelled
from armillary.ops.shape.shape import reshape_compute
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt


@record
class ScanAttrs:
    """exclusive: element k is the total before k. reverse: from the end. dtype None: that of the input."""

    axis: int | None = None
    dtype: str | None = None
    exclusive: bool | None = None
    reverse: bool = False


def _define(name: str, combine: Callable[[Scalar, Scalar], Scalar], numpy_scan: AnyFunction, neutral: int) -> Op:
    op = Op(name, kind=Kind.OPAQUE, doc=f"Running {'sum' if name == 'cumsum' else 'product'} along an axis.")
    op.attrs(ScanAttrs)

    @op.infer
    def infer(attrs: ScanAttrs, data: Type) -> TensorType:
        if not isinstance(data, TensorType):
            raise TypeMismatch(f"{name}: got {data}, wanted a tensor")
        check_kind(name, "its input", data, "any" if attrs.dtype else "numeric")
        dtype = DType(attrs.dtype) if attrs.dtype else data.dtype
        if attrs.axis is None:
            return TensorType((data.size,), dtype)
        axis_of(name, attrs.axis, data.ndim)
        return TensorType(data.shape, dtype)

    @op.reference
    @quiet
    def reference(attrs: ScanAttrs, data: Array) -> Array:
        data = data.reshape(-1) if attrs.axis is None else data
        axis = axis_of(name, attrs.axis or 0, data.ndim)
        data = data.astype(DType(attrs.dtype).numpy) if attrs.dtype else data
        data = np.flip(data, axis) if attrs.reverse else data
        result = numpy_scan(data, axis=axis, dtype=data.dtype)
        if attrs.exclusive:
            first = np.full_like(np.take(result, [0] if data.shape[axis] else [], axis=axis), neutral)
            result = np.concatenate([first, np.take(result, range(max(0, data.shape[axis] - 1)), axis=axis)], axis)
        return np.array(np.flip(result, axis) if attrs.reverse else result)

    @op.compute
    def compute(attrs: ScanAttrs, data: te.Tensor) -> te.Tensor:
        if attrs.axis is None:
            data = reshape_compute(data, (math.prod(te.extents(data)),), "flatten")
        shape = te.extents(data)
        axis = axis_of(name, attrs.axis or 0, len(shape))

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            return _scan(ins[0], outs[0], shape, axis, attrs, combine, neutral)

        result: te.Tensor = te.extern([shape], [data], body, name=name, dtype=[attrs.dtype or data.dtype])
        return result

    @op.samples
    def samples() -> Iterator[Sample]:
        yield Sample(ScanAttrs(1), (f32(2, 5, 3),))
        yield Sample(ScanAttrs(), (f32(2, 3),))
        yield Sample(ScanAttrs(0, exclusive=True), (i32(6),))
        yield Sample(ScanAttrs(-1, reverse=True), (f32(3, 4),))
        yield Sample(ScanAttrs(-1), (f32(8, 2, 19),))
        yield Sample(ScanAttrs(1, exclusive=True), (f32(3, 4, 5, 3),))
        yield Sample(ScanAttrs(0), (f32(4, 2, 31),))
        yield Sample(ScanAttrs(1, None, True, True), (f32(6, 5),))
        yield Sample(ScanAttrs(0, "int64", True, True), (i32(4, 2),))
        yield Sample(ScanAttrs(0, "int32"), (of_type("bool", 7),))

    @op.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        yield BadSample(ScanAttrs(2), (f32(2, 3),), "axis 2 is out of range")
        yield BadSample(ScanAttrs(0), (of_type("bool", 2),), "wanted numeric")

    return op


def _scan(
    data: Buffer,
    out: Buffer,
    shape: tuple[Known, ...],
    axis: int,
    attrs: ScanAttrs,
    combine: Callable[[Scalar, Scalar], Scalar],
    neutral: int,
) -> Stmt:
    """Rows over the axes before, steps along the axis, a vector of the axes after it."""
    last, tail = shape[axis] - 1, shape[axis + 1 :]

    def place(step: Index | int) -> Index | int:
        return T.sub(last, step) if attrs.reverse else step

    def row(head: list[Scalar]) -> Stmt:
        def first(i: list[Scalar]) -> Stmt:
            at = (*head, place(0), *i)
            return store(out, T.const(neutral, out.dtype) if attrs.exclusive else load(data, *at), *at)

        def later(step: Index, i: list[Scalar]) -> Stmt:
            at, before = (*head, place(step + 1), *i), (*head, place(step), *i)
            value = convert(load(data, *(before if attrs.exclusive else at)), out.dtype)
            return store(out, combine(load(out, *before), value), *at)

        steps = loop("k", last, lambda step: _each(tail, lambda i: later(step, i)))
        if isinstance(last, int):
            return S.seq(_each(tail, first), steps)
        return S.seq(
            loop("first", least(last + 1, 1), lambda _: _each(tail, first)), steps
        )  # of no steps there is none

    if 0 in shape:
        return nest(shape, lambda i: store(out, T.const(neutral, out.dtype), *i))
    fixed = tuple(d for d in shape if isinstance(d, int))
    count = math.prod(fixed[:axis])
    beside = next((n for n in ROWS_TOGETHER if not tail and len(fixed) == len(shape) and count % n == 0), 0)
    if beside:
        return rows((count // beside,), lambda at: _beside(data, out, fixed, attrs, combine, neutral, beside, at[0]))
    return rows(shape[:axis], row)


def _each(shape: tuple[Known, ...], body: Callable[[list[Scalar]], Stmt]) -> Stmt:
    """Elements that do not depend on one another, as one run where their number is known."""
    fixed = tuple(d for d in shape if isinstance(d, int))
    return run_apart(fixed, body) if len(fixed) == len(shape) else nest(shape, body)


def _beside(
    data: Buffer,
    out: Buffer,
    shape: tuple[int, ...],
    attrs: ScanAttrs,
    combine: Callable[[Scalar, Scalar], Scalar],
    neutral: int,
    count: int,
    group: Scalar,
) -> Stmt:
    """Some rows along the last axis at a time, so that a sum need not wait for the one before."""
    row, last = scratch("found", count, str(out.dtype), "local"), shape[-1] - 1

    def each(body: Callable[[Scalar, list[Scalar]], Stmt]) -> Stmt:
        kind = S.LoopKind.UNROLLED
        return loop("r", count, lambda r: body(r, list(unravelled(group * count + r, shape[:-1]))), kind)

    def step(k: Scalar) -> Stmt:
        place = T.sub(last, k) if attrs.reverse else k

        def one(r: Scalar, head: list[Scalar]) -> Stmt:
            after = store(row, combine(load(row, r), convert(load(data, *head, place), out.dtype)), r)
            retained = store(out, load(row, r), *head, place)
            return S.seq(retained, after) if attrs.exclusive else S.seq(after, retained)

        return each(one)

    start = each(lambda r, head: store(row, T.const(neutral, out.dtype), r))
    return S.Allocate(row, S.seq(start, loop("k", shape[-1], step)))


ROWS_TOGETHER = (8, 4, 2, 1)  # rows that are summed side by side; the sum of one stays in a register, too
cumsum = _define("cumsum", scalar("add"), np.cumsum, 0)
cumprod = _define("cumprod", scalar("mul"), np.cumprod, 1)
