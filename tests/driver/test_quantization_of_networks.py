"""`armillary.quantize`: networks in bytes compute what their simulation says, and float layers bring the error down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import IRModule, relay
from armillary.errors import ConfigError
from armillary.relay import quantize

RNG = np.random.default_rng(5)
Node = Any  # Any: an expression, whose fields differ


def weights(*shape: int) -> Node:
    return relay.const((RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def network(last: Node = None) -> IRModule:
    """Three convolutions, one of them beside a short cut, and a dense layer."""
    x: Node = relay.var("data", shape=(1, 8, 12, 12))
    y: Node = relay.nn.relu(relay.nn.conv2d(x, weights(16, 8, 3, 3), padding=(1, 1)))
    z = relay.nn.relu(relay.nn.conv2d(y, weights(16, 16, 3, 3), padding=(1, 1)) + y)
    z = relay.nn.conv2d(z, weights(8, 16, 1, 1))
    last = weights(5, 8) if last is None else last
    y = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.abs(z))), last)
    return IRModule.from_expr(relay.Function((x,), y))


def rows(count: int = 4) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [{"data": RNG.normal(size=(1, 8, 12, 12)).astype(np.float32)} for _ in range(count)]


def results(module: IRModule, data: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    with armillary.transform.PassContext(opt_level=3):
        graph = relay.build(module, target="llvm")["default"]()
    found = []
    for row in data:
        graph.set_input("data", row["data"])
        graph.run()
        found.append(graph.get_output(0).numpy())
    return np.stack(found)


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_compiled_bytes_lose_what_the_simulation_says(method: str) -> None:
    module, data = network(), rows()
    made = armillary.quantize(module, None, data, method=method)
    assert [layer.kind for layer in made.layers] == ["int8"] * 4
    want, got = results(module, data), results(made.module, data)
    lost = float(np.sqrt(((got - want) ** 2).sum() / (want**2).sum()))
    assert 0 < made.error < 0.1
    assert lost == pytest.approx(made.error, rel=0.3)
    assert "4 of 4 layers in int8" in made.summary()


def test_sensitive_layers_stay_float_until_the_error_is_met() -> None:
    module, data = network(), rows()
    every = armillary.quantize(module, None, data)
    made = armillary.quantize(module, None, data, error=every.error / 2)
    assert 0 < sum(layer.kind == "float32" for layer in made.layers) <= len(made.layers)
    assert made.error <= every.error / 2
    kept = armillary.quantize(module, None, data, keep=[0, 3])
    assert [layer.kind for layer in kept.layers] == ["float32", "int8", "int8", "float32"]
    with pytest.raises(ConfigError, match="keep names layer 9"):
        armillary.quantize(module, None, data, keep=[9])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_rounding_takes_from_means_is_added_back(layout: str) -> None:
    """Data of means above 0 and weights of few steps: the error has a mean of its own in each channel."""
    shape, kernels = ((1, 6, 16, 16), "OIHW") if layout == "NCHW" else ((1, 16, 16, 6), "HWIO")
    raw = RNG.normal(size=(8, 6, 1, 1)).astype(np.float32)
    raw[:, 0] *= 300  # the others have few of the 127 steps
    weight = raw if layout == "NCHW" else raw.transpose(2, 3, 1, 0)
    x: Node = relay.var("data", shape=shape)
    settings = {"data_layout": layout, "kernel_layout": kernels, "kernel_size": (1, 1), "channels": 8}
    y = relay.nn.conv2d(relay.nn.relu(x), relay.const(np.ascontiguousarray(weight)), **settings)
    module = IRModule.from_expr(relay.Function((x,), y))
    scale = np.array([1e-3, 1, 1, 1, 1, 1], np.float32).reshape([-1 if n == 6 else 1 for n in shape])
    data = [{"data": (scale * (4 + RNG.normal(size=shape))).astype(np.float32)} for _ in range(3)]
    axes = tuple(k for k, n in enumerate(shape) if n != 6)
    means = []
    for correct in (False, True):
        lost = results(armillary.quantize(module, None, data, correct=correct).module, data) - results(module, data)
        means.append(np.abs(lost.mean((0, *(k + 1 for k in axes)))).max())
    assert means[1] < 0.2 * means[0]


def test_what_cannot_be_quantised_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 inputs"):
        armillary.quantize(network(), None, [])
    with pytest.raises(ConfigError, match="method 'best'"):
        armillary.quantize(network(), None, rows(), method="best")
    x: Node = relay.var("data", shape=(1, 8, 12, 12))
    with pytest.raises(ConfigError, match="no float32 convolution"):
        armillary.quantize(IRModule.from_expr(relay.Function((x,), relay.nn.relu(x))), None, rows())


def test_a_layer_that_bytes_would_make_a_constant_is_an_error() -> None:
    x: Node = relay.var("data", shape=(1, 200_000))
    module = IRModule.from_expr(relay.Function((x,), relay.nn.dense(x, weights(2, 200_000))))
    value = np.zeros((1, 200_000), np.float32)
    value[0, 7] = 1e-3  # one value that is not 0: the percentile is 0
    settings = quantize.qconfig(skip_dense_layer=False, calibrate_mode="percentile")
    with settings, pytest.raises(ConfigError, match="a constant of the data"):
        quantize.quantize(module, dataset=[{"data": value}])


def test_a_computed_gate_stays_out_of_the_weights() -> None:
    x: Node = relay.var("data", shape=(1, 8, 12, 12))
    y = relay.nn.conv2d(x, weights(16, 8, 3, 3), padding=(1, 1))
    y = y * relay.sigmoid(y)
    gate = relay.sigmoid(relay.nn.conv2d(relay.nn.global_avg_pool2d(y), weights(16, 16, 1, 1)))
    y = relay.nn.conv2d(y * gate, weights(8, 16, 1, 1))
    module = IRModule.from_expr(relay.Function((x,), relay.nn.conv2d(y, weights(4, 8, 1, 1))))
    smaller = armillary.quantize(module, {}, rows())
    assert [layer.shape[1] for layer in smaller.layers] == [16, 16, 8, 4]
    with armillary.transform.PassContext(opt_level=3):
        held = relay.build(smaller.module, target="llvm -mcpu=cascadelake").get_params().values()
    assert sum(array.nbytes for array in held if array.dtype == "int8") >= 8 * 16 * 9 + 16 * 16 + 16 * 8 + 8 * 4
    assert max(array.size for array in held if array.dtype == "float32") <= 16
