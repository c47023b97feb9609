"""Ranges as scripts make them: [begin, end), [0, length), or from a minimum and an extent."""

from __future__ import annotations

from typing import Any

import pytest

import armillary
from armillary import te, tir
from armillary.base.node import replace
from armillary.errors import ArmillaryError, TypeMismatch


@pytest.mark.parametrize("kind", [tir.Range, te.Range, armillary.ir.Range])
@pytest.mark.parametrize(
    ("given", "low", "extent"), [((2, 10), 2, 8), ((5,), 0, 5), ((3, 3), 3, 0), ((tir.IntImm("int64", 1), 4), 1, 3)]
)
def test_a_range_ends_before_its_second_number(kind: Any, given: tuple[Any, ...], low: int, extent: int) -> None:
    made = kind(*given)
    assert (made.min.value, made.extent.value) == (low, extent)


def test_a_minimum_and_an_extent_have_a_name() -> None:
    made = tir.Range.from_min_extent(2, 8)
    assert (made.min.value, made.extent.value) == (2, 8)
    wider = replace(made, extent=tir.IntImm("int32", 9))
    assert (wider.min.value, wider.extent.value) == (2, 9)


def test_the_end_may_be_an_expression() -> None:
    n = te.var("n")
    assert str(tir.Range(1, n).extent) == "n - 1"
    assert tir.Range(n).extent is n


def test_a_reduction_reads_what_the_range_holds() -> None:
    a = te.placeholder((16,), "int32", name="a")
    k = te.reduce_axis(tir.Range(2, 10), "k")
    total = te.compute((1,), lambda i: te.sum(a[k], axis=k))
    built = armillary.build(te.create_schedule(total.op), [a, total], "llvm")
    data, result = armillary.nd.array([1 << i for i in range(16)], dtype="int32"), armillary.nd.empty((1,), "int32")
    built(data, result)
    assert result.numpy()[0] == sum(1 << i for i in range(2, 10))


@pytest.mark.parametrize("given", [(None,), (b"x", 1), (0, "n"), ([], []), (0, object())])
def test_what_bounds_nothing_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeMismatch, match=r"Range\.(begin|end)") as error:
        tir.Range(*given)
    assert isinstance(error.value, ArmillaryError)


def test_inferred_bounds_are_told_by_the_axes_of_the_schedule() -> None:
    a = te.placeholder((8, 6), name="a")
    b = te.compute((8, 6), lambda i, j: a[i, j], name="b")
    c = te.compute((8, 6), lambda i, j: b[i, j] + 3, name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*c.op.axis), 3)
    s[b].compute_at(s[c], outer)
    bounds = te.schedule.InferBound(s)
    first = [tir.stmt_functor.substitute(bounds[x].min, {outer.var: tir.const(5)}) for x in b.op.axis]
    assert [tir.build.as_int(tir.simplify.simplify(x)) for x in first] == [2, 3]
    assert [bounds[x].extent.value for x in b.op.axis] == [1, 3]
