"""Maxima and means of bytes, in planes and in blocks of channels: what numpy gives of the same windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backend.compiled import Engine
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function

SEED = 20261122
SHAPES = {"NCHW": (1, 5, 9, 11), "NCHW16c": (1, 2, 9, 11, 16)}


def _both(x: Any, y: Any, feed: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    module = IRModule({"main": Function((x,), y)})
    (got,) = Engine(module)({"x": feed})
    return got, evaluate(module["main"], {"x": feed})


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_maximum_of_bytes(dtype: str, layout: str, strides: int) -> None:
    x = relay.var("x", shape=SHAPES[layout], dtype=dtype)
    y = relay.nn.max_pool2d(x, pool_size=(3, 3), strides=(strides, strides), padding=(1, 1), layout=layout)
    limits = np.iinfo(dtype)
    feed = np.random.default_rng(SEED).integers(limits.min, limits.min + 9, SHAPES[layout]).astype(dtype)
    got, want = _both(x, y, feed)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want, err_msg=f"seed {SEED}")


@pytest.mark.parametrize("layout", SHAPES)
def test_mean_of_bytes_that_are_widened_in_its_kernel(layout: str) -> None:
    x = relay.var("x", shape=SHAPES[layout], dtype="uint8")
    scale, zero = relay.const(np.float32(0.1)), relay.const(np.int32(7))
    real = relay.qnn.op.dequantize(x, scale, zero)
    mean = relay.nn.avg_pool2d(real, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    y = relay.qnn.op.quantize(mean, scale, zero, out_dtype="uint8")
    got, want = _both(x, y, np.random.default_rng(SEED).integers(0, 256, SHAPES[layout]).astype(np.uint8))
    steps = np.abs(got.astype(int) - want)  # where the mean lies half-way between two bytes, either is right
    assert steps.max() <= 1 and (steps > 0).mean() < 0.05, f"seed {SEED}"
