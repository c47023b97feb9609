"""Positions of extremes along axes that are not the last agree with the reference, whatever lies behind."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.relay.op import get_op
from armillary.runtime import cpu
from armillary.transform import PassContext


def compiled(x: np.ndarray, name: str, **attrs: object) -> np.ndarray:
    data = relay.var("x", shape=x.shape)
    with PassContext(opt_level=3):
        graph = build(relay.Function([data], get_op(name)(data, **attrs)), "llvm")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    return graph.get_output(0).numpy().copy()


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 21, 65, 65), 1),
        ((2, 19, 8, 24), 1),
        ((64, 50, 8), 1),
        ((6, 50, 16), 1),
        ((5, 50, 13), 1),
        ((300, 40), 0),
        ((3, 4, 5, 48), (1, 2)),
        ((2, 3, 200, 9), 1),
    ],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_first_of_equal_extremes(name: str, shape: tuple[int, ...], axis: int, keepdims: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    x.reshape(-1)[::37] = np.nan
    op = get_op(name)
    expected = op.evaluate(op.make_attrs((), {"axis": axis, "keepdims": keepdims}), [x])
    np.testing.assert_array_equal(compiled(x, name, axis=axis, keepdims=keepdims), expected)


def test_the_last_of_equal_extremes() -> None:
    x = np.random.default_rng(1).integers(0, 3, (2, 30, 40)).astype("float32")
    expected = 29 - np.argmax(x[:, ::-1], axis=1)
    np.testing.assert_array_equal(compiled(x, "argmax", axis=1, select_last_index=True), expected)
