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
    ((1, 2), 2, False),
    ((1, 2), 2, True),
    ((4, 4), 4, True),
    ((16, 16), 16, False),
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


def expected_nodes(shape: tuple[int, ...], units: int, has_bias: bool, dtype: str) -> list[dict[str, object]]:
    """The JSON of a trial, as the text's test set has it."""
    wide, is_float = ("float32", True) if dtype == "float32" else ("int32", False)
    numbers = [((), d) for d in ("int32", "int32", "float32", "float32")]
    leaves: list[tuple[tuple[int, ...], str]] = [(shape, dtype), ((units, shape[1]), dtype)]
    leaves += ([] if is_float else numbers) + ([((1, units), wide)] if has_bias else [])
    leaves += [] if is_float else [((), "float32"), ((), "int32")]
    made = [{"shape": [[list(size)]], "dtype": [[d]]} for size, d in leaves]
    rows: list[dict[str, object]] = [
        {"op": "const" if k else "input", "name": "", "attrs": attrs} for k, attrs in enumerate(made)
    ]
    attrs = {"num_inputs": str(len(rows)), "num_outputs": "1", "units": [[str(units)]]}
    attrs |= {"shape": [[[shape[0], units]]], "dtype": [[dtype]], "out_dtype": [["" if is_float else "int32"]]}
    inputs = [[k, 0, 0] for k in range(len(rows))]
    return [*rows, {"op": "kernel", "name": "nn.dense" if is_float else "qnn.dense", "inputs": inputs, "attrs": attrs}]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_nodes_of_the_trials(dtype: str) -> None:
    layers = []
    for k, (shape, units, has_bias) in enumerate(TRIALS):
        x = var(f"x{k}", shape=shape, dtype=dtype)
        made = (x, shape[1], units, has_bias)
        layers.append(layer(*made) if dtype == "float32" else qnn_layer(*made, dtype))
    found = nodes(partitioned(module_of(*layers), 0, len(TRIALS)))
    assert found == [expected_nodes(*trial, dtype) for trial in TRIALS]


def test_scales_by_unit_are_not_offloaded() -> None:
    x = var("x", shape=(1, 8), dtype="uint8")
    weight, scales = const(np.ones((4, 8), "uint8")), const(np.full(4, 0.02, "float32"))
    y = relay.qnn.dense(x, weight, const(1), const(1), const(0.5), scales, units=4)
    y = relay.qnn.requantize(
        y, scales, const(np.int32(0)), const(np.float32(1)), const(np.int32(0)), axis=1, out_dtype="uint8"
    )
    partitioned(module_of(y), 2, 0)
