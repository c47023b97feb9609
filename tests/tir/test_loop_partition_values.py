"""Loops are cut where a condition is known, and only there: a bound that is read may be any number."""

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.tir.expr import Expr


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("is_below", [True, False])
def test_a_bound_that_is_read_is_asked_in_every_part_of_a_loop(dtype: str, is_below: bool) -> None:
    """12 elements in vectors of 8: the first half of a vector is full, and the rows still end where `n` says."""
    n, x = te.placeholder((2,), dtype, name="n"), te.placeholder((2, 12), name="x")

    def value(b: Expr, i: Expr) -> Expr:
        return tir.Select(i < n[b] if is_below else i >= n[b], x[b, i], tir.const(-3.0, "float32"))

    y = te.compute((2, 12), value, name="y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(y.op.axis[1], 8)
    s[y].vectorize(inner)
    with armillary.transform.PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        f = armillary.build(s, [n, x, y], "llvm -mcpu=haswell")
    counts, data = np.array([9, 12], dtype), np.random.default_rng(0).standard_normal((2, 12)).astype(np.float32)
    out = armillary.nd.empty((2, 12))
    f(armillary.nd.array(counts), armillary.nd.array(data), out)
    places = np.arange(12) < counts[:, None] if is_below else np.arange(12) >= counts[:, None]
    np.testing.assert_array_equal(out.numpy(), np.where(places, data, np.float32(-3)))
