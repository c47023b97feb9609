"""Operators of the domain com.microsoft that exporters and graph optimisers write, as operators of Relay.

In: nodes of that domain (LayerNormalization and SimplifiedLayerNormalization also stand in ONNX's own before opset 17).
Out: the arithmetic their documentation gives. Invariant: an input or attribute that would change the result and is not
implemented is refused by name. Gelu: nn/activation.py. Quantised operators: contrib_qnn.py.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_rule
from armillary.frontend.onnx.rules._checked import one_way
from armillary.frontend.onnx.rules.nn.activation import gelu_of
from armillary.frontend.onnx.rules.nn.dense import times, transposed
from armillary.frontend.onnx.rules.nn.norm import layer_normalization
from armillary.ops._iota import iota
from armillary.ops.decoder.low_bit_dense import unpacked
from armillary.ops.nn._windows import axis_of, call, reshape_to, type_of
from armillary.ops.nn.norm import narrowed, widened
from armillary.relay.expr import Expr, Tuple, const
from armillary.relay.op import Array

DOMAIN = "com.microsoft"


def refuse_inputs(node: OnnxNode, numbers: range, what: str) -> None:
    """Refuse a node that gives one of those inputs."""
    stated = [k for k in numbers if not node.missing(k)]
    if stated:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: input {stated[0]} ({what}) is not supported")


# --- activations and products -----------------------------------------------------------------------------------------


@from_onnx("FastGelu", domain=DOMAIN)
def fast_gelu(node: OnnxNode) -> Expr:
    """x or x + bias through the tanh form of Gelu."""
    x = node.input(0)
    return gelu_of(x if node.missing(1) else x + node.input(1), "tanh")


@from_onnx("BiasGelu", domain=DOMAIN)
def bias_gelu(node: OnnxNode) -> Expr:
    return gelu_of(node.input(0) + node.input(1))


@from_onnx("QuickGelu", domain=DOMAIN)
def quick_gelu(node: OnnxNode) -> Expr:
    x = node.input(0)
    return x * call("sigmoid", x * float(node.float("alpha", 1.702)))


@from_onnx("FusedMatMul", domain=DOMAIN)
def fused_matmul(node: OnnxNode) -> Expr:
    """alpha * op(A) op(B); transBatch moves the first axis behind the other batch axes."""
    sides = []
    for k, letter in enumerate("AB"):
        x, ndim = node.input(k), node.type_of(k).ndim
        if node.int(f"transBatch{letter}", 0):
            x = transposed(x, (*range(1, ndim - 1), 0, ndim - 1))
        if node.int(f"trans{letter}", 0) and ndim > 1:
            x = transposed(x, (*range(ndim - 2), ndim - 1, ndim - 2))
        sides.append(x)
    alpha: float = node.float("alpha", 1.0)
    product = times(*sides)
    return product if alpha == 1.0 else product * alpha


def _activated(node: OnnxNode, x: Expr, prefix: str) -> Expr:
    """The activation that a fused node ends with."""
    name = node.string("activation", "") or ""
    params = [float(p) for p in (node.floats("activation_params", default=None) or ())]
    alpha = node.float(f"{prefix}alpha", None) if prefix else (params[0] if params else None)
    match name:
        case "":
            return x
        case "Relu":
            return call("nn.relu", x)
        case "Sigmoid" | "Tanh":
            return call(name.lower(), x)
        case "LeakyRelu":
            return call("nn.leaky_relu", x, alpha=0.01 if alpha is None else alpha)
        case "Clip" if len(params) == 2:
            return call("clip", x, a_min=params[0], a_max=params[1])
    raise UnsupportedError(f"{node.op_type} node {node.name!r}: activation {name!r} is not supported")


@from_onnx("FusedConv", domain=DOMAIN)
def fused_conv(node: OnnxNode) -> Expr:
    """Conv, plus an optional further summand, then an activation."""
    conv = onnx_rule("", "Conv", 11)
    assert conv is not None, "Conv has a rule"
    convolved: Expr = conv(node)
    if not node.missing(3) and node.type_of(3).shape != type_of(convolved).shape:
        raise TypeMismatch(f"FusedConv node {node.name!r}: adds {node.type_of(3)} to {type_of(convolved)}")
    return _activated(node, convolved if node.missing(3) else convolved + node.input(3), "")


@from_onnx("FusedGemm", domain=DOMAIN)
def fused_gemm(node: OnnxNode) -> Expr:
    gemm = onnx_rule("", "Gemm", 13)
    assert gemm is not None, "Gemm has a rule"
    product: Expr = gemm(node)
    return _activated(node, product, "activation_")


# --- normalisations ---------------------------------------------------------------------------------------------------


@from_onnx("LayerNormalization", domain=DOMAIN)
def old_layer_normalization(node: OnnxNode) -> list[Expr]:
    result: list[Expr] = layer_normalization(node)
    return result


def _rms(x: Expr, scale: Expr, epsilon: float, axes: tuple[int, ...] = (-1,)) -> list[Expr]:
    """x over the root of its mean square along the axes, scaled; and 1 / root."""
    wide = widened(x)
    mean = call("mean", wide * wide, axis=axes, keepdims=True)
    inverse = call("rsqrt", mean + epsilon)
    return [narrowed(wide * inverse, x) * scale, inverse]


@from_onnx("SimplifiedLayerNormalization", since=1)
@from_onnx("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_normalization(node: OnnxNode) -> list[Expr]:
    """Over `axis` and those that follow; output 1 is the inverse of the root."""
    ndim = node.type_of(0).ndim
    first = axis_of(node.op_type, int(node.int("axis", -1)), ndim)
    return _rms(node.input(0), node.input(1), float(node.float("epsilon", 1e-5)), tuple(range(first, ndim)))


@from_onnx("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode) -> list[Expr]:
    """The norm of input + skip (+ bias); the sum is output 3. No epsilon given is 1e-12, as in ONNX Runtime."""
    epsilon = float(node.float("epsilon", 1e-12))
    simplified = node.op_type.startswith("SkipSimplified")
    bias = 3 if simplified else 4
    total = node.input(0) + node.input(1)
    total = total if node.missing(bias) else total + node.input(bias)
    if any(node.outputs[1:3]):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: mean and deviation as outputs")
    if simplified:
        y = _rms(total, node.input(2), epsilon)[0]
    else:
        beta = (
            const(np.zeros(node.type_of(2).static, node.type_of(2).dtype.numpy)) if node.missing(3) else node.input(3)
        )
        y = call("nn.layer_norm", total, node.input(2), beta, axis=-1, epsilon=epsilon)
    return [y, y, y, total]


# --- attention --------------------------------------------------------------------------------------------------------


def _heads(x: Expr, count: int) -> Expr:
    """(batch, length, hidden) as (batch, heads, length, size)."""
    batch, length, hidden = type_of(x).static
    return call("transpose", reshape_to(x, (batch, length, count, hidden // count)), axes=(0, 2, 1, 3))


def _by_heads(node: OnnxNode, x: Expr) -> Expr:
    """(batch, length, hidden) as (batch, heads, length, size); that as it is."""
    heads = int(node.int("num_heads", 0))
    if type_of(x).ndim == 4:
        return x
    if heads < 1 or type_of(x).static[-1] % heads:
        raise TypeMismatch(f"{node.op_type}: {heads} heads do not divide a hidden size of {type_of(x).shape[-1]}")
    return _heads(x, heads)


def _joined(node: OnnxNode, q: Expr, k: Expr, v: Expr, bias: Expr | None) -> Expr:
    """softmax(q kᵀ · scale + bias) v over heads, joined again."""
    scale = float(node.float("scale", 0.0) or 0.0) or 1 / math.sqrt(type_of(q).static[-1])
    scores = times(q, call("transpose", k, axes=(0, 1, 3, 2))) * scale
    weights = call("nn.softmax", scores if bias is None else scores + bias, axis=-1)
    joined = call("transpose", times(weights, v), axes=(0, 2, 1, 3))
    batch, length, count, size = type_of(joined).static
    return reshape_to(joined, (batch, length, count * size))


def _padding_bias(node: OnnxNode, index: int, batch: int, keys: int) -> Expr | None:
    """0 where a key counts, a large negative number at padding.

    From flags, (batch, keys) or (batch, rows, keys), from (batch,) ends, (2 * batch,) ends and then first keys that
    count, or (3 * batch + 2,) ends and then what packed rows would need.
    """
    if node.missing(index):
        return None
    ty, hidden = node.type_of(index), float(node.float("mask_filter_value", -10000.0))
    if ty.shape == (batch, keys) or (ty.ndim == 3 and (ty.shape[0], ty.shape[2]) == (batch, keys)):
        counts = call("greater", node.input(index), const(0, ty.dtype))
    elif ty.ndim == 1 and ty.shape[0] in (batch, 2 * batch, 3 * batch + 2):
        places, bounds = call("expand_dims", iota(keys), axis=0), call("cast", node.input(index), dtype="int64")
        both = ty.shape[0] == 2 * batch
        ends = bounds if ty.shape[0] == batch else call("strided_slice", bounds, begin=(0,), end=(batch,))
        counts = call("less", places, call("expand_dims", ends, axis=1))
        if both:
            first = call("strided_slice", bounds, begin=(batch,), end=(2 * batch,))
            counts = call("logical_and", counts, call("greater_equal", places, call("expand_dims", first, axis=1)))
    else:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: a mask of type {ty}")
    flat = call("where", counts, const(np.float32(0)), const(np.float32(hidden)))
    return call("expand_dims", flat, axis=1, num_newaxis=4 - ty.ndim if ty.ndim > 1 else 2)


@from_onnx("Attention", domain=DOMAIN)
def attention(node: OnnxNode) -> list[Expr]:
    """Self-attention with one projection for queries, keys and values; earlier keys and values come before them."""
    refuse_inputs(node, range(6, 7), "a cache that is shared")
    projected = times(node.input(0), node.input(1))
    return attended(node, projected if node.missing(2) else projected + node.input(2), 3, 4, 5)


def attended(node: OnnxNode, projected: Expr, mask: int, past: int, bias: int) -> list[Expr]:
    """Attention of queries, keys and values that lie side by side, and all keys and values, (2, batch, heads, …).

    `mask`, `past`, `bias`: the inputs that say which keys count, which come before, and what is added to scores.
    """
    if node.flag("do_rotary", False):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: rotary positions are not supported")
    length, width = type_of(projected).static[1:]
    sizes = [int(n) for n in (node.ints("qkv_hidden_sizes", default=None) or (width // 3,) * 3)]
    parts = call("split", projected, indices_or_sections=(sizes[0], sizes[0] + sizes[1]), axis=2)
    q, k, v = (_by_heads(node, parts[n]) for n in range(3))
    if not node.missing(past):
        before = call("split", node.input(past), indices_or_sections=2, axis=0)
        k, v = (
            call("concatenate", Tuple((call("squeeze", before[n], axis=(0,)), x)), axis=2) for n, x in enumerate((k, v))
        )
    present = call("stack", Tuple((k, v)), axis=0) if any(node.outputs[1:]) else k
    (batch, heads, _, _), keys = type_of(q).static, type_of(k).static[2]
    added = _padding_bias(node, mask, batch, keys)
    if not node.missing(bias):
        bias_sum = one_way(node, bias, (batch, heads, length, keys))
        added = bias_sum if added is None else added + bias_sum
    if node.flag("unidirectional", False):
        node.check_elements(length * keys)
        ahead = np.triu(np.full((length, keys), -1e30, np.float32), keys - length + 1)[None, None]
        if added is None or abs(float(node.float("mask_filter_value", -10000.0))) < 1e20:
            added = const(ahead) if added is None else added + const(ahead)
        else:  # what is hidden by the mask must not be less than what lies ahead
            added = call("where", const(ahead < 0), const(np.finfo(np.float32).min, "float32"), added)
    return [_joined(node, q, k, v, added), present]


@from_onnx("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: OnnxNode) -> list[Expr]:
    """Attention of given queries, keys and values; earlier keys and values come before them, and are outputs then."""
    refuse_inputs(node, range(8, 10), "a cache that is shared or of several beams")
    if any(node.outputs[3:]):
        raise UnsupportedError(f"MultiHeadAttention node {node.name!r}: scores as an output are not supported")
    parts = _with_bias(node, _operands(node))
    q, k, v = (_by_heads(node, x) for x in parts)
    past = 0
    if not node.missing(6):
        past = node.type_of(6).static[2]
        k, v = (call("concatenate", Tuple((node.input(n), x)), axis=2) for n, x in ((6, k), (7, v)))
    (batch, _, length, _), keys = type_of(q).static, type_of(k).static[2]
    bias = _padding_bias(node, 4, batch, keys)
    if not node.missing(5):
        bias_sum = one_way(node, 5, (batch, int(node.int("num_heads", 0)), length, keys))
        bias = bias_sum if bias is None else bias + bias_sum
    if node.flag("unidirectional", False):
        node.check_elements(length * keys)
        ahead = const(np.triu(np.full((length, keys), -1e30, np.float32), past + 1)[None, None])
        bias = ahead if bias is None else bias + ahead
    return [_joined(node, q, k, v, bias), k, v]


def _operands(node: OnnxNode) -> list[Expr]:
    """Queries, keys and values, each (batch, length, hidden), or keys and values (batch, heads, length, size)."""
    if node.type_of(0).ndim == 5:
        return _unpacked_heads(node.input(0))
    q = node.input(0)
    if not node.missing(1) and node.type_of(1).ndim == 5:
        return [q, *_unpacked_heads(node.input(1))]
    operands = [q, node.input(1), node.input(2)]
    if {type_of(x).ndim for x in operands[1:]} - {3, 4} or type_of(q).ndim != 3:
        raise UnsupportedError(
            f"MultiHeadAttention node {node.name!r}: operands of {[type_of(x).ndim for x in operands]} axes"
        )
    return operands


def _unpacked_heads(x: Expr) -> list[Expr]:
    """The parts of (batch, length, heads, parts, size), each (batch, length, hidden)."""
    batch, length, heads, count, size = type_of(x).static
    parts = [call("take", x, const(np.int64(n)), axis=3) for n in range(count)]
    return [reshape_to(part, (batch, length, heads * size)) for part in parts]


def _with_bias(node: OnnxNode, parts: list[Expr]) -> list[Expr]:
    """The operands plus their shares of input 3."""
    if node.missing(3):
        return parts
    if any(type_of(x).ndim != 3 for x in parts):
        raise UnsupportedError(f"MultiHeadAttention node {node.name!r}: a bias of keys that are divided into heads")
    ends = np.cumsum([type_of(x).static[2] for x in parts])
    if node.type_of(3).shape != (ends[-1],):
        raise TypeMismatch(f"MultiHeadAttention node {node.name!r}: a bias of {node.type_of(3)} for {ends[-1]}")
    shares = call("split", node.input(3), indices_or_sections=tuple(int(e) for e in ends[:2]), axis=0)
    return [x + shares[k] for k, x in enumerate(parts)]


# --- weights of few bits ----------------------------------------------------------------------------------------------


@from_onnx("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(node: OnnxNode) -> Expr:
    """Weights in blocks of 2, 4 or 8 bits, which stay as they are stored unless zero points are floats.

    `accuracy_level` says how the product may be computed: ours is as exact as the input's type.
    """
    refuse_inputs(node, range(4, 5), "g_idx")
    depth, units, bits, block = (int(node.int(name, 4)) for name in ("K", "N", "bits", "block_size"))
    node.int("accuracy_level", 0)
    if bits not in (2, 4, 8) or node.int("weight_prepacked", 0):
        message = "prepacked weights" if bits in (2, 4, 8) else f"{bits} bits"
        raise UnsupportedError(f"MatMulNBits node {node.name!r}: {message} are not supported")
    zeros = node.optional_const(3, "zero points")
    count = -(-depth // block)
    if zeros is not None and zeros.dtype.kind == "f":
        real = _expanded(node, units, bits, block, zeros)[:, :depth]
        product = call("nn.dense", node.input(0), const(real.astype(node.type_of(0).dtype.numpy)))
    else:
        points = np.full((1, 1), 1 << (bits - 1), np.uint8)
        if zeros is not None:
            points = np.ascontiguousarray(unpacked(zeros.reshape(units, -1), bits)[:, :count])
        data = node.input(0)
        if count * block != depth:
            before = ((0, 0),) * (node.type_of(0).ndim - 1)
            data = call("nn.pad", data, pad_width=(*before, (0, count * block - depth)))
        weight = reshape_to(node.input(1), (units, count * block * bits // 8))
        scales = reshape_to(node.input(2), (units, count))
        product = call("nn.low_bit_dense", data, weight, scales, const(points), bits=bits, group=block)
    return product if node.missing(5) else product + node.input(5)


def _expanded(node: OnnxNode, units: int, bits: int, block: int, zeros: Array) -> Array:
    """(units, terms) floats of weights whose zero points are floats."""
    values = unpacked(node.const(1, "weights").reshape(units, -1), bits).reshape(units, -1, block).astype(np.float32)
    count = values.shape[1]
    scales = np.asarray(node.const(2, "scales"), np.float32).reshape(units, count, 1)
    spread: Array = (values - np.asarray(zeros, np.float32).reshape(units, count, 1)) * scales
    return spread.reshape(units, count * block)
