"""Spaces, tasks, dispatch contexts.

In: a template and its arguments. Out: a task with a space of configurations, and the configuration that a record or a
fallback gives. Invariant: names are resolved on first use. Where to look next: `task.py`, `space.py`, `dispatcher.py`.
"""

from __future__ import annotations

from armillary.autotvm.task.templates import register_source
from armillary.base.lazy import deferred, imported, lazy_names

with deferred():
    from armillary.autotvm.task import network as _network

_HERE = "armillary.autotvm.task"
_TABLE = {
    **{name: f"{_HERE}.{name}" for name in ("dispatcher", "space", "task", "topi_integration")},
    **{name: f"{_HERE}.task:{name}" for name in ("Task", "args_to_workload", "create", "get_config", "template")},
    **{name: f"{_HERE}.task:{name}" for name in ("deserialize_args", "serialize_args")},
    **{name: f"{_HERE}.space:{name}" for name in ("ConfigEntity", "ConfigSpace", "FallbackConfigEntity")},
    **{name: f"{_HERE}.topi_integration:{name}" for name in ("register_topi_compute", "register_topi_schedule")},
    **{name: f"{_HERE}.network:{name}" for name in ("extract_from_program", "extract_from_multiple_program")},
    "compute_flop": f"{_HERE}.flop:compute_flop",
    "DispatchContext": "armillary.base.dispatch:DispatchContext",
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
register_source(lambda: imported(_network))  # templates of networks
