"""DenseNet: each layer reads the joined outputs of all layers before it in its block.

In: depth (121, 161, 169, 201), classes, image shape. Out: (IRModule, params) by get_workload. A layer is batch norm,
relu, 1x1 convolution to four times the growth, batch norm, relu, 3x3 convolution. Invariant: the result has no softmax.
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

# depth: channels of the first convolution, growth, layers per block
SPEC: dict[int, tuple[int, int, tuple[int, ...]]] = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
BOTTLENECK = 4


def _norm_relu(data: Expr, name: str) -> Expr:
    return relay.nn.relu(layers.batch_norm_infer(data, name=name))


def dense_layer(data: Expr, growth: int, name: str) -> Expr:
    """The channels one layer adds."""
    body = _norm_relu(data, f"batch_1_{name}")
    body = layers.conv2d(body, channels=BOTTLENECK * growth, kernel_size=(1, 1), name=f"conv2d_1_{name}")
    body = _norm_relu(body, f"batch_2_{name}")
    return layers.conv2d(body, channels=growth, kernel_size=(3, 3), padding=(1, 1), name=f"conv2d_2_{name}")


def dense_block(data: Expr, count: int, growth: int, name: str) -> Expr:
    """`count` layers and the data, joined."""
    parts = [data]
    for n in range(count):
        joined = parts[0] if len(parts) == 1 else relay.concatenate(list(parts), axis=1)
        parts.append(dense_layer(joined, growth, f"{name}_{n}"))
    return relay.concatenate(parts, axis=1)


def _transition(data: Expr, channels: int, name: str) -> Expr:
    body = layers.conv2d(
        _norm_relu(data, f"batch_t_{name}"), channels=channels, kernel_size=(1, 1), name=f"conv_t_{name}"
    )
    return relay.nn.avg_pool2d(body, pool_size=(2, 2), strides=(2, 2))


def get_net(
    densenet_size: int, classes: int, batch_size: int, image_shape: Sequence[int], dtype: str = "float32"
) -> Function:
    """The network as a function."""
    if densenet_size not in SPEC:
        hint = f"known: {', '.join(map(str, SPEC))}"
        raise UnsupportedError(f"densenet: no {densenet_size}-layer network", hint=hint)
    channels, growth, counts = SPEC[densenet_size]
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = layers.conv2d(body, channels=channels, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), name="conv1")
    body = relay.nn.max_pool2d(_norm_relu(body, "batch1"), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for n, count in enumerate(counts):
        body = dense_block(body, count, growth, str(n))
        channels += count * growth
        if n < len(counts) - 1:
            channels //= 2
            body = _transition(body, channels, str(n))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(_norm_relu(body, "batch2")))
    return layers.function_of(layers.dense_add_bias(flat, units=classes, name="dense"))


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(densenet_size, classes, batch_size, image_shape, dtype))
