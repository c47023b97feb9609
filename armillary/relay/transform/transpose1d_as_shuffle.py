"""transpose1d-as-shuffle: transposed convolutions over one axis with few output channels as convolutions.

In: a typed module in NCW, constant weights. Out: a strided nn.conv1d_transpose with one group, whose few output
channels fill few lanes, is a convolution with a channel per output channel and phase, a transposition and a slice.
Invariant: same products (and some with zeros, where the stride does not divide the kernel), same types; only where that
takes clearly fewer vector operations. One channel by a kernel of 64 with stride 32: 4 vectors instead of 64 in a lane.
Over two axes: transpose_as_shuffle.py.

    nn.conv1d_transpose(%x, weight[I, 1, 64], strides=[32], padding=[16])
    ->
    strided_slice(reshape(transpose(nn.conv1d(%x, phases[32, I, 2], padding=[1, 1]))))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.ops.nn_common import reshape_to
from armillary.ops.nn_conv import result_dtype, window
from armillary.relay.expr import Constant, Expr
from armillary.relay.transform._rules import Array, call, op_name, rewrite_module, tensor
from armillary.relay.transform.alter_op_layout import block_lanes
from armillary.target import Target
from armillary.transform import define_pass

GAIN = 0.7  # of the vector operations: what pays for moving the result once more


@define_pass("transpose1d-as-shuffle", opt_level=3)
def transpose1d_as_shuffle(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Compute all phases of an output element as channels of one convolution."""
    lanes = block_lanes(target if target is not None else Target.current() or Target("llvm"))
    return rewrite_module(module, lambda expr: _shuffled(expr) if lanes and _applies(expr, lanes) else None)


def _applies(expr: Any, lanes: int) -> bool:  # Any: an Expr, a Call once its operator is known
    """Whether layouts, sizes and the count of operations allow it."""
    if op_name(expr) != "nn.conv1d_transpose" or not isinstance(expr.args[1], Constant):
        return False
    attrs, data = expr.attrs, tensor(expr.args[0])
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCW")
    if layouts != ("NCW", "IOW", "NCW") or data is None or tensor(expr) is None or attrs.groups != 1:
        return False
    if data.dtype != "float32" or result_dtype(attrs, data) != data.dtype:
        return False
    win, (_, outputs, taps) = window(op_name(expr), attrs, 1), expr.args[1].held.shape
    (step,), (pads,) = win.strides, win.pads
    if win.dilation != (1,) or step == 1 or max(pads) >= taps:
        return False
    before, after = taps * -(-outputs // lanes), -(-taps // step) * -(-outputs * step // lanes)
    return bool(after < GAIN * before)


def _shuffled(expr: Any) -> Expr:  # Any: a Call of nn.conv1d_transpose
    """The convolution, the shuffle and the slice: output x, counted without padding, is phase x % step at x // step."""
    data: Any = tensor(expr.args[0])  # Any: tensor types, as `_applies` asks for
    result: Any = tensor(expr)
    win, weight = window(op_name(expr), expr.attrs, 1), expr.args[1].data
    (step,), ((ahead, _),) = win.strides, win.pads
    (batch, outputs, size), have = result.static, data.static[2]
    taps = -(-weight.shape[2] // step)
    first, last = ahead // step, (ahead + size - 1) // step
    padding = (taps - 1 - first, max(0, last - (have - 1)))
    grown = have + sum(padding) - taps + 1
    phases = call(
        "nn.conv1d", expr.args[0], Constant(_phases(weight, step, taps)), padding=padding, channels=outputs * step,
        kernel_size=(taps,),
    )  # fmt: skip
    beside = call("transpose", reshape_to(phases, (batch, outputs, step, grown)), axes=(0, 1, 3, 2))
    whole = reshape_to(beside, (batch, outputs, grown * step))
    begin = ahead - first * step
    if (begin, size) == (0, grown * step):
        return whole
    return call("strided_slice", whole, begin=(begin,), end=(begin + size,), strides=(1,), axes=(2,))


def _phases(weight: Array, step: int, taps: int) -> Array:
    """Weights (O * step, I, taps) of the convolution: the taps of each phase, in reverse, filled up with zeros."""
    inputs, outputs, size = weight.shape
    full = np.zeros((inputs, outputs, taps * step), weight.dtype)
    full[:, :, :size] = weight
    parts = full.reshape(inputs, outputs, taps, step)[:, :, ::-1]
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 2).reshape(outputs * step, inputs, taps))
