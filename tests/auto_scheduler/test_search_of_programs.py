"""Any function of tensors is tuned without a template, and computes the same in every configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import auto_scheduler, relay, te
from armillary.autotvm.errors import TuningError


@auto_scheduler.register_workload
def matmul_add(n: int, m: int, k: int, dtype: str) -> list[te.Tensor]:
    a, b, c = (te.placeholder(shape, dtype, name) for shape, name in (((n, k), "A"), ((k, m), "B"), ((n, m), "C")))
    r = te.reduce_axis((0, k), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    return [a, b, c, te.compute((n, m), lambda i, j: te.max(product[i, j] + c[i, j], 0), name="out")]


def _pad(data: te.Tensor, size: int) -> te.Tensor:
    def element(c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        inside = armillary.tir.all(i >= 1, i <= size, j >= 1, j <= size)
        return armillary.tir.if_then_else(inside, data[c, i - 1, j - 1], 0.0)

    return te.compute((data.shape[0], size + 2, size + 2), element, name="padded")


@auto_scheduler.register_workload
def conv2d(channels: int, size: int) -> list[te.Tensor]:
    x = te.placeholder((channels, size, size), name="X")
    w = te.placeholder((channels, channels, 3, 3), name="W")
    padded = _pad(x, size)
    c, p, q = (te.reduce_axis((0, n), name=name) for n, name in ((channels, "c"), (3, "p"), (3, "q")))
    shape = (channels, size, size)
    y = te.compute(shape, lambda o, i, j: te.sum(padded[c, i + p, j + q] * w[o, c, p, q], axis=[c, p, q]), name="Y")
    return [x, w, y]


@auto_scheduler.register_workload
def softmax(n: int, m: int) -> list[te.Tensor]:
    x = te.placeholder((n, m), name="X")
    k, l = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="l")  # noqa: E741
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, l], axis=l), name="total")
    return [x, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="Y")]


@auto_scheduler.register_workload
def gelu_like(n: int) -> list[te.Tensor]:
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: te.tanh(x[i] * 2.0), name="inner")
    return [x, te.compute((n,), lambda i: y[i] * x[i], name="Y")]


WORKLOADS = {"matmul_add": (16, 24, 32, "float32"), "conv2d": (4, 8), "softmax": (6, 10), "gelu_like": (64,)}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_configuration_computes_the_same(name: str) -> None:
    task = auto_scheduler.SearchTask(func=name, args=WORKLOADS[name], target="llvm")
    space = task.task.config_space
    indices = space.valid_indices()
    chosen = np.random.default_rng(0).choice(indices, min(5, len(indices)), replace=False)
    tensors = task.compute_dag.tensors
    rng = np.random.default_rng(1)
    values = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in tensors]
    results = []
    plain = te.create_schedule([tensors[-1].op])
    for schedule, arguments in [(plain, tensors), *(task.task.instantiate(space.get(int(k))) for k in chosen)]:
        arrays = [armillary.nd.array(value) for value in values]
        armillary.build(schedule, arguments, "llvm")(*arrays)
        results.append(arrays[-1].numpy())
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-5)


def test_a_function_is_tuned_and_its_best_schedule_is_applied(tmp_path: Path) -> None:
    log = str(tmp_path / "matmul.json")
    task = auto_scheduler.SearchTask(func=matmul_add, args=WORKLOADS["matmul_add"], target="llvm")
    runner = auto_scheduler.LocalRPCMeasureContext(number=1, repeat=1).runner
    callbacks = [auto_scheduler.RecordToFile(log)]
    task.tune(auto_scheduler.TuningOptions(num_measure_trials=3, runner=runner, measure_callbacks=callbacks))
    inputs, results = auto_scheduler.RecordReader(log).read_lines()
    assert len(inputs) == 3 and all(not result.error_no for result in results)
    schedule, arguments = task.apply_best(log)
    rng = np.random.default_rng(2)
    a, b, c, out = (armillary.nd.array(rng.standard_normal([int(n) for n in t.shape], "float32")) for t in arguments)
    armillary.build(schedule, arguments, "llvm")(a, b, c, out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a.numpy() @ b.numpy() + c.numpy(), 0), rtol=1e-4, atol=1e-5)
    assert "compute out" in task.print_best(log)
    assert task.workload_key == auto_scheduler.make_workload_key(matmul_add, WORKLOADS["matmul_add"])
    assert auto_scheduler.SearchTask(workload_key=task.workload_key, target="llvm").task.args == task.task.args
    best, _ = auto_scheduler.load_best_record(log, task.workload_key)
    assert best is not None and best.task.name == "auto_scheduler.matmul_add"


def test_a_network_is_tuned_by_its_own_tasks(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 8, 12, 12))
    w = relay.const(np.random.default_rng(3).standard_normal((8, 8, 3, 3)).astype("float32"))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, w, padding=(1, 1))))
    tasks, weights = auto_scheduler.extract_tasks(module, {}, "llvm")
    assert len(tasks) == len(weights) == 1
    log = str(tmp_path / "net.json")
    scheduler = auto_scheduler.TaskScheduler(tasks, weights)
    runner = auto_scheduler.LocalRunner(number=1, repeat=1)
    callbacks = [auto_scheduler.RecordToFile(log)]
    scheduler.tune(auto_scheduler.TuningOptions(2, runner=runner, measure_callbacks=callbacks))
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBest(log), armillary.transform.PassContext(opt_level=3, config=config):
        library = relay.build(module, "llvm")
    assert library.get_params() or library.kernels


def test_trials_are_shared_by_size_and_weight() -> None:
    tasks = [auto_scheduler.SearchTask(func="matmul_add", args=(n, n, n, "float32"), target="llvm") for n in (16, 32)]
    small, large = auto_scheduler.TaskScheduler(tasks).shares(96)
    assert small + large == 96 and 16 <= small < large
    assert sum(auto_scheduler.TaskScheduler(tasks, [8, 1]).shares(100)) == 100
    with pytest.raises(TuningError, match="2 tasks and 1 weights"):
        auto_scheduler.TaskScheduler(tasks, [1.0])


def test_misuse_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="there is no workload 'matmul_ad'") as error:
        auto_scheduler.SearchTask(func="matmul_ad", args=(), target="llvm")
    assert "did you mean 'matmul_add'" in str(error.value)
    with pytest.raises(TuningError, match="is registered already"):
        auto_scheduler.register_workload("softmax", softmax)
    log = tmp_path / "empty.json"
    log.write_text("")
    task = auto_scheduler.SearchTask(func=gelu_like, args=(64,), target="llvm")
    with pytest.raises(TuningError, match="no trial of auto_scheduler"):
        task.apply_best(str(log))
    with pytest.raises(TuningError, match="what is to be tuned"):
        auto_scheduler.SearchTask(target="llvm")
