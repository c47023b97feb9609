"""Local response normalisation across channels agrees with its reference, also where a pooling spells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.transform import PassContext


def compiled(function: Any, data: np.ndarray) -> tuple[np.ndarray, str]:
    with PassContext(opt_level=3):
        library = build(function, "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("x", data)
    graph.run()
    return graph.get_output(0).numpy().copy(), library.get_graph_json()


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
@pytest.mark.parametrize(
    ("shape", "size", "axis"),
    [((1, 7, 5, 11), 5, 1), ((2, 3, 17), 5, 1), ((1, 19, 4, 4), 4, 1), ((2, 5, 3), 3, 1), ((2, 3, 6, 5), 3, 3)],
)
def test_lrn(shape: tuple[int, ...], size: int, axis: int, beta: float) -> None:
    data = 5 * np.random.default_rng(1).standard_normal(shape).astype("float32")
    x = relay.var("x", shape=shape)
    function = relay.Function([x], relay.nn.lrn(x, size=size, axis=axis, bias=1.5, alpha=0.1, beta=beta))
    np.testing.assert_allclose(compiled(function, data)[0], evaluate(function, [data]), rtol=2e-6, atol=1e-6)


def spelled(shape: tuple[int, ...], size: int, pads: tuple[int, int]) -> Any:
    """The arithmetic that exporters write for it."""
    x = relay.var("x", shape=shape)
    n, c, h, w = shape
    squares = relay.reshape(relay.multiply(x, x), (n, 1, c, h, w))
    padded = relay.nn.pad(squares, pad_width=((0, 0), (0, 0), pads, (0, 0), (0, 0)))
    mean = relay.squeeze(relay.nn.avg_pool3d(padded, pool_size=(size, 1, 1), count_include_pad=True), axis=(1,))
    base = mean * relay.const(np.float32(0.1)) + relay.const(np.float32(2))
    return relay.Function([x], relay.divide(x, relay.power(base, relay.const(np.float32(0.75)))))


def test_a_spelled_one_is_recognised() -> None:
    data = 5 * np.random.default_rng(2).standard_normal((2, 7, 3, 9)).astype("float32")
    function = spelled((2, 7, 3, 9), 5, (2, 2))
    got, graph = compiled(function, data)
    assert "nn_lrn" in graph and "avg_pool" not in graph
    np.testing.assert_allclose(got, evaluate(function, [data]), rtol=2e-6, atol=1e-6)


def test_a_shifted_window_is_not() -> None:
    data = np.random.default_rng(3).standard_normal((1, 7, 3, 9)).astype("float32")
    function = spelled((1, 7, 3, 9), 5, (3, 1))
    got, graph = compiled(function, data)
    assert "nn_lrn" not in graph
    np.testing.assert_allclose(got, evaluate(function, [data]), rtol=2e-6, atol=1e-6)
