"""Chains of choices, and of links that read the one before twice, cost time and text linear in their length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.dtype import DType
from armillary.base.node import structural_equal
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Call, Expr, Var
from armillary.tir.parser import parse_function
from armillary.tir.printer import print_function
from armillary.tir.simplify import Simplifier
from armillary.tir.stmt import Buffer, BufferStore, For, LoopKind, PrimFunc
from armillary.transform import PassContext


def test_a_chain_of_forty_choices_is_simplified_once_per_link() -> None:
    x = T.var("x")
    chain = T.const(0.0, "float32")
    for limit in range(40, 0, -1):
        chain = T.if_then_else(x < limit, T.cast(T.minimum(x, limit), "float32"), chain)
    simple = Simplifier()(chain)
    assert isinstance(simple, Call)
    assert simple.args[1] is Simplifier()(simple.args[1])
    assert "min" not in repr(simple.args[1]).lower().replace("intimm", "")


def doublings(length: int) -> PrimFunc:
    """b[i] = max(y, y * 0.5), `length` times over, of what is in a."""
    a, b = (Buffer(name, (T.const(8),), DType("float32")) for name in "ab")
    i = Var("i")
    value: Expr = BufferLoad(a, (i,))
    for _ in range(length):
        value = T.maximum(value, value * T.const(0.5, "float32"))
    return PrimFunc((a, b), For(i, T.const(0), T.const(8), LoopKind.SERIAL, BufferStore(b, value, (i,))))


def test_text_of_a_chain_grows_with_its_length_and_reads_back() -> None:
    short, middle, long = (len(print_function(doublings(n))) for n in (4, 8, 12))
    assert long - middle <= 2 * (middle - short)
    chain = doublings(40)
    assert structural_equal(parse_function(print_function(chain)), chain)


def test_a_buffer_may_be_called_as_the_word_that_names_expressions() -> None:
    text = "func @f(where: Buffer[(8,), float32]) { for i in range(8) { where[i] = where[i] + 1.0 } }"
    made = parse_function(text)
    assert structural_equal(parse_function(print_function(made)), made)


def test_forty_inputs_are_concatenated_along_an_inner_axis() -> None:
    inputs = [relay.var(f"x{i}", shape=(2, 3)) for i in range(40)]
    function = relay.Function(inputs, relay.concatenate([relay.exp(v) for v in inputs], axis=1))
    graph = build(function, "llvm")["default"](cpu(0))
    values = [np.random.default_rng(i).standard_normal((2, 3)).astype("float32") for i in range(40)]
    for var, value in zip(inputs, values, strict=True):
        graph.set_input(var.name_hint, value)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), np.exp(np.concatenate(values, 1)), rtol=1e-5)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("join", [relay.concatenate, relay.stack])
def test_a_thousand_inputs_are_joined(join: Callable[..., Any], level: int) -> None:
    x = relay.var("x", shape=(1000, 2, 3))
    parts = relay.split(x, 1000, axis=0)
    fields = [relay.TupleGetItem(parts, 7 * k % 1000) for k in range(1000)]
    function = relay.Function([x], join(fields, axis=1))
    with PassContext(opt_level=level):
        graph = build(function, "llvm")["default"](cpu(0))
    value = np.random.default_rng(0).standard_normal((1000, 2, 3)).astype("float32")
    graph.set_input("x", value)
    graph.run()
    chosen = [value[None, 7 * k % 1000] for k in range(1000)]
    wanted = np.concatenate(chosen, 1) if join is relay.concatenate else np.stack(chosen, 1)
    np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)
