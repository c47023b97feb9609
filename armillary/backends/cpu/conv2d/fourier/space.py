"""What a convolution by Fourier transforms can choose from: the register tile of its products.

In: a workload whose weight is in the order of the transform, and a `CpuModel`. Out: the tile, the explanation.
Invariant: no tensor expression is imported; schedule.py makes the loops. Estimates: conv2d/fourier/cost.py.
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.fourier.cost import (
    FourierLayer,
    direct_estimate,
    estimate,
    product_nest,
    product_tile,
    product_tiles,
)
from armillary.backends.cpu.cost.model import Tile, ranked_tiles, weight_bandwidth
from armillary.backends.cpu.space import Algorithm, Config, Weighed, agreeing, chosen, tile_config
from armillary.backends.cpu.space import tile_of as tile_of_choice
from armillary.backends.workload import Workload
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel


def layer_of(workload: Workload) -> FourierLayer:
    """The sizes of a convolution by Fourier transforms, from its types."""
    data = workload.tensor(0)
    weight = workload.tensor(1)
    result = workload.result
    batch, chunks, height, width, block = result.static
    return FourierLayer(data.static[1] * data.static[4], chunks, block, batch, height, width, weight.static[3:5])


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [tile_config(tile) for tile in product_tiles(layer_of(workload), cpu)]


def _default(workload: Workload, cpu: CpuModel, config: Config = ()) -> Config:
    layer = layer_of(workload)
    if not config:
        return tile_config(product_tile(layer, cpu)[0])
    ranked = [tile_config(tile) for tile, _ in ranked_tiles(product_nest(layer, cpu), cpu)]
    return agreeing(ranked, config)[0]


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The transforms against the direct convolution."""
    layer, rate = layer_of(workload), weight_bandwidth(cpu)
    mine = estimate(layer, cpu, rate, tile_of_choice(choice))
    return Weighed(Cost(mine.cycles, mine.bound), (direct_estimate(layer, cpu, rate),))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    return "Fourier transforms of 16x16 tiles"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    layer = layer_of(workload)
    return {"width": layer.width, "tiles_together": layer.together}


FOURIER = Algorithm("conv2d.fourier", _space, _default, _weigh, _title, _extents)


def chosen_tile(workload: Workload) -> Tile:
    """The register tile of the products."""
    return tile_of_choice(chosen(workload, FOURIER))
