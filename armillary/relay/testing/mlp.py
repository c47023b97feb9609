"""A perceptron of three layers.

In: classes, image shape. Out: (IRModule, params) by get_workload. Invariant: the result is a softmax. Layers:
layers.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: Sequence[int] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """The network as a function."""
    body: Expr = relay.nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    for name, units in (("fc1", 128), ("fc2", 64)):
        body = relay.nn.relu(layers.dense_add_bias(body, units=units, name=name))
    return layers.function_of(relay.nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc3")))


def get_workload(
    batch_size: int, num_classes: int = 10, image_shape: Sequence[int] = (1, 28, 28), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
