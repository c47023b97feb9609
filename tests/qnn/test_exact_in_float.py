"""Quantised products in float32: the same bits up to the bound, integers beyond it, never Winograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary as tvm
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, const
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

BOUND = 1 << 24
TARGET = "llvm -mcpu=x86-64-v3"  # without dot products of bytes


def convolution(weight: np.ndarray, zero: int, weight_zero: Any = 0, size: int = 12, dtype: str = "uint8") -> IRModule:
    x = relay.var("x", shape=(1, weight.shape[1], size, size), dtype=dtype)
    zeros = const(np.int32(zero)), const(np.asarray(weight_zero, np.int32))
    scales = const(np.float32(0.1)), const(np.float32(0.2))
    body = relay.qnn.conv2d(
        x, const(weight), *zeros, *scales, kernel_size=weight.shape[2:], channels=weight.shape[0], padding=(1, 1)
    )
    return IRModule.from_expr(Function([x], body))


def built(module: IRModule, value: np.ndarray, level: int = 3, target: str = TARGET) -> tuple[np.ndarray, str]:
    with PassContext(level):
        library = relay.build(module, target)
    graph = GraphModule(library["default"](tvm.cpu(0)))
    graph.run(x=value)
    return graph.get_output(0).numpy(), library.get_source("relay")


def weights_of_sum(total: int, channels: int) -> np.ndarray:
    """int8 weights (16, channels, 3, 3) of alternating sign whose absolute values add up to `total` per output."""
    count = channels * 9
    flat = np.full(count, total // count)
    flat[: total % count] += 1
    flat[1::2] *= -1
    return np.broadcast_to(flat.reshape(1, channels, 3, 3), (16, channels, 3, 3)).astype("int8")


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize(("zero", "largest"), [(0, 255), (128, 128), (7, 248)])
def test_the_largest_sums_are_exact_and_one_more_is_computed_in_integers(zero: int, largest: int, level: int) -> None:
    channels = 64 if largest > 200 else 128
    rng = np.random.default_rng(zero)
    for total, is_float in ((BOUND // largest, True), (BOUND // largest + 1, False)):
        weight = weights_of_sum(total, channels)
        assert np.abs(weight.astype(int)).sum((1, 2, 3)).max() == total
        extremes = np.where(weight[0, :, 1, 1] > 0, 255, 0).astype("uint8").reshape(1, channels, 1, 1)
        value = rng.choice(np.array([0, 1, 254, 255], "uint8"), (1, channels, 12, 12))
        value[:, :, :4] = extremes
        module = convolution(weight, zero)
        got, text = built(module, value, level)
        np.testing.assert_array_equal(got, evaluate(module["main"], {"x": value}))
        assert ("winograd" not in text) and ((", float32], %p1: Tensor" in text) == is_float), text


def test_zero_points_of_weights_and_signed_data() -> None:
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 255, (8, 5, 3, 3)).astype("uint8")
    value = rng.integers(-128, 127, (1, 5, 12, 12)).astype("int8")
    module = convolution(weight, -3, rng.integers(0, 255, 8), dtype="int8")
    got, text = built(module, value)
    np.testing.assert_array_equal(got, evaluate(module["main"], {"x": value}))
    assert "float32" in text


@pytest.mark.parametrize(
    ("rows", "target", "is_float"),
    [(1, "llvm -mcpu=x86-64", False), (16, "llvm -mcpu=x86-64", True), (16, "llvm -mcpu=cascadelake", False)],
)
def test_products_stay_integers_with_few_rows_or_where_there_are_dot_products(
    rows: int, target: str, is_float: bool
) -> None:
    if not cpu_model(target).features <= cpu_model("llvm").features:
        pytest.skip("not the processor for it")
    rng = np.random.default_rng(rows)
    x = relay.var("x", shape=(rows, 96), dtype="uint8")
    weight = const(rng.integers(-128, 127, (24, 96)).astype("int8"))
    zeros, scales = (const(np.int32(128)), const(np.int32(0))), (const(np.float32(1)), const(np.float32(1)))
    module = IRModule.from_expr(Function([x], relay.qnn.dense(x, weight, *zeros, *scales, units=24)))
    value = rng.integers(0, 255, (rows, 96)).astype("uint8")
    got, text = built(module, value, target=target)
    np.testing.assert_array_equal(got, evaluate(module["main"], {"x": value}))
    assert ("float32" in text) == is_float


def test_the_configuration_keeps_integers() -> None:
    rng = np.random.default_rng(4)
    value = rng.integers(0, 255, (1, 4, 12, 12)).astype("uint8")
    module = convolution(rng.integers(-9, 9, (8, 4, 3, 3)).astype("int8"), 128)
    with PassContext(3, config={"relay.qnn.product_in_float": False}):
        library = relay.build(module, TARGET)
    assert "float32" not in library.get_source("relay")
    graph = GraphModule(library["default"](tvm.cpu(0)))
    graph.run(x=value)
    np.testing.assert_array_equal(graph.get_output(0).numpy(), built(module, value)[0])
