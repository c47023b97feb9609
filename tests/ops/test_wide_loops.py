"""Scans and scatters whose rows are longer than a vector give what their references give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.relay.op import get_op

RNG = np.random.default_rng(11)


def _check(name: str, *arrays: np.ndarray, **attrs: Any) -> None:
    op = get_op(name)
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    made = op(*inputs, **attrs)
    net = GraphModule(relay.build(IRModule.from_expr(relay.Function(inputs, made)), target="llvm")["default"](cpu()))
    net.run(**{f"x{k}": a for k, a in enumerate(arrays)})
    assert op.reference_rule is not None
    wanted = op.reference_rule(made.attrs, *arrays)
    np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(7, 1), (7, 16), (5, 17), (2, 3, 40), (3, 4, 2, 33)])
def test_running_sums_of_rows(shape: tuple[int, ...], reverse: bool, exclusive: bool) -> None:
    for axis in range(len(shape)):
        _check("cumsum", RNG.standard_normal(shape).astype(np.float32), axis=axis, reverse=reverse, exclusive=exclusive)
    _check("cumsum", RNG.integers(-9, 9, shape), axis=0, reverse=reverse, exclusive=exclusive)


@pytest.mark.parametrize("mode", ["update", "add", "max"])
@pytest.mark.parametrize("width", [1, 15, 16, 17, 50])
def test_rows_scattered_to_places_that_come_twice(width: int, mode: str) -> None:
    data = RNG.standard_normal((9, width)).astype(np.float32)
    updates = RNG.standard_normal((6, width)).astype(np.float32)
    _check("scatter_nd", data, np.array([[3, 8, 3, -1, 0, 3]]), updates, mode=mode)


@pytest.mark.parametrize("mode", ["update", "add"])
def test_elements_scattered_to_places_that_come_twice(mode: str) -> None:
    data, places = RNG.standard_normal((4, 40)).astype(np.float32), RNG.integers(0, 40, (1, 4, 33))
    rows = np.broadcast_to(np.arange(4)[None, :, None], places.shape)
    updates = RNG.standard_normal((4, 33)).astype(np.float32)
    _check("scatter_nd", data, np.concatenate([rows, places]), updates, mode=mode)
    _check("scatter_elements", data, places[0], updates, axis=1, reduction=mode)
