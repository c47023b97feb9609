"""Powers of 64-bit integers are exact where they fit, on all levels and targets, as by the reference."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import var
from armillary.transform import PassContext

LEAST, MOST = -(1 << 63), (1 << 63) - 1
POWERS = [
    (sign * base, exponent)
    for exponent in range(63)
    for base in (0, 1, 2, 3, 7, 10, 999, int(MOST ** (1 / max(exponent, 1))) - 1)
    for sign in (1, -1)
    if LEAST <= (sign * base) ** exponent <= MOST
]
ODD = {  # what does not fit is what float64 becomes; exponents below 0 give the whole part
    (3, 40): LEAST,
    (3, 1000): LEAST,
    (10, 19): LEAST,
    (2, -1): 0,
    (-1, -3): -1,
    (1, LEAST): 1,
    (-1, MOST): -1,
    (0, MOST): 0,
}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("level", [0, 3])
def test_a_power_of_integers_is_exact_where_it_fits(level: int, target: str) -> None:
    pairs = [*POWERS, *ODD]
    base, exponent = (np.array(column, "int64") for column in zip(*pairs, strict=True))
    wanted = np.array([*(b**e for b, e in POWERS), *ODD.values()], "int64")
    x, y = (var(name, shape=base.shape, dtype="int64") for name in "xy")
    module = IRModule.from_expr(relay.power(x, y))
    with PassContext(opt_level=level):
        graph = relay.build(module, target)["default"](armillary.cpu(0))
    graph.set_input("x", base)
    graph.set_input("y", exponent)
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)
    np.testing.assert_array_equal(evaluate(module, [base, exponent]), wanted)
