"""transpose-as-shuffle: transposed convolutions with few output channels as convolutions whose channels become places.

In: a typed module in NCW or NCHW, constant weights. Out: a strided transposed convolution over one axis or two (`axes`)
with groups, or whose output channels fill few lanes, is a convolution with a channel per output channel and phase, a
shuffle (nn.depth_to_space of images) and a slice. Invariant: same products (and some with zeros, where the stride does
not divide the kernel), same types; only where that takes clearly fewer vector operations. A 9x9 kernel with stride 3
and one channel: 9 vectors instead of 81 in 4 lanes; a kernel of 64 with stride 32: 4 instead of 64 in a lane.

    nn.conv2d_transpose(%x, weight[I, 1, 9, 9], strides=[3, 3], padding=[4, 4])
    ->
    strided_slice(nn.depth_to_space(nn.conv2d(%x, phases[9, I, 3, 3]), block_size=3, mode="CRD"))

    nn.conv1d_transpose(%x, weight[I, 1, 64], strides=[32], padding=[16])
    ->
    strided_slice(reshape(transpose(nn.conv1d(%x, phases[32, I, 2], padding=[1, 1]))))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.backends.cpu.graph._layout_rules import has_fast_half_vectors
from armillary.backends.cpu.graph.alter_op_layout import block_lanes
from armillary.base.aliases import Array
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.ops.nn.conv import result_dtype, window
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import call, is_filled_little, op_name, rewrite_module, tensor
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import define_pass

GAIN = 0.7  # of the vector operations: what pays for moving the result once more
FEW_INPUTS = 8  # channels of images below which the moving shows
MOST_OUTPUTS = 2  # of images: three fill a block of four well enough where half vectors are fast
NARROW = 0.55  # an operation on at most half a vector of images, in whole ones, where half vectors are fast


@define_pass("transpose-as-shuffle", opt_level=3)
def transpose_as_shuffle(
    module: IRModule,
    *,
    target: Target | None = None,
    axes: Sequence[int] = (1, 2),  # Any: whatever Target accepts
) -> IRModule:
    """Compute all phases of an output element as channels of one convolution."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    lanes, narrow = block_lanes(chosen), NARROW if has_fast_half_vectors(cpu_model(chosen)) else 1.0
    counts = {f"nn.conv{count}d_transpose": count for count in axes}

    def rule(expr: Expr) -> Expr | None:
        count = counts.get(op_name(expr))
        if count is None or not isinstance(expr, Call) or not _applies(expr, count, lanes, narrow):
            return None
        return _shuffled(expr, count)

    return rewrite_module(module, rule)


def _applies(expr: Call, axes: int, lanes: int, narrow: float) -> bool:
    """Whether layouts, sizes and the count of operations allow it; `narrow`: the time of half a vector."""
    attrs, data, weight, result = expr.attrs, tensor(expr.args[0]), expr.args[1], tensor(expr)
    places = "HW"[-axes:]
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or f"NC{places}")
    if layouts != (f"NC{places}", f"IO{places}", f"NC{places}") or not isinstance(weight, Constant):
        return False
    if data is None or result is None or data.dtype != "float32" or result_dtype(attrs, data) != data.dtype:
        return False
    win, (inputs, outputs, *kernel) = window(op_name(expr), attrs, axes), weight.held.shape
    if set(win.dilation) != {1} or len(set(win.strides)) != 1 or win.strides[0] == 1:
        return False
    if any(max(pads) >= size for size, pads in zip(kernel, win.pads, strict=True)):
        return False
    filled = math.prod(t * s for t, s in zip(_taps(kernel, win.strides), win.strides, strict=True))
    if not is_filled_little(inputs * outputs * filled, inputs * outputs * math.prod(kernel)):
        return False
    if attrs.groups > 1:  # the other way are generic loops, but for a group for each channel of whole vectors
        return not (axes == 2 and inputs == attrs.groups and outputs == 1 and inputs % lanes == 0)
    narrow = narrow if axes == 2 else 1.0
    if axes == 2 and (inputs < FEW_INPUTS or (outputs > MOST_OUTPUTS and narrow < 1.0)):
        return False
    taps = math.prod(_taps(kernel, win.strides))
    before = math.prod(kernel) * _operations(outputs, lanes, narrow)
    return bool(taps * _operations(outputs * math.prod(win.strides), lanes, narrow) < GAIN * before)


def _operations(channels: int, lanes: int, narrow: float) -> float:
    """Vector operations for one element of each channel, padded as pad-channels would."""
    return min(float(-(-channels // lanes)), narrow * -(-channels // max(1, lanes // 2)))


def _taps(kernel: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Taps of a phase along each axis."""
    return [-(-size // step) for size, step in zip(kernel, steps, strict=True)]


def _shuffled(expr: Call, axes: int) -> Expr:
    """The convolution, the shuffle and the slice: output y, counted without padding, is phase y % s at y // s."""
    data, result, name = tensor(expr.args[0]), tensor(expr), op_name(expr)
    assert data is not None and result is not None, "_applies asks for both"
    win, weight = window(name, expr.attrs, axes), expr.args[1].data  # type: ignore[attr-defined]
    steps, taps, sizes = win.strides, _taps(weight.shape[2:], win.strides), result.static[2:]
    begin, ahead, behind, grown = [], [], [], []
    for step, count, size, have, (pad, _) in zip(steps, taps, sizes, data.static[2:], win.pads, strict=True):
        first, last = pad // step, (pad + size - 1) // step
        begin.append(pad - first * step)
        ahead.append(count - 1 - first)
        behind.append(max(0, last - (have - 1)))
        grown.append(have + ahead[-1] + behind[-1] - count + 1)
    groups, outputs = expr.attrs.groups, result.static[1]
    weights = np.concatenate([phase_weights(part, steps) for part in np.split(weight, groups)])
    phases = call(
        name.removesuffix("_transpose"),
        expr.args[0],
        Constant(weights),
        groups=groups,
        padding=(*ahead, *behind),
        channels=outputs * math.prod(steps),
        kernel_size=tuple(taps),
    )
    whole = _spread(phases, (result.static[0], outputs), steps, grown)
    if all(size == step * count for size, step, count in zip(sizes, steps, grown, strict=True)):
        return whole
    end = [b + size for b, size in zip(begin, sizes, strict=True)]
    return call("strided_slice", whole, begin=begin, end=end, strides=(1,) * axes, axes=tuple(range(2, 2 + axes)))


def _spread(phases: Expr, outer: tuple[int, int], steps: Sequence[int], grown: Sequence[int]) -> Expr:
    """Channels of phases as places: those of an element lie side by side."""
    if len(steps) == 2:
        return call("nn.depth_to_space", phases, block_size=steps[0], mode="CRD")
    beside = call("transpose", reshape_to(phases, (*outer, *steps, *grown)), axes=(0, 1, 3, 2))
    return reshape_to(beside, (*outer, steps[0] * grown[0]))


def phase_weights(weight: Array, steps: Sequence[int]) -> Array:
    """Weights (O * steps, I, taps) of the convolution: the taps of each phase, in reverse, filled up with zeros."""
    (inputs, outputs, *kernel), axes = weight.shape, len(steps)
    taps = _taps(kernel, steps)
    full = np.zeros((inputs, outputs, *(t * s for t, s in zip(taps, steps, strict=True))), weight.dtype)
    full[(slice(None), slice(None), *map(slice, kernel))] = weight
    split = full.reshape(inputs, outputs, *(size for pair in zip(taps, steps, strict=True) for size in pair))
    parts = np.flip(split, tuple(range(2, 2 + 2 * axes, 2)))  # (I, O, taps, step, taps, step)
    order = (1, *range(3, 3 + 2 * axes, 2), 0, *range(2, 2 + 2 * axes, 2))
    return np.ascontiguousarray(parts.transpose(order).reshape(outputs * math.prod(steps), inputs, *taps))
