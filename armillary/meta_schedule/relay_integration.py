"""Networks: `extract_tasks`, `tune_relay`, `compile_relay`. Their tasks are those of AutoTVM.

In: a Relay module. Out: a database whose `network` has the trials; a library. Invariant: what is tuned are the choices
of the compiler's own algorithms, as with `auto_scheduler.extract_tasks`, not schedules of single functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.auto_scheduler.search import TaskScheduler, TuningOptions
from armillary.auto_scheduler.task import extract_tasks as _search_tasks
from armillary.autotvm.measure.option import measure_option
from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.meta_schedule.database import Database
from armillary.target import Target
from armillary.transform import PassContext

__all__ = ["ApplyHistoryBest"]


@record
class ExtractedTask:
    """A part of a network: its name, loops (`dispatched`), target, and how often it occurs."""

    task_name: str
    mod: IRModule | None
    target: Target
    dispatched: list[IRModule]
    weight: int


@boundary("meta_schedule.extract_tasks", arguments=True)
def extract_tasks(
    mod: IRModule,
    target: object,
    params: Mapping[str, object] | None,
    *,
    module_equality: str = "structural",
    disabled_pass: object = None,
    instruments: object = None,
    **options: object,
) -> list[ExtractedTask]:
    """The parts of a network that can be tuned, with the loops of their first configuration."""
    del module_equality, disabled_pass, instruments, options
    searches, weights = _search_tasks(mod, params, target)
    rows = []
    for search, weight in zip(searches, weights, strict=True):
        task = search.task
        first = task.config_space.get(int(task.config_space.valid_indices()[0]))
        loops = IRModule({"main": task.template.loops(task, first)})
        around = None if task.around is None else IRModule.from_expr(task.around)
        rows.append(ExtractedTask(search.desc, around, task.target, [loops], weight))
    return rows


@boundary("meta_schedule.tune_relay", arguments=True)
def tune_relay(
    mod: IRModule,
    params: Mapping[str, object] | None,
    target: object,
    work_dir: str,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    builder: object = "local",
    runner: object = "local",
    database: object = "json",
    **options: object,
) -> Database:
    """Measure trials of a network's parts, shared by operations and number; what they cost is in the database."""
    del max_trials_per_task, options
    records = Database.create(database, work_dir=work_dir)
    searches, weights = _search_tasks(mod, params, target)
    tuning = TuningOptions(max_trials_global, builder=builder, runner=runner)
    tuning.option = measure_option(builder, runner)
    tuning.callbacks = [records.network_callback()]
    TaskScheduler(searches, [float(w) for w in weights]).tune(tuning)
    return records


@boundary("meta_schedule.compile_relay", arguments=True)
def compile_relay(
    database: Database,
    mod: IRModule,
    target: object,
    params: Mapping[str, object] | None,
    *,
    backend: str = "graph",
    opt_level: int = 3,
    pass_config: Mapping[str, object] | None = None,
    build_function: AnyFunction = build,
    **options: object,
) -> GraphLibrary:
    """The library of a network, built with the best trials of a database."""
    del backend, options
    with ApplyHistoryBest(list(database.network)), PassContext(opt_level=opt_level, config=dict(pass_config or {})):
        library: GraphLibrary = build_function(mod, target=target, params=params)
    return library


def is_meta_schedule_enabled() -> bool:
    """Whether the current options ask for it (`relay.backend.use_meta_schedule`); choices are the same then."""
    return bool(PassContext.current().config.get("relay.backend.use_meta_schedule", False))
