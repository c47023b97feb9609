"""A convolution and the pooling that reads it, band by band of rows.

In: a fused function with both, as the pass fuse-pool makes it. Out: for each band of pooled rows and each group of
channel blocks, in one thread, the rows of the convolution that its windows reach and what is elementwise behind it,
into memory that stays in L2; then the windows. Invariant: rows that the windows of two bands share are computed for
each of them; each part has the register tile it would have alone. How many rows: backends/cpu/conv2d/pooled/cost.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from armillary import te
from armillary.backends.cpu.conv2d.direct.schedule import tile_lines
from armillary.backends.cpu.conv2d.pooled.cost import Pooled, band_rows
from armillary.backends.cpu.conv2d.pooled.space import banded_nest, sizes_of
from armillary.backends.cpu.cost.model import choose_tile
from armillary.backends.cpu.elementwise.default import schedule_injective, schedule_stage
from armillary.backends.cpu.loops import accumulator_of, compute_in_tile, followers, fuse_all
from armillary.backends.cpu.pool.blocked import pool_compute, tile_windows
from armillary.backends.registry import Fused, implement
from armillary.target.cpu import CpuModel, cpu_model


@implement("conv_mean", family="cpu", compute=partial(pool_compute, "nn.avg_pool2d"))
@implement("conv_max", family="cpu", compute=partial(pool_compute, "nn.max_pool2d"))
def pooled(schedule: te.Schedule, fused: Fused) -> None:
    """Both in bands."""
    (conv,), (output,) = fused.inner, fused.outputs
    workload, cpu = fused.workload, cpu_model(fused.workload.target)
    windows = next(s.op.output(0) for s in schedule.stages if s.op.name == "pool_windows")
    middle = windows.op.input_tensors[0]
    retained = schedule_injective(schedule, fused, stay=[middle])
    after = [t for t in followers(schedule, windows, retained) if t.op is not output.op]
    apart = {t.op for t in (*after, windows, middle, output)}
    between = [t for t in followers(schedule, conv, retained) if t.op not in apart]
    for tensor in retained:
        if tensor.op is not conv.op and tensor.op not in apart | {t.op for t in between}:
            schedule_stage(schedule, tensor, cpu)
    sums = accumulator_of(schedule, conv, middle)
    band = _tile_bands(schedule, output, accumulator_of(schedule, windows, output), after, sizes_of(workload), cpu)
    *_, at = tile_lines(schedule, middle, sums, choose_tile(banded_nest(workload, cpu), cpu))
    compute_in_tile(schedule, between, schedule[middle], at)
    schedule[middle].compute_at(schedule[output], band)


def _tile_bands(
    schedule: te.Schedule,
    output: te.Tensor,
    windows: te.Tensor,
    after: Sequence[te.Tensor],
    sizes: Pooled,
    cpu: CpuModel,
) -> te.IterVar:
    """Tile the pooling in bands, which threads share; gives the loop over them."""
    stage = schedule[output]
    batch, chunk, height, *_ = stage.op.axis
    columns = tile_windows(schedule, output, windows, after)
    group, chunk = stage.split(chunk, factor=sizes.group)
    band, row = stage.split(height, factor=band_rows(sizes, cpu))
    stage.reorder(batch, band, group, chunk, row, columns)  # a thread has rows: the next layer reads where it wrote
    at = fuse_all(stage, [batch, band, group])
    stage.parallel(at)
    return at
