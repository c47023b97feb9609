"""`relay.quantize`: float networks in integers, at scales that are told, or that samples give."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

from armillary import IRModule, relay
from armillary.driver.quantization.thresholds import by_divergence, by_percentile
from armillary.errors import ArmillaryError, ConfigError
from armillary.relay import quantize
from armillary.relay.walk import post_order

RNG = np.random.default_rng(3)
Node = Any  # Any: an expression, whose fields differ


def weights(*shape: int) -> Node:
    return relay.const(RNG.normal(size=shape).astype(np.float32) / 8)


def network(tail: bool = True) -> IRModule:
    """Two convolutions with an activation between, and a dense layer."""
    x: Node = relay.var("data", shape=(1, 8, 8, 8))
    y: Node = relay.nn.relu(relay.nn.conv2d(x, weights(16, 8, 3, 3), padding=(1, 1)))
    y = relay.nn.conv2d(y, weights(8, 16, 1, 1))
    y = relay.nn.dense(relay.nn.batch_flatten(y), weights(5, 512)) if tail else y
    return IRModule.from_expr(relay.Function((x,), y))


def run(module: IRModule, value: np.ndarray[Any, Any], kind: str = "debug") -> np.ndarray[Any, Any]:
    result: Any = relay.create_executor(kind, mod=module).evaluate()(value)
    return np.asarray(result.numpy())


def names(module: IRModule) -> list[str]:
    functions: list[Node] = list(module.functions.values())
    calls: list[Node] = [e for f in functions for e in post_order(f)]
    return [e.op.name for e in calls if isinstance(e, relay.Call) and isinstance(e.op, relay.Op)]


def dataset(count: int = 4) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [{"data": RNG.normal(size=(1, 8, 8, 8))} for _ in range(count)]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"calibrate_mode": "global_scale", "global_scale": 4.0}, 0.08),
        ({"calibrate_mode": "kl_divergence", "weight_scale": "max"}, 0.1),
        ({"calibrate_mode": "percentile", "weight_scale": "channel_max"}, 0.03),
        ({"calibrate_mode": "percentile", "weight_scale": "channel_max", "calibrate_chunk_by": 1}, 0.03),
    ],
)
def test_integers_give_nearly_what_float_gives(settings: dict[str, Any], most: float) -> None:
    float_one, rows = network(), dataset()
    with quantize.qconfig(skip_conv_layers=[], skip_dense_layer=False, **settings):
        integers = quantize.quantize(float_one, dataset=rows)
    assert names(integers).count("qnn.conv2d") == 2
    assert "qnn.dense" in names(integers)
    assert "nn.conv2d" not in names(integers)
    value = rows[0]["data"].astype(np.float32)
    want, got = run(float_one, value), run(integers, value)
    assert 0 < np.abs(got - want).max() <= most * np.abs(want).max()
    np.testing.assert_allclose(run(integers, value, "graph"), got, atol=1e-2 * np.abs(want).max())


def test_layers_are_skipped_as_the_settings_say() -> None:
    module = network()
    with quantize.qconfig(skip_conv_layers=[0]):
        assert names(quantize.quantize(module)).count("nn.conv2d") == 1
    with quantize.qconfig(skip_conv_layers=[0, 1]):
        assert "qnn.conv2d" not in names(quantize.quantize(module))
    assert "nn.dense" in names(quantize.quantize(module))


def test_a_simulation_is_what_the_integers_give_in_float() -> None:
    module, value = network(tail=False), RNG.normal(size=(1, 8, 8, 8)).astype(np.float32)
    with quantize.qconfig(skip_conv_layers=None, global_scale=4.0):
        integers = quantize.quantize(module)
    with quantize.qconfig(skip_conv_layers=None, global_scale=4.0, do_simulation=True):
        simulated = quantize.quantize(module)
    assert "annotation.simulated_quantize" in names(simulated)
    step = 4.0 / 128
    np.testing.assert_allclose(run(simulated, value), run(integers, value), atol=step * 2)
    np.testing.assert_allclose(run(simulated, value, "graph"), run(simulated, value), atol=step * 2)


def test_a_layer_that_a_global_scale_makes_a_constant_is_an_error() -> None:
    x: Node = relay.var("data", shape=(1, 8, 8, 8))
    y: Node = relay.nn.conv2d(x, relay.const(weights(16, 8, 3, 3).data * np.float32(1e-3)))
    module = IRModule.from_expr(relay.Function((x,), relay.nn.conv2d(y, weights(4, 16, 1, 1))))
    with quantize.qconfig(skip_conv_layers=[]):
        with pytest.raises(ConfigError, match=r"data of layer 1, nn\.conv2d \(.*in steps of 0.0625"):
            quantize.quantize(module)
        with pytest.raises(ConfigError, match=r"data of layer 0, nn\.conv2d"):
            quantize.quantize(module, dataset=[{"data": row["data"] * 1e-3} for row in dataset()])
        assert "nn.conv2d" not in names(quantize.quantize(module, dataset=[{"data": dataset()[0]["data"] * 1e4}]))


def test_fewer_bits_are_fewer_steps() -> None:
    module, value = network(tail=False), RNG.normal(size=(1, 8, 8, 8)).astype(np.float32)
    want = run(module, value)
    losses = []
    for bits in (8, 4):
        with quantize.qconfig(skip_conv_layers=None, global_scale=4.0, nbit_input=bits):
            losses.append(np.abs(run(quantize.quantize(module), value) - want).max())
    assert losses[0] * 4 < losses[1]


def test_conversions_have_functions_of_their_own() -> None:
    module, value = network(tail=False), RNG.normal(size=(1, 8, 8, 8)).astype(np.float32)
    with quantize.qconfig(skip_conv_layers=None):
        whole = quantize.quantize(module)
    with quantize.qconfig(skip_conv_layers=None, partition_conversions="fully_integral"):
        parts = quantize.quantize(module)
    assert sorted(parts) == ["dequantize_outputs", "main", "quantize_inputs", "quantized_main"]
    assert "qnn.dequantize" not in [e.op.name for e in calls_of(parts["quantized_main"])]
    np.testing.assert_array_equal(run(parts, value), run(whole, value))
    with quantize.qconfig(partition_conversions="fully_integral"), pytest.raises(AssertionError, match="float32"):
        quantize.quantize(network())
    with quantize.qconfig(partition_conversions="enabled"):
        parts = quantize.quantize(network())
    assert run(parts, value).shape == (1, 5)


def calls_of(function: Node) -> list[Node]:
    return [e for e in post_order(function) if isinstance(e, relay.Call) and isinstance(e.op, relay.Op)]


def test_thresholds_leave_out_what_is_rare() -> None:
    samples = np.concatenate([RNG.normal(size=20_000), [80.0]])
    assert 2 < by_divergence(samples) < 20
    assert 3 < by_percentile(np.concatenate([np.tile(samples, 20)])) <= 80.0
    assert by_divergence(np.zeros(4)) == 1.0
    assert by_percentile(np.zeros(4)) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibrate_mode": "entropy"}, "calibrate_mode is 'entropy'"),
        ({"weight_scale": "mean"}, "weight_scale is 'mean'"),
        ({"nbit_input": 16}, "nbit_input is 16"),
        ({"dtype_weight": "uint8"}, "dtype_weight is 'uint8'"),
        ({"global_scale": -1.0}, "global_scale is -1.0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        quantize.qconfig(**settings)


def test_the_module_of_old_scripts_does_not_hide_the_function() -> None:
    module = importlib.import_module("armillary.relay.quantize.quantize")
    assert module is quantize and quantize.quantize.__name__ == "quantize"  # either is found by its own import


def test_what_is_missing_is_told() -> None:
    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        quantize.qconfig(skip_dense_layers=False)
    assert "no setting 'skip_dense_layers'" in str(message[0].message)
    with quantize.qconfig(calibrate_mode="percentile"):
        with pytest.raises(ConfigError, match="percentile needs a dataset"):
            quantize.quantize(network())
        with pytest.raises(ConfigError, match="the dataset is empty"):
            quantize.quantize(network(), dataset=[])
        with pytest.raises(ConfigError, match="the dataset has no 'data'"):
            quantize.quantize(network(), dataset=[{"other": np.zeros(3)}])
    with pytest.raises(ArmillaryError, match="a scale is not known"):
        quantize.realize()(quantize.annotate()(network()))


def test_functions_that_main_calls_are_put_in_place() -> None:
    x: Node = relay.var("x", shape=(2, 3))
    y: Node = relay.var("y", shape=(2, 3))
    module, twice = IRModule(), relay.GlobalVar("twice")
    module[twice] = relay.Function((x,), relay.add(x, x))
    module["main"] = relay.Function((y,), relay.Call(twice, (relay.Call(twice, (y,)),)))
    np.testing.assert_array_equal(run(module, np.ones((2, 3), np.float32), "vm"), np.full((2, 3), 4, np.float32))
