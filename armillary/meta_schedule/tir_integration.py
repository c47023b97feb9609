"""Tuning of one function or module: `tune_tir`, and its best schedule, `compile_tir`.

In: functions of blocks. Out: a database; a schedule. Invariant: each function of a module is a task of its own.
"""

from __future__ import annotations

from armillary.base.boundary import boundary
from armillary.ir import IRModule
from armillary.meta_schedule.database import Database
from armillary.meta_schedule.tune import TuneContext, tune_tasks
from armillary.tir import stmt as S
from armillary.tir.schedule.schedule import Schedule


@boundary("meta_schedule.tune_tir", arguments=True)
def tune_tir(
    mod: S.PrimFunc | IRModule,
    target: object,
    work_dir: str = "",
    max_trials_global: int = 64,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: object = "local",
    runner: object = "local",
    database: object = "json",
    cost_model: object = "xgb",
    measure_callbacks: object = "default",
    task_scheduler: object = "gradient",
    space: object = "post-order-apply",
    strategy: object = "evolutionary",
    num_tuning_cores: object = "physical",
    seed: int | None = None,
    module_equality: str = "structural",
    special_space: dict[str, object] | None = None,
) -> Database:
    """Measure up to `max_trials_global` schedules of a space; every one that is right is in the database.

    `space` is "post-order-apply", a function of a schedule, or a `SpaceGenerator`; `special_space` has others by the
    names of functions. Without `work_dir` the database is in memory.
    """
    del num_tuning_cores, seed
    module = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
    names = [name for name, f in module.items() if isinstance(f, S.PrimFunc)]
    contexts = [
        TuneContext(
            module if len(names) == 1 else IRModule({"main": module[name]}),
            target=target,
            space_generator=(special_space or {}).get(name, space),
            search_strategy=strategy,
            task_name=name,
        )
        for name in names
    ]
    return tune_tasks(
        tasks=contexts,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        builder=builder,
        runner=runner,
        database=database,
        cost_model=cost_model,
        measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler,
        module_equality=module_equality,
    )


@boundary("meta_schedule.compile_tir", arguments=True)
def compile_tir(database: Database, mod: S.PrimFunc | IRModule, target: object) -> Schedule | None:
    """The best schedule of a module in a database; None where it has none. `build(schedule.mod)` compiles it."""
    return database.query_schedule(mod if isinstance(mod, IRModule) else IRModule({"main": mod}), target)
