"""image.dilation2d: the largest sum of a window of the data and a filter, channel by channel (morphology).

In: data (N, C, H, W), weight (C, kh, kw), or both with the channels last. Out: the maximum over the window of data +
weight. Invariant: padding is zero, as Relay has it (not the lowest number).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import (
    Pairs,
    Tensor,
    f32,
    need_dtype,
    need_rank,
    out_dim,
    pad_array,
    pad_pairs,
    per_axis,
    placed,
    reduce_axes,
    same_dim,
    te_pad,
    windows,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type, tensor_type

NAME = "image.dilation2d"
_KERNELS = {"NCHW": "IHW", "NHWC": "HWI"}


@record
class Dilation2dAttrs:
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilations: tuple[int, ...] = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "IHW"
    out_dtype: str = ""


dilation2d = Op(NAME, kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="Largest sums of windows and a filter.")
dilation2d.attrs(Dilation2dAttrs)


@record
class _Window:
    """Steps and padding along both axes."""

    strides: tuple[int, ...]
    pads: Pairs
    dilations: tuple[int, ...]


def _spatial(attrs: Dilation2dAttrs, what: str) -> tuple[int, ...]:
    """The two values along height and width of two, or of one for each axis of the data (1 for batch and channels)."""
    values: tuple[int, ...] = getattr(attrs, what)
    if not isinstance(values, tuple | list) or len(values) != 4 or attrs.data_layout not in _KERNELS:
        return values
    others = [v for v, axis in zip(values, attrs.data_layout, strict=True) if axis in "NC"]
    if others != [1, 1]:
        raise TypeMismatch(f"{NAME}: {what} {values} must be 1 for batch and channels of {attrs.data_layout}")
    return tuple(v for v, axis in zip(values, attrs.data_layout, strict=True) if axis in "HW")


def _window(attrs: Dilation2dAttrs) -> _Window:
    strides, dilations = (per_axis(NAME, w, _spatial(attrs, w), 2) for w in ("strides", "dilations"))
    return _Window(strides, pad_pairs(NAME, attrs.padding, 2), dilations)


def _result(attrs: Dilation2dAttrs, data: Type, weight: Type) -> TensorType:
    x, w, at = need_rank(NAME, data, 4), need_rank(NAME, weight, 3, "weight"), _window(attrs)
    need_dtype(NAME, x, w)
    layout, kernel = attrs.data_layout, attrs.kernel_layout
    if _KERNELS.get(layout) != kernel:
        raise TypeMismatch(f"{NAME}: layouts {layout!r} and {kernel!r}, wanted NCHW with IHW or NHWC with HWI")
    if not same_dim(x.shape[layout.index("C")], w.shape[kernel.index("I")]):
        raise TypeMismatch(f"{NAME}: data {x.shape} and weight {w.shape} have different channels")
    shape = list(x.shape)
    for k, axis in enumerate("HW"):
        size = w.static[kernel.index(axis)]
        if size == 0:
            raise TypeMismatch(f"{NAME}: a filter without elements: weight {w.shape}")
        place = layout.index(axis)
        shape[place] = out_dim(NAME, x.shape[place], at.pads[k], size, at.strides[k], at.dilations[k])
    return TensorType(tuple(shape), tensor_type((), attrs.out_dtype or str(x.dtype)).dtype)


dilation2d.infer(_result)


@dilation2d.flops
def _flops(attrs: Dilation2dAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A sum and a comparison for each weight of each result."""
    return 2 * result.size * (types[1].size // types[1].static[attrs.kernel_layout.index("I")])


@dilation2d.reference
def _reference(attrs: Dilation2dAttrs, data: Array, weight: Array) -> Array:
    at, layout = _window(attrs), attrs.data_layout
    out = _result(attrs, tensor_type(data.shape, data.dtype.name), tensor_type(weight.shape, weight.dtype.name))
    axes = (layout.index("H"), layout.index("W"))
    counts = [out.static[a] for a in axes]
    padded = pad_array(data, axes, at.pads)
    filters = weight if layout == "NCHW" else weight.transpose(2, 0, 1)
    best: Array | None = None
    for i, j in np.ndindex(*filters.shape[1:]):
        part = windows(padded, axes, (i * at.dilations[0], j * at.dilations[1]), counts, at.strides)
        shape = (-1, 1, 1) if layout == "NCHW" else (-1,)
        total = part + filters[:, i, j].reshape(shape)
        best = total if best is None else np.maximum(best, total)
    return np.asarray(best).astype(out.dtype.numpy)


@dilation2d.compute
def _compute(attrs: Dilation2dAttrs, data: Tensor, weight: Tensor) -> Tensor:
    at, layout, kernel = _window(attrs), attrs.data_layout, attrs.kernel_layout
    pads = [at.pads["HW".index(axis)] if axis in "HW" else (0, 0) for axis in layout]
    padded = te_pad(data, pads)
    sizes = [te.static_shape(weight)[kernel.index(axis)] for axis in "HW"]
    out = _result(attrs, *(TensorType(te.extents(t), DType(str(t.dtype))) for t in (data, weight)))
    inner = reduce_axes(sizes, ["ky", "kx"])

    def element(*index: te.Expr) -> te.Expr:
        where = dict(zip(layout, index, strict=True))
        for k, axis in enumerate("HW"):
            where[axis] = where[axis] * at.strides[k] + inner[k] * at.dilations[k]
        tap = placed(kernel, {"I": where["C"], "H": inner[0], "W": inner[1]})
        return te.max(padded(*placed(layout, where)).astype(out.dtype) + weight(*tap).astype(out.dtype), axis=inner)

    return te.compute(out.known, element, name="dilation2d", tag="dilation2d")


@dilation2d.samples
def _samples() -> Iterator[Sample]:
    yield Sample(Dilation2dAttrs((2, 1), (1, 0, 2, 1), (1, 2)), (f32(2, 3, 7, 8), f32(3, 3, 2)))
    nhwc = Dilation2dAttrs(padding=(1, 1), data_layout="NHWC", kernel_layout="HWI")
    yield Sample(nhwc, (f32(1, 5, 6, 3), f32(3, 3, 3)))


@dilation2d.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(Dilation2dAttrs(), (f32(1, 3, 5, 5), f32(2, 3, 3)), "have different channels")
    yield BadSample(Dilation2dAttrs(data_layout="NHWC"), (f32(1, 5, 5, 3), f32(3, 3, 3)), "wanted NCHW with IHW")
    yield BadSample(Dilation2dAttrs(), (f32(1, 3, 2, 2), f32(3, 3, 3)), "the window does not fit")
