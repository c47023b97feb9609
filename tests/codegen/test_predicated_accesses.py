# ruff: noqa: N803  (buffers have capital letters, as scripts write them)
"""Loads and stores of some lanes of a vector: `A.vload([T.Ramp(0, 1, 4)], predicate=…)`."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import tir
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError
from armillary.script import tir as T
from armillary.tir.interpreter import interpret
from armillary.tir.lower import lower_function


@T.prim_func
def tail(a: T.handle, b: T.handle, n: T.int32) -> None:
    """Doubles n numbers, eight at a time; behind them nothing is read or written."""
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.serial((n + 7) // 8):
        B.vstore(
            [T.Ramp(i * 8, 1, 8)],
            A.vload([T.Ramp(i * 8, 1, 8)], predicate=T.Ramp(i * 8, 1, 8) < T.Broadcast(n, 8))
            * T.Broadcast(T.float32(2), 8),
            predicate=T.Ramp(i * 8, 1, 8) < T.Broadcast(n, 8),
        )


@T.prim_func
def strided(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")) -> None:
    B.vstore(
        [T.Ramp(1, 3, 4)],
        A.vload([T.Ramp(14, 2, 4)], predicate=T.Ramp(14, 2, 4) < T.Broadcast(16, 4)) + T.Broadcast(1, 4),
        predicate=T.Ramp(0, 1, 4) < T.Broadcast(2, 4),
    )


@pytest.mark.parametrize("n", [1, 7, 8, 13, 24])
def test_a_tail_is_neither_read_nor_written(n: int) -> None:
    whole = np.full(n + 16, 9, np.float32)
    values = np.arange(1, n + 1, dtype=np.float32)
    whole[:n] = 0
    got = armillary.nd.array(np.zeros(n, np.float32))
    armillary.build(tail, target="llvm")(armillary.nd.array(values), got, n)
    np.testing.assert_array_equal(got.numpy(), values * 2)


def test_places_with_gaps_are_gathered_and_scattered() -> None:
    a, b = np.arange(16, dtype=np.int32), np.full(16, -1, np.int32)
    want = b.copy()
    want[1], want[4] = 15, 1  # element 14, and 0 for element 16, which is not there; one is added
    found = armillary.nd.array(b)
    armillary.build(strided, target="llvm")(armillary.nd.array(a), found)
    np.testing.assert_array_equal(found.numpy(), want)
    for function in (strided, lower_function(strided)):
        given = b.copy()
        interpret(function, a, given)
        np.testing.assert_array_equal(given, want)


def test_the_interpreter_refuses_chosen_lanes_outside() -> None:
    @T.prim_func
    def beyond(A: T.Buffer((4,), "int32")) -> None:
        A.vstore([T.Ramp(2, 1, 4)], T.Broadcast(1, 4), predicate=T.Broadcast(T.bool(True), 4))

    with pytest.raises(ExecutionError, match=r"store out of bounds: A at \[2, 3, 4, 5\], the extent is 4"):
        interpret(beyond, np.zeros(4, np.int32))


@pytest.mark.parametrize("target", ["c", "opencl"])
def test_dialects_of_c_refuse(target: str) -> None:
    with pytest.raises(UnsupportedError, match=r"Predicated buffer (load|store) is not supported"):
        armillary.build(strided, target=target)


def test_volatile_memory_has_no_masks() -> None:
    @T.prim_func
    def noted(B: T.Buffer((4,), "float32")) -> None:
        a = T.allocate([4], "float32", scope="global")
        T.attr(a, "volatile_scope", 1)
        A = T.Buffer([4], data=a)
        B[0:4] = A.vload([T.Ramp(0, 1, 4)], predicate=T.Broadcast(T.bool(True), 4))

    with pytest.raises(UnsupportedError, match="masked load intrinsic does not support"):
        armillary.build(noted, target="llvm")


def test_predicates_that_do_not_fit_are_refused() -> None:
    buffer, lanes = tir.decl_buffer((8,)), tir.Ramp(0, 1, 4)
    with pytest.raises(TypeMismatch, match="the predicate is bool for an access of 4 lanes"):
        buffer.vload([lanes], predicate=True)
    with pytest.raises(TypeMismatch, match="the predicate is int32x4"):
        buffer.vstore([lanes], tir.Broadcast(1.0, 4), predicate=lanes)
    with pytest.raises(TypeMismatch, match="for an access of 1 lanes"):
        buffer.vload([0], predicate=tir.const(True))
