"""image.grid_sample by rows of channels: what a place needs is found once, and every channel is read with it.

In: a fused function whose anchor samples float32 images, of which enough is read that a copy with the channels last
pays. Out: that copy, then a parallel loop over vectors of outputs; inside it their places and weights, then tiles that
are computed as vectors of channels and transposed in registers. Invariant: what lies outside the image is a row of
zeros, so nothing is guarded. Few channels or few places: the operator's own compute, read where they lie.
"""

from __future__ import annotations

import math

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.access import MIN_EXTENT
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import (
    MIN_PARALLEL,
    PACKED,
    schedule_default,
    schedule_injective,
    schedule_stage,
)
from armillary.backends.cpu.elementwise.register_transpose import transpose_at
from armillary.backends.cpu.loops import fuse_all, keeps_shape, static_extent
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops.nn.grid_sample import sampled_rows, spots_of
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model

COPY = 4  # elements that are copied in the time one is sampled by guarded reads
TAGS = ("grid_place", "grid_weight")


def _pays(workload: Workload) -> str | None:
    data, grid = workload.types
    if not isinstance(data, TensorType) or not isinstance(grid, TensorType) or str(data.dtype) != "float32":
        return "only images of float32 are copied"
    if data.static[1] < MIN_EXTENT:
        return f"{data.static[1]} channels are too few for rows of them"
    elements, places = math.prod(data.static[2:]), math.prod(spots_of(workload.attrs, grid.static)[1:])
    return None if COPY * places >= elements else f"{places} places in {elements} elements do not pay for a copy"


@implement(Candidate("image.grid_sample", "grid_sample_rows", _pays), family="cpu", compute=sampled_rows)
def grid_sample_rows(schedule: te.Schedule, fused: Fused) -> None:
    """Tiles of channels by outputs, at a loop over vectors of outputs."""
    output = fused.outputs[0]
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    cpu = cpu_model(fused.workload.target)
    lanes = lanes_of(cpu, output.dtype)
    retained = {t.op for t in schedule_injective(schedule, fused)}
    for stage in schedule.stages:
        if stage.op.tag in TAGS:
            stage.compute_root()
        elif stage.op in retained and stage.op is not output.op and stage.op.tag != PACKED:
            stage.compute_inline()
    stage = schedule[output]
    batch, channels, *lines, places = stage.op.axis
    work = math.prod(map(static_extent, stage.op.axis))
    is_transposed = static_extent(channels) >= MIN_EXTENT
    local = schedule.cache_write(output, "local") if is_transposed else None
    blocks, channel = stage.split(channels, factor=lanes)
    vectors, place = stage.split(places, factor=lanes)
    stage.reorder(batch, *lines, vectors, blocks, channel, place)
    stage.vectorize(place)
    if local is not None:
        stage.unroll(channel)
        transpose_at(schedule[local], stage, blocks)
    at = fuse_all(stage, [batch, *lines, vectors])
    if work >= MIN_PARALLEL:
        stage.parallel(at)
    for spots in (s for s in schedule.stages if s.op.tag in TAGS):
        spots.compute_at(stage, at)
        spots.vectorize(spots.op.axis[-1])
    (rows,) = (s.op.output(0) for s in schedule.stages if s.op.tag == PACKED)
    schedule_stage(schedule, rows, cpu)
