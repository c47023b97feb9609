"""opencl-winograd-conv2d: 3x3 convolutions by Winograd's algorithm, where the model of costs says it is faster.

In: a module with convolutions in plain layout. Out: nn.conv2d with a constant 3x3 float32 kernel, stride 1, no dilation
and one group become opencl.conv2d_winograd; their weights go through a transform that runs when they are loaded.
Invariant: tiles above `relay.WinogradConv2D.max_tile` are never used; a choice that a call carries precedes the model.

    nn.conv2d(%x, weight)
    ->
    opencl.conv2d_winograd(%x, opencl.winograd_weight(weight))

The operator: backends/opencl/winograd/operator.py. The tiles' costs: backends/opencl/tiles.py.
"""

from __future__ import annotations

import math

from armillary.backends.opencl.gemm.convolution import in_multiply_adds, product_cycles
from armillary.backends.opencl.space import WINOGRAD
from armillary.backends.opencl.tiles import Product, choose_tile, cost
from armillary.backends.opencl.winograd.operator import tiles_of
from armillary.backends.winograd import KERNEL, MAX_TILE, is_constant, is_whole
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.types import TensorType
from armillary.relay.walk import not_primitive, rewrite
from armillary.target.choice import Choice, stored_choice
from armillary.transform import PassContext, define_pass

TILES = (2, 4)
LEAST_CHANNELS = 16  # of data and of result: below, the transforms outweigh what is saved
LAUNCH, MOVED = 6e7, 20.0  # cost of a launch, of a number written and read between kernels, in multiply-adds


@define_pass("opencl-winograd-conv2d", opt_level=3)
def opencl_winograd_conv2d(module: IRModule) -> IRModule:
    """Replace convolutions where a tile of the transform is estimated to be faster."""
    limit = PassContext.current().get(MAX_TILE)

    def rule(expr: Expr) -> Expr | None:
        if not is_call(expr, "nn.conv2d"):
            return None
        stored = stored_choice(expr)
        if stored:
            return _replaced(expr, _stored_tile(expr, stored, limit)) if stored.algorithm == WINOGRAD.name else None
        tile = best_tile(expr, limit) if can_transform(expr) else 0
        return _replaced(expr, tile) if tile else None

    def change(function: Function) -> Expr:
        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change)


def can_transform(call: Call) -> bool:
    """Whether Winograd's algorithm can compute a convolution."""
    attrs, types = call.attrs, [t for t in (*map(tensor, call.args), tensor(call)) if t is not None]
    if attrs.groups != 1 or set(attrs.strides) != {1} or set(attrs.dilation) != {1}:
        return False
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return False
    if len(types) < 3 or any(str(t.dtype) != "float32" for t in types):
        return False
    weight = types[1].static
    if weight[2:] != (KERNEL, KERNEL) or min(weight[:2]) < LEAST_CHANNELS:
        return False
    return is_constant(call.args[1]) and not is_whole(call.args[1])


def best_tile(call: Call, limit: int) -> int:
    """The tile of the transform with the least estimated cost, 0 for the direct sum."""
    types = [t for t in (*map(tensor, call.args), tensor(call)) if t is not None]
    data, result = types[0], types[-1]
    product = in_multiply_adds(product_cycles(data, types[1], result, call.attrs))
    costs = {
        0: min(direct_cost(data, result), product),
        **{m: winograd_cost(data, result, m) for m in TILES if m <= limit},
    }
    return min(costs, key=lambda m: costs[m])


def _stored_tile(expr: Call, stored: Choice, limit: int) -> int:
    """The tile of the transform that a choice names."""
    tile = stored.knob("tile")
    if not can_transform(expr):
        message, hint = "Winograd's algorithm cannot compute this convolution", "leave the choice to the model"
    elif tile not in TILES:
        message, hint = f"there is no transform with tile={tile}", f"tile={' or '.join(map(str, TILES))}"
    elif tile > limit:
        message, hint = f"tile={tile}, but relay.WinogradConv2D.max_tile is {limit}", "raise it, or choose another tile"
    else:
        return tile
    raise ConfigError(f"nn.conv2d: the choice {stored.algorithm} does not fit: {message}", hint=hint)


def direct_cost(data: TensorType, result: TensorType) -> float:
    """Of the direct sum, in multiply-adds of a device that is full."""
    n, units, height, width = result.static
    work = Product(n, (units, height, width), data.static[1], (KERNEL, KERNEL), (1, 1))
    tile = choose_tile(work)
    return LAUNCH + (cost(work, tile) if tile is not None else plain_cost(work))


def plain_cost(work: Product) -> float:
    """Of a work-item for each result."""
    return 4.0 * work.images * math.prod(work.result) * work.channels * math.prod(work.taps)


def winograd_product(data: TensorType, result: TensorType, tile: int) -> Product:
    """The products at all points of the tiles."""
    n, units, height, width = result.static
    *_, count = tiles_of(n, height, width, tile)
    return Product((tile + KERNEL - 1) ** 2, (units, 1, count), data.static[1], (1, 1), (1, 1))


def winograd_cost(data: TensorType, result: TensorType, tile: int) -> float:
    """Of the transform with tiles of this side."""
    work = winograd_product(data, result, tile)
    choice = choose_tile(work)
    return math.inf if choice is None else winograd_extra(work) + cost(work, choice)


def winograd_extra(work: Product) -> float:
    """Of what is not the product: launches, and what is moved between the kernels."""
    return 3 * LAUNCH + MOVED * work.images * work.result[2] * (work.result[0] + work.channels)


def _replaced(call: Call, tile: int) -> Call:
    data, weight = call.args
    transformed = get_op("opencl.winograd_weight")(weight, tile_size=tile)
    op = get_op("opencl.conv2d_winograd")
    attrs = op.make_attrs(named={"tile_size": tile, "padding": call.attrs.padding, "choice": call.attrs.choice})
    return Call(op, (data, transformed), attrs, call.span)
