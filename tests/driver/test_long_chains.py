"""Chains of operators that each read their input twice: code grows with their number, not with the ways through."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu

Array = np.ndarray[Any, Any]
Step = tuple[Callable[[Any, int], Any], Callable[[Array, int], Array]]  # of relay expressions, of arrays


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _choose(x: Any, k: int) -> Any:
    test = relay.greater(x, relay.const(0.01 * k, "float32"))
    return relay.where(test, x * relay.const(1.01), x - relay.const(0.5))


def _hard_swish(x: Any, k: int) -> Any:
    return x * relay.clip(x + relay.const(3.0), 0.0, 6.0) * relay.const(0.2)


def _gelu(x: Any, k: int) -> Any:
    return x * relay.const(0.5) * (relay.erf(x * relay.const(0.7)) + relay.const(1.1))


def _erf_gelu(x: Array, k: int) -> Array:
    return (x * 0.5 * (np.vectorize(erf)(x * 0.7) + 1.1)).astype("float32")


STEPS: dict[str, Step] = {
    "leaky_relu": (
        lambda x, k: relay.nn.leaky_relu(x - relay.const(0.01), alpha=0.5),
        lambda x, k: np.where(x - 0.01 > 0, x - 0.01, 0.5 * (x - 0.01)).astype("float32"),
    ),
    "where": (_choose, lambda x, k: np.where(x > 0.01 * k, x * 1.01, x - 0.5).astype("float32")),
    "silu": (lambda x, k: x * relay.sigmoid(x), lambda x, k: x * _sigmoid(x)),
    "hard_swish": (_hard_swish, lambda x, k: (x * np.clip(x + 3, 0, 6) * 0.2).astype("float32")),
    "gelu": (_gelu, _erf_gelu),
}
LENGTHS = {"leaky_relu": 40, "where": 40, "silu": 30, "mix": 40}
TARGETS = ("llvm", "c")


def _step(name: str, k: int) -> Step:
    return STEPS[list(STEPS)[k % len(STEPS)] if name == "mix" else name]


def chain(name: str, length: int, shape: tuple[int, ...], dtype: str = "float32") -> relay.Function:
    x = relay.var("x", shape=shape, dtype=dtype)
    value: Any = x
    for k in range(length):
        value = _step(name, k)[0](value, k)
    return relay.Function([x], value)


def lines(function: relay.Function, target: str) -> int:
    """Lines of code that the emitter wrote."""
    form = "ll" if target == "llvm" else "c"
    return len(build(function, target).get_lib().get_source(form).splitlines())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("shape", [(4, 64), (3,)], ids=["vectors", "scalars"])
def test_a_long_chain_computes_what_its_operators_do(name: str, target: str, shape: tuple[int, ...]) -> None:
    graph = build(chain(name, LENGTHS[name], shape), target)["default"](cpu(0))
    data = np.random.default_rng(5).standard_normal(shape).astype("float32")
    graph.set_input("x", data)
    graph.run()
    wanted = data
    for k in range(LENGTHS[name]):
        wanted = _step(name, k)[1](wanted, k)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(4, 64), (3,)], ids=["vectors", "scalars"])
def test_code_of_a_chain_grows_with_its_length(target: str, shape: tuple[int, ...]) -> None:
    short, middle, long = (lines(chain("leaky_relu", length, shape), target) for length in (3, 6, 9))
    assert long - middle <= 2 * (middle - short) + 8


@pytest.mark.parametrize("target", TARGETS)
def test_code_of_a_chain_of_doublings_grows_with_its_length(target: str) -> None:
    def doubled(length: int, dtype: str) -> relay.Function:
        x = relay.var("x", shape=(64,), dtype=dtype)
        value: Any = x
        for _ in range(length):
            value = relay.maximum(value + value, relay.right_shift(value, relay.const(1, dtype)))
        return relay.Function([x], value)

    short, middle, long = (lines(doubled(length, "int32"), target) for length in (3, 6, 9))
    assert long - middle <= 2 * (middle - short) + 8


def test_reshapes_in_a_chain_are_indices_once_each() -> None:
    x = relay.var("x", shape=(4, 63))
    value: Any = x
    for k in range(24):
        shape = [(9, 28), (7, 36), (4, 63), (12, 21)][k % 4]
        value = relay.nn.leaky_relu(relay.reshape(value, newshape=shape), alpha=0.5)
    graph = build(relay.Function([x], value), "llvm")["default"](cpu(0))
    data = np.random.default_rng(3).standard_normal((4, 63)).astype("float32")
    graph.set_input("x", data)
    graph.run()
    wanted = np.where(data > 0, data, data * np.float32(0.5**24)).reshape(12, 21)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-5)
