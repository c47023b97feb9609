"""Scripts of the Relay era with one word replaced: `import armillary as tvm`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary as tvm
from armillary import relay, te, topi


def add_10_by_10() -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((10, 10), name="A"), te.placeholder((10, 10), name="B")
    c = te.compute((10, 10), lambda x, y: a[x, y] + b[x, y])
    return te.create_schedule(c.op), [a, b, c]


def test_lower_prints_the_loops_of_an_addition() -> None:
    s, args = add_10_by_10()
    text = str(tvm.lower(s, args))
    assert "for x in range(10)" in text
    assert "for y in range(10)" in text
    assert "compute[x * 10 + y] = A[x * 10 + y] + B[x * 10 + y]" in text


def test_the_c_target_gives_the_loops_as_c() -> None:
    s, args = add_10_by_10()
    source = tvm.build(s, args, target="c", name="hello").get_source()
    assert "compute[((x * 10) + y)] = (A[((x * 10) + y)] + B[((x * 10) + y)]);" in source


def test_split_shows_an_outer_and_an_inner_loop() -> None:
    a = te.placeholder((10,), name="A")
    c = te.compute((10,), lambda x: a[x] + 1.0)
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], factor=5)
    text = str(tvm.lower(s, [a, c], simple_mode=True))
    assert "for x_outer in range(2)" in text
    assert "for x_inner in range(5)" in text


def test_arm_cpu_vectorises_an_addition_for_neon(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 1024), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    target = "llvm --device=arm_cpu -mtriple=armv7a-linux-gnueabihf -mattr=+neon"
    with tvm.transform.PassContext(opt_level=3), pytest.warns(DeprecationWarning, match="old form"):
        _, lib, _ = relay.build(mod, target=target, params=None)
    lib.save(str(tmp_path / "a.o"))
    assert (tmp_path / "a.o").read_bytes()[:5] == b"\x7fELF\x01"
    assembly = lib.get_source("asm")
    assert "vadd.f32\tq" in assembly
    assert "vld1.32" in assembly or "vld1.64" in assembly


def schedule_injective(outs: te.Tensor | list[te.Tensor]) -> te.Schedule:
    """The text's listing of arm_cpu's, to the letter."""
    outs = [outs] if isinstance(outs, te.tensor.Tensor) else outs
    s = te.create_schedule([x.op for x in outs])
    x = outs[0]
    if list(s[x].op.axis):
        (_, ii) = s[x].split(list(s[x].op.axis)[-1], 4)
        s[x].vectorize(ii)
    tvm.te.schedule.AutoInlineInjective(s)
    if not topi.utils.is_empty_shape(x.shape):
        topi.arm_cpu.injective.schedule_injective_from_existing(s, x)
    return s


def test_a_schedule_for_any_injective_output() -> None:
    a = te.placeholder((8, 2, 64), name="A")
    twice = te.compute((8, 2, 64), lambda *i: a(*i) * 2.0)
    out = topi.nn.relu(twice)
    function = tvm.build(schedule_injective(out), [a, out], "llvm")
    value, result = np.random.default_rng(0).random((8, 2, 64), dtype="float32") - 0.5, tvm.nd.empty((8, 2, 64))
    function(tvm.nd.array(value), result)
    np.testing.assert_array_equal(result.numpy(), np.maximum(value * 2, 0))
    text = str(tvm.lower(topi.arm_cpu.schedule_injective(out), [a, out], simple_mode=True))
    assert text == str(tvm.lower(schedule_injective([out]), [a, out], simple_mode=True))
    assert "parallel" in text and "ramp" in text and "compute[" not in text


def test_injective_schedules_of_bytes_fill_a_register() -> None:
    a = te.placeholder((64,), "int8", name="A")
    out = te.compute((64,), lambda i: a[i] + a[i], name="B")
    assert ", 1, 16)" in str(tvm.lower(topi.arm_cpu.schedule_injective(out), [a, out]))
    empty = te.compute((0,), lambda i: a[i], name="C")
    assert "parallel" not in str(tvm.lower(topi.arm_cpu.schedule_injective([empty]), [a, empty]))
    with tvm.target.Target("opencl"):
        spread = topi.cuda.schedule_injective_from_existing(te.create_schedule(out.op), out)
    assert 'thread("threadIdx.x")' in str(tvm.lower(spread, [a, out]))


def test_symbolic_length_with_a_tail() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=8)
    s[b].vectorize(inner)
    s[b].parallel(outer)
    function = tvm.build(s, [a, b], "llvm", name="addone")
    for size in (1, 7, 8, 21, 1000):
        value, result = tvm.nd.array(np.arange(size, dtype="float32")), tvm.nd.empty((size,))
        function(value, result)
        np.testing.assert_array_equal(result.numpy(), np.arange(size, dtype="float32") + 1)
    assert function.time_evaluator(function.entry_name, tvm.cpu(0), number=3)(value, result).mean > 0
