"""Contractions of networks on OpenCL devices: tasks, trials here and behind a tracker, records that a build uses."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import autotvm, relay, rpc
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.tuner.model_tuner import ModelTuner
from armillary.backends.opencl.graph.apply_records import workload_of
from armillary.cli.main import main
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.rpc.launch import Server, Tracker
from armillary.target import Target
from armillary.transform import PassContext

RNG = np.random.default_rng(3)
PARAMS = {
    "w1": RNG.normal(size=(32, 16, 3, 3)).astype("float32") / 12,
    "w2": RNG.normal(size=(32, 1, 3, 3)).astype("float32") / 3,
    "w3": RNG.normal(size=(64, 32, 1, 1)).astype("float32") / 6,
}
ADRENO = "opencl -device=adreno"
DIRECT, DEPTHWISE = "conv2d_nchw.opencl", "depthwise_conv2d_nchw.opencl"


SMALL = {
    "w1": RNG.normal(size=(16, 16, 3, 3)).astype("float32") / 12,
    "w2": RNG.normal(size=(16, 1, 3, 3)).astype("float32") / 3,
}


def small() -> IRModule:
    """Two layers whose kernels the driver compiles in moments."""
    x = relay.var("x", shape=(1, 16, 8, 8))
    w = {name: relay.var(name, shape=a.shape) for name, a in SMALL.items()}
    y = relay.nn.relu(relay.nn.conv2d(x, w["w1"], padding=(1, 1), kernel_size=(3, 3), channels=16))
    y = relay.nn.conv2d(y, w["w2"], padding=(1, 1), groups=16, kernel_size=(3, 3), channels=16)
    return IRModule.from_expr(relay.Function([x, *w.values()], y))


def network() -> IRModule:
    x = relay.var("x", shape=(1, 16, 14, 14))
    w = {name: relay.var(name, shape=a.shape) for name, a in PARAMS.items()}
    y = relay.nn.relu(relay.nn.conv2d(x, w["w1"], padding=(1, 1), kernel_size=(3, 3), channels=32))
    y = relay.nn.relu(relay.nn.conv2d(y, w["w2"], padding=(1, 1), groups=32, kernel_size=(3, 3), channels=32))
    y = relay.nn.relu(relay.nn.conv2d(y, w["w3"], kernel_size=(1, 1), channels=64))
    rows = relay.transpose(relay.reshape(y, (64, 196)), (1, 0))
    y = relay.nn.batch_matmul(relay.reshape(rows, (1, 196, 64)), relay.reshape(rows, (1, 196, 64)))
    return IRModule.from_expr(relay.Function([x, *w.values()], y))


def tasks(*, is_small: bool = False, target: str = "opencl") -> dict[str, autotvm.Task]:
    module, params = (small(), SMALL) if is_small else (network(), PARAMS)
    found = autotvm.task.extract_from_program(module["main"], target=target, params=params)
    return {f"{t.name}{t.args[1][1][2:]}": t for t in found}


def configs(task: autotvm.Task, **knobs: Any) -> list[Any]:
    """All configurations with these values, the ones of least cost first."""
    found = [task.config_space.get(index) for index, _ in task.template.estimates(task)]
    return [c for c in found if all(c[name].to_json() == value for name, value in knobs.items())]


def recorded(task: autotvm.Task, config: Any) -> record.Pair:
    return MeasureInput(task.target, task, config), MeasureResult((1e-3,), 0, 1.0, 2.0)


def run(library: Any, device: Any) -> Any:
    module = graph_executor.GraphModule(library["default"](device))
    module.set_input("x", np.random.default_rng(1).random((1, 16, 8, 8), dtype="float32"))
    module.run()
    return module.get_output(0).numpy()


def test_each_contraction_is_a_task_with_the_knobs_of_the_text() -> None:
    every = tasks()
    assert set(every) == {f"{DIRECT}(3, 3)", f"{DEPTHWISE}(3, 3)", f"{DIRECT}(1, 1)", "batch_matmul.opencl(64,)"}
    three = every[f"{DIRECT}(3, 3)"]
    assert three.flop == 2 * 14 * 14 * 32 * 16 * 9
    assert set(three.config_space) == {"winograd", "tile_fc", "tile_y", "tile_x", "tile_rcc", "unroll_explicit"}
    assert {c.val for c in three.config_space.space_map["winograd"]} == {0, 1, 2, 4}  # 1: by the product kernel
    assert configs(every[f"{DEPTHWISE}(3, 3)"])[0]["tile_fc"].to_json() == [-1, 0, 0], "plain loops are the default"
    for task in every.values():
        ranking = [index for index, _ in task.template.estimates(task)]
        assert sorted(ranking) == list(task.config_space.valid_indices()) and len(ranking) > 20
    with pytest.raises(TuningError, match=r"nn\.relu is not tuned"):
        autotvm.task.extract_from_program(network(), PARAMS, "opencl", ops=(relay.op.get("nn.relu"),))


def test_a_record_of_another_form_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    task = tasks()[f"{DIRECT}(1, 1)"]
    given, result = recorded(task, configs(task)[0])
    del given.config.entity_map["tile_y"]
    with autotvm.ApplyHistoryBest([(given, result)]):
        text = str(optimized(network(), Target("opencl"), PARAMS))
    assert "has other knobs than" in caplog.text and "by record" not in text


def test_a_script_overrules_the_model() -> None:
    choices = {"nn.conv2d(1x16x8x8, 16x16x3x3)": "loops.plain"}
    with PassContext(opt_level=3, config={"schedule.choice": choices}):
        text = str(optimized(small(), Target("opencl"), SMALL))
    assert text.count('choice="loops.plain | by override"') == 1


@needs_opencl
def test_records_overrule_algorithm_and_tile_and_the_answer_stays() -> None:
    every = tasks(is_small=True)
    with PassContext(opt_level=3):
        wanted = run(relay.build(small(), "llvm", params=SMALL), armillary.cpu())
    depthwise, three = every[f"{DEPTHWISE}(3, 3)"], every[f"{DIRECT}(3, 3)"]
    for size, unroll, message in ((0, 1, "conv2d.tiles threads_c"), (2, 0, "conv2d.winograd tile=2 threads_c")):
        chosen = configs(three, winograd=size, unroll_explicit=unroll)[2]
        other = configs(depthwise, unroll_explicit=1 - unroll)[1]
        records = [recorded(three, chosen), recorded(depthwise, other)]
        with autotvm.ApplyHistoryBest(records), PassContext(opt_level=3):
            taken = re.findall(r'choice="([^"]*)"', str(optimized(small(), Target("opencl"), SMALL)))
            library = relay.build(small(), "opencl", params=SMALL)
        assert [t.endswith("by record") for t in taken] == [True] * 2 and taken[0].startswith(message), taken
        assert taken[1].startswith("conv2d.depthwise_tiles")
        np.testing.assert_allclose(run(library, armillary.opencl()), wanted, rtol=1e-3, atol=1e-3)


def test_a_choice_that_does_not_fit_textures_says_why() -> None:
    text = "conv2d.texels threads_c=2 threads_y=2 threads_x=8 own_c=1 own_y=1 own_x=3 step=1"
    config = {"schedule.choice": {"nn.conv2d(1x16x8x8, 16x16x3x3)": text}}
    with PassContext(opt_level=3, config=config):
        with pytest.raises(ConfigError, match=r"does not fit: what a work-item sums, \[1, 1, 3\], does not divide"):
            relay.build(small(), ADRENO, params=SMALL)
        with pytest.raises(ConfigError, match="is for GPUs with textures"):
            optimized(small(), Target("opencl"), SMALL)


@needs_opencl
def test_texture_kernels_have_a_space_and_records_choose_in_it() -> None:
    every = tasks(is_small=True, target=ADRENO)
    assert set(every) == {"conv2d_nchwc.image2d(3, 3)", "depthwise_conv2d_nchwc.image2d(3, 3)"}
    records = []
    for task in every.values():
        ranking = [index for index, _ in task.template.estimates(task)]
        assert sorted(ranking) == list(task.config_space.valid_indices()) and len(ranking) > 100
        own = {"tile_fc": 2 if "depthwise" not in task.name else 1, "tile_y": 2, "tile_x": 4}
        found = [c for c in configs(task, unroll_explicit=1) if all(c[k].size[1] == n for k, n in own.items())]
        records.append(recorded(task, found[0]))
    with PassContext(opt_level=3):
        wanted = run(relay.build(small(), "llvm", params=SMALL), armillary.cpu())
        plain = optimized(small(), Target(ADRENO), SMALL)
        with autotvm.ApplyHistoryBest(records):
            taken = re.findall(r'choice="([^"]*)"', str(optimized(small(), Target(ADRENO), SMALL)))
            library = relay.build(small(), ADRENO, params=SMALL)
    assert "choice=" not in str(plain) and len(taken) == 2
    assert all(text.startswith("conv2d.texels threads_c=") and text.endswith("by record") for text in taken)
    assert library.get_lib().imported_modules[0].get_source().count("image2d_t") >= 4
    np.testing.assert_allclose(run(library, armillary.opencl()), wanted, rtol=1e-4, atol=1e-4)


@needs_opencl
def test_a_tuner_measures_here_and_checks_what_the_device_answers(tmp_path: Path) -> None:
    task, log = tasks(is_small=True)[f"{DEPTHWISE}(3, 3)"], tmp_path / "log"
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0, timeout=60)
    tuner = ModelTuner(task)
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=60, n_parallel=1), runner)
    tuner.tune(2, option, callbacks=[autotvm.callback.log_to_file(str(log))])
    pairs = list(record.load_from_file(log))
    assert [p[1].error for p in pairs] == [""] * 2 and tuner.best_flops > 0
    assert pairs[0][0].config.index == task.template.estimates(task)[0][0]
    assert tuner.best_measure_pair is not None and pairs[0][0].target.kind.name == "opencl"
    batch = create_measure_batch(task, option)
    with np.load(runner._reference) as stored:
        answer = stored[stored.files[0]]
    np.savez(runner._reference, answer + 1)
    (result,) = batch([MeasureInput(task.target, task, configs(task)[0])])
    batch.close()
    assert result.error_no == autotvm.MeasureErrorNo.WRONG_ANSWER and "differs from the reference" in result.error


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a tracker with one device."""
    with contextlib.ExitStack() as stack:
        tracker = Tracker()
        stack.callback(tracker.terminate)
        server = Server(key="android", tracker_addr=("127.0.0.1", tracker.port))
        stack.callback(server.terminate)
        client, until = rpc.connect_tracker("127.0.0.1", tracker.port), time.monotonic() + 30
        while not client.summary()["queue_info"].get("android", {"free": 0})["free"]:
            assert time.monotonic() < until, "the server did not register"
            time.sleep(0.05)
        yield tracker.port


@needs_opencl
def test_the_commands_of_the_text_tune_compile_and_run_through_a_tracker(port: int, tmp_path: Path) -> None:
    model, log, package = tmp_path / "net.relay", tmp_path / "net.log", tmp_path / "net.tar"
    module = small()
    module["main"] = relay.build_module.bind_params_by_name(module["main"], SMALL)
    model.write_text(module.astext(show_meta_data=True))
    rpc_options = ["--rpc-key", "android", "--rpc-tracker", f"127.0.0.1:{port}"]
    budget = ["--early-stopping", "0", "--repeat", "1", "--trials", "1", "--no-end-to-end", "--ops", "nn.conv2d"]
    assert main(["tune", "--target=opencl", str(model), "-o", str(log), *budget, "--tuner", "xgb", *rpc_options]) == 0
    pairs = list(record.load_from_file(log))
    assert len(pairs) >= 2 and not any(result.error for _, result in pairs)
    options = ["--target", "opencl, llvm", "--tuning-records", str(log), "-o", str(package)]
    assert main(["compile", *options, str(model)]) == 0
    assert main(["run", "--device", "cl", str(package), *rpc_options, "--print-time"]) == 0


@pytest.mark.parametrize(("rows", "is_tuned"), [(1, False), (3, False), (4, True)])
def test_dense_layers_without_a_choice_ask_for_no_record(rows: int, is_tuned: bool) -> None:
    x, w = relay.var("x", shape=(rows, 64)), relay.var("w", shape=(16, 64))
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w))))
    assert (workload_of(module["main"].body, images=()) is not None) == is_tuned
