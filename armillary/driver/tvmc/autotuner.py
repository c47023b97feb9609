"""Tuning a model: `tvmc.tune`.

In: a TVMCModel, a target, perhaps a tracker. Out: the log of trials, which `tvmc.compile` takes. Invariant: it is
`armc tune` with the model in memory: records that do not make the network faster are marked, unless it is told not to.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary.base.boundary import boundary
from armillary.cli import tune as command
from armillary.cli._targets import with_attributes
from armillary.driver.tvmc.compiler import Attributes
from armillary.driver.tvmc.model import TVMCModel
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.errors import ConfigError
from armillary.target import Target


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
    tasks_filter: str = "all",
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
    words |= {"--min-repeat-ms": min_repeat_ms or 0, "--tasks": "" if tasks_filter == "all" else tasks_filter}
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
