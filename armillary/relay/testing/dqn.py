"""The deep Q-network for arcade games: three convolutions and two dense layers.

In: number of actions, image shape. Out: (IRModule, params) by get_workload. Invariant: the result is one value per
action.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray

_CONVOLUTIONS = (("conv1", 32, 8, 4), ("conv2", 64, 4, 2), ("conv3", 64, 3, 1))  # name, channels, kernel, stride


def get_net(
    batch_size: int, num_actions: int = 18, image_shape: Sequence[int] = (4, 84, 84), dtype: str = "float32"
) -> Function:
    """The network as a function."""
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for name, channels, kernel, stride in _CONVOLUTIONS:
        body = layers.conv2d(
            body, channels=channels, kernel_size=(kernel, kernel), strides=(stride, stride), padding=(0, 0), name=name
        )
        body = relay.nn.relu(layers.bias_add(body, name))
    body = layers.dense_add_bias(relay.nn.batch_flatten(body), units=512, name="dense1")
    return layers.function_of(layers.dense_add_bias(relay.nn.relu(body), units=num_actions, name="dense2"))


def get_workload(
    batch_size: int, num_actions: int = 18, image_shape: Sequence[int] = (4, 84, 84), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype))
