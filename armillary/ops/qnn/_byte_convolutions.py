"""Quantised convolutions as dot products of bytes: which ones, and in which operands.

In: a qnn.conv2d with constant weights, and the target. Out: nn.conv2d of the data's bytes with int8 weights, in int32,
whose zero points have become a constant per channel; None where the target has no instruction for such products, or the
layer's channels do not come in fours. Where NEON has no such instruction, depthwise ones, and those whose input
channels come in eights: two products are added in 16 bits, unless weights of -128 meet. Invariant: the same
integers: padding holds the zero point, channels that are added have weights of zero. The blocked operator:
operator_bytes.py.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.data_layout import choose_block
from armillary.ops._dot_operands import BYTES, fits_in_pairs
from armillary.ops.elementwise.broadcast import add
from armillary.ops.nn.conv import conv2d, window
from armillary.ops.nn.pad import pad
from armillary.ops.qnn._byte_products import MIDDLE, flipped
from armillary.ops.qnn.quantize import placed_array, tensor_of
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array
from armillary.relay.types import TensorType
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext, find_pass

if TYPE_CHECKING:
    from armillary.ops.qnn.product import QConv2DAttrs

MIN_BLOCK = 4  # output channels side by side: fewer leave most lanes empty


def conv2d_of_bytes(attrs: QConv2DAttrs, data: Expr, weight: Expr, zero: Expr, weight_zero: Expr) -> Expr | None:
    """The convolution of bytes that gives what qnn.conv2d does; None where it is not possible, or does not pay."""
    cpu = _cpu()
    if cpu is None or not isinstance(zero, Constant):
        return None
    ty, kernel = tensor_of(data), _signed_weight(weight, weight_zero)
    if kernel is None or ty.dtype.bits != 8 or not isinstance(ty.shape[1], int):
        return None
    is_open = not all(isinstance(d, int) for d in ty.shape)
    if not _fits(attrs, ty, kernel, cpu) or (is_open and is_depthwise(attrs, ty, kernel)):
        return None
    wanted = "uint" if ("uint", "int") in cpu.dot_signs else "int"
    if cpu.widens_bytes:
        wanted = ty.dtype.code if is_depthwise(attrs, ty, kernel) else "int"
    elif (wanted, "int") not in cpu.dot_signs:
        return None
    point = int(np.reshape(zero.data, ()))
    if ty.dtype.code != wanted:
        data, point = flipped(data), point + (MIDDLE if wanted == "uint" else -MIDDLE)
    data, kernel, padding = _padded(attrs, data, kernel, point)
    named = {f.name: getattr(attrs, f.name) for f in fields(attrs)} | {"padding": padding}
    total: Expr = conv2d(data, const(kernel), **named)
    offset = -point * kernel.astype(np.int32).sum((1, 2, 3))
    return add(total, const(placed_array(offset.astype(np.int32), 4, 1))) if np.any(offset) else total


def _cpu() -> CpuModel | None:
    """The CPU to compile for, where it has such instructions and layers get the layout that they need."""
    target = Target.current()
    if target is None or target.kind.family != "cpu":
        return None
    cpu = cpu_model(target)
    is_packed = PassContext.current().pass_enabled(find_pass("alter-op-layout").info)
    return cpu if (cpu.dot_signs or cpu.widens_bytes) and is_packed else None


def _signed_weight(weight: Expr, zero: Expr) -> Array | None:
    """Constant weights without their zero point, if that leaves bytes."""
    if not isinstance(weight, Constant) or not isinstance(zero, Constant) or weight.data.size == 0:
        return None
    moved = weight.data.astype(np.int32) - placed_array(zero.data, 4, 0).astype(np.int32)
    kind = np.iinfo(np.int8)
    return moved.astype(np.int8) if kind.min <= moved.min() and moved.max() <= kind.max else None


def _fits(attrs: QConv2DAttrs, data: TensorType, weight: Array, cpu: CpuModel) -> bool:
    """Whether inputs come in fours for each group (those of a single one can be filled up), and outputs in blocks."""
    if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW") or attrs.out_layout not in ("", "NCHW"):
        return False
    outputs, inputs = weight.shape[0] // attrs.groups, weight.shape[1]
    if is_depthwise(attrs, data, weight):
        return choose_block(weight.shape[0], cpu.lanes) >= MIN_BLOCK
    if cpu.widens_bytes and not fits_in_pairs(weight):  # float32 by lanes then
        return False
    block = choose_block(outputs, cpu.lanes)
    if inputs * attrs.groups != data.shape[1] or block < MIN_BLOCK:
        return False
    return bool(attrs.groups == 1 or (inputs % BYTES == 0 and 2 * block >= cpu.lanes))


def is_depthwise(attrs: QConv2DAttrs, data: TensorType, weight: Array) -> bool:
    """Whether each channel has a filter of its own."""
    return bool(attrs.groups == data.shape[1] == weight.shape[0] > 1)


def _padded(attrs: Any, data: Expr, weight: Array, point: int) -> tuple[Expr, Array, tuple[int, ...]]:
    """Data and weight with channels in fours, and what padding is left to the convolution."""
    (top, bottom), (left, right) = window("qnn.conv2d", attrs, 2).pads
    more = -weight.shape[1] % BYTES if attrs.groups == 1 else 0
    if not more and (point == 0 or not any((top, bottom, left, right))):
        return data, weight, (top, left, bottom, right)
    if more:  # by itself: what pads an image may become a part of the convolution
        data = pad(data, pad_width=((0, 0), (0, more), (0, 0), (0, 0)))
    filled = np.pad(weight, ((0, 0), (0, more), (0, 0), (0, 0)))
    if point == 0 or not any((top, bottom, left, right)):
        return data, filled, (top, left, bottom, right)
    margins = ((0, 0), (0, 0), (top, bottom), (left, right))
    return pad(data, pad_width=margins, pad_value=float(point)), filled, (0, 0, 0, 0)
