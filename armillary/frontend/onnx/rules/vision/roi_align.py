"""ONNX RoiAlign: regions and the images they lie in become one matrix of five columns.

In: nodes from opset 10 on. Out: vision.roi_align. Invariant: the number of an image is checked against the batch.
"""

from __future__ import annotations

from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.ops.elementwise.cast import cast
from armillary.ops.shape.shape import expand_dims
from armillary.ops.shape.transform import concatenate
from armillary.ops.vision.roi_align import roi_align
from armillary.relay.expr import Expr


@from_onnx("RoiAlign", since=10)
def from_onnx_roi_align(node: OnnxNode) -> Expr:
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    half = (node.string("coordinate_transformation_mode", default) or default) == "half_pixel"
    mode = str(node.string("mode", "avg"))
    size = (int(node.int("output_height", 1)), int(node.int("output_width", 1)))
    images = node.type_of(0).known[0]
    image = checked(node, 2, [(0, images - 1)], "batch index", node.type_of(0).typical_size)
    image = cast(expand_dims(image, 1), str(node.type_of(1).dtype))
    return roi_align(
        node.input(0),
        concatenate((image, node.input(1)), 1),
        pooled_size=size,
        half_pixel=half,
        spatial_scale=float(node.float("spatial_scale", 1.0)),
        sample_ratio=int(node.int("sampling_ratio", 0)),
        mode={"max": "max_corners", "max_corners": ""}.get(mode, mode),  # an empty one is refused
    )
