"""Schedules over blocks: `tir.Schedule(function)` and what its primitives give.

In: a function or module of blocks. Out: see `schedule.py`. Invariant: names are found on first use.
"""

from armillary.base.lazy import lazy_names

_PLACES = {"Schedule": "schedule", "ScheduleState": "state", "TensorIntrin": "tensorize", "IndexMap": "index_map"}
_PLACES |= dict.fromkeys(("BlockRV", "ExprRV", "LoopRV", "StmtSRef"), "handles")
_PLACES |= dict.fromkeys(("Instruction", "InstructionKind", "Trace"), "trace")
_TABLE = {name: f"armillary.tir.schedule.{place}:{name}" for name, place in _PLACES.items()}
_TABLE["testing"] = f"{__name__}.testing"
__getattr__, __dir__ = lazy_names(__name__, {**_TABLE, "ScheduleError": "armillary.errors:ScheduleError"})
