"""Poolings over three axes whose windows leave the volume, written over two: the operator's own values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.relay.evaluate import evaluate
from armillary.transform import PassContext

WINDOWS: list[dict[str, Any]] = [
    {"pool_size": (3, 3, 3), "padding": (1, 1, 1)},
    {"pool_size": (3, 3, 3), "strides": (2, 2, 2), "padding": (1, 1, 1)},
    {"pool_size": (2, 2, 2), "strides": (2, 1, 1), "padding": (1, 0, 0)},
    {"pool_size": (3, 1, 1), "strides": (1, 1, 1), "padding": (0, 0, 0, 2, 0, 0)},
    {"pool_size": (3, 2, 2), "strides": (2, 2, 2), "ceil_mode": True},
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", [(1, 4, 8, 6, 6), (2, 16, 5, 6, 7)])
def test_it_is_the_operators_value(window: dict[str, Any], shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32) - 3  # zeros of a padding would be seen
    x = relay.var("x", shape=shape, dtype="float32")
    module = IRModule.from_expr(relay.Function([x], relay.nn.max_pool3d(x, **window)))
    with PassContext(opt_level=3):
        library = relay.build(module, target="llvm")
    assert not any("pool3d" in name for name in library.kernels)
    net = GraphModule(library["default"](cpu()))
    net.run(x=data)
    np.testing.assert_array_equal(net.get_output(0).numpy(), evaluate(module, {"x": data}))
