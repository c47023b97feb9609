"""Layers of com.microsoft in which a router chooses experts for each row: MoE, and QMoE with weights of few bits.

In: rows, scores of experts for each row, weights of all experts. Out: dense layers of the experts that each row has
(`nn.grouped_dense`), or of all experts side by side, between which what the router did not choose is zero: for weights
of few bits, and where so many rows have so large a part of few experts that whole products are faster. Invariant:
weights stay as they are but for an order of axes, so those of 2, 4 and 8 bits stay packed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules.contrib import DOMAIN
from armillary.ops.decoder.low_bit_dense import unpacked
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, const

_FEW_ROWS, _FEW_CHOSEN = 16, 7  # whole products do seven times the work of grouped ones in a time, for many rows
_ACTIVATIONS = ("relu", "gelu", "silu", "swiglu", "identity")


@from_onnx("MoE", "QMoE", domain=DOMAIN)
def mixture_of_experts(node: OnnxNode) -> Expr:
    """The sum over the `k` likeliest experts of share * fc2(activation(fc1(row)))."""
    kind, fusion = str(node.string("activation_type", "relu")), int(node.int("swiglu_fusion", 0))
    if (
        node.flag("use_sparse_mixer", False)
        or kind not in _ACTIVATIONS
        or node.flag("swiglu_limit_after_activation", False)
    ):
        message = f"activation {kind!r}, or a sparse mixer, or a limit behind the activation"
        raise UnsupportedError(
            f"{node.op_type} node {node.name!r}: {message}", hint=f"there are {', '.join(_ACTIVATIONS)}"
        )
    if node.op_type == "QMoE":
        _check_quantised(node)
    shape, (experts, _, hidden) = node.type_of(0).static, _sizes(node, 0)
    if shape[-1] != hidden:
        raise TypeMismatch(
            f"{node.op_type} node {node.name!r}: rows of {shape[-1]} features, and experts take {hidden}"
        )
    x = reshape_to(node.input(0), (-1, hidden))
    k = int(node.int("k", 1))
    if not 1 <= k <= experts:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: k is {k} of {experts} experts")
    is_few = type_of(x).static[0] * k <= _FEW_ROWS or experts >= _FEW_CHOSEN * k
    if node.op_type == "MoE" and is_few:
        return reshape_to(_of_chosen(node, x, k, kind, fusion), shape)
    shares = _shares(node, experts, k)
    values = _between(node, kind, fusion, lambda layer: _side_by_side(node, x, layer))
    weighted = values * call("expand_dims", shares, axis=2)
    inner = type_of(values).static[2]
    y = _product(node, reshape_to(weighted, (-1, experts * inner)), 1, is_summed=True)
    if not node.missing(_bias(node, 1)):
        y = y + call("nn.dense", shares, call("transpose", node.input(_bias(node, 1)), axes=(1, 0)))
    return reshape_to(y, shape)


def _between(node: OnnxNode, kind: str, fusion: int, layer: Callable[[int], Expr]) -> Expr:
    """What the second layer takes, (rows, experts, width), from the first and third."""
    first = layer(0)
    if kind == "swiglu":
        return _swiglu(node, layer, first, fusion)
    values = _activated(kind, first)
    return values if node.missing(_place(node, 2)) else values * layer(2)


def _of_chosen(node: OnnxNode, x: Expr, k: int, kind: str, fusion: int) -> Expr:
    """The sum over the `k` experts of each row, of which no other is computed."""
    scores = node.input(1)
    best = _best(scores, k)
    shares = call("gather", call("nn.softmax", scores, axis=-1), best, axis=1)
    if node.flag("normalize_routing_weights", False):
        shares = shares / call("sum", shares, axis=(1,), keepdims=True)
    expert = reshape_to(best, (-1,))

    def layer(data: Expr, number: int) -> Expr:
        weight = call("transpose", node.input(_place(node, number)), axes=(0, 2, 1))
        y = call("nn.grouped_dense", data, weight, expert)
        if not node.missing(_bias(node, number)):
            y = y + call("take", node.input(_bias(node, number)), expert, axis=0)
        return reshape_to(y, (-1, k, _sizes(node, number)[1]))

    repeated = call("repeat", x, repeats=k, axis=0)
    values = _between(node, kind, fusion, lambda number: layer(repeated, number))
    y = layer(reshape_to(values, (-1, type_of(values).static[2])), 1)
    return call("sum", y * call("expand_dims", shares, axis=2), axis=(1,))


def _best(scores: Expr, k: int) -> Expr:
    return call("topk", scores, k=k, axis=-1, ret_type="indices", dtype="int32")


def _shares(node: OnnxNode, experts: int, k: int) -> Expr:
    """(rows, experts): what each expert adds, 0 where the router did not choose it."""
    scores = node.input(1)
    best = _best(scores, k)
    hot = call("one_hot", best, const(1.0, "float32"), const(0.0, "float32"), depth=experts, axis=-1, dtype="float32")
    chosen = call("cast", call("sum", hot, axis=(1,)), dtype=str(type_of(scores).dtype))
    shares = call("nn.softmax", scores, axis=-1) * chosen
    if node.flag("normalize_routing_weights", False):
        shares = shares / call("sum", shares, axis=(1,), keepdims=True)
    return shares


def _place(node: OnnxNode, layer: int) -> int:
    """The input with the weights of the first, second or third layer."""
    return 2 + layer * (3 if node.op_type == "QMoE" else 2)


def _bias(node: OnnxNode, layer: int) -> int:
    return _place(node, layer + 1) - 1


def _sizes(node: OnnxNode, layer: int) -> tuple[int, int, int]:
    """Experts, their outputs and inputs."""
    experts, units, width = node.type_of(_place(node, layer)).static
    return experts, units, width * 8 // _bits(node) if node.op_type == "QMoE" else width


def _side_by_side(node: OnnxNode, x: Expr, layer: int) -> Expr:
    """(rows, experts, width): a layer of all experts, with its bias."""
    experts, wide, _ = _sizes(node, layer)
    y = _product(node, x, layer)
    if not node.missing(_bias(node, layer)):
        y = y + reshape_to(node.input(_bias(node, layer)), (experts * wide,))
    return reshape_to(y, (-1, experts, wide))


def _product(node: OnnxNode, x: Expr, layer: int, is_summed: bool = False) -> Expr:
    """x times the weights, (experts * units, terms), or (units, experts * terms), which sums over the experts."""
    place, (experts, units, terms) = _place(node, layer), _sizes(node, layer)
    shape = (units, -1) if is_summed else (experts * units, -1)
    if node.op_type == "MoE":
        weight = node.input(place)
        weight = call("transpose", weight, axes=(1, 0, 2)) if is_summed else weight
        return call("nn.dense", x, reshape_to(weight, (shape[0], experts * terms if is_summed else terms)))
    operands = []
    for array in _quantised(node, layer):
        ordered = array.transpose(1, 0, 2) if is_summed and array.size > 1 else array
        operands.append(const(np.ascontiguousarray(ordered.reshape(shape if array.size > 1 else (1, 1)))))
    group = terms // node.type_of(place + 1).static[2] if node.type_of(place + 1).ndim == 3 else terms
    return call("nn.low_bit_dense", x, *operands, bits=_bits(node), group=group)


def _quantised(node: OnnxNode, layer: int) -> tuple[Array, Array, Array]:
    """Packed weights, scales and zero points of a layer, (experts, units, …); (1, 1, 1) is a zero point of all."""
    place, bits, (experts, units, terms) = _place(node, layer), _bits(node), _sizes(node, layer)
    groups = terms // (int(node.int("block_size", 0)) or terms)
    scales = np.asarray(node.const(place + 1, "scales"))
    if scales.size != experts * units * groups:
        message = f"scales of shape {scales.shape}, wanted {(experts, units, groups)}"
        raise TypeMismatch(f"QMoE node {node.name!r}: {message}")
    zeros = node.optional_const(11 + layer, "zero points")
    if zeros is None:
        points = np.full((1, 1, 1), 1 << (bits - 1), np.uint8)
    else:
        whole = unpacked(np.asarray(zeros).reshape(experts, -1), bits)
        each = whole.shape[1] // units if zeros.ndim == 3 else groups
        points = whole[:, : units * each].reshape(experts, units, each)[:, :, :groups]
    return np.asarray(node.const(place, "weights")), scales.reshape(experts, units, groups), points


def _bits(node: OnnxNode) -> int:
    return int(node.int("expert_weight_bits", 4))


def _check_quantised(node: OnnxNode) -> None:
    """Refuse what is not integers with scales."""
    kind, bits, block = str(node.string("quant_type", "int") or "int"), _bits(node), int(node.int("block_size", 0))
    if kind != "int" or bits not in (2, 4, 8) or block < 0 or any(not node.missing(k) for k in range(14, 30)):
        message = f"quant_type {kind!r} of {bits} bits in blocks of {block}, or weights of the router (input 14 on)"
        raise UnsupportedError(f"QMoE node {node.name!r}: {message}", hint="there are int of 2, 4 and 8 bits")
    for layer in range(3):
        terms = 0 if node.missing(_place(node, layer)) else _sizes(node, layer)[2]
        if block and terms % block:
            raise TypeMismatch(f"QMoE node {node.name!r}: {terms} terms are no whole blocks of {block}")


def _activated(kind: str, x: Expr) -> Expr:
    if kind == "identity":
        return x
    if kind == "silu":
        return x * call("sigmoid", x)
    return call("nn.relu", x) if kind == "relu" else call("nn.gelu", x, approximate="tanh")  # as the kernel has it


def _swiglu(node: OnnxNode, layer: Callable[[int], Expr], first: Expr, fusion: int) -> Expr:
    """gate * sigmoid(alpha * gate) * (linear + beta), both clamped where the node has a limit."""
    wide = type_of(first).static[2]
    if fusion == 0:
        if node.missing(_place(node, 2)):
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: swiglu that is not fused has no third weights")
        gate, linear = first, layer(2)
    elif fusion == 1:
        gate, linear = (call("strided_slice", first, begin=(n,), end=(wide,), strides=(2,), axes=(2,)) for n in (0, 1))
    else:
        half = wide // 2
        gate, linear = (call("strided_slice", first, begin=(n,), end=(n + half,), axes=(2,)) for n in (0, half))
    limit = node.float("swiglu_limit", None)
    if limit is not None:
        gate = call("minimum", gate, const(float(limit), "float32"))
        linear = call("clip", linear, a_min=-float(limit), a_max=float(limit))
    alpha, beta = float(node.float("activation_alpha", 1.0)), float(node.float("activation_beta", 0.0))
    return gate * call("sigmoid", gate * const(alpha, "float32")) * (linear + const(beta, "float32"))
