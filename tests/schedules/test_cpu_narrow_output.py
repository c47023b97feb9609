"""Convolutions to few channels: input channels in lanes, whatever the window, the tail of a line and what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends.cpu.cost.narrow import has_inputs_in_lanes, pixel_tile
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
NAME = "convolution with input channels in lanes"


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def run(function: Any, data: Any, target: str = "llvm -mcpu=native") -> Any:
    with PassContext(opt_level=3):
        graph = build(function, target)["default"](cpu(0))
    graph.set_input("x", data)
    graph.run()
    return graph.get_output(0).numpy().copy()


def layers(shape: tuple[int, ...], outputs: int, kernel: tuple[int, int], **attrs: Any) -> tuple[Any, Any]:
    """A layer that leaves its channels in blocks, and the convolution of those to few."""
    x = relay.var("x", shape=(shape[0], 3, *shape[2:]))
    first = relay.nn.relu(relay.nn.conv2d(x, relay.const(normal(1, shape[1], 3, 1, 1))))
    weight = normal(2, outputs, shape[1], *kernel) / np.float32(np.sqrt(shape[1] * kernel[0] * kernel[1]))
    return x, relay.nn.conv2d(first, relay.const(weight), kernel_size=kernel, channels=outputs, **attrs)


CASES = [
    ((1, 32, 20, 21), 3, (3, 3), {"padding": (1, 1)}),
    ((2, 64, 9, 40), 1, (3, 3), {"padding": (1, 1)}),
    ((1, 32, 16, 33), 2, (5, 4), {"padding": (2, 1, 2, 2), "strides": (2, 1)}),
    ((1, 64, 12, 300), 3, (1, 1), {}),
    ((1, 48, 13, 11), 4, (3, 3), {"padding": (2, 2), "dilation": (2, 2)}),
    ((1, 32, 30, 9), 3, (9, 9), {"padding": (4, 4)}),
    ((1, 32, 8, 270), 1, (2, 7), {"padding": (0, 3), "strides": (1, 2)}),
]


@pytest.mark.parametrize("follows", ["nothing", "bias and tanh", "sum", "convolution"])
@pytest.mark.parametrize(("shape", "outputs", "kernel", "attrs"), CASES)
def test_narrow_output(
    shape: tuple[int, ...], outputs: int, kernel: tuple[int, int], attrs: dict[str, Any], follows: str
) -> None:
    x, y = layers(shape, outputs, kernel, **attrs)
    if follows == "bias and tanh":
        y = relay.tanh(relay.nn.bias_add(y, relay.const(normal(3, outputs))))
    elif follows == "sum":
        y = relay.add(y, relay.sigmoid(y))
    elif follows == "convolution":
        y = relay.nn.conv2d(relay.nn.relu(y), relay.const(normal(4, 16, outputs, 1, 1)))
    function, data = relay.Function([x], y), normal(5, shape[0], 3, *shape[2:])
    np.testing.assert_allclose(run(function, data), evaluate(function, [data]), rtol=1e-4, atol=2e-5)


def test_an_image_is_one_kernel_without_channels_that_nobody_reads() -> None:
    x, y = layers((1, 64, 64, 64), 3, (3, 3), padding=(1, 1))
    with PassContext(opt_level=3):
        library = build(relay.Function([x], y), AVX512)
    loops = library.get_lib().get_source("tir")
    assert "pixels" in loops and "NCHW3c" in library.get_lib().get_source("relay")
    assert "Buffer[(1, 1, 64, 64, 16), float32]) attrs" not in loops


@pytest.mark.parametrize(
    ("outputs", "inputs", "pixels", "found"),
    [
        (1, 64, 4096, True),
        (3, 64, 4096, True),
        (8, 512, 4096, True),
        (9, 512, 4096, False),
        (3, 40, 4096, False),
        (3, 64, 1, False),
        (4, 16, 4096, False),
    ],
)
def test_where_inputs_go_in_lanes(outputs: int, inputs: int, pixels: int, found: bool) -> None:
    model = cpu_model(AVX512)
    taps = 1 if inputs == 16 else 9
    assert has_inputs_in_lanes(pixels, outputs, inputs, taps, model) is found


@pytest.mark.parametrize("outputs", [1, 2, 3, 5, 8])
def test_a_tile_leaves_registers_for_what_it_reads(outputs: int) -> None:
    model = cpu_model(AVX512)
    for width in (1, 7, 64, 100):
        columns = pixel_tile(width, outputs, model)
        assert 1 <= columns <= width and (columns == 1 or (columns + 1) * outputs < model.vector_registers)
