"""Schedules over blocks: `tir.Schedule(function)` and what its primitives give.

In: a function or module of blocks. Out: see `schedule.py`. Invariant: names are found on first use.
"""

from armillary.base.lazy import lazy_names

_NAMES = ("BlockRV", "LoopRV", "Schedule", "StmtSRef")
_PLACES = {name: f"armillary.tir.schedule.schedule:{name}" for name in _NAMES}
__getattr__, __dir__ = lazy_names(__name__, {**_PLACES, "ScheduleError": "armillary.errors:ScheduleError"})
