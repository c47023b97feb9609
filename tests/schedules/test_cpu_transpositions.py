"""Transpositions by tiles in registers: blocked to plain and back, odd sizes, arithmetic inside; resizes; volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay, te
from armillary.backends.cpu.access import transposed_axis
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.transform import PassContext

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


def check(body: Any, *inputs: Any, tolerance: float = 0.0) -> None:
    """Compiled and evaluated agree."""
    function = relay.Function(list(inputs), body)
    rng = np.random.default_rng(9)
    values = [rng.standard_normal(x.checked_type.static).astype(x.checked_type.dtype.numpy) for x in inputs]
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    for x, value in zip(inputs, values, strict=True):
        graph.set_input(x.name_hint, value)
    graph.run()
    expected, got = evaluate(function, values), graph.get_output(0).numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


SHAPES = [
    (16, 2, 32, 16),
    (19, 3, 56, 16),
    (20, 5, 14, 16),
    (24, 7, 7, 8),
    (33, 2, 33, 16),
    (40, 3, 18, 4),
    (12, 9, 3, 4),
]


@pytest.mark.parametrize(("channels", "height", "width", "block"), SHAPES)
def test_blocked_channels_become_plain(channels: int, height: int, width: int, block: int) -> None:
    x = relay.var("x", shape=(2, -(-channels // block), height, width, block))
    y = relay.layout_transform(x, src_layout=f"NCHW{block}c", dst_layout="NCHW")
    check(relay.nn.relu(relay.strided_slice(y, begin=[0, 0, 0, 0], end=[2, channels, height, width])), x)


@pytest.mark.parametrize(("channels", "height", "width", "block"), [s for s in SHAPES if s[0] % s[3] == 0])
def test_plain_channels_become_blocked(channels: int, height: int, width: int, block: int) -> None:
    x = relay.var("x", shape=(2, channels, height, width))
    check(relay.layout_transform(x * relay.const(np.float32(2)), src_layout="NCHW", dst_layout=f"NCHW{block}c"), x)


def test_an_axis_of_one_behind_the_last_is_no_transposition() -> None:
    x = relay.var("x", shape=(1, 3, 32, 48))
    body = relay.layout_transform(relay.nn.relu(x), src_layout="NCHW", dst_layout="NCHW1c")
    check(body, x)
    with PassContext(opt_level=3):
        text = build(relay.Function([x], body), AVX512).get_source("tir")
    stores = [line for line in text.splitlines() if "layout_transform[" in line]
    assert len(stores) == 1 and "layout_transform[ramp(" in stores[0], "whole vectors are stored"


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64", "int8"])
def test_other_types_are_transposed(dtype: str) -> None:
    x = relay.var("x", shape=(37, 50), dtype=dtype)
    check(relay.transpose(x, axes=(1, 0)), x)


@pytest.mark.parametrize("sides", [(85, 100), (85, 37), (18, 5), (5, 18), (91, 19), (16, 21), (257, 3)])
def test_any_sides_are_transposed(sides: tuple[int, int]) -> None:
    x = relay.var("x", shape=(3, *sides))
    check(relay.transpose(x, axes=(0, 2, 1)), x)
    check(relay.sigmoid(relay.transpose(x, axes=(2, 0, 1))), x, tolerance=1e-6)


def test_a_column_vector_is_read_by_lanes_of_a_transposed_tile() -> None:
    x, bias = relay.var("x", shape=(1, 2, 9, 21, 16)), relay.var("b", shape=(32, 1, 1))
    row = relay.var("r", shape=(1, 21))
    y = relay.layout_transform(x, src_layout="NCHW16c", dst_layout="NCHW")
    check(relay.multiply(y + bias, row), x, bias, row, tolerance=1e-6)


def test_blocked_and_plain_channels_are_joined_and_shuffled() -> None:
    x, z = relay.var("x", shape=(1, 4, 14, 14, 16)), relay.var("z", shape=(1, 58, 14, 14))
    y = relay.layout_transform(x, src_layout="NCHW16c", dst_layout="NCHW")
    y = relay.strided_slice(y, begin=[0, 0, 0, 0], end=[1, 58, 14, 14])
    joined = relay.concatenate([z, y], axis=1)
    split = relay.reshape(joined, newshape=(1, 2, 58, 14, 14))
    shuffled = relay.reshape(relay.transpose(split, axes=(0, 2, 1, 3, 4)), newshape=(1, 116, 14, 14))
    check(shuffled, x, z)
    check(relay.layout_transform(shuffled, src_layout="NCHW", dst_layout="NCHW4c"), x, z)


@pytest.mark.parametrize(("size", "wanted"), [((9, 13), (18, 26)), ((7, 16), (20, 33)), ((12, 12), (5, 7))])
def test_a_resize_of_a_convolution_is_interpolated_in_blocks(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=(1, 16, *size))
    weight = relay.const((rng.standard_normal((24, 16, 1, 1)) / 4).astype("float32"))
    y = relay.image.resize2d(relay.nn.conv2d(x, weight), size=wanted, method="linear")
    check(y, x, tolerance=1e-5)
    with PassContext(opt_level=3):
        text = str(relay.optimize(relay.Function([x], y), AVX512)[0].astext(False))
    assert text.rindex("take(") < text.rindex("layout_transform(")


def test_the_axis_to_turn_is_the_one_that_is_contiguous() -> None:
    x = te.placeholder((1, 2, 5, 20, 16), "float32", "x")
    plain = te.compute((1, 32, 5, 20), lambda n, c, h, w: x(n, c // 16, h, w, c % 16), name="plain")
    found = transposed_axis(te.create_schedule(plain.op), plain.op)
    assert found is not None
    assert (found[0].var.name, found[1]) == ("c", 16)
    scaled = te.compute((1, 2, 5, 20, 16), lambda n, c, h, w, i: x(n, c, h, w, i) * 2.0, name="scaled")
    assert transposed_axis(te.create_schedule(scaled.op), scaled.op) is None
    y = te.placeholder((1, 32, 5, 20), "float32", "y")
    both = te.compute((1, 32, 5, 20), lambda n, c, h, w: x(n, c // 16, h, w, c % 16) + y(n, c, h, w), name="both")
    assert transposed_axis(te.create_schedule(both.op), both.op) is None


@pytest.mark.parametrize("batch", [1, 2])
def test_layers_over_volumes_stay_in_blocks(batch: int) -> None:
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(batch, 3, 5, 9, 11))
    y = x
    for inputs, outputs in ((3, 16), (16, 32)):
        weight = rng.standard_normal((outputs, inputs, 3, 3, 3)) / np.sqrt(27 * inputs)
        y = relay.nn.conv3d(y, relay.const(weight.astype("float32")), padding=(1, 1, 1))
        bias = relay.const(rng.standard_normal(outputs).astype("float32"))
        y = relay.nn.relu(relay.nn.bias_add(y, bias))
        y = relay.nn.max_pool3d(y, pool_size=(1, 2, 2), strides=(1, 2, 2))
    check(relay.nn.max_pool3d(y, pool_size=(2, 1, 1), strides=(2, 1, 1)), x, tolerance=2e-5)
    with PassContext(opt_level=3):
        text = str(relay.optimize(relay.Function([x], y), AVX512)[0].astext(False))
    pools = [line for line in text.splitlines() if "nn.max_pool2d" in line]
    assert pools and all('layout="NCHW16c"' in line for line in pools)
