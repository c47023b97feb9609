"""Reductions across memory: rows whose sums fill one vector are made side by side, and agree with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.transform import PassContext

SHAPES = [
    ((64, 51, 8), 1), ((7, 50, 8), 1), ((2, 6, 50, 16), 2), ((16, 9, 7, 8), 1), ((32, 10, 4), 1), ((3, 40, 16), 0),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", ["max", "sum"])
def test_rows_of_one_vector(shape: tuple[int, ...], axis: int, name: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    data = relay.var("x", shape=shape)
    with PassContext(opt_level=3):
        graph = build(relay.Function([data], getattr(relay, name)(data, axis=axis)), "llvm")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), getattr(np, name)(x, axis=axis), rtol=1e-5, atol=1e-5)


def test_maxima_of_several_rows_are_made_at_a_time() -> None:
    data = relay.var("x", shape=(64, 51, 8))
    with PassContext(opt_level=3):
        library = build(relay.Function([data], relay.max(data, axis=1)), "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    loops = library.get_lib().get_source("tir")
    assert "Buffer[(32,), float32, scope=\"local\"]" in loops, "four rows of eight"
