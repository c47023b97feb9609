"""nn.low_bit_dense: a dense layer whose weights are integers of 2, 4 or 8 bits, with a scale for each group of terms.

In: data (…, inner); weight, bytes (units, inner * bits / 8) in which the first term has the lowest bits; scales (units,
groups), one for each `group` terms of a row; zeros, bytes (units, groups) or (1, 1): the integer that stands for 0.
Out: (…, units), the product with (integer - zero) * scale. Invariant: the integers are never stored as floats; `inner`
is a multiple of the group, and a group of whole bytes. How CPUs compute it: backends/cpu/gemm/low_bit. Who makes it:
recognize-low-bit-dense, import of MatMulNBits (rules/contrib.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_float,
    need_rank,
    need_shape,
    need_tensor,
    reduce_axes,
    tensor,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

NAME = "nn.low_bit_dense"
BITS = (2, 4, 8)


@record
class LowBitDenseAttrs:
    """Bits of an integer, and how many terms of a row have one scale."""

    bits: int = 4
    group: int = 32


low_bit_dense = Op(
    NAME,
    kind=Kind.CONTRACTION,
    inputs=("data", "weight", "scales", "zeros"),
    doc="A dense layer whose weights are small integers with a scale per group.",
)
low_bit_dense.attrs(LowBitDenseAttrs)
state(NAME, Fact.READS_NARROW)


@low_bit_dense.infer
def _infer(attrs: LowBitDenseAttrs, data: Type, weight: Type, scales: Type, zeros: Type) -> TensorType:
    x = need_float(NAME, need_tensor(NAME, data))
    w, s, z = (need_rank(NAME, t, 2, what) for t, what in ((weight, "weight"), (scales, "scales"), (zeros, "zeros")))
    need_float(NAME, s, "scales")
    if attrs.bits not in BITS or attrs.group < 1 or attrs.group * attrs.bits % 8:
        raise TypeMismatch(f"{NAME}: {attrs.bits} bits in groups of {attrs.group}, wanted 2, 4 or 8 in whole bytes")
    if {str(w.dtype), str(z.dtype)} != {"uint8"}:
        raise TypeMismatch(f"{NAME}: weight {w} and zeros {z}, wanted uint8")
    units, width = w.static
    inner = width * 8 // attrs.bits
    if x.ndim < 1 or x.static[-1] != inner or inner % attrs.group:
        message = f"data {x} for rows of {inner} terms in groups of {attrs.group}"
        raise TypeMismatch(f"{NAME}: {message}", hint="pad the data to whole groups")
    groups = inner // attrs.group
    need_shape(NAME, "scales", s, (units, groups))
    if z.static != (1, 1):
        need_shape(NAME, "zeros", z, (units, groups))
    return TensorType((*x.shape[:-1], units), x.dtype)


@low_bit_dense.macs
def _macs(attrs: LowBitDenseAttrs, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[-1])


def unpacked(weight: Array, bits: int) -> Array:
    """Bytes as the integers they hold along the last axis, the lowest bits first."""
    if bits == 8:
        return weight
    parts = [weight >> np.uint8(k) & np.uint8((1 << bits) - 1) for k in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*weight.shape[:-1], -1)


def packed(values: Array, bits: int) -> Array:
    """The reverse: integers (…, terms) in bytes; terms that are missing in the last byte are 0."""
    each = 8 // bits
    full, short = values.astype(np.uint8, copy=False), -values.shape[-1] % each
    if short:
        full = np.pad(full, [(0, 0)] * (values.ndim - 1) + [(0, short)])
    if bits == 8:
        return full
    fields = full.reshape(*values.shape[:-1], -1, each)
    result = np.zeros(fields.shape[:-1], np.uint8)
    for k in range(each):
        result |= fields[..., k] << np.uint8(k * bits)
    return result


def expanded(attrs: LowBitDenseAttrs, weight: Array, scales: Array, zeros: Array) -> Array:
    """(units, inner) weights as real numbers, in the type of wide scales."""
    values = unpacked(weight, attrs.bits).astype(wide(scales).dtype)
    spread = [np.repeat(p, attrs.group, axis=1) if p.shape[1] > 1 or p is scales else p for p in (scales, zeros)]
    result: Array = (values - spread[1].astype(values.dtype)) * wide(spread[0])
    return result


@low_bit_dense.reference
def _reference(attrs: LowBitDenseAttrs, data: Array, weight: Array, scales: Array, zeros: Array) -> Array:
    result: Array = np.matmul(wide(data), expanded(attrs, weight, scales, zeros).T).astype(data.dtype)
    return result


@low_bit_dense.compute
def _compute(attrs: LowBitDenseAttrs, data: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    inner = "float32" if data.dtype.bits < 32 else str(data.dtype)
    (k,) = reduce_axes([data.shape[-1]], ["k"])
    each, is_one = 8 // attrs.bits, te.static_shape(zeros) == (1, 1)

    def element(*index: te.Expr) -> te.Expr:
        *rows, unit = index
        byte, group = weight(unit, k // each).astype("int32"), k // attrs.group
        value = (byte >> (k % each * attrs.bits)) & T.const((1 << attrs.bits) - 1, "int32")
        zero = zeros(0, 0) if is_one else zeros(unit, group)
        real = (value - zero.astype("int32")).astype(inner) * scales(unit, group).astype(inner)
        return te.sum(data(*rows, k).astype(inner) * real, axis=[k])

    result: Tensor = te.compute([*data.shape[:-1], weight.shape[0]], element, name="low_bit_dense", tag="dense")
    if inner == str(data.dtype):
        return result
    return te.compute(result.shape, lambda *i: result(*i).astype(data.dtype), name="narrowed", tag="injective")


@low_bit_dense.samples
def _samples() -> Iterator[Sample]:
    for bits, group, groups in ((4, 32, 2), (8, 16, 3), (2, 16, 2)):
        bytes_ = tensor("uint8", 18, group * groups * bits // 8)
        one = np.full((1, 1), 1 << (bits - 1), np.uint8)
        yield Sample(LowBitDenseAttrs(bits, group), (f32(3, group * groups), bytes_, f32(18, groups), one), (0, 2))
        many = (np.arange(18 * groups).reshape(18, groups) % (1 << bits)).astype(np.uint8)
        yield Sample(LowBitDenseAttrs(bits, group), (f32(2, 1, group * groups), bytes_, f32(18, groups), many), (0, 2))


@low_bit_dense.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    weight, scales, zeros = tensor("uint8", 8, 32), f32(8, 2), tensor("uint8", 1, 1)
    attrs = LowBitDenseAttrs()
    yield BadSample(LowBitDenseAttrs(bits=3), (f32(2, 64), weight, scales, zeros), "wanted 2, 4 or 8")
    yield BadSample(attrs, (f32(2, 60), weight, scales, zeros), "pad the data to whole groups")
    yield BadSample(attrs, (f32(2, 64), weight, f32(8, 3), zeros), "scales has shape")
    yield BadSample(attrs, (f32(2, 64), tensor("int8", 8, 32), scales, zeros), "wanted uint8")
