"""Kernels without the taps that lie on padding give the values of the whole kernels, for every kind of convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.transform.convolution.trim_taps import trim_taps
from armillary.relay.transform.pipeline import optimize
from armillary.runtime import cpu
from armillary.transform import PassContext

RNG = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _random_case(seed: int) -> tuple[str, np.ndarray, np.ndarray, dict[str, Any]] | None:
    """An operator, data, weight and attributes; None where the window gives no output."""
    rng = np.random.default_rng(seed)
    rank, transposed, channels = int(rng.integers(1, 4)), bool(rng.integers(2)), int(rng.choice([1, 2, 4]))
    sizes, taps = rng.integers(1, 7, rank), rng.integers(1, 6, rank)
    strides, dilation = rng.integers(1, 4, rank), rng.integers(1, 9, rank)
    padding = rng.integers(0, 3, 2 * rank) if transposed else rng.integers(0, 20, 2 * rank)
    groups = int(rng.choice([1, channels]))
    attrs: dict[str, Any] = {
        "strides": tuple(map(int, strides)),
        "dilation": tuple(map(int, dilation)),
        "groups": groups,
        "padding": tuple(map(int, padding)),
    }
    spans = (taps - 1) * dilation + 1
    both = padding[:rank] + padding[rank:]
    outputs = (sizes - 1) * strides + spans - both if transposed else (sizes + both - spans) // strides + 1
    if min(outputs) < 1:
        return None
    kernel = (channels, 4 // groups) if transposed else (4, channels // groups)
    name = f"conv{rank}d{'_transpose' if transposed else ''}"
    return name, _normal(2, channels, *sizes), _normal(*kernel, *taps), attrs


def test_values_stay_for_random_windows() -> None:
    trimmed = 0
    for seed in range(400):
        case = _random_case(seed)
        if case is None:
            continue
        name, data, weight, attrs = case
        x, w = relay.var("x", shape=data.shape), relay.var("w", shape=weight.shape)
        function = relay.Function([x, w], getattr(relay.nn, name)(x, w, **attrs))
        module = IRModule.from_expr(function)
        after = trim_taps(module)
        if after is module:
            continue
        trimmed += 1
        expected, got = (evaluate(m, {"x": data, "w": weight}) for m in (module, after))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {name} {attrs}")
    assert trimmed > 60


@pytest.mark.parametrize(
    ("name", "data", "weight", "attrs", "gone"),
    [
        ("conv2d", (1, 32, 14, 14), (48, 32, 3, 3), {"padding": (18, 18), "dilation": (18, 18)}, "[3, 3]"),
        ("conv2d", (1, 32, 14, 20), (32, 1, 3, 3), {"padding": (18, 18), "dilation": (18, 18), "groups": 32}, "[3, 3]"),
        ("conv2d", (1, 16, 1, 1), (24, 16, 3, 3), {"padding": (1, 1)}, "[3, 3]"),
        ("conv2d", (1, 16, 3, 3), (16, 16, 7, 7), {"padding": (3, 3)}, "[7, 7]"),
        ("conv2d_transpose", (1, 16, 1, 1), (16, 8, 4, 4), {"padding": (1, 1), "strides": (2, 2)}, "[4, 4]"),
        ("conv1d", (1, 8, 9), (8, 8, 3), {"padding": (16, 16), "dilation": (16,)}, "[3]"),
        ("conv3d", (1, 4, 1, 6, 6), (8, 4, 3, 3, 3), {"padding": (1, 1, 1)}, "[3, 3, 3]"),
    ],
)
def test_a_build_trims_and_computes_the_same(
    name: str, data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any], gone: str
) -> None:
    value, kernel = _normal(*data), _normal(*weight)
    x = relay.var("x", shape=data)
    call = getattr(relay.nn, name)(x, relay.const(kernel), kernel_size=weight[2:], **attrs)
    module = IRModule.from_expr(relay.Function([x], relay.nn.relu(call)))
    with PassContext(opt_level=3):
        net = GraphModule(relay.build(module, target="llvm")["default"](cpu()))
        assert f"kernel_size={gone}" not in str(optimize(module, "llvm"))
    net.run(x=value)
    np.testing.assert_allclose(net.get_output(0).numpy(), evaluate(module, {"x": value}), rtol=1e-4, atol=1e-4)
