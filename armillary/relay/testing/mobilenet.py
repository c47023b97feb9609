"""MobileNet v1: separable convolutions.

In: classes, image shape, layout; `alpha` scales the channels, `is_shallow` drops the five middle blocks. Out:
(IRModule, params) by get_workload. Invariant: the result is a softmax. Layers: layers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray

EPSILON = 1e-5


def _conv_norm_relu(data: Expr, conv: str, norm: str, layout: str, **attrs: Any) -> Expr:
    depthwise = attrs.get("groups", 1) > 1
    kernel_layout = layers.conv_kernel_layout(layout, depthwise)
    if kernel_layout == "HWOI":  # one filter per channel: axis O is the channel
        attrs["kernel_layout"] = "HWOI"
    body = layers.conv2d(data, name=conv, data_layout=layout, **{"kernel_layout": kernel_layout, **attrs})
    body = layers.batch_norm_infer(body, epsilon=EPSILON, axis=layout.index("C"), name=norm)
    return relay.nn.relu(body)


def conv_block(data: Expr, name: str, channels: int, strides: tuple[int, int] = (1, 1), layout: str = "NCHW") -> Expr:
    """A 3x3 convolution, batch norm, relu."""
    return _conv_norm_relu(
        data,
        f"{name}_conv",
        f"{name}_bn",
        layout,
        channels=channels,
        kernel_size=(3, 3),
        strides=strides,
        padding=(1, 1),
    )


def separable_conv_block(
    data: Expr,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    downsample: bool = False,
    layout: str = "NCHW",
) -> Expr:
    """A depthwise 3x3 and a pointwise convolution, each with batch norm and relu."""
    body = _conv_norm_relu(
        data,
        f"{name}_depthwise_conv1",
        f"{name}_bn1",
        layout,
        channels=depthwise_channels,
        groups=depthwise_channels,
        kernel_size=(3, 3),
        strides=(2, 2) if downsample else (1, 1),
        padding=(1, 1),
    )
    return _conv_norm_relu(
        body,
        f"{name}_conv2",
        f"{name}_bn2",
        layout,
        channels=pointwise_channels,
        kernel_size=(1, 1),
        strides=(1, 1),
        padding=(0, 0),
    )


def mobile_net(
    num_classes: int = 1000,
    data_shape: Sequence[int] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network as a function."""
    blocks = [(32, 64, False), (64, 128, True), (128, 128, False), (128, 256, True), (256, 256, False)]
    blocks.append((256, 512, True))
    blocks += [] if is_shallow else [(512, 512, False)] * 5
    blocks += [(512, 1024, True), (1024, 1024, False)]
    body: Expr = var("data", shape=data_shape, dtype=dtype)
    body = conv_block(body, "conv_block_1", int(32 * alpha), (2, 2), layout)
    for n, (before, after, down) in enumerate(blocks, 1):
        name = f"separable_conv_block_{n}"
        body = separable_conv_block(body, name, int(before * alpha), int(after * alpha), down, layout)
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    return layers.function_of(relay.nn.softmax(layers.dense_add_bias(flat, units=num_classes, name="fc")))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(mobile_net(num_classes, (batch_size, *image_shape), dtype, layout=layout))
