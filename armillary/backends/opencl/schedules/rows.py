"""What any fused function gets: one pass over rows where its reductions are of rows, else the default schedule.

In: a TE schedule of a fused function. Out: its loops, or the schedule with loops. Invariant: a reduction of few terms
is left to a work-item, and so are windows, whose neighbours read the same elements.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.graph.apply_records import has_textures
from armillary.backends.opencl.rows.analysis import rows_of
from armillary.backends.opencl.rows.kernel import RowKernel
from armillary.backends.opencl.schedules.default import schedule_default
from armillary.backends.opencl.written.elements import Elements
from armillary.backends.registry import Fused, default_schedule, implement
from armillary.base.extent import typical
from armillary.tir import stmt as S

LEAST_TERMS = 32
WINDOWS = ("conv", "pool", "dilation", "correlation")  # in names of operators
FLOATS = ("float32", "float16", "bfloat16")


@default_schedule("opencl")
@implement("generic_loops", family="opencl")
def schedule_any(schedule: te.Schedule, fused: Fused) -> S.PrimFunc | None:
    """One pass over rows, or the default."""
    loops = by_rows(fused)
    if loops is None:
        schedule_default(schedule, fused)
    return loops


def by_rows(fused: Fused) -> S.PrimFunc | None:
    """The loops of a function whose reductions are all of the same rows; None for others."""
    name = fused.workload.op.name
    if has_textures(fused.workload.target) or ("global" not in name and any(word in name for word in WINDOWS)):
        return None
    if any(str(t.dtype) not in FLOATS for t in fused.outputs):
        return None
    work = rows_of(fused.outputs, frozenset())
    if work is None or typical(work.terms) < LEAST_TERMS:
        return None
    elements = Elements(fused)
    return elements.function(RowKernel(elements, work).body(elements.store))
