"""Searches: options, builders, runners, logs, schedulers of several tasks, under the names of Relay-era scripts.

In: tasks. Out: trials in a log. Invariant: who builds, runs, learns and writes is AutoTVM; what is set here and has no
counterpart (parameters of sketches, of evolution, of hardware) is accepted and does nothing, as its docstring says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from armillary.auto_scheduler.options import RecordToFile, TuningOptions, tune
from armillary.auto_scheduler.task import SearchTask
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.local_builder import LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.measure.rpc_runner import RPCRunner
from armillary.autotvm.record import load_from_file
from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.autotvm.task.task import Instance
from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary, bounded

__all__ = ["ApplyHistoryBest", "LocalBuilder", "LocalRunner", "RPCRunner", "RecordToFile", "TuningOptions"]
Log = str | os.PathLike[str]
ApplyHistoryBestOrSample = ApplyHistoryBest
_ROUND = 16  # trials of a task before the next one has its turn


class LocalRPCMeasureContext:
    """Who runs trials on this machine: `runner`. Trials run in a process of their own, which needs no tracker."""

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        del priority, n_parallel, device  # one at a time, as they would share the processor
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)


class SketchPolicy:
    """A search of one task; parameters of sketches and evolution do nothing, as trees learn from every trial."""

    def __init__(self, task: SearchTask, program_cost_model: object = None, **options: object) -> None:
        del program_cost_model, options
        self.task = task


EmptyPolicy = SketchPolicy


class XGBModel:
    """The model that learns from trials; it is AutoTVM's, and there is no other."""

    def __init__(self, *_options: object, **_named: object) -> None:
        pass


RandomModel = XGBModel


class HardwareParams:
    """Facts of a machine that a script states; they are read from the target instead."""

    def __init__(self, *_facts: object, **_named: object) -> None:
        pass


class PreloadMeasuredStates:
    """A log whose trials are not made again; a tuner that writes to the same log reads it itself."""

    def __init__(self, filename: Log) -> None:
        self.filename = filename


@boundary("auto_scheduler.auto_schedule", arguments=True)
def auto_schedule(
    task: SearchTask, search_policy: object = None, tuning_options: TuningOptions | None = None
) -> Instance:
    """Tune a task of a function; the schedule and arguments of the best trial."""
    del search_policy
    options = tuning_options or TuningOptions()
    pairs: list[tuple[MeasureInput, MeasureResult]] = []
    options.callbacks.append(lambda _, inputs, results: pairs.extend(zip(inputs, results, strict=True)))
    tune(task.task, options)
    good = [pair for pair in pairs if not pair[1].error_no]
    if not good:
        raise TuningError(f"no trial of {task.desc} succeeded", hint="num_measure_trials= says how many are made")
    with task.target:
        result: Instance = task.task.instantiate(min(good, key=lambda pair: pair[1].mean)[0].config)
    return result


def create_task(func: str | AnyFunction, args: Sequence[object], target: object = None) -> SearchTask:
    """A `SearchTask`, under its name of 0.7."""
    return SearchTask(func=func, args=args, target=target)


@bounded
class TaskScheduler:
    """Tunes several tasks: trials are shared by weight, and every task gets at least one batch."""

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: object = None,
        strategy: str = "gradient",
        load_model_file: object = None,
        load_log_file: object = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: object = None,
    ) -> None:
        del objective_func, strategy, load_model_file, load_log_file, callbacks
        del alpha, beta, gamma, backward_window_size
        self.tasks, self.task_weights = list(tasks), list(task_weights or [1.0] * len(tasks))
        if len(self.task_weights) != len(self.tasks):
            raise TuningError(f"TaskScheduler: {len(self.tasks)} tasks and {len(self.task_weights)} weights")

    def shares(self, trials: int) -> list[int]:
        """The trials of each task: by its operations and weight, and at least a batch where there are enough."""
        if not self.tasks:
            return []
        pairs = zip(self.tasks, self.task_weights, strict=True)
        sizes = [max(task.task.flop, 1.0) * weight for task, weight in pairs]
        least = min(_ROUND, trials // len(self.tasks))
        rest = trials - least * len(self.tasks)
        shares = [least + int(rest * size / sum(sizes)) for size in sizes]
        shares[sizes.index(max(sizes))] += trials - sum(shares)
        return shares

    def tune(self, tune_option: TuningOptions, search_policy: object = "default", **options: object) -> None:
        """Tune the tasks, the largest first."""
        del search_policy, options
        order = sorted(zip(self.tasks, self.shares(tune_option.num_measure_trials), strict=True), key=lambda p: -p[1])
        for task, share in order:
            one = TuningOptions(share, tune_option.early_stopping)
            one.option, one.callbacks = tune_option.option, tune_option.callbacks
            tune(task.task, one)


class RecordReader:
    """The trials of a log."""

    def __init__(self, filename: Log) -> None:
        self.filename = filename

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        return iter(load_from_file(os.fspath(self.filename)))

    def read_lines(self, max_lines: int = -1, skip_lines: int = 0) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Inputs and results, apart."""
        pairs = list(self)[skip_lines : None if max_lines < 0 else skip_lines + max_lines]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def load_records(filename: Log) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The trials of a log."""
    return iter(RecordReader(filename))


@boundary("auto_scheduler.load_best_record", arguments=True)
def load_best_record(
    filename: Log, workload_key: str | None = None, target: object = None
) -> tuple[MeasureInput, MeasureResult] | tuple[None, None]:
    """The fastest trial of a log, of one task and target where they are given."""
    rows = [
        (inp, result)
        for inp, result in load_records(filename)
        if not result.error_no
        and (workload_key is None or SearchTask(task=inp.task, target=inp.target).workload_key == workload_key)
        and (target is None or str(inp.target) == str(target))
    ]
    return min(rows, key=lambda row: row[1].mean) if rows else (None, None)
