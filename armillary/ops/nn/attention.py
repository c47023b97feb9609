"""nn.attention and nn.masked_attention: softmax(scale * query key^T + mask) value, per batch and head.

In: query, key, value of four axes in any order, named by layouts: B batch, T position, H head, D feature; the mask,
added to the scores, broadcasts to (B, H, T of query, T of key). `heads` heads start at `offsets` of each operand's H
axis (one projection may hold all three); `shared` neighbouring query heads read one head of key and value. Out: a
tensor in `out_layout`. Invariant: layouts say where a value lies, never which it is. Found in graphs by
recognize-attention; TE keeps no more than needed: a schedule may compute a block of rows at a time
(backends/cpu/attention/prefill.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_float,
    need_rank,
    need_tensor,
    reduce_axes,
    same_dim,
    wide,
)
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type


@record
class AttentionAttrs:
    """`heads` 0: all heads of the query."""

    scale: float = 1.0
    heads: int = 0
    query_layout: str = "BTHD"
    key_layout: str = "BTHD"
    value_layout: str = "BTHD"
    out_layout: str = "BTHD"
    offsets: tuple[int, ...] = (0, 0, 0)
    shared: int = 1
    choice: str = ""  # target/choice.py
    blank: bool = False  # a row whose weights are no numbers, as where all keys are hidden, is zeros


@record
class Sizes:
    """Batch, query positions, key positions, heads, features of keys and of values."""

    b: int
    t: int
    s: int
    h: int
    d: int
    e: int


_DOC = "softmax(scale * query key^T + mask) value."
attention = Op("nn.attention", kind=Kind.CONTRACTION, inputs=("query", "key", "value"), doc=_DOC)
masked_attention = Op("nn.masked_attention", kind=Kind.CONTRACTION, inputs=("query", "key", "value", "mask"), doc=_DOC)
Read: TypeAlias = Callable[..., "te.Expr"]  # of the indices of an element
LETTERS = "BTHD"


def layouts(attrs: AttentionAttrs) -> tuple[str, str, str]:
    """The layouts of query, key and value."""
    return attrs.query_layout, attrs.key_layout, attrs.value_layout


def sizes_of(attrs: AttentionAttrs, shapes: Sequence[Sequence[int]]) -> Sizes:
    """The sizes, by letter."""
    q, k, v = (dict(zip(text, shape, strict=True)) for text, shape in zip(layouts(attrs), shapes, strict=False))
    return Sizes(q["B"], q["T"], k["T"], attrs.heads or q["H"], q["D"], v["D"])


def _macs(attrs: AttentionAttrs, types: Sequence[TensorType], _result: TensorType) -> int:
    """Of both products: each query position of each head with each key position."""
    size = sizes_of(attrs, [ty.static for ty in types])
    return size.b * size.t * size.h * size.s * (size.d + size.e)


attention.macs(_macs)
masked_attention.macs(_macs)


def _shape(name: str, attrs: AttentionAttrs, query: Type, key: Type, value: Type) -> TensorType:
    types = [need_tensor(name, ty, what) for ty, what in ((query, "query"), (key, "key"), (value, "value"))]
    first = need_float(name, types[0])
    if sorted(attrs.out_layout) != sorted(LETTERS):
        raise TypeMismatch(f"{name}: the layout of the result is {attrs.out_layout!r}", hint="an order of B, T, H, D")
    for ty, text, what in zip(types, layouts(attrs), ("query", "key", "value"), strict=True):
        need_rank(name, ty, 4, what)
        need_dtype(name, first, ty)
        if sorted(text) != sorted(LETTERS):
            raise TypeMismatch(f"{name}: the layout of {what} is {text!r}", hint="an order of B, T, H, D")
    q, k, v = (dict(zip(text, ty.known, strict=True)) for text, ty in zip(layouts(attrs), types, strict=True))
    of_operands = [n for part in (q, k, v) if isinstance(n := part["H"], int)]
    if len(of_operands) < len(types):
        raise TypeMismatch(f"{name}: how many heads there are is open", hint="fix that size: shape=")
    if min(attrs.heads, attrs.shared - 1, *attrs.offsets) < 0:
        wanted = "heads and offsets from 0 on, at least 1 shared"
        raise TypeMismatch(f"{name}: {attrs.heads} heads at {attrs.offsets}, {attrs.shared} shared: wanted {wanted}")
    heads = attrs.heads or of_operands[0]
    pairs = ((k["B"], q["B"]), (k["D"], q["D"]), (v["B"], q["B"]), (v["T"], k["T"]))
    if not all(same_dim(*pair) for pair in pairs):
        raise TypeMismatch(f"{name}: query {types[0]}, key {types[1]} and value {types[2]} do not fit together")
    if k["T"] == 0:
        raise TypeMismatch(f"{name}: there are no keys: {types[1]}", hint="a softmax needs at least one score")
    counts = (heads, *[-(-heads // attrs.shared)] * 2)
    for held, offset, count in zip(of_operands, attrs.offsets, counts, strict=True):
        if offset + count > held or bool(count) != bool(held):
            raise TypeMismatch(f"{name}: heads {offset} to {offset + count} of an operand that has {held}")
    size = {"B": q["B"], "T": q["T"], "H": heads, "D": v["D"]}
    return TensorType(tuple(size[c] for c in attrs.out_layout), first.dtype)


attention.infer(lambda attrs, q, k, v: _shape("nn.attention", attrs, q, k, v))


@masked_attention.infer
def _infer_masked(attrs: AttentionAttrs, query: Type, key: Type, value: Type, mask: Type) -> TensorType:
    name = "nn.masked_attention"
    result = _shape(name, attrs, query, key, value)
    shapes = [need_tensor(name, ty).known for ty in (query, key, value)]
    s, mask_type = sizes_of(attrs, cast("list[tuple[int, ...]]", shapes)), need_tensor(name, mask, "mask")
    need_rank(name, mask_type, 4, "mask")
    wanted = zip(mask_type.known, (s.b, s.h, s.t, s.s), strict=True)
    if not all(have == 1 or same_dim(have, want) for have, want in wanted):
        raise TypeMismatch(f"{name}: mask {mask_type} does not broadcast to {(s.b, s.h, s.t, s.s)}")
    return result


def _heads_first(attrs: AttentionAttrs, x: Array, which: int) -> Array:
    """(B, H, T, D), the heads used only."""
    y = x.transpose([layouts(attrs)[which].index(c) for c in "BHTD"])
    start, heads = attrs.offsets[which], attrs.heads or x.shape[attrs.query_layout.index("H")]
    index = start + np.arange(heads) // (attrs.shared if which else 1)
    return wide(y[:, index])


def _reference(attrs: AttentionAttrs, query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    count = attrs.heads or query.shape[attrs.query_layout.index("H")]
    whole = AttentionAttrs(**{**attrs.__dict__, "heads": count})
    q, k, v = (_heads_first(whole, x, n) for n, x in enumerate((query, key, value)))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(attrs.scale)
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore" if attrs.blank else "warn"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    result = (np.where(np.isnan(weights), 0, weights) if attrs.blank else weights) @ v
    return np.asarray(result.transpose(["BHTD".index(c) for c in attrs.out_layout])).astype(query.dtype)


attention.reference(_reference)
masked_attention.reference(_reference)


def reader(attrs: AttentionAttrs, which: int, x: Tensor) -> Read:
    """A function (b, h, t, d) that reads an operand."""
    text, offset = layouts(attrs)[which], attrs.offsets[which]

    def read(b: te.Expr, h: te.Expr, t: te.Expr, d: te.Expr) -> te.Expr:
        head = h // attrs.shared if which and attrs.shared > 1 else h
        at = {"B": b, "H": head + offset, "T": t, "D": d}
        result: te.Expr = x(*(at[c] for c in text))
        return result

    return read


def mask_reader(mask: Tensor | None) -> Read | None:
    """A function (b, h, t, s) that reads the mask, or None."""
    if mask is None:
        return None
    shape = te.extents(mask)
    return lambda *index: mask(*(0 if size == 1 else i for size, i in zip(shape, index, strict=True)))


def placed(attrs: AttentionAttrs, size: Sizes, element: Read, name: str) -> Tensor:
    """A tensor in the result's layout from `element(b, h, t, d)`."""
    extent = {"B": size.b, "T": size.t, "H": size.h, "D": size.e}

    def at(*index: te.Expr) -> te.Expr:
        by = dict(zip(attrs.out_layout, index, strict=True))
        return element(by["B"], by["H"], by["T"], by["D"])

    return te.compute([extent[c] for c in attrs.out_layout], at, name=name, tag=name)


def _greatest() -> Callable[..., te.Expr]:
    """A maximum that may lose NaN: their exponentials make the row's sum NaN anyway, and to ask takes half the time."""
    result: Callable[..., te.Expr] = te.comm_reducer(
        lambda x, y: te.select(x > y, x, y), lambda dtype: T.const(-math.inf, dtype), "greatest"
    )
    return result


def softmax_stages(size: Sizes, scores: Read, rows: int, keys: int) -> tuple[Tensor, Tensor]:
    """exp(scores - their row's maximum) and its row sums, from `scores(b, h, t, s)`, for `rows` x `keys`."""
    shape = (size.b, size.h, rows)
    (k,), (j,) = reduce_axes([keys], ["s"]), reduce_axes([keys], ["s"])
    top = te.compute(shape, lambda *i: _greatest()(scores(*i, k), axis=[k]), name="attention_max")
    powers = te.compute((*shape, keys), lambda *i: te.exp_flushed(scores(*i) - top(*i[:3])), name="attention_exp")
    total = te.compute(shape, lambda *i: te.sum(powers(*i, j), axis=[j]), name="attention_sum")
    return powers, total


def of_rows(attrs: AttentionAttrs, total: te.Expr, value: te.Expr) -> te.Expr:
    """What a row with these sums of exponentials has: `value`, but for rows without a number that are to be zeros.

    The greatest score has the exponential 1, so a sum of numbers is at least that.
    """
    return te.select(total > T.const(0, total.dtype), value, T.const(0, value.dtype)) if attrs.blank else value


def compute(attrs: AttentionAttrs, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """The plain stages, without packing."""
    shapes = [te.extents(x) for x in (query, key, value)]  # some may be open: loops count to them all the same
    size = sizes_of(attrs, cast("list[tuple[int, ...]]", shapes))
    wide_type = "float32" if T.convert(query(0, 0, 0, 0)).dtype.bits < 32 else query.dtype
    q, k, v = (reader(attrs, n, x) for n, x in enumerate((query, key, value)))
    (d,), (s,), bias = reduce_axes([size.d], ["d"]), reduce_axes([size.s], ["s"]), mask_reader(mask)
    products = te.compute(
        (size.b, size.h, size.t, size.s),
        lambda b, h, t, j: te.sum(q(b, h, t, d).astype(wide_type) * k(b, h, j, d).astype(wide_type), axis=[d]),
        name="attention_scores",
    )

    def scores(*index: te.Expr) -> te.Expr:
        value = products(*index) * T.const(attrs.scale, wide_type)
        return value if bias is None else value + bias(*index).astype(wide_type)

    powers, total = softmax_stages(size, scores, size.t, size.s)
    mixed = te.compute(
        (size.b, size.h, size.t, size.e),
        lambda b, h, t, e: te.sum(powers(b, h, t, s) * v(b, h, s, e).astype(wide_type), axis=[s]),
        name="attention_mix",
    )

    def element(*index: te.Expr) -> te.Expr:
        weight, sums = mixed(*index), total(*index[:3])
        return of_rows(attrs, sums, weight / sums).astype(query.dtype)

    return placed(attrs, size, element, "attention")


attention.compute(compute)
masked_attention.compute(compute)


@attention.samples
def samples() -> Iterator[Sample]:
    yield Sample(AttentionAttrs(scale=0.5), (f32(1, 5, 2, 8), f32(1, 7, 2, 8), f32(1, 7, 2, 8)))
    joint = f32(2, 9, 6, 16)
    yield Sample(AttentionAttrs(scale=0.25, heads=2, offsets=(0, 2, 4), out_layout="BHTD"), (joint, joint, joint))
    order = AttentionAttrs(query_layout="BHTD", key_layout="BHDT", value_layout="BHTD", shared=2)
    yield Sample(order, (f32(1, 4, 3, 8), f32(1, 2, 8, 21), f32(1, 2, 21, 16)))


@masked_attention.samples
def samples_masked() -> Iterator[Sample]:
    yield Sample(AttentionAttrs(), (f32(2, 5, 3, 8), f32(2, 6, 3, 8), f32(2, 6, 3, 8), f32(2, 1, 1, 6)))
    yield Sample(AttentionAttrs(), (f32(1, 18, 1, 16), f32(1, 18, 1, 16), f32(1, 18, 1, 16), f32(1, 1, 18, 18)))


@attention.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(AttentionAttrs(), (f32(1, 5, 2, 8), f32(1, 5, 2, 6), f32(1, 5, 2, 8)), "do not fit together")
    yield BadSample(AttentionAttrs(heads=3), (f32(1, 5, 2, 8),) * 3, "heads 0 to 3 of an operand that has 2")
    yield BadSample(AttentionAttrs(heads=-1), (f32(1, 5, 2, 8),) * 3, "-1 heads at (0, 0, 0), 1 shared: wanted")
    none = f32(1, 0, 2, 8)
    yield BadSample(AttentionAttrs(), (f32(1, 5, 2, 8), none, none), "there are no keys")
    yield BadSample(AttentionAttrs(key_layout="BTHH"), (f32(1, 5, 2, 8),) * 3, "the layout of key is 'BTHH'")


@masked_attention.bad_samples
def bad_samples_masked() -> Iterator[BadSample]:
    yield BadSample(AttentionAttrs(), (*(f32(1, 5, 2, 8),) * 3, f32(1, 1, 5, 4)), "does not broadcast to (1, 2, 5, 5)")


for _op in (attention, masked_attention):
    _op.attrs(AttentionAttrs)
