"""ONNX Conv and ConvTranspose: from auto_pad, pads and output_shape to nn.conv* and nn.conv*_transpose.

In: nodes of any opset (the meaning has not changed). Out: a convolution, plus nn.bias_add when there is a bias.
Invariant: paddings are never negative; SAME_UPPER and SAME_LOWER need the spatial sizes when importing.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import call, extent
from armillary.relay.expr import Expr
from armillary.relay.types import AnyDim

_FAR = 1 << 31  # beyond what counters of loops hold


def spatial_rank(node: OnnxNode) -> int:
    """The number of spatial axes of input 0; 1 to 3, else UnsupportedError."""
    rank = node.type_of(0).ndim - 2
    if rank not in (1, 2, 3):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: {rank} spatial axes; 1, 2 and 3 are supported")
    return rank


def same_pads(size: int, kernel: int, stride: int, dilation: int, lower: bool) -> tuple[int, int]:
    """The padding that makes ceil(size / stride) windows; an odd one goes to the end, or with `lower` to the front."""
    total = max(0, ((size + stride - 1) // stride - 1) * stride + extent(kernel, dilation) - size)
    small, big = total // 2, total - total // 2
    return (big, small) if lower else (small, big)


def window_attrs(node: OnnxNode, kernel: tuple[int, ...]) -> dict[str, object]:
    """strides, dilation and padding (all befores, then all afters) of a convolution or pooling node."""
    rank = len(kernel)
    strides = tuple(node.ints("strides") or (1,) * rank)
    dilation = tuple(node.ints("dilations") or (1,) * rank)
    pads = tuple(node.ints("pads") or (0,) * 2 * rank)
    mode = node.string("auto_pad", "NOTSET") or "NOTSET"
    if mode == "VALID":
        pads = (0,) * 2 * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = node.type_of(0).shape[2:]
        pairs = []
        for size, k, s, d in zip(sizes, kernel, strides, dilation, strict=True):
            if isinstance(size, AnyDim):
                raise UnsupportedError(
                    f"{node.op_type} node {node.name!r}: auto_pad={mode} needs the spatial sizes",
                    hint="pass shape= when importing",
                )
            pairs.append(same_pads(size, k, s, d, mode == "SAME_LOWER"))
        pads = tuple(b for b, _ in pairs) + tuple(a for _, a in pairs)
    elif mode != "NOTSET":
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: unknown auto_pad {mode!r}")
    if len(pads) != 2 * rank or len(strides) != rank or len(dilation) != rank:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: expected {rank} strides and dilations, {2 * rank} pads")
    apart = (d for d, k in zip(dilation, kernel, strict=True) if k > 1)
    far = next((v for v in (*kernel, *strides, *apart, *pads) if abs(v) >= _FAR), None)
    if far is not None:
        raise TypeMismatch(
            f"{node.op_type} node {node.name!r}: {far} as a size, stride, dilation or pad of a window",
            hint="these numbers lie below 2^31",
        )
    return {"strides": strides, "dilation": dilation, "padding": pads}


def _with_bias(node: OnnxNode, result: Expr) -> Expr:
    return result if node.missing(2) else call("nn.bias_add", result, node.input(2), axis=1)


@from_onnx("Conv")
def conv(node: OnnxNode) -> Expr:
    rank = spatial_rank(node)
    weight = node.type_of(1)
    if weight.ndim != rank + 2:
        raise TypeMismatch(f"Conv node {node.name!r}: data has {rank + 2} dimensions, the weight {weight.ndim}")
    kernel = weight.static[2:]
    declared = tuple(node.ints("kernel_shape") or kernel)
    if declared != kernel:
        raise TypeMismatch(f"Conv node {node.name!r}: kernel_shape is {declared}, the weight has {kernel}")
    attrs = window_attrs(node, kernel) | {"groups": node.int("group", 1), "channels": weight.static[0]}
    result = call(f"nn.conv{rank}d", node.input(0), node.input(1), kernel_size=kernel, **attrs)
    return _with_bias(node, result)


def _check_window(
    node: OnnxNode, kernel: tuple[int, ...], per_axis: dict[str, Sequence[int]], pads: Sequence[int], mode: str
) -> None:
    """Refuse attributes that do not fit the number of axes, and a kernel_shape that is not the weight's."""
    for name, values in {**per_axis, "kernel_shape": tuple(node.ints("kernel_shape") or kernel)}.items():
        if len(values) != len(kernel):
            message = f"{name} is {list(values)}, wanted {len(kernel)} numbers"
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: {message}")
    declared = tuple(node.ints("kernel_shape") or kernel)
    if declared != kernel:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: kernel_shape is {declared}, the weight has {kernel}")
    if len(pads) != 2 * len(kernel):
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: pads is {list(pads)}, wanted {2 * len(kernel)} numbers")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: unknown auto_pad {mode!r}")


@from_onnx("ConvTranspose")
def conv_transpose(node: OnnxNode) -> Expr:
    rank, groups = spatial_rank(node), node.int("group", 1)
    weight = node.type_of(1)
    kernel = weight.static[2:]
    strides = tuple(node.ints("strides") or (1,) * rank)
    dilation = tuple(node.ints("dilations") or (1,) * rank)
    extra = list(node.ints("output_padding") or (0,) * rank)
    pads = list(node.ints("pads") or (0,) * 2 * rank)
    mode, wanted = node.string("auto_pad", "NOTSET") or "NOTSET", node.ints("output_shape")
    _check_window(node, kernel, {"strides": strides, "dilations": dilation, "output_padding": extra}, pads, mode)
    if mode.startswith("SAME") or wanted:
        sizes = node.type_of(0).static[2:]
        target = tuple(wanted)[-rank:] if wanted else tuple(n * s for n, s in zip(sizes, strides, strict=True))
        for a in range(rank):
            span = (sizes[a] - 1) * strides[a] + extent(kernel[a], dilation[a])
            total = span + extra[a] - target[a]
            if total < 0:  # the window ends before the wanted size: zeros follow
                extra[a], total = extra[a] - total, 0
            # As the specification's formula: SAME_UPPER puts the odd one at the end, everything else at the front
            small, big = total // 2, total - total // 2
            pads[a], pads[rank + a] = (small, big) if mode == "SAME_UPPER" else (big, small)
    elif mode == "VALID":
        pads = [0] * 2 * rank
    result = call(
        f"nn.conv{rank}d_transpose",
        node.input(0),
        node.input(1),
        strides=strides,
        padding=tuple(pads),
        dilation=dilation,
        channels=weight.static[1] * groups,
        kernel_size=kernel,
        groups=groups,
        output_padding=tuple(extra),
    )
    return _with_bias(node, result)
