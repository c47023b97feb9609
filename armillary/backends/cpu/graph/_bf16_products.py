"""Products in bfloat16: which operators of a function may multiply rounded operands, and where the target does.

In: a function in bfloat16 before widen-small-floats, or after it; a call; a `CpuModel`. Out: names, in an attribute of
the function that lasts from widen-small-floats to the end of the graph passes; yes or no. Invariant: an operator is
named only if nothing of that kind, and nothing that passes turn into it, was in another type. Users:
widen_small_floats.py, round_operands.py, alter_op_layout.py, store_bfloat16.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from armillary.backends.cpu.conv2d.amx.cost import SIDE, TILE_DWORDS
from armillary.backends.cpu.conv2d.winograd.cost import Layer, direct_nest, ranked_plans
from armillary.backends.cpu.cost.model import ranked_tiles, weight_bandwidth
from armillary.backends.cpu.cost.products16 import multiplies_bfloat16
from armillary.backends.small_floats.graph.widen_small_floats import NOTE
from armillary.backends.winograd import MAX_TILE
from armillary.ops._dot_operands import BFLOAT16, BFLOATS
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Kind
from armillary.relay.transform._rules import is_from_constants, op_name, tensor
from armillary.target import Target
from armillary.target.cpu import MIN_TILE_ROWS, CpuModel, cpu_model
from armillary.transform import PassContext

MIN_BLOCK = 8  # channels
WASTE = 0.1  # of outputs, that are added for whole vectors (pad_channels.py)
CONVOLUTION, PRODUCTS = "nn.conv2d", ("nn.dense", "nn.batch_matmul")
_BECOME_CONVOLUTIONS = frozenset({"nn.dense", "nn.conv1d", "nn.conv3d"})


def find_allowed(order: Iterable[Expr]) -> tuple[str, ...]:
    """The operators that may multiply bfloat16 in a function with these nodes: all its calls of them do so."""
    half: set[str] = set()
    others: set[str] = set()
    for expr in order:
        if isinstance(expr, Call) and op_name(expr) and expr.op.kind == Kind.CONTRACTION:
            types = [tensor(arg) for arg in expr.args[:2]]
            is_half = all(ty is not None and str(ty.dtype) == BFLOAT16 for ty in types)
            (half if is_half else others).add(op_name(expr))
    if others & _BECOME_CONVOLUTIONS:
        others.add(CONVOLUTION)
    return tuple(sorted({CONVOLUTION, *PRODUCTS} - others)) if half - others else ()


def notes_of(order: Iterable[Expr], *, target: Target) -> tuple[tuple[str, object], ...]:
    """What widen-small-floats notes of a function with these nodes, where the target multiplies bfloat16."""
    products = find_allowed(order) if cpu_model(target).multiplies_bfloat16 else ()
    return ((NOTE, products),) if products else ()


def allowed(function: Function) -> frozenset[str]:
    """The operators that may multiply bfloat16."""
    return frozenset(dict(function.attrs).get(NOTE, ()))


def multiplies(expr: Expr, cpu: CpuModel) -> bool:
    """Whether a product of float32 is computed from bfloat16 where that is allowed: there is a faster kernel for it."""
    if not isinstance(expr, Call) or not cpu.multiplies_bfloat16:
        return False
    data, weight, result = tensor(expr.args[0]), tensor(expr.args[1]), tensor(expr)
    if data is None or weight is None or result is None:
        return False
    if {str(ty.dtype) for ty in (data, weight, result)} != {"float32"}:
        return False
    if op_name(expr) == CONVOLUTION:
        return _is_plain(expr) and _takes_bfloat16(expr, weight.static, cpu)
    return op_name(expr) in PRODUCTS and _product_takes_bfloat16(expr, data.static, weight.static, cpu)


def _product_takes_bfloat16(expr: Call, data: tuple[int, ...], weight: tuple[int, ...], cpu: CpuModel) -> bool:
    """Whether nn.dense or nn.batch_matmul is faster in bfloat16 (backends/cpu/cost/products16.py)."""
    if len(data) < 2 or getattr(expr.attrs, "transpose_a", False):
        return False
    rows = data[-2] if op_name(expr) == "nn.batch_matmul" else math.prod(data[:-1])
    columns = weight[-2 if getattr(expr.attrs, "transpose_b", True) else -1]
    is_packed = op_name(expr) == "nn.dense" and is_from_constants(expr.args[1])
    return multiplies_bfloat16(rows, columns, data[-1], cpu, is_packed)


def waits_for_weight(expr: Expr) -> bool:
    """Whether a layer has so few rows that it is float32, and takes half the time if its weight is stored rounded."""
    if not isinstance(expr, Call) or op_name(expr) != "nn.dense" or not isinstance(expr.args[1], Constant):
        return False
    result, weight = tensor(expr), tensor(expr.args[1])
    if result is None or weight is None or str(weight.dtype) != "float32" or str(result.dtype) != "float32":
        return False
    return math.prod(result.static[:-1]) < MIN_TILE_ROWS


def _is_plain(expr: Call) -> bool:
    attrs = expr.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    return attrs.groups == 1 and layouts == ("NCHW", "OIHW", "NCHW") and isinstance(expr.args[1], Constant)


def _takes_bfloat16(expr: Call, weight: tuple[int, ...], cpu: CpuModel) -> bool:
    """Whether a convolution with a weight (O, I, KH, KW) is faster in bfloat16: its outputs nearly fill vectors."""
    if -weight[0] % SIDE > WASTE * weight[0]:
        return False
    if _is_faster_by_winograd(expr, weight, cpu):
        return False
    if is_first_layer(expr, weight):
        return cpu.has_bfloat16_tiles
    return weight[1] % MIN_BLOCK == 0


def _is_faster_by_winograd(expr: Call, weight: tuple[int, ...], cpu: CpuModel) -> bool:
    """Whether Winograd's algorithm in float32 is estimated to take less time than dot products by vectors."""
    attrs, result = expr.attrs, tensor(expr)
    is_eligible = weight[2:] == (3, 3) and set(attrs.strides) == {1} and set(attrs.dilation) == {1}
    if cpu.has_bfloat16_tiles or not is_eligible or result is None:
        return False
    batch, _, height, width = result.static
    layer = Layer(weight[1], weight[0], batch, height, width)
    single = direct_nest(layer, cpu, weight_bandwidth(cpu))
    joined = ranked_tiles(replace(single, steps=-(-single.steps // BFLOATS)), cpu)[0][1]
    plan, winograd = ranked_plans(layer, cpu, PassContext.current().get(MAX_TILE))[0]
    return plan.tile > 0 and winograd.cycles < joined.cycles / min(1.0, cpu.bfloat16_dots)


def is_first_layer(expr: Call, weight: tuple[int, ...]) -> bool:
    """Whether the columns of a window fit the row of a tile, and fill it better than the channels do."""
    return weight[1] < MIN_BLOCK and weight[3] <= TILE_DWORDS and set(expr.attrs.dilation) == {1}
