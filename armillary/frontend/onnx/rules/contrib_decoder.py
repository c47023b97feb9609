"""Operators of com.microsoft that decoders of language models are written in: attention over caches, RotaryEmbedding.

In: nodes of that domain. Out: nn.cache_update and nn.cached_attention over caches of fixed capacity, whose part that
counts is a value. Invariant: the caches that come out are as long as ONNX Runtime's: the longer one of the cache that
comes in and of the total length, if that is known when importing; else the cache that comes in is the capacity, and
lengths beyond it are refused when running.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.ops._iota import iota, splat
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.ops.nn.norm import narrowed, widened
from armillary.relay.expr import Expr, Tuple, const

DOMAIN = "com.microsoft"
_REFUSED_INPUTS = ((12, "a quantised cache"), (13, "a quantised cache"), (16, "lengths of the new tokens"))
_DECODER = "DecoderMaskedMultiHeadAttention"
_REFUSED_OF_DECODER = ((3, "a mask of keys"), (8, "a beam"), (9, "a beam"))


# --- rotary positions -------------------------------------------------------------------------------------------------


def rotated(x: Expr, cos: Expr, sin: Expr, positions: Expr, interleaved: bool) -> Expr:
    """(batch, rows, heads, size) with its first features turned in pairs by the angles of (batch, rows) positions."""
    size, half = type_of(x).static[-1], type_of(cos).static[-1]
    if 2 * half > size:
        raise TypeMismatch(f"rotary positions: {2 * half} features are turned, and a head has {size}")
    c, s = (call("expand_dims", call("take", table, positions, axis=0, mode="clip"), axis=2) for table in (cos, sin))
    turned = x if 2 * half == size else _features(x, 0, 2 * half)
    if interleaved:
        first, second = (
            call("strided_slice", turned, begin=(k,), end=(2 * half,), strides=(2,), axes=(3,)) for k in (0, 1)
        )
    else:
        first, second = _features(turned, 0, half), _features(turned, half, 2 * half)
    parts = [first * c - second * s, first * s + second * c]
    if interleaved:
        joined = reshape_to(call("stack", Tuple(tuple(parts)), axis=4), type_of(turned).static)
        parts = [joined]
    rest = [] if 2 * half == size else [_features(x, 2 * half, size)]
    return parts[0] if len(parts) == 1 and not rest else call("concatenate", Tuple((*parts, *rest)), axis=3)


def _features(x: Expr, begin: int, end: int) -> Expr:
    return call("strided_slice", x, begin=(begin,), end=(end,), axes=(3,))


def positions_from(start: Expr, count: int) -> Expr:
    """(batch, count): the positions from those of (batch,) on."""
    dtype = type_of(start).dtype
    return call("expand_dims", start, axis=1) + call("expand_dims", iota(count, dtype), axis=0)


@from_onnx("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: OnnxNode) -> Expr:
    """Three axes, or four with heads before rows. One position is that of the first row."""
    ty, half = node.type_of(0), node.type_of(2).static[-1]
    if node.int("is_packed_batching", 0) or float(node.float("scale", 1.0)) != 1.0:
        raise UnsupportedError(f"RotaryEmbedding node {node.name!r}: packed batches and a scale are not supported")
    x, width = node.input(0), int(node.int("rotary_embedding_dim", 0))
    if ty.ndim == 4:
        x = call("transpose", x, axes=(0, 2, 1, 3))
    else:
        batch, rows, hidden = ty.static
        heads = int(node.int("num_heads", 0)) if width else hidden // (2 * half)
        if heads < 1 or hidden % heads:
            raise TypeMismatch(f"RotaryEmbedding node {node.name!r}: {heads} heads do not divide {hidden} features")
        x = reshape_to(x, (batch, rows, heads, hidden // heads))
    batch, rows = type_of(x).static[:2]
    places = checked(node, 1, [(0, node.type_of(2).static[0] - 1)], "position", ty.size)
    if node.type_of(1).size == 1 and node.type_of(1).ndim < 2:
        start = call("broadcast_to", reshape_to(places, (1,)), shape=(batch,))
        places = positions_from(start, rows)
    turned = rotated(x, node.input(2), node.input(3), places, node.flag("interleaved", False))
    return call("transpose", turned, axes=(0, 2, 1, 3)) if ty.ndim == 4 else reshape_to(turned, ty.static)


# --- attention over caches ------------------------------------------------------------------------------------------


@from_onnx("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: OnnxNode) -> list[Expr]:
    """Rows of a sequence's new tokens against its cache, which they are written to first."""
    _refuse(node)
    q, k, v = _operands(node)
    batch, rows = type_of(q).static[:2]
    capacity = _capacity(node, rows)
    if capacity < 1:
        raise TypeMismatch(f"GroupQueryAttention node {node.name!r}: the cache has no capacity")
    last = checked(node, 5, [(0, capacity - 1)], f"seqlens_k (a cache of {capacity} positions)", batch * rows)
    total = call("cast", reshape_to(last, (batch,)), dtype="int32") + const(1, "int32")
    whole = call("cast", reshape_to(node.input(6), (1,)), dtype="int32")
    is_first = call("equal", whole, const(rows, "int32"))
    start = call("where", is_first, const(0, "int32"), total - const(rows, "int32"))
    if node.flag("do_rotary", False):
        cos, sin = node.input(7), node.input(8)
        places = positions_from(start, rows) if node.missing(9) else node.input(9)
        interleaved = node.flag("rotary_interleaved", False)
        q, k = (rotated(x, cos, sin, places, interleaved) for x in (q, k))
    caches = [_updated(node, index, x, start, capacity) for index, x in ((3, k), (4, v))]
    out = _attended(node, q, caches, start, total)
    return [reshape_to(out, (batch, rows, math.prod(type_of(out).static[2:]))), *caches]


def _refuse(node: OnnxNode) -> None:
    for index, what in _REFUSED_INPUTS:
        if not node.missing(index):
            raise UnsupportedError(f"GroupQueryAttention node {node.name!r}: {what} (input {index}) is not supported")
    quantised = {str(node.string(f"{side}_quant_type", "NONE") or "NONE") for side in "kv"} != {"NONE"}
    if quantised or node.int("kv_cache_bit_width", 0) or node.int("sliding_window_cache", 0):
        raise UnsupportedError(f"GroupQueryAttention node {node.name!r}: a quantised or sliding cache is not supported")
    if any(node.outputs[3:]) or node.int("qk_output", 0):
        raise UnsupportedError(f"GroupQueryAttention node {node.name!r}: scores as an output are not supported")


def _operands(node: OnnxNode) -> list[Expr]:
    """Query, key and value, (batch, rows, heads, size), each normalised by head where the node says so."""
    heads, groups = int(node.int("num_heads")), int(node.int("kv_num_heads"))
    batch, rows, width = node.type_of(0).static
    counts = (heads, groups, groups)
    if node.missing(1):
        size = width // (heads + 2 * groups)
        if size * (heads + 2 * groups) != width:
            message = f"{width} features cannot be divided among {heads} heads and twice {groups}"
            raise TypeMismatch(f"GroupQueryAttention node {node.name!r}: {message}")
        parts = call("split", node.input(0), indices_or_sections=(heads * size, (heads + groups) * size), axis=2)
        operands = [parts[n] for n in range(3)]
    else:
        operands = [node.input(n) for n in range(3)]
    shaped = []
    for x, count in zip(operands, counts, strict=True):
        wide = type_of(x).static[2]
        if count < 1 or wide % count:
            raise TypeMismatch(f"GroupQueryAttention node {node.name!r}: {count} heads do not divide {wide} features")
        shaped.append(reshape_to(x, (batch, rows, count, wide // count)))
    for n, side in enumerate("qk"):
        if not node.missing(14 + n):
            shaped[n] = _normalised(shaped[n], node.input(14 + n), _epsilon(node, side))
    return shaped


def _epsilon(node: OnnxNode, side: str) -> float:
    value = node.float(f"{side}_norm_epsilon", None)
    return float(node.float("qk_norm_epsilon", 1e-6) if value is None else value)


def _normalised(x: Expr, weight: Expr, epsilon: float) -> Expr:
    wide = widened(x)
    mean = call("mean", wide * wide, axis=(-1,), keepdims=True)
    return narrowed(wide * call("rsqrt", mean + epsilon), x) * weight


def _capacity(node: OnnxNode, rows: int) -> int:
    """Positions of the caches that come out."""
    past = 0 if node.missing(3) else node.type_of(3).static[2]
    total = node.constants[6] if len(node.constants) > 6 else None
    if total is not None:
        return max(past, int(np.asarray(total).reshape(-1)[0]))
    return past or rows


def _updated(node: OnnxNode, index: int, x: Expr, start: Expr, capacity: int) -> Expr:
    """The cache of input `index` with the new rows written to it."""
    new = call("transpose", x, axes=(0, 2, 1, 3))
    batch, heads, rows, size = type_of(new).static
    past = 0 if node.missing(index) else node.type_of(index).static[2]
    if not past and rows == capacity:
        return new
    cache = node.input(index) if past else splat((batch, heads, capacity, size), 0.0, type_of(new).dtype)
    if past and past < capacity:
        cache = call("nn.pad", cache, pad_width=((0, 0), (0, 0), (0, capacity - past), (0, 0)))
    return call("nn.cache_update", cache, new, start)


def _attended(node: OnnxNode, q: Expr, caches: list[Expr], start: Expr, total: Expr) -> Expr:
    heads, size = type_of(q).static[2:]
    dtype = type_of(q).dtype
    if node.missing(11):
        sinks: Expr = splat((heads,), 0.0 if node.int("smooth_softmax", 0) == 1 else -np.inf, dtype)
    else:
        sinks = node.input(11)
    window = int(node.int("local_window_size", -1))
    attrs = {
        "scale": float(node.float("scale", 0.0) or 0.0) or 1 / math.sqrt(size),
        "causal": node.flag("causal", True),
        "window": max(0, window),
        "softcap": float(node.float("softcap", 0.0) or 0.0),
    }
    if node.missing(10):
        return call("nn.cached_attention", q, *caches, start, total, sinks, **attrs)
    return call("nn.cached_masked_attention", q, *caches, start, total, sinks, node.input(10), **attrs)


@from_onnx("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_masked_attention(node: OnnxNode) -> list[Expr]:
    """One token of each sequence against a shared cache, which it is written to first."""
    _refuse_decoder(node)
    q, heads = node.input(0), int(node.int("num_heads"))
    batch, rows, width = node.type_of(0).static
    if heads < 1 or width % heads:
        raise TypeMismatch(f"{_DECODER} node {node.name!r}: {heads} heads do not divide {width} features")
    operands = [q, node.input(1), node.input(2)]
    if not node.missing(10):
        parts = call("split", node.input(10), indices_or_sections=3, axis=0)
        operands = [x + parts[k] for k, x in enumerate(operands)]
    by_heads = [reshape_to(x, (batch, rows, heads, type_of(x).static[2] // heads)) for x in operands]
    capacity = node.type_of(5).static[2]
    last = checked(node, 7, [(0, capacity - 1)], f"past_sequence_length (a cache of {capacity} positions)", batch)
    one = call("cast", reshape_to(last, (1,)), dtype="int32")
    start = call("broadcast_to", one, shape=(batch,))
    caches = [
        call("nn.cache_update", node.input(5 + k), call("transpose", x, axes=(0, 2, 1, 3)), start)
        for k, x in enumerate(by_heads[1:])
    ]
    sinks = splat((heads,), -np.inf, type_of(q).dtype)
    inputs = [by_heads[0], *caches, start, start + const(1, "int32"), sinks]
    attrs = {"scale": float(node.float("scale", 0.0) or 0.0) or 1 / math.sqrt(width // heads), "causal": True}
    name = "nn.cached_attention" if node.missing(4) else "nn.cached_masked_attention"
    out = call(name, *inputs, *([] if node.missing(4) else [node.input(4)]), **attrs)
    return [reshape_to(out, (batch, rows, math.prod(type_of(out).static[2:]))), *caches]


def _refuse_decoder(node: OnnxNode) -> None:
    for index, what in _REFUSED_OF_DECODER:
        if not node.missing(index):
            raise UnsupportedError(f"{_DECODER} node {node.name!r}: {what} (input {index}) is not supported")
    if any(node.outputs[3:]) or node.int("output_qk", 0):
        raise UnsupportedError(f"{_DECODER} node {node.name!r}: scores as an output are not supported")
    needed = ((1, "keys"), (2, "values"), (5, "a past"), (6, "a past"), (7, "past_sequence_length"))
    for index, what in needed:
        if node.missing(index):
            hint = "one token of self-attention over a shared cache is supported"
            raise UnsupportedError(f"{_DECODER} node {node.name!r}: {what} (input {index}) is missing", hint=hint)
    if not node.int("past_present_share_buffer", 0) or any(node.type_of(k).ndim != 3 for k in range(3)):
        hint = "past_present_share_buffer=1, with query, key and value of three axes"
        message = "a past that is no shared buffer is not supported"
        raise UnsupportedError(f"{_DECODER} node {node.name!r}: {message}", hint=hint)
    if node.type_of(0).static[1] != 1:
        raise TypeMismatch(f"{_DECODER} node {node.name!r}: {node.type_of(0).static[1]} rows, wanted one token")
