"""Dense layers by the real library, in float32 and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from infrastructure import Device, module_of, nodes, partitioned, run, verify

from armillary import relay
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, const, var

RNG = np.random.default_rng(11)
TRIALS = (
    ((1, 128), 16, False),
    ((1, 128), 16, True),
    ((32, 32), 32, False),
    ((32, 32), 32, True),
    ((1, 64), 1, True),
    ((11, 2), 2, False),
    ((11, 2), 2, True),
    ((7, 33), 5, True),
)


def layer(x: Expr, inner: int, units: int, has_bias: bool) -> Expr:
    y = relay.nn.dense(x, const(RNG.uniform(-1, 1, (units, inner)).astype("float32")), units=units)
    return relay.nn.bias_add(y, const(RNG.uniform(-1, 1, units).astype("float32"))) if has_bias else y


def qnn_layer(x: Expr, inner: int, units: int, has_bias: bool, dtype: str) -> Expr:
    info = np.iinfo(dtype)
    weight = const(RNG.integers(info.min, info.max, (units, inner)).astype(dtype))
    zero = 100 if dtype == "uint8" else -10
    y = relay.qnn.dense(x, weight, const(zero), const(zero), const(0.5), const(0.02), units=units)
    if has_bias:
        y = relay.nn.bias_add(y, const(RNG.integers(-900, 900, units).astype("int32")))
    out = const(np.float32(0.01 * 74 * 74 * np.sqrt(inner) / 32))
    zero_out = const(np.int32(128 if dtype == "uint8" else 0))
    return relay.qnn.requantize(y, const(np.float32(0.01)), const(np.int32(0)), out, zero_out, out_dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_trials_are_those_of_the_reference(device: Device, dtype: str, tmp_path: Path) -> None:
    given, layers = {}, []
    for k, (shape, units, has_bias) in enumerate(TRIALS):
        x = var(f"x{k}", shape=shape, dtype=dtype)
        if dtype == "float32":
            layers.append(layer(x, shape[1], units, has_bias))
            given[f"x{k}"] = RNG.uniform(-1, 1, shape).astype(dtype)
        else:
            info = np.iinfo(dtype)
            layers.append(qnn_layer(x, shape[1], units, has_bias, dtype))
            given[f"x{k}"] = RNG.integers(info.min, info.max, shape).astype(dtype)
    found = run(device, partitioned(module_of(*layers), 0, len(TRIALS)), given, tmp_path)
    expected = [evaluate(module_of(one), [value]) for one, value in zip(layers, given.values(), strict=True)]
    tolerance = {"atol": 0.001, "rtol": 0.01} if dtype == "float32" else {"atol": 1, "rtol": 0}
    verify(found, expected, **tolerance)


def test_nodes_of_dense() -> None:
    (rows,) = nodes(partitioned(module_of(layer(var("x", shape=(1, 32)), 32, 8, True))))
    assert [row["attrs"]["shape"] for row in rows] == [[[[1, 32]]], [[[8, 32]]], [[[1, 8]]], [[[1, 8]]]]
    attrs = rows[-1]["attrs"]
    assert (rows[-1]["name"], attrs["units"], attrs["out_dtype"]) == ("nn.dense", [["8"]], [[""]])
    (rows,) = nodes(partitioned(module_of(qnn_layer(var("x", shape=(1, 32), dtype="uint8"), 32, 8, True, "uint8"))))
    assert rows[-1]["name"] == "qnn.dense" and rows[-1]["attrs"]["num_inputs"] == "9"


def test_scales_by_unit_are_not_offloaded() -> None:
    x = var("x", shape=(1, 8), dtype="uint8")
    weight, scales = const(np.ones((4, 8), "uint8")), const(np.full(4, 0.02, "float32"))
    y = relay.qnn.dense(x, weight, const(1), const(1), const(0.5), scales, units=4)
    y = relay.qnn.requantize(
        y, scales, const(np.int32(0)), const(np.float32(1)), const(np.int32(0)), axis=1, out_dtype="uint8"
    )
    partitioned(module_of(y), 2, 0)
