"""Layers of com.microsoft in which a router chooses experts for each row: MoE.

In: rows, scores of experts for each row, weights of all experts. Out: two dense layers over the experts side by side:
what the router did not choose is zero between them. Invariant: weights stay as they are but for an order of axes, and
every expert is computed for every row.
"""

from __future__ import annotations

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules.contrib import DOMAIN
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, const

_ACTIVATIONS = ("relu", "gelu", "silu", "swiglu", "identity")


@from_onnx("MoE", domain=DOMAIN)
def mixture_of_experts(node: OnnxNode) -> Expr:
    """The sum over the `k` likeliest experts of share * fc2(activation(fc1(row)))."""
    kind, fusion = str(node.string("activation_type", "relu")), int(node.int("swiglu_fusion", 0))
    if (
        node.flag("use_sparse_mixer", False)
        or kind not in _ACTIVATIONS
        or node.flag("swiglu_limit_after_activation", False)
    ):
        told = f"activation {kind!r}, or a sparse mixer, or a limit behind the activation"
        raise UnsupportedError(f"MoE node {node.name!r}: {told}", hint=f"there are {', '.join(_ACTIVATIONS)}")
    shape, (experts, wide, hidden) = node.type_of(0).static, node.type_of(2).static
    if shape[-1] != hidden:
        raise TypeMismatch(f"MoE node {node.name!r}: rows of {shape[-1]} features, and experts take {hidden}")
    x = reshape_to(node.input(0), (-1, hidden))
    shares = _shares(node, experts)
    first = _side_by_side(node, x, 2, (experts, wide))
    if kind == "swiglu":
        values = _swiglu(node, x, first, fusion)
    else:
        values = _activated(kind, first)
        if not node.missing(6):
            values = values * _side_by_side(node, x, 6, (experts, wide))
    weighted = values * call("expand_dims", shares, axis=2)
    inner = type_of(values).static[2]
    second = reshape_to(call("transpose", node.input(4), axes=(1, 0, 2)), (hidden, experts * inner))
    y = call("nn.dense", reshape_to(weighted, (-1, experts * inner)), second)
    if not node.missing(5):
        y = y + call("nn.dense", shares, call("transpose", node.input(5), axes=(1, 0)))
    return reshape_to(y, shape)


def _shares(node: OnnxNode, experts: int) -> Expr:
    """(rows, experts): what each expert adds, 0 where the router did not choose it."""
    k = int(node.int("k", 1))
    if not 1 <= k <= experts:
        raise TypeMismatch(f"MoE node {node.name!r}: k is {k} of {experts} experts")
    scores = node.input(1)
    best = call("topk", scores, k=k, axis=-1, ret_type="indices", dtype="int32")
    hot = call("one_hot", best, const(1.0, "float32"), const(0.0, "float32"), depth=experts, axis=-1, dtype="float32")
    chosen = call("cast", call("sum", hot, axis=(1,)), dtype=str(type_of(scores).dtype))
    shares = call("nn.softmax", scores, axis=-1) * chosen
    if node.flag("normalize_routing_weights", False):
        shares = shares / call("sum", shares, axis=(1,), keepdims=True)
    return shares


def _side_by_side(node: OnnxNode, x: Expr, index: int, shape: tuple[int, int]) -> Expr:
    """(rows, experts, width): the layer whose weights are input `index` and whose bias is the next one."""
    experts, wide = shape
    weight = reshape_to(node.input(index), (experts * wide, node.type_of(index).static[2]))
    y = call("nn.dense", x, weight)
    if not node.missing(index + 1):
        y = y + reshape_to(node.input(index + 1), (experts * wide,))
    return reshape_to(y, (-1, experts, wide))


def _activated(kind: str, x: Expr) -> Expr:
    if kind == "identity":
        return x
    if kind == "silu":
        return x * call("sigmoid", x)
    return call("nn.relu", x) if kind == "relu" else call("nn.gelu", x, approximate="tanh")  # as the kernel has it


def _swiglu(node: OnnxNode, x: Expr, first: Expr, fusion: int) -> Expr:
    """gate * sigmoid(alpha * gate) * (linear + beta), both clamped where the node has a limit."""
    experts, wide = type_of(first).static[1:]
    if fusion == 0:
        if node.missing(6):
            raise TypeMismatch(f"MoE node {node.name!r}: swiglu that is not fused has no third weights")
        gate, linear = first, _side_by_side(node, x, 6, (experts, wide))
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
