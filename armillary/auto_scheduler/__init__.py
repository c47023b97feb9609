"""Tuning of tensor expressions without a template: `auto_scheduler.SearchTask(func=…, args=…, target=…)`.

In: a function that gives tensors, or a network. Out: a log of trials, and the schedule of the best one. Invariant: a
task is one of AutoTVM's, whose template is drawn from the expression (`sketch.py`) or is the network's own; tuners,
cost models, builders, runners and the form of records are AutoTVM's. Where to look next: `task.py`, `search.py`.
"""

from armillary.base.lazy import lazy_names

_TASK = (
    "ComputeDAG",
    "SearchTask",
    "extract_tasks",
    "make_workload_key",
    "register_workload",
)
_SEARCH = (
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "EmptyPolicy",
    "HardwareParams",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "PreloadMeasuredStates",
    "RPCRunner",
    "RandomModel",
    "RecordReader",
    "RecordToFile",
    "SketchPolicy",
    "TaskScheduler",
    "TuningOptions",
    "XGBModel",
    "auto_schedule",
    "create_task",
    "load_best_record",
    "load_records",
)
_TABLE = {name: f"armillary.auto_scheduler.task:{name}" for name in _TASK}
_TABLE |= {name: f"armillary.auto_scheduler.search:{name}" for name in _SEARCH}
__getattr__, __dir__ = lazy_names(__name__, _TABLE)
