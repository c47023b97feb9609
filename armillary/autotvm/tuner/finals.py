"""Finals: the front-runners of a task are measured again, in turns, before one is chosen.

In: the trials of a task and how to measure. Out: a result for each front-runner, the least of all rounds, for the log,
where it stands for the configuration from then on. Invariant: all front-runners meet the same state of the machine,
since each round runs every one of them once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from armillary.autotvm.measure.measure import MeasureInput, MeasureOption, MeasureResult, create_measure_batch
from armillary.autotvm.record import last_of_each
from armillary.autotvm.task.dispatcher import spelled_out
from armillary.autotvm.task.task import Task

Pair = tuple[MeasureInput, MeasureResult]


def finals(
    task: Task,
    records: Iterable[Pair],
    measure_option: MeasureOption,
    rounds: int = 3,
    most: int = 4,
    near: float = 1.15,
) -> list[Pair]:
    """Measure the best trials again: at most `most`, of those within `near` of the best, and the model's own choice."""
    mine = [(g, r) for g, r in last_of_each(records) if spelled_out(g.task.workload) == spelled_out(task.workload)]
    mine.sort(key=lambda pair: pair[1].mean)
    chosen = [pair_input for pair_input, result in mine[:most] if result.mean <= near * mine[0][1].mean]
    default = next(iter(task.template.estimates(task)), (None, 0.0))[0]
    chosen += [pair_input for pair_input, _ in mine if pair_input.config.index == default and pair_input not in chosen]
    if len(chosen) < 2:
        return []
    inputs = [MeasureInput(task.target, task, pair_input.config) for pair_input in chosen]
    measure = create_measure_batch(task, measure_option)
    try:
        built = measure.builder.build(inputs)
        turns = [measure.runner.run(inputs, built) for _ in range(rounds)]
    finally:
        measure.close()
    return [(pair_input, _together([turn[place] for turn in turns])) for place, pair_input in enumerate(inputs)]


def _together(results: list[MeasureResult]) -> MeasureResult:
    """The least time of all rounds, since what disturbs a run adds to it; the first failure where there is one."""
    for result in results:
        if result.error_no:
            return result
    least = min(min(result.costs) for result in results)
    return MeasureResult((least,), 0, sum(r.all_cost for r in results), time.time())
