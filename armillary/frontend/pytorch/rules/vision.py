"""torchvision's own operators: suppression of overlapping boxes, regions of feature maps.

In: boxes as corners, scores, regions whose first column is the number of their image. Out: vision.suppress_overlaps,
cut to as many boxes as the data say, vision.roi_align, vision.roi_pool. Invariant: an overlap is compared as
torchvision does, common / whole > threshold; of equal scores the earlier box stays.
"""

from __future__ import annotations

import math

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr


@aten("nms", namespace="torchvision")
def suppressed(call: AtenCall, boxes: Expr, scores: Expr, threshold: float) -> Expr:
    """The numbers of the boxes that stay, best first."""
    (count,) = shape_of(scores)
    rows = reshape_to(cast(boxes, "float32"), (1, count, 4)), reshape_to(cast(scores, "float32"), (1, 1, count))
    limits = scalar(threshold, "float32"), scalar(-math.inf, "float32")
    numbers = reshape_to(op("vision.suppress_overlaps", *rows, *limits, most=count, has_least=False), (count,))
    here = op("greater_equal", numbers, scalar(0, "int64"))
    return call.folder.data_sizes.cut(numbers, 0, op("sum", cast(here, "int64"), axis=(0,)), "nms")


@aten("roi_align", namespace="torchvision")
def roi_align(
    call: AtenCall, x: Expr, rois: Expr, scale: float, height: int, width: int, samples: int, is_aligned: bool
) -> Expr:
    return op(
        "vision.roi_align",
        x,
        cast(rois, dtype_of(x)),
        pooled_size=(height, width),
        spatial_scale=float(scale),
        sample_ratio=samples,
        half_pixel=is_aligned,
    )


@aten("roi_pool", namespace="torchvision")
def roi_pool(call: AtenCall, x: Expr, rois: Expr, scale: float, height: int, width: int) -> list[Expr]:
    """The maxima; where they lie, which only derivatives read, is left as zeros."""
    size = {"pooled_size": (height, width), "spatial_scale": float(scale)}
    result = op("vision.roi_pool", x, cast(rois, dtype_of(x)), **size)
    return [result, op("zeros", shape=shape_of(result), dtype="int32")]
