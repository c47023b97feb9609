"""Tuners that learn need fewer trials than those that do not; every name of the old scripts gives its tuner."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
import templates  # noqa: F401  (registers templates)
from analytic import by_formula

from armillary import autotvm, relay
from armillary.autotvm.errors import TuningError
from armillary.autotvm.tuner import ModelTuner, RandomTuner
from armillary.autotvm.tuner.names import TUNERS, make_tuner

OLD_NAMES = (
    "xgb",
    "xgb_knob",
    "xgb_itervar",
    "xgb_curve",
    "xgb_rank",
    "xgb_rank_knob",
    "xgb_rank_itervar",
    "xgb_rank_curve",
    "xgb_rank_binary",
    "xgb_rank_binary_knob",
    "xgb_rank_binary_itervar",
    "xgb_rank_binary_curve",
    "ga",
    "random",
    "gridsearch",
)


def matmul(n: int = 64) -> autotvm.Task:
    return autotvm.task.create("test/matmul", (n, n, n, "float32"), "llvm")


def seconds(config: Any) -> float:
    """A valley at tiles of 16 x 8, on a logarithmic scale."""
    y, x = (math.log2(config[name].size[-1]) for name in ("tile_y", "tile_x"))
    return float(1e-3 * (1 + 0.4 * (y - 4) ** 2 + 0.7 * (x - 3) ** 2 + 0.1 * math.sin(3 * x + y)))


def trials_to(share: float, tuner: Any, cost: Any) -> int:
    """Trials until a configuration with that share of the best speed was measured."""
    space, option = tuner.space, by_formula(cost)
    best = min(cost(space.get(int(i))) for i in space.valid_indices())
    tuner.starts_from_model = False

    def stop(of: Any, _: Any, results: Any) -> None:
        if best >= share * min(r.mean for r in results):
            of.deadline = 0.0

    tuner.tune(len(space), option, callbacks=[stop])
    speeds = [best / cost(space.get(i)) for i in option["runner"].seen]
    return next((n + 1 for n, speed in enumerate(speeds) if speed >= share), len(space))


def convolution() -> autotvm.Task:
    x = relay.var("x", shape=(1, 32, 28, 28))
    w = relay.const(np.random.default_rng(0).random((32, 32, 3, 3), "float32"))
    body = relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=32)
    (task,) = autotvm.task.extract_from_program(relay.Function([x], body), target="llvm -mcpu=x86-64-v4")
    return task


def misjudged(task: autotvm.Task) -> Any:
    """Seconds that the model misjudges for wide tiles, three times for the worst."""
    estimates = dict(task.template.estimates(task))
    return lambda config: float(estimates[config.index] * (1 + 2 * math.sin(config["vectors"].val) ** 2))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_each_old_name_tunes(name: str) -> None:
    pytest.importorskip("xgboost") if "xgb" in name else None
    tuner = make_tuner(name, matmul(16), 1)
    tuner.tune(12, by_formula(seconds))
    assert tuner.trials == 12 and tuner.best_flops > 0
    assert set(OLD_NAMES) <= set(TUNERS)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TuningError, match="unknown tuner 'annealing'\n  hint: model, xgb"):
        make_tuner("annealing", matmul(16))


def test_trees_need_at_most_half_the_trials_of_chance() -> None:
    pytest.importorskip("xgboost")
    task, kind = convolution(), autotvm.tuner.XGBTuner
    cost = misjudged(task)
    by_chance = statistics.median(trials_to(0.95, RandomTuner(task, seed=s), cost) for s in range(9))
    made = [kind(task, plan_size=8, feature_type="knob", seed=s) for s in range(3)]
    assert statistics.median(trials_to(0.95, tuner, cost) for tuner in made) <= by_chance / 2


def test_history_of_other_tasks_guides_the_first_plan() -> None:
    pytest.importorskip("xgboost")
    past = autotvm.tuner.GridSearchTuner(matmul(128))
    kept: list[Any] = []
    past.tune(64, by_formula(seconds), callbacks=[lambda _, i, r: kept.extend(zip(i, r, strict=True))])
    first = []
    for history in ([], kept):
        tuner = autotvm.tuner.XGBTuner(matmul(256), plan_size=8, feature_type="knob", seed=4)
        tuner.load_history(history, min_seed_records=10)
        first.append(np.mean([seconds(c) for c in tuner.next_batch(7)]))
    assert first[1] < 0.6 * first[0]


def test_the_model_is_tried_first_corrected_by_trials_and_stops_by_itself() -> None:
    task = convolution()
    estimates = dict(task.template.estimates(task))
    wrong_by_a_factor = misjudged(task)
    tuner, option = ModelTuner(task), by_formula(wrong_by_a_factor)
    tuner.tune(len(task.config_space), option)
    best = min(wrong_by_a_factor(task.config_space.get(i)) for i in estimates)
    assert option["runner"].seen[0] == min(estimates, key=estimates.__getitem__)
    assert tuner.trials < len(task.config_space) / 3
    assert task.flop / tuner.best_flops <= best / 0.95
    by_chance = statistics.median(trials_to(0.95, RandomTuner(task, seed=s), wrong_by_a_factor) for s in range(9))
    assert trials_to(0.95, ModelTuner(task), wrong_by_a_factor) <= by_chance / 4


@pytest.mark.parametrize("name", ["random", "gridsearch", "ga"])
def test_every_tuner_first_measures_what_a_build_takes_without_a_record(name: str) -> None:
    task = convolution()
    option = by_formula(misjudged(task))
    make_tuner(name, task, 3).tune(12, option)
    assert option["runner"].seen[0] == task.template.estimates(task)[0][0]
    assert len(set(option["runner"].seen)) == 12


def test_without_a_model_the_process_learns_from_trials_alone() -> None:
    assert trials_to(0.95, ModelTuner(matmul(256), worth=0.0), seconds) <= 40
