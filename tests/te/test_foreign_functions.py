"""Functions that are not compiled here: C functions that get addresses, and Python functions called by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError

RNG = np.random.default_rng(17)


@pytest.fixture
def named():
    """Registers a function for one test; gives its name."""
    names = []

    def register(function):
        name = f"test.foreign.{len(names)}"
        armillary.register_func(name, function, override=True)
        names.append(name)
        return name

    yield register
    for name in names:
        armillary.registry.remove_global_func(name)


def _swapped(n: int, target: str = "llvm"):
    """Bytes of int16 swapped by the C library, between two loops of our own."""
    a = te.placeholder((n,), "int16", name="a")
    b = te.compute((n,), lambda i: a[i] + te.const(1, "int16"), name="b")

    def call(ins, outs):
        return tir.call_extern("void", "swab", ins[0].access_ptr("r"), outs[0].access_ptr("w"), 2 * n)

    c = te.extern((n,), [b], call, name="c", dtype="int16")
    d = te.compute((n,), lambda i: c[i] + te.const(1, "int16"), name="d")
    return armillary.build(te.create_schedule(d.op), [a, d], target)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_c_function_gets_addresses_of_tensors(target):
    a = RNG.integers(-1000, 1000, 24).astype("int16")
    got = np.zeros_like(a)
    _swapped(24, target)(a, got)
    np.testing.assert_array_equal(got, (a + np.int16(1)).byteswap() + np.int16(1))


def test_offsets_count_elements_of_the_buffer():
    a = te.placeholder((4, 6), "uint8", name="a")

    def call(ins, outs):
        first = tir.call_extern("void", "memcpy", outs[0].access_ptr("w"), ins[0].access_ptr("r", offset=12), 12)
        return tir.stmt_seq(
            tir.Evaluate(first),
            tir.Evaluate(
                tir.call_extern("void", "memcpy", outs[0].access_ptr("w", offset=12), ins[0].access_ptr("r"), 12)
            ),
        )

    b = te.extern((4, 6), [a], call, name="b", dtype="uint8")
    run = armillary.build(te.create_schedule(b.op), [a, b])
    x = RNG.integers(0, 255, (4, 6)).astype("uint8")
    got = np.zeros_like(x)
    run(x, got)
    np.testing.assert_array_equal(got, np.concatenate([x[2:], x[:2]]))


def test_tensorized_rows_have_their_places_and_strides():
    a = te.placeholder((5, 8), "uint8", name="a")
    b = te.compute((5, 8), lambda i, j: a[i, j], name="b")
    x = te.placeholder((4,), "uint8", name="x")
    y = te.compute((4,), lambda i: x[i], name="y")
    steps = te.var("step")
    places = {
        x: tir.decl_buffer((4,), "uint8", strides=[steps], offset_factor=1),
        y: tir.decl_buffer((4,), "uint8", offset_factor=1),
    }

    def call(ins, outs):
        size = 4 * ins[0].strides[0]
        return tir.call_extern("void", "memcpy", outs[0].access_ptr("w"), ins[0].access_ptr("r"), size)

    intrinsic = te.decl_tensor_intrin(y.op, call, binds=places)
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[1], 4)
    s[b].tensorize(inner, intrinsic)
    run = armillary.build(s, [a, b])
    given = RNG.integers(0, 255, (5, 8)).astype("uint8")
    got = np.zeros_like(given)
    run(given, got)
    np.testing.assert_array_equal(got, given)


def test_python_function_gets_tensors_numbers_and_texts(named):
    seen = []

    def scale(source, factor, shift, target, label):
        seen.append((source.shape, source.dtype, factor, shift, label))
        target.copyfrom(source.numpy() * factor + shift)

    name = named(scale)
    a = te.placeholder((3, 4), name="a")
    b = te.compute((3, 4), lambda i, j: a[i, j] * 2, name="b")
    c = te.extern(
        (3, 4), [b], lambda ins, outs: tir.call_packed(name, ins[0], 2.5, 7, outs[0], "x\ty"), dtype="float32"
    )
    d = te.compute((3, 4), lambda i, j: c[i, j] + 1, name="d")
    run = armillary.build(te.create_schedule(d.op), [a, d])
    x = RNG.standard_normal((3, 4)).astype("float32")
    got = np.zeros_like(x)
    run(x, got)
    np.testing.assert_allclose(got, x * 2 * np.float32(2.5) + 7 + 1, rtol=1e-6)
    assert seen == [((3, 4), "float32", 2.5, 7, "x\ty")]


def test_what_a_function_changes_is_read_again(named):
    def double(tensor):
        tensor.copyfrom(tensor.numpy() * 2)

    name = named(double)
    builder = tir.ir_builder.create()
    a, out = tir.decl_buffer((4,), name="a"), tir.decl_buffer((2,), name="out")
    given, result = builder.buffer_ptr(a), builder.buffer_ptr(out)
    result[0] = given[0]
    builder.emit(tir.call_packed(name, a))
    result[1] = given[0]
    run = armillary.build(tir.PrimFunc([a, out], builder.get()))
    x, got = np.arange(3, 7, dtype="float32"), np.zeros(2, "float32")
    run(x, got)
    assert got.tolist() == [3.0, 6.0]
    assert x.tolist() == [6.0, 8.0, 10.0, 12.0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_trace_sees_each_value_and_gives_it(named, dtype):
    seen = []
    name = named(lambda i, value: seen.append((i, value)))
    a = te.placeholder((6,), dtype, name="a")
    b = te.compute((6,), lambda i: tir.trace([i, a[i]], name), name="b")
    run = armillary.build(te.create_schedule(b.op), [a, b])
    x = RNG.integers(0, 2, 6).astype(dtype) if dtype == "bool" else RNG.integers(0, 100, 6).astype(dtype)
    got = np.zeros_like(x)
    run(x, got)
    np.testing.assert_array_equal(got, x)
    assert seen == list(enumerate(x.tolist()))


def test_trace_takes_the_number_that_a_function_gives(named):
    name = named(lambda i, value: -value if i % 2 else None)
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: tir.trace([i, a[i]], name) + 1, name="b")
    s = te.create_schedule(b.op)
    s[b].parallel(b.op.axis[0])
    run = armillary.build(s, [a, b])
    x = RNG.standard_normal(64).astype("float32")
    got, wanted = np.zeros_like(x), np.where(np.arange(64) % 2, -x, x) + 1
    run(x, got)
    np.testing.assert_array_equal(got, wanted)
    meant = np.zeros_like(x)
    tir.interpret(te.lower_schedule(s, [a, b], "main"), x, meant)
    np.testing.assert_array_equal(meant, wanted)


def test_trace_without_a_function_prints(capfd):
    a = te.placeholder((2,), name="a")
    b = te.compute((2,), lambda i: tir.trace([i, a[i]]), name="b")
    run = armillary.build(te.create_schedule(b.op), [a, b])
    run(np.array([1.5, 2.5], "float32"), np.zeros(2, "float32"))
    sys.stdout.flush()
    assert capfd.readouterr().out == "[0, 1.5]\n[1, 2.5]\n"


def test_vectorized_trace_is_a_loop(named):
    seen = []
    name = named(lambda value: seen.append(value))
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: tir.trace([a[i]], name), name="b")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    run = armillary.build(s, [a, b])
    x = np.arange(8, dtype="float32")
    run(x, np.zeros_like(x))
    assert seen == x.tolist()


def test_what_a_function_raises_stops_the_kernel(named):
    def fail(value):
        raise KeyError("no such thing")

    name = named(fail)
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: tir.trace([a[i]], name), name="b")
    run = armillary.build(te.create_schedule(b.op), [a, b], name="failing")
    with pytest.raises(ExecutionError, match=r"failing: the function test\.foreign\.0 raised KeyError") as caught:
        run(np.zeros(4, "float32"), np.zeros(4, "float32"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_function_that_gives_no_number_is_refused(named):
    name = named(lambda value: "seven")
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: tir.trace([a[i]], name), name="b")
    run = armillary.build(te.create_schedule(b.op), [a, b])
    with pytest.raises(ExecutionError, match="gave str, wanted a number, or None"):
        run(np.zeros(4, "float32"), np.zeros(4, "float32"))


_LOAD = """
import sys, numpy as np, armillary
from armillary.errors import ExecutionError
module = armillary.runtime.load_module(sys.argv[1])
out = np.zeros(3, "float32")
try:
    module(np.arange(3, dtype="float32"), out)
except ExecutionError as error:
    print(error.message)
armillary.register_func("test.foreign.later", lambda value: value * 3)
module(np.arange(3, dtype="float32"), out)
print(out.tolist())
"""


def test_exported_code_finds_functions_where_it_runs(tmp_path):
    a = te.placeholder((3,), name="a")
    b = te.compute((3,), lambda i: tir.trace([a[i]], "test.foreign.later"), name="b")
    library = armillary.build(te.create_schedule(b.op), [a, b], name="kernel")
    library.export_library(str(tmp_path / "f.so"))
    message = subprocess.run([sys.executable, "-c", _LOAD, str(tmp_path / "f.so")], capture_output=True, text=True)
    assert message.returncode == 0, message.stderr
    assert "'test.foreign.later', which is not registered" in message.stdout
    assert message.stdout.splitlines()[-1] == "[0.0, 3.0, 6.0]"


def test_refusals_say_what_is_wanted():
    with pytest.raises(TypeMismatch, match="wanted a list of values"):
        tir.trace(1.0)
    a = te.placeholder((3,), name="a")
    b = te.compute((3,), lambda i: tir.trace([a[i]]), name="b")
    with pytest.raises(UnsupportedError, match="c: cannot emit the intrinsic 'tvm_call_trace_packed'"):
        armillary.build(te.create_schedule(b.op), [a, b], "c")
