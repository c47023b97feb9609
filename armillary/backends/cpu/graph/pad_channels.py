"""pad-channels: output channels of a convolution (transposed or not) rounded up to whole vectors.

In: a module in NCHW, biases as additions. Out: a convolution whose output channels no good vector length divides (1000
or 58 on 16 lanes) computes a few channels more, with zero weights. The values stay wide through per-channel operators,
pooling, depthwise convolutions and groups that merge-groups will merge, up to the next convolution, whose weights get
zeros for the channels it ignores; anything else reads a slice. Where channels meet in concatenations or are cut apart,
each part is rounded up, so that whole blocks meet; the zeros then lie between the parts. Invariant: values and types
outside such a region stay; channels added are finite wherever the others are; a convolution is widened only where its
own arithmetic gains and no image must be sliced for it, unless no vector fits its channels at all, or where all that
meets gains together. Runs before alter-op-layout, which then finds whole blocks.

    nn.relu(add(nn.conv2d(%x, weight[1000]), bias))
    ->
    strided_slice(nn.relu(add(nn.conv2d(%x, padded[1008]), padded bias)), begin=[0, 0], end=[.., 1000])

How far a region reaches: wide_channels.py; what meets and is cut: joined_channels.py (backends/channels); who
gains: _ragged_channels.py. Zeros that would make a package large are left out of it by trim-weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from armillary.backends.channels.wide_channels import CHANNEL_AXES, Channels, find_regions, widen
from armillary.backends.cpu.graph._layout_rules import has_fast_half_vectors, is_to_few_channels
from armillary.backends.cpu.graph._ragged_channels import ragged_channels
from armillary.backends.cpu.graph.alter_op_layout import image_lanes
from armillary.backends.cpu.graph.merge_groups import mergeable_lanes, merged
from armillary.base.data_layout import choose_block
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, typical_of
from armillary.relay.transform._rules import on_functions, op_name
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import define_pass

WASTE = 0.1  # channels added for whole vectors, where the present block is a good one
GAIN = 0.85  # estimated vector operations below which another number of channels is better
FEW = 1 << 16  # multiply-adds below which a layer is not worth it


@define_pass("pad-channels", opt_level=3)
def pad_channels(module: IRModule, *, target: str | Target | None = None) -> IRModule:
    """Round output channels up to whole vectors where that wastes little."""
    chosen = target if target is not None else Target.current() or Target("llvm")
    cpu, merging = cpu_model(Target(chosen)), mergeable_lanes(Target(chosen))

    def change(function: Function) -> Expr | None:
        lanes = image_lanes(function, chosen)
        merges = partial(merged, lanes=merging)
        alone = find_regions(function, lambda c: _wider(c, lanes, cpu), lambda c: _has_block(c, lanes), (), merges)
        ragged = ragged_channels(function, alone, lanes, cpu)
        wide = (
            alone
            if not ragged
            else find_regions(
                function,
                lambda c: ragged.get(id(c)) or _wider(c, lanes, cpu),
                lambda c: id(c) not in ragged and _has_block(c, lanes),
                ragged.keys(),
                merges,
            )
        )
        return widen(function, wide) if wide else None

    return on_functions(module, change)


def _outputs(call: Call) -> int:
    return int(call.args[1].held.shape[CHANNEL_AXES[op_name(call)][0]])  # type: ignore[attr-defined]


def _has_block(call: Call, lanes: int) -> bool:
    """Whether the channels can be in blocks of at least half a vector, and of no odd length, as they are."""
    block = choose_block(_outputs(call), lanes)
    return block >= min(8, lanes) and block & (block - 1) == 0


def _wider(call: Call, lanes: int, cpu: CpuModel) -> Channels | None:
    """The channels of a convolution by itself, if it should have more."""
    extra = _extra(call, lanes, cpu)
    return Channels(((_outputs(call), extra),)) if extra else None


def _extra(call: Call, lanes: int, cpu: CpuModel) -> int:
    """Channels to add to a convolution; 0: none."""
    if op_name(call) not in CHANNEL_AXES or not isinstance(call.args[1], Constant):
        return 0
    attrs, result = call.attrs, typical_of(call)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    kernel = "OIHW" if op_name(call) == "nn.conv2d" else "IOHW"
    if attrs.groups != 1 or layouts != ("NCHW", kernel, "NCHW") or result is None:
        return 0
    channels = _outputs(call)
    if is_to_few_channels(call, lanes, cpu):
        return 0
    whole = -channels % lanes
    if channels >= 4 and 0 < whole <= WASTE * channels:
        return whole
    work = math.prod(call.args[1].held.shape) * result.static[0] * result.static[2] * result.static[3]
    if work < FEW:
        return 0
    return _cheapest(channels, lanes, _operations(lanes, cpu)) - channels


def _cheapest(channels: int, lanes: int, operations: Callable[[int], float]) -> int:
    """The channel count, not below `channels`, that takes clearly fewer vector operations; else `channels`."""
    best, best_cost = channels, GAIN * operations(channels)
    for unit in (4, 8, 16):
        count = -(-channels // unit) * unit
        if unit <= lanes and count > channels and operations(count) < best_cost:
            best, best_cost = count, operations(count)
    return best


def _operations(lanes: int, cpu: CpuModel) -> Callable[[int], float]:
    """Time for one element of each channel, in whole-vector operations."""
    half = 0.55 if has_fast_half_vectors(cpu) else 1.0

    def cost(channels: int) -> float:
        block = choose_block(channels, lanes)
        if block in (0, 1):
            return float(channels)
        if block & (block - 1):
            return 1.4 * channels / block  # a vector of an odd length is loaded and stored in parts
        return channels / block * (1.0 if block > lanes // 2 else half)

    return cost
