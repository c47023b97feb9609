"""vision.yolo_reorg: the channels of YOLO's passthrough layer, spread as the layer's weights expect them.

In: data (N, C, H, W), C a multiple of stride squared. Out: (N, C * stride^2, H / stride, W / stride). Invariant: the
same elements in another order: groups of channels are laid out as if they were stride x stride sub-pixels of an image,
and that image is read in rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.extent import Known, typical
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, f32, need_rank, reshape_to, type_of
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "vision.yolo_reorg"


@record
class YoloReorgAttrs:
    stride: int = 1


yolo_reorg = Op(NAME, kind=Kind.INJECTIVE, doc="Channels of YOLO's passthrough layer.")
yolo_reorg.attrs(YoloReorgAttrs)


@yolo_reorg.infer
def _infer(attrs: YoloReorgAttrs, data: Type) -> TensorType:
    x, s = need_rank(NAME, data, 4), attrs.stride
    n, c, h, w = x.shape
    if s < 1 or any(isinstance(d, int) and d % by for d, by in ((c, s * s), (h, s), (w, s))):
        raise TypeMismatch(f"{NAME}: data {x.shape} does not divide by the stride {s} (channels by its square)")
    return TensorType((n, c * s * s, h // s, w // s), x.dtype)


def _split(attrs: YoloReorgAttrs, shape: tuple[Known, ...]) -> tuple[tuple[Known, ...], tuple[Known, ...]]:
    """The data as (N, channels of the image, H, row in a pixel, W, column in a pixel); the result."""
    (n, c, h, w), s = shape, attrs.stride
    return (n, c // (s * s), h, s, w, s), (n, c * s * s, h // s, w // s)


@yolo_reorg.reference
def _reference(attrs: YoloReorgAttrs, data: Array) -> Array:
    image, result = _split(attrs, data.shape)
    turned = data.reshape([typical(n) for n in image]).transpose(0, 3, 5, 1, 2, 4)
    return turned.reshape([typical(n) for n in result])


@yolo_reorg.decompose
def _decompose(attrs: YoloReorgAttrs, data: Expr) -> Expr:
    image, result = _split(attrs, type_of(data).known)
    return reshape_to(call("transpose", reshape_to(data, image), axes=(0, 3, 5, 1, 2, 4)), result)


@yolo_reorg.samples
def _samples() -> Iterator[Sample]:
    yield Sample(YoloReorgAttrs(2), (f32(2, 8, 4, 6),))
    yield Sample(YoloReorgAttrs(1), (f32(1, 3, 4, 5),))


@yolo_reorg.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(YoloReorgAttrs(2), (f32(1, 6, 4, 4),), "does not divide by the stride 2")
