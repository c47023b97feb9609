"""argsort, sort and topk on GPUs: a work-item for each row.

In: the schedule of a fused argsort, sort or topk. Out: that of the default, of loops over rows. Invariant: the order of
ops/reduce/sort.py, without its way for many short rows, where a vector holds one element of each: that code is as long
as the square of what is kept, and drivers compile it for minutes, while a GPU has a work-item for each row anyway.
"""

from __future__ import annotations

from functools import partial

from armillary.backends.candidate import Candidate
from armillary.backends.opencl.schedules.default import schedule_default
from armillary.backends.registry import implement
from armillary.ops.reduce.sort import argsort_compute, sort_compute, topk_compute

for _name, _compute in (("argsort", argsort_compute), ("sort", sort_compute), ("topk", topk_compute)):
    _candidate = Candidate(_name, f"{_name}_by_rows")
    implement(_candidate, family="opencl", compute=partial(_compute, by_lanes=False))(schedule_default)
