"""A depthwise convolution and the 1x1 convolution that reads it, band by band of rows.

In: a fused function with both, as the pass fuse-depthwise makes it. Out: for each band of rows, in one thread, all
channels of the depthwise convolution and of what is elementwise behind it, into memory that stays in L2; then the 1x1
convolution of these rows. Invariant: nothing is computed twice, since a row of the one needs a row of the other; each
part has the register tile it would have alone. How many rows: backends/cpu/conv2d/separable/cost.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary import te
from armillary.backends.cpu.conv2d.depthwise.cost import choose_depthwise, depthwise_estimate
from armillary.backends.cpu.conv2d.depthwise.schedule import tile_depthwise
from armillary.backends.cpu.conv2d.depthwise.space import depthwise_nest
from armillary.backends.cpu.conv2d.direct.schedule import direct_compute, tile_lines
from armillary.backends.cpu.conv2d.direct.space import nest_of
from armillary.backends.cpu.conv2d.separable.cost import Separable, band_rows, separable_of
from armillary.backends.cpu.cost.model import Estimate, Nest, choose_tile, explained, tile_estimate
from armillary.backends.cpu.elementwise.default import schedule_injective, schedule_stage
from armillary.backends.cpu.loops import accumulator_of, compute_in_tile, followers, fuse_all
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model


def explain_separable(workload: Workload) -> Explanation:
    """Both tiles, and the sum of what the parts are expected to take; no alternatives: the pass weighed them."""
    cpu = cpu_model(workload.target)
    nest, inner = _nest(workload, cpu), depthwise_nest(workload.inner[0], cpu)
    tile, first = choose_tile(nest, cpu), choose_depthwise(inner, cpu)
    parts = depthwise_estimate(inner, first, cpu), tile_estimate(nest, tile, cpu)
    longer = max(parts, key=lambda part: part.cycles)
    name = f"depthwise and 1x1 convolution in bands of {band_rows(_sizes(workload), cpu)} rows"
    return explained(name, f"{first}, {tile}", [Estimate(name, sum(p.cycles for p in parts), longer.bound)], cpu)


@implement(
    "nn.contrib_depthwise_conv2d_NCHWc + nn.contrib_conv2d_NCHWc",
    family="cpu",
    name="separable",
    sizes="any",
    compute=direct_compute,
    explain=explain_separable,
)
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
    chunk, height, at = tile_lines(schedule, output, accumulator, choose_tile(_nest(workload, cpu), cpu))
    compute_in_tile(schedule, [t for t in after if t.op is not output.op], stage, at)
    batch = stage.op.axis[0]
    band, row = stage.split(height, factor=band_rows(_sizes(workload), cpu))
    stage.reorder(batch, band, chunk, row)
    shared = fuse_all(stage, [batch, band])
    stage.parallel(shared)
    return shared


def _nest(workload: Workload, cpu: CpuModel) -> Nest:
    """The 1x1 convolution as a product whose blocks need not divide: widths are often powers of two, as 8x3 likes."""
    return replace(nest_of(workload, cpu), has_rest=cpu.fma_ports > 1)


def _sizes(workload: Workload) -> Separable:
    data = workload.tensor(0)
    result = workload.result
    return separable_of(data, result)
