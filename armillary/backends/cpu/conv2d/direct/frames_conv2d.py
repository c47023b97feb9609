"""frames-conv2d: blocked convolutions read the frames they need where these lie.

In: a typed module in its last layouts, each convolution with its algorithm. Out: a direct convolution in one group of
frames that are regular slices of one value, side by side as channels, is one of that value; zeros in front of the
frames and behind are its padding. Invariant: same values and types. It saves the copies: as many times the data as
there are taps. Who writes them: convolution_as_2d.py, for convolutions over three axes.

    nn.contrib_conv2d_NCHWc(concatenate((%x[0:2], %x[1:3], %x[2:4]), axis=1), %w)
    ->
    cpu.conv2d_frames_NCHWc(%x, %w, frames=3)
"""

from __future__ import annotations

import dataclasses

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Tuple
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import op_name, rewrite_module, tensor
from armillary.transform import define_pass

CONVOLUTION, FRAMES = "nn.contrib_conv2d_NCHWc", "cpu.conv2d_frames_NCHWc"


@define_pass("frames-conv2d", opt_level=3)
def frames_conv2d(module: IRModule) -> IRModule:
    """Replace a concatenation of frames and the convolution that reads it."""
    return rewrite_module(module, _gathering)


def _gathering(expr: Expr) -> Expr | None:
    """conv(concatenate(slices of x), w)  ->  frames(x, w)"""
    if not is_call(expr, CONVOLUTION) or not isinstance(expr, Call) or expr.attrs.groups != 1:
        return None
    joined, weight = expr.args
    if not is_call(joined, "concatenate") or not isinstance(joined, Call) or joined.attrs.axis != 1:
        return None
    parts = joined.args[0].fields if isinstance(joined.args[0], Tuple) else ()
    slices = [cut for cut in map(_slice, parts) if cut is not None]
    if len(slices) < 2 or len(slices) < len(parts):
        return None
    source, first, stride = slices[0]
    step = slices[1][1] - first
    if step < 1 or any(s is not source or (b, n) != (first + k * step, stride) for k, (s, b, n) in enumerate(slices)):
        return None
    data, front = _unpadded(source)
    have, count = tensor(data), tensor(expr)
    if have is None or count is None or first > front:
        return None
    front -= first
    back = max(0, (count.static[0] - 1) * stride + (len(slices) - 1) * step + 1 - have.static[0] - front)
    named = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    window = {"frames": len(slices), "frame_stride": stride, "frame_dilation": step, "frame_padding": (front, back)}
    op = get_op(FRAMES)
    result = Call(op, (data, weight), op.make_attrs(named={**named, **window}), expr.span)
    return result if tensor(result) == count else None


def _slice(part: Expr) -> tuple[Expr, int, int] | None:
    """Of what value this is a slice along the first axis, from where, and with what stride; None: it is more."""
    if not is_call(part, "strided_slice") or not isinstance(part, Call):
        return (part, 0, 1) if tensor(part) is not None else None
    attrs, source, result = part.attrs, tensor(part.args[0]), tensor(part)
    if source is None or result is None or attrs.slice_mode != "end" or source.shape[1:] != result.shape[1:]:
        return None
    axes = tuple(range(len(attrs.begin))) if attrs.axes is None else attrs.axes
    strides = attrs.strides or (1,) * len(axes)
    if 0 not in axes or any(n != 1 for a, n in zip(axes, strides, strict=False) if a != 0):
        return None
    place = axes.index(0)
    begin, stride = attrs.begin[place] or 0, strides[place] if place < len(strides) else 1
    return (part.args[0], begin, stride) if begin >= 0 and stride >= 1 else None


def _unpadded(value: Expr) -> tuple[Expr, int]:
    """The value without zeros around its first axis, and how many were in front."""
    if op_name(value) != "nn.pad" or not isinstance(value, Call) or len(value.args) != 1:
        return value, 0
    attrs = value.attrs
    if attrs.pad_mode != "constant" or attrs.pad_value != 0 or any(p != (0, 0) for p in attrs.pad_width[1:]):
        return value, 0
    front: int = attrs.pad_width[0][0]
    return (value.args[0], front) if front >= 0 and attrs.pad_width[0][1] >= 0 else (value, 0)
