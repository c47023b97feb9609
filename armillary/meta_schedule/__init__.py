"""Tuning of loop programs: a space of schedules, searched by AutoTVM's tuners; the best ones stand in a database.

    database = meta_schedule.tune_tir(function, "llvm", work_dir="tuned", max_trials_global=32)
    schedule = meta_schedule.tir_integration.compile_tir(database, function, "llvm")
    library = armillary.build(schedule.mod, target="llvm")

In: functions of blocks, or a network. Out: traces of schedules with their times. Invariant: what is drawn while a space
is described (`sample_perfect_tile` …) is a knob of an AutoTVM task; trees that learn, builders, runners and checks are
AutoTVM's, and a network's tasks are those of `auto_scheduler`. Where to look next: `space.py`, `tune.py`, `database/`.
"""

from armillary.base.lazy import lazy_names

_MODULES = (
    "arg_info builder cost_model database postproc relay_integration runner schedule_rule search_strategy "
    "space_generator tir_integration mutator measure_callback task_scheduler"
)
_NAMES = {
    "arg_info": "ArgInfo TensorInfo",
    "builder": "Builder",
    "cost_model": "CostModel",
    "database": "Database TuningRecord Workload",
    "relay_integration": "ApplyHistoryBest ExtractedTask is_meta_schedule_enabled",
    "runner": "EvaluatorConfig RPCConfig Runner",
    "schedule_rule": "Mutator Postproc ScheduleRule",
    "search_strategy": "SearchStrategy",
    "space_generator": "SpaceGenerator",
    "tir_integration": "compile_tir tune_tir",
    "tune": "TuneContext tune_tasks",
}
_TABLE = {name: f"{__name__}.{name}" for name in _MODULES.split()}
_TABLE |= dict.fromkeys(("postproc", "mutator", "measure_callback", "task_scheduler"), f"{__name__}.schedule_rule")
_TABLE |= {name: f"{__name__}.{module}:{name}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _TABLE)
