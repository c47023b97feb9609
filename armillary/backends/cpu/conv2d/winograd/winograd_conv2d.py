"""winograd-conv2d: blocked 3x3 convolutions by Winograd's algorithm, where the cost model says it is faster.

In: a module after alter-op-layout. Out: nn.contrib_conv2d_NCHWc calls with a constant 3x3 float32 kernel, stride 1, any
dilation and groups of whole blocks become cpu.conv2d_winograd_NCHWc; their weights go through a transform that
runs when they are loaded. Invariant: the result agrees with the direct convolution to a few units of its rounding
error; tiles above `relay.WinogradConv2D.max_tile` (default 4; 0 switches the pass off) are never used, since F(6,3) is
ten times less exact.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    cpu.conv2d_winograd_NCHWc(%x, cpu.conv2d_winograd_weight_transform(weight))

Over open sizes the direct convolution stays beside it, for images of few pixels (operator_by_size.py). The model:
backends/cpu/conv2d/winograd/cost.py. Measurements: docs/decisions/winograd.md, docs/decisions/cost-model.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

from armillary.backends.cpu.conv2d.winograd.cost import (
    FORCED_WINOGRAD,
    TILES,
    Layer,
    Plan,
    best_plan,
    estimate,
    estimate_open_direct,
    plans,
    ranked_plans,
)
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.cpu.space import MOST_REJECTED
from armillary.backends.winograd import MAX_TILE, is_constant, is_whole
from armillary.base.extent import bounds
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, shape_of, typical_of
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, Cost, Rejection, stored_choice
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass

WINOGRAD, TRANSFORMED, BY_SIZE = "conv2d.winograd", "cpu.conv2d_winograd_NCHWc", "cpu.conv2d_by_size_NCHWc"
WORTH = 1.1  # times faster must the direct convolution be where it stands beside the transforms
SHOWN_TILE = 4  # the largest of a transform that is weighed even where it is not allowed


@define_pass("winograd-conv2d", opt_level=3)
def winograd_conv2d(module: IRModule, *, target: object = None) -> IRModule:  # whatever Target accepts
    """Replace direct convolutions where a Winograd tile is estimated to be faster on the target."""
    limit, forced = PassContext.current().get(MAX_TILE), PassContext.current().get(FORCED_WINOGRAD)
    cpu = cpu_model(Target(target if target is not None else Target.current() or "llvm"))

    def change(function: Function) -> Expr:
        network = sum(e.nbytes for e in post_order(function, not_primitive) if isinstance(e, Constant))

        def rule(expr: Expr) -> Expr | None:
            layer, stored = eligible(expr), stored_choice(expr)
            if stored.algorithm == WINOGRAD and isinstance(expr, Call):
                _check(stored, layer, limit)
                return _replaced(expr, stored, _fewest_pixels(expr, layer, stored, cpu, network))
            if stored or layer is None or not isinstance(expr, Call):
                return None
            choice = select(layer, cpu, limit, forced, network)
            if choice.algorithm != WINOGRAD:
                return with_choice(expr, choice)
            return _replaced(expr, choice, _fewest_pixels(expr, layer, choice, cpu, network))

        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change)


def select(layer: Layer, cpu: CpuModel, limit: int, forced: int = -1, network: int = 0) -> Choice:
    """Direct or Winograd's algorithm with a form, and what the others were estimated at.

    `limit`: the largest tile; `forced`: a tile, 0 for the direct convolution; `network`: bytes of all parameters.
    """
    ranked = ranked_plans(layer, cpu, limit, network)
    shown = ranked_plans(layer, cpu, SHOWN_TILE, network) if limit < SHOWN_TILE else ranked
    plan = ranked[0][0] if forced < 0 else best_plan(layer, forced, cpu, network) if forced else Plan(0)
    cycles = estimate(layer, plan, cpu, network)
    forms = {p: estimate(layer, p, cpu, network) for p in (plans(layer, plan.tile) if plan.tile else ())}
    others = {**forms, **dict(shown), Plan(0): estimate(layer, Plan(0), cpu, network)}
    rejected = tuple(Rejection(other.name, other.cycles) for p, other in others.items() if p != plan)
    rejected = tuple(sorted(rejected, key=lambda r: r.cycles)[:MOST_REJECTED])
    cost = Cost(cycles.cycles, cycles.bound)
    if not plan.tile:
        return Choice("conv2d.direct", estimate=cost, rejected=rejected)
    return Choice(WINOGRAD, (("tile", plan.tile), ("strip", plan.strip)), estimate=cost, rejected=rejected)


def with_choice(expr: Call, choice: Choice) -> Call:
    """The call, carrying a choice."""
    return Call(expr.op, expr.args, replace(expr.attrs, choice=str(choice)), expr.span)


def _check(stored: Choice, layer: Layer | None, limit: int) -> None:
    message, tile = "", stored.knob("tile")
    if layer is None:
        message = "it is none that Winograd's algorithm can compute"
    elif tile > limit:
        message = f"{MAX_TILE.name} is {limit}"
    elif tile not in TILES:
        message = f"its tile is one of {TILES}"
    if message:
        shown = f"{stored.algorithm} tile={tile}"
        raise ConfigError(
            f"the choice {shown} does not fit a convolution: {message}", hint="tune again, or take another choice"
        )


def eligible(expr: Expr) -> Layer | None:
    """The sizes of a convolution that Winograd's algorithm can compute; None for others."""
    if not is_call(expr, "nn.contrib_conv2d_NCHWc"):
        return None
    (data, weight), attrs, result = map(typical_of, expr.args), expr.attrs, typical_of(expr)
    if data is None or weight is None or result is None:
        return None
    if set(attrs.strides) != {1} or weight.shape[2:4] != (3, 3):
        return None
    if {str(t.dtype) for t in (data, weight, result)} != {
        "float32"
    }:  # float16 (strict) would be lost in the transforms
        return None
    if not is_constant(expr.args[1]) or is_whole(expr.args[1]):
        return None
    return layer_of(attrs, data, result) if weight.static[4] == result.static[4] else None


def _fewest_pixels(expr: Call, layer: Layer | None, choice: Choice, cpu: CpuModel, network: int) -> int:
    """Output pixels of all images from which the transforms are expected to pay; 0 where no fewer can be met."""
    shape = shape_of(expr)
    assert layer is not None and shape is not None, "it is one that Winograd's algorithm can compute"
    pixels = shape[0] * shape[2] * shape[3]
    if isinstance(pixels, int):
        return 0
    plan = Plan(choice.knob("tile"), choice.knob("strip", 0))
    last = 0  # the side of the largest image that takes less time directly
    for side in range(1, math.isqrt(layer.batch * layer.height * layer.width) + 1):
        small = replace(layer, batch=1, height=side, width=side)
        if WORTH * estimate_open_direct(small, cpu, network).cycles < estimate(small, plan, cpu, network).cycles:
            last = side
    fewest = last * (last + 1) + 1
    return fewest if last and bounds(pixels)[0] < fewest else 0


def _replaced(expr: Call, choice: Choice, fewest: int) -> Call:
    (data, weight), tile = expr.args, choice.knob("tile")
    choice = replace(
        choice,
        layouts=(expr.attrs.data_layout, expr.attrs.kernel_layout, expr.attrs.out_layout or expr.attrs.data_layout),
    )
    transformed = get_op("cpu.conv2d_winograd_weight_transform")(weight, tile_size=tile)
    retained = {name: getattr(expr.attrs, name) for name in ("padding", "channels", "dilation", "groups")}
    retained |= {"tile_size": tile, "choice": str(choice)}
    if not fewest:
        op = get_op(TRANSFORMED)
        return Call(op, (data, transformed), op.make_attrs(named=retained), expr.span)
    op = get_op(BY_SIZE)
    layouts = {name: getattr(expr.attrs, name) for name in ("data_layout", "kernel_layout", "out_layout")}
    attrs = op.make_attrs(named={"fewest": fewest, **retained, **layouts})
    return Call(op, (data, weight, transformed), attrs, expr.span)
