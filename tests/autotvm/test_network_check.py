"""Trials run what a network fuses to a call; records are kept only where the network is faster with them."""

from __future__ import annotations

import numpy as np

from armillary import autotvm, relay
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.record import Pair
from armillary.autotvm.tuner import RandomTuner
from armillary.autotvm.tuner.gains import Gains
from armillary.autotvm.tuner.network_check import Network, check
from armillary.cli.pages.tune_output import closing_table
from armillary.ir import IRModule
from armillary.transform import PassContext

RNG = np.random.default_rng(4)
PARAMS = {f"w{i}": RNG.normal(size=(64, 64, 3, 3)).astype("float32") / 24 for i in range(3)}
BIAS = RNG.normal(size=(1, 64, 1, 1)).astype("float32")


def residual() -> IRModule:
    """Three convolutions of one workload: two with bias and relu, the last with a sum of what they started from."""
    x = relay.var("x", shape=(1, 64, 28, 28))
    y = x
    for i in range(3):
        w = relay.var(f"w{i}", shape=(64, 64, 3, 3))
        y = relay.nn.conv2d(y, w, padding=(1, 1), kernel_size=(3, 3), channels=64)
        y = relay.add(y, x) if i == 2 else relay.nn.relu(relay.add(y, relay.const(BIAS)))
    return IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))


def the_task() -> autotvm.Task:
    (task,) = autotvm.task.extract_from_program(residual(), PARAMS, "llvm")
    return task


def pair_of(task: autotvm.Task, index: int, seconds: float) -> Pair:
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((seconds,), 0, 1.0, 1.0)


def test_a_trial_runs_what_is_fused_to_most_of_the_calls() -> None:
    task = the_task()
    assert task.calls == 3
    text = str(task.around)
    assert text.count("nn.contrib_conv2d_NCHWc(") == 1 and "add(" in text and "nn.relu(" in text
    measure = create_measure_batch(task, autotvm.measure_option())
    try:
        inputs = [pair_of(task, index, 1.0)[0] for index, _ in task.template.estimates(task)[:2]]
        results = measure(inputs)
    finally:
        measure.close()
    assert [r.error for r in results] == ["", ""]  # the answer is that of all the calls


def test_the_sum_of_a_residual_is_read_by_a_trial() -> None:
    module = residual()
    convolution = relay.nn.conv2d(relay.var("x", shape=(1, 64, 28, 28)), relay.const(PARAMS["w0"]), padding=(1, 1))
    body = relay.add(convolution, relay.var("y", shape=(1, 64, 28, 28)))
    (task,) = autotvm.task.extract_from_program(relay.Function(relay.analysis.free_vars(body), body), target="llvm")
    assert [p.name_hint for p in task.around.params] == ["data", "around1"]
    assert task.workload == the_task().workload and module is not None


def test_records_are_kept_where_they_pay_and_dropped_where_not() -> None:
    task = the_task()
    ranked = [index for index, _ in task.template.estimates(task)]
    best, worst = pair_of(task, ranked[0], 1e-3), pair_of(task, ranked[-1], 1e-4)
    with Network(residual(), PARAMS, "llvm", LocalRunner()) as network:
        verdict = check(network, [worst], 0.3)
        assert verdict.kept == [] and verdict.after == verdict.before
        assert [pair for pair, _ in verdict.dropped] == [worst] and "ms with it," in verdict.dropped[0][1]
        late = check(network, [worst], 0.3, until=0.0)
        assert late.dropped[0][1] == "end-to-end check: there was no time left for it"
        with PassContext(config={"cpu.tile": "1x1"}):  # a model that chooses badly
            verdict = check(network, [best], 0.3)
            if not verdict.kept:  # on a busy machine the gain may be within the noise of so short a time
                verdict = check(network, [best], 5.0)
    assert verdict.kept == [best] and verdict.after < verdict.before, [why for _, why in verdict.dropped]


def test_what_a_task_gains_counts_for_each_of_its_calls() -> None:
    task, gains = the_task(), Gains(10e-3)
    own = task.template.estimates(task)[0][0]
    other = next(i for i, _ in task.template.estimates(task) if i != own)
    for index, seconds in ((own, 2e-3), (other, 1.5e-3)):
        given, result = pair_of(task, index, seconds)
        gains(None, [given], [result])
    assert abs(gains.total() - 1.5e-3) < 1e-9
    assert gains.summary() == "expected end-to-end gain: 17.6 % (10.000 to 8.500 ms)"
    row = gains.rows()[0]
    assert (row.task, row.trials) == (task, 2) and row.best / row.own == 2e-3 / 1.5e-3
    head, line = closing_table(gains)
    assert head.split("  ")[0] == "task" and "best GFLOP/s" in head
    rates = [f"{task.flop / seconds / 1e9:.1f}" for seconds in (2e-3, 1.5e-3)]
    assert line.rpartition(")")[2].split() == ["3", *rates, "+33.3", "%", "2", "1.500", "ms"], line


def test_a_log_that_is_gone_on_with_counts_as_gain() -> None:
    task, gains = the_task(), Gains(10e-3)
    ranked = [index for index, _ in task.template.estimates(task)]
    tuner = RandomTuner(task)
    assert (
        tuner.resume([pair_of(task, ranked[0], 2e-3), pair_of(task, ranked[5], 3e-3), pair_of(task, ranked[5], 1e-3)])
        == 2
    )
    gains(tuner, [given for given, _ in tuner.resumed], [result for _, result in tuner.resumed])
    assert abs(gains.total() - 3e-3) < 1e-9, "of one configuration the last trial counts"
