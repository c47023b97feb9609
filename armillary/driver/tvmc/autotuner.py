"""Tuning a model: `tvmc.tune`.

In: a TVMCModel, a target, perhaps a tracker. Out: the log of trials, which `tvmc.compile` takes. Invariant: it is
`armc tune` with the model in memory: records that do not make the network faster are marked, unless it is told not to.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureOption
from armillary.autotvm.record import load_from_file
from armillary.autotvm.task.network import extract_from_program
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.callback import log_to_file, progress_bar
from armillary.autotvm.tuner.names import TUNERS, make_tuner
from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.cli import tune as command
from armillary.cli.options.models import with_attributes
from armillary.cli.pages.tune_output import named
from armillary.driver.tvmc.compiler import Attributes
from armillary.driver.tvmc.model import TVMCModel
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.target import Target

_ALL = "all"  # tasks


@boundary("tvmc.tune")
def tune(
    tvmc_model: TVMCModel,
    target: str | Target,
    tuning_records: str | Path | None = None,
    prior_records: str | Path | None = None,
    enable_autoscheduler: bool = False,
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: int | str = 9190,
    trials: int = 10000,
    target_host: str | Target | None = None,
    tuner: str = "xgb",
    min_repeat_ms: int | None = None,
    early_stopping: int | None = None,
    timeout: int = 10,
    repeat: int = 1,
    number: int = 10,
    parallel: int = 4,
    hardware_params: object = None,
    include_simple_tasks: bool = False,
    log_estimated_latency: bool = False,
    additional_target_options: Attributes | None = None,
    tasks_filter: str = _ALL,
    end_to_end: bool = True,
    **transforms: object,
) -> str:
    """Tune here, or on the devices of a tracker that have `rpc_key`; returns the path of the log, which is appended to.

    `trials` are of all tasks together; `end_to_end=False` keeps records that were not tried in the network. Raises
    ConfigError for the auto-scheduler, which is not here.
    """
    del hardware_params, include_simple_tasks, log_estimated_latency
    if enable_autoscheduler:
        raise ConfigError("enable_autoscheduler: AutoTVM tunes here", hint="leave it out")
    log = str(tuning_records or tvmc_model.default_tuning_records_path())
    words = {"-o": log, "--tuner": tuner, "--timeout": timeout, "--repeat": repeat, "--number": number}
    words |= {"--parallel": parallel, "--early-stopping": early_stopping or 0}
    words |= {"--min-repeat-ms": min_repeat_ms or 0, "--tasks": "" if tasks_filter == _ALL else tasks_filter}
    words["--target"] = with_attributes(str(target), additional_target_options or {})
    words |= {"--target-host": str(target_host or ""), "--tuning-records": str(prior_records or "")}
    if hostname or rpc_key:
        words |= {"--rpc-tracker": f"{hostname or '127.0.0.1'}:{port}", "--rpc-key": rpc_key or ""}
    parser = argparse.ArgumentParser(prog="tvmc.tune", exit_on_error=False)
    command.add_arguments(parser)
    switches = ["--resume", *([] if end_to_end else ["--no-end-to-end"])]
    try:
        args = parser.parse_args(["model", *switches, *(f"{name}={value}" for name, value in words.items())])
    except argparse.ArgumentError as error:
        raise ConfigError(f"tvmc.tune: {error}") from None
    command.tune_module(apply_graph_transforms(tvmc_model.mod, transforms), tvmc_model.params, args, of_all=trials)
    return log


tune_model = tune


@boundary("autotvm_get_tuning_tasks")
def autotvm_get_tuning_tasks(
    mod: IRModule,
    params: Mapping[str, Array] | None,
    target: str | Target,
    target_host: str | Target | None = None,
    transform_args: Mapping[str, object] | None = None,
) -> list[Task]:
    """The tasks of a module, after the changes that `transform_args` ask for."""
    where = Target(target, host=target_host) if target_host else Target(target)
    return extract_from_program(apply_graph_transforms(mod, transform_args), dict(params or {}), where)


@boundary("filter_tasks")
def filter_tasks(tasks: Sequence[Task], expr: str) -> tuple[list[Task], bool]:
    """Tasks by "all", "list", "0", "0,2", "3-5", "-3" or "3-", and whether they are to be shown ("list", "help").

    Raises TuningError for a text of another form and for numbers of no task.
    """
    words = [word.strip() for word in expr.split(",")]
    shows = any(word in ("list", "help") for word in words)
    rest = [word for word in words if word not in ("list", "help")]
    if _ALL in rest:
        return list(tasks), shows
    return [tasks[place] for place in command.places(",".join(rest), len(tasks))] if rest else [], shows


def gen_task_list(tasks: Sequence[Task], enable_autoscheduler: bool = False) -> str:
    """What `--tasks list` shows. Raises ConfigError for the auto-scheduler, which is not here."""
    if enable_autoscheduler:
        raise ConfigError("enable_autoscheduler: AutoTVM tunes here", hint="leave it out")
    lines = [f"  {place}. {named(task)} (len={len(task.config_space)})" for place, task in enumerate(tasks)]
    return "\n".join(["Available Tasks for tuning:", *lines])


@boundary("tune_tasks")
def tune_tasks(
    tasks: Sequence[Task],
    log_file: str | Path,
    measure_option: MeasureOption,
    tuner: str,
    trials: int,
    early_stopping: int | None = None,
    tuning_records: str | Path | None = None,
) -> None:
    """Tune each task and append its trials to a log; raises TuningError for a tuner that there is not."""
    if tuner not in TUNERS:
        raise TuningError(f"there is no tuner {tuner!r}", hint=f"it may be any of {', '.join(TUNERS)}")
    for place, task in enumerate(tasks):
        instance = make_tuner(tuner, task, 0)
        if tuning_records and Path(tuning_records).exists():
            instance.load_history(load_from_file(tuning_records))
        most = min(trials, len(task.config_space))
        shown = progress_bar(most, prefix=f"[Task {place + 1:2d}/{len(tasks):2d}] ")
        instance.tune(most, measure_option, early_stopping or None, [shown, log_to_file(log_file)])
