"""ONNX Pad, and what else moves elements to other places: DepthToSpace, SpaceToDepth.

In: nodes of any opset: pads and value are attributes before opset 11, inputs from then on. Out: nn.pad, behind a
strided_slice where pads are negative; nn.depth_to_space, nn.space_to_depth. Invariant: nn.pad gets no negative width.
"""

from __future__ import annotations

from armillary.base.extent import Known, bounds, most
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._iota import splat
from armillary.ops.nn._windows import axis_of, call, type_of
from armillary.relay.expr import Expr, Tuple
from armillary.relay.types import AnyDim


@from_onnx("Pad")
def from_onnx_pad(node: OnnxNode) -> Expr:
    """Pads and value are attributes before opset 11, inputs from then on; negative pads cut."""
    x, ndim = node.input(0), node.type_of(0).ndim
    mode = node.string("mode", "constant") or "constant"
    axes: tuple[int, ...] = tuple(range(ndim))
    if node.opset < 11:
        pads, value = list(node.ints("pads") or node.ints("paddings") or ()), node.float("value", 0.0)
    else:
        lengths = node.sizes(1, "pads")
        pads = [p for p in lengths if isinstance(p, int)]
        stated = node.optional_const(2, "constant_value")
        value = stated.reshape(-1)[0].item() if stated is not None and stated.size else 0
        chosen = node.optional_const(3, "axes")
        if chosen is not None:
            axes = tuple(axis_of("Pad", int(a), ndim) for a in chosen.reshape(-1))
        if len(pads) != len(lengths) and len(lengths) == 2 * len(axes) and mode == "constant":
            return _joined(x, axes, lengths, value)
    if len(pads) != 2 * len(axes):
        raise TypeMismatch(f"Pad node {node.name!r}: expected {2 * len(axes)} pads, got {len(pads)}")
    width = [(0, 0)] * ndim
    for n, axis in enumerate(axes):
        width[axis] = (pads[n], pads[n + len(axes)])
    for size, axis in zip(node.type_of(0).shape, range(ndim), strict=True):
        if not isinstance(size, AnyDim) and size + min(width[axis][0], 0) + min(width[axis][1], 0) < 0:
            message = f"pads {width[axis]} cut more from axis {axis} than its {size} elements"
            raise TypeMismatch(f"Pad node {node.name!r}: {message}")
    return _padded(_cut(x, width), [(max(b, 0), max(a, 0)) for b, a in width], value, mode)


def _joined(x: Expr, axes: tuple[int, ...], pads: tuple[Known, ...], value: float) -> Expr:
    """Borders whose lengths are sizes: one value, beside the data; what is negative cuts."""
    for n, axis in enumerate(axes):
        both = pads[n], pads[n + len(axes)]
        if any(bounds(pad)[0] < 0 for pad in both):
            begin, end = most(0 - both[0], 0), type_of(x).known[axis] - most(0 - both[1], 0)
            x = call("strided_slice", x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
        ty = type_of(x)
        ends = [(*ty.known[:axis], most(pad, 0), *ty.known[axis + 1 :]) for pad in both]
        before, after = (None if shape[axis] == 0 else splat(shape, value, ty.dtype) for shape in ends)
        parts = tuple(part for part in (before, x, after) if part is not None)
        x = call("concatenate", Tuple(parts), axis=axis) if len(parts) > 1 else x
    return x


def _cut(x: Expr, width: list[tuple[int, int]]) -> Expr:
    axes = tuple(n for n, (b, a) in enumerate(width) if b < 0 or a < 0)
    if not axes:
        return x
    shape = type_of(x).shape
    if any(isinstance(shape[a], AnyDim) for a in axes):
        raise UnsupportedError("Pad: a negative pad needs the size of its axis when importing", hint="pass shape=")
    begin = tuple(max(0, -width[a][0]) for a in axes)
    end = tuple(shape[a] - max(0, -width[a][1]) for a in axes)
    return call("strided_slice", x, begin=begin, end=end, strides=(1,) * len(axes), axes=axes)


def _padded(x: Expr, width: list[tuple[int, int]], value: float, mode: str) -> Expr:
    if not any(b or a for b, a in width):
        return x
    return call("nn.pad", x, pad_width=tuple(width), pad_value=value, pad_mode=mode)


@from_onnx("DepthToSpace")
def from_onnx_d2s(node: OnnxNode) -> Expr:
    mode = node.string("mode", "DCR") or "DCR"
    return call("nn.depth_to_space", node.input(0), block_size=node.int("blocksize"), mode=mode)


@from_onnx("SpaceToDepth")
def from_onnx_s2d(node: OnnxNode) -> Expr:
    mode = node.string("mode", "DCR") or "DCR"
    return call("nn.space_to_depth", node.input(0), block_size=node.int("blocksize"), mode=mode)
