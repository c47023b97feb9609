"""cpu.conv2d_by_size_NCHWc: a 3x3 convolution over open sizes, by Winograd's algorithm on images that are large enough.

In: blocked data, the weight, the weight transformed. Out: as cpu.conv2d_winograd_NCHWc. Transformed weights are 16/9
or 36/9 of the weights, and an image of few pixels takes as long as reading them: ResNet-18's last layers took 27 times
the direct convolution's time for one pixel. Invariant: both ways agree up to rounding; `fewest` is the number of output
pixels, of all images together, from which the transforms are used. Made by winograd_conv2d.py; the kernel is both
kernels under one condition over sizes (schedule_by_size.py), whose epilogue is fused to each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.backends.cpu.conv2d.winograd import operator as by_transforms
from armillary.base.record import record
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type


@record
class BySizeAttrs(by_transforms.WinogradAttrs):
    """Those of the convolution by transforms, whose rules take them as they are, and what the direct one needs."""

    fewest: int = 1
    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW8i8o"
    out_layout: str = ""


by_size = Op("cpu.conv2d_by_size_NCHWc", kind=Kind.CONTRACTION, inputs=("data", "weight", "transformed"))
by_size.attrs(BySizeAttrs)


@by_size.infer
def _infer(attrs: BySizeAttrs, data: Type, weight: Type, transformed: Type) -> Type:
    need_rank(by_size.name, weight, 6, "weight")
    return by_transforms.winograd.infer_type(attrs, (data, transformed))


@by_size.reference
def _reference(attrs: BySizeAttrs, data: Array, weight: Array, transformed: Array) -> Array:
    """The sums are the same, whichever way they are computed."""
    assert by_transforms.winograd.reference_rule is not None, "it has one"
    result: Array = by_transforms.winograd.reference_rule(attrs, data, transformed)
    return result


@by_size.compute
def _compute(attrs: BySizeAttrs, data: te.Tensor, weight: te.Tensor, transformed: te.Tensor) -> te.Tensor:
    result: te.Tensor = by_transforms.winograd_stages(attrs, data, transformed)
    return result


@by_size.macs
def _macs(attrs: BySizeAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    assert by_transforms.winograd.macs_rule is not None, "it has one"
    return by_transforms.winograd.macs_rule(attrs, types, result)


@by_size.flops
def _flops(attrs: BySizeAttrs, types: Sequence[TensorType], result: TensorType) -> float:
    """Those of the transforms, which typical sizes take."""
    assert by_transforms.winograd.flops_rule is not None, "it has one"
    return by_transforms.winograd.flops_rule(attrs, types, result)


@by_size.samples
def _samples() -> Iterator[Sample]:
    weight = np.random.default_rng(0).standard_normal((2, 1, 3, 3, 8, 8)).astype(np.float32)
    rule = by_transforms.weight_transform.reference_rule
    assert rule is not None, "it has one"
    for fewest in (1, 1000):
        transformed = rule(by_transforms.WeightTransformAttrs(2), weight)
        yield Sample(BySizeAttrs(2, (1, 1), fewest=fewest), (f32(2, 1, 6, 5, 8), weight, transformed), atol=1e-4)


@by_size.bad_samples
def _bad() -> Iterator[BadSample]:
    yield BadSample(BySizeAttrs(), (f32(1, 1, 8, 8, 8), f32(1, 1, 3, 3), f32(6, 6, 1, 1, 8, 8)), "weight")
    yield BadSample(BySizeAttrs(), (f32(1, 1, 8, 8, 8), f32(1, 1, 3, 3, 8, 8), f32(4, 4, 1, 1, 8, 8)), "must be")
