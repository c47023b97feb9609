"""ResNet v2 over video: the network of resnet.py with convolutions over time, height and width.

In: depth, classes, image shape (channels, frames, height, width), layout. Out: (IRModule, params) by get_workload.
Invariant: depths are those of resnet.py; large images begin with a 3x7x7 convolution of stride 1x2x2 and no pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.relay.testing.resnet import EPSILON, plan
from armillary.runtime.ndarray import NDArray

Size = tuple[int, int, int]


def _norm(data: Expr, name: str, layout: str, **options: Any) -> Expr:
    return layers.batch_norm_infer(data, epsilon=EPSILON, axis=layout.index("C"), name=name, **options)


def _conv(data: Expr, channels: int, kernel: Size, strides: Size, name: str, layout: str) -> Expr:
    padding = tuple(k // 2 for k in kernel)
    return layers.conv3d(
        data,
        channels=channels,
        kernel_size=kernel,
        strides=strides,
        padding=padding,
        data_layout=layout,
        kernel_layout=layers.conv_kernel_layout(layout),
        name=name,
    )


def residual_unit(
    data: Expr,
    num_filter: int,
    stride: Size,
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCDHW",
) -> Expr:
    """One unit: two 3x3x3 convolutions, or with `bottle_neck` 1x1x1, 3x3x3, 1x1x1."""
    inner, one, three = num_filter // 4, (1, 1, 1), (3, 3, 3)
    rows = [(num_filter, three, stride), (num_filter, three, one)]
    if bottle_neck:
        rows = [(inner, one, stride), (inner, three, one), (num_filter, one, one)]
    body = shortcut = data
    for n, (channels, kernel, strides) in enumerate(rows, 1):
        body = relay.nn.relu(_norm(body, f"{name}_bn{n}", data_layout))
        if n == 1 and not dim_match:
            shortcut = _conv(body, num_filter, one, stride, f"{name}_sc", data_layout)
        body = _conv(body, channels, kernel, strides, f"{name}_conv{n}", data_layout)
    return relay.add(body, shortcut)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> Function:
    """The network of a given depth."""
    height = image_shape[layout.index("H") - 1]
    units, filters, bottle_neck = plan(num_layers, height)
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _norm(body, "bn_data", layout, scale=False)
    if height <= 32:
        body = _conv(body, filters[0], (3, 3, 3), (1, 1, 1), "conv0", layout)
    else:
        body = _conv(body, filters[0], (3, 7, 7), (1, 2, 2), "conv0", layout)
        body = relay.nn.relu(_norm(body, "bn0", layout))
    for i, count in enumerate(units):
        for j in range(count):
            stride = (1, 1, 1) if i == 0 or j > 0 else (2, 2, 2)
            body = residual_unit(body, filters[i + 1], stride, j > 0, f"stage{i + 1}_unit{j + 1}", bottle_neck, layout)
    body = relay.nn.relu(_norm(body, "bn1", layout))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool3d(body, layout=layout))
    return layers.function_of(relay.nn.softmax(layers.dense_add_bias(flat, units=num_classes, name="fc1")))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))
