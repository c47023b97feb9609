"""Networks in bytes: MobileNet v1 as TFLite's quantised model has it, and a ResNet of bottlenecks as ONNX's have them.

In: an input of bytes, sizes. Out: the probabilities, or the last layer's sums. Invariant: values keep a spread of some
tens of steps in every layer, so a comparison compares something. MobileNet: NHWC, uint8, one scale for each tensor. The
ResNet: NCHW, int8, a scale for each channel of weights, sums of bytes by qnn.add.
"""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.relay.expr import Expr, const

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1))
SCALE, ZERO, WEIGHT_SCALE, WEIGHT_ZERO = np.float32(0.05), 128, np.float32(0.02), 128


def _requantized(y: Expr, terms: int) -> Expr:
    """Divide so that the sum of that many products of values of equal spread has that spread again."""
    out = np.float32(WEIGHT_SCALE * SCALE * 40 * np.sqrt(terms) * 0.9)
    scale, step = const(np.float32(SCALE * WEIGHT_SCALE)), const(out)
    y = relay.qnn.requantize(y, scale, const(np.int32(0)), step, const(np.int32(ZERO)), out_dtype="uint8")
    return y


class Network:
    """Layers with random weights; the scale of values is `SCALE` by convention, since only ratios matter."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(41)

    def weight(self, shape: tuple[int, ...]) -> Expr:
        values = self.random.normal(WEIGHT_ZERO, 40, shape)
        return const(np.clip(np.round(values), 0, 255).astype("uint8"))

    def numbers(self) -> tuple[Expr, ...]:
        return const(np.int32(ZERO)), const(np.int32(WEIGHT_ZERO)), const(SCALE), const(WEIGHT_SCALE)

    def conv(self, x: Expr, kernel: int, stride: int, channels: int, groups: int = 1) -> Expr:
        inner = int(x.checked_type.shape[3])
        per_group = inner // groups
        shape = (kernel, kernel, inner, 1) if groups > 1 else (kernel, kernel, inner, channels)
        pad = (kernel - 1) // 2
        y = relay.qnn.conv2d(
            x,
            self.weight(shape),
            *self.numbers(),
            kernel_size=(kernel, kernel),
            channels=channels,
            groups=groups,
            strides=(stride, stride),
            padding=(pad, pad, pad, pad),
            data_layout="NHWC",
            out_dtype="int32",
            kernel_layout="HWOI" if groups > 1 else "HWIO",
        )
        bias = const(self.random.integers(-2000, 2000, channels).astype("int32"))
        return _requantized(relay.nn.bias_add(y, bias, axis=3), kernel * kernel * per_group)

    def dense(self, x: Expr, units: int) -> Expr:
        inner = int(x.checked_type.shape[1])
        y = relay.qnn.dense(x, self.weight((units, inner)), *self.numbers(), units=units, out_dtype="int32")
        bias = const(self.random.integers(-2000, 2000, units).astype("int32"))
        return _requantized(relay.nn.bias_add(y, bias, axis=1), inner)


def quantized_mobilenet(x: Expr, width: float = 1.0, num_classes: int = 1000) -> Expr:
    """Thirteen separable blocks between a convolution and a mean."""
    net = Network()
    y = net.conv(x, 3, 2, int(32 * width))
    for channels, stride in BLOCKS:
        y = net.conv(y, 3, stride, int(y.checked_type.shape[3]), groups=int(y.checked_type.shape[3]))
        y = net.conv(y, 1, 1, int(channels * width))
    y = relay.cast(relay.nn.global_avg_pool2d(relay.cast(y, "int32"), layout="NHWC"), "uint8")
    y = net.dense(relay.reshape(y, newshape=(1, -1)), num_classes)
    return relay.nn.softmax(relay.qnn.dequantize(y, const(SCALE), const(np.int32(ZERO))))


class Residual:
    """Layers of int8 in NCHW, a scale for each channel of weights; values have scale 1 and zero point `ZERO_OF`."""

    ZERO_OF = -3

    def __init__(self) -> None:
        self.random = np.random.default_rng(43)

    def conv(self, x: Expr, channels: int, kernel: int = 1, stride: int = 1, has_relu: bool = True) -> Expr:
        inner = int(x.checked_type.shape[1])
        weight = const(self.random.integers(-127, 127, (channels, inner, kernel, kernel), endpoint=True).astype("int8"))
        zero, none = const(np.int32(self.ZERO_OF)), const(np.int32(0))
        scale = const(self.random.uniform(0.5, 1.5, channels).astype("float32"))
        y = relay.qnn.conv2d(
            x,
            weight,
            zero,
            none,
            const(np.float32(1)),
            scale,
            kernel_size=(kernel, kernel),
            channels=channels,
            strides=(stride, stride),
            padding=(kernel // 2,) * 4,
            out_dtype="int32",
        )
        bias = const(self.random.integers(-2000, 2000, channels).astype("int32"))
        y = relay.nn.bias_add(y, bias)
        y = relay.nn.relu(y) if has_relu else y
        step = const(np.float32(70 * np.sqrt(inner * kernel * kernel)))
        return relay.qnn.requantize(y, scale, none, step, zero, axis=1, out_dtype="int8")

    def bottleneck(self, x: Expr, channels: int, stride: int) -> Expr:
        y = self.conv(self.conv(self.conv(x, channels), channels, 3, stride), 4 * channels, has_relu=False)
        if stride > 1 or int(x.checked_type.shape[1]) != 4 * channels:
            x = self.conv(x, 4 * channels, 1, stride, has_relu=False)
        one, zero = const(np.float32(1)), const(np.int32(self.ZERO_OF))
        total = relay.qnn.add(x, y, one, zero, one, zero, const(np.float32(1.4)), zero)
        return relay.maximum(total, const(np.int8(self.ZERO_OF)))


def quantized_resnet(x: Expr, blocks: tuple[int, ...] = (1, 1), width: int = 16, classes: int = 10) -> Expr:
    """A 7x7 convolution, max pooling, stages of bottlenecks, a mean and a dense layer whose sums are the result."""
    net = Residual()
    y = relay.nn.max_pool2d(net.conv(x, width, 7, 2), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for stage, count in enumerate(blocks):
        for block in range(count):
            y = net.bottleneck(y, width << stage, 2 if stage and not block else 1)
    mean = relay.cast(relay.nn.global_avg_pool2d(relay.cast(y, "int32")), "int8")
    y = relay.nn.batch_flatten(mean)
    weight = const(net.random.integers(-127, 127, (classes, int(y.checked_type.shape[1]))).astype("int8"))
    zero, none, one = const(np.int32(net.ZERO_OF)), const(np.int32(0)), const(np.float32(1))
    return relay.qnn.dense(y, weight, zero, none, one, one, units=classes, out_dtype="int32")
