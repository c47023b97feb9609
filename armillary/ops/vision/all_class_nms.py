"""vision.all_class_non_max_suppression: the best boxes of every class as one list.

In: boxes (batch, n, 4), scores (batch, classes, n), and three scalars: how many boxes of a class may stay, from which
overlap on a box goes, which score it must exceed. Out: of "onnx" rows (image, class, box), int64, best first in each
class, zeros behind them, and how many there are, (1,); of "tensorflow" for each image rows (class, box), the scores,
and how many. Invariant: shapes do not depend on what is found. Decomposed: `vision.suppress_overlaps`, and what stays
moved to the front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._iota import iota
from armillary.ops.nn._windows import call, f32, need_rank, need_tensor, type_of
from armillary.ops.vision.nms import SuppressAttrs, suppress_overlaps
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem, TupleWrapper, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

NAME = "vision.all_class_non_max_suppression"
_INPUTS = ("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold")


@record
class AllClassAttrs:
    """Which framework's results: "onnx" or "tensorflow"."""

    output_format: str = "onnx"


all_class = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="The best boxes of every class as one list.")
all_class.attrs(AllClassAttrs)


@all_class.infer
def _infer(attrs: AllClassAttrs, boxes: Type, scores: Type, most: Type, iou: Type, least: Type) -> TupleType:
    suppress_overlaps.infer_type(SuppressAttrs(1), [boxes, scores, iou, least])
    if not need_rank(NAME, most, 0, _INPUTS[2]).dtype.is_int:
        raise TypeMismatch(f"{NAME}: {_INPUTS[2]} is {most}, wanted an integer")
    if attrs.output_format not in ("onnx", "tensorflow"):
        raise TypeMismatch(f"{NAME}: output_format {attrs.output_format!r}, wanted 'onnx' or 'tensorflow'")
    places, score = DType("int64"), need_tensor(NAME, scores)
    batch, classes, size = score.shape
    if attrs.output_format == "onnx":
        return TupleType((TensorType((batch * classes * size, 3), places), TensorType((1,), places)))
    rows = (batch, classes * size)
    return TupleType((TensorType((*rows, 2), places), TensorType(rows, score.dtype), TensorType((batch,), places)))


def _limit(most: int, size: int) -> int:
    """How many boxes of a class may stay: all of them, of less than 0."""
    return size if most < 0 else min(most, size)


@all_class.reference
def _reference(attrs: AllClassAttrs, *inputs: Array) -> tuple[Array, ...]:
    boxes, scores, most, iou, least = inputs
    batch, classes, size = scores.shape
    chosen = suppress_overlaps.evaluate(SuppressAttrs(max(size, 1)), [boxes, scores, iou, least])
    chosen = np.asarray(chosen)[..., : _limit(int(most), size)]
    rows = np.argwhere(chosen >= 0)
    rows[:, 2] = chosen[chosen >= 0]
    if attrs.output_format == "onnx":
        behind = ((0, batch * classes * size - len(rows)), (0, 0))
        return np.pad(rows, behind).astype(np.int64), np.array([len(rows)], np.int64)
    places, scores_of = np.zeros((batch, classes * size, 2), np.int64), np.zeros((batch, classes * size), scores.dtype)
    counts = np.zeros(batch, np.int64)
    for b in range(batch):
        own = rows[rows[:, 0] == b, 1:]
        places[b, : len(own)], counts[b] = own, len(own)
        scores_of[b, : len(own)] = scores[b][own[:, 0], own[:, 1]]
    return places, scores_of, counts


@all_class.decompose
def _decompose(attrs: AllClassAttrs, boxes: Expr, scores: Expr, most: Expr, iou: Expr, least: Expr) -> Expr:
    batch, classes, size = type_of(scores).static
    room = _limit(int(most.data), size) if isinstance(most, Constant) else size
    picks = call(suppress_overlaps.name, boxes, scores, iou, least, most=max(room, 1))
    stays = call("greater_equal", picks, _i64(0))
    if not isinstance(most, Constant) or room == 0:
        rank, limit = iota(max(room, 1)), call("cast", most, dtype="int64")
        few = call("logical_or", call("less", rank, limit), call("less", limit, _i64(0)))
        stays = call("logical_and", stays, few)
    if attrs.output_format == "onnx":
        rows, total = _listed(picks, stays)
        return Tuple((_padded(rows, batch * classes * size), total))
    images = [_image(scores, picks, stays, b, classes * size) for b in range(batch)]
    columns: list[Expr] = [call("stack", Tuple(tuple(part)), axis=0) for part in list(zip(*images))[:2]]
    return Tuple((*columns, call("concatenate", Tuple(tuple(image[2] for image in images)), axis=0)))


def _image(scores: Expr, picks: Expr, stays: Expr, b: int, size: int) -> tuple[Expr, Expr, Expr]:
    """Classes and boxes, scores, and the count of one image."""
    rows, total = _listed(*(_one(x, b) for x in (picks, stays)))
    rows = _padded(call("strided_slice", rows, begin=(1,), end=(3,), strides=(1,), axes=(1,)), size)
    where = call("transpose", rows, axes=(1, 0))
    picked = call("gather_nd", call("squeeze", _one(scores, b), axis=(0,)), where)
    counted = call("less", iota(size), total)
    return rows, call("where", counted, picked, call("zeros_like", picked)), total


def _one(x: Expr, b: int) -> Expr:
    return call("strided_slice", x, begin=(b,), end=(b + 1,), strides=(1,), axes=(0,))


def _i64(values: object) -> Constant:
    return Constant(np.array(values, np.int64))


def _listed(picks: Expr, stays: Expr) -> tuple[Expr, Expr]:
    """Rows (image, class, box) of what stays, zeros behind them, and their number, (1,)."""
    listed = call("bounded_nonzero", stays)
    places, total = TupleGetItem(listed, 0), TupleGetItem(listed, 1)
    counted = call("less", iota(type_of(places).static[1]), total)
    box = call("where", counted, call("gather_nd", picks, places), _i64(0))
    head = [call("take", places, const(k, "int32"), axis=0) for k in range(2)]
    return call("stack", Tuple((*head, box)), axis=1), total


def _padded(rows: Expr, count: int) -> Expr:
    """The rows, with zeros behind them up to `count`."""
    have = type_of(rows).static[0]
    if have >= count:
        return call("strided_slice", rows, begin=(0,), end=(count,), strides=(1,), axes=(0,))
    return call("nn.pad", rows, pad_width=((0, count - have), (0, 0)))


@boundary(NAME, arguments=True)
def all_class_suppressed(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Expr | int = -1,
    iou_threshold: Expr | float = -1.0,
    score_threshold: Expr | float = -1.0,
    output_format: str = "onnx",
) -> TupleWrapper:
    """`relay.vision.all_class_non_max_suppression`: limits may be numbers."""
    limits: Sequence[Expr | float] = (max_output_boxes_per_class, iou_threshold, score_threshold)
    dtypes = ("int32", "float32", "float32")
    bounds = [x if isinstance(x, Expr) else const(x, dtype) for x, dtype in zip(limits, dtypes, strict=True)]
    return TupleWrapper(all_class(boxes, scores, *bounds, output_format=output_format), 2 + (output_format != "onnx"))


@all_class.samples
def _samples() -> Iterator[Sample]:
    rng = np.random.default_rng(0)
    low = rng.integers(0, 9, (2, 7, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 6, (2, 7, 2))], 2).astype(np.float32)
    scores = (rng.integers(0, 6, (2, 3, 7)) / 6).astype(np.float32)
    iou, least = np.array(0.3, np.float32), np.array(0.1, np.float32)
    for most in (-1, 2, 0):
        yield Sample(AllClassAttrs(), (boxes, scores, np.array(most, np.int32), iou, least))
    yield Sample(AllClassAttrs("tensorflow"), (boxes, scores, np.array(2, np.int64), iou, least))


@all_class.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    number, most = np.array(0.5, np.float32), np.array(1, np.int32)
    yield BadSample(AllClassAttrs("torch"), (f32(1, 7, 4), f32(1, 2, 7), most, number, number), "output_format 'torch'")
    yield BadSample(AllClassAttrs(), (f32(1, 7, 4), f32(1, 2, 7), number, number, number), "wanted an integer")
    yield BadSample(AllClassAttrs(), (f32(1, 7, 4), f32(1, 2, 8), most, number, number), "do not fit scores")
