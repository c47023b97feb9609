"""MXNet's layers: convolutions, pooling, normalisations, products, activations.

In: nodes with typed inputs. Out: Relay's operators. Invariant: inference only: dropout is nothing, statistics are the
stored ones; `layout` may name any that MXNet has for CPUs or GPUs.
"""

from __future__ import annotations

import math

from armillary.frontend.mxnet.node import MxnetNode, mxnet
from armillary.frontend.values import cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.ops.nn._windows import window_count
from armillary.relay.expr import Expr, TupleGetItem

_PLAIN = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {"NCW": "OIW", "NCHW": "OIHW", "NCDHW": "OIDHW", "NWC": "OWI", "NHWC": "OHWI", "NDHWC": "ODHWI"}


def _layout(node: MxnetNode, rank: int) -> str:
    result = node.text("layout", _PLAIN[rank])
    if result not in _KERNEL or len(result) != rank + 2:
        node.refuse(f"layout {result!r}", f"supported: {', '.join(name for name in _KERNEL if len(name) == rank + 2)}")
    return result


def _rank(node: MxnetNode) -> int:
    rank = len(node.shape) - 2
    return rank if rank in _PLAIN else node.refuse(f"data of {rank + 2} axes, wanted 3 to 5")


def _biased(node: MxnetNode, value: Expr, axis: int, is_without: bool = False) -> Expr:
    return value if node.flag("no_bias", is_without) else op("nn.bias_add", value, node.inputs[2], axis=axis)


@mxnet("Convolution", "Convolution_v1", "_npx_convolution")
def convolution(node: MxnetNode) -> Expr:
    rank = _rank(node)
    layout, ones = _layout(node, rank), (1,) * rank
    weight = node.inputs[1]
    kernel_layout = _KERNEL[layout]
    if layout[1] != "C":  # weights as Relay has them for this layout
        order = (*range(1, rank + 2), 0)
        weight, kernel_layout = op("transpose", weight, axes=order), layout[1:-1] + "IO"
    result = op(
        f"nn.conv{rank}d",
        node.x,
        weight,
        kernel_size=node.wholes("kernel"),
        channels=node.whole("num_filter"),
        strides=node.wholes("stride", ones) or ones,
        padding=node.wholes("pad", (0,) * rank) or (0,) * rank,
        dilation=node.wholes("dilate", ones) or ones,
        groups=node.whole("num_group", 1),
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    return _biased(node, result, layout.index("C"))


@mxnet("Deconvolution", "_npx_deconvolution")
def deconvolution(node: MxnetNode) -> Expr:
    rank = _rank(node)
    ones, zeros = (1,) * rank, (0,) * rank
    if _layout(node, rank) != _PLAIN[rank]:
        node.refuse(f"layout {node.text('layout')!r}", f"{_PLAIN[rank]} is supported")
    kernel, strides = node.wholes("kernel"), node.wholes("stride", ones) or ones
    dilation = node.wholes("dilate", ones) or ones
    padding, extra = node.wholes("pad", zeros) or zeros, node.wholes("adj", zeros) or zeros
    if any(node.wholes("target_shape", ())):
        node.refuse("target_shape", "pad and adj say the size")
    result = op(
        f"nn.conv{rank}d_transpose",
        node.x,
        node.inputs[1],
        kernel_size=kernel,
        channels=node.whole("num_filter"),
        strides=strides,
        padding=padding * 2,
        output_padding=extra,
        dilation=dilation,
        groups=node.whole("num_group", 1),
    )
    return _biased(node, result, 1, True)


@mxnet("Pooling", "Pooling_v1", "_npx_pooling")
def pooling(node: MxnetNode) -> Expr:
    rank = _rank(node)
    layout, kind = _layout(node, rank), node.one_of("pool_type", ("max", "avg", "sum"), "max")
    name = "max" if kind == "max" else "avg"
    axes = [k for k, letter in enumerate(layout) if letter not in "NC"]
    sizes = [node.shape[k] for k in axes]
    if node.flag("global_pool"):
        result = op(f"nn.global_{name}_pool{rank}d", node.x, layout=layout)
        return op("multiply", result, scalar(math.prod(sizes), dtype_of(result))) if kind == "sum" else result
    window, ones, zeros = node.wholes("kernel"), (1,) * rank, (0,) * rank
    strides, padding = node.wholes("stride", ones) or ones, node.wholes("pad", zeros) or zeros
    is_up = node.one_of("pooling_convention", ("valid", "full"), "valid") == "full"
    rows = list(zip(sizes, window, strides, padding, strict=True))
    if is_up and any(1 + -(-(n + 2 * p - k) // s) != window_count(n, (p, p), k, s, 1, True) for n, k, s, p in rows):
        node.refuse("a window that begins behind the image", "pooling_convention='valid'")
    attrs: dict[str, object] = {"pool_size": window, "strides": strides, "padding": padding * 2, "layout": layout}
    if kind == "max":
        return op(f"nn.max_pool{rank}d", node.x, ceil_mode=is_up, **attrs)
    counts = kind == "sum" or node.flag("count_include_pad", True)
    result = op(f"nn.avg_pool{rank}d", node.x, ceil_mode=is_up, count_include_pad=counts, **attrs)
    if kind == "avg":
        return result
    if is_up and any((n + 2 * p - k) % s for n, k, s, p in rows):
        node.refuse("sums of windows that leave the image", "pooling_convention='valid'")
    return op("multiply", result, scalar(math.prod(window), dtype_of(result)))


@mxnet("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling(node: MxnetNode) -> Expr:
    size = node.wholes("output_size", ()) or (1, 1)
    return op("nn.adaptive_avg_pool2d", node.x, output_size=size * 2 if len(size) == 1 else size)


@mxnet("FullyConnected", "_npx_fully_connected")
def fully_connected(node: MxnetNode) -> Expr:
    x, units = node.x, node.whole("num_hidden")
    lead: tuple[int, ...] = ()
    if node.flag("flatten", True):
        x = reshape_to(x, (node.shape[0], math.prod(node.shape[1:])))
    elif len(node.shape) != 2:
        lead = node.shape[:-1]
        x = reshape_to(x, (math.prod(lead), node.shape[-1]))
    result = _biased(node, op("nn.dense", x, node.inputs[1], units=units), -1)
    return reshape_to(result, (*lead, units)) if lead else result


@mxnet("Activation", "_npx_activation")
def activation(node: MxnetNode) -> Expr:
    kind, x = node.text("act_type"), node.x
    one = scalar(1, dtype_of(x))
    if kind in ("relu", "sigmoid", "tanh"):
        return op("nn.relu" if kind == "relu" else kind, x)
    if kind == "softrelu":
        return _softrelu(x)
    if kind == "softsign":
        return op("divide", x, op("add", op("abs", x), one))
    return node.refuse(f"act_type is {kind!r}", "supported: relu, sigmoid, tanh, softrelu, softsign")


def _softrelu(x: Expr) -> Expr:
    """log(1 + exp(x)), which does not leave the type."""
    small = op("exp", op("negative", op("abs", x)))
    return op("add", op("nn.relu", x), op("log", op("add", scalar(1, dtype_of(x)), small)))


@mxnet("LeakyReLU", "_npx_leaky_relu")
def leaky_relu(node: MxnetNode) -> Expr:
    kind, x = node.text("act_type", "leaky"), node.x
    dtype, slope = dtype_of(x), node.number("slope", 0.25)
    if kind == "leaky":
        return op("nn.leaky_relu", x, alpha=slope)
    if kind == "rrelu":  # its mean where nothing is random
        return op("nn.leaky_relu", x, alpha=(node.number("lower_bound", 0.125) + node.number("upper_bound", 0.334)) / 2)
    if kind == "prelu":
        return _prelu(node)
    if kind == "gelu":
        inner = op("erf", op("multiply", x, scalar(math.sqrt(0.5), dtype)))
        half = op("multiply", x, scalar(0.5, dtype))
        return op("multiply", half, op("add", inner, scalar(1, dtype)))
    if kind in ("elu", "selu"):
        alpha, scale = (1.6732632423543772, 1.0507009873554805) if kind == "selu" else (slope, 1.0)
        below = op("subtract", op("exp", op("minimum", x, scalar(0, dtype))), scalar(1, dtype))
        result = op("add", op("nn.relu", x), op("multiply", below, scalar(alpha, dtype)))
        return op("multiply", result, scalar(scale, dtype)) if scale != 1 else result
    return node.refuse(f"act_type is {kind!r}", "supported: leaky, prelu, elu, selu, gelu, rrelu")


def _prelu(node: MxnetNode) -> Expr:
    gamma, channels = node.inputs[1], node.shape[1]
    if shape_of(gamma) == (1,):
        gamma = op("broadcast_to", gamma, shape=(channels,))
    return op("nn.prelu", node.x, gamma, axis=1)


@mxnet("BatchNorm", "BatchNorm_v1", "_npx_batch_norm", "_contrib_SyncBatchNorm")
def batch_norm(node: MxnetNode) -> list[Expr]:
    data, gamma, beta, mean, variance = node.inputs
    epsilon, axis = node.number("eps", 1e-3), node.whole("axis", 1)
    has_scale = not node.flag("fix_gamma", True)  # a fixed one is 1, whatever the file says
    result = op(
        "nn.batch_norm", data, gamma, beta, mean, variance, axis=axis, epsilon=epsilon, center=True, scale=has_scale
    )
    return [TupleGetItem(result, 0), mean, variance]


@mxnet("InstanceNorm")
def instance_norm(node: MxnetNode) -> Expr:
    return op("nn.instance_norm", *node.inputs, epsilon=node.number("eps", 1e-3))


@mxnet("LayerNorm", "_npx_layer_norm")
def layer_norm(node: MxnetNode) -> Expr:
    return op("nn.layer_norm", *node.inputs, axis=node.whole("axis", -1), epsilon=node.number("eps", 1e-5))


@mxnet("GroupNorm")
def group_norm(node: MxnetNode) -> Expr:
    data, gamma, beta = node.inputs
    groups, channels = node.whole("num_groups", 1), node.shape[1]
    if shape_of(gamma) == (groups,) != (channels,):  # of a group, in old files
        gamma, beta = (op("repeat", side, repeats=channels // groups, axis=0) for side in (gamma, beta))
    return op("nn.group_norm", data, gamma, beta, num_groups=groups, epsilon=node.number("eps", 1e-5))


@mxnet("LRN")
def lrn(node: MxnetNode) -> Expr:
    attrs = {"alpha": node.number("alpha", 1e-4), "beta": node.number("beta", 0.75), "bias": node.number("knorm", 2.0)}
    return op("nn.lrn", node.x, size=node.whole("nsize"), axis=1, **attrs)


@mxnet("L2Normalization")
def l2_normalization(node: MxnetNode) -> Expr:
    mode, rank = node.one_of("mode", ("instance", "channel", "spatial"), "instance"), len(node.shape)
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}[mode]
    squares = op("sum", op("multiply", node.x, node.x), axis=tuple(axes), keepdims=True)
    return op("divide", node.x, op("sqrt", op("add", squares, scalar(node.number("eps", 1e-10), dtype_of(squares)))))


@mxnet("Dropout", "_npx_dropout", "IdentityAttachKLSparseReg")
def dropout(node: MxnetNode) -> Expr:
    return node.x


@mxnet("softmax", "log_softmax", "softmin", "_npx_softmax", "_npx_log_softmax")
def softmax(node: MxnetNode) -> Expr:
    x, heat = node.x, node.number("temperature", 1.0)
    if node.flag("use_length"):
        node.refuse("lengths of rows")
    if node.op == "softmin":
        x = op("negative", x)
    if heat != 1:
        x = op("divide", x, scalar(heat, dtype_of(x)))
    name = "nn.log_softmax" if "log" in node.op else "nn.softmax"
    result = op(name, x, axis=node.whole("axis", -1))
    return cast(result, node.text("dtype", dtype_of(result)))


@mxnet("SoftmaxActivation")
def softmax_activation(node: MxnetNode) -> Expr:
    if node.text("mode", "instance") == "channel":
        return op("nn.softmax", node.x, axis=1)
    flat = op("nn.softmax", reshape_to(node.x, (node.shape[0], math.prod(node.shape[1:]))), axis=-1)
    return reshape_to(flat, node.shape)


@mxnet("SoftmaxOutput", "Softmax")
def softmax_output(node: MxnetNode) -> Expr:
    if node.flag("preserve_shape"):
        return op("nn.softmax", node.x, axis=-1)
    if node.flag("multi_output"):
        return op("nn.softmax", node.x, axis=1)
    return softmax_activation(node)  # type: ignore[return-value]  # it has one result


@mxnet("LinearRegressionOutput", "MAERegressionOutput")
def regression_output(node: MxnetNode) -> Expr:
    return node.x


@mxnet("LogisticRegressionOutput")
def logistic_output(node: MxnetNode) -> Expr:
    return op("sigmoid", node.x)


@mxnet("UpSampling")
def upsampling(node: MxnetNode) -> Expr:
    if len(node.inputs) != 1 or node.one_of("sample_type", ("nearest", "bilinear")) != "nearest":
        node.refuse("upsampling of several tensors, or by weights", "_contrib_BilinearResize2D has no weights")
    scale = float(node.whole("scale"))
    return op("nn.upsampling", node.x, scale_h=scale, scale_w=scale)


@mxnet("_contrib_BilinearResize2D")
def bilinear_resize(node: MxnetNode) -> Expr:
    height, width = node.whole("height", 1), node.whole("width", 1)
    mode = node.one_of("mode", ("size", "odd_scale", "like"), "size")
    if mode == "like":
        height, width = shape_of(node.inputs[1])[2:]
    elif node.text("scale_height") or mode == "odd_scale":
        scales = (node.number("scale_height"), node.number("scale_width"))
        is_odd = mode == "odd_scale"
        height, width = (
            math.floor((n - 1) * s) + 1 if is_odd and n % 2 else math.floor(n * s)
            for n, s in zip(node.shape[2:], scales, strict=True)
        )
    rule = "align_corners" if node.flag("align_corners", True) else "half_pixel"
    return op(
        "image.resize2d",
        node.x,
        size=(height, width),
        layout="NCHW",
        method="linear",
        coordinate_transformation_mode=rule,
    )


@mxnet("Pad", "pad")
def pad(node: MxnetNode) -> Expr:
    flat, mode = node.wholes("pad_width"), node.one_of("mode", ("constant", "edge", "reflect"), "constant")
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    return op("nn.pad", node.x, pad_width=pairs, pad_value=node.number("constant_value", 0.0), pad_mode=mode)


@mxnet("_contrib_div_sqrt_dim")
def div_sqrt_dim(node: MxnetNode) -> Expr:
    return op("divide", node.x, scalar(math.sqrt(node.shape[-1]), dtype_of(node.x)))


def _heads(node: MxnetNode, x: Expr, parts: int) -> list[Expr]:
    """Interleaved projections (length, batch, heads * parts * depth) as `parts` of (batch * heads, length, depth)."""
    heads = node.whole("heads")
    length, batch, width = shape_of(x)
    depth = width // heads // parts
    split = reshape_to(x, (length, batch * heads, parts, depth))
    moved = op("transpose", split, axes=(2, 1, 0, 3))
    return [op("take", moved, scalar(k, "int32"), axis=0) for k in range(parts)]


@mxnet("_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_encdec_qk")
def attention_scores(node: MxnetNode) -> Expr:
    if node.op.endswith("selfatt_qk"):
        query, key, _ = _heads(node, node.x, 3)
    else:
        (query,), (key, _) = _heads(node, node.x, 1), _heads(node, node.inputs[1], 2)
    scaled = op("multiply", query, scalar(1 / math.sqrt(shape_of(query)[-1]), dtype_of(query)))
    return op("nn.batch_matmul", scaled, key)


@mxnet("_contrib_interleaved_matmul_selfatt_valatt", "_contrib_interleaved_matmul_encdec_valatt")
def attention_values(node: MxnetNode) -> Expr:
    parts = 3 if "selfatt" in node.op else 2
    value, weights = _heads(node, node.x, parts)[-1], node.inputs[1]
    result = op("nn.batch_matmul", weights, value, transpose_b=False)
    rows, length, depth = shape_of(result)
    heads = node.whole("heads")
    moved = op("transpose", reshape_to(result, (rows // heads, heads, length, depth)), axes=(2, 0, 1, 3))
    return reshape_to(moved, (length, rows // heads, heads * depth))


@mxnet("Correlation")
def correlation(node: MxnetNode) -> Expr:
    names = ("kernel_size", "max_displacement", "stride1", "stride2")
    attrs: dict[str, object] = {name: node.whole(name, 1) for name in names}
    padding, is_multiply = (node.whole("pad_size", 0),) * 2, node.flag("is_multiply", True)
    return op("nn.correlation", *node.inputs, padding=padding, is_multiply=is_multiply, **attrs)


@mxnet("_contrib_DeformableConvolution")
def deformable_convolution(node: MxnetNode) -> Expr:
    data, offset, weight = node.inputs[:3]
    result = op(
        "nn.deformable_conv2d",
        data,
        offset,
        weight,
        kernel_size=node.wholes("kernel"),
        channels=node.whole("num_filter"),
        strides=node.wholes("stride", (1, 1)) or (1, 1),
        padding=node.wholes("pad", (0, 0)) or (0, 0),
        dilation=node.wholes("dilate", (1, 1)) or (1, 1),
        groups=node.whole("num_group", 1),
        deformable_groups=node.whole("num_deformable_group", 1),
    )
    return result if node.flag("no_bias") else op("nn.bias_add", result, node.inputs[3], axis=1)
