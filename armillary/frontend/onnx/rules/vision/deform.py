"""ONNX DeformConv: a convolution whose every tap reads where a tensor of offsets says.

In: data (N, C, H, W), weight (O, C/group, kh, kw), offsets (N, 2·g·kh·kw, oh, ow), optional bias and mask. Out:
(N, O, oh, ow): what ops/nn/deformable_conv2d.py makes of them. Invariant: with offsets of zero and no mask it is the
convolution.
"""

from __future__ import annotations

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import call
from armillary.ops.nn.deformable_conv2d import Taps, deformed
from armillary.relay.expr import Expr


def _ints(node: OnnxNode, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(v) for v in (node.ints(name, default=None) or default))


@from_onnx("DeformConv")
def deform_conv(node: OnnxNode) -> Expr:
    data, weight, offset = (node.type_of(k).static for k in range(3))
    if len(data) != 4:
        raise UnsupportedError(f"DeformConv node {node.name!r}: {len(data) - 2} spatial axes, only 2 are supported")
    taps, shared = weight[2] * weight[3], int(node.int("offset_group", 1))
    node.ints("kernel_shape", default=None)
    if data[1] % shared or offset[1] != 2 * shared * taps:
        raise TypeMismatch(f"DeformConv node {node.name!r}: offsets of shape {offset} for {taps} taps, {shared} groups")
    top, left, bottom, right = _ints(node, "pads", (0, 0, 0, 0))
    steps = [_ints(node, name, (1, 1)) for name in ("strides", "dilations")]
    where = Taps(steps[0], ((top, bottom), (left, right)), steps[1], shared)
    mask = None if node.missing(4) else node.input(4)
    result = deformed(node.input(0), node.input(2), node.input(1), where, int(node.int("group", 1)), mask)
    return result if node.missing(3) else call("nn.bias_add", result, node.input(3), axis=1)
