"""VGG 11, 13, 16 and 19, with or without batch normalisation.

In: depth, classes, image shape. Out: (IRModule, params) by get_workload. Invariant: the result is a softmax. Layers:
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

SPEC = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
FILTERS = (64, 128, 256, 512, 512)


def get_feature(data: Expr, counts: Sequence[int], batch_norm: bool = False) -> Expr:
    """Five groups of 3x3 convolutions, each followed by pooling."""
    for i, count in enumerate(counts):
        for j in range(count):
            name = f"{i + 1}_{j + 1}"
            data = layers.conv2d(data, kernel_size=(3, 3), padding=(1, 1), channels=FILTERS[i], name=f"conv{name}")
            data = layers.bias_add(data, f"conv{name}")
            if batch_norm:
                data = layers.batch_norm_infer(data, name=f"bn{name}")
            data = relay.nn.relu(data)
        data = relay.nn.max_pool2d(data, pool_size=(2, 2), strides=(2, 2))
    return data


def get_classifier(data: Expr, num_classes: int) -> Expr:
    """Three fully connected layers."""
    data = relay.nn.batch_flatten(data)
    for name in ("fc6", "fc7"):
        data = relay.nn.relu(layers.dense_add_bias(data, units=4096, name=name))
        data = relay.nn.dropout(data, rate=0.5)
    return layers.dense_add_bias(data, units=num_classes, name="fc8")


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """The network as a function."""
    if num_layers not in SPEC:
        raise UnsupportedError(f"vgg: no {num_layers}-layer network", hint="known: 11, 13, 16, 19")
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    features = get_feature(data, SPEC[num_layers], batch_norm)
    return layers.function_of(relay.nn.softmax(get_classifier(features, num_classes)))


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm))
