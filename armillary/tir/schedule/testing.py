"""Checks of schedules, by the names of scripts.

In: schedules, functions. Out: nothing, or an error. Invariant: functions are compared up to names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from armillary.errors import ScheduleError
from armillary.ir import IRModule, assert_structural_equal
from armillary.tir import stmt as S
from armillary.tir.schedule.schedule import Schedule
from armillary.tir.schedule.trace import Trace


def assert_structural_equal_ignore_global_symbol(
    func1: S.PrimFunc, func2: S.PrimFunc, *args: object, **kwargs: object
) -> None:
    """Raise unless two functions are the same program, whatever their symbols."""
    del args, kwargs  # how a difference is shown
    assert_structural_equal(func1.without_attr("global_symbol"), func2.without_attr("global_symbol"))


def verify_trace_roundtrip(
    sch: Schedule, mod: S.PrimFunc | IRModule, *, debug_mask: object = "all", text_format: str | Sequence[str] = "json"
) -> Schedule:
    """A schedule of the module that the trace of another, as JSON, makes; ScheduleError where they differ."""
    del debug_mask
    other = Schedule(mod)
    texts = (text_format,) if isinstance(text_format, str) else text_format
    if "json" in texts:
        Trace.apply_json_to_schedule(json.loads(json.dumps(sch.trace.as_json())), other)
    else:
        sch.trace.apply_to_schedule(other)
    if str(other.mod) != str(sch.mod):
        raise ScheduleError("verify_trace_roundtrip: the trace makes another module")
    return other
