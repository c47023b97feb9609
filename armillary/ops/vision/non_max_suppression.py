"""vision.non_max_suppression: boxes in the order of their scores, without those that overlap a better one.

In: boxes (batch, n, columns), how many of each image count, their numbers, how many may stay (none or less: all), and
from which overlap on a box goes. Out: the boxes that stay in order (others are -1, at their places or at the end), or
their numbers and how many they are. Invariant: overlap is common area by area of both, 0 for empty boxes; boxes of
different classes do not compete unless `force_suppress`; equal scores keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Known, note_at_most
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import Index, load, loop, rows, scratch, store
from armillary.ops._types import ints
from armillary.ops.nn._windows import Tensor, f32, need_float, need_rank, need_shape, need_tensor
from armillary.ops.reduce.sort import ArgsortAttrs, argsort, numpy_argsort
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer, Stmt

NAME = "vision.non_max_suppression"
_INPUTS = ("data", "valid_count", "indices", "max_output_size", "iou_threshold")
_LOWEST = float(np.finfo(np.float32).min)


@record
class NonMaxSuppressionAttrs:
    force_suppress: bool = False
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    return_indices: bool = True
    invalid_to_bottom: bool = False


non_max_suppression = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Boxes that overlap no better one.")
non_max_suppression.attrs(NonMaxSuppressionAttrs)


@non_max_suppression.infer
def _infer(attrs: NonMaxSuppressionAttrs, data: Type, count: Type, indices: Type, most: Type, iou: Type) -> Type:
    x = need_float(NAME, need_rank(NAME, data, 3))
    need_shape(NAME, "valid_count", need_tensor(NAME, count, "valid_count"), (x.shape[0],))
    if attrs.return_indices:  # else nothing reads them
        need_shape(NAME, "indices", need_tensor(NAME, indices, "indices"), x.shape[:2])
    for what, ty in (("max_output_size", most), ("iou_threshold", iou)):
        need_rank(NAME, ty, 0, what)
    columns = (attrs.score_index, attrs.coord_start + 3, attrs.id_index)
    note_at_most(max(columns) + 1, x.shape[2])
    is_before = attrs.score_index < 0 or attrs.coord_start < 0 or attrs.id_index < -1
    if is_before or (isinstance(x.shape[2], int) and max(columns) >= x.shape[2]):
        raise TypeMismatch(f"{NAME}: columns {columns} of boxes of {x.shape[2]} numbers")
    whole = DType("int32")
    numbers = TupleType((TensorType(x.shape[:2], whole), TensorType((x.shape[0], 1), whole)))
    return numbers if attrs.return_indices else x


def _areas(box: Array, start: int) -> tuple[Array, Array, np.floating]:
    ends = np.sort(box[start : start + 4].reshape(2, 2), 0)
    return ends[0], ends[1], np.prod(ends[1] - ends[0])


def _overlap(one: Array, other: Array, start: int) -> float:
    (low, high, area), (low2, high2, area2) = _areas(one, start), _areas(other, start)
    common = np.prod(np.maximum(np.minimum(high, high2) - np.maximum(low, low2), 0))
    whole = area + area2 - common
    return float(common / whole) if whole > 0 else 0.0


@non_max_suppression.reference
def _reference(
    attrs: NonMaxSuppressionAttrs, data: Array, count: Array, indices: Array, most: Array, iou: Array
) -> Array | tuple[Array, Array]:
    boxes, numbers = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    counts = np.zeros((len(data), 1), np.int32)
    for b in range(len(data)):
        order = numpy_argsort(data[b, : count[b], attrs.score_index], 0, False)
        order = order[: attrs.top_k] if attrs.top_k > 0 else order
        retained: list[int] = []
        for place, i in enumerate(order):
            box = data[b, i]
            rivals = [
                k for k in retained if attrs.force_suppress or attrs.id_index < 0 or _class(attrs, data[b, k], box)
            ]
            counted = box[attrs.score_index] > 0 and (attrs.id_index < 0 or box[attrs.id_index] >= 0)
            full = most > 0 and len(retained) >= most
            if counted and not full and all(_overlap(data[b, k], box, attrs.coord_start) < iou for k in rivals):
                boxes[b, len(retained) if attrs.invalid_to_bottom else place] = box
                numbers[b, len(retained)] = indices[b, i]
                retained.append(int(i))
        counts[b] = len(retained)
    return (numbers, counts) if attrs.return_indices else boxes


def _class(attrs: NonMaxSuppressionAttrs, one: Array, other: Array) -> bool:
    return bool(one[attrs.id_index] == other[attrs.id_index])


@non_max_suppression.compute
def _compute(
    attrs: NonMaxSuppressionAttrs, data: Tensor, count: Tensor, indices: Tensor, most: Tensor, iou: Tensor
) -> Tensor | list[Tensor]:
    """Scores of the boxes that count, their order, then each box against those that stay."""
    batch, size, width = te.extents(data)
    dtype = str(data.dtype)

    def score(b: te.Expr, i: te.Expr) -> te.Expr:
        return T.select(i < count(b), data(b, i, attrs.score_index), T.const(_LOWEST, dtype))

    scores = te.compute((batch, size), score, name="scores")
    order = argsort.compute_rule(ArgsortAttrs(1, False), scores)  # type: ignore[misc]  # it has one

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return rows([batch], lambda at: _image(_Image(attrs, ins, outs, at[0], size, width)))

    shapes: list[tuple[Known, ...]] = [(batch, size), (batch, 1)] if attrs.return_indices else [(batch, size, width)]
    types = ["int32", "int32"] if attrs.return_indices else [dtype]
    operands = [data, count, indices, most, iou, order]
    result: Tensor | list[Tensor] = te.extern(shapes, operands, body, name="suppress", dtype=types)
    return result


@record
class _Image:
    """One image: its inputs and outputs, and their sizes."""

    attrs: NonMaxSuppressionAttrs
    ins: list[Buffer]
    outs: list[Buffer]
    b: Index
    size: Known
    width: Known

    def box(self, i: Index, column: Index) -> Index:
        return load(self.ins[0], self.b, i, column)

    def end(self, i: Index, axis: int, low: bool) -> Index:
        one, two = (self.box(i, self.attrs.coord_start + axis + k) for k in (0, 2))
        return T.minimum(one, two) if low else T.maximum(one, two)


def _image(one: _Image) -> Stmt:
    attrs, ins, outs, b = one.attrs, one.ins, one.outs, one.b
    retained, stays, place = (scratch(name, 1, "int32", "local") for name in ("kept", "stays", "place"))
    chosen = scratch("chosen", one.size, "int32")
    limit = T.minimum(T.cast(load(ins[1], b), "int32"), attrs.top_k if attrs.top_k > 0 else one.size)

    def against(k: Index) -> Stmt:
        other = load(chosen, k)
        covers = T.greater_equal(_share(one, other, load(place, 0)), T.cast(load(ins[4]), ins[0].dtype))
        if not attrs.force_suppress and attrs.id_index >= 0:
            same = T.equal(one.box(other, attrs.id_index), one.box(load(place, 0), attrs.id_index))
            covers = T.all_of(covers, same)
        return S.IfThenElse(covers, store(stays, 0, 0))

    def visit(j: Index) -> Stmt:
        i, most = load(place, 0), T.cast(load(ins[3]), "int32")
        counted = T.greater(one.box(i, attrs.score_index), T.const(0, ins[0].dtype))
        if attrs.id_index >= 0:
            counted = T.all_of(counted, T.greater_equal(one.box(i, attrs.id_index), T.const(0, ins[0].dtype)))
        room = T.any_of(T.less_equal(most, 0), T.less(load(retained, 0), most))
        keep = [store(chosen, i, load(retained, 0))]
        if attrs.return_indices:
            keep.append(store(outs[0], load(ins[2], b, i), b, load(retained, 0)))
        else:
            row = load(retained, 0) if attrs.invalid_to_bottom else j
            keep.append(loop("k", one.width, lambda k: store(outs[0], one.box(i, k), b, row, k)))
        take = S.IfThenElse(T.greater(load(stays, 0), 0), S.seq(*keep, store(retained, T.add(load(retained, 0), 1), 0)))
        first = S.seq(store(place, load(ins[5], b, j), 0), store(stays, 1, 0))
        return S.seq(first, S.IfThenElse(T.all_of(counted, room), S.seq(loop("k", load(retained, 0), against), take)))

    def clear(i: Index) -> Stmt:
        if attrs.return_indices:
            return store(outs[0], -1, b, i)
        return loop("k", one.width, lambda k: store(outs[0], -1, b, i, k))

    steps = [loop("i", one.size, clear), store(retained, 0, 0), loop("j", limit, visit)]
    steps += [store(outs[1], load(retained, 0), b, 0)] if attrs.return_indices else []
    result: Stmt = S.seq(*steps)
    for buffer in (retained, stays, place, chosen):
        result = S.Allocate(buffer, result)
    return result


def _share(one: _Image, i: Index, j: Index) -> Index:
    """What two boxes have in common, of what they cover together."""
    zero, unit = T.const(0, one.ins[0].dtype), T.const(1, one.ins[0].dtype)
    common, areas = unit, [unit, unit]
    for axis in range(2):
        low, high = ([one.end(k, axis, is_low) for k in (i, j)] for is_low in (True, False))
        common = common * T.maximum(T.minimum(*high) - T.maximum(*low), zero)
        areas = [area * (h - w) for area, h, w in zip(areas, high, low, strict=True)]
    whole = areas[0] + areas[1] - common
    is_empty = T.less_equal(whole, zero)
    return T.select(is_empty, zero, common / T.select(is_empty, unit, whole))


@non_max_suppression.samples
def _samples() -> Iterator[Sample]:
    rng = np.random.default_rng(0)
    low = rng.integers(0, 9, (2, 12, 2))
    ends = np.concatenate([low, low + rng.integers(1, 6, (2, 12, 2))], 2)
    heads = np.stack([rng.integers(-1, 2, (2, 12)), rng.integers(0, 7, (2, 12)) / 7], 2)
    boxes = np.concatenate([heads, ends], 2).astype(np.float32)
    numbers = np.arange(24, dtype=np.int32).reshape(2, 12)
    rest = (ints([9, 12]), numbers)
    for most, attrs in (
        (-1, NonMaxSuppressionAttrs()),
        (3, NonMaxSuppressionAttrs(True, 7, return_indices=False)),
        (0, NonMaxSuppressionAttrs(return_indices=False, invalid_to_bottom=True, id_index=-1)),
    ):
        yield Sample(attrs, (boxes, *rest, np.array(most, np.int32), np.array(0.3, np.float32)))


@non_max_suppression.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    scalars = (np.array(1, np.int32), np.array(0.5, np.float32))
    yield BadSample(
        NonMaxSuppressionAttrs(), (f32(1, 4, 6), ints([4, 4]), ints([[0, 1, 2, 3]]), *scalars), "valid_count"
    )
    narrow = (f32(1, 4, 5), ints([4]), ints([[0, 1, 2, 3]]), *scalars)
    yield BadSample(NonMaxSuppressionAttrs(), narrow, "columns (1, 5, 0) of boxes of 5 numbers")


@boundary(NAME, arguments=True)
def suppressed(
    data: Expr,
    valid_count: Expr,
    indices: Expr,
    max_output_size: Expr | int = -1,
    iou_threshold: Expr | float = 0.5,
    **attrs: bool | int,
) -> Expr:
    """`relay.vision.non_max_suppression`: limits may be numbers."""
    most = const(max_output_size, "int32") if isinstance(max_output_size, int) else max_output_size
    iou = const(iou_threshold, "float32") if isinstance(iou_threshold, float | int) else iou_threshold
    result: Expr = non_max_suppression(data, valid_count, indices, most, iou, **attrs)
    return result
