"""ResNet v2 (pre-activation), for ImageNet and CIFAR sizes.

In: depth, classes, image shape, layout. Out: (IRModule, params) by get_workload. Invariant: the result is a softmax.
Units are batch norm, relu, convolution; the shortcut leaves after the first relu. Depths: 18, 34, 50, 101, 152, 200,
269; small images: 9n+2, 6n+2.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay
from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray

UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}
EPSILON = 2e-5


def _norm_relu(data: Expr, name: str, layout: str, suffix: str) -> Expr:
    norm = layers.batch_norm_infer(data, epsilon=EPSILON, axis=layout.index("C"), name=f"{name}_bn{suffix}")
    return relay.nn.relu(norm)


def residual_unit(
    data: Expr,
    num_filter: int,
    stride: tuple[int, int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
) -> Expr:
    """One unit: two 3x3 convolutions, or with `bottle_neck` 1x1, 3x3, 1x1."""
    inner = num_filter // 4 if bottle_neck else num_filter
    rows = [(inner, 3, stride), (num_filter, 3, (1, 1))]
    if bottle_neck:
        rows = [(inner, 1, stride), (inner, 3, (1, 1)), (num_filter, 1, (1, 1))]
    kernel_layout = layers.conv_kernel_layout(data_layout)

    def conv(x: Expr, channels: int, kernel: int, strides: tuple[int, int], part: str) -> Expr:
        return layers.conv2d(
            x,
            channels=channels,
            kernel_size=(kernel, kernel),
            strides=strides,
            padding=(kernel // 2, kernel // 2),
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            name=f"{name}_{part}",
        )

    body = shortcut = data
    for n, (channels, kernel, strides) in enumerate(rows, 1):
        body = _norm_relu(body, name, data_layout, str(n))
        if n == 1 and not dim_match:
            shortcut = conv(body, num_filter, 1, stride, "sc")
        body = conv(body, channels, kernel, strides, f"conv{n}")
    return body + shortcut


def _stem(data: Expr, channels: int, height: int, layout: str) -> Expr:
    kernel_layout, axis = layers.conv_kernel_layout(layout), layout.index("C")
    body = layers.batch_norm_infer(data, epsilon=EPSILON, axis=axis, scale=False, name="bn_data")
    small = height <= 32
    size, stride, padding = ((3, 3), (1, 1), (1, 1)) if small else ((7, 7), (2, 2), (3, 3))
    body = layers.conv2d(
        body,
        channels=channels,
        kernel_size=size,
        strides=stride,
        padding=padding,
        name="conv0",
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    if small:
        return body
    body = relay.nn.relu(layers.batch_norm_infer(body, epsilon=EPSILON, axis=axis, name="bn0"))
    return relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network as a function."""
    data = var("data", shape=data_shape, dtype=dtype)
    body = _stem(data, filter_list[0], data_shape[layout.index("H")], layout)
    for i in range(num_stages):
        stride = (1, 1) if i == 0 else (2, 2)
        for j in range(units[i]):
            name = f"stage{i + 1}_unit{j + 1}"
            step = stride if j == 0 else (1, 1)
            body = residual_unit(body, filter_list[i + 1], step, j > 0, name, bottle_neck, layout)
    body = relay.nn.relu(layers.batch_norm_infer(body, epsilon=EPSILON, axis=layout.index("C"), name="bn1"))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    net = layers.dense_add_bias(flat, units=num_classes, name="fc1")
    return layers.function_of(relay.nn.softmax(net))


def plan(num_layers: int, height: int) -> tuple[list[int], list[int], bool]:
    """Units per stage, filters (those of the stem first) and whether units are bottlenecks, for images of a height."""
    if height <= 28:
        if (num_layers - 2) % 9 == 0 and num_layers >= 164:
            return [(num_layers - 2) // 9] * 3, [16, 64, 128, 256], True
        if (num_layers - 2) % 6 == 0 and num_layers < 164:
            return [(num_layers - 2) // 6] * 3, [16, 16, 32, 64], False
        raise UnsupportedError(
            f"resnet: no {num_layers}-layer network for images of height {height}",
            hint="6n+2 layers below 164, or 9n+2 from 164 on",
        )
    if num_layers not in UNITS:
        raise UnsupportedError(f"resnet: no {num_layers}-layer network", hint=f"known: {', '.join(map(str, UNITS))}")
    bottle_neck = num_layers >= 50
    return list(UNITS[num_layers]), [64, 256, 512, 1024, 2048] if bottle_neck else [64, 64, 128, 256, 512], bottle_neck


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: object,
) -> Function:
    """The network of a given depth."""
    units, filters, bottle_neck = plan(num_layers, image_shape[layout.index("H") - 1])
    shape = (batch_size, *image_shape)
    return resnet(units, len(units), filters, num_classes, shape, bottle_neck, layout, dtype, **kwargs)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: object,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
