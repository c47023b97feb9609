"""Reductions whose axes are bound to work-items: as loops one after another, and as kernels of an OpenCL device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError
from armillary.te.schedule import Schedule
from armillary.tir.interpreter import interpret

Case = tuple[Schedule, list[te.Tensor], int]  # the last so many tensors are outputs
RANDOM = np.random.default_rng(5)


def bind(schedule: Schedule, tensor: te.Tensor, axis: object, tag: str) -> None:
    schedule[tensor].bind(axis, te.thread_axis(tag))


def rows(count: int, terms: int, reducer: Callable[..., object] = te.sum) -> list[te.Tensor]:
    """A reduction of each row."""
    a, k = te.placeholder((count, terms), name="a"), te.reduce_axis((0, terms), name="k")
    return [a, te.compute((count,), lambda i: reducer(a[i, k], axis=k), name="b")]


def split_terms(terms: int, reducer: Callable[..., object] = te.sum) -> Case:
    """A group for each row; its work-items take every 16th term."""
    tensors = rows(5, terms, reducer)
    b = tensors[1]
    s = te.create_schedule(b.op)
    bind(s, b, s[b].split(s[b].op.reduce_axis[0], factor=16)[1], "threadIdx.x")
    bind(s, b, s[b].op.axis[0], "blockIdx.x")
    return s, tensors, 1


def factored_rows() -> Case:
    """As tutorials write it: parts by rfactor, 32 rows a group, whose last rows are not there."""
    tensors = rows(100, 60)
    b = tensors[1]
    s = te.create_schedule(b.op)
    part = s.rfactor(b, s[b].split(s[b].op.reduce_axis[0], factor=16)[1])
    outer, inner = s[b].split(s[b].op.axis[0], factor=32)
    bind(s, b, outer, "blockIdx.x")
    bind(s, b, inner, "threadIdx.y")
    bind(s, b, s[b].op.reduce_axis[0], "threadIdx.x")
    s[part].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(te.thread_axis("threadIdx.x").var.equal(0))
    return s, tensors, 1


def two_axes() -> Case:
    """Both axes of a reduction are shared."""
    a = te.placeholder((3, 4, 6), name="a")
    k, m = te.reduce_axis((0, 4), name="k"), te.reduce_axis((0, 6), name="m")
    b = te.compute((3,), lambda i: te.sum(a[i, k, m], axis=[k, m]), name="b")
    s = te.create_schedule(b.op)
    bind(s, b, s[b].op.axis[0], "blockIdx.x")
    bind(s, b, s[b].op.reduce_axis[0], "threadIdx.y")
    bind(s, b, s[b].op.reduce_axis[1], "threadIdx.x")
    return s, [a, b], 1


def softmax(scope: str) -> Case:
    """Two reductions inside a group, whose results its work-items read."""
    a, (k, m) = te.placeholder((7, 50), name="a"), (te.reduce_axis((0, 50), name=name) for name in "km")
    most = te.compute((7,), lambda i: te.max(a[i, k], axis=k), name="most")
    power = te.compute((7, 50), lambda i, j: te.exp(a[i, j] - most[i]), name="power")
    total = te.compute((7,), lambda i: te.sum(power[i, m], axis=m), name="total")
    out = te.compute((7, 50), lambda i, j: power[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    row, column = s[out].op.axis
    bind(s, out, row, "blockIdx.x")
    bind(s, out, column, "threadIdx.x")
    for tensor, where in ((total, scope), (power, "shared"), (most, scope)):
        s[tensor].compute_at(s[out], row)
        s[tensor].set_scope(where)
    bind(s, power, s[power].op.axis[1], "threadIdx.x")
    bind(s, total, s[total].op.reduce_axis[0], "threadIdx.x")
    bind(s, most, s[most].op.reduce_axis[0], "threadIdx.x")
    return s, [a, out], 1


def last_place_of_largest() -> Case:
    """A reduction of two values."""

    def combine(x: Sequence[tir.PrimExpr], y: Sequence[tir.PrimExpr]) -> tuple[tir.PrimExpr, tir.PrimExpr]:
        return tir.Select(x[1] > y[1], x[0], y[0]), tir.Select(x[1] > y[1], x[1], y[1])

    reducer = te.comm_reducer(combine, lambda p, v: (tir.const(-1, p), te.min_value(v)), name="last")
    a, k = te.placeholder((7, 50), name="a"), te.reduce_axis((0, 50), name="k")
    place, value = te.compute((7,), lambda i: reducer((k.var, a[i, k]), axis=k), name="b")
    s = te.create_schedule(place.op)
    bind(s, place, s[place].split(s[place].op.reduce_axis[0], factor=16)[1], "threadIdx.x")
    bind(s, place, s[place].op.axis[0], "blockIdx.x")
    return s, [a, place, value], 2


def of_softmax(a: np.ndarray) -> list[np.ndarray]:
    power = np.exp(a - a.max(1, keepdims=True))
    return [power / power.sum(1, keepdims=True)]


CASES = {
    "sum, whole parts": (lambda: split_terms(64), lambda a: [a.sum(1)]),
    "sum, a remainder": (lambda: split_terms(37), lambda a: [a.sum(1)]),
    "product, fewer terms than work-items": (lambda: split_terms(11, te.prod), lambda a: [a.prod(1)]),
    "largest": (lambda: split_terms(50, te.max), lambda a: [a.max(1)]),
    "parts by rfactor": (factored_rows, lambda a: [a.sum(1)]),
    "two axes": (two_axes, lambda a: [a.sum((1, 2))]),
    "softmax, a copy each": (lambda: softmax("local"), of_softmax),
    "softmax, one copy": (lambda: softmax("shared"), of_softmax),
    "two values": (last_place_of_largest, lambda a: [a.argmax(1).astype("int32"), a.max(1)]),
}


def arrays(tensors: Sequence[te.Tensor]) -> list[np.ndarray]:
    shapes = [te.static_shape(tensor) for tensor in tensors]
    return [
        RANDOM.standard_normal(s).astype(str(t.dtype)) if str(t.dtype) == "float32" else np.zeros(s, str(t.dtype))
        for s, t in zip(shapes, tensors, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_steps_of_work_items_run_one_after_another_too(name: str) -> None:
    make, wanted = CASES[name]
    schedule, tensors, results = make()
    values = arrays(tensors)
    interpret(te.lower_schedule(schedule, tensors), *values)
    for got, want in zip(values[-results:], wanted(values[0]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@needs_opencl
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_the_same(name: str) -> None:
    make, wanted = CASES[name]
    schedule, tensors, results = make()
    device, values = armillary.opencl(), arrays(tensors)
    held = [armillary.nd.array(value, device) for value in values]
    armillary.build(schedule, tensors, "opencl", name="shared")(*held)
    for got, want in zip(held[-results:], wanted(values[0]), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_what_work_items_cannot_share_is_refused_by_stage_and_axis() -> None:
    tensors = rows(5, 64)
    s = te.create_schedule(tensors[1].op)
    bind(s, tensors[1], s[tensors[1]].op.reduce_axis[0], "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"stage b: reduction axis k and blockIdx\.x"):
        te.lower_schedule(s, tensors)

    started = rows(5, 64, lambda value, axis: te.sum(value, axis=axis, init=3.0))
    s = te.create_schedule(started[1].op)
    bind(s, started[1], s[started[1]].op.reduce_axis[0], "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"bind on stage b: .* initial value that is not neutral"):
        te.lower_schedule(s, started)

    a, k = te.placeholder((5, 64), name="a"), te.reduce_axis((0, 64), name="k")
    twice = te.compute((5, 64), lambda i, j: a[i, j] * 2.0, name="twice")
    b = te.compute((5,), lambda i: te.sum(twice[i, k], axis=k), name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].op.reduce_axis[0], factor=16)
    bind(s, b, inner, "threadIdx.x")
    s[twice].compute_at(s[b], outer)
    with pytest.raises(ScheduleError, match=r"stage b: another stage is computed inside its reduction"):
        te.lower_schedule(s, [a, b])


def test_a_register_of_a_row_that_work_items_of_another_stage_share_is_refused() -> None:
    a, k = te.placeholder((8, 16), name="a"), te.reduce_axis((0, 16), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="b")
    c = te.compute((8,), lambda i: b[i] + 1.0, name="c")
    s = te.create_schedule(c.op)
    bind(s, c, s[c].op.axis[0], "threadIdx.x")
    s[b].compute_at(s[c], s[c].op.axis[0])
    bind(s, b, s[b].op.reduce_axis[0], "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"stage b: threadIdx\.x is bound around it already"):
        te.lower_schedule(s, [a, c])
