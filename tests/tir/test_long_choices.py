"""Chains of choices, as a concatenation of many inputs gives them, cost time linear in their length."""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.tir import build as T
from armillary.tir.expr import Call
from armillary.tir.simplify import Simplifier


def test_a_chain_of_forty_choices_is_simplified_once_per_link() -> None:
    x = T.var("x")
    chain = T.const(0.0, "float32")
    for limit in range(40, 0, -1):
        chain = T.if_then_else(x < limit, T.cast(T.minimum(x, limit), "float32"), chain)
    simple = Simplifier()(chain)
    assert isinstance(simple, Call)
    assert simple.args[1] is Simplifier()(simple.args[1])
    assert "min" not in repr(simple.args[1]).lower().replace("intimm", "")


def test_forty_inputs_are_concatenated_along_an_inner_axis() -> None:
    inputs = [relay.var(f"x{i}", shape=(2, 3)) for i in range(40)]
    function = relay.Function(inputs, relay.concatenate([relay.exp(v) for v in inputs], axis=1))
    graph = build(function, "llvm")["default"](cpu(0))
    values = [np.random.default_rng(i).standard_normal((2, 3)).astype("float32") for i in range(40)]
    for var, value in zip(inputs, values, strict=True):
        graph.set_input(var.name_hint, value)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), np.exp(np.concatenate(values, 1)), rtol=1e-5)
