"""Sums of a single row, with nothing before it, go in lanes: their rounding is that of rows beside others."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ops.nn._windows import call
from armillary.transform import PassContext

SHAPES = [(10_000,), (31, 3, 33, 1), (1, 3069), (7, 1, 300)]


def _run(op: str, data: np.ndarray, level: int, **attrs: object) -> np.ndarray:
    x = relay.var("x", shape=data.shape, dtype="float32")
    with PassContext(opt_level=level):
        library = relay.build(IRModule.from_expr(relay.Function([x], call(op, x, **attrs))), target="llvm")
    module = GraphModule(library["default"](cpu(0)))
    module.run(x=data)
    return module.get_output(0).numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_elements_leave_little_when_their_mean_is_taken_away(shape: tuple[int, ...]) -> None:
    data = np.full(shape, 0.99528474, np.float32)
    for level in (0, 3):
        got = _run("nn.standardize", data, level, axis=tuple(range(len(shape))), epsilon=1e-2)
        assert np.abs(got).max() < 5e-5  # 2.5e-5 by vectors of 8; in order, 10,000 elements leave 9e-4


def test_a_softmax_of_ten_thousand_adds_up_to_one() -> None:
    data = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    want = np.exp(data.astype(np.float64) - data.max())
    got = _run("nn.softmax", data, 3, axis=0)
    np.testing.assert_allclose(got, want / want.sum(), rtol=1e-6)
