"""AutoTVM: templates with knobs, trials on real machines, tuners that choose them, logs that keep them.

In: a template or a network, a target. Out: a log whose best records a build uses under `apply_history_best`. Names are
resolved on first use, as in the other packages that Relay-era scripts know. Where to look next: `task/` (spaces, tasks,
dispatch), `measure/` (builders, runners), `tuner/`, `record.py`. Invariant: a trial costs itself only.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_TASK = "armillary.autotvm.task"
_MEASURE = "armillary.autotvm.measure"
_TABLE = {
    **{
        name: f"armillary.autotvm.{name}"
        for name in ("database", "feature", "graph_tuner", "measure", "record", "task", "tophub", "tuner")
    },
    "callback": "armillary.autotvm.tuner.callback",
    **{name: f"{_TASK}.task:{name}" for name in ("get_config", "template", "Task")},
    **{name: f"{_TASK}.space:{name}" for name in ("ConfigSpace", "ConfigEntity", "FallbackConfigEntity")},
    **{name: f"{_TASK}.topi_integration:{name}" for name in ("register_topi_compute", "register_topi_schedule")},
    **{
        name: f"{_TASK}.dispatcher:{name}"
        for name in (
            "ApplyConfig",
            "ApplyFixedConfig",
            "ApplyGraphBest",
            "ApplyHistoryBest",
            "FallbackContext",
            "apply_graph_best",
            "apply_history_best",
        )
    },
    "DispatchContext": "armillary.base.dispatch:DispatchContext",
    **{
        name: f"{_MEASURE}.measure:{name}"
        for name in ("MeasureErrorNo", "MeasureInput", "MeasureResult", "create_measure_batch")
    },
    "measure_option": f"{_MEASURE}.option:measure_option",
    "LocalBuilder": f"{_MEASURE}.local_builder:LocalBuilder",
    "DaskBuilder": f"{_MEASURE}.dask_builder:DaskBuilder",
    "LocalRunner": f"{_MEASURE}.local_runner:LocalRunner",
    "RPCRunner": f"{_MEASURE}.rpc_runner:RPCRunner",
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
