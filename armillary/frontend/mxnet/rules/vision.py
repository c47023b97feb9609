"""MXNet's operators of detectors: boxes of a grid, their places, suppression, regions of images.

In: nodes with typed inputs. Out: Relay's operators of `vision`. Invariant: rows that are suppressed are -1 and lie
behind the others, where MXNet puts them.
"""

from __future__ import annotations

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.values import cast, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, TupleGetItem


@mxnet("_contrib_MultiBoxPrior")
def multibox_prior(node: MxnetNode) -> Expr:
    return op(
        "vision.multibox_prior",
        node.x,
        sizes=node.numbers("sizes", (1.0,)),
        ratios=node.numbers("ratios", (1.0,)),
        steps=node.numbers("steps", (-1.0, -1.0)),
        offsets=node.numbers("offsets", (0.5, 0.5)),
        clip=node.flag("clip"),
    )


@mxnet("_contrib_MultiBoxDetection")
def multibox_detection(node: MxnetNode) -> Expr:
    if node.whole("background_id", 0):
        node.refuse("a background that is not class 0")
    located = op(
        "vision.multibox_transform_loc",
        *node.inputs,
        clip=node.flag("clip", True),
        threshold=node.number("threshold", 0.01),
        variances=node.numbers("variances", (0.1, 0.1, 0.2, 0.2)),
    )
    return _suppressed(
        TupleGetItem(located, 0),
        TupleGetItem(located, 1),
        node.number("nms_threshold", 0.5),
        force_suppress=node.flag("force_suppress"),
        top_k=node.whole("nms_topk", -1),
    )


def _suppressed(boxes: Expr, counts: Expr, overlap: float, **attrs: object) -> Expr:
    batch, rows, _ = shape_of(boxes)
    places = op("broadcast_to", op("arange", start=0, stop=rows, dtype="int32"), shape=(batch, rows))
    return op(
        "vision.non_max_suppression",
        boxes,
        counts,
        places,
        scalar(-1, "int32"),
        scalar(overlap, "float32"),
        return_indices=False,
        invalid_to_bottom=True,
        **attrs,
    )


@mxnet("_contrib_box_nms", "_contrib_box_non_maximum_suppression")
def box_nms(node: MxnetNode) -> Expr:
    if node.text("in_format", "corner") != "corner" or node.text("out_format", "corner") != "corner":
        node.refuse("boxes by their centres", "in_format and out_format 'corner'")
    if node.whole("background_id", -1) != -1:
        node.refuse("a background class")
    *lead, rows, width = node.shape
    boxes = reshape_to(node.x, (-1 if not lead else _product(lead), rows, width))
    ids = {"id_index": node.whole("id_index", -1), "score_index": node.whole("score_index", 1)}
    valid = op("vision.get_valid_counts", boxes, scalar(node.number("valid_thresh", 0.0), "float32"), **ids)
    force = node.flag("force_suppress") or ids["id_index"] < 0
    coordinates = node.whole("coord_start", 2)
    result = _suppressed(
        TupleGetItem(valid, 1),
        TupleGetItem(valid, 0),
        node.number("overlap_thresh", 0.5),
        force_suppress=force,
        top_k=node.whole("topk", -1),
        coord_start=coordinates,
        **ids,
    )
    return reshape_to(result, node.shape)


def _product(sizes: list[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


@mxnet("ROIPooling")
def roi_pooling(node: MxnetNode) -> Expr:
    scale = node.number("spatial_scale")
    return op("vision.roi_pool", *node.inputs, pooled_size=node.wholes("pooled_size"), spatial_scale=scale)


@mxnet("_contrib_ROIAlign")
def roi_align(node: MxnetNode) -> Expr:
    if node.flag("position_sensitive"):
        node.refuse("regions that are sensitive to positions")
    return op(
        "vision.roi_align",
        *node.inputs,
        pooled_size=node.wholes("pooled_size"),
        spatial_scale=node.number("spatial_scale"),
        sample_ratio=node.whole("sample_ratio", -1),
        half_pixel=node.flag("aligned"),
    )


@mxnet("_contrib_box_iou")
def box_iou(node: MxnetNode) -> Expr:
    """Of all pairs; boxes by their corners."""
    if node.text("format", "corner") != "corner":
        node.refuse("boxes by their centres", "format='corner'")
    a, b = node.inputs
    (*lead, _), (*others, _) = shape_of(a), shape_of(b)
    a = reshape_to(cast(a, "float32"), (*lead, *(1 for _ in others), 4))
    corners = [[op("take", x, scalar(k, "int32"), axis=-1) for k in range(4)] for x in (a, b)]
    sides = []
    for k in (0, 1):
        low = op("maximum", corners[0][k], corners[1][k])
        high = op("minimum", corners[0][k + 2], corners[1][k + 2])
        sides.append(op("nn.relu", op("subtract", high, low)))
    shared = op("multiply", *sides)
    areas = [op("multiply", op("subtract", c[2], c[0]), op("subtract", c[3], c[1])) for c in corners]
    return op("divide", shared, op("subtract", op("add", *areas), shared))
