"""vision.proposal: regions that a region proposal network suggests.

In: cls_prob (N, 2A, H, W), scores of A anchors at each place behind those of the background; bbox_pred (N, 4A, H, W),
how each anchor moves and grows; im_info (N, 3): height, width and scale of each image. Out: (N * rpn_post_nms_top_n, 5)
rows (image, x1, y1, x2, y2), best first; where fewer stay they are repeated. Invariant: ends are inclusive, so a box
covers x2 - x1 + 1; boxes smaller than the least size, and places outside the image, count as score -1.
Decomposed: element by element, then `vision.suppress_overlaps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from armillary.base.record import record
from armillary.budgets import FOLDED_BYTES
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, f32, need_rank, need_shape, type_of
from armillary.ops.reduce.sort import numpy_argsort
from armillary.ops.vision.nms import suppress_overlaps
from armillary.relay.expr import Constant, Expr, Tuple, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "vision.proposal"
Value = TypeVar("Value", Array, Expr)


@record
class ProposalAttrs:
    """Anchors have `ratios` x `scales` forms at steps of `feature_stride`; `iou_loss`: predictions are distances."""

    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    threshold: float = 0.7
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    rpn_min_size: int = 16
    iou_loss: bool = False


_INPUTS = ("cls_prob", "bbox_pred", "im_info")
proposal = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Regions that a region proposal network suggests.")
proposal.attrs(ProposalAttrs)


@proposal.infer
def _infer(attrs: ProposalAttrs, cls_prob: Type, bbox_pred: Type, im_info: Type) -> TensorType:
    scores, moves = need_rank(NAME, cls_prob, 4, "cls_prob"), need_rank(NAME, bbox_pred, 4, "bbox_pred")
    info, anchors = need_rank(NAME, im_info, 2, "im_info"), len(attrs.scales) * len(attrs.ratios)
    for what, ty in zip(_INPUTS, (scores, moves, info), strict=True):
        if str(ty.dtype) != "float32":
            raise TypeMismatch(f"{NAME}: {what} is {ty}, wanted float32")
    batch, _, height, width = scores.shape
    need_shape(NAME, "cls_prob", scores, (batch, 2 * anchors, height, width))
    need_shape(NAME, "bbox_pred", moves, (batch, 4 * anchors, height, width))
    need_shape(NAME, "im_info", info, (batch, 3))
    if attrs.rpn_post_nms_top_n < 1 or attrs.feature_stride < 1 or anchors < 1:
        message = f"rpn_post_nms_top_n {attrs.rpn_post_nms_top_n}, feature_stride {attrs.feature_stride}"
        raise TypeMismatch(f"{NAME}: {message} and {anchors} anchors, wanted at least 1 of each")
    return TensorType((batch * attrs.rpn_post_nms_top_n, 5), scores.dtype)


def _anchors(attrs: ProposalAttrs, height: int, width: int) -> list[Array]:
    """x1, y1, x2 and y2 of the anchors, each (A, H, W)."""
    side = float(attrs.feature_stride)
    forms = []
    for ratio in attrs.ratios:
        for scale in attrs.scales:
            long = math.floor(math.sqrt(math.floor(side * side / ratio)) + 0.5)
            size = np.array([long * scale, math.floor(long * ratio + 0.5) * scale])
            forms.append(np.concatenate([(side - size) / 2, (side + size) / 2 - 1]))
    step = np.stack(np.meshgrid(np.arange(width), np.arange(height))) * side
    table = np.array(forms)[:, :, None, None] + np.concatenate([step, step])
    return [table[:, k].astype(np.float32) for k in range(4)]


def _boxes(exp: Callable[[Value], Value], anchor: Sequence[Value], move: Sequence[Value], is_iou: bool) -> list[Value]:
    """Where the predictions put the ends of the anchors."""
    x1, y1, x2, y2 = anchor
    if is_iou:
        return [a + m for a, m in zip(anchor, move, strict=True)]
    ends: list[list[Value]] = []
    for low, high, shift, growth in ((x1, x2, move[0], move[2]), (y1, y2, move[1], move[3])):
        extent = high - low + 1.0
        centre = shift * extent + (low + (extent - 1.0) * 0.5)
        half = (exp(growth) * extent - 1.0) * 0.5
        ends.append([centre - half, centre + half])
    return [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]


def _taken(attrs: ProposalAttrs, count: int) -> int:
    return min(attrs.rpn_pre_nms_top_n, count) if attrs.rpn_pre_nms_top_n > 0 else count


@proposal.reference
def _reference(attrs: ProposalAttrs, cls_prob: Array, bbox_pred: Array, im_info: Array) -> Array:
    batch, channels, height, width = cls_prob.shape
    anchors, post = channels // 2, attrs.rpn_post_nms_top_n
    moves = bbox_pred.reshape(batch, anchors, 4, height, width)
    out = np.zeros((batch, post, 5), np.float32)
    for b, (image_h, image_w, scale) in enumerate(im_info):
        ends = _boxes(np.exp, _anchors(attrs, height, width), [moves[b, :, k] for k in range(4)], attrs.iou_loss)
        ends = [np.clip(e, 0, limit - 1) for e, limit in zip(ends, (image_w, image_h) * 2, strict=True)]
        least = scale * np.float32(attrs.rpn_min_size)
        small = (ends[2] - ends[0] + 1 < least) | (ends[3] - ends[1] + 1 < least)
        grown = np.where(small, least / 2, 0)
        ends = [e + sign * grown for e, sign in zip(ends, (-1, -1, 1, 1), strict=True)]
        places = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        cells = [(s / np.float32(attrs.feature_stride)).astype(np.int32) for s in (image_h, image_w)]
        outside = [p >= count for p, count in zip(places, cells, strict=True)]
        score = np.where(small | outside[0] | outside[1], np.float32(-1), cls_prob[b, anchors:])
        table = np.stack(ends, -1).transpose(1, 2, 0, 3).reshape(-1, 4).astype(np.float32)
        order = numpy_argsort(score.transpose(1, 2, 0).reshape(-1), 0, False)[: _taken(attrs, len(table))]
        retained: list[int] = []
        for i in order:
            if len(retained) < post and not any(_overlap(table[i], table[k]) > attrs.threshold for k in retained):
                retained.append(int(i))
        out[b, :, 0] = b
        out[b, :, 1:] = table[np.resize(retained, post)]
    return out.reshape(-1, 5)


def _overlap(one: Array, other: Array) -> float:
    """Common area of both by that of both together; ends are inclusive, and in either order."""
    spans = [(np.minimum(e[:2], e[2:] + 1), np.maximum(e[:2], e[2:] + 1)) for e in (one, other)]
    common = np.prod(np.maximum(np.minimum(spans[0][1], spans[1][1]) - np.maximum(spans[0][0], spans[1][0]), 0))
    whole = sum(np.prod(high - low) for low, high in spans) - common
    return float(common / whole) if whole > 0 else 0.0


@proposal.decompose
def _decompose(attrs: ProposalAttrs, cls_prob: Expr, bbox_pred: Expr, im_info: Expr) -> Expr:
    batch, channels, height, width = type_of(cls_prob).static
    anchors, post = channels // 2, attrs.rpn_post_nms_top_n
    FOLDED_BYTES.check(64 * anchors * height * width + 12 * batch * post, NAME)  # with what is computed on the way
    table, score = _scored(attrs, cls_prob, bbox_pred, im_info)
    taken = _taken(attrs, anchors * height * width)
    order = call("topk", score, k=taken, axis=1, ret_type="indices", is_ascend=False, dtype="int32")
    best = call("gather", score, order, axis=1)
    rows = [_picked(table, order, b) for b in range(batch)]
    boxes = call("stack", Tuple(tuple(rows)), axis=0)
    wide = call("add", boxes, Constant(np.array([0, 0, 1, 1], np.float32)))
    limits = const(attrs.threshold, "float32"), const(0.0, "float32")
    alone = call("expand_dims", best, axis=1)
    picks = call(suppress_overlaps.name, wide, alone, *limits, most=post, has_least=False)
    picks = call("squeeze", picks, axis=(1,))
    counts = call("sum", call("cast", call("greater_equal", picks, const(0, "int64")), dtype="int64"), axis=(1,))
    counts = call("expand_dims", counts, axis=1)
    turns = call("floor_mod", Constant(np.tile(np.arange(post, dtype=np.int64), (batch, 1))), counts)
    chosen = call("gather", picks, turns, axis=1)
    images = Constant(np.repeat(np.arange(batch, dtype=np.float32), post)[:, None])
    joined = call("concatenate", Tuple(tuple(_picked(boxes, chosen, b) for b in range(batch))), axis=0)
    return call("concatenate", Tuple((images, joined)), axis=1)


def _picked(table: Expr, places: Expr, b: int) -> Expr:
    """Rows of one image."""
    number = const(b, "int32")
    return call("take", call("take", table, number, axis=0), call("take", places, number, axis=0), axis=0)


def _scored(attrs: ProposalAttrs, cls_prob: Expr, bbox_pred: Expr, im_info: Expr) -> tuple[Expr, Expr]:
    """All boxes (N, boxes, 4) and their scores (N, boxes), a place of the map after another."""
    batch, channels, height, width = type_of(cls_prob).static
    anchors = channels // 2
    info = [call("reshape", call("take", im_info, const(k, "int32"), axis=1), newshape=(-1, 1, 1, 1)) for k in range(3)]
    moves = call("reshape", bbox_pred, newshape=(batch, anchors, 4, height, width))
    move = [call("take", moves, const(k, "int32"), axis=2) for k in range(4)]
    anchor = [Constant(a) for a in _anchors(attrs, height, width)]
    ends = _boxes(lambda x: call("exp", x), anchor, move, attrs.iou_loss)
    ends = [
        call("maximum", call("minimum", e, info[1 - k % 2] - 1.0), const(0.0, "float32")) for k, e in enumerate(ends)
    ]
    least = info[2] * float(attrs.rpn_min_size)
    sizes = [ends[k + 2] - ends[k] + 1.0 for k in range(2)]
    small = call("logical_or", *(call("less", size, least) for size in sizes))
    grown = call("where", small, least * 0.5, const(0.0, "float32"))
    ends = [e - grown if k < 2 else e + grown for k, e in enumerate(ends)]
    gone = small
    for axis, (count, size) in enumerate(((height, info[0]), (width, info[1]))):
        place = np.arange(count, dtype=np.int32).reshape((1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1))
        real = call("cast", size / float(attrs.feature_stride), dtype="int32")
        gone = call("logical_or", gone, call("greater_equal", Constant(place), real))
    behind = call("strided_slice", cls_prob, begin=(anchors,), end=(channels,), strides=(1,), axes=(1,))
    score = call("where", gone, const(-1.0, "float32"), behind)
    table = call("stack", Tuple(tuple(ends)), axis=-1)
    flat = call("reshape", call("transpose", table, axes=(0, 2, 3, 1, 4)), newshape=(batch, -1, 4))
    return flat, call("reshape", call("transpose", score, axes=(0, 2, 3, 1)), newshape=(batch, -1))


@proposal.samples
def _samples() -> Iterator[Sample]:
    rng = np.random.default_rng(0)
    for batch, attrs in (
        (1, ProposalAttrs((0.5,), (0.5,), 16, 0.7, 200, 4)),
        (2, ProposalAttrs((1.0, 2.0), (0.5, 1.0), 8, 0.3, 20, 9, 6)),
        (1, ProposalAttrs((1.0,), (1.0, 2.0), 8, 0.5, -1, 3, 6, True)),
    ):
        anchors = len(attrs.scales) * len(attrs.ratios)
        scores = rng.permutation(batch * 2 * anchors * 20).reshape(batch, -1, 4, 5) / (batch * anchors * 40)
        moves = rng.uniform(-0.5, 0.5, (batch, 4 * anchors, 4, 5))
        size = np.array([[attrs.feature_stride * 4, attrs.feature_stride * 4.5, 1]] * batch)
        yield Sample(attrs, tuple(a.astype(np.float32) for a in (scores, moves, size)), rtol=1e-4, atol=1e-3)


@proposal.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    attrs = ProposalAttrs((1.0,), (1.0,))
    yield BadSample(attrs, (f32(1, 3, 4, 4), f32(1, 4, 4, 4), f32(1, 3)), "cls_prob has shape (1, 3, 4, 4)")
    yield BadSample(attrs, (f32(1, 2, 4, 4), f32(1, 4, 4, 4), f32(2, 3)), "im_info has shape (2, 3)")
