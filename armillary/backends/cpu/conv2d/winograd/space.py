"""What a Winograd convolution can choose from: strips or phases, and the register tile of its products.

In: a workload whose weight is transformed, and a `CpuModel`. Out: form and tile, the explanation. Invariant: no tensor
expression is imported; schedule.py makes the loops. Estimates: conv2d/winograd/cost.py.
"""

from __future__ import annotations

from typing import Any

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
from armillary.backends.cpu.cost.model import Estimate, Tile, choose_tile, explained, far_weights
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model


def layer_of_call(workload: Workload) -> Layer:
    """The sizes that the model of costs asks for."""
    data: Any = workload.types[0]  # Any: tensor types, as inference has checked
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    return layer_of(workload.attrs, data, result)


def chosen(workload: Workload, cpu: CpuModel) -> tuple[Plan, Tile]:
    """The form and the register tile of the products."""
    layer = layer_of_call(workload)
    plan = best_plan(layer, workload.attrs.tile_size, cpu)
    return plan, choose_tile(product_nest(layer, plan, cpu, far_weights(cpu)), cpu)


def explain_winograd(workload: Workload) -> Explanation:
    """The form against the other forms, the other tile sizes and the direct convolution."""
    cpu, layer = cpu_model(workload.target), layer_of_call(workload)
    plan, tile = chosen(workload, cpu)
    mine = estimate(layer, plan, cpu)
    weighed = [p for m in TILES if m <= max(4, plan.tile) for p in plans(layer, m) if p != plan]
    others: list[Estimate] = [estimate(layer, p, cpu) for p in (Plan(0), *weighed)]
    return explained(f"Winograd {plan}", f"{tile}", [mine, *others], cpu)
