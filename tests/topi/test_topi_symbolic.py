"""Functions of topi on tensors of symbolic shape."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import TypeMismatch

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


def test_a_mean_asks_for_a_known_count() -> None:
    a = te.placeholder((te.var("n"), 4), name="A")
    with pytest.raises(TypeMismatch, match="symbolic shape"):
        topi.mean(a, axis=0)
