"""split-kernels: convolutions with large kernels as 3x3 ones over shifted copies of their data, for Winograd.

In: a typed module in NCHW. Out: a nn.conv2d with a constant kernel of 4x4 to 9x9, stride 1 and one group is one of 3x3
over several copies of its data, each shifted by a multiple of 3. Invariant: same products (and some with zeros), same
types; only where Winograd's algorithm is allowed and estimated to gain, and while the zeros add little to the
parameters. A 5x5 kernel takes 9 products for an output instead of 25. Whether that 3x3 convolution then is Winograd's:
winograd_conv2d.py.

    nn.conv2d(%x, weight[O, I, 5, 5], padding=[2, 2])
    ->
    %0 = nn.pad(%x);
    %1 = (%0, strided_slice(%0, begin=[3], axes=[3]), strided_slice(%0, begin=[3], axes=[2]), …);
    nn.conv2d(concatenate(%1, axis=1), parts[O, 4 * I, 3, 3])
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from armillary.aligned import Deferred
from armillary.ir import IRModule
from armillary.ops.nn_conv import result_dtype, window
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.layout import choose_block
from armillary.relay.transform._rules import Array, call, on_functions, op_name, tensor
from armillary.relay.transform.alter_op_layout import block_lanes
from armillary.relay.transform.winograd_conv2d import MAX_TILE, is_whole
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.target import Target
from armillary.target.cost import Nest, far, far_weights, ranked_tiles
from armillary.target.cost_winograd import TILES, Layer, best_plan, estimate
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, define_pass

KERNELS = range(4, 10)
PART = 3  # rows and columns of a part of the kernel
GAIN = 0.75  # of the estimated time of the direct convolution
ADDED = 0.12  # of the network's parameters: zeros that fill up the parts


@define_pass("split-kernels", opt_level=3)
def split_kernels(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Write large kernels as 3x3 ones where Winograd's algorithm then gains."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    cpu, lanes, limit = cpu_model(chosen), block_lanes(chosen), PassContext.current().get(MAX_TILE)

    def change(function: Function) -> Expr | None:
        order = post_order(function, not_primitive)
        network = sum(e.nbytes for e in order if isinstance(e, Constant))
        found = [e for e in order if isinstance(e, Call) and _can_split(e, lanes)]
        gains = {id(e): _gain(e, lanes, cpu, limit, network) for e in found}
        room, taken = ADDED * network, set[int]()
        for expr in sorted(found, key=lambda e: gains[id(e)]):
            added = _parts_bytes(expr) - expr.args[1].nbytes  # type: ignore[attr-defined]
            if gains[id(expr)] < GAIN and added <= room:
                taken.add(id(expr))
                room -= added
        return _rewritten(function, taken) if taken else None

    return on_functions(module, change)


def _rewritten(function: Function, taken: set[int]) -> Expr:
    memo: dict[int, Expr] = {}
    for expr in post_order(function, not_primitive):
        rebuilt = map_children(expr, lambda e: memo.get(id(e), e))
        if id(expr) in taken and isinstance(expr, Call) and isinstance(rebuilt, Call):
            rebuilt = _split(expr, rebuilt.args[0])
        memo[id(expr)] = copy_type(rebuilt, expr)
    return memo[id(function)]


def _can_split(expr: Call, lanes: int) -> bool:
    """Whether it is a convolution whose kernel can be taken apart and whose channels share a good block."""
    if op_name(expr) != "nn.conv2d" or not isinstance(expr.args[1], Constant):
        return False
    attrs, data, kernel, result = expr.attrs, tensor(expr.args[0]), expr.args[1].held.shape[2:], tensor(expr)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW") or attrs.groups != 1 or data is None or result is None:
        return False
    win = window("nn.conv2d", attrs, 2)
    if set(win.strides) != {1} or set(win.dilation) != {1} or not all(k in KERNELS for k in kernel):
        return False
    if data.dtype != "float32" or result_dtype(attrs, data) != data.dtype or is_whole(expr.args[1]):
        return False
    inner, outer = (choose_block(n, lanes) for n in (data.static[1], result.static[1]))
    return inner == outer and inner >= min(8, lanes) and inner & (inner - 1) == 0


def _counts(weight: Array | Deferred) -> tuple[int, int]:
    """Parts of a kernel from top to bottom and from left to right."""
    return -(-weight.shape[2] // PART), -(-weight.shape[3] // PART)


def _parts_bytes(expr: Call) -> int:
    weight: Array | Deferred = expr.args[1].held  # type: ignore[attr-defined]
    down, across = _counts(weight)
    return int(weight.shape[0] * weight.shape[1] * down * across * PART * PART * weight.dtype.itemsize)


def _gain(expr: Call, lanes: int, cpu: CpuModel, limit: int, network: int) -> float:
    """Estimated time with the kernel split over the time without; above 1 if Winograd's algorithm is switched off."""
    weight: Array | Deferred = expr.args[1].held  # type: ignore[attr-defined]
    result = tensor(expr)
    assert result is not None, "_can_split asks for it"
    (batch, outputs, height, width), inputs = result.static, weight.shape[1]
    down, across = _counts(weight)
    block = choose_block(outputs, lanes)
    layer = Layer(inputs * down * across, outputs, batch, height, width, block)
    allowed = [tile for tile in TILES if tile <= limit]
    if not allowed:
        return 2.0
    nest = Nest(
        width, batch * height, outputs // block, inputs * weight.shape[2] * weight.shape[3],
        far_weights(cpu, network), is_narrow=layer.is_narrow(cpu),
    )  # fmt: skip
    copied = 2.0 * batch * layer.inputs * (height + PART - 1) * (width + PART - 1) * weight.dtype.itemsize
    best = min(estimate(layer, best_plan(layer, tile, cpu, network), cpu, network).cycles for tile in allowed)
    return (best + copied / far(copied / 2, cpu)) / ranked_tiles(nest, cpu)[0][1].cycles


def _split(expr: Call, data: Expr) -> Expr:
    """The convolution over shifted copies of `data`, whose padding is in the copies."""
    weight, result = expr.args[1].data, tensor(expr)  # type: ignore[attr-defined]
    assert result is not None, "_can_split asks for it"
    pads, (down, across) = window("nn.conv2d", expr.attrs, 2).pads, _counts(weight)
    filled = (down * PART - weight.shape[2], across * PART - weight.shape[3])
    (top, bottom), (left, right) = ((before, after + more) for (before, after), more in zip(pads, filled, strict=True))
    padded = call("nn.pad", data, pad_width=((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = result.static[2] + PART - 1, result.static[3] + PART - 1
    copies = [
        call("strided_slice", padded, begin=(y, x), end=(y + height, x + width), axes=(2, 3))
        for y in range(0, down * PART, PART)
        for x in range(0, across * PART, PART)
    ]
    attrs = dataclasses.replace(expr.attrs, padding=(0, 0, 0, 0), kernel_size=(PART, PART))
    return Call(expr.op, (call("concatenate", copies, axis=1), Constant(kernel_parts(weight))), attrs, expr.span)


def kernel_parts(weight: Array) -> Array:
    """Weights (O, parts * I, 3, 3): the parts of each kernel, row by row, filled up with zeros."""
    outputs, inputs, height, width = weight.shape
    down, across = _counts(weight)
    full = np.zeros((outputs, inputs, down * PART, across * PART), weight.dtype)
    full[:, :, :height, :width] = weight
    parts = full.reshape(outputs, inputs, down, PART, across, PART).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(parts.reshape(outputs, down * across * inputs, PART, PART))
