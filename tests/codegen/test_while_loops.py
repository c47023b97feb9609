"""Loops that end when a condition no longer holds: built, written as scripts, compiled for each target."""

from __future__ import annotations

import numpy as np
import pytest
from harness import run
from opencl_device import needs_opencl

import armillary
from armillary import te, tir
from armillary.errors import ParseError, ScheduleError
from armillary.script import tir as T
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.interpreter import interpret
from armillary.tir.parser import parse_function
from armillary.tir.transform import Simplify

TARGETS = ("llvm", "c")


def collatz(number: int) -> int:
    turns = 0
    while number > 1:
        number, turns = (number // 2 if number % 2 == 0 else number * 3 + 1), turns + 1
    return turns


def turns_of(ins: list[S.Buffer], outs: list[S.Buffer], kind: str = "parallel") -> S.Stmt:
    ib = tir.ir_builder.create()
    numbers, result = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, ins[0].shape[0], kind=kind) as i:
        state = ib.allocate("int32", (2,), name="state", scope="local")
        state[0], state[1] = numbers[i], 0
        with ib.while_loop(state[0] > 1):
            with ib.if_scope(tir.floormod(state[0], 2) == 0):
                state[0] = tir.floordiv(state[0], 2)
            with ib.else_scope():
                state[0] = state[0] * 3 + 1
            state[1] = state[1] + 1
        result[i] = state[1]
    return ib.get()


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorize"])
@pytest.mark.parametrize("target", TARGETS)
def test_each_element_takes_its_own_number_of_turns(target: str, kind: str) -> None:
    a = te.placeholder((24,), "int32", name="a")
    b = te.extern((24,), [a], lambda ins, outs: turns_of(ins, outs, kind), dtype="int32", name="b")
    numbers = armillary.nd.array(np.arange(24, dtype="int32"))
    got = armillary.nd.empty((24,), "int32")
    armillary.build(te.create_schedule(b.op), [a, b], target)(numbers, got)
    assert got.numpy().tolist() == [collatz(n) for n in range(24)]


@needs_opencl
def test_on_an_opencl_device() -> None:
    a = te.placeholder((24,), "int32", name="a")
    b = te.extern((24,), [a], turns_of, dtype="int32", name="b")
    device = armillary.opencl(0)
    numbers = armillary.nd.array(np.arange(24, dtype="int32"), device)
    got = armillary.nd.empty((24,), "int32", device)
    armillary.build(te.create_schedule(b.op), [a, b], "opencl")(numbers, got)
    assert got.numpy().tolist() == [collatz(n) for n in range(24)]


@T.prim_func
def first_larger(a: T.Buffer((16,), "int32"), b: T.Buffer((4,), "int32")) -> None:  # type: ignore[valid-type]
    for i in T.serial(4):
        at = T.alloc_buffer((1,), "int32", scope="local")
        at[0] = 0
        while at[0] < 16 and a[T.min(at[0], 15)] <= b[i]:
            at[0] = at[0] + 1
        b[i] = at[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_script_searches(target: str) -> None:
    a, b = np.arange(0, 48, 3, dtype="int32"), np.array([-1, 7, 21, 99], "int32")
    want = [0, 3, 8, 16]
    again = armillary.script.from_source(first_larger.script())
    armillary.ir.assert_structural_equal(again, first_larger)
    given = b.copy()
    interpret(armillary.lower(first_larger)["first_larger"], a, given)
    assert given.tolist() == want
    found = armillary.nd.array(b)
    armillary.build(first_larger, target=target)(armillary.nd.array(a), found)
    assert found.numpy().tolist() == want


def test_what_holds_before_a_turn_need_not_hold_at_the_next() -> None:
    text = """func @main(A: Buffer[(1,), int32]) {
  if A[0] < 3 {
    while A[0] < 3 {
      A[0] = A[0] + 1
    }
  }
}
"""
    function = parse_function(text)
    after = Simplify()(armillary.IRModule({"main": function}))["main"]
    assert armillary.ir.structural_equal(after, function)
    never = function.with_body(S.While(B.const(False), function.body))
    assert str(Simplify()(armillary.IRModule({"main": never}))["main"].body).strip() == "pass"


@pytest.mark.parametrize("target", TARGETS)
def test_registers_are_carried_from_turn_to_turn(target: str) -> None:
    """A register tile that turns change, and what the condition itself may change."""
    a, out = (S.Buffer(n, (B.int32(8),), E.DType("float32")) for n in "ao")
    acc = S.Buffer("acc", (B.int32(8),), E.DType("float32"), "local")
    count = S.Buffer("count", (B.int32(1),), E.INT32, "local")
    lanes = E.Ramp(B.int32(0), B.int32(1), 8)
    turn = E.BufferLoad(count, (B.int32(0),))
    body = S.seq(
        S.BufferStore(acc, E.Broadcast(E.FloatImm(E.DType("float32"), 1.0), 8), (lanes,)),
        S.BufferStore(count, B.int32(0), (B.int32(0),)),
        S.While(
            B.less(turn, B.int32(3)),
            S.seq(
                S.BufferStore(acc, E.Mul(E.BufferLoad(acc, (lanes,)), E.BufferLoad(a, (lanes,))), (lanes,)),
                S.BufferStore(count, B.add(turn, B.int32(1)), (B.int32(0),)),
            ),
        ),
        S.BufferStore(out, E.BufferLoad(acc, (lanes,)), (lanes,)),
    )
    function = S.PrimFunc((a, out), S.Allocate(acc, S.Allocate(count, body)))
    values, got = np.linspace(-1, 1, 8).astype("float32"), np.zeros(8, "float32")
    assert run(function, target, values, got) == 0
    np.testing.assert_allclose(got, values**3, rtol=1e-6)


def test_conditions_that_never_change_are_refused() -> None:
    with pytest.raises(ScheduleError, match="its condition always holds"), tir.ir_builder.create().while_loop(True):
        pass
    with pytest.raises(ParseError, match="the condition of while is True"):
        armillary.script.from_source(
            "from armillary.script import tir as T\n@T.prim_func\n"
            "def f(a: T.Buffer((1,), 'int32')):\n    while True:\n        a[0] = 1\n"
        )
