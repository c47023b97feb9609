"""Means of integers are rounded towards zero, by kernels as by the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, var
from armillary.transform import PassContext

SUMS = np.arange(-80, 81)
POOLS = {
    "window": lambda x: relay.nn.avg_pool2d(x, pool_size=(6, 6)),
    "global": relay.nn.global_avg_pool2d,
    "bins": lambda x: relay.nn.adaptive_avg_pool2d(x, output_size=(1, 1)),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_a_mean_of_integers_is_cut_towards_zero(pool: Callable[[Expr], Expr]) -> None:
    module = IRModule.from_expr(pool(var("x", shape=(1, len(SUMS), 6, 6), dtype="int32")))
    value = np.zeros((1, len(SUMS), 6, 6), "int32")
    value[0, :, 2, 3] = SUMS
    with PassContext(opt_level=3):
        graph = relay.build(module, "llvm")["default"](armillary.cpu(0))
    graph.set_input("x", value)
    graph.run()
    wanted = np.trunc(SUMS / 36).astype("int32")
    np.testing.assert_array_equal(graph.get_output(0).numpy().reshape(-1), wanted)
    np.testing.assert_array_equal(evaluate(module, [value]).reshape(-1), wanted)
