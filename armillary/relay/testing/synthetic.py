"""A small network with a layer of many kinds: convolutions, grouped and plain, normalisation, pooling, dense layers.

In: image shape, weights' shape. Out: (IRModule, params) by get_workload. Invariant: the one input is called "data".
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing.init import create_workload
from armillary.relay.testing.layers import function_of
from armillary.runtime.ndarray import NDArray


def get_net(
    input_shape: Sequence[int] = (1, 3, 24, 12),
    dtype: str = "float32",
    wtype: str | None = None,
) -> Function:
    """The network as a function: two branches over the image, added, and a dense layer."""
    wtype = wtype or dtype
    channels = input_shape[1]
    data = var("data", shape=tuple(input_shape), dtype=dtype)

    def conv(x: Expr, name: str, units: int, groups: int = 1, size: int = 3) -> Expr:
        inner = x.checked_type.shape[1]  # type: ignore[attr-defined]
        weight = var(name, shape=(units, inner // groups, size, size), dtype=wtype)
        pad = size // 2
        return relay.nn.conv2d(
            x,
            weight,
            padding=(pad, pad),
            groups=groups,
            channels=units,
            kernel_size=(size, size),
            out_dtype=dtype,
        )

    first = relay.nn.relu(conv(data, "conv0_weight", channels))
    grouped = conv(first, "conv1_weight", channels, groups=channels)
    biased = relay.nn.bias_add(grouped, var("conv1_bias", shape=(channels,), dtype=dtype))
    joined = relay.add(biased, conv(data, "conv2_weight", channels, size=1))
    pooled = relay.nn.max_pool2d(relay.nn.relu(joined), pool_size=(2, 2), strides=(2, 2))
    flat = relay.nn.batch_flatten(pooled)
    width = flat.checked_type.shape[1]  # type: ignore[attr-defined]
    return function_of(relay.nn.dense(flat, var("dense_weight", shape=(8, width), dtype=wtype), out_dtype=dtype))


def get_workload(
    input_shape: Sequence[int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(input_shape, dtype, wtype))
