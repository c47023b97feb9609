"""A depthwise convolution and the 1x1 convolution that reads it, band by band of rows.

In: a fused function with both, as the pass fuse-depthwise makes it. Out: for each band of rows, in one thread, all
channels of the depthwise convolution and of what is elementwise behind it, into memory that stays in L2; then the 1x1
convolution of these rows. Invariant: nothing is computed twice, since a row of the one needs a row of the other; each
part has the register tile it would have alone. How many rows: backends/cpu/conv2d/separable/cost.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.backends.cpu.conv2d.depthwise.schedule import tile_depthwise
from armillary.backends.cpu.conv2d.direct.schedule import direct_compute, tile_lines
from armillary.backends.cpu.conv2d.separable.cost import band_rows
from armillary.backends.cpu.conv2d.separable.space import banded_nest, sizes_of
from armillary.backends.cpu.cost.model import choose_tile
from armillary.backends.cpu.elementwise.default import schedule_injective, schedule_stage
from armillary.backends.cpu.loops import accumulator_of, compute_in_tile, followers, fuse_all
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model


@implement("separable", family="cpu", compute=direct_compute)
def separable(schedule: te.Schedule, fused: Fused) -> None:
    """Both convolutions in bands."""
    (conv,), (depthwise,), (output,) = fused.anchor, fused.inner, fused.outputs
    workload, cpu = fused.workload, cpu_model(fused.workload.target)
    middle = conv.op.input_tensors[0]
    retained = schedule_injective(schedule, fused, stay=[middle])
    behind, after = followers(schedule, depthwise, retained), followers(schedule, conv, retained)
    between = [t for t in behind if t.op not in {a.op for a in (*after, conv, middle, output)}]
    for tensor in retained:
        if tensor.op not in {t.op for t in (*behind, depthwise)}:
            schedule_stage(schedule, tensor, cpu)
    band = _tile_bands(schedule, output, accumulator_of(schedule, conv, output), after, cpu, workload)
    accumulator = accumulator_of(schedule, depthwise, middle)
    at = tile_depthwise(schedule, middle, accumulator, cpu, workload.inner[0], is_shared=False)
    compute_in_tile(schedule, between, schedule[middle], at)
    schedule[middle].compute_at(schedule[output], band)


def _tile_bands(
    schedule: te.Schedule,
    output: te.Tensor,
    accumulator: te.Tensor,
    after: Sequence[te.Tensor],
    cpu: CpuModel,
    workload: Workload,
) -> te.IterVar:
    """Tile the 1x1 convolution in bands, which threads share; gives the loop over them."""
    stage = schedule[output]
    chunk, height, at = tile_lines(schedule, output, accumulator, choose_tile(banded_nest(workload, cpu), cpu))
    compute_in_tile(schedule, [t for t in after if t.op is not output.op], stage, at)
    batch = stage.op.axis[0]
    band, row = stage.split(height, factor=band_rows(sizes_of(workload), cpu))
    stage.reorder(batch, band, chunk, row)
    shared = fuse_all(stage, [batch, band])
    stage.parallel(shared)
    return shared
