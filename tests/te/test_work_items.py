"""Stages of a kernel that its work-items fill together: who sees what, as loops and on an OpenCL device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import te
from armillary.errors import ArmillaryError, ScheduleError, UnsupportedError
from armillary.te.schedule import Schedule
from armillary.tir.interpreter import interpret

Case = tuple[Schedule, list[te.Tensor]]
VALUES = np.random.default_rng(3).integers(-9, 10, (12, 9)).astype("float32")


def axis(tag: str) -> object:
    return te.thread_axis(tag)


def sums() -> Case:
    """Sums of three neighbours, plus one."""
    a, k = te.placeholder((12, 9), name="a"), te.reduce_axis((0, 3), name="k")
    b = te.compute((12, 7), lambda i, j: te.sum(a[i, j + k], axis=k), name="b")
    c = te.compute((12, 7), lambda i, j: b[i, j] + 1.0, name="c")
    return te.create_schedule(c.op), [a, b, c]


def wanted() -> np.ndarray:
    return VALUES[:, :7] + VALUES[:, 1:8] + VALUES[:, 2:9] + 1


def shared_terms(scope: str, at: int = 0) -> Case:
    """The terms of each sum belong to work-items of a group whose row reads the sums."""
    s, (a, b, c) = sums()
    s[b].compute_at(s[c], s[c].op.axis[at])
    s[b].bind(s[b].op.reduce_axis[0], axis("threadIdx.x"))
    s[c].bind(s[c].op.axis[0], axis("blockIdx.x"))
    if at:
        s[c].bind(s[c].op.axis[1], axis("threadIdx.y"))
    if scope:
        s[b].set_scope(scope)
    return s, [a, c]


def filled_together(scope: str) -> Case:
    """Work-items store the sums of a row, and read one another's."""
    s, (a, b, c) = sums()
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[1], axis("threadIdx.x"))
    s[c].bind(s[c].op.axis[0], axis("blockIdx.x"))
    if scope:
        s[b].set_scope(scope)
    return s, [a, c]


def own_elements() -> Case:
    """Each work-item stores one sum in its own memory and reads it alone."""
    s, tensors = filled_together("local")
    s[tensors[1]].bind(s[tensors[1]].op.axis[1], axis("threadIdx.x"))
    return s, tensors


def bound_twice() -> Case:
    """An axis of one element has the threads of the loop that the stage is computed at."""
    s, (a, b, c) = sums()
    s[c].bind(s[c].op.axis[0], axis("blockIdx.x"))
    s[c].bind(s[c].op.axis[1], axis("threadIdx.x"))
    s[b].compute_at(s[c], s[c].op.axis[1])
    s[b].bind(s[b].op.axis[1], axis("threadIdx.x"))
    return s, [a, c]


def reduction_outside() -> Case:
    """The loop over terms stands outside of bound ones."""
    s, (a, b, c) = sums()
    s[b].reorder(s[b].op.reduce_axis[0], *s[b].op.axis)
    s[b].bind(s[b].op.axis[0], axis("threadIdx.x"))
    return s, [a, c]


def parallel(scope: str, tag: str = "") -> Case:
    """A parallel loop is a work-item for each iteration: none shares memory with the others of its group."""
    s, (a, b, c) = sums()
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].set_scope(scope)
    if tag:
        s[b].bind(s[b].op.reduce_axis[0], axis(tag))
    s[c].parallel(s[c].op.axis[0])
    return s, [a, c]


def guarded_terms() -> Case:
    """Sums shared by work-items inside loops whose last iterations lie beyond the end."""
    s, (a, b, c) = sums()
    s[b].split(s[b].op.axis[1], factor=3)
    s[b].bind(s[b].op.axis[0], axis("threadIdx.y"))
    s[b].bind(s[b].op.reduce_axis[0], axis("threadIdx.z"))
    return s, [a, c]


CASES: dict[str, Callable[[], Case]] = {
    "shared terms, no scope": lambda: shared_terms(""),
    "shared terms, own scope": lambda: shared_terms("local"),
    "shared terms, global scope": lambda: shared_terms("global"),
    "shared terms, inside work-items": lambda: shared_terms("", 1),
    "filled together, no scope": lambda: filled_together(""),
    "filled together, shared": lambda: filled_together("shared"),
    "own elements": own_elements,
    "bound twice": bound_twice,
    "reduction outside": reduction_outside,
    "parallel, shared": lambda: parallel("shared"),
    "parallel, shared terms": lambda: parallel("global", "threadIdx.x"),
    "guarded terms": guarded_terms,
}


@pytest.mark.parametrize("name", CASES)
def test_loops_compute_the_sums(name: str) -> None:
    schedule, tensors = CASES[name]()
    out = np.full((12, 7), np.nan, "float32")
    interpret(te.lower_schedule(schedule, tensors), VALUES.copy(), out)
    np.testing.assert_array_equal(out, wanted())


@needs_opencl
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_the_sums(name: str) -> None:
    schedule, tensors = CASES[name]()
    device = armillary.opencl()
    held = [armillary.nd.array(v, device) for v in (VALUES, np.full((12, 7), np.nan, "float32"))]
    armillary.build(schedule, tensors, "opencl", name="sums")(*held)
    np.testing.assert_array_equal(held[1].numpy(), wanted())


def too_few() -> Case:
    s, (a, b, c) = sums()
    s[c].bind(s[c].op.axis[0], axis("threadIdx.x"))
    inner = s[c].split(s[c].op.axis[1], factor=4)[1]
    s[c].bind(inner, axis("threadIdx.y"))
    s[b].compute_at(s[c], inner)
    s[b].set_scope("shared")
    s[b].bind(s[b].op.axis[0], axis("threadIdx.y"))
    return s, [a, c]


def own_copies() -> Case:
    s, (a, b, c) = sums()
    s[c].bind(s[c].op.axis[0], axis("threadIdx.x"))
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[1], axis("threadIdx.x"))
    return s, [a, c]


REFUSED: dict[str, tuple[Callable[[], Case], type[ArmillaryError], str]] = {
    "own scope": (lambda: filled_together("local"), UnsupportedError, r"b is stored by a loop bound to threadIdx\.x"),
    "too few": (too_few, ScheduleError, r"stage b: axis i is bound to threadIdx\.y, .* their extents are 12, 4"),
    "own copies": (own_copies, ScheduleError, r"stage b: axis j .* each work-item has a copy of its own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_others_do_not_see_is_refused(name: str) -> None:
    make, kind, message = REFUSED[name]
    schedule, tensors = make()
    with pytest.raises(kind, match=message):
        armillary.build(schedule, tensors, "opencl", name="sums")


def test_a_group_does_not_see_what_another_one_shares() -> None:
    s, (a, b, c) = sums()
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].set_scope("shared")
    s[b].bind(s[b].op.axis[1], axis("blockIdx.y"))
    s[c].bind(s[c].op.axis[0], axis("blockIdx.x"))
    with pytest.raises(UnsupportedError, match=r"b is stored by a loop bound to blockIdx\.y .* each group has its own"):
        armillary.build(s, [a, c], "opencl", name="sums")


def test_data_that_a_loop_makes_inside_is_not_prefetched() -> None:
    s, (a, b, c) = sums()
    s[b].compute_at(s[c], s[c].op.axis[1])
    s[c].prefetch(b, s[c].op.axis[0], 1)
    with pytest.raises(ScheduleError, match="prefetch on stage c: b is computed inside axis i"):
        te.lower_schedule(s, [a, c])
