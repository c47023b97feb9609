"""What the pages of model families are written in: layers as functions from expressions to expressions.

In: expressions, weights: in float32 or 16-bit floats, or `Packed` ones, with which products compute as they are; all
may be deferred. Out: expressions. Invariant: x is (slots, rows, features). Angles of rotary positions: rope.py.
"""

from __future__ import annotations

import itertools

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, each_rows, looked_at, picked_rows
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.ops.decoder.low_bit_dense import (
    LEVELS,
    NAME,
    LowBitDenseAttrs,
    expanded,
    packed,
    planes_of,
    terms_of_step,
)
from armillary.ops.decoder.narrow_dense import NARROW
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Constant, Expr, Tuple, const
from armillary.relay.types import TensorType

GROUP = 32
CACHES = ("float32", "float16", "int8")  # what a cache may hold; int8 with a scale for each row of a head
Caches = tuple[Expr, ...]
Weight = Array | Deferred  # in memory, or in a file until it is used


@record
class Step:
    """The tokens that go in: where they stand, how many positions count, the angles of their rotary positions."""

    start: Expr
    total: Expr
    cos: Expr
    sin: Expr


@record
class Heads:
    """Heads of queries, groups of keys, features of a head; the factor of scores, a window and a softcap (0: none)."""

    count: int
    groups: int
    size: int
    scale: float
    window: int = 0
    softcap: float = 0.0


@record
class Packed:
    """A matrix (units, inner) of small integers: (integer - zero) * scale + minimum, both times tops where there are.

    `data`: bytes (units, inner * bits / 8); `scales`, `minima`: (units, groups), floats or integers; `tops`: (units,
    blocks), floats, those of scales before those of minima. None: none.
    """

    data: Weight
    scales: Weight
    zero: int
    bits: int
    minima: Weight | None = None
    tops: Weight | None = None

    @property
    def group(self) -> int:
        """Terms that share a scale."""
        return int(self.data.shape[1] * 8 // self.bits // self.scales.shape[1])

    def rows(self, index: slice | Array) -> Packed:
        """The same of some units."""
        data, scales, minima, tops = (
            None if part is None else picked_rows(part, index)
            for part in (self.data, self.scales, self.minima, self.tops)
        )
        assert data is not None and scales is not None, "they are"
        return Packed(data, scales, self.zero, self.bits, minima, tops)

    def parts(self) -> tuple[Weight, ...]:
        """What nn.low_bit_dense takes, or nn.two_level_dense: bytes, scales, zeros, minima, tops."""
        plain = self.data, self.scales, np.full((1, 1), self.zero, np.uint8)
        if self.minima is None and self.tops is None:
            return plain
        minima = np.zeros((1, 1), self.scales.dtype) if self.minima is None else self.minima
        return *plain, minima, np.ones((1, 1), np.float16) if self.tops is None else self.tops

    def float32(self) -> Array:
        """The numbers that it stands for."""
        parts = [looked_at(part) for part in self.parts()]
        parts[1] = parts[1].astype(np.float32)
        return expanded(LowBitDenseAttrs(self.bits, self.group), *parts)


def linear(x: Expr, weight: Weight | Packed, bias: Array | None = None) -> Expr:
    """x weightᵀ + bias."""
    if isinstance(weight, Packed):
        parts = weight.parts()
        name = NAME if len(parts) == 3 else LEVELS
        y = call(name, x, *map(Constant, parts), bits=weight.bits, group=weight.group)
    elif weight.dtype.itemsize == 2:
        y = call(NARROW, x, Constant(weight))
    else:
        y = call("nn.dense", x, Constant(weight))
    return y if bias is None else y + const(np.ascontiguousarray(bias, np.float32))


def quantized(weight: Weight, bits: int) -> Packed:
    """Integers around a middle zero, a scale for each group of a row: the greatest magnitude over the largest one."""
    groups, middle = weight.shape[1] // GROUP, 1 << (bits - 1)
    data = each_rows(weight, groups * GROUP * bits // 8, np.uint8, lambda rows: _integers(rows, bits)[0])
    return Packed(data, each_rows(weight, groups, np.float32, lambda rows: _integers(rows, bits)[1]), middle, bits)


def _integers(weight: Array, bits: int) -> tuple[Array, Array]:
    """The integers of rows, packed, and their scales."""
    units, inner = weight.shape
    blocks = weight.astype(np.float32, copy=False).reshape(units, inner // GROUP, GROUP)
    middle = 1 << (bits - 1)
    scales = (np.abs(blocks).max(2) / (middle - 1)).astype(np.float32)
    safe = np.where(scales > 0, scales, 1)
    steps = np.clip(np.rint(blocks / safe[..., None]), -middle, middle - 1) + middle
    return packed(steps.reshape(units, inner), bits), scales


def embedding(table: Weight | Packed, tokens: Expr) -> Expr:
    """Rows of a table; of a packed one, expanded after they are taken."""
    if not isinstance(table, Packed):
        taken = _rows(table, tokens)
        return taken if table.dtype == np.float32 else call("cast", taken, dtype="float32")
    integers = _integers_of(_rows(table.data, tokens), table.bits)
    batch, rows = type_of(tokens).static
    groups = table.scales.shape[1]
    supers = 0 if table.tops is None else table.tops.shape[1] // (1 if table.minima is None else 2)

    def spread(part: Weight, first: int) -> Expr:
        real = call("cast", _rows(part, tokens), dtype="float32")
        if table.tops is not None:
            top = call("cast", _rows(table.tops, tokens), dtype="float32")
            top = call("strided_slice", top, begin=(first,), end=(first + supers,), axes=(2,))
            real = reshape_to(real, (batch, rows, supers, groups // supers)) * call("expand_dims", top, axis=-1)
        return reshape_to(real, (batch, rows, groups, 1))

    values = reshape_to(integers, (batch, rows, groups, table.group))
    result = call("cast", values - const(np.int32(table.zero)), dtype="float32") * spread(table.scales, 0)
    if table.minima is not None:
        result = result + spread(table.minima, supers)
    return reshape_to(result, (batch, rows, groups * table.group))


def _integers_of(data: Expr, bits: int) -> Expr:
    """(…, bytes) as the integers that they hold, int32: nn.low_bit_dense's `unpacked`."""
    wide, planes = call("cast", data, dtype="int32"), planes_of(bits)
    batch, rows, width = type_of(data).static
    step = terms_of_step(bits) * bits // 8 if len(planes) > 1 else width
    steps = reshape_to(wide, (batch, rows, width // step, step))
    ends, result = [*(4 * p.word for p in planes), step], None
    for plane, (begin, end) in zip(planes, itertools.pairwise(ends), strict=True):
        part = call("strided_slice", steps, begin=(begin,), end=(end,), axes=(3,)) if len(planes) > 1 else steps
        mask = const(np.int32((1 << plane.bits) - 1))
        fields = [
            call("bitwise_and", call("right_shift", part, const(np.int32(k))), mask) for k in range(0, 8, plane.bits)
        ]
        values = call("stack", Tuple(tuple(fields)), axis=-1)
        values = reshape_to(values, (batch, rows, width * 8 // bits))
        result = values if result is None else result + values * const(np.int32(1 << plane.start))
    assert result is not None, "integers have bits"
    return result


def _rows(table: Weight, tokens: Expr) -> Expr:
    return call("take", Constant(table), tokens, axis=0, mode="clip")


def rms_norm(x: Expr, weight: Array, epsilon: float, offset: float = 0.0) -> Expr:
    """x over the root of its mean square, times weight + offset."""
    mean = call("mean", x * x, axis=(-1,), keepdims=True)
    return x * call("rsqrt", mean + epsilon) * const((weight + np.float32(offset)).astype(np.float32))


def silu(x: Expr) -> Expr:
    """x sigmoid(x)."""
    return x * call("sigmoid", x)


def tanh_gelu(x: Expr) -> Expr:
    """GELU by its tanh approximation."""
    return call("nn.gelu", x, approximate="tanh")


def softcapped(x: Expr, cap: float) -> Expr:
    """cap tanh(x / cap)."""
    return x if not cap else call("tanh", x * (1 / cap)) * cap


def rotary(x: Expr, step: Step) -> Expr:
    """(slots, rows, heads, size) with its halves turned by the angles of the rows' positions.

    Where there are fewer angles than half the features, the features behind their double stay.
    """
    size, half = type_of(x).static[-1], type_of(step.cos).static[-1]
    ends = [0, half, 2 * half, size] if 2 * half < size else [0, half, size]
    first, second, *rest = (
        call("strided_slice", x, begin=(b,), end=(e,), axes=(3,)) for b, e in itertools.pairwise(ends)
    )
    turned = first * step.cos - second * step.sin, first * step.sin + second * step.cos
    return call("concatenate", Tuple((*turned, *rest)), axis=3)


def cache_types(kind: str, shape: tuple[int, int, int, int]) -> dict[str, TensorType]:
    """The caches of a layer in one of `CACHES`, keys before values, as `attend` takes them."""
    result = {name: TensorType(shape, DType(kind)) for name in ("key", "value")}
    if kind == "int8":
        result |= {f"{name}_scale": TensorType((*shape[:3], 1), DType("float32")) for name in ("key", "value")}
    return result


def attend(q: Expr, k: Expr, v: Expr, caches: Caches, heads: Heads, step: Step) -> tuple[Expr, Caches]:
    """Attention of (slots, rows, heads, size) over caches that keys and values are written to first; and the caches."""
    fresh = _stored([call("transpose", x, axes=(0, 2, 1, 3)) for x in (k, v)], type_of(caches[0]).dtype)
    pairs = zip(caches, fresh, strict=True)
    written = tuple(call("nn.cache_update", cache, new, step.start) for cache, new in pairs)
    none = const(np.full(heads.count, -np.inf, np.float32))
    named = {"scale": heads.scale, "window": heads.window, "softcap": heads.softcap}
    name = "nn.cached_attention" if len(written) == 2 else "nn.cached_quantized_attention"
    y = call(name, q, *written[:2], step.start, step.total, none, *written[2:], **named)
    return by_rows(y, heads.count * heads.size), written


def _stored(rows: list[Expr], dtype: DType) -> list[Expr]:
    """Keys and values as caches of that type hold them: int8 by the greatest magnitude of a row, its scales behind."""
    if dtype == "float32":
        return rows
    if dtype != "int8":
        return [call("cast", x, dtype=str(dtype)) for x in rows]
    scales = [call("max", call("abs", x), axis=(-1,), keepdims=True) * (1 / 127) for x in rows]
    least = const(np.float32(np.finfo(np.float32).tiny))
    steps = [call("round", x / call("maximum", s, least)) for x, s in zip(rows, scales, strict=True)]
    return [*(call("cast", x, dtype="int8") for x in steps), *scales]


def by_heads(x: Expr, count: int) -> Expr:
    """(slots, rows, count * size) as (slots, rows, count, size)."""
    batch, rows, width = type_of(x).static
    return reshape_to(x, (batch, rows, count, width // count))


def by_rows(x: Expr, width: int) -> Expr:
    """The rows of heads side by side: what `by_heads` took apart."""
    return reshape_to(x, (*type_of(x).static[:2], width))
