"""A builder and a runner for tests of search alone: times come from a formula, nothing is compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from armillary import autotvm
from armillary.autotvm.measure.measure import BuildResult, MeasureInput, MeasureOption, MeasureResult


class NoBuilder:
    n_parallel = 4

    def set_task(self, task: autotvm.Task, build_kwargs: dict[str, Any] | None = None) -> None:
        """Nothing to know."""

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        return [BuildResult("none")] * len(measure_inputs)

    def close(self) -> None:
        """Nothing to end."""


class FormulaRunner(NoBuilder):
    def __init__(self, seconds: Callable[[Any], float]) -> None:
        self.seconds, self.seen = seconds, list[int]()

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        self.seen += [given.config.index for given in measure_inputs]
        return [MeasureResult((self.seconds(given.config),), 0, 0.0, time.time()) for given in measure_inputs]


def by_formula(seconds: Callable[[Any], float]) -> MeasureOption:
    return autotvm.measure_option(NoBuilder(), FormulaRunner(seconds))
