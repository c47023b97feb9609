"""transpose-as-shuffle: transposed convolutions with few output channels as convolutions whose channels become pixels.

In: a typed module in NCHW, constant weights. Out: a strided nn.conv2d_transpose with one group whose output channels
fill few lanes is a convolution with a channel per output channel and phase, nn.depth_to_space and a slice.
Invariant: same products (and some with zeros, where the stride does not divide the kernel), same types; only where that
takes clearly fewer vector operations. A 9x9 kernel with stride 3 and one channel: 9 vectors instead of 81 in 4 lanes.

    nn.conv2d_transpose(%x, weight[I, 1, 9, 9], strides=[3, 3], padding=[4, 4])
    ->
    strided_slice(nn.depth_to_space(nn.conv2d(%x, phases[9, I, 3, 3]), block_size=3, mode="CRD"))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.ops.nn_conv import result_dtype, window
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import Array, call, op_name, rewrite_module, tensor
from armillary.relay.transform.alter_op_layout import block_lanes, has_fast_halves
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import define_pass

GAIN = 0.7  # of the vector operations: what pays for moving the result once more
FEW_INPUTS = 8  # channels below which the moving shows
MOST_OUTPUTS = 2  # three fill a block of four well enough where half vectors are fast: measured alike
NARROW = 0.55  # an operation on at most half a vector, in whole ones, where half vectors are fast


@define_pass("transpose-as-shuffle", opt_level=3)
def transpose_as_shuffle(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Compute all phases of an output pixel as channels of one convolution."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    lanes, narrow = block_lanes(chosen), NARROW if has_fast_halves(cpu_model(chosen)) else 1.0

    def rule(expr: Expr) -> Expr | None:
        if op_name(expr) != "nn.conv2d_transpose" or not isinstance(expr, Call) or not _applies(expr, lanes, narrow):
            return None
        return _shuffled(expr)

    return rewrite_module(module, rule)


def _applies(expr: Call, lanes: int, narrow: float) -> bool:
    """Whether layouts, sizes and the count of operations allow it; `narrow`: the time of half a vector."""
    attrs, data, weight, result = expr.attrs, tensor(expr.args[0]), expr.args[1], tensor(expr)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if not isinstance(weight, Constant) or layouts != ("NCHW", "IOHW", "NCHW") or data is None or result is None:
        return False
    win = window("nn.conv2d_transpose", attrs, 2)
    (step, other), (inputs, outputs, *kernel) = win.strides, weight.held.shape
    if attrs.groups != 1 or set(win.dilation) != {1} or step != other or step == 1:
        return False
    if inputs < FEW_INPUTS or (outputs > MOST_OUTPUTS and narrow < 1.0):
        return False
    if data.dtype != "float32" or result_dtype(attrs, data) != data.dtype:
        return False
    if any(pad >= size for size, pads in zip(kernel, win.pads, strict=True) for pad in pads):
        return False
    spread = outputs * step * step
    before = kernel[0] * kernel[1] * _operations(outputs, lanes, narrow)
    after = -(-kernel[0] // step) * -(-kernel[1] // step) * _operations(spread, lanes, narrow)
    return bool(after < GAIN * before)


def _operations(channels: int, lanes: int, narrow: float) -> float:
    """Vector operations for one element of each channel, padded as pad-channels would."""
    return min(float(-(-channels // lanes)), narrow * -(-channels // max(1, lanes // 2)))


def _shuffled(expr: Call) -> Expr | None:
    """The convolution, the shuffle and the slice: output y, counted without padding, is phase y % s at y // s."""
    data, result = tensor(expr.args[0]), tensor(expr)
    assert data is not None and result is not None, "_applies asks for both"
    win, weight = window("nn.conv2d_transpose", expr.attrs, 2), expr.args[1].data  # type: ignore[attr-defined]
    step = win.strides[0]
    taps = [-(-size // step) for size in weight.shape[2:]]
    padding: list[list[int]] = [[], []]
    begin, end = [0, 0], [result.static[0], result.static[1]]
    for axis in range(2):
        size, ahead = result.static[2 + axis], win.pads[axis][0]
        first, last = ahead // step, (ahead + size - 1) // step
        padding[0].append(taps[axis] - 1 - first)
        padding[1].append(max(0, last - (data.static[2 + axis] - 1)))
        begin.append(ahead - first * step)
        end.append(ahead - first * step + size)
    phases = call(
        "nn.conv2d", expr.args[0], Constant(phase_weights(weight, step)), padding=(*padding[0], *padding[1]),
        channels=weight.shape[1] * step * step, kernel_size=tuple(taps),
    )  # fmt: skip
    pixels = call("nn.depth_to_space", phases, block_size=step, mode="CRD")
    grown = (data.static[2 + a] + padding[0][a] + padding[1][a] - taps[a] + 1 for a in range(2))
    is_all = tuple(step * size for size in grown) == result.static[2:]
    return pixels if is_all else call("strided_slice", pixels, begin=begin, end=end)


def phase_weights(weight: Array, step: int) -> Array:
    """Weights (O * step * step, I, taps, taps) of the convolution: the taps of each phase, in reverse, filled up."""
    inputs, outputs, height, width = weight.shape
    rows, columns = -(-height // step), -(-width // step)
    full = np.zeros((inputs, outputs, rows * step, columns * step), weight.dtype)
    full[:, :, :height, :width] = weight
    parts = full.reshape(inputs, outputs, rows, step, columns, step)[:, :, ::-1, :, ::-1]
    return np.ascontiguousarray(parts.transpose(1, 3, 5, 0, 2, 4).reshape(outputs * step * step, inputs, rows, columns))
