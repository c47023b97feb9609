"""Tuners by their names in scripts and commands.

In: a name: model, droplet, random, gridsearch, ga, or xgb with a loss and a kind of features (xgb_rank_knob). Out: a
tuner of a task. Invariant: names may be written with dashes; an unknown one is an error that lists all.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.droplet_tuner import DropletTuner
from armillary.autotvm.tuner.feature_reader import FEATURES
from armillary.autotvm.tuner.ga_tuner import GATuner
from armillary.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from armillary.autotvm.tuner.model_tuner import ModelTuner
from armillary.autotvm.tuner.tuner import Tuner
from armillary.autotvm.tuner.xgb_tuner import XGBTuner
from armillary.base.arguments import Arguments

_LOSSES = {"xgb": "reg", "xgb_rank": "rank", "xgb_rank_binary": "rank-binary"}


def _trees(loss: str, features: str) -> Callable[[Task, int], Tuner]:
    return lambda task, seed: XGBTuner(task, feature_type=features, loss_type=loss, seed=seed)


TUNERS: dict[str, Callable[[Task, int], Tuner]] = {
    "model": lambda task, seed: ModelTuner(task, seed=seed),
    **{name: _trees(loss, "itervar") for name, loss in _LOSSES.items()},
    **{f"{name}_{kind}": _trees(loss, kind) for name, loss in _LOSSES.items() for kind in FEATURES},
    "droplet": lambda task, seed: DropletTuner(task, seed=seed),
    "ga": lambda task, seed: GATuner(task, pop_size=50, seed=seed),
    "random": lambda task, seed: RandomTuner(task, seed=seed),
    "gridsearch": lambda task, seed: GridSearchTuner(task, seed=seed),
}


def make_tuner(name: str, task: Task, seed: int = 0) -> Tuner:
    """The tuner of a name for a task."""
    Arguments("make_tuner", TuningError).text("name", name)
    tuner_class = TUNERS.get(name.replace("-", "_"))
    if tuner_class is None:
        raise TuningError(f"unknown tuner {name!r}", hint=", ".join(TUNERS))
    return tuner_class(task, seed)
