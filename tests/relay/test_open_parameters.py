"""`relay.vm.compile` of parameters with unknown axes: one build for all sizes, saved too, or one for each shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, runtime, te
from armillary.base.aliases import Array
from armillary.driver import executor
from armillary.errors import ExecutionError, TypeMismatch

RNG = np.random.default_rng(3)


def _data(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was built so far."""
    seen: list[object] = []
    build = executor.build
    monkeypatch.setattr(executor, "build", lambda *args, **named: (seen.append(args), build(*args, **named))[1])
    return seen


def _machine(params: Sequence[relay.Var], body: relay.Expr, **weights: Array) -> runtime.vm.VirtualMachine:
    made = relay.vm.compile(relay.Function(params, body), "llvm", params=weights)
    return runtime.vm.VirtualMachine(made, armillary.cpu())


def _saved(folder: Path, exe: executor.Executable) -> runtime.vm.VirtualMachine:
    code, library = exe.save()
    library.export_library(folder / "lib.so")
    loaded = runtime.vm.Executable.load_exec(code, runtime.load_module(folder / "lib.so"))
    return runtime.vm.VirtualMachine(loaded, armillary.cpu())


def test_one_build_of_an_mlp_runs_at_every_batch(builds: list[object], tmp_path: Path) -> None:
    x, w, v = relay.var("x", shape=(relay.Any(), 8)), relay.var("w", shape=(16, 8)), relay.var("v", shape=(4, 16))
    body = relay.nn.dense(relay.nn.relu(relay.nn.dense(x, w)), v)
    weights = {"w": _data(16, 8), "v": _data(4, 16)}
    exe = relay.vm.compile(relay.Function([x, w, v], body), "llvm", params=weights)
    here = runtime.vm.VirtualMachine(exe, armillary.cpu())
    there = _saved(tmp_path, exe)
    for batch in (1, 3, 17):
        data = _data(batch, 8)
        wanted = np.maximum(data @ weights["w"].T, 0) @ weights["v"].T
        for machine in (here, there):
            np.testing.assert_allclose(machine.run(data).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert len(builds) == 2  # one here, one that was saved
    with pytest.raises(TypeMismatch, match=r"%x: got Tensor\[\(2, 7\), float32\], wanted Tensor\[\(\?, 8\)"):
        here.run(_data(2, 7))
    with pytest.raises(TypeMismatch, match="x: axis 1 has 7 elements given, 8 wanted"):
        there.run(_data(2, 7))
    with pytest.raises(TypeMismatch, match="axis 0 is x_0 = 0, which lies outside its bounds"):
        there.run(_data(0, 8))
    assert here.run(_data(0, 8)).shape == (0, 4)


def test_axes_that_operators_join_are_one_size(builds: list[object], tmp_path: Path) -> None:
    x, y, z = (relay.var(n, shape=(relay.Any(), relay.Any())) for n in "xyz")
    body = relay.Tuple([x + y, relay.concatenate([x, z], 1)])  # rows of all three, columns of x and y
    exe = relay.vm.compile(relay.Function([x, y, z], body))
    here, there = runtime.vm.VirtualMachine(exe, armillary.cpu()), _saved(tmp_path, exe)
    builds.clear()
    for rows, columns, more in ((2, 3, 5), (4, 2, 1), (1, 1, 1)):
        a, b, c = _data(rows, columns), _data(rows, columns), _data(rows, more)
        for machine in (here, there):
            total, joined = machine.run(a, b, c)
            np.testing.assert_array_equal(total.numpy(), a + b)
            np.testing.assert_array_equal(joined.numpy(), np.concatenate([a, c], 1))
    assert len(builds) == 1
    with pytest.raises(TypeMismatch, match="add: the shapes do not broadcast"):
        here.run(_data(2, 3), _data(3, 3), _data(2, 1))
    with pytest.raises(ExecutionError, match="inputs x and y disagree on the size x_0: 2 and 1"):
        there.run(_data(2, 3), _data(1, 3), _data(2, 1))
    one = _data(1, 3)
    np.testing.assert_array_equal(here.run(x_2 := _data(2, 3), one, _data(2, 1))[0].numpy(), x_2 + one)
    assert len(builds) == 2


def test_a_variable_is_one_size_of_two_parameters(builds: list[object]) -> None:
    n = te.var("n")
    x, y = relay.var("x", relay.TensorType((n, 4))), relay.var("y", relay.TensorType((n, 4)))
    machine = _machine([x, y], relay.exp(x) * y)
    for rows in (1, 6):
        a, b = _data(rows, 4), _data(rows, 4)
        np.testing.assert_allclose(machine.run(a, b).numpy(), np.exp(a) * b, rtol=1e-5)
    assert len(builds) == 1


def test_what_has_no_form_over_sizes_is_built_for_each_shape(builds: list[object]) -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    machine = _machine([x], relay.reshape(x, (-1, 6)) * relay.const(2.0))
    for rows in (2, 4):
        data = _data(rows, 3)
        np.testing.assert_array_equal(machine.run(data).numpy(), data.reshape(-1, 6) * 2)
    assert len(builds) == 2
    squeezed = _machine([x], relay.squeeze(x))  # drops an axis of one row alone
    assert squeezed.run(_data(2, 3)).shape == (2, 3) and squeezed.run(_data(1, 3)).shape == (3,)
    ids = relay.var("ids", shape=(relay.Any(),), dtype="int32")  # at most as many as x has rows: no equality
    counted = _machine([ids, x], relay.segment_sum(x, ids, 2))
    for rows in (2, 5):
        data = _data(rows, 3)
        wanted = np.stack([data.sum(0), np.zeros(3)])
        np.testing.assert_allclose(counted.run(np.zeros(rows, "int32"), data).numpy(), wanted, rtol=1e-5)


def test_a_size_is_large_enough_for_all_that_is_cut_from_it() -> None:
    x = relay.var("x", shape=(relay.Any(), relay.Any()))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.split(x, (1, 8), axis=1).astuple()))
    run = relay.create_executor("vm", module, armillary.cpu(), "llvm").evaluate()
    for columns, last in ((12, 4), (9, 1), (5, 0)):
        shapes = [part.shape for part in run(np.ones((2, columns), "float32"))]
        assert shapes == [(2, 1), (2, min(columns, 8) - 1), (2, last)]
