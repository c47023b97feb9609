"""How a search runs: how many trials, who builds and runs them, who gets every result.

In: numbers, a builder, a runner, callbacks. Out: `TuningOptions`, and `tune`, which measures by them. Invariant: the
tuner, builders and runners are AutoTVM's. What is tuned: `task.py`; several tasks, logs: `search.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.option import measure_option
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.callback import log_to_file
from armillary.autotvm.tuner.xgb_tuner import XGBTuner
from armillary.base.boundary import bounded

Callback = Callable[..., None]


class RecordToFile:
    """A callback that adds every trial to a log."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = filename

    def callback(self) -> Callback:
        """As AutoTVM's tuners call it."""
        return log_to_file(self.filename)


@bounded
class TuningOptions:
    """How many trials, when to stop, who builds and runs, and what gets every result (`RecordToFile`)."""

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: object = "local",
        runner: object = "local",
        measure_callbacks: Sequence[RecordToFile | Callback] | None = None,
    ) -> None:
        del num_measures_per_round, verbose  # batches are as large as the builder has processes
        if num_measure_trials < 0:
            raise TuningError(f"num_measure_trials is {num_measure_trials}, wanted 0 or more")
        self.num_measure_trials, self.early_stopping = num_measure_trials, early_stopping
        self.option = measure_option(builder, runner)
        callbacks = measure_callbacks or ()
        self.callbacks = [one.callback() if isinstance(one, RecordToFile) else one for one in callbacks]


def tune(task: Task, options: TuningOptions) -> None:
    """Measure trials of one of AutoTVM's tasks, learning from them which to try; callbacks get every one."""
    if options.num_measure_trials == 0:
        return
    tuner = XGBTuner(task, loss_type="rank")
    with task.target:
        tuner.tune(options.num_measure_trials, options.option, options.early_stopping, options.callbacks)
