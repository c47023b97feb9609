"""What a depthwise convolution on blocked layouts can choose from: the register tile.

In: a workload and a `CpuModel`. Out: the sizes that the model of costs asks for, the explanation. Invariant: no tensor
expression is imported; schedule.py makes the loops. Estimates: conv2d/depthwise/cost.py.
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.depthwise.cost import (
    DepthwiseNest,
    choose_depthwise,
    depthwise_estimate,
    depthwise_tiles,
    ranked_depthwise,
)
from armillary.backends.cpu.conv2d.direct.space import IMAGE
from armillary.backends.cpu.cost.model import MAX_OPEN_ROWS, bandwidth_of
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.space import Algorithm, Config, Weighed, agreeing, tile_config, tile_of
from armillary.backends.workload import Workload
from armillary.ops.nn.conv import window
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel


def depthwise_nest(workload: Workload, cpu: CpuModel) -> DepthwiseNest:
    """The sizes that the cost model asks for."""
    data = workload.tensor(0)
    weight = workload.tensor(1)
    result = workload.result
    batch, chunks, height, width, block = result.static
    win, kernel = window(workload.op.name, workload.attrs, 2), (weight.static[2], weight.static[3])
    lanes = lanes_of(cpu, result.dtype)
    moved = data.nbytes + result.nbytes
    met = [
        _met(data.static[2 + a], result.static[2 + a], kernel[a], win.strides[a], win.dilation[a], win.pads[a][0])
        for a in range(2)
    ]
    return DepthwiseNest(
        width,
        batch * chunks * height,
        chunks,
        kernel,
        (met[0], met[1]),
        win.strides[1],
        win.dilation[1],
        wide=max(1, block // lanes),
        is_narrow=2 * block <= lanes,
        moved=moved / bandwidth_of(moved, cpu),
        max_rows=MAX_OPEN_ROWS if workload.named & IMAGE else width,
    )


def _met(size: int, outputs: int, taps: int, stride: int, step: int, before: int) -> float:
    """Taps of a window along one axis that lie on the data, the mean over the outputs."""
    starts = (place * stride - before for place in range(outputs))
    return sum(0 <= start + tap * step < size for start in starts for tap in range(taps)) / outputs


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [tile_config(tile) for tile in dict.fromkeys(depthwise_tiles(depthwise_nest(workload, cpu), cpu))]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    nest = depthwise_nest(workload, cpu)
    best = [choose_depthwise(nest, cpu), *(tile for tile, _ in ranked_depthwise(nest, cpu))]
    return agreeing([tile_config(tile) for tile in best], stated)[0]


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The register tile against the best with other numbers of vectors."""
    nest, tile = depthwise_nest(workload, cpu), tile_of(choice)
    others = {other.vectors: estimate for other, estimate in reversed(ranked_depthwise(nest, cpu))}
    cost = depthwise_estimate(nest, tile, cpu)
    rest = tuple(estimate for vectors, estimate in others.items() if vectors != tile.vectors)
    return Weighed(Cost(cost.cycles, cost.bound), rest)


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"width": depthwise_nest(workload, cpu).width}


DEPTHWISE = Algorithm("conv2d.depthwise", _space, _default, _weigh, lambda *_: "depthwise convolution", _extents)
