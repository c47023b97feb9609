"""vision.get_valid_counts, vision.multibox_transform_loc: the boxes whose scores count, before those that do not.

In: boxes with scores, or SSD's class probabilities, offsets and anchors. Out: how many boxes of each image count; the
boxes, those that count first and in order, -1 behind them; and (get_valid_counts) where each was. Invariant: one pass
over each image; rows are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import Index, load, loop, rows, scratch, store
from armillary.ops.nn._windows import Tensor, f32, need_dtype, need_float, need_rank, need_shape
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import AnyDim, TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer, Stmt

COUNTS, LOCATIONS = "vision.get_valid_counts", "vision.multibox_transform_loc"


@record
class ValidCountsAttrs:
    score_threshold: float = 0.0
    id_index: int = 0
    score_index: int = 1


get_valid_counts = Op(COUNTS, kind=Kind.OPAQUE, doc="The boxes whose scores exceed a threshold, first.")
get_valid_counts.attrs(ValidCountsAttrs)


@get_valid_counts.infer
def _infer_counts(attrs: ValidCountsAttrs, data: Type) -> TupleType:
    x = need_float(COUNTS, need_rank(COUNTS, data, 3))
    width = x.shape[2]
    if isinstance(width, AnyDim):
        raise TypeMismatch(f"{COUNTS}: how many numbers a box has is not known: {x}")
    if not 0 <= attrs.score_index < width or not -1 <= attrs.id_index < width:
        raise TypeMismatch(f"{COUNTS}: columns {attrs.score_index} and {attrs.id_index} of boxes of {width} numbers")
    whole = DType("int32")
    return TupleType((TensorType((x.shape[0],), whole), x, TensorType(x.shape[:2], whole)))


@get_valid_counts.reference
def _counts(attrs: ValidCountsAttrs, data: Array) -> tuple[Array, Array, Array]:
    rows_left, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    counts = np.zeros(len(data), np.int32)
    for b, boxes in enumerate(data):
        counted = boxes[:, attrs.score_index] > np.float32(attrs.score_threshold)
        if attrs.id_index >= 0:
            counted &= boxes[:, attrs.id_index] >= 0
        counts[b] = counted.sum()
        rows_left[b, : counts[b]], places[b, : counts[b]] = boxes[counted], np.flatnonzero(counted)
    return counts, rows_left, places


@get_valid_counts.compute
def _compute_counts(attrs: ValidCountsAttrs, data: Tensor) -> list[Tensor]:
    batch, size, width = te.extents(data)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def image(at: list[te.Expr]) -> Stmt:
            count = scratch("count", 1, "int32", "local")

            def visit(i: Index) -> Stmt:
                counted = T.greater(load(ins[0], *at, i, attrs.score_index), T.const(attrs.score_threshold, data.dtype))
                if attrs.id_index >= 0:
                    has_class = T.greater_equal(load(ins[0], *at, i, attrs.id_index), T.const(0, data.dtype))
                    counted = T.all_of(counted, has_class)
                place = load(count, 0)
                copy = loop("k", width, lambda k: store(outs[1], load(ins[0], *at, i, k), *at, place, k))
                retained = S.seq(copy, store(outs[2], i, *at, place), store(count, T.add(place, 1), 0))
                return S.IfThenElse(counted, retained)

            behind = T.sub(size, load(count, 0))

            def fill(j: Index) -> Stmt:
                place = T.add(load(count, 0), j)
                empty = loop("k", width, lambda k: store(outs[1], -1, *at, place, k))
                return S.seq(empty, store(outs[2], -1, *at, place))

            steps = (store(count, 0, 0), loop("i", size, visit), loop("j", behind, fill))
            return S.Allocate(count, S.seq(*steps, store(outs[0], load(count, 0), *at)))

        return rows([batch], image)

    shapes = [(batch,), (batch, size, width), (batch, size)]
    result: list[Tensor] = te.extern(
        shapes, [data], body, name="valid_counts", dtype=["int32", str(data.dtype), "int32"]
    )
    return result


@get_valid_counts.samples
def _samples_counts() -> Iterator[Sample]:
    yield Sample(ValidCountsAttrs(0.1, 0, 1), (f32(2, 9, 6),))
    yield Sample(ValidCountsAttrs(-0.5, -1, 0), (f32(1, 7, 5),))


@get_valid_counts.bad_samples
def _bad_samples_counts() -> Iterator[BadSample]:
    yield BadSample(ValidCountsAttrs(0.0, 0, 6), (f32(2, 9, 6),), "columns 6 and 0 of boxes of 6 numbers")


# --- SSD's boxes -----------------------------------------------------------------------------------------------------


@record
class TransformLocAttrs:
    clip: bool = True
    threshold: float = 0.01
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    keep_background: bool = False


_INPUTS = ("cls_prob", "loc_pred", "anchor")
transform_loc = Op(LOCATIONS, kind=Kind.OPAQUE, inputs=_INPUTS, doc="SSD's boxes, those with a class first.")
transform_loc.attrs(TransformLocAttrs)


@transform_loc.infer
def _infer_loc(attrs: TransformLocAttrs, cls_prob: Type, loc_pred: Type, anchor: Type) -> TupleType:
    scores = need_float(LOCATIONS, need_rank(LOCATIONS, cls_prob, 3, "cls_prob"))
    moves, anchors = need_rank(LOCATIONS, loc_pred, 2, "loc_pred"), need_rank(LOCATIONS, anchor, 3, "anchor")
    need_dtype(LOCATIONS, scores, moves, anchors)
    batch, _, count = scores.shape
    need_shape(LOCATIONS, "loc_pred", moves, (batch, count * 4))
    need_shape(LOCATIONS, "anchor", anchors, (1, count, 4))
    if len(attrs.variances) != 4:
        raise TypeMismatch(f"{LOCATIONS}: variances must be 4 numbers, got {attrs.variances}")
    return TupleType((TensorType((batch, count, 6), scores.dtype), TensorType((batch,), DType("int32"))))


@transform_loc.reference
def _loc(attrs: TransformLocAttrs, cls_prob: Array, loc_pred: Array, anchor: Array) -> tuple[Array, Array]:
    first = 0 if attrs.keep_background else 1
    offered = np.where(cls_prob > -1, cls_prob, cls_prob.dtype.type(-1))[:, first:]  # others are no scores
    score = offered.max(1)
    best = np.where((score > -1) & (score >= cls_prob.dtype.type(attrs.threshold)), offered.argmax(1) + first, 0)
    rows = np.full((*score.shape, 6), -1, cls_prob.dtype)
    counts = np.zeros(len(score), np.int32)
    low, high = anchor[0, :, :2], anchor[0, :, 2:]
    moved, v = loc_pred.reshape(len(score), -1, 4), np.array(attrs.variances, cls_prob.dtype)
    centre = moved[..., :2] * v[:2] * (high - low) + (low + high) / 2
    half = np.exp(moved[..., 2:] * v[2:]) * (high - low) / 2
    ends = np.concatenate([centre - half, centre + half], -1)
    ends = np.clip(ends, 0, 1) if attrs.clip else ends
    for b in range(len(score)):
        retained = np.flatnonzero((best[b] > 0) | attrs.keep_background)
        counts[b] = len(retained)
        numbers = best[b, retained] - first
        rows[b, : len(retained)] = np.concatenate([numbers[:, None], score[b, retained][:, None], ends[b, retained]], 1)
    return rows, counts


@transform_loc.compute
def _compute_loc(attrs: TransformLocAttrs, cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor) -> list[Tensor]:
    batch, classes, size = te.extents(cls_prob)
    dtype, first = str(cls_prob.dtype), 0 if attrs.keep_background else 1

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def image(at: list[te.Expr]) -> Stmt:
            count, number = (scratch(name, 1, "int32", "local") for name in ("count", "class"))
            score = scratch("score", 1, dtype, "local")

            def visit(i: Index) -> Stmt:
                def offer(k: Index) -> Stmt:
                    value = load(ins[0], *at, T.add(k, first), i)
                    better = S.seq(store(score, value, 0), store(number, T.add(k, first), 0))
                    return S.IfThenElse(T.greater(value, load(score, 0)), better)

                enough = T.greater_equal(load(score, 0), T.const(attrs.threshold, dtype))
                chosen = T.select(enough, load(number, 0), T.const(0))
                put = _put(attrs, ins, outs[0], (at[0], i, load(count, 0)), (T.sub(chosen, first), load(score, 0)))
                retained = S.seq(*put, store(count, T.add(load(count, 0), 1), 0))
                start = (store(score, -1, 0), store(number, 0, 0), loop("k", classes - first, offer))
                return S.seq(
                    *start, retained if attrs.keep_background else S.IfThenElse(T.greater(chosen, 0), retained)
                )

            behind = T.sub(size, load(count, 0))
            fill = loop(
                "j",
                behind,
                lambda j: loop("k", 6, lambda k: store(outs[0], -1, *at, T.add(load(count, 0), j), k)),
            )
            steps = S.seq(store(count, 0, 0), loop("i", size, visit), fill, store(outs[1], load(count, 0), *at))
            return S.Allocate(count, S.Allocate(number, S.Allocate(score, steps)))

        return rows([batch], image)

    shapes = [(batch, size, 6), (batch,)]
    result: list[Tensor] = te.extern(
        shapes, [cls_prob, loc_pred, anchor], body, name="transform_loc", dtype=[dtype, "int32"]
    )
    return result


def _put(
    attrs: TransformLocAttrs,
    ins: list[Buffer],
    out: Buffer,
    at: tuple[Index, Index, Index],
    head: tuple[Index, Index],
) -> list[Stmt]:
    """Write class, score and ends of the box of anchor `at[1]` to row `at[2]`."""
    image, i, row = at
    dtype = out.dtype
    stores = [store(out, value, image, row, k) for k, value in enumerate(head)]
    for axis in range(2):
        low, high = load(ins[2], 0, i, axis), load(ins[2], 0, i, axis + 2)
        move, grow = (load(ins[1], image, T.add(T.mul(i, 4), axis + k)) for k in (0, 2))
        centre = move * T.const(attrs.variances[axis], dtype) * (high - low) + (low + high) / T.const(2, dtype)
        half = T.call("exp", grow * T.const(attrs.variances[axis + 2], dtype)) * (high - low) / T.const(2, dtype)
        for end, value in ((axis, centre - half), (axis + 2, centre + half)):
            inside = T.minimum(T.maximum(value, T.const(0, dtype)), T.const(1, dtype)) if attrs.clip else value
            stores.append(store(out, inside, image, row, end + 2))
    return stores


@transform_loc.samples
def _samples_loc() -> Iterator[Sample]:
    anchors = np.random.default_rng(0).uniform(0, 1, (1, 6, 4)).astype(np.float32)
    for attrs in (TransformLocAttrs(threshold=0.3), TransformLocAttrs(False, 0.2, keep_background=True)):
        yield Sample(attrs, (f32(2, 4, 6), f32(2, 24), anchors))
    scores = np.linspace(-2, 0.5, 48, dtype=np.float32).reshape(2, 4, 6)
    scores[1, 2] = np.nan
    for attrs in (TransformLocAttrs(threshold=-3.0), TransformLocAttrs(threshold=-3.0, keep_background=True)):
        yield Sample(attrs, (scores, f32(2, 24), anchors))


@transform_loc.bad_samples
def _bad_samples_loc() -> Iterator[BadSample]:
    yield BadSample(TransformLocAttrs(), (f32(2, 4, 6), f32(2, 20), f32(1, 6, 4)), "loc_pred has shape")
    yield BadSample(TransformLocAttrs(variances=(1.0,)), (f32(2, 4, 6), f32(2, 24), f32(1, 6, 4)), "must be 4 numbers")
