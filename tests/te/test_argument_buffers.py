"""Buffers that scripts bind to arguments, axes that broadcast when they are 1, dimensions that are computed."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import te, tir
from armillary.errors import ExecutionError, TypeMismatch
from armillary.script import tir as T
from armillary.tir.transform.scripts.arguments import settle_arguments


def added(shapes: list[tuple[te.Var, ...]]) -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = (te.placeholder(shape, name=name) for shape, name in zip(shapes, "ab", strict=False))
    c = te.compute(shapes[2], lambda *i: a(*i) + b(*i), name="c")
    return te.create_schedule(c.op), [a, b, c]


def variables(text: str) -> list[te.Var]:
    return [te.size_var(name) for name in text.split()]


def checked(function: object, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    got = armillary.nd.empty(np.broadcast_shapes(*shapes))
    function(*map(armillary.nd.array, arrays), got)  # type: ignore[operator]
    np.testing.assert_allclose(got.numpy(), arrays[0] + arrays[1])


@pytest.mark.parametrize("bound", [True, False])
def test_axes_of_length_one_stand_for_any_length(bound: bool) -> None:
    m, n, o = (variables(f"{x}0 {x}1 {x}2") for x in "mno")
    s, args = added([tuple(m), tuple(n), tuple(o)])
    buffers = {t: tir.decl_buffer(t.shape, t.dtype, name=t.op.name, buffer_type="auto_broadcast") for t in args[:2]}
    function = armillary.build(s, args, "llvm", binds=buffers if bound else None)
    checked(function, (2, 4, 3), (2, 4, 3))
    checked(function, (2, 4, 3), (2, 1, 1))
    checked(function, (1, 4, 1), (2, 1, 3))


def test_lengths_that_others_share_do_not_broadcast() -> None:
    m, n, k = variables("m n k")
    s, args = added([(m, n), (k, n), (m, n)])
    text = str(armillary.lower(s, args, simple_mode=True))
    assert "a[i0 * n + i1]" in text and "select(k == 1" in text and "select(n" not in text
    checked(armillary.build(s, args, "llvm"), (5, 4), (1, 4))


def test_a_sum_over_an_own_length_reads_all_of_it() -> None:
    m, n = variables("m n")
    a = te.placeholder((m, n), name="a")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((m,), lambda i: te.sum(a[i, k], axis=k), name="b")
    s = te.create_schedule(b.op)
    assert "select" not in str(armillary.lower(s, [a, b]))


def test_variables_of_strides_and_offsets_are_those_of_dense_tensors() -> None:
    n = te.size_var("n")
    a = te.placeholder((n, 4), name="a")
    b = te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="b")
    step, start = te.var("step"), te.var("start")
    bound = tir.decl_buffer((n, 4), name="a", strides=[step, 1], elem_offset=start, offset_factor=4)
    function = armillary.build(te.create_schedule(b.op), [a, b], "llvm", binds={a: bound})
    values, got = np.arange(12, dtype="float32").reshape(3, 4), armillary.nd.empty((3, 4))
    function(armillary.nd.array(values), got)
    np.testing.assert_array_equal(got.numpy(), values * 2)


@T.prim_func
def doubled(a: T.handle, b: T.handle) -> None:
    n, s, o = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, 4), strides=(s, 1), elem_offset=o)
    B = T.match_buffer(b, (n, 4), strides=(s, 1))
    for i, j in T.grid(n, 4):
        B[i, j] = A[i, j] * 2.0 + T.Cast("float32", s + o)


def test_scripts_may_ask_for_strides_and_offsets() -> None:
    values, got = np.arange(12, dtype="float32").reshape(3, 4), armillary.nd.empty((3, 4))
    armillary.build(doubled, target="llvm")(armillary.nd.array(values), got)
    np.testing.assert_array_equal(got.numpy(), values * 2 + 4)


def test_one_name_of_two_strides_is_checked() -> None:
    @T.prim_func
    def both(a: T.handle, b: T.handle) -> None:
        m, n, s = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (2, m), strides=(s, 1))
        B = T.match_buffer(b, (2, n), strides=(s, 1))
        for i in T.serial(2):
            B[i, 0] = A[i, 0]

    function = armillary.build(both, target="llvm")
    function(armillary.nd.empty((2, 3)), armillary.nd.empty((2, 3)))
    with pytest.raises(ExecutionError, match="the stride s is another's too"):
        function(armillary.nd.empty((2, 3)), armillary.nd.empty((2, 4)))


def test_a_computed_dimension_is_checked_where_it_runs() -> None:
    n, x = variables("n x")
    a = te.placeholder((n,), name="a")
    b = te.compute((n // x,), lambda i: a[i] + 1.0, name="b")
    function = armillary.build(te.create_schedule(b.op), [a, b, x], "llvm")
    values, got = np.arange(6, dtype="float32"), armillary.nd.empty((3,))
    function(armillary.nd.array(values), got, 2)
    np.testing.assert_array_equal(got.numpy(), values[:3] + 1)
    with pytest.raises(ExecutionError, match="dimension 0 is not n // x"):
        function(armillary.nd.array(values), armillary.nd.empty((4,)), 2)


@needs_opencl
def test_a_computed_dimension_is_checked_before_a_device_runs() -> None:
    n, x = variables("n x")
    a = te.placeholder((n,), name="a")
    b = te.compute((n // x,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    function, device = armillary.build(s, [a, b, x], "opencl"), armillary.opencl()
    values, got = np.arange(6, dtype="float32"), armillary.nd.empty((3,), device=device)
    function(armillary.nd.array(values, device), got, 2)
    np.testing.assert_array_equal(got.numpy(), values[:3] + 1)
    for length, by in ((2, 2), (4, 2), (3, 1), (3, 7)):
        untouched = armillary.nd.array(np.full(length, -1, "float32"), device)
        with pytest.raises(TypeMismatch, match=rf"argument 1 \(b\) has shape \({length}\), but {6 // by} is wanted"):
            function(armillary.nd.array(values, device), untouched, by)
        np.testing.assert_array_equal(untouched.numpy(), np.full(length, -1, "float32"))


def test_functions_without_such_names_stay_as_they_are() -> None:
    m, n = variables("m n")
    s, args = added([(m, n), (m, n), (m, n)])
    function = te.lower_schedule(s, args)
    assert settle_arguments(function) is function


@pytest.mark.parametrize(
    ("binds", "message"),
    [
        (lambda a, c: [a], "binds is list"),
        (
            lambda a, c: {te.compute((4,), lambda i: a[i], name="z"): tir.decl_buffer((4,))},
            "is no tensor among the arguments",
        ),
        (lambda a, c: {a: c}, "binds gives a"),
        (lambda a, c: {a: tir.decl_buffer((4, 1))}, "float32 of 2 axes, wanted float32 of 1 axes"),
        (lambda a, c: {a: tir.decl_buffer((4,), "int32")}, "int32 of 1 axes"),
    ],
)
def test_what_is_no_buffer_of_an_argument_is_refused(binds: object, message: str) -> None:
    a = te.placeholder((4,), name="a")
    c = te.compute((4,), lambda i: a[i] + 1.0, name="c")
    with pytest.raises(TypeMismatch, match=message):
        armillary.lower(te.create_schedule(c.op), [a, c], binds=binds(a, c))  # type: ignore[operator]
    with pytest.raises(TypeMismatch, match="no buffer type 'auto'"):
        tir.decl_buffer((4,), buffer_type="auto")


def test_a_buffer_of_an_input_that_no_program_reads_is_left_alone() -> None:
    a, unused = te.placeholder((8,), name="a"), te.placeholder((8,), "int32", name="indices")
    c = te.compute((8,), lambda i: a[i] * 2, name="c")
    binds = {a: tir.decl_buffer((8,), "float32", name="A"), unused: tir.decl_buffer((8,), "int32", name="I")}
    function = armillary.build(te.create_schedule(c.op), [a, c], "llvm", binds=binds)
    data, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    held = armillary.nd.array(out)
    function(armillary.nd.array(data), held)
    np.testing.assert_array_equal(held.numpy(), 2 * data)
