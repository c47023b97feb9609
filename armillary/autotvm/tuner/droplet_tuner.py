"""DropletTuner: descent along the knobs from one configuration, by steps that grow while they help.

In: a task, where to start, a level of significance. Out: trials of the neighbours of the best configuration, those that
differ from it by `step` values of one knob; after a gain the same direction is followed, each time twice as far; where
no neighbour gains, `step` grows, up to the longest knob (after Canesche et al., "The Droplet Search Algorithm for
Kernel Scheduling", ACM TACO 2024). Invariant: a move is made only where the new times are smaller beyond their noise
(Welch's statistic, held against the normal distribution; single times are compared as they are).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.arguments import Arguments

Times = Sequence[float]


class DropletTuner(Tuner):
    """Coordinate descent; `start_position` has the number of each knob's value, `pvalue` the level of significance."""

    batch = 16  # trials whose results are waited for together

    def __init__(
        self, task: Task, start_position: Sequence[int] | None = None, pvalue: float = 0.05, *, seed: int = 0
    ) -> None:
        super().__init__(task, seed=seed)
        Arguments("DropletTuner", TuningError).number("pvalue", pvalue, 0)
        self.pvalue, self.dims = pvalue, self.space.dims
        self.best_choice: tuple[int, list[int], Times] = (-1, self._start(start_position), (math.inf,))
        self.step, self.execution, self.total_execution = 1, 1, max(self.dims, default=1)
        self._direction: list[int] | None = None
        self._queue = [self.space.knob2point(self.best_choice[1])]
        self._asked: set[int] = set()  # proposed, without a result yet

    def _start(self, position: Sequence[int] | None) -> list[int]:
        if position is not None:
            index = self.space.knob2point(position)
            if self.space.point2knob(index) != list(position) or not self.space.is_index_valid(index):
                raise TuningError(f"DropletTuner: start_position={list(position)} is no configuration of the space")
            return list(position)
        indices = self._model_choice() or ([0] if self.space.is_index_valid(0) else self.space.valid_indices()[:1])
        return self.space.point2knob(int(indices[0]))

    def has_next(self) -> bool:
        while not self._queue and not self._asked and self.step <= self.total_execution:
            self._queue = self._neighbours()
            self.step += not self._queue
        return bool(self._queue)

    def propose(self, count: int) -> list[int]:
        self.has_next()
        result, self._queue = self._queue[: min(count, self.batch)], self._queue[min(count, self.batch) :]
        self._asked.update(result)
        return result

    def _neighbours(self) -> list[int]:
        """Configurations that were not visited: straight on first, then each knob up and down."""
        knobs, moves = self.best_choice[1], list[list[int]]()
        if self._direction is not None:
            moves.append([self.execution * d for d in self._direction])
        for place in range(len(knobs)):
            moves += [[sign * self.step * (place == at) for at in range(len(knobs))] for sign in (1, -1)]
        points = [[k + d for k, d in zip(knobs, move, strict=True)] for move in moves]
        inside = [p for p in points if all(0 <= k < size for k, size in zip(p, self.dims, strict=True))]
        indices = dict.fromkeys(self.space.knob2point(p) for p in inside)
        return [i for i in indices if i not in self.visited and self.space.is_index_valid(i)]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Move to the fastest configuration that is faster than the best beyond noise."""
        before = self.best_choice
        for inp, result in zip(inputs, results, strict=True):
            self._asked.discard(inp.config.index)
            if not result.error_no and self._is_faster(result.costs, self.best_choice[2]):
                index = inp.config.index
                self.best_choice = index, self.space.point2knob(index), result.costs
        if self.best_choice is before:
            self._direction, self.execution = None, 1
            return
        if before[0] >= 0:
            self._direction = [b - a for a, b in zip(before[1], self.best_choice[1], strict=True)]
            self.execution = 2 * self.execution if self.step == 1 else 1
        self.step, self._queue = 1, []

    def _is_faster(self, times: Times, best: Times) -> bool:
        gain = fmean(best) - fmean(times)
        if len(times) < 2 or len(best) < 2 or not gain > 0:
            return gain > 0
        noise = math.sqrt(variance(times) / len(times) + variance(best) / len(best))
        return noise == 0 or 1 - NormalDist().cdf(gain / noise) < self.pvalue
