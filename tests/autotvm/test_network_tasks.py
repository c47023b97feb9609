"""Contractions of networks become tasks; records change the algorithm and tile of the kernels that a build makes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, create_measure_batch
from armillary.backends.records import call_key, keyed_values
from armillary.contrib import graph_executor
from armillary.driver import kernels
from armillary.driver.build import optimized
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay import Call, Function
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.target.choice import Choice
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

TARGET = "llvm"
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
RNG = np.random.default_rng(3)
PARAMS = {
    "w1": RNG.normal(size=(32, 16, 3, 3)).astype("float32") / 12,
    "w2": RNG.normal(size=(32, 1, 3, 3)).astype("float32") / 3,
    "w3": RNG.normal(size=(64, 32, 1, 1)).astype("float32") / 6,
    "w4": RNG.normal(size=(10, 64)).astype("float32") / 8,
}


def network() -> IRModule:
    x = relay.var("x", shape=(1, 16, 14, 14))
    w = {name: relay.var(name, shape=a.shape) for name, a in PARAMS.items()}
    y = relay.nn.relu(relay.nn.conv2d(x, w["w1"], padding=(1, 1), kernel_size=(3, 3), channels=32))
    y = relay.nn.conv2d(y, w["w2"], padding=(1, 1), groups=32, kernel_size=(3, 3), channels=32)
    y = relay.nn.max_pool2d(relay.nn.relu(y), pool_size=(2, 2), strides=(2, 2))
    y = relay.nn.relu(relay.nn.conv2d(y, w["w3"], kernel_size=(1, 1), channels=64))
    y = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), w["w4"])
    return IRModule.from_expr(relay.Function([x, *w.values()], y))


def tasks(*ops: str) -> dict[str, autotvm.Task]:
    chosen = tuple(relay.op.get(name) for name in ops) or None
    found = autotvm.task.extract_from_program(network()["main"], target=TARGET, params=PARAMS, ops=chosen)
    assert len({t.workload for t in found}) == len(found)
    return {f"{t.name}{t.args[1][1][2:4]}": t for t in found}


def run(library: Any) -> Any:
    module = graph_executor.GraphModule(library["default"](cpu()))
    module.set_input("x", np.random.default_rng(1).random((1, 16, 14, 14), dtype="float32"))
    module.run()
    return module.get_output(0).numpy()


def chosen(context: Any) -> list[str]:
    with context, PassContext(opt_level=3):
        return re.findall(r'choice="([^"]*)"', str(optimized(network(), Target(TARGET), PARAMS)))


def ranking(task: autotvm.Task) -> list[int]:
    return [index for index, _ in task.template.estimates(task)]


def best(task: autotvm.Task, **knobs: int) -> record.Pair:
    """A record of the first configuration with these values."""
    space = task.config_space
    configs = (space.get(int(i)) for i in space.valid_indices())
    config = next(c for c in configs if all(c[name].val == value for name, value in knobs.items()))
    return MeasureInput(task.target, task, config), MeasureResult((1e-3,), 0, 1.0, 2.0)


def test_each_contraction_is_a_task_and_ops_select() -> None:
    every = tasks()
    assert len([n for n in every if n.startswith("conv2d_NCHWc.cpu")]) == 2
    assert any(n.startswith("depthwise_conv2d_NCHWc.cpu") for n in every)
    assert set(tasks("nn.conv2d")) == {n for n in every if "conv2d" in n}
    three = every["conv2d_NCHWc.cpu(3, 3)"]
    assert three.flop == 2 * 14 * 14 * 32 * 16 * 9 and three.config_space["winograd"] is not None
    assert {c.val for c in three.config_space.space_map["winograd"]} == {0, 2, 4}
    plain = autotvm.task.extract_from_program(
        network()["main"], target=TARGET, params=PARAMS, try_spatial_pack_depthwise=False
    )
    assert {t.name for t in plain} == {t.name for t in every.values()} - {"depthwise_conv2d_NCHWc.cpu"}
    with pytest.raises(TuningError, match=r"nn\.relu is not tuned"):
        tasks("nn.relu")


def test_weights_that_are_not_bound_make_the_same_tasks() -> None:
    bound = autotvm.task.extract_from_program(network(), PARAMS, TARGET)
    open_ = autotvm.task.extract_from_program(network(), None, TARGET)
    assert {task.workload for task in open_} == {task.workload for task in bound}
    x, y = (relay.var(name, shape=(8, 8)) for name in "xy")
    product = IRModule.from_expr(Function([x, y], relay.nn.dense(relay.exp(x), relay.exp(y))))
    (task,) = autotvm.task.extract_from_program(product, {}, TARGET)
    assert task.name == "dense.cpu"  # nothing is packed: both sides are computed


def test_a_record_serves_its_convolution_however_the_padding_is_written() -> None:
    (task,) = (t for name, t in tasks("nn.conv2d").items() if name == "conv2d_NCHWc.cpu(3, 3)")
    pair = best(task, winograd=0)
    message = next(text for text in chosen(autotvm.ApplyHistoryBest([pair])) if text)
    place = task.args.index((1, 1), 3)
    given = autotvm.Task(task.name, (*task.args[:place], (1, 1, 1, 1), *task.args[place + 1 :]))
    assert given.workload != task.workload
    assert message in chosen(autotvm.ApplyHistoryBest([(pair[0]._replace(task=given), pair[1])]))


def test_convolutions_with_channels_last_are_tasks_too() -> None:
    """An extraction outside of a PassContext saw none."""
    found = []
    for data, kernel, image, weight in (
        ("NHWC", "HWIO", (1, 14, 14, 16), (3, 3, 16, 32)),
        ("NCHW", "OIHW", (1, 16, 14, 14), (32, 16, 3, 3)),
    ):
        w = relay.const(np.ones(weight, "float32"))
        sizes = {"padding": (1, 1), "kernel_size": (3, 3), "channels": 32}
        body = relay.nn.conv2d(relay.var("x", shape=image), w, **sizes, data_layout=data, kernel_layout=kernel)
        (task,) = autotvm.task.extract_from_program(relay.Function(relay.analysis.free_vars(body), body), target=TARGET)
        found.append(task.workload)
    assert found[0] == found[1]


def test_the_models_first_choice_is_what_a_build_takes() -> None:
    task = tasks()["conv2d_NCHWc.cpu(1, 1)"]
    first = task.config_space.get(task.template.estimates(task)[0][0])
    pair = (MeasureInput(task.target, task, first), MeasureResult((1.0,), 0, 1.0, 1.0))
    with autotvm.ApplyHistoryBest([pair]), PassContext(opt_level=3):
        with_record = relay.build(network(), target=TARGET, params=PARAMS)
    with PassContext(opt_level=3):
        plain = relay.build(network(), target=TARGET, params=PARAMS)
    text = f"tile {first['rows'].val}x{first['vectors'].val}"
    assert any(text.removeprefix("tile ") in n for n in re.findall(r'\\"tile\\": \\"([^\\]*)', plain.graph_json))
    np.testing.assert_array_equal(run(with_record), run(plain))


def test_records_overrule_algorithm_and_tile_and_the_answer_stays() -> None:
    every = tasks()
    direct = best(every["conv2d_NCHWc.cpu(3, 3)"], winograd=0, rows=3, vectors=1)
    winograd = best(every["conv2d_NCHWc.cpu(3, 3)"], winograd=4, rows=2, vectors=2)
    depthwise = best(every["depthwise_conv2d_NCHWc.cpu(3, 3)"], rows=5)
    taken = chosen(autotvm.ApplyHistoryBest([direct]))
    assert any(t.startswith("conv2d.direct rows=3 vectors=1 lines=1 | ") and " | by record" in t for t in taken)
    taken = chosen(autotvm.ApplyHistoryBest([winograd]))
    assert any(re.match(r"conv2d\.winograd tile=4 strip=\d+ rows=2 vectors=2 lines=1 \|.* by record", t) for t in taken)
    with PassContext(opt_level=3):
        wanted = run(relay.build(network(), target=TARGET, params=PARAMS))
    kernels = []
    for records in ([direct, depthwise], [winograd, depthwise]):
        with autotvm.ApplyHistoryBest(records), PassContext(opt_level=3):
            library = relay.build(network(), target=TARGET, params=PARAMS)
        np.testing.assert_allclose(run(library), wanted, rtol=1e-3, atol=1e-4)
        kernels.append(library.graph_json)
    algorithm = '\\"algorithm\\": \\"Winograd F(4,3)'
    assert algorithm in kernels[1] and algorithm not in kernels[0]
    assert '\\"tile\\": \\"3x1\\"' in kernels[0] and '\\"tile\\": \\"5x' in kernels[0]


def pair_of_layers() -> IRModule:
    """Two convolutions of one workload, with a sum and a relu between."""
    x = relay.var("x", shape=(1, 32, 14, 14))
    y: Any = x  # Any: an expression
    for n in range(2):
        w = relay.const(np.random.default_rng(n).normal(size=(32, 32, 3, 3)).astype("float32") / 17)
        y = relay.nn.conv2d(y, w, padding=(1, 1), kernel_size=(3, 3), channels=32)
        y = relay.nn.relu(relay.add(y, relay.const(np.float32(0.1))))
    return IRModule.from_expr(relay.Function([x], y))


def test_records_overrule_layouts_of_the_graph() -> None:
    (task,) = autotvm.task.extract_from_program(pair_of_layers()["main"], target=X86)
    assert task.workload[1][1] == (1, 2, 14, 14, 16) and task.calls == 2
    blocks = {(c["data_block"].val, c["result_block"].val) for c in map(task.config_space.get, ranking(task))}
    assert blocks == {(16, 16), (8, 8), (32, 32)}
    first = task.config_space.get(ranking(task)[0])
    assert (first["data_block"].val, first["result_block"].val) == (16, 16), "what a build takes is expected first"
    record_ = best(task, winograd=4, data_block=8, result_block=8)
    with PassContext(opt_level=3):
        plain = str(optimized(pair_of_layers(), Target(X86)))
        with autotvm.ApplyHistoryBest([record_]):
            text = str(optimized(pair_of_layers(), Target(X86)))
    assert "NCHW16c" in plain and "NCHW16c" not in text
    taken = [Choice.parse(t) for t in re.findall(r'choice="([^"]*)"', text)]
    assert [(c.algorithm, c.layouts, c.source.value) for c in taken] == [
        ("conv2d.winograd", ("NCHW8c", "OIHW8i8o", "NCHW8c"), "record")
    ] * 2
    moved = re.findall(r"layout_transform\(", text)
    assert len(moved) <= len(re.findall(r"layout_transform\(", plain)), "between the two nothing is moved"


def test_a_trial_of_other_layouts_moves_what_it_reads_and_writes() -> None:
    (task,) = autotvm.task.extract_from_program(pair_of_layers()["main"], target=X86)
    module = task.template.module(task.args, Choice("conv2d.direct", layouts=("NCHW8c", "OIHW8i8o", "NCHW8c")))  # type: ignore[attr-defined]
    with PassContext(opt_level=3):
        text = str(optimized(module, Target(X86)))
    assert 'src_layout="NCHW16c", dst_layout="NCHW8c"' in text and 'src_layout="NCHW8c", dst_layout="NCHW16c"' in text


def product(units: int) -> IRModule:
    x = relay.var("x", shape=(64, 48))
    weight = relay.const(RNG.normal(size=(units, 48)).astype("float32") / 7)
    return IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight))))


@pytest.mark.parametrize("units", [96, 1000])
def test_weights_of_products_are_packed_in_the_blocks_of_a_record(units: int) -> None:
    module = product(units)
    (task,) = autotvm.task.extract_from_program(module["main"], target=X86)
    assert task.workload[2][1] == (units // 8, 48, 8), "half a vector where that takes half the time"
    chosen_blocks = {task.config_space.get(i)["result_block"].val for i in ranking(task)}
    assert chosen_blocks == {8, 16, 32}
    (host,) = autotvm.task.extract_from_program(module["main"], target=TARGET)
    wide = max(host.config_space.get(i)["result_block"].val for i in ranking(host))
    with PassContext(opt_level=3):
        text = str(optimized(module, Target(X86)))
        with autotvm.ApplyHistoryBest([best(task, result_block=32)]):
            other = str(optimized(module, Target(X86)))
        with autotvm.ApplyHistoryBest([best(host, result_block=wide)]):
            library = relay.build(module, target=TARGET)
        wanted = graph_executor.GraphModule(relay.build(module, target=TARGET)["default"](cpu()))
    assert "NC32n" not in text and 'weight_layout="NC32n"' in other and "| layouts NC NC32n NC |" in other
    found = graph_executor.GraphModule(library["default"](cpu()))
    x = np.random.default_rng(1).random((64, 48), dtype="float32")
    for graph in (found, wanted):
        graph.set_input("x", x)
        graph.run()
    np.testing.assert_allclose(found.get_output(0).numpy(), wanted.get_output(0).numpy(), rtol=1e-5, atol=1e-5)
    assert found.get_output(0).shape == (64, units)


def test_a_script_chooses_the_blocks_of_a_product() -> None:
    choice = "gemm.register_tiles rows=5 vectors=2 | layouts NC NC16n NC"
    with PassContext(opt_level=3, config={"schedule.choice": {"nn.dense": choice}}):
        assert 'weight_layout="NC16n"' in str(optimized(product(96), Target(X86)))
    wrong = "gemm.register_tiles | layouts NC NC16c NC"
    context = PassContext(opt_level=3, config={"schedule.choice": {"nn.dense": wrong}})
    with context, pytest.raises(ConfigError, match="its layouts are such as NC NC16n NC"):
        optimized(product(96), Target(X86))


def test_records_from_before_layouts_were_chosen_still_apply_and_go_on() -> None:
    (task,) = autotvm.task.extract_from_program(pair_of_layers()["main"], target=X86)
    given, result = best(task, winograd=0, rows=7, data_block=16, result_block=16)
    index = given.config.index
    for name in ("data_block", "result_block"):
        del given.config.entity_map[name]
    with autotvm.ApplyHistoryBest([(given, result)]), PassContext(opt_level=3):
        text = str(optimized(pair_of_layers(), Target(X86)))
    assert text.count("by record") == 2 and "NCHW16c" in text
    tuner = autotvm.tuner.RandomTuner(task)
    assert tuner.resume([(given, result)]) == 1 and tuner.visited == {index}


def test_without_records_nothing_changes() -> None:
    taken = chosen(autotvm.ApplyHistoryBest([]))
    assert taken and not any("by record" in t for t in taken)


def test_a_choice_that_does_not_fit_is_an_error_that_says_why() -> None:
    task = tasks()["conv2d_NCHWc.cpu(3, 3)"]
    for choice, message in (
        ("conv2d.direct rows=29 vectors=8", r"rows=29 vectors=8 does not fit \(here width 14\)(.|\n)*these do: rows="),
        ("conv2d.winograd tile=4 strip=5 rows=2 vectors=2", r"strip=5 rows=2 vectors=2 does not fit(.|\n)*strip=4"),
        ("conv2d.winograd tile=6 strip=0", r"relay\.WinogradConv2D\.max_tile is 4"),
        ("conv2d.direct colums=3", r"no knob 'colums'(.|\n)*its knobs are rows, vectors, lines"),
        ("conv2d.depthwise rows=3", r"conv2d\.depthwise does not fit nn\.contrib_conv2d_NCHWc"),
    ):
        module = task.template.module(task.args, Choice.parse(choice))  # type: ignore[attr-defined]
        with PassContext(opt_level=3), pytest.raises(ConfigError, match=message):
            relay.build(module, target=TARGET)


def test_a_record_with_other_knobs_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    given, result = best(tasks()["conv2d_NCHWc.cpu(1, 1)"])
    del given.config.entity_map["rows"]
    assert chosen(autotvm.ApplyHistoryBest([(given, result)])) == chosen(autotvm.ApplyHistoryBest([]))
    assert "has other knobs than" in caplog.text


@pytest.mark.parametrize("name", ["conv2d_NCHWc.cpu(3, 3)", "depthwise_conv2d_NCHWc.cpu(3, 3)"])
def test_trials_of_networks_are_checked_and_timed(name: str, tmp_path: Path) -> None:
    task = tasks("nn.conv2d")[name]
    ranking = [index for index, _ in task.template.estimates(task)]
    assert sorted(ranking) == list(task.config_space.valid_indices())
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    batch = create_measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(timeout=60), runner))
    picked = [ranking[0], ranking[-1]]
    results = batch([MeasureInput(task.target, task, task.config_space.get(i)) for i in picked])
    assert runner._reference, "the answers are checked"
    batch.close()
    assert [r.error for r in results] == ["", ""]
    assert all(0 < r.mean < 1 for r in results)


def test_a_configuration_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    task = tasks("nn.conv2d")["conv2d_NCHWc.cpu(1, 1)"]
    first, other = (index for index, _ in task.template.estimates(task)[:2])

    def built(index: int) -> str:
        builder = autotvm.LocalBuilder(timeout=60)  # a fresh one, whose builds are processes
        builder.set_task(task)
        (result,) = builder.build([MeasureInput(task.target, task, task.config_space.get(index))])
        builder.close()
        return result.error

    def refused(*_: object, **__: object) -> None:
        raise TuningError("nothing is compiled")

    assert built(first) == ""
    monkeypatch.setattr(kernels, "kernel_code", SimpleNamespace(compile_kernel=refused))  # it keeps what was asked
    assert built(first) == "" and "nothing is compiled" in built(other)


def test_products_of_matrices_are_tasks() -> None:
    a, b = relay.var("a", shape=(4, 48, 64)), relay.var("b", shape=(4, 64, 64))
    module = IRModule.from_expr(relay.Function([a, b], relay.nn.batch_matmul(a, b)))
    (task,) = autotvm.task.extract_from_program(module["main"], target=TARGET, ops=(relay.op.get("nn.batch_matmul"),))
    assert task.name == "batch_matmul.cpu" and task.flop == 2 * 4 * 48 * 64 * 64 and len(task.config_space) > 10
    x, w = relay.var("x", shape=(48, 64)), relay.const(RNG.random((96, 64), dtype="float32"))
    dense = IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w)))
    (task,) = autotvm.task.extract_from_program(dense["main"], target=TARGET)
    assert task.name == "dense_pack.cpu" and task.flop == 2 * 48 * 64 * 96


def bytes_() -> IRModule:
    """Two convolutions and a product of bytes, as quantised models have them."""
    x, c = relay.var("x", shape=(1, 32, 14, 14), dtype="uint8"), relay.const
    numbers = (c(np.int32(3)), c(np.int32(0)), c(np.float32(0.05)), c(np.float32(0.02)))
    y: Any = x  # Any: an expression
    for channels, kernel in ((32, 3), (64, 1)):
        weight = c(RNG.integers(-40, 40, (channels, 32, kernel, kernel)).astype("int8"))
        pads = (kernel // 2,) * 4
        size = {"kernel_size": (kernel, kernel), "channels": channels}
        y = relay.qnn.conv2d(y, weight, *numbers, padding=pads, out_dtype="int32", **size)
        y = relay.nn.bias_add(y, c(RNG.integers(-500, 500, channels).astype("int32")), axis=1)
        y = relay.qnn.requantize(y, numbers[2], numbers[1], c(np.float32(2.0)), numbers[0], out_dtype="uint8")
    weight = c(RNG.integers(-40, 40, (48, 64)).astype("int8"))
    y = relay.qnn.dense(relay.reshape(y, (196, 64)), weight, *numbers, units=48, out_dtype="int32")
    return IRModule.from_expr(relay.Function([x], y))


def test_convolutions_and_products_of_bytes_are_tasks_and_records_choose_their_tiles() -> None:
    found = autotvm.task.extract_from_program(bytes_()["main"], target=X86)
    names = [t.name for t in found]
    assert names == ["conv2d_NCHWc_int8.cpu"] * 2 + ["dense_pack.cpu"]
    assert [t.args[0][2] for t in found] == ["uint8"] * 3 and [t.args[1][2] for t in found] == ["int8"] * 3
    only = autotvm.task.extract_from_program(bytes_()["main"], target=X86, ops=[relay.op.get("qnn.conv2d")])
    assert [t.name for t in only] == names[:2]
    records = []
    for task in found:
        last = task.config_space.get(ranking(task)[-1])
        records.append((MeasureInput(task.target, task, last), MeasureResult((1e-3,), 0, 1.0, 2.0)))
    with PassContext(opt_level=3), autotvm.ApplyHistoryBest(records):
        taken = re.findall(r'choice="([^"]*)"', str(optimized(bytes_(), Target(X86))))
    for (given, _), text in zip(records, taken, strict=True):
        knobs = [f"{n}={given.config[n].val}" for n in ("rows", "vectors", "lines")]
        assert " ".join(knobs) in text and "by record" in text


def test_a_trial_of_bytes_is_checked_to_the_bit() -> None:
    found = autotvm.task.extract_from_program(bytes_()["main"], target=TARGET)
    if not found:
        assert cpu_model(Target(TARGET)).has_tiles, "matrix tiles compute all of them, in one way"
        return
    task = found[0]
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    batch = create_measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(timeout=60), runner))
    picked = [ranking(task)[0], ranking(task)[-1]]
    results = batch([MeasureInput(task.target, task, task.config_space.get(i)) for i in picked])
    assert runner._reference and [r.error for r in results] == ["", ""]
    batch.close()


def large_kernels() -> tuple[IRModule, Any]:
    """A convolution that a build computes by Fourier transforms, on a small image."""
    weight = np.random.default_rng(8).normal(size=(16, 16, 7, 7)).astype("float32") / 28
    x = relay.var("x", shape=(1, 16, 40, 40))
    body = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), padding=(3, 3), kernel_size=(7, 7), channels=16))
    return IRModule.from_expr(relay.Function([x], body)), weight


def test_records_say_whether_fourier_transforms_compute_a_convolution() -> None:
    module, weight = large_kernels()
    (task,) = autotvm.task.extract_from_program(module["main"], target=TARGET)
    first = task.config_space.get(ranking(task)[0])
    with PassContext(opt_level=3):
        text = str(optimized(module, Target(TARGET)))
    assert bool(first["fourier"].val) == ("cpu.conv2d_fourier_NCHWc(" in text), "what a build takes is expected first"
    assert task.flop >= 2 * 16 * 40 * 40 * 16 * 49, "operations are those of the definition"
    own = {name: first[name].val for name in ("data_block", "result_block")}
    by_transforms, direct = best(task, fourier=1, rows=2, vectors=1, **own), best(task, fourier=0, **own)
    given = np.random.default_rng(9).random((1, 16, 40, 40), dtype="float32")
    for pair, operator in ((by_transforms, "cpu.conv2d_fourier_NCHWc("), (direct, "nn.contrib_conv2d_NCHWc(")):
        with autotvm.apply_history_best([pair]), PassContext(opt_level=3):
            text = str(optimized(module, Target(TARGET)))
            library = relay.build(module, TARGET)
        assert operator in text and (operator[:11] == "cpu.conv2d_") == (
            'choice="conv2d.fourier rows=2 vectors=1' in text
        )
        run_ = graph_executor.GraphModule(library["default"](cpu()))
        run_.set_input("x", given)
        run_.run()
        np.testing.assert_allclose(run_.get_output(0).numpy(), _seven(given, weight), rtol=1e-3, atol=1e-4)


def _seven(x: Any, weight: Any) -> Any:
    """A 7x7 convolution of one image and relu, as sums over places of the kernel."""
    padded = np.pad(x[0], ((0, 0), (3, 3), (3, 3)))
    rows = [
        np.einsum("oi,ihw->ohw", weight[:, :, r, c], padded[:, r : r + 40, c : c + 40])
        for r in range(7)
        for c in range(7)
    ]
    return np.maximum(sum(rows), 0)[None]


def test_a_record_of_a_space_without_transforms_leaves_them_to_the_model() -> None:
    module, _ = large_kernels()
    (task,) = autotvm.task.extract_from_program(module["main"], target=TARGET)
    given, result = best(task, fourier=0)
    row = json.loads(record.encode(given, result))
    row["config"]["entity"] = [e for e in row["config"]["entity"] if e[0] != "fourier"]
    pair = record.decode(json.dumps(row))
    assert pair is not None
    with autotvm.apply_history_best([pair]), PassContext(opt_level=3, config={"relay.FourierConv2D.use": 1}):
        assert "cpu.conv2d_fourier_NCHWc(" in str(optimized(module, Target(TARGET)))
    assert task.config_space.index_of(pair[0].config.entity_map) == given.config.index


def test_workloads_of_logs_that_were_kept_are_found() -> None:
    """An attribute that came later stands at the end of a workload, and only where it is set."""
    packed = get_op("nn.contrib_dense_pack")
    data, weight = relay.var("data", shape=(48, 64), dtype="float32"), relay.var("w", shape=(6, 64, 16))
    operands = (("TENSOR", (48, 64), "float32"), ("TENSOR", (6, 64, 16), "float32"))
    for is_symmetric, more in ((False, ()), (True, (True,))):
        attrs = packed.make_attrs(named={"weight_layout": "NC16n", "is_symmetric": is_symmetric})
        call = Call(packed, (data, weight), attrs)
        infer_type(Function((data, weight), call))
        workload = call_key(call, packed)
        assert workload == (*operands, "NC16n", "", *more)
        assert keyed_values(packed, workload[2:]).get("is_symmetric", False) is is_symmetric


@pytest.mark.parametrize("target", [TARGET, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -device=arm_cpu"])
def test_the_loops_over_taps_are_a_knob_of_direct_convolutions(target: str) -> None:
    found = autotvm.task.extract_from_program(network()["main"], target=target, params=PARAMS)
    (task,) = (t for t in found if t.name == "conv2d_NCHWc.cpu" and t.args[1][1][2:4] == (3, 3))
    space = task.config_space
    configs = [space.get(int(i)) for i in space.valid_indices()]
    plain = [c for c in configs if c["ann_reduce"].anns == ("none", "unroll")]
    assert {c["ann_reduce"].anns for c in configs} == {("none", "unroll"), ("none", "none"), ("unroll", "unroll")}
    layouts = {(c["data_block"].val, c["result_block"].val) for c in configs}
    assert len(configs) - len(plain) <= 2 * len(layouts) < len(plain)
    assert ranking(task)[0] in [c.index for c in plain]
    (pointwise,) = (t for t in found if t.name == "conv2d_NCHWc.cpu" and t.args[1][1][2:4] == (1, 1))
    assert "ann_reduce" not in pointwise.config_space

    other = next(c for c in configs if c["ann_reduce"].anns == ("none", "none"))
    tile = {name: other[name].val for name in other if name != "ann_reduce"}
    alike = [c for c in configs if all(c[name].val == value for name, value in tile.items())]
    with task.target:
        loops = {c["ann_reduce"].anns: str(task.template.loops(task, c)) for c in alike}
    assert len(alike) >= 2 and len({*loops.values()}) == len(alike)
    lengths = {anns: len(text) for anns, text in loops.items()}
    assert lengths["none", "none"] < lengths["none", "unroll"] < lengths.get(("unroll", "unroll"), 1 << 60)

    text = record.encode(MeasureInput(task.target, task, other), MeasureResult((1.0,), 0, 1.0, 1.0))
    assert record.decode(text)[0].config == other
    row = json.loads(text)
    row["config"]["entity"] = [e for e in row["config"]["entity"] if e[0] != "ann_reduce"]
    old = record.decode(json.dumps(row))[0].config
    assert space.get(space.index_of(old.entity_map))["ann_reduce"].anns == ("none", "unroll")
    assert "ann_reduce" not in str(task.template.choice_of(old, task.workload))
    assert "ann_reduce=0" in str(task.template.choice_of(other, task.workload))


def test_records_of_taps_compute_what_others_do() -> None:
    (task,) = (t for name, t in tasks("nn.conv2d").items() if name == "conv2d_NCHWc.cpu(3, 3)")
    with PassContext(opt_level=3):
        wanted = run(relay.build(network(), TARGET, params=PARAMS))
    space = task.config_space
    others = [space.get(int(i)) for i in space.valid_indices()]
    others = [c for c in others if c["ann_reduce"].anns != ("none", "unroll")]
    for config in (others[0], others[-1]):
        pair = (MeasureInput(task.target, task, config), MeasureResult((1e-3,), 0, 1.0, 2.0))
        with autotvm.ApplyHistoryBest([pair]), PassContext(opt_level=3):
            library = relay.build(network(), TARGET, params=PARAMS)
        assert "ann_reduce=" in library.get_source("relay")
        np.testing.assert_allclose(run(library), wanted, rtol=1e-4, atol=1e-5)
