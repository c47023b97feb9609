"""convolution-as-2d: three-dimensional convolutions, and poolings over one or three axes, as two-dimensional ones.

In: a typed module. Out: one-dimensional pooling works on an image of height 1; nn.conv3d on a batch of slices, each
with the KD slices it needs side by side as channels, or, where each channel has one weight, a product with it;
nn.conv3d_transpose the same, the slices between two of the data's as further output channels; poolings over three axes
pool each slice, then take the larger or the mean of slices; a pooling of whole images is a global one. Invariant: same
products, same types; weights are constants. What the CPU schedules know of images then serves all of them;
hoist-elementwise and simplify-expr remove the reshapes and transposes between layers. Convolutions over one axis:
widen_conv1d.py.

    nn.max_pool1d(%x, pool_size=[2], strides=[2])
    ->
    reshape(nn.max_pool2d(reshape(%x), pool_size=[1, 2], strides=[1, 2]))
"""

from __future__ import annotations

import functools
import operator
from typing import Any, TypeGuard

import numpy as np

from armillary.base.aliases import Array
from armillary.ir import IRModule
from armillary.ops.nn._windows import SPATIAL, lowest, pad_pairs, per_axis, reshape_to
from armillary.relay.expr import Call, Constant, Expr, Tuple, shape_of
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import (
    axes_of,
    call,
    concatenated,
    is_filled_little,
    known,
    op_name,
    rewrite_module,
    tensor,
    transposed,
)
from armillary.transform import define_pass

_WINDOWED = {f"nn.{kind}_pool{axes}d": axes for kind in ("max", "avg") for axes in (1, 2, 3)}


@define_pass("convolution-as-2d", opt_level=2)
def convolution_as_2d(module: IRModule) -> IRModule:
    """Write convolutions and poolings over one or three axes over two."""
    return rewrite_module(module, whole_pool, pool1d, conv3d, conv3d_transpose, pool3d)


def _flat(values: int | tuple[int, ...]) -> list[int]:
    return [int(v) for v in (values if isinstance(values, tuple | list) else (values,))]


def _pads(op: str, padding: Any) -> tuple[int, int, int, int]:
    ((before, after),) = pad_pairs(op, padding, 1)
    return (0, before, 0, after)


def whole_pool(expr: Expr) -> Expr | None:
    """max_pool2d(x)  ->  global_max_pool2d(x)   if one window is the whole image"""
    name = op_name(expr)
    if name not in _WINDOWED or not isinstance(expr, Call):
        return None
    data, result, count = tensor(expr.args[0]), tensor(expr), _WINDOWED[name]
    plain = "NC" + SPATIAL[count]
    if data is None or result is None or expr.attrs.layout != plain or expr.attrs.out_layout not in ("", plain):
        return None
    sizes = per_axis(name, "pool_size", expr.attrs.pool_size, count)
    pads, steps = pad_pairs(name, expr.attrs.padding, count), per_axis(name, "dilation", expr.attrs.dilation, count)
    is_near = all(size == 1 or step == 1 for size, step in zip(sizes, steps, strict=True))  # else ceil_mode lost taps
    is_whole = is_near and sizes == data.static[2:] and result.static[2:] == (1,) * count and not any(map(any, pads))
    return call(name.replace("nn.", "nn.global_"), expr.args[0]) if is_whole else None


def pool1d(expr: Expr) -> Expr | None:
    """max_pool1d(x)  ->  reshape(max_pool2d(reshape(x)))"""
    if _WINDOWED.get(op_name(expr)) != 1 or not isinstance(expr, Call):
        return None
    attrs, data, result = expr.attrs, shape_of(expr.args[0]), shape_of(expr)
    if data is None or result is None or (attrs.layout, attrs.out_layout or "NCW") != ("NCW", "NCW"):
        return None
    n, c, w = data
    named = {
        "pool_size": (1, *_flat(attrs.pool_size)),
        "strides": (1, *_flat(attrs.strides)),
        "dilation": (1, *_flat(attrs.dilation)),
        "padding": _pads(op_name(expr), attrs.padding),
        "ceil_mode": attrs.ceil_mode,
    }
    if hasattr(attrs, "count_include_pad"):
        named["count_include_pad"] = attrs.count_include_pad
    pooled = call(expr.op.wider, reshape_to(expr.args[0], (n, c, 1, w)), **named)
    return reshape_to(pooled, result) if shape_of(pooled) is not None else None


def conv3d(expr: Expr) -> Expr | None:
    """conv3d(x, w)  ->  conv2d of slices, whose channels are those of the KD slices a result needs

    Of each group, where there are some; groups of one channel rather add up the results of the KD slices.
    """
    if not _is_plain(expr, "nn.conv3d", "OIDHW"):
        return None
    attrs, weight = expr.attrs, _weight_of(expr)
    data, result = known(expr.args[0]), known(expr)
    (front, back), *image_pads = pad_pairs(expr.op.name, attrs.padding, 3)
    (stride, *strides), (step, *dilation) = (
        per_axis(expr.op.name, name, getattr(attrs, name), 3) for name in ("strides", "dilation")
    )
    n, o, depth, oh, ow = result.static
    _, c, _, h, w = data.static
    if len(weight) != o:  # (channels, multiplier)
        weight = weight.reshape(o, 1, *weight.shape[2:])
    taps = weight.shape[2]
    if attrs.groups == c == o and weight[0].size == 1 and {stride, *strides} == {1} and result.static == data.static:
        return expr.args[0] * _constant(weight.reshape(c, 1, 1, 1))
    slices, axis = _padded_slices(expr.args[0], data.static, front, back)
    parts = [_every(slices, axis, k * step, depth, stride) for k in range(taps)]
    (top, bottom), (left, right) = image_pads

    def images(data: Expr, kernel: Array) -> Expr:
        return call(
            "nn.conv2d",
            reshape_to(data, (n * depth, kernel.shape[1] * attrs.groups, h, w)),
            _constant(kernel),
            strides=tuple(strides),
            padding=(top, left, bottom, right),
            dilation=tuple(dilation),
            channels=o,
            kernel_size=tuple(weight.shape[3:]),
            groups=attrs.groups,
        )

    if attrs.groups == c > 1:
        total = functools.reduce(operator.add, (images(part, weight[:, :, k]) for k, part in enumerate(parts)))
    else:
        stacked = _side_by_side(parts, axis, attrs.groups)
        total = images(stacked, weight.transpose(0, 2, 1, 3, 4).reshape(o, -1, *weight.shape[3:]))
    return transposed(reshape_to(total, (n, depth, o, oh, ow)), (0, 2, 1, 3, 4))


def conv3d_transpose(expr: Expr) -> Expr | None:
    """conv3d_transpose(x, w)  ->  conv2d_transpose of slices; what lies between two slices are further channels

    With stride s along the depth, result slice s * q + r - pad is the sum over taps k = s * j + r of slice q - j of the
    data times tap k: for each q one image of the slices q, q - 1, ..., with s times the outputs.
    """
    if not _is_plain(expr, "nn.conv3d_transpose", "IODHW"):
        return None
    attrs, weight = expr.attrs, _weight_of(expr)
    data, result = known(expr.args[0]), known(expr)
    (front, _), (top, bottom), (left, right) = pad_pairs(expr.op.name, attrs.padding, 3)
    (stride, *strides), (step, *dilation), (_, *more) = (
        per_axis(expr.op.name, name, getattr(attrs, name), 3, least)
        for name, least in (("strides", 1), ("dilation", 1), ("output_padding", 0))
    )
    (n, o, depth, oh, ow), (_, c, have, h, w) = result.static, data.static
    if have == 1:
        stride = min(stride, (weight.shape[2] - 1) * step + 1)  # no second slice lies that far on
    reach = (weight.shape[2] - 1) * step // stride + 1  # slices of the data that a group of results takes
    count, groups, o = -(-(depth + front) // stride), attrs.groups, o // attrs.groups
    if not is_filled_little(reach * stride * (weight.size // weight.shape[2]), weight.size):
        return None
    slices, axis = _padded_slices(expr.args[0], data.static, reach - 1, max(0, count - have))
    stacked = _side_by_side([_every(slices, axis, reach - 1 - j, count, 1) for j in range(reach)], axis, groups)
    flat = np.zeros((reach, c, stride, o, *weight.shape[3:]), weight.dtype)
    for k in range(weight.shape[2]):
        flat[k * step // stride, :, k * step % stride] = weight[:, :, k]
    flat = flat.reshape(reach, groups, c // groups, *flat.shape[2:]).swapaxes(0, 1)
    convolved: Expr = call(
        "nn.conv2d_transpose",
        reshape_to(stacked, (n * count, reach * c, h, w)),
        _constant(flat.reshape(reach * c, stride * o, *weight.shape[3:])),
        groups=groups,
        strides=tuple(strides),
        padding=(top, left, bottom, right),
        dilation=tuple(dilation),
        output_padding=tuple(more),
        channels=groups * stride * o,
        kernel_size=tuple(weight.shape[3:]),
    )
    if groups > 1:
        convolved = transposed(reshape_to(convolved, (n * count, groups, stride, o, oh, ow)), (0, 2, 1, 3, 4, 5))
    images = reshape_to(convolved, (n, count * stride, groups * o, oh, ow))
    return transposed(_every(images, 1, front, depth, 1), (0, 2, 1, 3, 4))


def _constant(values: object) -> Constant:
    return Constant(np.ascontiguousarray(values))


def _is_plain(expr: Expr, name: str, kernel_layout: str) -> TypeGuard[Call]:
    """Whether it is that convolution over three axes, with constant weights, known types, usual layouts."""
    if op_name(expr) != name or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return False
    attrs = expr.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCDHW")
    is_known = tensor(expr.args[0]) is not None and tensor(expr) is not None
    is_usual = layouts == ("NCDHW", kernel_layout, "NCDHW") and not attrs.out_dtype
    return is_known and is_usual


def _weight_of(call: Call) -> Array:
    """The weights of such a convolution."""
    weight = call.args[1]
    assert isinstance(weight, Constant), "constant weights"
    return weight.data


def _padded_slices(data: Expr, shape: tuple[int, ...], front: int, back: int) -> tuple[Expr, int]:
    """The slices with so many of zeros before and behind them, and the axis of the depth."""
    slices, axis = _slices(data, shape)
    return _with_border(slices, axis, front, back, 0.0), axis


def _with_border(value: Expr, axis: int, front: int, back: int, number: float) -> Expr:
    """More positions of a number before and behind those of an axis."""
    if not front and not back:
        return value
    width = [(0, 0)] * known(value).ndim
    width[axis] = (front, back)
    return call("nn.pad", value, pad_width=tuple(width), pad_value=number)


def _side_by_side(parts: list[Expr], axis: int, groups: int = 1) -> Expr:
    """Slices as channels of one image, those of a group together; `axis` is that of the depth."""
    if len(parts) == 1:
        return parts[0]
    if groups == 1:
        return concatenated(parts, axis + 1)
    *outer, c, h, w = parts[0].checked_type.shape  # type: ignore[attr-defined]
    grouped = [reshape_to(part, (*outer, groups, c // groups, h, w)) for part in parts]
    return reshape_to(concatenated(grouped, axis + 2), (*outer, c * len(parts), h, w))


def _slices(data: Expr, shape: tuple[int, ...]) -> tuple[Expr, int]:
    """The slices (n, d, c, h, w) and the axis of the depth; of a single volume images (d, c, h, w).

    What follows then works on four axes and stays in the blocked layout of its neighbours.
    """
    n, c, d, h, w = shape
    moved = transposed(data, (0, 2, 1, 3, 4))
    return (reshape_to(moved, (d, c, h, w)), 0) if n == 1 else (moved, 1)


def _every(value: Expr, axis: int, begin: int, count: int, stride: int) -> Expr:
    """`count` positions along an axis from `begin` on, `stride` apart."""
    ty = tensor(value)
    if ty is not None and stride == 1 and ty.shape[axis] == count:
        return value
    end = begin + (count - 1) * stride + 1
    return call("strided_slice", value, begin=(begin,), end=(end,), strides=(stride,), axes=(axis,))


def pool3d(expr: Expr) -> Expr | None:
    """max_pool3d(x)  ->  the maximum of slices of max_pool2d(slices of x); avg_pool3d(x) likewise, and the mean"""
    name = op_name(expr)
    if name not in ("nn.max_pool3d", "nn.avg_pool3d") or not isinstance(expr, Call):
        return None
    attrs, data, result = expr.attrs, tensor(expr.args[0]), tensor(expr)
    if data is None or result is None or (attrs.layout, attrs.out_layout or "NCDHW") != ("NCDHW", "NCDHW"):
        return None
    (front, back), (top, bottom), (left, right) = pad_pairs(name, attrs.padding, 3)
    sizes = (per_axis(name, field, getattr(attrs, field), 3) for field in ("pool_size", "strides", "dilation"))
    (taps, *size), (stride, *strides), (step, *dilation) = sizes
    n, c, d, h, w = data.static
    depth, oh, ow = result.static[2:]
    places = np.arange(depth)[:, None] * stride + np.arange(taps) * step - front
    is_mean, is_plain = hasattr(attrs, "count_include_pad"), not _is_of_images(expr.args[0])
    if is_mean and not data.dtype.is_float:
        return None
    if not ((places >= 0) & (places < d)).any(axis=1).all():
        return None  # a window of nothing but padding
    named = {
        "pool_size": tuple(size),
        "strides": tuple(strides),
        "dilation": tuple(dilation),
        "padding": (top, left, bottom, right),
        "ceil_mode": attrs.ceil_mode,
    } | ({"count_include_pad": attrs.count_include_pad} if is_mean else {})
    slices, axis = (expr.args[0], 1) if is_plain else _slices(expr.args[0], data.static)
    pooled: Expr = reshape_to(slices, (n * c * d, 1, h, w) if is_plain else (n * d, c, h, w))
    if {*size, *strides} != {1}:
        pooled = call(name.replace("3d", "2d"), pooled, **named)
    images = reshape_to(pooled, (n * c, d, oh, ow) if is_plain else (n, d, c, oh, ow)) if axis else pooled
    parts = _slices_at(images, axis, places, 0 if is_mean else lowest(str(data.dtype)))
    if is_mean:
        least, most = (-front, d + back) if attrs.count_include_pad else (0, d)
        mean = _mean_of(parts, axis, ((places >= least) & (places < most)).sum(axis=1))
    else:
        mean = functools.reduce(functools.partial(call, "maximum"), parts)
    if is_plain:
        return reshape_to(mean, result.static)
    return transposed(reshape_to(mean, (n, depth, c, oh, ow)), (0, 2, 1, 3, 4))


def _is_of_images(expr: Expr) -> bool:
    """Whether it comes from what is computed on slices: then they are at hand, else they would have to be made."""
    todo = [expr]
    while todo:
        item = todo.pop()
        if not isinstance(item, Call) or not isinstance(item.op, Op):
            continue
        if op_name(item) == "transpose":
            return axes_of(item) == (0, 2, 1, 3, 4)
        if op_name(item) == "concatenate" and isinstance(item.args[0], Tuple):
            todo.extend(item.args[0].fields)
        elif item.op.kind <= Kind.BROADCAST:
            todo.extend(item.args)
    return False


def _slices_at(images: Expr, axis: int, places: Array, outside: float) -> list[Expr]:
    """For each tap of all windows its slices; `places` has a row for each window."""
    ty = known(images)
    front, back = max(0, -int(places.min())), max(0, int(places.max()) - ty.static[axis] + 1)
    images = _with_border(images, axis, front, back, outside)
    count, stride = len(places), int(places[1, 0] - places[0, 0]) if len(places) > 1 else 1
    return [_every(images, axis, int(first) + front, count, stride) for first in places[0]]


def _mean_of(parts: list[Expr], axis: int, counts: Array) -> Expr:
    """The sums of the slices of each window over so many."""
    ty = known(parts[0])
    total, factors = functools.reduce(operator.add, parts), (1 / counts).astype(ty.dtype.numpy)
    if (factors == factors[0]).all():
        return total if factors[0] == 1 else total * Constant(factors[0])
    return total * Constant(factors.reshape(-1, *(1,) * (ty.ndim - 1 - axis)))
