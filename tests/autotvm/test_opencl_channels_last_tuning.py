"""Convolutions with channels last on GPUs with textures: tasks, trials on NHWC4c, records that a build uses."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import autotvm, relay
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.tuner.model_tuner import ModelTuner
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.ir import IRModule
from armillary.target import Target
from armillary.transform import PassContext

ADRENO = "opencl -device=adreno"
DENSE, DEPTHWISE = "conv2d_nhwc.image2d", "depthwise_conv2d_nhwc.image2d"
RNG = np.random.default_rng(31)
SHAPE = (1, 8, 8, 16)
VALUE = RNG.standard_normal(SHAPE).astype("float32")


def conv(data: Any, shape: tuple[int, ...], kernel_layout: str, groups: int = 1) -> Any:
    weight = relay.const((RNG.standard_normal(shape) / 8).astype("float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": kernel_layout}
    return relay.nn.conv2d(data, weight, padding=(1, 1), channels=16, kernel_size=(3, 3), groups=groups, **layouts)


def network() -> IRModule:
    x = relay.var("x", shape=SHAPE)
    y = relay.nn.relu(relay.add(conv(x, (3, 3, 16, 16), "HWIO"), relay.tanh(x)))
    y = relay.nn.relu(conv(y, (3, 3, 16, 1), "HWOI", groups=16))
    return IRModule.from_expr(relay.Function([x], y))


NETWORK = network()


def tasks(module: IRModule = NETWORK) -> dict[str, autotvm.Task]:
    return {t.name: t for t in autotvm.task.extract_from_program(module["main"], target=ADRENO, params={})}


def tiled(task: autotvm.Task, **own: int) -> Any:
    """The first configuration whose work-items sum these."""
    found = (task.config_space.get(index) for index, _ in task.template.estimates(task))
    return next(c for c in found if all(c[name].size[1] == n for name, n in own.items()))


def kernels(library: Any) -> str:
    found = library.imported_modules if hasattr(library, "imported_modules") else library.get_lib().imported_modules
    return str(next(m for m in found if m.type_key == "opencl").get_source())


def output(library: Any, device: Any) -> Any:
    graph = graph_executor.GraphModule(library["default"](device))
    graph.run(x=VALUE)
    return graph.get_output(0).numpy()


def test_convolutions_are_tasks_of_their_own_layout() -> None:
    found = tasks()
    assert set(found) == {DENSE, DEPTHWISE}
    assert found[DENSE].flop == 2 * 8 * 8 * 16 * 16 * 9 and found[DEPTHWISE].flop == 2 * 8 * 8 * 16 * 9
    for task in found.values():
        ranking = [index for index, _ in task.template.estimates(task)]
        assert sorted(ranking) == list(task.config_space.valid_indices()) and len(ranking) > 50


def test_a_trial_has_channels_last_and_what_stands_behind_the_call() -> None:
    task = tasks()[DENSE]
    config = tiled(task, tile_fc=2, tile_y=1, tile_x=4)
    library = task.template.library(task, config)
    ((name, operands),) = re.findall(r"void (\w*conv2d\w*)\(([^)]*)", kernels(library))
    assert "add" in name and "relu" in name, "the residual sum is part of the trial"
    assert operands.count("__read_only image2d_t") == 3, "it reads textures, as in a network"
    assert '"global.texture-nhwc"' in library.get_graph_json() and "[1,8,8,4,4]" in library.get_graph_json()
    module = task.template.module(task.args, around=task.around)
    assert [tuple(p.checked_type.shape) for p in module["main"].params] == [SHAPE, SHAPE]


@needs_opencl
def test_records_choose_and_the_answer_stays() -> None:
    found = tasks()
    sums = ({"tile_fc": 2, "tile_y": 2, "tile_x": 2}, {"tile_fc": 1, "tile_y": 2, "tile_x": 4})
    chosen = [tiled(found[name], **own) for name, own in zip((DENSE, DEPTHWISE), sums, strict=True)]
    records = [
        (MeasureInput(task.target, task, config), MeasureResult((1e-3,), 0, 1.0, 2.0))
        for task, config in zip((found[DENSE], found[DEPTHWISE]), chosen, strict=True)
    ]
    with PassContext(opt_level=3):
        wanted = output(relay.build(NETWORK, "llvm"), armillary.cpu())
        assert "choice=" not in str(optimized(NETWORK, Target(ADRENO)))
        with autotvm.ApplyHistoryBest(records):
            text = str(optimized(NETWORK, Target(ADRENO)))
            library = relay.build(NETWORK, ADRENO)
    taken = re.findall(r'choice="([^"]*)"', text)
    assert [re.findall(r"own_\w=\d", t) for t in taken] == [
        ["own_c=2", "own_y=2", "own_x=2"],
        ["own_c=1", "own_y=2", "own_x=4"],
    ]
    assert all(t.startswith("conv2d.texels") and t.endswith("by record") for t in taken)
    assert text.count('data_layout="NHWC4c"') == 2
    np.testing.assert_allclose(output(library, armillary.opencl()), wanted, rtol=1e-4, atol=1e-4)


@needs_opencl
def test_a_tuner_measures_channels_last(tmp_path: Path) -> None:
    task, log = tasks()[DEPTHWISE], tmp_path / "log"
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0, timeout=60)
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=60, n_parallel=1), runner)
    ModelTuner(task).tune(2, option, callbacks=[autotvm.callback.log_to_file(str(log))])
    pairs = list(record.load_from_file(log))
    assert [result.error for _, result in pairs] == [""] * 2
    assert {given.task.name for given, _ in pairs} == {DEPTHWISE}


def test_records_of_the_other_layout_are_not_taken() -> None:
    x = relay.var("x", shape=(1, 16, 8, 8))
    weight = relay.const((RNG.standard_normal((16, 16, 3, 3)) / 8).astype("float32"))
    body = relay.nn.conv2d(x, weight, padding=(1, 1), channels=16, kernel_size=(3, 3))
    second = IRModule.from_expr(relay.Function([x], body))
    (name,) = tasks(second)
    assert name == "conv2d_nchwc.image2d" and tasks(second)[name].args == tasks()[DENSE].args
    task = tasks()[DENSE]
    given = MeasureInput(task.target, task, tiled(task, tile_fc=2)), MeasureResult((1e-3,), 0, 1.0, 2.0)
    with PassContext(opt_level=3), autotvm.ApplyHistoryBest([given]):
        assert "by record" not in str(optimized(second, Target(ADRENO)))
        assert "by record" in str(optimized(NETWORK, Target(ADRENO)))


def test_a_fresh_process_knows_the_tasks_of_textures() -> None:
    """Templates of networks are registered when their names are asked for, whatever these end with."""
    task = pickle.dumps(tasks()[DENSE])
    code = f"import pickle; print(pickle.loads({task!r}).name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == DENSE, done.stderr[-500:]


@pytest.mark.parametrize("args", [(), (("TENSOR", SHAPE, "float32"),), (("TENSOR", SHAPE, "float32"), "NHWC")])
@pytest.mark.parametrize("name", [DENSE, "conv2d_nchw.opencl", "conv2d_NCHWc.cpu"])
def test_arguments_that_are_no_convolution_are_refused(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(TuningError, match=rf"{re.escape(name)} takes 2 tensors and \d+ attributes"):
        autotvm.task.create(name, args, ADRENO if name.endswith("image2d") else "llvm")
