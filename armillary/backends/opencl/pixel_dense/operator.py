"""opencl.dense_pixels: a dense layer on blocks of four, for GPUs that read four numbers at once.

In: data (M, K/4, 4), which is (M, K) in memory, and weight (K, N/4, 4): four outputs are a pixel. Out: (M, N/4, 4).
Invariant: the numbers of nn.dense; sums are of `out_dtype`, or else of the data's type. Made by graph/block_channels.py
of layers of several rows; its schedule: schedule.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import f32, need_rank, reduce_axes, wide
from armillary.ops.nn.conv import result_dtype
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type
from armillary.target.texture import PIXEL

NAME = "opencl.dense_pixels"


@record
class DensePixelsAttrs:
    out_dtype: str = ""


dense_pixels = Op(NAME, kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="A dense layer on blocks of four.")
dense_pixels.attrs(DensePixelsAttrs)


@dense_pixels.infer
def _infer(attrs: DensePixelsAttrs, data: Type, weight: Type) -> TensorType:
    x, w = need_rank(NAME, data, 3), need_rank(NAME, weight, 3, "weight")
    if x.shape[2] != PIXEL or w.shape[2] != PIXEL or x.static[1] * PIXEL != w.shape[0]:
        raise TypeMismatch(f"{NAME}: data {x.shape} and weight {w.shape}; wanted (M, K/4, 4) and (K, N/4, 4)")
    return TensorType((x.shape[0], w.shape[1], PIXEL), result_dtype(attrs, x))


@dense_pixels.reference
def _reference(attrs: DensePixelsAttrs, data: Array, weight: Array) -> Array:
    rows, terms, blocks = len(data), len(weight), weight.shape[1]
    product = wide(data).reshape(rows, terms).astype(np.float64) @ wide(weight).reshape(terms, blocks * PIXEL)
    result: Array = product.reshape(rows, blocks, PIXEL).astype(attrs.out_dtype or data.dtype)
    return result


@dense_pixels.compute
def _compute(attrs: DensePixelsAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    dtype = result_dtype(attrs, data)
    # The axes of sums of a convolution with one tap, so that its schedule's parts apply.
    outer, _, _, inner = axes = reduce_axes([data.shape[1], 1, 1, PIXEL], ["k_outer", "kh", "kw", "k_inner"])

    def element(row: te.Expr, block: te.Expr, lane: te.Expr) -> te.Expr:
        rhs = weight(outer * PIXEL + inner, block, lane)
        return te.sum(data(row, outer, inner).astype(dtype) * rhs.astype(dtype), axis=axes)

    shape = (data.shape[0], weight.shape[1], PIXEL)
    result: te.Tensor = te.compute(shape, element, name="dense", tag="dense_pixels")
    return result


@dense_pixels.macs
def _macs(_attrs: DensePixelsAttrs, types: list[TensorType], result: TensorType) -> int:
    return result.size * types[1].static[0]


@dense_pixels.samples
def _samples() -> Iterator[Sample]:
    yield Sample(DensePixelsAttrs(), (f32(8, 6, 4), f32(24, 3, 4)), atol=1e-4)
    yield Sample(DensePixelsAttrs(), (f32(5, 2, 4), f32(8, 1, 4)), atol=1e-4)


@dense_pixels.bad_samples
def _bad() -> Iterator[BadSample]:
    yield BadSample(DensePixelsAttrs(), (f32(8, 6, 4), f32(20, 3, 4)), r"wanted (M, K/4, 4) and (K, N/4, 4)")
