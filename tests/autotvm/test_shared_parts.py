"""Into how many parts threads divide a kernel, and that a tuner on this machine expects whole rounds of them."""

from __future__ import annotations

from typing import Any

import pytest
from analytic import by_formula

from armillary import autotvm
from armillary.autotvm.measure.local_builder import LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.tuner import ModelTuner
from armillary.autotvm.tuner.model_tuner import whole_rounds
from armillary.base.config import setting
from armillary.base.node import post_order
from armillary.tir import stmt as S

SIZES = [(32, 64, 112), (64, 128, 56), (256, 512, 14), (512, 512, 14), (1024, 1024, 7), (48, 80, 9)]


def layer(channels: int, units: int, size: int, kernel: int = 1, batch: int = 1) -> autotvm.Task:
    """A convolution in blocks of 16 channels, on a server with 512 bits and two ports."""
    pad = kernel // 2
    tensors = [
        ("TENSOR", (batch, channels // 16, size, size, 16), "float32"),
        ("TENSOR", (units // 16, channels // 16, kernel, kernel, 16, 16), "float32"),
    ]
    attrs = ((1, 1), (pad, pad, pad, pad), (1, 1), 1, "NCHW16c", "OIHW16i16o", "NCHW16c", "", kernel == 3)
    return autotvm.task.create("conv2d_NCHWc.cpu", (*tensors, *attrs), "llvm -mcpu=sapphirerapids")


def divided(task: autotvm.Task, index: int) -> list[int]:
    """The extents of the loops that threads share."""
    loops = task.template.loops(task, task.config_space.get(index))
    return [int(n.extent.value) for n in post_order(loops) if isinstance(n, S.For) and n.kind is S.LoopKind.PARALLEL]


@pytest.mark.parametrize("sizes", [*SIZES, (512, 512, 7, 1, 4)])
def test_parts_are_those_of_the_loops(sizes: tuple[int, ...]) -> None:
    task = layer(*sizes)
    parts, own = task.template.parts(task), task.template.estimates(task)[0][0]
    blocks = {name: task.config_space.get(own)[name].val for name in ("data_block", "result_block")}
    mine = [i for i in parts if all(task.config_space.get(i)[name].val == block for name, block in blocks.items())]
    assert own in mine and len(set(parts.values())) > 1
    for index in mine[::5]:
        assert divided(task, index) == [parts[index]], task.config_space.get(index)


def test_of_other_kernels_nothing_is_said() -> None:
    task = layer(64, 64, 28, kernel=3)
    assert task.template.parts(task) == {} and whole_rounds(0, 16) == 1.0


@pytest.mark.parametrize(("parts", "threads", "rounds"), [(8, 16, 2.0), (16, 16, 1.0), (24, 16, 4 / 3), (22, 1, 1.0)])
def test_the_last_round_may_lack_parts(parts: int, threads: int, rounds: float) -> None:
    assert whole_rounds(parts, threads) == rounds


def test_a_tuner_that_knows_the_threads_tries_what_their_rounds_favour() -> None:
    task = layer(32, 64, 112)
    expected, parts = dict(task.template.estimates(task)), task.template.parts(task)

    def takes(config: Any) -> float:
        return expected[config.index] * whole_rounds(parts.get(config.index, 0), 16)

    best = min(map(takes, map(task.config_space.get, expected)))
    trials = []
    for threads in (1, 16):
        tuner, option = ModelTuner(task), by_formula(takes)
        tuner.share(threads)
        tuner.tune(8, option)
        trials.append([takes(task.config_space.get(i)) for i in option["runner"].seen])
    assert trials[0][0] == trials[1][0] > 1.5 * best, "what a build takes comes first, and is none of the best here"
    unaware, aware = (sum(times[1:]) / 7 for times in trials)
    assert aware < 1.2 * best < 1.4 * best < unaware


def test_the_threads_are_those_of_trials_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_NUM_THREADS", "16")
    assert setting("ARMILLARY_NUM_THREADS") == 16
    task = layer(32, 64, 112)
    tuner, other = ModelTuner(task), ModelTuner(task)
    for _ in range(2):  # a tuner that goes on
        tuner.prepare(autotvm.measure_option(LocalBuilder(), LocalRunner()))
    other.prepare(by_formula(lambda _: 1.0))  # trials elsewhere
    assert (tuner.threads, other.threads) == (16, 1)
    assert tuner.prior[0] - other.prior[0] == pytest.approx(0.693147, abs=1e-6)
