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


def is_agreed(module: IRModule, data: np.ndarray[Any, Any]) -> None:
    with PassContext(opt_level=3):
        library = relay.build(module, target="llvm")
    assert not any("pool3d" in name for name in library.kernels)
    net = GraphModule(library["default"](cpu()))
    net.run(x=data)
    np.testing.assert_allclose(net.get_output(0).numpy(), evaluate(module, {"x": data}), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", [(1, 4, 8, 6, 6), (2, 16, 5, 6, 7)])
@pytest.mark.parametrize("kind", ["max", "avg", "avg with the padding"])
def test_it_is_the_operators_value(window: dict[str, Any], shape: tuple[int, ...], kind: str) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32) - 3  # zeros of a padding would be seen
    x = relay.var("x", shape=shape, dtype="float32")
    more = {"count_include_pad": True} if "with" in kind else {}
    pooled = (relay.nn.max_pool3d if kind == "max" else relay.nn.avg_pool3d)(x, **window, **more)
    is_agreed(IRModule.from_expr(relay.Function([x], pooled)), data)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("batch", [1, 2])
def test_it_agrees_behind_a_convolution(batch: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    data = rng.standard_normal((batch, 4, 5, 6, 6)).astype(np.float32)
    x = relay.var("x", shape=data.shape, dtype="float32")
    weight = relay.const(rng.standard_normal((16, 4, 3, 3, 3)).astype(np.float32))
    made = relay.nn.relu(relay.nn.conv3d(x, weight, padding=(1, 1, 1)))
    pool = relay.nn.max_pool3d if kind == "max" else relay.nn.avg_pool3d
    pooled = pool(made, pool_size=(3, 2, 2), strides=(2, 2, 2), padding=(1, 0, 0))
    is_agreed(IRModule.from_expr(relay.Function([x], pooled)), data)
