"""Builders and runners: who compiles trials, who runs and times them.

In: configurations of a task. Out: seconds, or errors with their text. Invariant: names are resolved on first use.
Where to look next: `measure.py` (what a trial is), `local_builder.py`, `local_runner.py`.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_HERE = "armillary.autotvm.measure"
_NAMES = (
    "BuildResult",
    "Builder",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "Runner",
    "create_measure_batch",
)
_TABLE = {name: f"{_HERE}.measure:{name}" for name in _NAMES} | {
    "LocalBuilder": f"{_HERE}.local_builder:LocalBuilder",
    "LocalRunner": f"{_HERE}.local_runner:LocalRunner",
    "measure_option": f"{_HERE}.option:measure_option",
    "RPCRunner": f"{_HERE}.rpc_runner:RPCRunner",
    "request_remote": f"{_HERE}.rpc_runner:request_remote",
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
