"""nn.correlation: how alike two feature maps are, for every displacement of the second (FlowNet's layer).

In: two maps (N, C, H, W). Out: (N, (2r+1)^2, h, w), r = max_displacement // stride2: means over channels and a window
of products, or of absolute differences. Invariant: both maps are padded with zeros by the same amounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.extent import Known, evaluate
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import accumulator
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_float,
    need_rank,
    need_shape,
    pad_array,
    pad_pairs,
    reduce_axes,
    te_pad,
    windows,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "nn.correlation"


@record
class CorrelationAttrs:
    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    padding: tuple[int, ...] = (0, 0)
    is_multiply: bool = True
    layout: str = "NCHW"


correlation = Op(NAME, kind=Kind.CONTRACTION, inputs=("data1", "data2"), doc="Likeness of displaced feature maps.")
correlation.attrs(CorrelationAttrs)


@record
class _Grid:
    """Displacements along one axis, how far they and the window reach, and the sizes of the result."""

    radius: int
    border: int
    height: Known
    width: Known

    @property
    def side(self) -> int:
        return 2 * self.radius + 1


def _grid(attrs: CorrelationAttrs, shape: Sequence[Known]) -> _Grid:
    pads = pad_pairs(NAME, attrs.padding, 2)
    border = attrs.max_displacement + (attrs.kernel_size - 1) // 2
    sizes = [(n + sum(pad) - 2 * border) // attrs.stride1 for n, pad in zip(shape[2:], pads, strict=True)]
    if any(isinstance(size, int) and size < 1 for size in sizes):
        raise TypeMismatch(f"{NAME}: no window of {attrs.kernel_size} displaced by {border} fits in {shape[2:]}")
    return _Grid(attrs.max_displacement // attrs.stride2, border, *sizes)


@correlation.infer
def _infer(attrs: CorrelationAttrs, data1: Type, data2: Type) -> TensorType:
    x, y = (need_float(NAME, need_rank(NAME, t, 4, what), what) for t, what in ((data1, "data1"), (data2, "data2")))
    need_dtype(NAME, x, y)
    need_shape(NAME, "data2", y, x.shape)
    if attrs.layout != "NCHW" or attrs.kernel_size < 1 or attrs.kernel_size % 2 == 0:
        raise TypeMismatch(f"{NAME}: layout {attrs.layout!r}, kernel_size {attrs.kernel_size}; wanted NCHW and an odd")
    if min(attrs.stride1, attrs.stride2) < 1 or attrs.max_displacement < 0:
        raise TypeMismatch(f"{NAME}: strides must be positive, max_displacement not negative")
    grid = _grid(attrs, x.known)
    return TensorType((x.shape[0], grid.side**2, grid.height, grid.width), x.dtype)


@correlation.reference
def _reference(attrs: CorrelationAttrs, data1: Array, data2: Array) -> Array:
    grid, pads = _grid(attrs, data1.shape), pad_pairs(NAME, attrs.padding, 2)
    x, y = (pad_array(d.astype(np.float64), (2, 3), pads) for d in (data1, data2))
    size = tuple(evaluate(n, {}) for n in (grid.height, grid.width))
    out = np.zeros((data1.shape[0], grid.side**2, *size))
    steps = (attrs.stride1, attrs.stride1)
    for q, i, j in np.ndindex(grid.side**2, attrs.kernel_size, attrs.kernel_size):
        at = (attrs.max_displacement + i, attrs.max_displacement + j)
        moved = ((q // grid.side - grid.radius) * attrs.stride2, (q % grid.side - grid.radius) * attrs.stride2)
        one = windows(x, (2, 3), at, size, steps)
        two = windows(y, (2, 3), (at[0] + moved[0], at[1] + moved[1]), size, steps)
        out[:, q] += (one * two if attrs.is_multiply else np.abs(one - two)).sum(1)
    result: Array = (out / (attrs.kernel_size**2 * data1.shape[1])).astype(data1.dtype)
    return result


@correlation.flops
def _flops(attrs: CorrelationAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A multiply-add, or a difference and a sum, for each element of the windows."""
    return 2 * result.size * types[0].static[1] * attrs.kernel_size**2


@correlation.compute
def _compute(attrs: CorrelationAttrs, data1: Tensor, data2: Tensor) -> Tensor:
    shape = te.extents(data1)
    grid, pads = _grid(attrs, shape), [(0, 0), (0, 0), *pad_pairs(NAME, attrs.padding, 2)]
    x, y = te_pad(data1, pads, name="left_pad"), te_pad(data2, pads, name="right_pad")
    c, i, j = inner = reduce_axes([shape[1], attrs.kernel_size, attrs.kernel_size], ["c", "ky", "kx"])
    wide = accumulator(data1.dtype)
    count = attrs.kernel_size**2 * shape[1]
    share = (
        T.const(1.0 / count, wide) if isinstance(count, int) else T.const(1.0, wide) / T.cast(T.convert(count), wide)
    )

    def element(n: te.Expr, q: te.Expr, h: te.Expr, w: te.Expr) -> te.Expr:
        row, column = h * attrs.stride1 + attrs.max_displacement + i, w * attrs.stride1 + attrs.max_displacement + j
        down, right = (q // grid.side - grid.radius) * attrs.stride2, (q % grid.side - grid.radius) * attrs.stride2
        one, two = (T.cast(v, wide) for v in (x(n, c, row, column), y(n, c, row + down, column + right)))
        part = one * two if attrs.is_multiply else T.maximum(one - two, two - one)
        return te.sum(part, axis=inner)

    size = (shape[0], grid.side**2, grid.height, grid.width)
    total = te.compute(size, element, name="correlation", tag="correlation")
    return te.compute(size, lambda *at: T.cast(total(*at) * share, data1.dtype), name="mean", tag="elemwise")


@correlation.samples
def _samples() -> Iterator[Sample]:
    yield Sample(CorrelationAttrs(1, 2, 1, 1, (2, 2)), (f32(1, 3, 6, 7), f32(1, 3, 6, 7)))
    yield Sample(CorrelationAttrs(3, 2, 2, 2, (2, 2), False), (f32(2, 2, 8, 7), f32(2, 2, 8, 7)))


@correlation.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(CorrelationAttrs(2), (f32(1, 3, 6, 7), f32(1, 3, 6, 7)), "wanted NCHW and an odd")
    yield BadSample(CorrelationAttrs(1, 9), (f32(1, 3, 6, 7), f32(1, 3, 6, 7)), "fits in (6, 7)")
    yield BadSample(CorrelationAttrs(), (f32(1, 3, 6, 7), f32(1, 3, 7, 7)), "data2 has shape")
