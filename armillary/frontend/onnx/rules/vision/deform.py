"""ONNX DeformConv: a convolution whose every tap reads where a tensor of offsets says.

In: data (N, C, H, W), weight (O, C/group, kh, kw), offsets (N, 2·g·kh·kw, oh, ow), optional bias and mask. Out:
(N, O, oh, ow). The taps are read by image.grid_sample (bilinear, zeros outside), then a batched product over channels
and taps. Invariant: with offsets of zero and no mask it is the convolution.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import call, reshape_to
from armillary.relay.expr import Expr, const


def _pair(node: OnnxNode, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(v) for v in (node.ints(name, default=None) or default))


@from_onnx("DeformConv")
def deform_conv(node: OnnxNode) -> Expr:
    data, weight, offset = (node.type_of(k).static for k in range(3))
    if len(data) != 4:
        raise UnsupportedError(f"DeformConv node {node.name!r}: {len(data) - 2} spatial axes, only 2 are supported")
    (n, c, h, w), (units, _, kh, kw) = data, weight
    groups, shared = int(node.int("group", 1)), int(node.int("offset_group", 1))
    taps, (oh, ow) = kh * kw, offset[2:]
    node.ints("kernel_shape", default=None)
    if c % shared or offset[1] != 2 * shared * taps:
        raise TypeMismatch(f"DeformConv node {node.name!r}: offsets of shape {offset} for {taps} taps, {shared} groups")
    places = _places(node, (n, shared, kh, kw, oh, ow), (_even(h), _even(w)))
    x = call("nn.pad", node.input(0), pad_width=((0, 0), (0, 0), (0, _even(h) - h), (0, _even(w) - w)))
    x = reshape_to(x, (n * shared, c // shared, _even(h), _even(w)))
    read = call(
        "image.grid_sample", x, places, method="bilinear", padding_mode="zeros", align_corners=False, grid_axis=-1
    )
    read = reshape_to(read, (n, shared, c // shared, taps, oh * ow))
    if not node.missing(4):
        mask = reshape_to(node.input(4), (n, shared, 1, taps, oh * ow))
        read = read * mask
    columns = reshape_to(read, (n, groups, c // groups * taps, oh * ow))
    filters = reshape_to(node.input(1), (groups, units // groups, c // groups * taps))
    spread = call("broadcast_to", filters, shape=(n, groups, units // groups, c // groups * taps))
    product = call(
        "nn.batch_matmul",
        reshape_to(spread, (n * groups, units // groups, c // groups * taps)),
        reshape_to(columns, (n * groups, c // groups * taps, oh * ow)),
        transpose_b=False,
    )
    result = reshape_to(product, (n, units, oh, ow))
    return result if node.missing(3) else call("nn.bias_add", result, node.input(3), axis=1)


def _even(size: int) -> int:
    """A power of two: places in units of it keep their digits. What is added is zero, as everything outside is."""
    return 1 << (size - 1).bit_length()


def _places(node: OnnxNode, sizes: tuple[int, ...], image: tuple[int, int]) -> Expr:
    """Where each tap reads, for image.grid_sample: (n·g, 1, taps·oh·ow, 2), x before y, -1 to 1 edge to edge."""
    n, shared, kh, kw, oh, ow = sizes
    stride, dilation = _pair(node, "strides", (1, 1)), _pair(node, "dilations", (1, 1))
    pads = _pair(node, "pads", (0, 0, 0, 0))
    moved = reshape_to(node.input(2), (n * shared, kh * kw, 2, oh, ow))
    axes = []
    for axis, (outer, kernel) in enumerate(((oh, kh), (ow, kw))):
        at = np.arange(outer)[None, :] * stride[axis] + np.arange(kernel)[:, None] * dilation[axis] - pads[axis]
        grid = at[:, None, :, None] if axis == 0 else at[None, :, None, :]
        base = np.broadcast_to(grid, (kh, kw, oh, ow)).reshape(1, kh * kw, oh, ow)
        place = call("take", moved, const(np.array(axis, np.int64)), axis=2)
        place = place + const(np.ascontiguousarray(base).astype(np.float32))
        axes.append((place * 2.0 + 1.0) * (1.0 / image[axis]) - 1.0)
    both = call("stack", (axes[1], axes[0]), axis=-1)
    return reshape_to(both, (n * shared, 1, kh * kw * oh * ow, 2))
