"""What a Winograd convolution can choose from: strips or phases, and the register tile of its products.

In: a workload whose weight is transformed, and a `CpuModel`. Out: form and tile, the explanation. Invariant: no tensor
expression is imported; schedule.py makes the loops. Estimates: conv2d/winograd/cost.py.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.backends.cpu.conv2d.direct.space import IMAGE
from armillary.backends.cpu.conv2d.winograd.cost import (
    TILES,
    Layer,
    Plan,
    best_plan,
    estimate,
    plans,
    product_nest,
)
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.cpu.cost.model import MAX_OPEN_ROWS, Estimate, Nest, Tile, tiles, weight_bandwidth
from armillary.backends.cpu.space import (
    Algorithm,
    Config,
    Weighed,
    best_tile_config,
    chosen,
    tile_config,
    tile_of,
)
from armillary.backends.workload import Workload
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel


def layer_of_call(workload: Workload) -> Layer:
    """The sizes that the model of costs asks for."""
    data = workload.tensor(0)
    result = workload.result
    return layer_of(workload.attrs, data, result)


def _plan(choice: Choice) -> Plan:
    return Plan(choice.knob("tile"), choice.knob("strip"))


def _config(plan: Plan, tile: Tile) -> Config:
    return (("tile", plan.tile), ("strip", plan.strip), *tile_config(tile))


def _nest(workload: Workload, plan: Plan, cpu: CpuModel) -> Nest:
    layer = layer_of_call(workload)
    nest = product_nest(layer, plan, cpu, weight_bandwidth(cpu))
    if not workload.named & IMAGE:
        return nest
    if not plan.strip:  # all tiles are one line
        nest = replace(nest, width=layer.tiles(plan.tile), lines=1, lines_per_image=1)
    return replace(nest, max_rows=MAX_OPEN_ROWS)


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    layer = layer_of_call(workload)
    forms = plans(layer, workload.attrs.tile_size)
    return [_config(plan, tile) for plan in forms for tile in dict.fromkeys(tiles(_nest(workload, plan, cpu), cpu))]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    layer, size = layer_of_call(workload), workload.attrs.tile_size
    strip = Choice(config=stated).knob("strip")
    plan = Plan(size, strip) if strip >= 0 else best_plan(layer, size, cpu)
    nest = _nest(workload, plan, cpu)
    wanted = tuple(knob for knob in stated if knob[0] not in ("tile", "strip"))
    return (("tile", size), ("strip", plan.strip), *best_tile_config(nest, cpu, wanted))


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The form against the others, other tile sizes and the direct convolution, if nothing was selected before."""
    if choice.estimate is not None:
        return Weighed(choice.estimate)
    layer, plan = layer_of_call(workload), _plan(choice)
    mine = estimate(layer, plan, cpu)
    weighed = [p for m in TILES if m <= max(4, plan.tile) for p in plans(layer, m) if p != plan]
    others: list[Estimate] = [estimate(layer, p, cpu) for p in (Plan(0), *weighed)]
    return Weighed(Cost(mine.cycles, mine.bound), tuple(others))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    return f"Winograd {_plan(Choice(config=config))}"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    layer, size = layer_of_call(workload), workload.attrs.tile_size
    return {"width": layer.width, "tiles_of_a_row": layer.tiles_across(size)}


WINOGRAD = Algorithm("conv2d.winograd", _space, _default, _weigh, _title, _extents)


def chosen_form(workload: Workload) -> tuple[Plan, Tile]:
    """The form and the register tile of the products."""
    choice = chosen(workload, WINOGRAD)
    return _plan(choice), tile_of(choice)
