"""What the pages of model families are written in: layers as functions from expressions to expressions.

In: expressions, weights. Out: expressions. Invariant: x is (slots, rows, features); a layer with `bits` keeps its
weight in integers of so many bits with a scale for each `GROUP` terms (nn.low_bit_dense), and as it is with 0.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.ops.decoder.low_bit_dense import packed
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, Tuple, const

GROUP = 32


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


def linear(x: Expr, weight: Array, bias: Array | None = None, bits: int = 0) -> Expr:
    """x weightᵀ + bias."""
    if bits and weight.shape[1] % GROUP == 0:
        y = call("nn.low_bit_dense", x, *map(const, quantized(weight, bits)), bits=bits, group=GROUP)
    else:
        y = call("nn.dense", x, const(np.ascontiguousarray(weight, np.float32)))
    return y if bias is None else y + const(np.ascontiguousarray(bias, np.float32))


def quantized(weight: Array, bits: int) -> tuple[Array, Array, Array]:
    """Integers around a middle zero, a scale for each group of a row: the greatest magnitude over the largest one."""
    units, inner = weight.shape
    blocks = weight.reshape(units, inner // GROUP, GROUP)
    middle = 1 << (bits - 1)
    scales = (np.abs(blocks).max(2) / (middle - 1)).astype(np.float32)
    safe = np.where(scales > 0, scales, 1)
    steps = np.clip(np.rint(blocks / safe[..., None]), -middle, middle - 1) + middle
    zeros = np.full((1, 1), middle, np.uint8)
    return packed(steps.reshape(units, inner), bits), scales, zeros


def embedding(table: Array, tokens: Expr) -> Expr:
    """Rows of a table."""
    return call("take", const(np.ascontiguousarray(table, np.float32)), tokens, axis=0, mode="clip")


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


def angles(size: int, base: float, capacity: int) -> tuple[Array, Array]:
    """Cosines and sines of rotary positions, (capacity, size / 2)."""
    turns = np.arange(capacity)[:, None] / base ** (np.arange(0, size, 2) / size)[None]
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def rotary(x: Expr, step: Step) -> Expr:
    """(slots, rows, heads, size) with its halves turned by the angles of the rows' positions."""
    half = type_of(x).static[-1] // 2
    first, second = (call("strided_slice", x, begin=(b,), end=(b + half,), axes=(3,)) for b in (0, half))
    turned = first * step.cos - second * step.sin, first * step.sin + second * step.cos
    return call("concatenate", Tuple(turned), axis=3)


def attend(q: Expr, k: Expr, v: Expr, caches: tuple[Expr, Expr], heads: Heads, step: Step) -> tuple[Expr, Expr, Expr]:
    """Attention of (slots, rows, heads, size) over caches that keys and values are written to first; and the caches."""
    written = [
        call("nn.cache_update", cache, call("transpose", x, axes=(0, 2, 1, 3)), step.start)
        for cache, x in zip(caches, (k, v), strict=True)
    ]
    none = const(np.full(heads.count, -np.inf, np.float32))
    named = {"scale": heads.scale, "window": heads.window, "softcap": heads.softcap}
    y = call("nn.cached_attention", q, *written, step.start, step.total, none, **named)
    return by_rows(y, heads.count * heads.size), written[0], written[1]


def by_heads(x: Expr, count: int) -> Expr:
    """(slots, rows, count * size) as (slots, rows, count, size)."""
    batch, rows, width = type_of(x).static
    return reshape_to(x, (batch, rows, count, width // count))


def by_rows(x: Expr, width: int) -> Expr:
    """The reverse."""
    return reshape_to(x, (*type_of(x).static[:2], width))
