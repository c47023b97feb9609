"""Reductions across memory: rows whose sums fill one vector are made side by side, and agree with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.transform import PassContext

SHAPES = [
    ((64, 51, 8), 1),
    ((7, 50, 8), 1),
    ((2, 6, 50, 16), 2),
    ((16, 9, 7, 8), 1),
    ((32, 10, 4), 1),
    ((3, 40, 16), 0),
]


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
    assert 'Buffer[(32,), float32, scope="local"]' in loops, "four rows of eight"


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (1, 4, 13, 13), (3, 2, 5, 64), (2, 2, 1, 37)])
@pytest.mark.parametrize("axes", [(2, 3), (1, 2, 3), (1, 3)])
def test_axes_that_are_one_run_of_memory(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Also of values that are read along a part of the run only, and of images with a border."""
    rng = np.random.default_rng(0)
    x, column = rng.standard_normal(shape).astype("float32"), rng.standard_normal((shape[2], 1)).astype("float32")
    data, padded = relay.var("x", shape=shape), np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))
    border = relay.nn.pad(data, pad_width=((0, 0), (0, 0), (1, 0), (0, 2)))
    made = relay.Tuple([relay.sum(v, axis=axes) for v in (data, data * relay.const(column), border * relay.const(2.0))])
    with PassContext(opt_level=3):
        graph = build(relay.Function([data], made), "llvm")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    for k, value in enumerate((x, x * column, padded * 2)):
        np.testing.assert_allclose(graph.get_output(k).numpy(), value.sum(axis=axes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(11, 31, 3), (4, 100, 2)])
def test_a_sum_whose_last_axis_is_short_goes_in_lanes(shape: tuple[int, ...]) -> None:
    """Added one by one, 1,023 numbers near 1.96 are off by 0.013; in sixteen lanes by 0.0012."""
    x = np.clip(np.random.default_rng(0).uniform(-4, 4, shape), 1.9563961, 2).astype("float32")
    data = relay.var("x", shape=shape)
    with PassContext(opt_level=3):
        library = build(relay.Function([data], relay.sum(relay.clip(data, 1.9563961, 2.0))), "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    assert abs(float(graph.get_output(0).numpy()) - x.astype("float64").sum()) < 0.003
    assert "ramp(" in library.get_lib().get_source("tir")
