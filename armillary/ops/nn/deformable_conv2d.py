"""nn.deformable_conv2d: a convolution whose every tap reads where a tensor of offsets says.

In: data (N, C, H, W), offsets (N, 2·g·kh·kw, oh, ow), weight (O, C/groups, kh, kw), or all with the channels last. Out:
(N, O, oh, ow). The taps are read by image.grid_sample (bilinear, zeros outside), then a batched product over channels
and taps. Invariant: with offsets of zero it is the convolution; what would be read above or left of the image is 0, as
Relay has it, where ONNX's DeformConv interpolates with the zeros outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import (
    Pairs,
    call,
    f32,
    need_float,
    need_rank,
    out_dim,
    pad_pairs,
    per_axis,
    placed,
    reshape_to,
    type_of,
    widened_call,
)
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Axes, Follows
from armillary.relay.types import TensorType, Type, tensor_type

NAME = "nn.deformable_conv2d"
_KERNELS = {"NCHW": "OIHW", "NHWC": "HWIO"}


@record
class DeformableConv2dAttrs:
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    deformable_groups: int = 1
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""


_INPUTS = ("data", "offset", "weight")
deformable_conv2d = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="A convolution whose taps read where offsets say.")
deformable_conv2d.attrs(DeformableConv2dAttrs)


@record
class Taps:
    """Where the taps of a convolution lie, and how many groups share offsets."""

    strides: tuple[int, ...]
    pads: Pairs
    dilation: tuple[int, ...]
    shared: int = 1
    inside_only: bool = False


@deformable_conv2d.complete
def _complete(
    attrs: DeformableConv2dAttrs, data: Type | None, offset: Type | None, weight: Type | None
) -> tuple[Type | None, ...]:
    """Types for weight and offsets that have none, from the channels and sizes that the attributes say."""
    layout, kernel = attrs.data_layout, attrs.kernel_layout
    if not isinstance(data, TensorType) or attrs.channels is None or attrs.kernel_size is None:
        return (data, offset, weight)
    sizes = dict(zip("HW", per_axis(NAME, "kernel_size", attrs.kernel_size, 2), strict=True))
    inputs = data.static[layout.index("C")] // attrs.groups
    completed = TensorType(tuple(placed(kernel, {**sizes, "O": attrs.channels, "I": inputs})), data.dtype)
    wanted = {"N": data.shape[0], "C": 2 * attrs.deformable_groups * sizes["H"] * sizes["W"]}
    strides, dilation = (per_axis(NAME, n, getattr(attrs, n), 2) for n in ("strides", "dilation"))
    for k, axis in enumerate("HW"):
        pad = pad_pairs(NAME, attrs.padding, 2)[k]
        wanted[axis] = out_dim(NAME, data.shape[layout.index(axis)], pad, sizes[axis], strides[k], dilation[k])
    return (data, offset or TensorType(tuple(placed(layout, wanted)), data.dtype), weight or completed)


@deformable_conv2d.infer
def _infer(attrs: DeformableConv2dAttrs, data: Type, offset: Type, weight: Type) -> TensorType:
    x, moved, w = (need_float(NAME, need_rank(NAME, t, 4, n), n) for t, n in zip((data, offset, weight), _INPUTS))
    layout, kernel = attrs.data_layout, attrs.kernel_layout
    if _KERNELS.get(layout) != kernel or attrs.out_layout not in ("", layout):
        raise TypeMismatch(f"{NAME}: layouts {layout!r} and {kernel!r}, wanted NCHW with OIHW or NHWC with HWIO")
    strides, dilation = (per_axis(NAME, n, getattr(attrs, n), 2) for n in ("strides", "dilation"))
    pads, sizes = pad_pairs(NAME, attrs.padding, 2), {"N": x.shape[0], "C": w.shape[kernel.index("O")]}
    for k, axis in enumerate("HW"):
        size = w.static[kernel.index(axis)]
        sizes[axis] = out_dim(NAME, x.shape[layout.index(axis)], pads[k], size, strides[k], dilation[k])
    taps = w.static[kernel.index("H")] * w.static[kernel.index("W")]
    channels, wanted = x.shape[layout.index("C")], {**sizes, "C": 2 * attrs.deformable_groups * taps}
    if channels != w.static[kernel.index("I")] * attrs.groups or moved.shape != tuple(placed(layout, wanted)):
        message = (
            f"{NAME}: data {x.shape}, offset {moved.shape} and weight {w.shape} in {attrs.groups} groups do not fit"
        )
        raise TypeMismatch(message, hint=f"the offsets would be {tuple(placed(layout, wanted))}")
    return TensorType(tuple(placed(layout, sizes)), tensor_type((), attrs.out_dtype or str(x.dtype)).dtype)


@deformable_conv2d.flops
def _flops(attrs: DeformableConv2dAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A multiply-add for each weight of each result."""
    return 2 * result.size * (types[2].size // types[2].static[attrs.kernel_layout.index("O")])


@deformable_conv2d.reference
def _reference(attrs: DeformableConv2dAttrs, data: Array, offset: Array, weight: Array) -> Array:
    x, moved = (d if attrs.data_layout == "NCHW" else d.transpose(0, 3, 1, 2) for d in (data, offset))
    w = weight if attrs.kernel_layout == "OIHW" else weight.transpose(3, 2, 0, 1)
    strides, dilation = (per_axis(NAME, n, getattr(attrs, n), 2) for n in ("strides", "dilation"))
    pads, (kh, kw), (oh, ow) = pad_pairs(NAME, attrs.padding, 2), w.shape[2:], moved.shape[2:]
    shared, out = attrs.deformable_groups, np.zeros((len(x), len(w), oh, ow))
    places = moved.reshape(len(x), shared, kh, kw, 2, oh, ow).astype(np.float64)
    wide = x.shape[1] // shared
    for g, i, j in np.ndindex(shared, kh, kw):
        y = places[:, g, i, j, 0] + (np.arange(oh) * strides[0] + i * dilation[0] - pads[0][0])[:, None]
        z = places[:, g, i, j, 1] + (np.arange(ow) * strides[1] + j * dilation[1] - pads[1][0])
        read = _bilinear(x[:, g * wide : (g + 1) * wide], y, z)
        for c in range(wide):
            channel = g * wide + c
            group = channel // w.shape[1]
            units = slice(group * len(w) // attrs.groups, (group + 1) * len(w) // attrs.groups)
            out[:, units] += read[:, c][:, None] * w[units, channel % w.shape[1], i, j][None, :, None, None]
    result = out if attrs.data_layout == "NCHW" else out.transpose(0, 2, 3, 1)
    return result.astype(attrs.out_dtype or data.dtype)


def _bilinear(x: Array, y: Array, z: Array) -> Array:
    """Elements (N, C, oh, ow) between those of an image; zeros outside."""
    (height, width), total = x.shape[2:], np.zeros((*x.shape[:2], *y.shape[1:]))
    batch = np.arange(len(x))[:, None, None]
    y, z = (np.where(np.isfinite(places), places, -2.0) for places in (y, z))  # nowhere
    for down, right in np.ndindex(2, 2):
        row, column = np.floor(y).astype(int) + down, np.floor(z).astype(int) + right
        weight = (1 - np.abs(y - row)) * (1 - np.abs(z - column))
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (y >= 0) & (z >= 0)
        value = x[batch, :, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
        total += np.where(inside[:, None], np.moveaxis(value, -1, 1) * weight[:, None], 0)
    return total


@deformable_conv2d.decompose
def _decompose(attrs: DeformableConv2dAttrs, data: Expr, offset: Expr, weight: Expr) -> Expr:
    wide = widened_call(deformable_conv2d, attrs, data, offset, weight)
    if wide is not None:  # the places between pixels, too
        return wide
    plain = attrs.data_layout == "NCHW"
    x, moved = (d if plain else call("transpose", d, axes=(0, 3, 1, 2)) for d in (data, offset))
    w = weight if plain else call("transpose", weight, axes=(3, 2, 0, 1))
    strides, dilation = (per_axis(NAME, n, getattr(attrs, n), 2) for n in ("strides", "dilation"))
    taps = Taps(strides, pad_pairs(NAME, attrs.padding, 2), dilation, attrs.deformable_groups, inside_only=True)
    result = deformed(x, moved, w, taps, attrs.groups)
    result = result if plain else call("transpose", result, axes=(0, 2, 3, 1))
    return call("cast", result, dtype=attrs.out_dtype) if attrs.out_dtype else result


def deformed(data: Expr, offset: Expr, weight: Expr, taps: Taps, groups: int, mask: Expr | None = None) -> Expr:
    """The convolution, in NCHW and OIHW; `mask` (N, g·kh·kw, oh, ow) weights what each tap reads."""
    (n, c, h, w), (units, _, kh, kw) = type_of(data).static, type_of(weight).static
    (oh, ow), shared, count = type_of(offset).static[2:], taps.shared, kh * kw
    places, inside = _places(offset, (n, shared, kh, kw, oh, ow), taps, (_even(h), _even(w)))
    x = call("nn.pad", data, pad_width=((0, 0), (0, 0), (0, _even(h) - h), (0, _even(w) - w)))
    x = reshape_to(x, (n * shared, c // shared, _even(h), _even(w)))
    read = call(
        "image.grid_sample", x, places, method="bilinear", padding_mode="zeros", align_corners=False, grid_axis=-1
    )
    read = reshape_to(read, (n, shared, c // shared, count, oh * ow))
    for factor in (mask, inside):
        if factor is not None:
            read = read * reshape_to(factor, (n, shared, 1, count, oh * ow))
    columns = reshape_to(read, (n, groups, c // groups * count, oh * ow))
    filters = reshape_to(weight, (groups, units // groups, c // groups * count))
    spread = call("broadcast_to", filters, shape=(n, groups, units // groups, c // groups * count))
    product = call(
        "nn.batch_matmul",
        reshape_to(spread, (n * groups, units // groups, c // groups * count)),
        reshape_to(columns, (n * groups, c // groups * count, oh * ow)),
        transpose_b=False,
    )
    return reshape_to(product, (n, units, oh, ow))


def _even(size: int) -> int:
    """A power of two: places in units of it keep their digits. What is added is zero, as everything outside is."""
    return 1 << (size - 1).bit_length()


def _places(offset: Expr, sizes: tuple[int, ...], taps: Taps, image: tuple[int, int]) -> tuple[Expr, Expr | None]:
    """Where each tap reads, for image.grid_sample: (n·g, 1, taps·oh·ow, 2), x before y; which are not negative."""
    n, shared, kh, kw, oh, ow = sizes
    dtype = str(type_of(offset).dtype)
    moved = reshape_to(offset, (n * shared, kh * kw, 2, oh, ow))
    axes: list[Expr] = []
    inside: Expr | None = None
    for axis, (outer, kernel) in enumerate(((oh, kh), (ow, kw))):
        at = np.arange(outer)[None, :] * taps.strides[axis] + np.arange(kernel)[:, None] * taps.dilation[axis]
        at = at - taps.pads[axis][0]
        grid = at[:, None, :, None] if axis == 0 else at[None, :, None, :]
        base = np.broadcast_to(grid, (kh, kw, oh, ow)).reshape(1, kh * kw, oh, ow)
        place = call("take", moved, const(np.array(axis, np.int64)), axis=2)
        place = place + const(np.ascontiguousarray(base).astype(dtype))
        place = call("clip", place, a_min=-2.0, a_max=image[axis] + 1.0)  # beyond these is zero, infinitely far too
        place = call("where", call("equal", place, place), place, const(np.array(-2.0, dtype)))  # so is no number
        axes.append((place * 2.0 + 1.0) * (1.0 / image[axis]) - 1.0)
        if taps.inside_only:
            here = call("cast", place >= const(np.zeros((), dtype)), dtype=dtype)
            inside = here if inside is None else inside * here
    both = call("stack", (axes[1], axes[0]), axis=-1)
    return reshape_to(both, (n * shared, 1, kh * kw * oh * ow, 2)), inside


@deformable_conv2d.samples
def _samples() -> Iterator[Sample]:
    attrs = DeformableConv2dAttrs((2, 1), (1, 1), (1, 2), 2, 2)
    yield Sample(attrs, (f32(2, 4, 6, 7), f32(2, 36, 3, 5), f32(6, 2, 3, 3)), rtol=1e-4, atol=1e-4)
    last = DeformableConv2dAttrs(padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    yield Sample(last, (f32(1, 5, 4, 3), f32(1, 5, 4, 18), f32(3, 3, 3, 2)), rtol=1e-4, atol=1e-4)


@deformable_conv2d.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(DeformableConv2dAttrs(), (f32(1, 3, 5, 5), f32(1, 18, 5, 5), f32(4, 3, 3, 3)), "do not fit")
    yield BadSample(DeformableConv2dAttrs(data_layout="NHWC"), (f32(1, 5, 5, 3),) * 3, "wanted NCHW with OIHW")


state("nn.deformable_conv2d", follows=Follows.DEFORMABLE, axes=Axes("NCHW", "OIHW", tuple(_KERNELS.items())))
