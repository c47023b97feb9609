"""Programs built by hand with ir_builder, and the public names of armillary.tir."""

from __future__ import annotations

import numpy as np
import pytest

import armillary.tir as tir
from armillary.errors import ConfigError, ScheduleError
from armillary.tir.interpreter import interpret
from armillary.tir.lower import lower_function
from armillary.tir.parser import parse_function
from armillary.transform import PassContext


def test_prefix_sum_built_by_hand_runs() -> None:
    ib = tir.ir_builder.create()
    a, b = tir.decl_buffer((6,), "int32", "a"), tir.decl_buffer((6,), "int32", "b")
    source, out = ib.buffer_ptr(a), ib.buffer_ptr(b)
    total = ib.allocate("int32", (1,), "total", scope="local")
    total[0] = 0
    with ib.for_range(0, 6, name="i") as i:
        total[0] = total[0] + source[i]
        with ib.if_scope(i < 3):
            out[i] = total[0]
        with ib.else_scope():
            out[i] = -total[0]
    func = tir.PrimFunc((a, b), ib.get())
    data, got = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    interpret(lower_function(func), data, got)
    np.testing.assert_array_equal(got, np.cumsum(data) * np.array([1, 1, 1, -1, -1, -1]))


def test_else_without_if_is_refused() -> None:
    with pytest.raises(ScheduleError, match="directly follow"), tir.ir_builder.create().else_scope():
        pass


@pytest.mark.parametrize("name", sorted(n for n in tir._TABLE))
def test_public_name_resolves(name: str) -> None:
    assert getattr(tir, name) is not None


@pytest.mark.parametrize("name", sorted(tir.transform._PASSES))
def test_public_pass_is_a_pass(name: str) -> None:
    assert getattr(tir.transform, name)().name.startswith("tir.")


def test_user_pass_runs_in_its_phase() -> None:
    seen: list[str] = []

    @tir.transform.prim_func_pass(opt_level=0)
    def note(func, module, context):  # type: ignore[no-untyped-def]
        seen.append(str(func))
        return func

    func = parse_function("func @f(A: Buffer[(2, 2), float32]) { for i in range(2) unrolled { A[i, 0] = 1.0 } }")
    with PassContext(config={"tir.add_lower_pass": [[0, note], [3, note]]}):
        lower_function(func)
    assert "unrolled" in seen[0] and "A[2] = 1.0" in seen[1]


def test_bad_lower_pass_is_refused() -> None:
    func = parse_function("func @f(A: Buffer[(2,), float32]) { A[0] = 1.0 }")
    config = {"tir.add_lower_pass": [["zero", print]]}
    with PassContext(config=config), pytest.raises(ConfigError, match=r"tir\.add_lower_pass: got"):
        lower_function(func)
