"""winograd-conv2d: blocked 3x3 convolutions by Winograd's algorithm, where the cost model says it is faster.

In: a module after alter-op-layout. Out: nn.contrib_conv2d_NCHWc calls with a constant 3x3 float32 kernel, stride 1 and
one group become nn.contrib_conv2d_winograd_NCHWc; their weights go through a transform that fold-constant evaluates.
Invariant: the result agrees with the direct convolution to a few units of its rounding error; tiles above
`relay.WinogradConv2D.max_tile` (default 4; 0 switches the pass off) are never used, since F(6,3) is ten times less
exact.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_winograd_NCHWc(%x, nn.contrib_conv2d_winograd_weight_transform(weight))

The model: cycles = arithmetic / reachable peak + weights read once / bandwidth beyond L2 + transforms per tile.
Measurements and what it leaves out: docs/notes/002-winograd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.walk import not_primitive, rewrite
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass, register_config_option

MAX_TILE = register_config_option(
    "relay.WinogradConv2D.max_tile", int, 4, "largest Winograd tile (2, 4 or 6) the compiler may choose; 0: none"
)
TILES = (2, 4, 6)
EFFICIENCY = 0.86  # of the FMA peak that register-tiled loops reach
BYTES_PER_CYCLE = 4.0  # streaming weights from memory, one core: in a network the last layer has evicted them
TRANSFORM_CYCLES = 7.0  # per vector and point, data and output together


@dataclass(frozen=True)
class Layer:
    """A 3x3 convolution: channels in and out, batch, output height and width."""

    inputs: int
    outputs: int
    batch: int
    height: int
    width: int


@define_pass("winograd-conv2d", opt_level=3)
def winograd_conv2d(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Replace direct convolutions where a Winograd tile is estimated to be faster on the target."""
    limit = PassContext.current().get(MAX_TILE)
    cpu = cpu_model(Target(target if target is not None else Target.current() or "llvm"))

    def rule(expr: Expr) -> Expr | None:
        layer = _eligible(expr)
        tile = best_tile(layer, cpu, limit) if layer is not None else 0
        return _replaced(expr, tile) if tile else None

    return on_functions(module, lambda function: rewrite(function, rule, enter=not_primitive))


def best_tile(layer: Layer, cpu: CpuModel, limit: int) -> int:
    """The tile size with the least estimated time; 0 for the direct convolution."""
    costs = {0: direct_cycles(layer, cpu)}
    costs |= {tile: winograd_cycles(layer, cpu, tile) for tile in TILES if tile <= limit}
    return min(costs, key=lambda tile: costs[tile])


def direct_cycles(layer: Layer, cpu: CpuModel) -> float:
    """Estimated cycles of the direct convolution on one core."""
    weights = 9 * layer.inputs * layer.outputs
    products = weights * layer.batch * layer.height * layer.width
    return products / _products_per_cycle(cpu) + _streaming(4 * weights, cpu)


def winograd_cycles(layer: Layer, cpu: CpuModel, tile: int) -> float:
    """Estimated cycles with F(tile, 3) on one core."""
    points = (tile + 2) ** 2
    tiles = layer.batch * -(-layer.height // tile) * -(-layer.width // tile)
    weights = points * layer.inputs * layer.outputs
    vectors = tiles * (layer.inputs + layer.outputs) / cpu.lanes
    return (
        weights * tiles / _products_per_cycle(cpu)
        + _streaming(4 * weights, cpu)
        + vectors * points * TRANSFORM_CYCLES
    )  # fmt: skip


def _products_per_cycle(cpu: CpuModel) -> float:
    return cpu.lanes * cpu.fma_ports * EFFICIENCY


def _streaming(nbytes: int, cpu: CpuModel) -> float:
    """Cycles to read what does not stay in L2 between its uses."""
    return nbytes / BYTES_PER_CYCLE if nbytes > cpu.l2 / 2 else 0.0


def _eligible(expr: Expr) -> Layer | None:
    if not is_call(expr, "nn.contrib_conv2d_NCHWc"):
        return None
    call: Any = expr  # Any: a Call, as just tested
    weight, attrs, result = tensor(call.args[1]), call.attrs, tensor(call)
    if weight is None or result is None:
        return None
    plain = attrs.groups == 1 and set(attrs.strides) == {1} and set(attrs.dilation) == {1}
    if not plain or weight.shape[2:4] != (3, 3) or result.dtype != "float32" or not _is_constant(call.args[1]):
        return None
    batch, chunks, height, width, block = result.static
    _, i_blocks, _, _, i_block, _ = weight.static
    return Layer(i_blocks * i_block, chunks * block, batch, height, width) if i_block == block else None


def _is_constant(expr: Expr) -> bool:
    """Whether fold-constant will evaluate it: a constant, perhaps behind changes of layout."""
    while is_call(expr, "layout_transform"):
        expr = expr.args[0]  # type: ignore[attr-defined]
    return isinstance(expr, Constant)


def _replaced(expr: Any, tile: int) -> Call:
    data, weight = expr.args
    transformed = get_op("nn.contrib_conv2d_winograd_weight_transform")(weight, tile_size=tile)
    op = get_op("nn.contrib_conv2d_winograd_NCHWc")
    attrs = op.make_attrs(named={"tile_size": tile, "padding": expr.attrs.padding, "channels": expr.attrs.channels})
    return Call(op, (data, transformed), attrs, expr.span)
