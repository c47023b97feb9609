"""winograd-conv2d: blocked 3x3 convolutions by Winograd's algorithm, where the cost model says it is faster.

In: a module after alter-op-layout. Out: nn.contrib_conv2d_NCHWc calls with a constant 3x3 float32 kernel, stride 1, any
dilation and groups of whole blocks become cpu.conv2d_winograd_NCHWc; their weights go through a transform that
runs when they are loaded. Invariant: the result agrees with the direct convolution to a few units of its rounding
error; tiles above `relay.WinogradConv2D.max_tile` (default 4; 0 switches the pass off) are never used, since F(6,3) is
ten times less exact.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    cpu.conv2d_winograd_NCHWc(%x, cpu.conv2d_winograd_weight_transform(weight))

The model: backends/cpu/conv2d/winograd/cost.py. Measurements: docs/decisions/winograd.md, docs/decisions/cost-model.md.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.backends.cpu.conv2d.winograd.cost import (
    FORCED_WINOGRAD,
    TILES,
    Layer,
    Plan,
    best_plan,
    estimate,
    plans,
    ranked_plans,
)
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.cpu.space import MOST_REJECTED
from armillary.backends.winograd import MAX_TILE, is_constant, is_whole
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, typical_of
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, Cost, Rejection, stored_choice
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass

WINOGRAD, TRANSFORMED = "conv2d.winograd", "cpu.conv2d_winograd_NCHWc"
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
                return _replaced(expr, stored)
            if stored or layer is None or not isinstance(expr, Call):
                return None
            choice = select(layer, cpu, limit, forced, network)
            return _replaced(expr, choice) if choice.algorithm == WINOGRAD else with_choice(expr, choice)

        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change)


def select(layer: Layer, cpu: CpuModel, limit: int, forced: int = -1, network: int = 0) -> Choice:
    """Direct or Winograd's algorithm with a form, and what the others were estimated at.

    `limit`: the largest tile; `forced`: a tile, 0 for the direct convolution; `network`: bytes of all parameters.
    """
    ranked = ranked_plans(layer, cpu, limit, network)
    shown = ranked_plans(layer, cpu, SHOWN_TILE, network) if limit < SHOWN_TILE else ranked
    plan = ranked[0][0] if forced < 0 else best_plan(layer, forced, cpu, network) if forced else Plan(0)
    found = estimate(layer, plan, cpu, network)
    forms = {p: estimate(layer, p, cpu, network) for p in (plans(layer, plan.tile) if plan.tile else ())}
    others = {**forms, **dict(shown), Plan(0): estimate(layer, Plan(0), cpu, network)}
    rejected = tuple(Rejection(other.name, other.cycles) for p, other in others.items() if p != plan)
    rejected = tuple(sorted(rejected, key=lambda r: r.cycles)[:MOST_REJECTED])
    cost = Cost(found.cycles, found.bound)
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


def _replaced(expr: Call, choice: Choice) -> Call:
    (data, weight), tile = expr.args, choice.knob("tile")
    choice = replace(
        choice,
        layouts=(expr.attrs.data_layout, expr.attrs.kernel_layout, expr.attrs.out_layout or expr.attrs.data_layout),
    )
    transformed = get_op("cpu.conv2d_winograd_weight_transform")(weight, tile_size=tile)
    op = get_op(TRANSFORMED)
    retained = {name: getattr(expr.attrs, name) for name in ("padding", "channels", "dilation", "groups")}
    attrs = op.make_attrs(named={"tile_size": tile, **retained, "choice": str(choice)})
    return Call(op, (data, transformed), attrs, expr.span)
