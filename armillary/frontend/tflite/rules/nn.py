"""TFLite's layers in real numbers: convolutions, products, pooling, normalisations, activations, images.

In: nodes with typed inputs, channels last. Out: Relay's operators. Invariant: a weight is turned into the layout of
Relay's operator by a transposition that the build folds.
"""

from __future__ import annotations

import math

from armillary.frontend import channels_last
from armillary.frontend.tflite.node import PADDINGS, TfliteNode, in_integers, tflite
from armillary.frontend.values import broadcast_sizes, op, reshape_to, shape_of
from armillary.relay.expr import Expr


def strides_of(node: TfliteNode) -> tuple[int, int]:
    """Strides down and across."""
    return node.whole("stride_h"), node.whole("stride_w")


def dilation_of(node: TfliteNode) -> tuple[int, int]:
    """Dilation down and across."""
    return node.whole("dilation_h"), node.whole("dilation_w")


def padding_of(node: TfliteNode) -> str:
    """SAME or VALID."""
    return node.one_of("padding", PADDINGS)


def _with_bias(node: TfliteNode, value: Expr, index: int = 2) -> Expr:
    return op("nn.bias_add", value, node.input(index), axis=-1) if node.has(index) else value


@tflite("CONV_2D", options="padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1")
def conv_2d(node: TfliteNode) -> Expr:
    kernel = op("transpose", node.input(1), axes=(1, 2, 3, 0))
    result = channels_last.conv(node.x, kernel, strides_of(node), padding_of(node), dilation_of(node))
    return node.activated(_with_bias(node, result))


@tflite(
    "DEPTHWISE_CONV_2D",
    options="padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 dilation_h:i=1",
)
def depthwise_conv_2d(node: TfliteNode) -> Expr:
    kernel = op("transpose", node.input(1), axes=(1, 2, 3, 0))
    result = channels_last.depthwise(node.x, kernel, strides_of(node), padding_of(node), dilation_of(node))
    return node.activated(_with_bias(node, result))


@tflite(
    "CONV_3D",
    options="padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 dilation_h:i=1",
)
def conv_3d(node: TfliteNode) -> Expr:
    strides, dilation = ((node.whole(f"{word}_d"), *each(node)) for word, each in _THREE)
    result = channels_last.conv(node.x, node.input(1), strides, padding_of(node), dilation)
    return node.activated(_with_bias(node, result))


_THREE = (("stride", strides_of), ("dilation", dilation_of))


@tflite("TRANSPOSE_CONV", options="padding:b stride_w:i stride_h:i activation:b")
def transpose_conv(node: TfliteNode) -> Expr:
    """The gradient of a convolution: the input 0 is its shape of data, 1 its weights (out, h, w, in), 2 the data."""
    size, x, kernel = node.wholes(0, "the shape of the result"), node.input(2), node.input(1)
    result = transposed_conv(node, x, kernel, size)
    return node.activated(_with_bias(node, result, 3))


def transposed_conv(node: TfliteNode, x: Expr, kernel: Expr, size: tuple[int, ...]) -> Expr:
    """A transposed convolution by the node's options."""
    weight = op("transpose", kernel, axes=(1, 2, 0, 3))
    return channels_last.transposed_conv(x, weight, size[1:3], strides_of(node), padding_of(node))


@tflite(
    "FULLY_CONNECTED",
    options="activation:b format:b keep_dims:?",
)
def fully_connected(node: TfliteNode) -> Expr:
    weight = node.input(1)
    if node.whole("format"):
        node.refuse("shuffled weights")
    units, width = shape_of(weight)
    flat = reshape_to(node.x, (math.prod(node.shape) // width, width))
    return node.activated(rows_as(node, _with_bias(node, op("nn.dense", flat, weight, units=units)), units))


def rows_as(node: TfliteNode, result: Expr, units: int) -> Expr:
    """The rows of a product in the shape that the options ask for."""
    return reshape_to(result, (*node.shape[:-1], units)) if node.option("keep_dims") else result


@tflite("BATCH_MATMUL", options="adj_x:? adj_y:?")
def batch_matmul(node: TfliteNode) -> Expr:
    sides = [swapped(node.input(k)) if node.option(name) else node.input(k) for k, name in ((0, "adj_x"), (1, "adj_y"))]
    return matrix_product(*sides)


def swapped(x: Expr) -> Expr:
    """Matrices, transposed."""
    rank = len(shape_of(x))
    return op("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def matrix_product(a: Expr, b: Expr) -> Expr:
    """Products of matrices whose leading axes broadcast."""
    left, right = shape_of(a), shape_of(b)
    if len(right) == 2:
        flat = reshape_to(a, (math.prod(left[:-1]), left[-1]))
        return reshape_to(op("nn.matmul", flat, b), (*left[:-1], right[-1]))
    (a, b), lead = batched(a, b)
    result = op("nn.batch_matmul", a, b, transpose_b=False)
    return reshape_to(result, (*lead, left[-2], right[-1]))


def batched(a: Expr, b: Expr) -> tuple[tuple[Expr, Expr], tuple[int, ...]]:
    """Matrices behind one axis each, in which their leading axes are, and the shape that those broadcast to."""
    lead = broadcast_sizes(shape_of(a)[:-2], shape_of(b)[:-2])
    spread = [op("broadcast_to", x, shape=(*lead, *shape_of(x)[-2:])) for x in (a, b)]
    first, second = (reshape_to(x, (math.prod(lead), *shape_of(x)[-2:])) for x in spread)
    return (first, second), lead


_POOL = "padding:b stride_w:i stride_h:i width:i height:i activation:b"


@tflite("AVERAGE_POOL_2D", options=_POOL)
def average_pool(node: TfliteNode) -> Expr:
    return node.activated(pooled(node, "avg", node.x))


@tflite("MAX_POOL_2D", options=_POOL)
def max_pool(node: TfliteNode) -> Expr:
    return node.activated(pooled(node, "max", node.x))


@tflite("L2_POOL_2D", options=_POOL)
def l2_pool(node: TfliteNode) -> Expr:
    return node.activated(op("sqrt", pooled(node, "avg", op("multiply", node.x, node.x))))


def pooled(node: TfliteNode, kind: str, x: Expr) -> Expr:
    """A pooling by the node's options."""
    return channels_last.pool(kind, x, (node.whole("height"), node.whole("width")), strides_of(node), padding_of(node))


@tflite("RESIZE_BILINEAR", options="height:i width:i align_corners:? half_pixel:?")
@tflite("RESIZE_NEAREST_NEIGHBOR", options="align_corners:? half_pixel:?")
@in_integers("RESIZE_NEAREST_NEIGHBOR")
def resize(node: TfliteNode) -> Expr:
    method = "linear" if node.op == "RESIZE_BILINEAR" else "nearest_neighbor"
    corners, centres = bool(node.option("align_corners")), bool(node.option("half_pixel"))
    return channels_last.resize(node.x, node.wholes(1, "the size"), method, corners, centres)


@tflite("SOFTMAX", options="beta:f")
def softmax(node: TfliteNode) -> Expr:
    beta = float(node.option("beta"))
    x = node.x if beta == 1 else op("multiply", node.x, node.number(beta))
    return op("nn.softmax", x, axis=-1)


@tflite("LOG_SOFTMAX")
def log_softmax(node: TfliteNode) -> Expr:
    return op("nn.log_softmax", node.x, axis=-1)


@tflite("L2_NORMALIZATION", options="activation:b")
def l2_normalization(node: TfliteNode) -> Expr:
    squares = op("sum", op("multiply", node.x, node.x), axis=(-1,), keepdims=True)
    norm = op("sqrt", op("maximum", squares, node.number(1e-12)))
    return node.activated(op("divide", node.x, norm))


@tflite("LOCAL_RESPONSE_NORMALIZATION", options="radius:i bias:f alpha:f beta:f")
def lrn(node: TfliteNode) -> Expr:
    size = 2 * node.whole("radius") + 1
    bias, alpha, beta = (float(node.option(name)) for name in ("bias", "alpha", "beta"))
    return op("nn.lrn", node.x, size=size, axis=len(node.shape) - 1, bias=bias, alpha=alpha * size, beta=beta)


@tflite("RELU")
def relu(node: TfliteNode) -> Expr:
    return op("nn.relu", node.x)


@tflite("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def clipped(node: TfliteNode) -> Expr:
    low, high = CLIPPED[node.op]
    return op("clip", node.x, a_min=low, a_max=high)


CLIPPED = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@tflite("LEAKY_RELU", options="alpha:f")
def leaky_relu(node: TfliteNode) -> Expr:
    return op("nn.leaky_relu", node.x, alpha=float(node.option("alpha")))


@tflite("PRELU")
def prelu(node: TfliteNode) -> Expr:
    below = op("multiply", op("minimum", node.x, node.number(0)), node.input(1))
    return op("add", op("nn.relu", node.x), below)


@tflite("ELU")
def elu(node: TfliteNode) -> Expr:
    below = op("subtract", op("exp", op("minimum", node.x, node.number(0))), node.number(1))
    return op("where", op("greater_equal", node.x, node.number(0)), node.x, below)


@tflite("HARD_SWISH")
def hard_swish(node: TfliteNode) -> Expr:
    gate = op("clip", op("add", node.x, node.number(3)), a_min=0.0, a_max=6.0)
    return op("multiply", op("multiply", node.x, gate), node.number(1 / 6))


@tflite("GELU", options="approximate:?")
def gelu(node: TfliteNode) -> Expr:
    return op("nn.gelu", node.x, approximate="tanh" if node.option("approximate") else "none")
