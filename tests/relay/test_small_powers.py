"""Powers that simplify-expr turns into products and roots keep the values of pow, at the edges too."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.backend.compiled import Engine
from armillary.ir import IRModule
from armillary.relay.transform.simplify.simplify_expr import simplify_expr

EDGES = np.array([-np.inf, -2.5, -1, -1e-30, -0.0, 0.0, 1e-30, 1, 3, 1e30, np.inf, np.nan], np.float32)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, -1.0, 0.5])
def test_the_values_are_those_of_pow(exponent: float) -> None:
    x = relay.var("x", shape=EDGES.shape)
    module = IRModule.from_expr(relay.Function([x], relay.power(x, relay.const(np.float32(exponent)))))
    assert "power" not in str(simplify_expr(module))
    with np.errstate(all="ignore"):
        want = np.sqrt(EDGES) if exponent == 0.5 else np.power(EDGES, np.float32(exponent))
    (got,) = Engine(module)({"x": EDGES})
    np.testing.assert_allclose(got, want, rtol=3e-7)
    np.testing.assert_array_equal(np.signbit(got[:-1]), np.signbit(want[:-1]))
