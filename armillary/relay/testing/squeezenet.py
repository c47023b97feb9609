"""SqueezeNet 1.0 and 1.1: fire modules.

In: version, classes, image shape. Out: (IRModule, params) by get_workload. Invariant: the result is a softmax. Layers:
layers.py.
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

# per version: the first convolution (channels, kernel), then fire modules (squeeze, expand) and pools (None)
SPEC: dict[str, tuple[tuple[int, int], tuple[tuple[int, int] | None, ...]]] = {
    "1.0": (
        (96, 7),
        (None, (16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)),
    ),
    "1.1": (
        (64, 3),
        (None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)),
    ),
}


def _conv(data: Expr, channels: int, kernel: int, padding: int, name: str, stride: int = 1) -> Expr:
    body = layers.conv2d(
        data,
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=(padding, padding),
        name=name,
    )
    return relay.nn.relu(layers.bias_add(body, name))


def _fire(data: Expr, squeeze: int, expand: int, name: str) -> Expr:
    body = _conv(data, squeeze, 1, 0, f"{name}_input")
    left, right = _conv(body, expand, 1, 0, f"{name}_left"), _conv(body, expand, 3, 1, f"{name}_right")
    return relay.concatenate([left, right], axis=1)


def get_net(
    batch_size: int, image_shape: Sequence[int], num_classes: int, version: str, dtype: str = "float32"
) -> Function:
    """The network as a function."""
    if version not in SPEC:
        raise UnsupportedError(f"squeezenet: no version {version!r}", hint="known: 1.0, 1.1")
    (channels, kernel), parts = SPEC[version]
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _conv(body, channels, kernel, 0, "conv1", 2)
    for n, part in enumerate(parts):
        if part is None:
            body = relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2))
        else:
            body = _fire(body, *part, f"fire{n}")
    body = _conv(relay.nn.dropout(body, rate=0.5), num_classes, 1, 0, "conv_final")
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    return layers.function_of(relay.nn.softmax(flat))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))
