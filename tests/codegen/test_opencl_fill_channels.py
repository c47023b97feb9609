"""Channels that four does not divide, in textures: networks compute what the CPU does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.transform import PassContext

RNG = np.random.default_rng(3)


def conv(x: Any, inputs: int, outputs: int, kernel: int = 1, groups: int = 1, **attrs: Any) -> Any:
    weight = RNG.standard_normal((outputs, inputs // groups, kernel, kernel)) / np.sqrt(inputs // groups) / kernel
    made = relay.nn.conv2d(
        x, relay.const(weight.astype("float32")), padding=(kernel // 2,) * 2, groups=groups, channels=outputs, **attrs
    )
    return relay.nn.bias_add(made, relay.const(RNG.standard_normal(outputs).astype("float32")))


def shuffled(x: Any, channels: int, groups: int, side: int) -> Any:
    """Channels of the groups taken in turn."""
    apart = relay.reshape(x, (1, groups, channels // groups, side, side))
    return relay.reshape(relay.transpose(apart, (0, 2, 1, 3, 4)), (1, channels, side, side))


def shuffle_v2(x: Any) -> Any:
    """Two units of ShuffleNet v2: 58 channels are computed, 58 pass, both meet and are mixed."""
    relu = relay.nn.relu
    y = relu(conv(x, 6, 116, 3))
    for _ in range(2):
        kept, taken = relay.split(y, 2, axis=1)
        a = conv(relu(conv(taken, 58, 58)), 58, 58, 3, groups=58)
        y = shuffled(relay.concatenate([kept, relu(conv(a, 58, 58))], 1), 116, 2, 9)
    return y


def shuffle_v1(x: Any) -> Any:
    """A unit of ShuffleNet v1: four groups of 34 channels, whose pairs four divides."""
    y = relay.nn.relu(conv(x, 6, 136, 3))
    a = shuffled(relay.nn.relu(conv(y, 136, 136, groups=4)), 136, 4, 9)
    return relay.nn.relu(relay.add(conv(conv(a, 136, 136, 3, groups=136), 136, 136, groups=4), y))


def dense_block(x: Any) -> Any:
    """10 and 14 channels meet, are pooled, cut apart, read by a convolution and given back."""
    a = relay.nn.relu(conv(x, 6, 10, 3))
    b = relay.sigmoid(conv(a, 10, 14, 3))
    c = relay.nn.max_pool2d(relay.concatenate([b, a], 1), (3, 3), (1, 1), padding=(1, 1))
    first, last = relay.split(c, (14,), axis=1)
    return relay.concatenate([conv(relay.exp(first), 14, 5), conv(last, 10, 7, 3), conv(c, 24, 2)], 1)


NETWORKS: dict[str, tuple[Callable[[Any], Any], int]] = {  # and how many of its kernels may have no image
    "58 of 116 channels": (shuffle_v2, 4),
    "groups of 34": (shuffle_v1, 2),
    "10 and 14 meet": (dense_block, 3),
}


def kernels(library: Any) -> list[str]:
    found = [m.get_source() for m in library.get_lib().imported_modules if m.type_key == "opencl"]
    return re.findall(r"^__kernel .*$", "\n".join(found), re.M)


@needs_opencl
@pytest.mark.parametrize("name", NETWORKS)
def test_channels_not_in_fours_are_read_from_textures(name: str) -> None:
    make, without = NETWORKS[name]
    x = relay.var("x", shape=(1, 6, 9, 9))
    module = armillary.IRModule.from_expr(relay.Function([x], make(x)))
    value, outputs, found = RNG.standard_normal((1, 6, 9, 9)).astype("float32"), [], []
    for target, device in (("llvm", armillary.cpu()), ("opencl -device=adreno", armillary.opencl())):
        with PassContext(opt_level=3):
            library = relay.build(module, target)
        graph = graph_executor.GraphModule(library["default"](device))
        graph.run(x=value)
        outputs.append(graph.get_output(0).numpy())
        found = kernels(library) if device.device_type != 1 else []
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
    plain = [head for head in found if "image2d_t" not in head]
    assert len(plain) <= without, plain
