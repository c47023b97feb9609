"""Depthwise convolutions: values against the reference, tiles, and which loops are spelled out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends.cpu.conv2d.depthwise.cost import (
    DepthwiseNest,
    choose_depthwise,
    depthwise_estimate,
    depthwise_tiles,
    goes_by_column,
)
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

AVX512 = cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
AVX2 = cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
CASES = [
    # channels, image, kernel, stride, dilation, padding
    (32, (9, 28), (31, 31), 1, 1, 15),
    (32, (14, 14), (27, 27), 1, 1, 13),  # sums in parts
    (16, (20, 40), (9, 13), 1, 1, 4),
    (48, (7, 7), (7, 7), 1, 1, 3),  # an odd number of blocks
    (32, (7, 7), (13, 13), 1, 1, 6),
    (16, (15, 33), (5, 5), 2, 1, 2),
    (16, (12, 37), (3, 3), 2, 2, 2),
    (16, (11, 30), (5, 5), 1, 2, 4),
    (32, (3, 1), (3, 1), 1, 1, 0),
    (24, (10, 17), (4, 6), 1, 1, 2),
]


def depthwise(channels: int, image: Any, kernel: Any, stride: int, dilation: int, padding: int) -> Any:
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(1, channels, *image))
    w = relay.const((rng.standard_normal((channels, 1, *kernel)) / np.sqrt(np.prod(kernel))).astype("float32"))
    y = relay.nn.conv2d(
        x,
        w,
        strides=(stride,) * 2,
        padding=(padding,) * 2,
        dilation=(dilation,) * 2,
        groups=channels,
        channels=channels,
        kernel_size=kernel,
    )
    bias = relay.const(rng.standard_normal((channels, 1, 1)).astype("float32"))
    return relay.Function([x], relay.nn.relu(relay.add(y, bias)))


@pytest.mark.parametrize(("channels", "image", "kernel", "stride", "dilation", "padding"), CASES)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
def test_depthwise_convolutions_of_all_sizes_agree_with_the_reference(
    target: str, channels: int, image: Any, kernel: Any, stride: int, dilation: int, padding: int
) -> None:
    function = depthwise(channels, image, kernel, stride, dilation, padding)
    value = np.random.default_rng(9).standard_normal((1, channels, *image)).astype("float32")
    with PassContext(opt_level=3):
        graph = build(function, target)["default"](cpu(0))
    graph.set_input("x", value)
    graph.run()
    assert np.allclose(graph.get_output(0).numpy(), evaluate(function, [value]), atol=2e-5, rtol=2e-5)


def nest(width: int, taps: int, stride: int = 1, chunks: int = 8) -> DepthwiseNest:
    return DepthwiseNest(width, chunks * width, chunks, (taps, taps), (float(taps),) * 2, stride, 1)


@pytest.mark.parametrize("cpu_", [AVX512, AVX2])
@pytest.mark.parametrize("width", [1, 5, 7, 14, 28, 56, 100])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (3, 2), (7, 1), (7, 2), (31, 1)])
def test_sums_columns_and_weights_of_a_tile_fit_the_registers(cpu_: Any, width: int, taps: int, stride: int) -> None:
    case = nest(width, taps, stride)
    for tile in depthwise_tiles(case, cpu_):
        assert tile.vectors * (tile.rows * (1 + case.held_columns) + 1) < cpu_.vector_registers


def test_a_tile_has_sums_enough_to_hide_the_latency_where_the_image_does() -> None:
    assert choose_depthwise(nest(28, 31), AVX512).rows == 14
    narrow = choose_depthwise(nest(7, 7), AVX512)
    assert (narrow.rows, narrow.vectors) == (7, 2), "a line of 7 columns leaves a unit idle: two blocks share a tile"
    few = choose_depthwise(nest(7, 7, chunks=1), AVX512)
    assert (few.rows, few.vectors) == (7, 1)


def test_the_columns_held_for_later_taps_depend_on_the_phases_of_the_stride() -> None:
    assert [
        nest(28, 3, 1).held_columns,
        nest(28, 3, 2).held_columns,
        nest(28, 5, 2).held_columns,
        nest(28, 2, 2).held_columns,
    ] == [1, 1, 2, 0]


def test_a_tile_of_a_memory_bound_layer_stays_narrow() -> None:
    case = DepthwiseNest(112, 96 * 112 // 16, 6, (3, 3), (3.0, 3.0), 1, 1, moved=1e7)
    tile = choose_depthwise(case, AVX512)
    assert tile.rows * tile.vectors <= 8
    assert depthwise_estimate(case, tile, AVX512).bound == "reading and writing"


def test_only_two_units_of_arm_take_strided_layers_column_by_column() -> None:
    """With twice the sums of a memory-bound layer's tile elsewhere; one unit has sums enough, x86 was measured so."""
    n1, a72 = (cpu_model(f"llvm -mtriple=aarch64-linux-gnu -mcpu={name}") for name in ("neoverse-n1", "cortex-a72"))
    case = DepthwiseNest(28, 8 * 28, 8, (3, 3), (3.0, 3.0), 2, 1, moved=1e7)
    assert [goes_by_column(case, cpu_) for cpu_ in (n1, a72, AVX512, AVX2)] == [True, False, False, False]
    assert choose_depthwise(case, n1).rows == 14 and choose_depthwise(case, a72).rows < 8
    assert not any(goes_by_column(nest(28, taps, stride), n1) for taps, stride in ((3, 1), (2, 2), (31, 2)))


@pytest.mark.parametrize(("kernel", "products"), [(3, 3 * 2 * 41), (31, 628)])
def test_lines_of_a_large_window_are_a_loop_and_no_tap_is_on_the_padding(kernel: int, products: int) -> None:
    """Of 3x3 all lines are spelled out, two tiles of 14 columns with an end each; of 31x31 only the columns are."""
    function = depthwise(16, (28, 28), (kernel, kernel), 1, 1, kernel // 2)
    with PassContext(opt_level=3):
        text = build(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids").get_lib().get_source("ll")
    assert sum("fmuladd.v16f32" in line and "declare" not in line for line in text.splitlines()) == products
