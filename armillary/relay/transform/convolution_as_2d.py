"""convolution-as-2d: three-dimensional convolutions, and poolings over one or three axes, as two-dimensional ones.

In: a typed module. Out: one-dimensional pooling works on an image of height 1; nn.conv3d with one group on a batch of
slices, each with the KD slices it needs side by side as channels; nn.conv3d_transpose the same, the slices between two
of the data's as further output channels; nn.max_pool3d pools each slice, then takes the larger of slices, the edge
again for what is beyond it. Invariant: same products, same types; weights are constants. What the CPU schedules know
of images then serves all of them; hoist-elementwise and simplify-expr remove the reshapes and transposes between
layers. Convolutions over one axis: widen_conv1d.py.

    nn.max_pool1d(%x, pool_size=[2], strides=[2])
    ->
    reshape(nn.max_pool2d(reshape(%x), pool_size=[1, 2], strides=[1, 2]))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.ops.nn_common import pad_pairs, per_axis, reshape_to
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import call, op_name, rewrite_module, tensor
from armillary.transform import define_pass

_POOLS = {f"nn.{kind}_pool1d": f"nn.{kind}_pool2d" for kind in ("max", "avg")}


@define_pass("convolution-as-2d", opt_level=2)
def convolution_as_2d(module: IRModule) -> IRModule:
    """Write convolutions and poolings over one or three axes over two."""
    return rewrite_module(module, pool1d, conv3d, conv3d_transpose, max_pool3d)


def _flat(values: Any) -> list[int]:
    return [int(v) for v in (values if isinstance(values, tuple | list) else (values,))]


def _pads(op: str, padding: Any) -> tuple[int, int, int, int]:
    ((before, after),) = pad_pairs(op, padding, 1)
    return (0, before, 0, after)


def pool1d(expr: Expr) -> Expr | None:
    """max_pool1d(x)  ->  reshape(max_pool2d(reshape(x)))"""
    if op_name(expr) not in _POOLS or not isinstance(expr, Call):
        return None
    attrs, data, result = expr.attrs, tensor(expr.args[0]), tensor(expr)
    if data is None or result is None or (attrs.layout, attrs.out_layout or "NCW") != ("NCW", "NCW"):
        return None
    n, c, w = data.static
    named = {
        "pool_size": (1, *_flat(attrs.pool_size)), "strides": (1, *_flat(attrs.strides)),
        "dilation": (1, *_flat(attrs.dilation)), "padding": _pads(op_name(expr), attrs.padding),
        "ceil_mode": attrs.ceil_mode,
    }  # fmt: skip
    if hasattr(attrs, "count_include_pad"):
        named["count_include_pad"] = attrs.count_include_pad
    made = call(_POOLS[op_name(expr)], reshape_to(expr.args[0], (n, c, 1, w)), **named)
    return reshape_to(made, result.static) if tensor(made) is not None else None


def conv3d(expr: Any) -> Expr | None:  # Any: an Expr, a Call once it is known to be plain
    """conv3d(x, w)  ->  conv2d of slices, whose channels are those of the KD slices a result needs"""
    if not _is_plain(expr, "nn.conv3d", "OIDHW"):
        return None
    attrs, weight = expr.attrs, expr.args[1].data
    data: Any = tensor(expr.args[0])  # Any: tensor types, as tested
    result: Any = tensor(expr)
    (front, back), *image_pads = pad_pairs("nn.conv3d", attrs.padding, 3)
    (stride, *strides), (step, *dilation) = (
        per_axis("nn.conv3d", name, getattr(attrs, name), 3) for name in ("strides", "dilation")
    )
    n, o, depth, oh, ow = result.static
    _, c, _, h, w = data.static
    taps = weight.shape[2]
    slices, axis = _padded_slices(expr.args[0], data.static, front, back)
    stacked = _side_by_side([_every(slices, axis, k * step, depth, stride) for k in range(taps)], axis)
    (top, bottom), (left, right) = image_pads
    flat = Constant(np.ascontiguousarray(weight.transpose(0, 2, 1, 3, 4).reshape(o, taps * c, *weight.shape[3:])))
    made = call(
        "nn.conv2d", reshape_to(stacked, (n * depth, taps * c, h, w)), flat,
        strides=tuple(strides), padding=(top, left, bottom, right), dilation=tuple(dilation),
        channels=o, kernel_size=tuple(weight.shape[3:]),
    )  # fmt: skip
    return call("transpose", reshape_to(made, (n, depth, o, oh, ow)), axes=(0, 2, 1, 3, 4))


def conv3d_transpose(expr: Any) -> Expr | None:  # Any: an Expr, a Call once it is known to be plain
    """conv3d_transpose(x, w)  ->  conv2d_transpose of slices; what lies between two slices are further channels

    With stride s along the depth, result slice s * q + r - pad is the sum over taps k = s * j + r of slice q - j of the
    data times tap k: for each q one image of the slices q, q - 1, ..., with s times the outputs.
    """
    if not _is_plain(expr, "nn.conv3d_transpose", "IODHW"):
        return None
    attrs, weight = expr.attrs, expr.args[1].data
    data: Any = tensor(expr.args[0])  # Any: tensor types, as tested
    result: Any = tensor(expr)
    (front, _), (top, bottom), (left, right) = pad_pairs("nn.conv3d_transpose", attrs.padding, 3)
    (stride, *strides), (step, *dilation), (_, *more) = (
        per_axis("nn.conv3d_transpose", name, getattr(attrs, name), 3, least)
        for name, least in (("strides", 1), ("dilation", 1), ("output_padding", 0))
    )
    (n, o, depth, oh, ow), (_, c, have, h, w) = result.static, data.static
    reach = (weight.shape[2] - 1) * step // stride + 1  # slices of the data that a group of results takes
    groups = -(-(depth + front) // stride)
    slices, axis = _padded_slices(expr.args[0], data.static, reach - 1, max(0, groups - have))
    stacked = _side_by_side([_every(slices, axis, reach - 1 - j, groups, 1) for j in range(reach)], axis)
    flat = np.zeros((reach, c, stride, o, *weight.shape[3:]), weight.dtype)
    for k in range(weight.shape[2]):
        flat[k * step // stride, :, k * step % stride] = weight[:, :, k]
    made = call(
        "nn.conv2d_transpose", reshape_to(stacked, (n * groups, reach * c, h, w)),
        Constant(flat.reshape(reach * c, stride * o, *weight.shape[3:])),
        strides=tuple(strides), padding=(top, left, bottom, right), dilation=tuple(dilation),
        output_padding=tuple(more), channels=stride * o, kernel_size=tuple(weight.shape[3:]),
    )  # fmt: skip
    images = reshape_to(made, (n, groups * stride, o, oh, ow))
    return call("transpose", _every(images, 1, front, depth, 1), axes=(0, 2, 1, 3, 4))


def _is_plain(expr: Expr, name: str, kernel_layout: str) -> bool:
    """Whether it is that convolution over three axes, with one group, constant weights, known types, usual layouts."""
    if op_name(expr) != name or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return False
    attrs = expr.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCDHW")
    is_known = tensor(expr.args[0]) is not None and tensor(expr) is not None
    return is_known and layouts == ("NCDHW", kernel_layout, "NCDHW") and attrs.groups == 1 and not attrs.out_dtype


def _padded_slices(data: Expr, shape: tuple[int, ...], front: int, back: int) -> tuple[Expr, int]:
    """The slices with so many of zeros before and behind them, and the axis of the depth."""
    slices, axis = _slices(data, shape)
    if not front and not back:
        return slices, axis
    width = [(0, 0)] * (4 + axis)
    width[axis] = (front, back)
    return call("nn.pad", slices, pad_width=tuple(width)), axis


def _side_by_side(parts: list[Expr], axis: int) -> Expr:
    """Slices as channels of one image; `axis` is that of the depth."""
    return call("concatenate", parts, axis=axis + 1) if len(parts) > 1 else parts[0]


def _slices(data: Expr, shape: tuple[int, ...]) -> tuple[Expr, int]:
    """The slices (n, d, c, h, w) and the axis of the depth; of a single volume images (d, c, h, w).

    What follows then works on four axes and stays in the blocked layout of its neighbours.
    """
    n, c, d, h, w = shape
    moved = call("transpose", data, axes=(0, 2, 1, 3, 4))
    return (reshape_to(moved, (d, c, h, w)), 0) if n == 1 else (moved, 1)


def _every(value: Expr, axis: int, begin: int, count: int, stride: int) -> Expr:
    """`count` positions along an axis from `begin` on, `stride` apart."""
    ty = tensor(value)
    if ty is not None and stride == 1 and ty.shape[axis] == count:
        return value
    end = begin + (count - 1) * stride + 1
    return call("strided_slice", value, begin=(begin,), end=(end,), strides=(stride,), axes=(axis,))


def max_pool3d(expr: Expr) -> Expr | None:
    """max_pool3d(x)  ->  the maximum of slices of max_pool2d(slices of x)"""
    if op_name(expr) != "nn.max_pool3d" or not isinstance(expr, Call):
        return None
    attrs, data, result = expr.attrs, tensor(expr.args[0]), tensor(expr)
    if data is None or result is None or (attrs.layout, attrs.out_layout or "NCDHW") != ("NCDHW", "NCDHW"):
        return None
    (front, back), (top, bottom), (left, right) = pad_pairs("nn.max_pool3d", attrs.padding, 3)
    sizes = (per_axis("nn.max_pool3d", name, getattr(attrs, name), 3) for name in ("pool_size", "strides", "dilation"))
    (taps, *size), (stride, *strides), (step, *dilation) = sizes
    n, c, d, h, w = data.static
    depth, oh, ow = result.static[2:]
    leaves = bool(front or back) or (depth - 1) * stride + (taps - 1) * step >= d
    if leaves and (step != 1 or front >= taps or (depth - 1) * stride - front >= d):
        return None  # windows that leave the data along the depth and may not hold its edge
    slices = reshape_to(_slices(expr.args[0], data.static)[0], (n * d, c, h, w))
    pooled = call(
        "nn.max_pool2d", slices, pool_size=tuple(size), strides=tuple(strides), dilation=tuple(dilation),
        padding=(top, left, bottom, right), ceil_mode=attrs.ceil_mode,
    )  # fmt: skip
    axis = 0 if n == 1 else 1
    images = pooled if n == 1 else reshape_to(pooled, (n, d, c, oh, ow))
    largest: Expr | None = None
    for k in range(taps):
        if leaves:  # the edge again instead of what is outside: it is in each such window
            places = np.clip(np.arange(depth) * stride + k - front, 0, d - 1).astype(np.int32)
            tap: Expr = call("take", images, Constant(places), axis=axis)
        else:
            tap = _every(images, axis, k * step, depth, stride)
        largest = tap if largest is None else call("maximum", largest, tap)
    assert largest is not None, "a window holds something"
    return call("transpose", reshape_to(largest, (n, depth, c, oh, ow)), axes=(0, 2, 1, 3, 4))
