"""Convolutions over one axis: values, and how threads share a single line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends.cpu.cost.model import Nest, Tile, is_more_even, shares_tiles
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.runtime.threads import config_threadpool
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

AVX512 = cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
CASES = [
    # inputs, outputs, length, kernel, attributes
    (16, 32, 400, 3, {"padding": (1, 1)}),
    (1, 64, 1600, 10, {"strides": (5,)}),
    (32, 64, 200, 3, {"padding": (32, 0), "dilation": (16,)}),
    (64, 64, 333, 5, {"padding": (2, 2), "strides": (2,)}),
    (16, 16, 700, 2, {"padding": (300, 300), "dilation": (300,)}),  # more tiles on the padding than have a version
    (32, 32, 100, 9, {"padding": (4, 4), "groups": 32}),
    (32, 1, 500, 7, {"padding": (3, 3)}),  # one channel out: vectors along the line
    (1, 1, 3000, 80, {}),
]
TRANSPOSED = [
    (64, 1, 40, 64, {"strides": (32,), "padding": (16, 16)}),
    (16, 2, 50, 7, {"strides": (3,), "padding": (2, 1), "output_padding": (1,)}),
    (32, 4, 31, 16, {"strides": (8,), "padding": (4, 4)}),
    (64, 32, 33, 16, {"strides": (8,), "padding": (4, 4)}),
    (16, 16, 20, 5, {"dilation": (2,)}),
]


def line(inputs: int, outputs: int, length: int, weight: tuple[int, ...], operator: Any, attrs: Any) -> Any:
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(1, inputs, length))
    w = relay.const((rng.standard_normal(weight) / np.sqrt(np.prod(weight[1:]))).astype("float32"))
    bias = relay.const(rng.standard_normal((outputs, 1)).astype("float32"))
    return relay.Function([x], relay.nn.relu(relay.add(operator(x, w, **attrs), bias)))


def agrees(function: Any, shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(9).standard_normal(shape).astype("float32")
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    graph.set_input("x", value)
    expected = evaluate(function, [value])
    for threads in (1, 2, 3):
        try:
            config_threadpool(0, threads)
            graph.run()
        finally:
            config_threadpool(0, 2)
        np.testing.assert_allclose(graph.get_output(0).numpy(), expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(("inputs", "outputs", "length", "kernel", "attrs"), CASES)
def test_convolutions_over_one_axis_agree_with_the_reference(
    inputs: int, outputs: int, length: int, kernel: int, attrs: dict[str, Any]
) -> None:
    weight = (outputs, inputs // attrs.get("groups", 1), kernel)
    agrees(line(inputs, outputs, length, weight, relay.nn.conv1d, attrs), (1, inputs, length))


@pytest.mark.parametrize(("inputs", "outputs", "length", "kernel", "attrs"), TRANSPOSED)
def test_transposed_convolutions_over_one_axis_agree_with_the_reference(
    inputs: int, outputs: int, length: int, kernel: int, attrs: dict[str, Any]
) -> None:
    function = line(inputs, outputs, length, (inputs, outputs, kernel), relay.nn.conv1d_transpose, attrs)
    agrees(function, (1, inputs, length))


@pytest.mark.parametrize(("outputs", "strides", "is_shuffle"), [(1, 32, True), (4, 8, True), (64, 8, False)])
def test_few_channels_of_a_transposed_one_are_phases_of_a_convolution(
    outputs: int, strides: int, is_shuffle: bool
) -> None:
    attrs = {"strides": (strides,), "padding": (strides // 2, strides // 2)}
    function = line(64, outputs, 40, (64, outputs, 2 * strides), relay.nn.conv1d_transpose, attrs)
    with PassContext(opt_level=3):
        text = relay.optimize(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")[0].astext(False)
    assert ("transpose_NCHWc" not in text) is is_shuffle


def test_threads_share_the_tiles_of_a_line_whose_channels_divide_badly() -> None:
    function = line(64, 64, 1600, (64, 64, 3), relay.nn.conv1d, {})
    with PassContext(opt_level=3):
        library = build(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    extents = [p.extent for f in library.descriptor.functions.values() for p in f.phases if "conv2d" in p.symbol]
    assert max(extents) >= 100


def test_tiles_are_shared_where_there_is_one_line_and_its_weights_are_near() -> None:
    tile = Tile(14, 2)
    assert shares_tiles(Nest(1600, 1, 4, 192, 4.0), tile, AVX512)
    assert not shares_tiles(Nest(1600, 2, 4, 192, 4.0), tile, AVX512), "two lines"
    assert not shares_tiles(Nest(1600, 1, 32, 3072, 4.0), tile, AVX512), "6 MB of weights"
    assert not shares_tiles(Nest(28, 1, 64, 192, 4.0), tile, AVX512), "two tiles, 32 groups of channels"


def test_the_more_even_division_counts_what_the_busiest_thread_takes() -> None:
    assert is_more_even(115, 2)
    assert not is_more_even(16, 16)
    assert not is_more_even(3, 16)
