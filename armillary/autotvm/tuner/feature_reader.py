"""Features of a task's configurations, as the trees of XGBTuner see them.

In: a task, which features (`itervar`, `curve`: of the loops of a configuration; `knob`: of its entities), where there
is one a builder's `spread`, which computes on the workers of a cluster. Out: a vector for each configuration, with
what the model of costs expects as its last number; None for one that cannot be instantiated. Invariant: each is
computed once, and is the same wherever it was computed; what a cluster does not answer is computed here. Lowering a
configuration to loops is most of what a search of the trees costs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from armillary.autotvm.loop_feature import curve_feature, itervar_feature
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import Task
from armillary.base.aliases import Array
from armillary.errors import ArmillaryError
from armillary.tir.stmt import PrimFunc

Numbers = Array
Work = tuple[Task, str, list[int]]  # a task, the kind of features, configurations
Rows = list[Numbers | None]
Spread = Callable[[Callable[[Work], Rows], Sequence[Work]], list[Rows | None]]  # None for no answer
FEATURES = ("itervar", "knob", "curve")
CHUNK = 8  # configurations that a worker gets at a time
logger = logging.getLogger("autotvm")


def features_of(task: Task, config: ConfigEntity, kind: str) -> Numbers | None:
    """Features of a configuration, without the estimate."""
    if kind == "knob":
        return config.get_flatten_feature()
    try:
        loops: PrimFunc = task.template.loops(task, config)
    except ArmillaryError:
        logger.debug("no features of %s", config)
        return None
    of_loops = itervar_feature(loops) if kind == "itervar" else curve_feature(loops)
    return np.concatenate([of_loops, config.get_flatten_feature()])


def features_there(work: Work) -> Rows:
    """Those of several configurations, on a worker."""
    task, kind, indices = work
    return [features_of(task, task.config_space.get(index), kind) for index in indices]


def with_estimate(features: Numbers, expected: float = np.nan) -> Numbers:
    """Features and what the compiler's model of costs expects; not a number where that is not known, of other tasks."""
    return np.append(features, expected)


class FeatureReader:
    """Features of a task's configurations, each computed once; None for those that cannot be instantiated."""

    def __init__(self, task: Task, kind: str, *, uses_model: bool = True) -> None:
        self.task, self.kind = task, kind
        self.spread: Spread | None = None
        self._known: dict[int, Numbers | None] = {}
        estimates = task.template.estimates(task) if uses_model else []
        self._expected = {index: np.log(max(seconds, 1e-12)) for index, seconds in estimates}
        self.ranking = list(self._expected)  # the most promising first

    def __call__(self, index: int) -> Numbers | None:
        if index not in self._known:
            self._keep(index, features_of(self.task, self.task.config_space.get(index), self.kind))
        return self._known[index]

    def ahead(self, indices: Sequence[int]) -> None:
        """Have a cluster compute what is not known of these, where there is one and lowering is to be done."""
        if self.spread is None or self.kind == "knob":
            return
        wanted = [index for index in dict.fromkeys(indices) if index not in self._known]
        parts = [wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK)]
        if len(wanted) < 2:
            return
        answers = self.spread(features_there, [(self.task, self.kind, part) for part in parts])
        for part, answer in zip(parts, answers, strict=True):
            for index, row_features in zip(part, answer if answer is not None else (), strict=answer is not None):
                self._keep(index, row_features)

    def _keep(self, index: int, features: Numbers | None) -> None:
        expected = self._expected.get(index, np.nan)
        self._known[index] = None if features is None else with_estimate(features, expected)
