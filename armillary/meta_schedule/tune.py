"""Tasks of loop programs and their search: `TuneContext`, `tune_tasks`.

In: functions of blocks with a space of schedules. Out: a database of the traces that were fastest. Invariant: a context
is an AutoTVM task whose template describes the space; who builds, runs, checks, learns and shares trials is AutoTVM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

from armillary.auto_scheduler.search import TaskScheduler
from armillary.auto_scheduler.task import SearchTask
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.measure.option import measure_option
from armillary.autotvm.task.flop import loops_flop
from armillary.autotvm.task.space import ConfigSpace
from armillary.autotvm.task.task import Task, TaskTemplate, create, get_config
from armillary.autotvm.task.templates import register_template
from armillary.autotvm.tuner.callback import Callback
from armillary.base.boundary import boundary, bounded
from armillary.driver.library import FunctionLibrary
from armillary.driver.te_build import build
from armillary.ir import IRModule
from armillary.meta_schedule.arg_info import ArgInfo
from armillary.meta_schedule.database import Database, TuningRecord
from armillary.meta_schedule.search_strategy import SearchStrategy
from armillary.meta_schedule.space_generator import KnobSchedule, SpaceGenerator
from armillary.target import as_target
from armillary.tir import stmt as S
from armillary.tir.schedule.schedule import Schedule
from armillary.tir.transform.scripts.blocks import lower_blocks


class ModuleTemplate(TaskTemplate):
    """The schedules of a module, as AutoTVM's tuners see them."""

    def __init__(self, name: str, mod: IRModule, space: SpaceGenerator) -> None:
        super().__init__(name, self._schedule)
        self.mod, self.space, self.code_hash = mod, space, None
        self.flop = loops_flop(lower_blocks(_main(mod)).body) or 1.0

    def _schedule(self) -> Schedule:
        config: ConfigSpace = get_config()
        schedule = self.space.generate(KnobSchedule(self.mod, config))
        config.add_flop(self.flop)
        return schedule

    def library(self, task: Task, config: ConfigSpace) -> FunctionLibrary:
        """The compiled function of a configuration."""
        return build(IRModule({"main": _main(task.instantiate(config).mod)}), target=task.target)

    def loops(self, task: Task, config: ConfigSpace) -> S.PrimFunc:
        """The loops of a configuration, for features."""
        return lower_blocks(_main(task.instantiate(config).mod))

    def reference(self, task: Task) -> FunctionLibrary:
        """The function as it is, for this machine."""
        return build(IRModule({"main": _main(self.mod)}), target="llvm")


def _main(mod: IRModule) -> S.PrimFunc:
    functions = [f for _, f in mod.items() if isinstance(f, S.PrimFunc)]
    if len(functions) != 1:
        raise TuningError(f"meta_schedule: the module has {len(functions)} functions of loops, wanted one")
    plain: S.PrimFunc = functions[0].with_attr("global_symbol", "main")
    return plain


@bounded
class TuneContext:
    """What is tuned: a function of blocks, its target, the space of its schedules and how that is searched."""

    def __init__(
        self,
        mod: S.PrimFunc | IRModule | None = None,
        *,
        target: object = None,
        space_generator: object = "post-order-apply",
        search_strategy: object = "evolutionary",
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: object = "physical",
        logger: object = None,
    ) -> None:
        del rand_state, num_threads, logger
        if mod is None:
            raise TuningError("TuneContext: what is to be tuned?", hint="mod= takes a function or a module")
        self.mod = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        self.target, self.task_name = as_target(target if target is not None else "llvm"), task_name
        self.space_generator = SpaceGenerator.create(space_generator)
        self.search_strategy = SearchStrategy.create(search_strategy)

    @property
    def task(self) -> Task:
        """The AutoTVM task; the space is explored when it is asked for."""
        text = _main(self.mod).script()
        name = f"meta_schedule.{re.sub('[^A-Za-z0-9_]', '_', self.task_name)}.{blake2b(text.encode()).hexdigest()[:12]}"
        register_template(ModuleTemplate(name, self.mod, self.space_generator))
        return create(name, [], self.target)

    def generate_design_space(self) -> list[Schedule]:
        """A schedule of the space."""
        with self.target:
            return self.space_generator.generate_design_space(self.mod)

    def clone(self) -> TuneContext:
        """The same again."""
        return TuneContext(
            self.mod,
            target=self.target,
            space_generator=self.space_generator,
            search_strategy=self.search_strategy,
            task_name=self.task_name,
        )


@boundary("meta_schedule.tune_tasks", arguments=True)
def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float] | None = None,
    work_dir: str = "",
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: object = "local",
    runner: object = "local",
    database: object = "json",
    cost_model: object = "xgb",
    measure_callbacks: object = "default",
    task_scheduler: object = "gradient",
    module_equality: str = "structural",
) -> Database:
    """Measure trials of several tasks, shared by operations and weight; every trial that succeeded is in the database.

    What a configuration costs is learned by AutoTVM's trees whatever `cost_model` says, unless it is "random".
    """
    del num_trials_per_iter, measure_callbacks, task_scheduler, module_equality
    records = Database.create(database, work_dir=work_dir)
    option = measure_option(builder, runner)
    task_list = [context.task for context in tasks]
    searches = [SearchTask(task=task, target=task.target) for task in task_list]
    for context, task, share in zip(
        tasks, task_list, TaskScheduler(searches, task_weights).shares(max_trials_global), strict=True
    ):
        count = min(share, max_trials_per_task or share, len(task.config_space))
        tuner = context.search_strategy.tuner(task, cost_model)
        with context.target:
            tuner.tune(count, option, None, [_recorder(context, task, records)])
    return records


def _recorder(context: TuneContext, task: Task, records: Database) -> Callback:
    """A callback that puts what succeeded into a database."""
    workload = records.commit_workload(context.mod)
    info = ArgInfo.from_entry_func(context.mod)

    def callback(_: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            if not result.error_no:
                trace = task.instantiate(inp.config).trace
                records.commit_tuning_record(TuningRecord(trace, workload, list(result.costs), context.target, info))

    return callback
