"""Tasks of a network that are tuned together: the next trials go where they promise most for the whole network.

In: tuners of tasks, how to measure, how long. Out: trials, as every tuner makes them, for the callbacks. Invariant:
first every task gets one batch, those whose calls are expected to take longest first; then each batch is of the task
whose calls, at the best speed found, have most to gain, by what its tuner expects or, of those that expect nothing, by
how long ago the last gain was. A task whose tuner is done gets nothing more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from armillary.autotvm.measure.measure import MeasureOption, create_measure_batch
from armillary.autotvm.tuner.tuner import Callback, Tuner

_OFTEN = 0.5  # of a task's time: what one batch may gain of tuners that do not say


def tune_together(
    tuners: Sequence[Tuner],
    option: MeasureOption,
    seconds: float,
    callbacks: Sequence[Callback] = (),
    batch: int = 0,
    most: int = 0,
) -> None:
    """Tune for `seconds`, each task by batches of `batch` (0: as many as are built at a time), `most` trials a task."""
    until = time.monotonic() + seconds
    count = batch or int(option["builder"].n_parallel)
    begun = {id(tuner) for tuner in tuners if tuner.trials}
    for tuner in sorted(tuners, key=lambda t: -expected_seconds(t)):
        if id(tuner) not in begun and time.monotonic() < until:
            _batch(tuner, option, count, callbacks, until)
    while time.monotonic() < until:
        left = [t for t in tuners if t.has_next() and not t.is_done() and not 0 < most <= t.trials]
        if not left:
            return
        _batch(max(left, key=lambda t: promised(t, count)), option, count, callbacks, until)


def _batch(tuner: Tuner, option: MeasureOption, count: int, callbacks: Sequence[Callback], until: float) -> None:
    tuner.deadline = until
    measure = create_measure_batch(tuner.task, option)  # not closed: what it knows of devices and answers is kept
    tuner.measure_next(measure, count, callbacks)


def expected_seconds(tuner: Tuner) -> float:
    """What all calls of a task take before a trial, as the model of costs expects."""
    estimates = tuner.task.template.estimates(tuner.task)
    return tuner.task.calls * (estimates[0][1] if estimates else tuner.task.flop * 1e-9)


def promised(tuner: Tuner, batch: int) -> float:
    """Seconds that the next batch may take off all calls of a task."""
    pair = tuner.best_measure_pair
    if pair is None:
        return expected_seconds(tuner) / (1 + tuner.trials / batch) ** 2
    takes = tuner.task.calls * pair[1].mean
    expected = getattr(tuner, "expected", math.inf)
    if math.isfinite(expected):
        return float(takes * expected)
    return takes * _OFTEN / (1 + (tuner.trials - tuner.best_iter) / batch) / (1 + tuner.trials / batch)
