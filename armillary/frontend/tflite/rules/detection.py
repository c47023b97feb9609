"""TFLite_Detection_PostProcess, with which SSD networks of TensorFlow's detection API end.

In: encoded boxes (1, n, 4 or more), scores (1, n, classes), anchors (n, 4), in real numbers or bytes. Out: boxes
(1, most, 4) as ymin, xmin, ymax, xmax; classes and scores (1, most); how many there are (1,), all float32. Invariant:
boxes are decoded in float64 and rounded, as the interpreter's kernel does it; of equal scores the earlier box comes
first; rows behind the last one are zeros (the fast kernel leaves there what its memory held).
"""

from __future__ import annotations

import numpy as np

from armillary.frontend.tflite.flatbuffer import Flat, flexible_numbers
from armillary.frontend.tflite.node import TfliteNode, in_integers, real, tflite
from armillary.frontend.values import cast, is_float, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const

_DEFAULTS = {"detections_per_class": 100.0, "use_regular_nms": 0.0}
_NAME = "CUSTOM TFLite_Detection_PostProcess"


@tflite(_NAME)
@in_integers(_NAME)
def detections(node: TfliteNode) -> list[Expr]:
    options = _DEFAULTS | flexible_numbers(Flat(node.custom, node.op))
    encoded, scores, anchors = (_in_real_numbers(node, k) for k in range(3))
    classes, columns = int(options["num_classes"]), shape_of(scores)[2]
    if not 0 <= columns - classes <= 1 or shape_of(encoded)[0] != 1:
        node.refuse(f"{columns} columns of scores for {classes} classes, {shape_of(encoded)[0]} images")
    boxes = _decoded(encoded, anchors, [options[f"{name}_scale"] for name in "yxhw"])
    scores = op("strided_slice", scores, begin=(columns - classes,), end=(columns,), strides=(1,), axes=(2,))
    select = _by_class if options["use_regular_nms"] else _by_best_class
    return select(boxes, scores, options)


def _in_real_numbers(node: TfliteNode, index: int) -> Expr:
    x, tensor = node.input(index), node.read(index)
    return x if is_float(x) or not tensor.is_quantised else real(x, tensor)


def _decoded(encoded: Expr, anchors: Expr, scales: list[float]) -> Expr:
    """Corners of boxes, (1, n, 4)."""
    wide = cast(op("strided_slice", encoded, begin=(0,), end=(4,), strides=(1,), axes=(2,)), "float64")
    wide = op("divide", wide, const(np.array(scales, np.float32).astype(np.float64)))
    ends = cast(anchors, "float64")
    (offset, size), (centre, whole) = (
        [op("strided_slice", x, begin=(k,), end=(k + 2,), strides=(1,), axes=(axis,)) for k in (0, 2)]
        for x, axis in ((wide, 2), (ends, 1))
    )
    middle = cast(op("add", op("multiply", offset, whole), centre), "float32")
    half = cast(op("multiply", op("multiply", scalar(0.5, "float64"), op("exp", size)), whole), "float32")
    return op("concatenate", Tuple((op("subtract", middle, half), op("add", middle, half))), axis=2)


def _limits(options: dict[str, float]) -> tuple[Expr, Expr]:
    """The largest overlap that stays, and what scores exceed who are not below the least one."""
    below = np.nextafter(np.float32(options["nms_score_threshold"]), np.float32(-np.inf))
    return scalar(options["nms_iou_threshold"], "float32"), const(below)


def _by_best_class(boxes: Expr, scores: Expr, options: dict[str, float]) -> list[Expr]:
    """Boxes are suppressed by their best scores; each that stays gives rows of its best classes."""
    most, classes = int(options["max_detections"]), shape_of(scores)[2]
    columns = int(options["max_classes_per_detection"])
    ranked = op("topk", scores, k=min(columns, classes), axis=-1, ret_type="both", dtype="int32")
    values: Expr = TupleGetItem(ranked, 0)
    labels: Expr = cast(TupleGetItem(ranked, 1), "float32")
    best = op("expand_dims", op("max", scores, axis=(2,)), axis=1)
    picks = reshape_to(op("vision.suppress_overlaps", boxes, best, *_limits(options), most=most), (most,))
    stays = op("greater_equal", picks, scalar(0, "int64"))
    rows = op("maximum", picks, scalar(0, "int64"))
    taken = [op("take", x, rows, axis=1) for x in (boxes, labels, values)]
    corners, labels, values = (_where(stays, x) for x in taken)
    lacking = columns - min(columns, classes)
    labels, values = (op("nn.pad", x, pad_width=((0, 0), (0, 0), (0, lacking))) for x in (labels, values))
    corners = op("repeat", corners, repeats=columns, axis=1)
    if lacking:
        used = np.arange(most * columns) % columns < classes
        corners = _where(const(used), corners)
    return [corners, *(reshape_to(x, (1, most * columns)) for x in (labels, values)), _count(stays)]


def _by_class(boxes: Expr, scores: Expr, options: dict[str, float]) -> list[Expr]:
    """Boxes are suppressed in each class alone; the best of all classes are listed."""
    most, each = int(options["max_detections"]), int(options["detections_per_class"])
    _, count, classes = shape_of(scores)
    by_class = op("transpose", scores, axes=(0, 2, 1))
    each = min(each, count)
    picks = reshape_to(op("vision.suppress_overlaps", boxes, by_class, *_limits(options), most=each), (classes, each))
    stays = op("greater_equal", picks, scalar(0, "int64"))
    rows = op("maximum", picks, scalar(0, "int64"))
    values = op("take", reshape_to(by_class, (classes, count)), rows, axis=1, batch_dims=1)
    values = op("where", stays, values, scalar(-np.inf, "float32"))
    room = min(most, classes * each)
    best = op("topk", reshape_to(values, (classes * each,)), k=room, axis=0, ret_type="both", dtype="int64")
    values, places = TupleGetItem(best, 0), TupleGetItem(best, 1)
    stays = op("greater", values, scalar(-np.inf, "float32"))
    labels = cast(op("floor_divide", places, scalar(each, "int64")), "float32")
    corners = op("take", boxes, op("take", reshape_to(rows, (classes * each,)), places, axis=0), axis=1)
    columns = [_where(stays, x) for x in (corners, *(op("expand_dims", x, axis=0) for x in (labels, values)))]
    behind = ((0, 0), (0, most - room))
    widths = (*behind, (0, 0)), behind, behind
    return [*(op("nn.pad", x, pad_width=w) for x, w in zip(columns, widths, strict=True)), _count(stays)]


def _where(stays: Expr, rows: Expr) -> Expr:
    """Rows along axis 1, those that do not stay as zeros."""
    shape = (1, -1) if len(shape_of(rows)) == 2 else (1, -1, 1)
    return op("where", op("reshape", stays, newshape=shape), rows, scalar(0, "float32"))


def _count(stays: Expr) -> Expr:
    return reshape_to(op("sum", cast(stays, "float32"), axis=(0,)), (1,))
