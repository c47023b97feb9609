"""vision.roi_align by rows of channels: places and weights once for all channels, then sums of vectors of them.

In: a fused function whose anchor pools regions. Out: a copy of the map with the channels last, and a parallel loop over
regions: the places of its samples, then for a block of channels the sums of all cells, which are turned on their way
out. Invariant: where a sample reads depends on nothing that a thread shares with others.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_default, schedule_injective, schedule_stage
from armillary.backends.cpu.elementwise.register_transpose import transpose_at
from armillary.backends.cpu.loops import keeps_shape, static_extent
from armillary.backends.cpu.reduce.rows_across import by_vectors
from armillary.backends.registry import Fused, implement
from armillary.target.cpu import cpu_model

BLOCK = 4  # vectors of channels that share the arithmetic of a place
TAGS = ("roi_place", "roi_weight")


@implement(Candidate("vision.roi_align", "roi_align_rows"), family="cpu")
def roi_align_rows(schedule: te.Schedule, fused: Fused) -> None:
    """Regions by threads, blocks of channels inside."""
    output = fused.outputs[0]
    is_plain = fused.workload.attrs.layout == "NCHW"
    if not is_plain or not keeps_shape(fused) or not any(stage.op.tag == PACKED for stage in schedule.stages):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    lanes = lanes_of(cpu, output.dtype)
    schedule_injective(schedule, fused)
    stages = {tag: [s for s in schedule.stages if s.op.tag == tag] for tag in (*TAGS, "roi_align", PACKED)}
    (cells,), (rows,) = stages["roi_align"], stages[PACKED]
    local = schedule[schedule.cache_write(cells.op.output(0), "local")]
    cells = schedule[cells.op.output(0)]
    tile, stage = schedule[schedule.cache_write(output, "local")], schedule[output]
    region, channels, row, column = stage.op.axis
    blocks, inside = stage.split(channels, factor=min(BLOCK * lanes, static_extent(channels)))
    vectors, channel = stage.split(inside, factor=lanes)
    stage.reorder(region, blocks, row, vectors, channel, column)
    stage.unroll(channel)
    stage.vectorize(column)
    stage.parallel(region)
    transpose_at(tile, stage, vectors)
    cells.compute_at(stage, blocks)
    by_vectors(cells, cells.op.axis[-1], lanes)
    local.compute_at(cells, cells.op.axis[1])
    local.set_scope("local")
    _, place, across = local.op.axis
    local.reorder(place, *local.op.reduce_axis, across)
    for axis in local.op.reduce_axis[2:]:
        local.unroll(axis)
    by_vectors(local, across, lanes)
    for tag in TAGS:
        for spots in stages[tag]:
            spots.compute_root()
            spots.compute_at(stage, region)
    schedule_stage(schedule, rows.op.output(0), cpu)
