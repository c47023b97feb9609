"""Stages that are arguments, and outputs that a listing leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import te
from armillary.errors import TypeMismatch


def program() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((32,), name="A")
    b = te.compute((32,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[2 * i] * 2.0, name="C")
    return te.create_schedule(c.op), [a, b, c]


def inside(s: te.Schedule, b: te.Tensor, c: te.Tensor) -> None:
    s[b].compute_at(s[c], c.op.axis[0])


def inline(s: te.Schedule, b: te.Tensor, c: te.Tensor) -> None:
    s[b].compute_inline()


@pytest.mark.parametrize("put", [inside, inline])
def test_a_stage_that_is_an_argument_is_computed_whole(
    put: Callable[[te.Schedule, te.Tensor, te.Tensor], None],
) -> None:
    """`C` reads every second element of `B`; who passes an array for `B` gets all of them."""
    s, (a, b, c) = program()
    put(s, b, c)
    was = s[b].is_inline, s[b].attach
    with pytest.warns(UserWarning, match="stage B is an argument, so it is computed at root"):
        function = armillary.build(s, [a, b, c], "llvm")
    x = np.arange(32, dtype=np.float32)
    first, second = armillary.nd.array(np.full(32, np.nan, np.float32)), armillary.nd.empty((8,))
    function(armillary.nd.array(x), first, second)
    np.testing.assert_array_equal(first.numpy(), x + 1)
    np.testing.assert_array_equal(second.numpy(), (x[:16:2] + 1) * 2)
    assert (s[b].is_inline, s[b].attach) == was, "the schedule is as it was"
    function = armillary.build(s, [a, c], "llvm")
    function(armillary.nd.array(x), second)
    np.testing.assert_array_equal(second.numpy(), (x[:16:2] + 1) * 2)


def test_a_listing_names_the_outputs_itself_and_a_build_wants_them_named() -> None:
    s, (a, _, c) = program()
    text = str(armillary.lower(s, [a], simple_mode=True))
    assert text == str(armillary.lower(s, [a, c], simple_mode=True)) and "C" in text
    with pytest.raises(TypeMismatch, match="output C is not among the arguments"):
        armillary.build(s, [a], "llvm")


def test_a_store_predicate_leaves_the_values() -> None:
    s, (a, _, c) = program()
    s[c].set_store_predicate(c.op.axis[0].var.equal(0))
    function, out = armillary.build(s, [a, c], "llvm"), armillary.nd.empty((8,))
    function(armillary.nd.array(np.zeros(32, np.float32)), out)
    np.testing.assert_array_equal(out.numpy(), np.full(8, 2, np.float32))
