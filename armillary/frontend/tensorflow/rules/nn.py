"""TensorFlow's layers: convolutions, products, pooling, normalisations, activations, images.

In: nodes with typed inputs, channels last. Out: Relay's operators. Invariant: channels first are refused.
"""

from __future__ import annotations

import numpy as np

from armillary.frontend import channels_last
from armillary.frontend.tensorflow.node import TensorflowNode, tensorflow
from armillary.frontend.tflite.rules.nn import matrix_product, swapped
from armillary.frontend.values import dtype_of, op, shape_of
from armillary.relay.expr import Expr, TupleGetItem, const


def _spatial(node: TensorflowNode, name: str, rank: int = 2) -> tuple[int, ...]:
    """The inner numbers of an attribute that has one for each axis of the data."""
    numbers = node.wholes(name, (1,) * (rank + 2))
    return numbers[1 : rank + 1]


def _padding(node: TensorflowNode) -> str | channels_last.Pairs:
    if node.text("data_format", "NHWC") not in ("NHWC", "NDHWC"):
        node.refuse("channels first", "export the graph for a CPU, with channels last")
    word = node.text("padding", "VALID")
    if word != "EXPLICIT":
        return word
    flat = node.wholes("explicit_paddings")
    return list(zip(flat[::2], flat[1::2], strict=True))[1:-1]


@tensorflow("Conv2D", "Conv3D")
def conv(node: TensorflowNode) -> Expr:
    rank, padding = len(node.shape) - 2, _padding(node)
    strides, dilation = _spatial(node, "strides", rank), _spatial(node, "dilations", rank)
    return channels_last.conv(node.x, node.inputs[1], strides, padding, dilation)


@tensorflow("DepthwiseConv2dNative")
def depthwise(node: TensorflowNode) -> Expr:
    height, width, channels, factor = shape_of(node.inputs[1])
    kernel = op("reshape", node.inputs[1], newshape=(height, width, channels * factor, 1))
    strides, dilation = _spatial(node, "strides"), _spatial(node, "dilations")
    return channels_last.depthwise(node.x, kernel, strides, _padding(node), dilation)


@tensorflow("Conv2DBackpropInput")
def transposed_conv(node: TensorflowNode) -> Expr:
    size, padding = node.numbers(0, "the shape of the result"), _padding(node)
    if not isinstance(padding, str):
        node.refuse("explicit paddings")
    return channels_last.transposed_conv(node.inputs[2], node.inputs[1], size[1:3], _spatial(node, "strides"), padding)


@tensorflow("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(node: TensorflowNode) -> Expr:
    rank, padding = len(node.shape) - 2, _padding(node)
    kind = "max" if node.op.startswith("Max") else "avg"
    return channels_last.pool(kind, node.x, _spatial(node, "ksize", rank), _spatial(node, "strides", rank), padding)


@tensorflow("BiasAdd", "BiasAddV1")
def bias_add(node: TensorflowNode) -> Expr:
    if node.text("data_format", "NHWC") != "NHWC":
        node.refuse("channels first")
    return op("nn.bias_add", node.x, node.inputs[1], axis=-1)


@tensorflow("MatMul")
def matmul(node: TensorflowNode) -> Expr:
    sides = {"transpose_a": node.flag("transpose_a"), "transpose_b": node.flag("transpose_b")}
    return op("nn.matmul", node.x, node.inputs[1], **sides)


@tensorflow("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(node: TensorflowNode) -> Expr:
    rows = zip(node.inputs, ("adj_x", "adj_y"), strict=True)
    return matrix_product(*(swapped(x) if node.flag(name) else x for x, name in rows))


@tensorflow("Einsum")
def einsum(node: TensorflowNode) -> Expr:
    return op("einsum", *node.inputs, equation=node.text("equation", ""))


@tensorflow("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(node: TensorflowNode) -> list[Expr]:
    if node.attrs.get("is_training", True) or node.text("data_format", "NHWC") != "NHWC":
        node.refuse("training, or channels first", "export the graph for inference")
    result = op("nn.batch_norm", *node.inputs, axis=-1, epsilon=node.real("epsilon", 1e-4))
    return [TupleGetItem(result, 0), node.inputs[3], node.inputs[4]]


@tensorflow("Softmax", "LogSoftmax")
def softmax(node: TensorflowNode) -> Expr:
    return op("nn.softmax" if node.op == "Softmax" else "nn.log_softmax", node.x, axis=-1)


@tensorflow("Relu")
def relu(node: TensorflowNode) -> Expr:
    return op("nn.relu", node.x)


@tensorflow("Relu6")
def relu6(node: TensorflowNode) -> Expr:
    return op("clip", node.x, a_min=0.0, a_max=6.0)


@tensorflow("LeakyRelu")
def leaky_relu(node: TensorflowNode) -> Expr:
    return op("nn.leaky_relu", node.x, alpha=node.real("alpha", 0.2))


@tensorflow("Elu", "Selu")
def elu(node: TensorflowNode) -> Expr:
    slope, scale = (1.6732632423543772, 1.0507009873554805) if node.op == "Selu" else (1.0, 1.0)
    below = op("subtract", op("exp", op("minimum", node.x, node.number(0))), node.number(1))
    result = op("add", op("nn.relu", node.x), op("multiply", below, node.number(slope)))
    return op("multiply", result, node.number(scale)) if scale != 1 else result


@tensorflow("Softplus")
def softplus(node: TensorflowNode) -> Expr:
    small = op("exp", op("negative", op("abs", node.x)))
    return op("add", op("nn.relu", node.x), op("log", op("add", small, node.number(1))))


@tensorflow("Softsign")
def softsign(node: TensorflowNode) -> Expr:
    return op("divide", node.x, op("add", op("abs", node.x), node.number(1)))


@tensorflow("LRN")
def lrn(node: TensorflowNode) -> Expr:
    size = 2 * node.whole("depth_radius", 5) + 1
    bias, alpha, beta = (node.real(name, default) for name, default in (("bias", 1.0), ("alpha", 1.0), ("beta", 0.5)))
    return op("nn.lrn", node.x, size=size, axis=3, bias=bias, alpha=alpha * size, beta=beta)


@tensorflow("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic")
def resize(node: TensorflowNode) -> Expr:
    methods = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest_neighbor", "ResizeBicubic": "cubic"}
    corners, centres = node.flag("align_corners"), node.flag("half_pixel_centers")
    if node.op == "ResizeBicubic":
        node.refuse("bicubic images", "bilinear and nearest ones are known")
    return channels_last.resize(node.x, node.numbers(1, "the size"), methods[node.op], corners, centres)


@tensorflow("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars")
def fake_quant(node: TensorflowNode) -> Expr:
    """Real numbers as rounded as integers of some bits would be."""
    if node.op.endswith("Vars"):
        low, high = (float(node.value(k, "a limit").reshape(())) for k in (1, 2))
    else:
        low, high = node.real("min", -6.0), node.real("max", 6.0)
    least, most = int(node.flag("narrow_range")), (1 << node.whole("num_bits", 8)) - 1
    scale = (high - low) / (most - least)
    shift = min(max(round(least - low / scale), least), most)
    x = op("clip", node.x, a_min=(least - shift) * scale, a_max=(most - shift) * scale)
    step = const(np.array(scale, dtype_of(node.x)))
    steps = op(
        "floor",
        op("add", op("divide", op("subtract", x, node.number((least - shift) * scale)), step), node.number(0.5)),
    )
    return op("add", op("multiply", steps, step), node.number((least - shift) * scale))
