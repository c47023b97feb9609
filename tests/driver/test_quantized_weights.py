"""Weights alone in integers (nearest, GPTQ, AWQ), channels evened out, and ONNX Runtime on quantised files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import IRModule, relay
from armillary.cli.main import main
from armillary.contrib.target.onnx import to_onnx
from armillary.driver.quantization.equalize import equalized, smoothed
from armillary.driver.quantization.network import relative_error, results_of
from armillary.driver.quantization.quantize import prerequisite_optimize
from armillary.driver.quantization.weights import gptq, nearest
from armillary.errors import ConfigError
from armillary.relay.walk import post_order

RNG = np.random.default_rng(7)
Node = Any  # Any: an expression, whose fields differ


def weights(*shape: int) -> Node:
    """Weights whose channels differ in size."""
    values = RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    return relay.const((values * np.exp(RNG.normal(size=(shape[0],) + (1,) * (len(shape) - 1)))).astype(np.float32))


def layers(units: int = 64) -> IRModule:
    """Two dense layers."""
    x: Node = relay.var("data", shape=(4, 128))
    hidden = relay.nn.relu(relay.nn.dense(x, weights(units, 128)) + relay.const(np.ones(units, np.float32)))
    return IRModule.from_expr(relay.Function((x,), relay.nn.dense(hidden, weights(16, units))))


def convolutions() -> IRModule:
    """A ReLU network with a depthwise convolution, then a dense layer."""
    x: Node = relay.var("data", shape=(1, 8, 12, 12))
    y = relay.nn.conv2d(x, weights(16, 8, 1, 1)) + relay.const(RNG.normal(size=(16, 1, 1)).astype(np.float32))
    y = relay.nn.conv2d(relay.nn.relu(y), weights(16, 1, 3, 3), padding=(1, 1), groups=16)
    y = relay.nn.bias_add(y, relay.const(RNG.normal(size=16).astype(np.float32)))
    y = relay.nn.relu(relay.nn.conv2d(relay.nn.max_pool2d(relay.nn.relu(y), (2, 2), (2, 2)), weights(8, 16, 3, 3)))
    y = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), weights(5, 8))
    return IRModule.from_expr(relay.Function((x,), y))


def rows(*shape: int, count: int = 16) -> list[dict[str, Any]]:
    """Inputs whose terms depend on each other and differ in size, as those of real layers do."""
    mix = RNG.normal(size=(shape[-1], shape[-1])) * np.exp(RNG.normal(size=shape[-1])) / np.sqrt(shape[-1])
    return [{"data": (RNG.normal(size=shape) @ mix).astype(np.float32)} for _ in range(count)]


def test_gptq_and_awq_lose_less_than_rounding() -> None:
    module, data = layers(), rows(4, 128, count=64)
    made = {m: armillary.quantize_weights(module, None, data, method=m) for m in ("nearest", "gptq", "awq")}
    assert made["gptq"].error < 0.75 * made["nearest"].error
    assert made["awq"].error < 0.95 * made["nearest"].error
    assert "weights of 2 of 2 layers in int4" in made["gptq"].summary()


def test_gptq_of_terms_that_are_independent_is_rounding() -> None:
    weight, data = RNG.normal(size=(8, 64)).astype(np.float32), np.eye(64, dtype=np.float32)
    ours, rounded = gptq(weight, data, 4, 16), nearest(weight, 4, 16)
    np.testing.assert_allclose(ours.real(), rounded.real(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_packages_hold_the_integers(bits: int) -> None:
    module = layers(256)
    made = armillary.quantize_weights(module, None, bits=bits, keep=[1])
    assert np.isnan(made.error)
    assert [layer.kind for layer in made.layers] == [f"int{bits}", "float32"]
    with armillary.transform.PassContext(opt_level=3):
        plain, small = relay.build(module, target="llvm"), relay.build(made.module, target="llvm")
    sizes = [sum(a.nbytes for a in library.get_params().values()) for library in (plain, small)]
    kept = 16 * 256 * 4
    assert sizes[1] - kept < (sizes[0] - kept) * (bits / 32 + 0.1)


def test_what_cannot_be_quantised_is_refused() -> None:
    for settings in ({"bits": 3}, {"group": 20}, {"method": "best"}, {"method": "gptq"}, {"keep": [5]}):
        with pytest.raises(ConfigError, match="quantize_weights"):
            armillary.quantize_weights(layers(), None, **settings)  # type: ignore[arg-type]


def test_channels_evened_out_change_no_result() -> None:
    module, data = prerequisite_optimize(convolutions()), rows(1, 8, 12, 12, count=3)
    wanted = results_of(module, data)
    even = equalized(module)
    assert relative_error(results_of(even, data), wanted) < 1e-5
    assert not armillary.ir.structural_equal(even, module)
    smooth = smoothed(module, data, 0.5)
    assert relative_error(results_of(smooth, data), wanted) < 1e-5
    assert not armillary.ir.structural_equal(smooth, module)


def test_channels_are_evened_out_through_a_limit_of_each_channel() -> None:
    scales = np.array([0.1, 10, 1, 3, 0.3, 20, 2, 1], np.float32).reshape(-1, 1, 1, 1)
    first, depthwise, last = (
        RNG.normal(size=shape).astype(np.float32) for shape in ((8, 4, 1, 1), (8, 1, 3, 3), (5, 8, 1, 1))
    )
    x: Node = relay.var("data", shape=(1, 4, 9, 9))
    y = relay.clip(relay.nn.conv2d(x, relay.const(first * scales)), 0.0, 6.0)
    y = relay.clip(relay.nn.conv2d(y, relay.const(depthwise), groups=8, channels=8, padding=(1, 1)), 0.0, 6.0)
    module = IRModule.from_expr(relay.Function((x,), relay.nn.conv2d(y, relay.const(last))))
    data = rows(1, 4, 9, 9, count=2)
    even = equalized(module)
    assert relative_error(results_of(even, data), results_of(module, data)) < 1e-5
    layers: list[Node] = [
        e for e in post_order(even["main"]) if getattr(getattr(e, "op", e), "name", "") == "nn.conv2d"
    ]
    ranges = [np.abs(e.args[1].data).max((1, 2, 3)) for e in layers]
    assert ranges[0].max() / ranges[0].min() < 0.1 * scales.max() / scales.min()


def test_smoothing_moves_outliers_of_data_to_weights() -> None:
    module, data = layers(), rows(4, 128)
    for row in data:
        row["data"][:, 5] *= 200
    plain, smooth = (armillary.quantize(module, None, data, smooth=s) for s in (0.0, 0.5))
    assert smooth.error < 0.5 * plain.error


def test_files_give_in_onnx_runtime_what_they_give_here(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    data = rows(1, 8, 12, 12, count=4)
    made = armillary.quantize(convolutions(), None, data)
    to_onnx(made.module, opset_version=13, path=tmp_path / "net.onnx")
    session = ort.InferenceSession(str(tmp_path / "net.onnx"))
    theirs, ours = [session.run(None, row) for row in data], results_of(made.module, data)
    assert relative_error(theirs, ours) < 0.01  # a step of some values
    again = armillary.InferenceSession(str(tmp_path / "net.onnx"))
    assert relative_error([again.run(None, row) for row in data], ours) < 0.01


def test_the_command_writes_onnx_files_and_packages_of_small_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_onnx(layers(), opset_version=13, path=tmp_path / "float.onnx")
    np.save(tmp_path / "rows.npy", np.concatenate([row["data"] for row in rows(4, 128)]))
    common = ["quantize", str(tmp_path / "float.onnx"), "--calibrate", str(tmp_path / "rows.npy"), "-o"]
    assert main([*common, str(tmp_path / "net.int8.onnx")]) == 0
    assert "2 of 2 layers in int8" in capsys.readouterr().out
    assert (tmp_path / "net.int8.onnx").stat().st_size < 0.4 * (tmp_path / "float.onnx").stat().st_size
    assert main([*common, str(tmp_path / "net.so"), "--weights", "4", "--method", "gptq"]) == 0
    assert "weights of 2 of 2 layers in int4" in capsys.readouterr().out
