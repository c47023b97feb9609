"""Functions of topi on tensors of symbolic shape."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi

_RNG = np.random.default_rng(5)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize(("axis", "keepdims"), [(1, False), (0, True), (None, False)])
def test_reductions(name: str, axis: int | None, keepdims: bool) -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    made = getattr(topi, name)(a, axis=axis, keepdims=keepdims)
    function = armillary.build(te.create_schedule(made.op), [a, made], "llvm")
    for shape in ((3, 5), (1, 7), (20, 33)):
        x = _RNG.standard_normal(shape).astype(np.float32)
        wanted = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        out = armillary.nd.empty(np.shape(wanted))
        function(armillary.nd.array(x), out)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=2e-5, atol=1e-6)


def test_a_mean_divides_by_a_count_that_is_known_when_it_runs() -> None:
    a = te.placeholder((te.var("n"), 4), name="A")
    mean = topi.mean(a, axis=0)
    function = armillary.build(te.create_schedule(mean.op), [a, mean], "llvm")
    for rows in (1, 5, 12):
        given = np.arange(rows * 4, dtype="float32").reshape(rows, 4)
        result = armillary.nd.array(np.zeros(4, "float32"))
        function(armillary.nd.array(given), result)
        np.testing.assert_allclose(result.numpy(), given.mean(0), rtol=1e-6)
