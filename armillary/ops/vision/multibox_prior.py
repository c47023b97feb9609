"""vision.multibox_prior: the boxes that SSD starts from, around every element of a feature map.

In: data (N, C, H, W), of which only the sizes count; sizes and aspect ratios of boxes, in units of the image. Out:
(1, H * W * boxes, 4): left, top, right, bottom. Invariant: a constant; every size is a square, the other
ratios (from the second on) go with the first size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import accumulator
from armillary.ops.nn._windows import Tensor, f32, need_float, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "vision.multibox_prior"


@record
class MultiboxPriorAttrs:
    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    steps: tuple[float, ...] = (-1.0, -1.0)
    offsets: tuple[float, ...] = (0.5, 0.5)
    clip: bool = False


multibox_prior = Op(NAME, kind=Kind.OPAQUE, doc="The boxes that SSD starts from.")
multibox_prior.attrs(MultiboxPriorAttrs)


@multibox_prior.infer
def _infer(attrs: MultiboxPriorAttrs, data: Type) -> TensorType:
    x = need_float(NAME, need_rank(NAME, data, 4))
    if not attrs.sizes or not attrs.ratios or len(attrs.steps) != 2 or len(attrs.offsets) != 2:
        raise TypeMismatch(f"{NAME}: wanted sizes, ratios, two steps and two offsets, got {attrs}")
    if any(n == 0 for n in x.shape[2:]):
        raise TypeMismatch(f"{NAME}: a picture without pixels: {list(x.shape)}")
    count = x.shape[2] * x.shape[3] * (len(attrs.sizes) + len(attrs.ratios) - 1)
    return TensorType((1, count, 4), x.dtype)


def _half_sizes(attrs: MultiboxPriorAttrs, height: int, width: int) -> list[tuple[float, float]]:
    """Half the width and half the height of each box."""
    shape = [(size, 1.0) for size in attrs.sizes]
    shape += [(attrs.sizes[0], ratio) for ratio in attrs.ratios[1:]]
    return [(size * height / width * ratio**0.5 / 2, size / ratio**0.5 / 2) for size, ratio in shape]


@multibox_prior.reference
def _reference(attrs: MultiboxPriorAttrs, data: Array) -> Array:
    height, width = data.shape[2:]
    kind = "float64" if data.dtype == np.float64 else "float32"  # of the arithmetic, in kernels too
    steps = [s if s > 0 else 1.0 / n for s, n in zip(attrs.steps, (height, width), strict=True)]
    y = ((np.arange(height, dtype=kind) + attrs.offsets[0]) * steps[0])[:, None, None]
    x = ((np.arange(width, dtype=kind) + attrs.offsets[1]) * steps[1])[None, :, None]
    w, h = (np.array(v, kind)[None, None, :] for v in zip(*_half_sizes(attrs, height, width), strict=True))
    ends = np.stack(np.broadcast_arrays(x - w, y - h, x + w, y + h), -1).reshape(1, -1, 4)
    result: Array = (np.clip(ends, 0, 1) if attrs.clip else ends).astype(data.dtype)
    return result


@multibox_prior.compute
def _compute(attrs: MultiboxPriorAttrs, data: Tensor) -> Tensor:
    dtype = str(accumulator(data.dtype))
    height, width = te.extents(data)[2:]
    if isinstance(height, int) and isinstance(width, int):
        sides: tuple[te.ExprLike, te.ExprLike] = (height, width)
        halves: list[tuple[te.ExprLike, float]] = [*_half_sizes(attrs, height, width)]
    else:
        sides = (T.cast(T.convert(height), dtype), T.cast(T.convert(width), dtype))
        halves = [(T.mul(half, T.div(*sides)), other) for half, other in _half_sizes(attrs, 1, 1)]
    steps = [s if s > 0 else 1.0 / n if isinstance(n, int) else T.div(1.0, n) for s, n in zip(attrs.steps, sides)]
    count = len(halves)

    def chosen(which: te.Expr, along: int) -> te.Expr:
        value = T.cast(T.convert(halves[-1][along]), dtype)
        for k in range(count - 2, -1, -1):
            value = T.select(T.equal(which, k), T.cast(T.convert(halves[k][along]), dtype), value)
        return value

    def element(_: te.Expr, place: te.Expr, end: te.Expr) -> te.Expr:
        which, cell = place % count, place // count
        y = (T.cast(cell // width, dtype) + attrs.offsets[0]) * steps[0]
        x = (T.cast(cell % width, dtype) + attrs.offsets[1]) * steps[1]
        is_x = T.equal(end % 2, 0)
        reach = T.select(is_x, chosen(which, 0), chosen(which, 1))
        value = T.select(is_x, x, y) + T.select(end < 2, -reach, reach)
        retained = T.minimum(T.maximum(value, T.const(0.0, dtype)), T.const(1.0, dtype)) if attrs.clip else value
        return T.cast(retained, data.dtype)

    return te.compute((1, height * width * count, 4), element, name="multibox_prior")


@multibox_prior.samples
def _samples() -> Iterator[Sample]:
    yield Sample(MultiboxPriorAttrs((0.5, 0.25, 0.1), (1.0, 2.0, 0.5)), (f32(1, 2, 3, 4),))
    yield Sample(MultiboxPriorAttrs((0.9,), (1.0,), (0.3, 0.2), (0.0, 1.0), True), (f32(1, 1, 4, 2),))


@multibox_prior.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(MultiboxPriorAttrs(()), (f32(1, 2, 3, 4),), "wanted sizes, ratios")
