"""`tir.Schedule.rfactor`: parts of a reduction by themselves, then joined to the same values, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError

RNG = np.random.default_rng(7)


def _rows(join: str = "sum") -> tir.Schedule:
    a, k, m = te.placeholder((6, 10, 5), name="a"), te.reduce_axis((0, 10), "k"), te.reduce_axis((0, 5), "m")
    return tir.Schedule(
        te.create_prim_func([a, te.compute((6,), lambda i: getattr(te, join)(a[i, k, m], axis=[k, m]), "c")])
    )


def _check(schedule: tir.Schedule, join: str = "sum") -> None:
    a, c = RNG.random((6, 10, 5), dtype=np.float32) - 2, np.full(6, 9, np.float32)
    armillary.build(schedule.mod, target="llvm")(a, c)
    np.testing.assert_allclose(c, getattr(a, join)(axis=(1, 2)), rtol=1e-5)


@pytest.mark.parametrize("join", ["sum", "max", "min"])
@pytest.mark.parametrize(("which", "axis"), [(0, 0), (1, 1), (1, -1), (2, -2)])
def test_parts_are_joined_to_the_same(join: str, which: int, axis: int) -> None:
    s = _rows(join)
    i, k, m = s.get_loops(s.get_block("c"))
    s.split(i, [None, 4])  # 6 = 2 * 4 - 2
    outer, inner = s.split(k, [None, 8])  # 10 = 2 * 8 - 6
    chosen = (outer, inner, m)[which]
    length = s.get(chosen).extent.value
    parts = s.rfactor(chosen, axis)
    assert parts.name == "c_rf" and [b.name for b in s.get_consumers(parts)] == ["c"]
    shape = [size.value for size in s.get(parts).writes[0].buffer.shape]
    assert shape == ([length, 6] if axis % 2 == 0 else [6, length])
    assert [v.kind for v in s.get(parts).iter_vars].count("reduce") == 2
    assert [loop.var.name for loop in s.get_loops(s.get_block("c"))] == ["i_0", "i_1", chosen.var.name]
    _check(s, join)
    s.parallel(s.get_loops(parts)[2 + which])  # a data axis now
    first = s.decompose_reduction(parts, s.get_loops(parts)[0])
    assert first.name == "c_rf_init"
    _check(s, join)


def test_a_product_in_parts_of_a_loop_alone() -> None:
    a, k = te.placeholder((4, 8), "int32", name="a"), te.reduce_axis((0, 8), "k")
    times = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t))
    s = tir.Schedule(te.create_prim_func([a, te.compute((4,), lambda i: times(a[i, k], axis=k), "c")]))
    s.rfactor(s.get_loops(s.get_block("c"))[1], 0)
    values, result = RNG.integers(-3, 4, (4, 8), dtype=np.int32), np.zeros(4, np.int32)
    armillary.build(s.mod, target="llvm")(values, result)
    np.testing.assert_array_equal(result, values.prod(1))


def test_what_has_no_parts_is_refused() -> None:
    s = _rows()
    i, k, m = s.get_loops(s.get_block("c"))
    with pytest.raises(ScheduleError, match="'c' does not reduce over loop i"):
        s.rfactor(i, 0)
    with pytest.raises(ScheduleError, match="writes 1 dimensions, there is no factor_axis 2"):
        s.rfactor(k, 2)
    s.fuse(i, k)
    with pytest.raises(ScheduleError, match="axes of reduced and of other loops"):
        s.rfactor(s.get_loops(s.get_block("c"))[0], 0)
    s = _rows()
    _, k, m = s.get_loops(s.get_block("c"))
    s.decompose_reduction(s.get_block("c"), k)
    with pytest.raises(ScheduleError, match="has no first values"):
        s.rfactor(m, 0)
    a, k = te.placeholder((4, 8), name="a"), te.reduce_axis((0, 8), "k")
    s = tir.Schedule(te.create_prim_func([a, te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=2.0), "c")]))
    with pytest.raises(ScheduleError, match=r"starts from .*2.* which its parts cannot start from"):
        s.rfactor(s.get_loops(s.get_block("c"))[1], 0)
