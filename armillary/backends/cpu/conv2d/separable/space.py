"""What a depthwise and a 1x1 convolution as one kernel are computed by: the tiles of both, and their explanation.

In: a workload of both. Out: `Separable`, which cost.py decides by; the nest of the 1x1 convolution, the explanation.
Invariant: no tensor expression is imported; schedule.py makes the loops.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.backends.cpu.conv2d.depthwise.cost import choose_depthwise, depthwise_estimate
from armillary.backends.cpu.conv2d.depthwise.space import depthwise_nest
from armillary.backends.cpu.conv2d.direct.space import nest_of
from armillary.backends.cpu.conv2d.separable.cost import Separable, band_rows, separable_of
from armillary.backends.cpu.cost.model import Estimate, Nest, choose_tile, explained, tile_estimate
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model


def sizes_of(workload: Workload) -> Separable:
    """The sizes of a kernel of both."""
    return separable_of(workload.tensor(0), workload.result)


def banded_nest(workload: Workload, cpu: CpuModel) -> Nest:
    """The 1x1 convolution as a product whose blocks need not divide: widths are often powers of two, as 8x3 likes."""
    return replace(nest_of(workload, cpu), has_rest=cpu.fma_ports > 1)


def explain(workload: Workload) -> Explanation:
    """Both tiles, and the sum of what the parts are expected to take; no alternatives: the pass weighed them."""
    cpu = cpu_model(workload.target)
    nest, inner = banded_nest(workload, cpu), depthwise_nest(workload.inner[0], cpu)
    tile, first = choose_tile(nest, cpu), choose_depthwise(inner, cpu)
    parts = depthwise_estimate(inner, first, cpu), tile_estimate(nest, tile, cpu)
    longer = max(parts, key=lambda part: part.cycles)
    name = f"depthwise and 1x1 convolution in bands of {band_rows(sizes_of(workload), cpu)} rows"
    return explained(name, f"{first}, {tile}", [Estimate(name, sum(p.cycles for p in parts), longer.bound)], cpu)
