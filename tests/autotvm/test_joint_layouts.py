"""Blocks of channels of neighbouring convolutions are chosen together, and used only where the network is faster."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import Pair, best_of, decode
from armillary.autotvm.task.network import links_of_program
from armillary.autotvm.task.network_cpu import tasks_in_blocks
from armillary.autotvm.tuner.joint_check import OTHERS, lines_of
from armillary.autotvm.tuner.joint_layouts import (
    Options,
    Timed,
    choose,
    measured_in_blocks,
    records_of,
    seconds_of,
)
from armillary.autotvm.tuner.network_check import Network, together
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.runtime.device import cpu
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

TARGET = Target("llvm")
RNG = np.random.default_rng(7)
WIDTHS = (32, 64, 96, 64)
PARAMS = {
    f"w{i}": RNG.normal(size=(outer, inner, 1, 1)).astype("float32") / inner
    for i, (inner, outer) in enumerate(pairwise(WIDTHS))
}


def chain() -> IRModule:
    """Three convolutions, one behind the other; what the first gives is added to what the last gives."""
    x = relay.var("x", shape=(1, WIDTHS[0], 14, 14))
    first = y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w0", shape=PARAMS["w0"].shape), kernel_size=(1, 1)))
    for name in ("w1", "w2"):
        y = relay.nn.relu(relay.nn.conv2d(y, relay.var(name, shape=PARAMS[name].shape), kernel_size=(1, 1)))
    y = relay.add(y, first)
    return IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))


@pytest.fixture(scope="module")
def tasks() -> list[autotvm.Task]:
    found = autotvm.task.extract_from_program(chain(), PARAMS, TARGET)
    assert len(found) == 3
    return found


@pytest.fixture(scope="module")
def measured(tasks: list[autotvm.Task]) -> Options:
    return measured_in_blocks(tasks, autotvm.measure_option(), math.inf, tries=1)


def said(options: Options, tasks: list[autotvm.Task], seconds: dict[bool, float]) -> Options:
    """Those options, with other times: of a task's own blocks, and of all others."""
    rows = {t.workload: options[t.workload] for t in tasks}
    return {
        w: {b: Timed(seconds[place == 0], timed.pair) for place, (b, timed) in enumerate(found.items())}
        for w, found in rows.items()
    }


def test_links_are_what_convolutions_read_of_each_other(tasks: list[autotvm.Task]) -> None:
    first, second, third = (task.workload for task in tasks)
    found = {(link.first, link.second): link.bytes for link in links_of_program(chain(), PARAMS, TARGET)}
    assert found == {(first, second): 4 * 64 * 14 * 14, (second, third): 4 * 96 * 14 * 14}


def test_each_task_is_measured_in_all_its_blocks(tasks: list[autotvm.Task], measured: Options) -> None:
    for task in tasks:
        rows = measured[task.workload]
        assert list(rows) == list(tasks_in_blocks(task)) and len(rows) >= 2, "its own first"
        for blocks, timed in rows.items():
            config = timed.pair[0].config
            assert (config["data_block"].val, config["result_block"].val) == blocks
            assert timed.seconds == timed.pair[1].mean > 0
            task.template.choice_of(config, task.workload)  # type: ignore[attr-defined]  # a NetworkTemplate
    assert measured_in_blocks(tasks, autotvm.measure_option(), 0.0) == {}, "there is no time"


def test_all_change_where_one_alone_would_lose(tasks: list[autotvm.Task], measured: Options) -> None:
    links = links_of_program(chain(), PARAMS, TARGET)
    move = min(link.bytes for link in links) / 8 / cpu_model(TARGET).memory.ghz * 1e-9
    options = said(measured, tasks, {True: 10 * move, False: 9.5 * move})
    own = {workload: next(iter(rows)) for workload, rows in options.items()}
    for workload, rows in options.items():  # a change of layout costs more than any one kernel gains
        for blocks in list(rows)[1:]:
            alone = seconds_of(own | {workload: blocks}, options, links, TARGET)
            assert alone > seconds_of(own, options, links, TARGET)
    chosen = choose(options, links, TARGET)
    assert all(chosen[workload] != own[workload] for workload in own)
    assert seconds_of(chosen, options, links, TARGET) == pytest.approx(28.5 * move)
    assert [pair[0].task.workload for pair in records_of(chosen, options)] == [t.workload for t in tasks]
    slower = said(measured, tasks, {True: 10 * move, False: 10.1 * move})
    assert choose(slower, links, TARGET) == own and records_of(own, slower) == []


def test_a_network_in_other_blocks_gives_the_same_and_changes_no_layout_inside(
    tasks: list[autotvm.Task], measured: Options
) -> None:
    options = said(measured, tasks, {True: 1.0, False: 0.5})
    joint = records_of(choose(options, links_of_program(chain(), PARAMS, TARGET), TARGET), options)
    block = {pair[0].config["result_block"].val for pair in joint}
    assert len(joint) == 3 and len(block) == 1
    with autotvm.apply_history_best(joint), PassContext(opt_level=3):
        text = str(optimized(chain(), TARGET, PARAMS))
        library = relay.build(chain(), "llvm", params=PARAMS)
    assert text.count(f'out_layout="NCHW{next(iter(block))}c"') == 3
    assert text.count("layout_transform(") <= 2, "of the data and of the result"
    module = graph_executor.GraphModule(library["default"](cpu()))
    x = RNG.random((1, WIDTHS[0], 14, 14), dtype="float32")
    module.set_input("x", x)
    module.run()
    wanted = np.asarray(evaluate(chain(), [x, *PARAMS.values()]))
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_records_are_used_together_or_not_at_all(tasks: list[autotvm.Task], measured: Options) -> None:
    names = {task.workload: task.names for task in tasks}
    good = [next(iter(rows.values())).pair for rows in measured.values()]
    bad = [_slowest(task) for task in tasks]
    with Network(chain(), PARAMS, "llvm", LocalRunner()) as network:
        verdict = together(network, good, bad, 0.1, names)
        assert [pair for pair, _ in verdict.dropped] == bad and "end-to-end check" in verdict.dropped[0][1]
        assert verdict.kept == good and verdict.after == verdict.before
        verdict = together(network, bad, good, 0.1, names)
        if verdict.dropped:  # on a busy machine the gain may be within the noise of so short a time
            verdict = together(network, bad, good, 3.0, names)
    assert verdict.kept == good and not verdict.dropped and verdict.after < verdict.before


def _slowest(task: autotvm.Task) -> Pair:
    """A record of a tile of one vector, in the task's own blocks."""
    own = next(iter(tasks_in_blocks(task)))
    configs = [task.config_space.get(i) for i, _ in task.template.estimates(task)]
    fits = [c for c in configs if (c["data_block"].val, c["result_block"].val) == own]
    config = min(fits, key=lambda c: c["rows"].val * c["vectors"].val * c["lines"].val)
    return MeasureInput(task.target, task, config), MeasureResult((1.0,), 0, 1.0, 1.0)


def test_a_log_names_the_chosen_blocks_as_the_best(tasks: list[autotvm.Task], measured: Options) -> None:
    rows = list(measured[tasks[0].workload].values())
    given, result = rows[1].pair
    better = rows[0].pair[0], MeasureResult((result.mean / 2,), 0, 1.0, 1.0)
    lines = lines_of((given, result), [better, rows[1].pair])
    assert len(lines) == 2 and OTHERS in lines[0]
    (best,) = best_of([better, rows[1].pair, *filter(None, map(decode, lines))])
    assert best[0].config.key() == given.config.key()
