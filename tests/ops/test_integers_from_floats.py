"""Floats that become integers beside data: the same number at every level and on every target, or a refusal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Expr
from armillary.runtime.device import cpu
from armillary.transform import PassContext

FLOATS = np.array([[-3.7, 2.9, 300.0, 127.0, -200.0, 0.5]], np.float32)
WRAPPED = np.trunc(FLOATS).astype(np.int64)
GRAPHS: dict[str, tuple[Callable[[Expr, str], Expr], Callable[[str], np.ndarray]]] = {
    "full": (lambda x, to: relay.full(relay.const(300.7), (3, 5), to), lambda to: np.full((3, 5), 300).astype(to)),
    "full_like": (
        lambda x, to: relay.full_like(relay.cast(x, to), relay.const(300.7)),
        lambda to: np.full((1, 6), 300).astype(to),
    ),
    "one_hot": (
        lambda x, to: relay.one_hot(relay.const([0, 2]), relay.const(300.7), relay.const(-3.7), 3, -1, to),
        lambda to: np.array([[300, -3, -3], [-3, -3, 300]]).astype(to),
    ),
    "arange": (
        lambda x, to: relay.arange(relay.const(-3.5), relay.const(300.0), relay.const(50.5), dtype=to),
        lambda to: np.trunc(np.arange(-3.5, 300, 50.5)).astype(np.int64).astype(to),
    ),
    "cumsum": (lambda x, to: relay.cumsum(x, axis=1, dtype=to), lambda to: np.cumsum(WRAPPED, axis=1).astype(to)),
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("to", ["uint8", "int8", "uint16", "int32"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_float_beyond_a_narrow_type_wraps(name: str, to: str, level: int, target: str) -> None:
    make, wanted = GRAPHS[name]
    x = relay.var("x", shape=FLOATS.shape)
    made = relay.Tuple([make(x, to), x])  # x is an input even where the graph does not read it
    with PassContext(opt_level=level):
        executor = GraphModule(build(IRModule.from_expr(relay.Function([x], made)), target)["default"](cpu(0)))
    executor.run(x=FLOATS)
    got = executor.get_output(0).numpy()
    assert got.dtype == to
    np.testing.assert_array_equal(got, wanted(to))


@pytest.mark.parametrize(("dtype", "number"), [("uint8", 300), ("uint8", -0.5), ("int32", float("-inf")), ("bool", 2)])
def test_a_border_that_the_type_does_not_have_is_refused(dtype: str, number: float) -> None:
    x = relay.var("x", shape=(1, 6), dtype=dtype)
    with pytest.raises(TypeMismatch, match=f"nn.pad: a border of {number} around {dtype}"):
        relay.nn.pad(x, ((0, 0), (1, 1)), pad_value=number).checked_type  # noqa: B018
    assert relay.nn.pad(x, ((0, 0), (0, 0)), pad_value=number).checked_type.shape == (1, 6)


def test_a_slope_that_integers_do_not_have_is_refused() -> None:
    x = relay.var("x", shape=(6,), dtype="int8")
    with pytest.raises(TypeMismatch, match=r"nn.leaky_relu: no int8 is 0.1 \(alpha\)"):
        relay.nn.leaky_relu(x, 0.1).checked_type  # noqa: B018
    assert relay.nn.leaky_relu(x, 2.0).checked_type.shape == (6,)
