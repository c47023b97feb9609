"""Layers between convolutions in textures that move channels or columns: the numbers of the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.evaluate import evaluate
from armillary.transform import PassContext

RNG = np.random.default_rng(5)
SHAPES = {"NCHW": (1, 8, 5, 6), "NHWC": (1, 5, 6, 8)}


def conv(data: Any, layout: str = "NCHW") -> Any:
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    weight = relay.const(RNG.standard_normal((8, 8, 1, 1) if layout == "NCHW" else (1, 1, 8, 8)).astype("float32"))
    return relay.nn.conv2d(data, weight, channels=8, kernel_size=(1, 1), data_layout=layout, kernel_layout=kernel)


def agrees(layout: str, between: Callable[[Any], Any]) -> None:
    x = relay.var("x", shape=SHAPES[layout])
    module = armillary.IRModule.from_expr(relay.Function([x], conv(between(conv(x, layout)), layout)))
    with PassContext(opt_level=3):
        library = relay.build(module, "opencl -device=adreno")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    value = RNG.standard_normal(SHAPES[layout]).astype("float32")
    graph.run(x=value)
    wanted = np.asarray(evaluate(module, {"x": value}))
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


@needs_opencl
@pytest.mark.parametrize(
    "between",
    [
        lambda x: relay.reverse(x, axis=1),
        lambda x: relay.take(x, relay.const(np.array([3, 1, 0, 2, 7, 5, 6, 4])), axis=1),
        lambda x: relay.concatenate(list(relay.split(x, (3,), axis=1))[::-1], axis=1),
    ],
    ids=["reversed", "taken", "turned"],
)
def test_channels_that_change_their_lane_are_read_one_by_one(between: Callable[[Any], Any]) -> None:
    """A pixel is read whole only where its four numbers keep their order."""
    agrees("NCHW", between)


@needs_opencl
@pytest.mark.parametrize("layout", list(SHAPES))
def test_places_that_share_a_long_text_are_computed_at_the_top(layout: str) -> None:
    """Of an edge a row is read whose text names a part of it twice: that stood where the read stands."""
    rows = SHAPES[layout].index(5)
    pads = [(1, 1) if axis in (rows, rows + 1) else (0, 0) for axis in range(4)]
    agrees(layout, lambda x: relay.nn.pad(x, pad_width=pads, pad_mode="edge"))
