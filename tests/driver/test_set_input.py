"""Inputs arrive whole, whatever their shape, size and strides, and however many threads copy them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.runtime.threads import config_threadpool, num_threads

SHAPES = [(1, 3, 224, 223), (2, 3, 5, 7001), (40000,), (4, 5, 7, 3, 100, 3), (300, 301), (3, 7)]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = num_threads()
    config_threadpool(-1, request.param)
    yield request.param
    config_threadpool(-1, before)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("threads")
def test_an_input_arrives_whole(shape: tuple[int, ...]) -> None:
    function = relay.Function([x := relay.var("x", shape=shape)], relay.negative(x))
    graph = graph_executor.GraphModule(
        relay.build(armillary.IRModule.from_expr(function), target="llvm")["default"](armillary.cpu())
    )
    values = np.random.default_rng(0).standard_normal((*shape[:-1], 2 * shape[-1]), np.float32)
    for given in (np.ascontiguousarray(values[..., : shape[-1]]), values[..., ::2], values[..., shape[-1] :].copy()):
        graph.set_input("x", given)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), -given)
    view = graph.get_input(0)
    view.copyfrom(values[..., : shape[-1]])
    graph.set_input("x", view)  # onto itself
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), -values[..., : shape[-1]])
