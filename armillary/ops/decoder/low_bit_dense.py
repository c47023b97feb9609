"""nn.low_bit_dense: a dense layer whose weights are integers of 2 to 8 bits, with a scale for each group of terms.

In: data (…, inner); weight, bytes (units, inner * bits / 8) as `packed` has them; scales (units, groups), one for each
`group` terms of a row; zeros, bytes (units, groups) or (1, 1): the integer that stands for 0. nn.two_level_dense has
scales that may be integers, minima (units, groups) of their type, or (1, 1): none, and tops (units, n) or (1, 1): what
scales of as many groups are multiplied with, and behind these those of minima, if there are some. Out: (…, units), the
product with (integer - zero) * scale, there times top, plus minimum times its top. Invariant: the integers are never
stored as floats; `inner` is a multiple of the group, and a group of whole bytes. How CPUs compute it:
backends/cpu/gemm/low_bit. Who makes it: recognize-low-bit-dense, import of MatMulNBits, files of decoders.
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
    same_dim,
    tensor,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

NAME, LEVELS = "nn.low_bit_dense", "nn.two_level_dense"
BITS = (2, 4, 5, 6, 8)
WORD = 32


@record
class LowBitDenseAttrs:
    """Bits of an integer, and how many terms of a row have one scale."""

    bits: int = 4
    group: int = 32


@record
class Plane:
    """Bits of integers that lie together: how many, above how many others, behind how many words of a step."""

    bits: int
    start: int
    word: int


def terms_of_step(bits: int) -> int:
    """Terms whose integers fill words of 32 bits: all planes of a step have whole words."""
    return WORD // (bits & -bits)


def planes_of(bits: int) -> tuple[Plane, ...]:
    """4 bits and one (5), 4 and two (6), else all of them: fields that bytes are divided into."""
    result: list[Plane] = []
    start = word = 0
    for width in (w for w in (8, 4, 2, 1) if bits & w):
        result.append(Plane(width, start, word))
        start, word = start + width, word + width // (bits & -bits)
    return tuple(result)


low_bit_dense = Op(
    NAME,
    kind=Kind.CONTRACTION,
    inputs=("data", "weight", "scales", "zeros"),
    doc="A dense layer whose weights are small integers with a scale per group.",
)
two_level_dense = Op(
    LEVELS,
    kind=Kind.CONTRACTION,
    inputs=(*low_bit_dense.inputs, "minima", "tops"),
    doc="nn.low_bit_dense with scales of scales, and a minimum per group.",
)
for _op in (low_bit_dense, two_level_dense):
    _op.attrs(LowBitDenseAttrs)
state(f"{NAME} {LEVELS}", Fact.READS_NARROW)


@low_bit_dense.infer
def _infer(attrs: LowBitDenseAttrs, data: Type, weight: Type, scales: Type, zeros: Type) -> TensorType:
    need_float(NAME, need_tensor(NAME, scales), "scales")
    return _inferred(attrs, data, weight, scales, zeros)


@two_level_dense.infer
def _infer_levels(
    attrs: LowBitDenseAttrs, data: Type, weight: Type, scales: Type, zeros: Type, minima: Type, tops: Type
) -> TensorType:
    s, m, t = (need_rank(LEVELS, x, 2, w) for x, w in ((scales, "scales"), (minima, "minima"), (tops, "tops")))
    need_float(LEVELS, t, "tops")
    levels = 1 if m.static == (1, 1) else 2
    if levels == 2:
        need_shape(LEVELS, "minima", m, s.static)
    if t.static != (1, 1) and (
        t.static[0] != s.static[0] or t.static[1] % levels or s.static[1] * levels % t.static[1]
    ):
        raise TypeMismatch(f"{LEVELS}: tops {t} of scales {s} and minima {m}", hint="one for as many groups each")
    return _inferred(attrs, data, weight, scales, zeros)


def _inferred(attrs: LowBitDenseAttrs, data: Type, weight: Type, scales: Type, zeros: Type) -> TensorType:
    x = need_float(NAME, need_tensor(NAME, data))
    w, s, z = (need_rank(NAME, t, 2, what) for t, what in ((weight, "weight"), (scales, "scales"), (zeros, "zeros")))
    if attrs.bits not in BITS or attrs.group < 1 or attrs.group * attrs.bits % 8:
        raise TypeMismatch(f"{NAME}: {attrs.bits} bits in groups of {attrs.group}, wanted {BITS} in whole bytes")
    if {str(w.dtype), str(z.dtype)} != {"uint8"}:
        raise TypeMismatch(f"{NAME}: weight {w} and zeros {z}, wanted uint8")
    units, width = w.static
    inner = width * 8 // attrs.bits
    if len(planes_of(attrs.bits)) > 1 and inner % terms_of_step(attrs.bits):
        raise TypeMismatch(f"{NAME}: {inner} terms of {attrs.bits} bits are no multiple of {terms_of_step(attrs.bits)}")
    if x.ndim < 1 or not same_dim(x.shape[-1], inner) or inner % attrs.group:
        message = f"data {x} for rows of {inner} terms in groups of {attrs.group}"
        raise TypeMismatch(f"{NAME}: {message}", hint="pad the data to whole groups")
    groups = inner // attrs.group
    need_shape(NAME, "scales", s, (units, groups))
    if z.static != (1, 1):
        need_shape(NAME, "zeros", z, (units, groups))
    return TensorType((*x.shape[:-1], units), x.dtype)


def _macs(attrs: LowBitDenseAttrs, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[-1])


for _op in (low_bit_dense, two_level_dense):
    _op.macs(_macs)


def unpacked(weight: Array, bits: int) -> Array:
    """Bytes as the integers they hold along the last axis, the first term in the lowest bits.

    Of 5 and 6 bits each step of 32 and 16 terms has the four lower bits of all first, and then the others.
    """
    planes = planes_of(bits)
    if bits == 8:
        return weight
    if len(planes) == 1:
        parts = [weight >> np.uint8(k) & np.uint8((1 << bits) - 1) for k in range(0, 8, bits)]
        return np.stack(parts, axis=-1).reshape(*weight.shape[:-1], -1)
    steps = weight.reshape(*weight.shape[:-1], -1, terms_of_step(bits) * bits // 8)
    parts = np.split(steps, [plane.word * 4 for plane in planes[1:]], axis=-1)
    values = [unpacked(part, p.bits) << np.uint8(p.start) for part, p in zip(parts, planes, strict=True)]
    result: Array = np.bitwise_or.reduce(values).reshape(*weight.shape[:-1], -1)
    return result


def packed(values: Array, bits: int) -> Array:
    """The reverse: integers (…, terms) in bytes; terms that are missing in the last byte are 0."""
    planes = planes_of(bits)
    if len(planes) > 1:
        steps = values.astype(np.uint8, copy=False).reshape(*values.shape[:-1], -1, terms_of_step(bits))
        parts = [packed(steps >> np.uint8(p.start) & np.uint8((1 << p.bits) - 1), p.bits) for p in planes]
        joined: Array = np.concatenate(parts, axis=-1).reshape(*values.shape[:-1], -1)
        return joined
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


def expanded(
    attrs: LowBitDenseAttrs,
    weight: Array,
    scales: Array,
    zeros: Array,
    minima: Array | None = None,
    tops: Array | None = None,
) -> Array:
    """(units, inner) weights as real numbers, in float32 or the type of wider scales."""
    dtype = wide(scales).dtype if scales.dtype.kind == "f" else np.dtype(np.float32)

    def spread(part: Array, factors: Array | None = None) -> Array:
        values = part.astype(dtype)
        if factors is not None:
            values = values * np.repeat(factors.astype(dtype), values.shape[1] // factors.shape[1], axis=1)
        return np.repeat(values, attrs.group, axis=1) if values.shape[1] > 1 or part is scales else values

    has_minima = minima is not None and minima.shape != (1, 1)
    halves = [tops, tops] if tops is None or tops.size == 1 or not has_minima else np.split(tops, 2, axis=1)
    result: Array = (unpacked(weight, attrs.bits).astype(dtype) - spread(zeros)) * spread(scales, halves[0])
    return result if minima is None or not has_minima else result + spread(minima, halves[1])


def _reference(attrs: LowBitDenseAttrs, data: Array, *parts: Array) -> Array:
    result: Array = np.matmul(wide(data), expanded(attrs, *parts).T).astype(data.dtype)
    return result


def _compute(attrs: LowBitDenseAttrs, data: Tensor, weight: Tensor, *parts: Tensor) -> Tensor:
    inner = "float32" if data.dtype.bits < 32 else str(data.dtype)
    (k,) = reduce_axes([data.shape[-1]], ["k"])

    def at(part: Tensor, unit: te.Expr, group: te.Expr) -> te.Expr:
        return part(0, 0) if te.static_shape(part) == (1, 1) else part(unit, group)

    def element(*index: te.Expr) -> te.Expr:
        *rows, unit = index
        group = k // attrs.group
        value, zero = _integer(attrs.bits, weight, unit, k), at(parts[1], unit, group)
        real = (value - zero.astype("int32")).astype(inner) * at(parts[0], unit, group).astype(inner)
        if len(parts) > 2:
            real = levels(real, unit, group)
        return te.sum(data(*rows, k).astype(inner) * real, axis=[k])

    def levels(real: te.Expr, unit: te.Expr, group: te.Expr) -> te.Expr:
        minima, tops = parts[2:]
        has_minima, is_one = te.static_shape(minima) != (1, 1), te.static_shape(tops) == (1, 1)
        supers = te.static_shape(tops)[1] // (1 if is_one or not has_minima else 2)
        place = group // (te.static_shape(parts[0])[1] // supers)
        real = real * at(tops, unit, place).astype(inner)
        if not has_minima:
            return real
        return real + at(minima, unit, group).astype(inner) * at(tops, unit, place + supers).astype(inner)

    result: Tensor = te.compute([*data.shape[:-1], weight.shape[0]], element, name="low_bit_dense", tag="dense")
    if inner == str(data.dtype):
        return result
    return te.compute(result.shape, lambda *i: result(*i).astype(data.dtype), name="narrowed", tag="injective")


def _integer(bits: int, weight: Tensor, unit: te.Expr, term: te.Expr) -> te.Expr:
    """The integer of a term, int32."""
    planes, terms = planes_of(bits), terms_of_step(bits)
    if len(planes) == 1:
        byte = weight(unit, term // (8 // bits)).astype("int32")
        return (byte >> (term % (8 // bits) * bits)) & T.const((1 << bits) - 1, "int32")
    step, result = term // terms * (terms * bits // 8), T.const(0)
    for plane in planes:
        place = term % terms * plane.bits
        byte = weight(unit, step + plane.word * 4 + place // 8).astype("int32")
        field = (byte >> (place % 8)) & T.const((1 << plane.bits) - 1, "int32")
        result = T.bitwise_or(result, T.shift_left(field, T.const(plane.start)))
    return result


for _op in (low_bit_dense, two_level_dense):
    _op.reference(_reference)
    _op.compute(_compute)


@low_bit_dense.samples
def _samples() -> Iterator[Sample]:
    for bits, group, groups in ((4, 32, 2), (8, 16, 3), (2, 16, 2)):
        bytes_ = tensor("uint8", 18, group * groups * bits // 8)
        one = np.full((1, 1), 1 << (bits - 1), np.uint8)
        yield Sample(LowBitDenseAttrs(bits, group), (f32(3, group * groups), bytes_, f32(18, groups), one), (0, 2))
        many = (np.arange(18 * groups).reshape(18, groups) % (1 << bits)).astype(np.uint8)
        yield Sample(LowBitDenseAttrs(bits, group), (f32(2, 1, group * groups), bytes_, f32(18, groups), many), (0, 2))


@two_level_dense.samples
def _samples_levels() -> Iterator[Sample]:
    random = np.random.default_rng(7)
    for bits, group, kind, has_minima, supers in (
        (4, 32, "uint8", True, 1),
        (5, 32, "uint8", True, 2),
        (6, 16, "int8", False, 2),
        (5, 32, "float16", True, 0),
    ):
        inner, groups = group * 4, 4
        bytes_ = random.integers(0, 256, (18, inner * bits // 8)).astype(np.uint8)
        scales, minima = (random.integers(1, 60, (18, groups)).astype(kind) for _ in range(2))
        tops = np.ones((1, 1), np.float32)
        if supers:
            tops = random.uniform(-0.1, 0.1, (18, supers * (1 + has_minima))).astype(np.float16)
        zeros = np.full((1, 1), 0 if has_minima else 32, np.uint8)
        least = minima if has_minima else np.zeros((1, 1), kind)
        parts = (bytes_, scales, zeros, least, tops)
        yield Sample(LowBitDenseAttrs(bits, group), (f32(3, inner), *parts), (0, 5), rtol=2e-5, atol=2e-3)


@two_level_dense.bad_samples
def _bad_samples_levels() -> Iterator[BadSample]:
    weight, scales, zeros = tensor("uint8", 8, 24), tensor("uint8", 8, 2), tensor("uint8", 1, 1)
    least, attrs = tensor("uint8", 8, 2), LowBitDenseAttrs(6, 16)
    yield BadSample(attrs, (f32(2, 32), weight, scales, zeros, least, f32(8, 3)), "tops")
    yield BadSample(attrs, (f32(2, 32), weight, scales, zeros, tensor("uint8", 8, 1), f32(8, 2)), "minima has shape")


@low_bit_dense.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    weight, scales, zeros = tensor("uint8", 8, 32), f32(8, 2), tensor("uint8", 1, 1)
    attrs = LowBitDenseAttrs()
    yield BadSample(LowBitDenseAttrs(bits=3), (f32(2, 64), weight, scales, zeros), "wanted (2, 4, 5, 6, 8)")
    yield BadSample(attrs, (f32(2, 60), weight, scales, zeros), "pad the data to whole groups")
    yield BadSample(attrs, (f32(2, 64), weight, f32(8, 3), zeros), "scales has shape")
    yield BadSample(attrs, (f32(2, 64), tensor("int8", 8, 32), scales, zeros), "wanted uint8")
