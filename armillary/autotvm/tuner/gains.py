"""What tuning has brought so far: for each task, and what that is expected to be for the network.

In: the results of trials, as callbacks get them. Out: seconds gained, in a sentence. Invariant: the gain of a task is
its calls times the difference between what a build takes without a record and the best trial; a task whose own choice
was not measured has none. The network's own time, when the gain is known: `network_check.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.task.task import Task
from armillary.base.dispatch import Workload
from armillary.base.record import record


@record
class Row:
    """A task: its calls, operations per second of what a build takes and of the best trial, trials, seconds gained in a
    run of the network. `own`: 0 where what a build takes was not measured."""

    task: Task
    own: float
    best: float
    trials: int
    gained: float


class Gains:
    """A callback of tuners; `seconds`: of a run of the network without records, 0 where that is not known."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._own: dict[Workload, int] = {}
        self._calls: dict[Workload, int] = {}
        self._means: dict[Workload, dict[int, float]] = {}
        self._tasks: dict[Workload, Task] = {}
        self._trials: dict[Workload, set[int]] = {}

    def __call__(self, tuner: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Any: the tuner, which knows nothing that its results do not tell."""
        for inp, result in zip(inputs, results, strict=True):
            means = self._known(inp.task)
            self._trials[inp.task.workload].add(inp.config.index)
            means.pop(inp.config.index, None)
            if not result.error_no:
                means[inp.config.index] = result.mean

    def _known(self, task: Task) -> dict[int, float]:
        if task.workload not in self._means:
            self._means[task.workload], self._calls[task.workload] = {}, task.calls
            self._tasks[task.workload], self._trials[task.workload] = task, set()
            self._own[task.workload] = next(iter(task.template.estimates(task)), (-1, 0.0))[0]
        return self._means[task.workload]

    def of_workload(self, workload: Workload) -> float:
        """Seconds that all calls of a workload gain."""
        means = self._means.get(workload, {})
        own = means.get(self._own.get(workload, -1))
        return 0.0 if own is None else self._calls[workload] * (own - min(means.values()))

    def of(self, pair: tuple[MeasureInput, MeasureResult]) -> float:
        """Seconds that the workload of a record gains."""
        return self.of_workload(pair[0].task.workload)

    def total(self) -> float:
        """Seconds that a run of the network is expected to gain."""
        return sum(map(self.of_workload, self._means))

    def rows(self) -> list[Row]:
        """A row for each task, those that gain most first."""
        result = []
        for workload, means in self._means.items():
            task, own = self._tasks[workload], means.get(self._own[workload], math.inf)
            best = min(means.values(), default=math.inf)
            trials = len(self._trials[workload])
            result.append(Row(task, task.flop / own, task.flop / best, trials, self.of_workload(workload)))
        return sorted(result, key=lambda row: -row.gained)

    def summary(self) -> str:
        """The expected gain of the network."""
        if not self.seconds:
            return f"expected end-to-end gain: {1e3 * self.total():.3f} ms"
        after = self._after()
        return f"expected end-to-end gain: {self._percent():.1f} % ({1e3 * self.seconds:.3f} to {1e3 * after:.3f} ms)"

    def brief(self) -> str:
        """The same in a few characters."""
        return f"gain {self._percent():.1f} %" if self.seconds else f"gain {1e3 * self.total():.3f} ms"

    def _after(self) -> float:
        return max(self.seconds - self.total(), 0.1 * self.seconds)

    def _percent(self) -> float:
        return 100 * (self.seconds / self._after() - 1)
