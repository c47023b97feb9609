"""Old names and forms of the loop language: builtin functions, positions in buffers, constants as numbers."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.tir.builtins import RESULTS


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_builtins_are_calls_of_their_name(name: str) -> None:
    x = tir.Var("x", "int32")
    made = getattr(tir, name)("int32", x) if RESULTS[name] == "first" else getattr(tir, name)(x)
    assert made.op.name in (f"tir.{name}", f"tir.tvm_{name}")
    assert made.args == (x,) and "x" in str(made)


def test_a_function_with_a_builtin_that_nothing_implements_is_refused_by_name() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: tir.Call("float32", "tvm_tuple", (a[i],)), name="b")
    with pytest.raises(ArmillaryError, match="tvm_tuple"):
        armillary.build(te.create_schedule(b.op), [a, b], "llvm")
    with pytest.raises(TypeMismatch, match="the type of the result comes first"):
        tir.ptx_mma(1, 2)


def test_positions_in_buffers() -> None:
    n = te.var("n")
    buffer = tir.decl_buffer((4, n), "float32", elem_offset=100)
    assert str(buffer.offset_of([2, 3])[0]) in ("n * 2 + 103", "103 + n * 2")
    assert (
        buffer.vload([0, 0], "float32x4").dtype == "float32x4" and buffer[1, 2].indices == buffer.vload([1, 2]).indices
    )
    pointer = buffer.access_ptr("rw", offset=4)
    assert pointer.op.name == "tir.tvm_access_ptr" and int(pointer.args[4]) == 3 and int(pointer.args[2]) == 104
    assert buffer.data.same_as(buffer.data) and str(buffer.data.dtype) == "handle"
    assert len(tir.decl_buffer((4, 5)).get_flattened_buffer().shape) == 1
    stored = buffer.vstore([0, 1], tir.const(1.0, "float32"))
    assert isinstance(stored, tir.BufferStore)
    for wrong in (lambda: buffer.vload([0]), lambda: buffer.vload([0, 0], "int8"), lambda: buffer.access_ptr("x")):
        with pytest.raises(TypeMismatch):
            wrong()


def test_constants_are_numbers() -> None:
    assert int(tir.const(7)) == 7 and float(tir.const(0.5)) == 0.5 and list(range(9))[tir.const(3)] == 3
    assert not tir.const(0) and tir.const(2)
    with pytest.raises(TypeMismatch, match="truth of a symbolic"):
        bool(tir.Var("x", "int32"))


def test_ldexp_and_shifts_compute() -> None:
    a = te.placeholder((4,), "int32", name="a")
    b = te.compute((4,), lambda i: tir.shift_left(a[i], 2) + tir.clz(tir.bitwise_and(a[i], 1)), name="b")
    out = armillary.nd.empty((4,), "int32")
    value = np.array([1, 2, 3, 4], "int32")
    armillary.build(te.create_schedule(b.op), [a, b], "llvm")(armillary.nd.array(value), out)
    np.testing.assert_array_equal(out.numpy(), value * 4 + np.where(value & 1, 31, 32))
