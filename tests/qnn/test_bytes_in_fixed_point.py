"""Bytes that are requantised in fixed point: in 32 bits where all 256 values come out the same, else in 64."""

from __future__ import annotations

import re

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Tuple, const, var


def _drawn(x: Expr, dtype: str, seed: int) -> Expr:
    """One of any scales, zero points, roundings and results; some have a scale for each channel."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    scale = const((10 ** rng.uniform(-6, 3, 4 if seed % 3 == 0 else ())).astype("float32"))
    out = ("uint8", "int8", "int16", "int32")[seed % 4]
    most = np.iinfo(out if out != "int32" else "int16")
    zeros = (const(np.int32(rng.integers(low.min, low.max + 1))) for low in (info, most))
    zero, to_zero = zeros
    rounding = "UPWARD" if seed % 5 < 3 else "TONEAREST"
    form = {"rounding": rounding, "compute_dtype": "int64", "out_dtype": out}
    return relay.qnn.requantize(x, scale, zero, const(np.float32(10 ** rng.uniform(-4, 2))), to_zero, axis=1, **form)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_value_is_that_of_64_bits(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = var("x", shape=(1, 4, 256), dtype=dtype)
    module = IRModule.from_expr(Tuple([_drawn(x, dtype, seed) for seed in range(16)]))
    value = np.broadcast_to(np.arange(info.min, info.max + 1).astype(dtype), (1, 4, 256)).copy()
    graph = relay.build(module, "llvm")["default"](armillary.cpu(0))
    graph.set_input("x", value)
    graph.run()
    for k, expected in enumerate(evaluate(module, [value])):
        np.testing.assert_array_equal(graph.get_output(k).numpy(), expected, err_msg=str(k))


def test_a_sum_of_bytes_multiplies_in_32_bits() -> None:
    a, b = (var(name, shape=(1, 8, 8, 64), dtype="uint8") for name in "ab")
    numbers = [const(v) for v in (np.float32(0.02), np.int32(3), np.float32(0.03), np.int32(5))]
    y = relay.qnn.add(a, b, *numbers, const(np.float32(0.05)), const(np.int32(4)))
    text = relay.build(IRModule.from_expr(y), "llvm -mtriple=aarch64-linux-gnu").get_lib().get_source("ll")
    wide = re.compile(r"\bmul .*<\d+ x i64>")
    assert "x i32>" in text and not wide.search(text)


def test_a_factor_that_32_bits_do_not_hold_is_computed_in_64() -> None:
    x = var("x", shape=(1, 8, 8, 64), dtype="uint8")
    zero, form = const(np.int32(0)), {"out_dtype": "int32", "compute_dtype": "int64", "rounding": "UPWARD"}
    y = relay.qnn.requantize(x, const(np.float32(123456.7)), zero, const(np.float32(0.01)), zero, **form)
    text = relay.build(IRModule.from_expr(y), "llvm -mtriple=aarch64-linux-gnu").get_lib().get_source("ll")
    assert re.search(r"<\d+ x i64>", text)
