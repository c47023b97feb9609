"""Contractions over open sizes become tasks: trials run at stated sizes, and a record serves a build at every size."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from armillary import autotvm, relay, te
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.record import Pair, load_from_file
from armillary.base.extent import size
from armillary.cli.main import main
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.transform import PassContext

TARGET = "llvm"
SIZES = ({"rows": 3, "side": 9}, {"rows": 1, "side": 14})


def network(rows: str = "rows", side: str = "side") -> IRModule:
    """A 3x3 and a depthwise convolution and a product, with what is fused to them, a sum of two results among it."""
    n, s = size(rows, hint=2), size(side, hint=12)
    rng = np.random.default_rng(3)
    three, one, last = (
        relay.const(rng.normal(size=shape).astype("float32") / 8) for shape in ((16, 16, 3, 3), (16, 1, 3, 3), (32, 16))
    )
    x = relay.var("x", shape=(n, 16, s, s))
    y = relay.nn.relu(relay.nn.conv2d(x, three, padding=(1, 1), strides=(2, 2), kernel_size=(3, 3), channels=16))
    z = relay.nn.conv2d(y, one, padding=(1, 1), groups=16, kernel_size=(3, 3), channels=16)
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.add(z, y)))
    return IRModule.from_expr(relay.Function([x], relay.nn.dense(pooled, last)))


def tasks(sizes: Any = SIZES) -> dict[str, autotvm.Task]:
    found = autotvm.task.extract_from_program(network(), target=TARGET, sizes=sizes)
    return {task.name: task for task in found}


def last_choice(task: autotvm.Task) -> Pair:
    """A record of what the model of costs thinks least of."""
    index = task.template.estimates(task)[-1][0]
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((1e-3,), 0, 1.0, 2.0)


def ran(library: Any, rows: int, side: int) -> Any:
    module = graph_executor.GraphModule(library["default"](cpu()))
    module.set_input("x", np.random.default_rng(1).random((rows, 16, side, side), dtype="float32"))
    module.run()
    return module.get_output(0).numpy()


def built() -> Any:
    with PassContext(opt_level=3):
        return relay.build(network(), target=TARGET)


def choices(module: IRModule) -> list[str]:
    with PassContext(opt_level=3):
        return re.findall(r'choice="([^"]*by record[^"]*)"', str(optimized(module, Target(TARGET), {})))


def test_open_axes_are_numbered_and_have_typical_values() -> None:
    every = tasks()
    assert set(every) == {"conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu", "dense_pack.cpu"}
    (_, shape, _) = every["conv2d_NCHWc.cpu"].args[0]
    assert (shape[0], shape[2], shape[3]) == ("n0=2", "n1=12", "n1=12")
    assert every["depthwise_conv2d_NCHWc.cpu"].args[0][1][2] == "n1=6", "what half the side typically is"
    assert every["depthwise_conv2d_NCHWc.cpu"].sizes == ({"n0": 3, "n1": 5}, {"n0": 1, "n1": 7})


def test_operations_are_those_of_all_sizes() -> None:
    assert tasks()["dense_pack.cpu"].flop == 2 * (3 + 1) * 16 * 32
    assert tasks(())["dense_pack.cpu"].flop == 2 * 2 * 16 * 32, "the typical size"


def test_a_task_that_travels_keeps_its_sizes() -> None:
    task = tasks()["depthwise_conv2d_NCHWc.cpu"]
    there = pickle.loads(pickle.dumps(task))
    assert (there.sizes, there.flop, there.workload) == (task.sizes, task.flop, task.workload)
    assert there.template.shapes(there) == task.template.shapes(task)


def test_a_trial_runs_and_is_checked_at_each_size() -> None:
    for task in tasks().values():
        runner = autotvm.LocalRunner(number=1, repeat=1)
        batch = create_measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(timeout=60), runner))
        first, *_, last = (index for index, _ in task.template.estimates(task))
        results = batch([MeasureInput(task.target, task, task.config_space.get(i)) for i in (first, last)])
        with np.load(runner._reference) as answers:
            assert [answers[name].shape[0] for name in answers.files] == [3, 1]
        batch.close()
        assert [r.error for r in results] == ["", ""] and all(r.mean > 0 for r in results)


def test_records_are_applied_and_the_answer_stays_at_other_sizes() -> None:
    plain, pairs = built(), [last_choice(task) for task in tasks().values()]
    with autotvm.ApplyHistoryBest(pairs):
        assert len(choices(network())) == 3
        with_records = built()
    kernels = [library.get_source("ll") for library in (plain, with_records)]
    assert kernels[0] != kernels[1]
    for rows, side in ((1, 3), (2, 12), (5, 31), (3, 9)):
        np.testing.assert_allclose(ran(with_records, rows, side), ran(plain, rows, side), rtol=1e-4, atol=1e-5)


def test_a_record_serves_a_network_with_other_names() -> None:
    with autotvm.ApplyHistoryBest([last_choice(task) for task in tasks().values()]):
        assert choices(network("batch", "height")) == choices(network())


def test_a_size_that_the_network_has_not_is_named() -> None:
    with pytest.raises(ConfigError, match="the network has no size 'height'"):
        tasks(({"height": 3},))


def test_the_command_tunes_at_stated_sizes_and_compile_takes_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 48)).astype("float32")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, ["rows", 64])],
        [value("y", 1, ["rows", 48])],
        [numpy_helper.from_array(weight, "w")],
    )
    model, log, package = tmp_path / "m.onnx", tmp_path / "m.log", tmp_path / "m.tar"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(model))
    command = ["tune", str(model), "-o", str(log), "--sizes", "rows=5,32", "--trials", "3", "--repeat", "3"]
    assert main([*command, "--check-seconds", "0.2"]) == 0
    assert "dense_pack.cpu(n0=" in capsys.readouterr().err
    pairs = list(load_from_file(log))
    assert len(pairs) >= 3 and not any(result.error for _, result in pairs[:3])
    assert main(["compile", str(model), "-o", str(package), "--tuning-records", str(log)]) == 0
    assert package.stat().st_size > 0


def test_sizes_of_which_nothing_is_stated_are_the_same_in_tasks_and_builds() -> None:
    weight = np.random.default_rng(3).normal(size=(32, 16)).astype("float32")
    x = relay.var("x", shape=(te.var("rows"), 16))
    module = IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(weight))))
    (task,) = autotvm.task.extract_from_program(module, target=TARGET, sizes=[{"rows": 3}])
    with autotvm.apply_history_best([last_choice(task)]), PassContext(opt_level=3):
        text = str(relay.build(module, target=TARGET).get_source("relay"))
    assert "by record" in text
