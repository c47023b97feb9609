"""The text that a C compiler gets stays short enough to be compiled in seconds."""

from __future__ import annotations

import numpy as np

import armillary
from armillary import relay
from armillary.contrib import graph_executor


def _expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(2, 3))
    return np.einsum("bchwyx,ocyx->bohw", windows, w)


def test_windows_of_five_by_five_are_a_loop_over_their_lines() -> None:
    # 24 vectors of sums and 25 taps: all of them in one block are 600 loops over lanes, 26 s of gcc 12 at -O2
    x, w = relay.var("x", shape=(2, 8, 6, 11)), relay.var("w", shape=(8, 8, 5, 5))
    module = relay.Function((x, w), relay.nn.conv2d(x, w, padding=(2, 2)))
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="c")
    text = library.get_lib().get_source()
    assert "conv2d" in text
    assert text.count("for (int lane") < 400
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((2, 8, 6, 11)), "w": rng.standard_normal((8, 8, 5, 5))}
    given = {name: value.astype("float32") for name, value in values.items()}
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(**given)
    np.testing.assert_allclose(executor.get_output(0).numpy(), _expected(given["x"], given["w"]), rtol=1e-4, atol=1e-4)
