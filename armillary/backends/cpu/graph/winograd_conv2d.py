"""winograd-conv2d: blocked 3x3 convolutions by Winograd's algorithm, where the cost model says it is faster.

In: a module after alter-op-layout. Out: nn.contrib_conv2d_NCHWc calls with a constant 3x3 float32 kernel, stride 1, any
dilation and groups of whole blocks become nn.contrib_conv2d_winograd_NCHWc; their weights go through a transform that
runs when they are loaded. Invariant: the result agrees with the direct convolution to a few units of its rounding
error; tiles above `relay.WinogradConv2D.max_tile` (default 4; 0 switches the pass off) are never used, since F(6,3) is
ten times less exact.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_winograd_NCHWc(%x, nn.contrib_conv2d_winograd_weight_transform(weight))

The model: backends/cpu/conv2d/winograd/cost.py. Measurements: docs/notes/002-winograd.md, docs/notes/007-cost-model.md.
"""

from __future__ import annotations

from typing import Any

from armillary.backends.cpu.conv2d.winograd.cost import FORCED_WINOGRAD, Layer, ranked_plans
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.winograd import MAX_TILE, is_constant, is_whole
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, stored_choice
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass


@define_pass("winograd-conv2d", opt_level=3)
def winograd_conv2d(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Replace direct convolutions where a Winograd tile is estimated to be faster on the target."""
    limit, forced = PassContext.current().get(MAX_TILE), PassContext.current().get(FORCED_WINOGRAD)
    cpu = cpu_model(Target(target if target is not None else Target.current() or "llvm"))

    def change(function: Function) -> Expr:
        network = sum(e.nbytes for e in post_order(function, not_primitive) if isinstance(e, Constant))

        def rule(expr: Expr) -> Expr | None:
            layer = eligible(expr)
            stored = stored_choice(expr)
            if stored.winograd >= 0:
                _check(stored, layer, limit)
                return _replaced(expr, stored.winograd) if stored.winograd else None
            tile = 0 if layer is None else forced if forced >= 0 else best_tile(layer, cpu, limit, network)
            return _replaced(expr, tile) if tile else None

        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change)


def best_tile(layer: Layer, cpu: CpuModel, limit: int, network: int = 0) -> int:
    """The tile size with the least estimated time, 0 for the direct convolution; `network`: bytes of all parameters."""
    return ranked_plans(layer, cpu, limit, network)[0][0].tile


def _check(stored: Choice, layer: Layer | None, limit: int) -> None:
    told = "it is none that Winograd's algorithm can compute" if layer is None else ""
    if stored.winograd > limit:
        told = f"{MAX_TILE.name} is {limit}"
    if stored.winograd and told:
        raise ConfigError(f"the stored choice {str(stored)!r} does not fit a convolution: {told}", hint="tune again")


def eligible(expr: Expr) -> Layer | None:
    """The sizes of a convolution that Winograd's algorithm can compute; None for others."""
    if not is_call(expr, "nn.contrib_conv2d_NCHWc"):
        return None
    call: Any = expr  # Any: a Call, as just tested
    (data, weight), attrs, result = map(tensor, call.args), call.attrs, tensor(call)
    if data is None or weight is None or result is None:
        return None
    if set(attrs.strides) != {1} or weight.shape[2:4] != (3, 3):
        return None
    if {str(t.dtype) for t in (data, weight, result)} != {"float32"}:  # halves (strict ones) are lost in the transforms
        return None
    if not is_constant(call.args[1]) or is_whole(call.args[1]):
        return None
    return layer_of(attrs, data, result) if weight.static[4] == result.static[4] else None


def _replaced(expr: Any, tile: int) -> Call:
    data, weight = expr.args
    transformed = get_op("nn.contrib_conv2d_winograd_weight_transform")(weight, tile_size=tile)
    op = get_op("nn.contrib_conv2d_winograd_NCHWc")
    kept = {name: getattr(expr.attrs, name) for name in ("padding", "channels", "dilation", "groups", "choice")}
    attrs = op.make_attrs(named={"tile_size": tile, **kept})
    return Call(op, (data, transformed), attrs, expr.span)
