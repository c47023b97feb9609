"""ONNX normalisations: BatchNormalization, LayerNormalization, GroupNormalization, InstanceNormalization,
RMSNormalization, MeanVarianceNormalization, LRN, LpNormalization.

In: nodes of any opset. Out: the nn.* operator where one fits, else its arithmetic. Invariant: statistics of float16 are
computed in float32. BatchNormalization in training mode gives the batch statistics' result and the updated running
ones, as the specification says.
"""

from __future__ import annotations

from armillary.errors import UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.frontend.onnx.rules._checked import one_way
from armillary.ops.nn._windows import axis_of, call, type_of
from armillary.ops.nn.norm import narrowed, spread_along, widened
from armillary.relay.expr import Expr, TupleGetItem
from armillary.relay.types import AnyDim


def _is_training(node: OnnxNode) -> bool:
    if node.opset >= 14:
        return node.flag("training_mode", False)
    extra = any(node.outputs[1:])
    return extra if node.opset >= 7 else extra and not node.flag("is_test", False)


@from_onnx("BatchNormalization")
def batch_normalization(node: OnnxNode) -> Expr | list[Expr]:
    if node.opset < 9 and not node.flag("spatial", True):
        raise UnsupportedError(f"BatchNormalization node {node.name!r}: spatial=0 (per-element statistics)")
    if _is_training(node):
        return _training(node)
    x = node.input(0)
    parts = [narrowed(node.input(n), x) for n in range(1, 5)]
    result = call("nn.batch_norm", x, *parts, axis=1, epsilon=node.float("epsilon", 1e-5))
    return [TupleGetItem(result, 0)]


def _training(node: OnnxNode) -> list[Expr]:
    if node.opset < 14:
        raise UnsupportedError(
            f"BatchNormalization node {node.name!r} is in training mode", hint="export the model for inference"
        )
    x, momentum = node.input(0), node.float("momentum", 0.9)
    ndim = type_of(x).ndim
    axes = tuple(a for a in range(ndim) if a != 1)
    wide = widened(x)
    mean = call("mean", wide, axis=axes, keepdims=False)
    centred = wide - spread_along(mean, ndim, 1)
    spread = call("mean", centred * centred, axis=axes, keepdims=False)
    factor = widened(node.input(1)) / call("sqrt", spread + node.float("epsilon", 1e-5))
    y = centred * spread_along(factor, ndim, 1) + spread_along(widened(node.input(2)), ndim, 1)
    running = [
        narrowed(widened(old) * momentum + new * (1.0 - momentum), old)
        for old, new in ((node.input(3), mean), (node.input(4), spread))
    ]
    return [narrowed(y, x), *running]


@from_onnx("LayerNormalization", since=1)  # of exporters, before the standard had one
@from_onnx("LayerNormalization", since=17)
def layer_normalization(node: OnnxNode) -> list[Expr]:
    """Over the axes from `axis` on; mean and 1/deviation are further outputs."""
    x = node.input(0)
    ndim = type_of(x).ndim
    axis, epsilon = axis_of("LayerNormalization", node.int("axis", -1), ndim), node.float("epsilon", 1e-5)
    statistics = any(node.outputs[1:])
    scale = type_of(one_way(node, 1, type_of(x).shape))
    simple = axis == ndim - 1 and scale.ndim == 1 and not node.missing(2) and scale.shape == type_of(x).shape[-1:]
    if simple and not statistics and type_of(node.input(2)).shape == scale.shape:
        return [call("nn.layer_norm", x, node.input(1), node.input(2), axis=-1, epsilon=epsilon)]
    axes = tuple(range(axis, ndim))
    wide = widened(x)
    mean = call("mean", wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = call("rsqrt", call("mean", centred * centred, axis=axes, keepdims=True) + epsilon)
    y = narrowed(centred * inverse, x) * node.input(1)
    stash = onnx_dtype(node, node.int("stash_type", 1))  # of the statistics, whatever the data is
    message = [s if str(type_of(s).dtype) == stash else call("cast", s, dtype=stash) for s in (mean, inverse)]
    return [y if node.missing(2) else y + one_way(node, 2, type_of(x).shape), *message][: max(1, len(node.outputs))]


@from_onnx("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode) -> Expr:
    x = node.input(0)
    ndim = type_of(x).ndim
    axis, epsilon = axis_of("RMSNormalization", node.int("axis", -1), ndim), node.float("epsilon", 1e-5)
    scale = type_of(one_way(node, 1, type_of(x).shape))
    if axis == ndim - 1 and scale.shape == type_of(x).shape[-1:] and scale.dtype == type_of(x).dtype:
        return call("nn.rms_norm", x, node.input(1), axis=-1, epsilon=epsilon)
    wide = widened(x)
    mean = call("mean", wide * wide, axis=tuple(range(axis, ndim)), keepdims=True)
    return narrowed(wide / call("sqrt", mean + epsilon), x) * node.input(1)


@from_onnx("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> Expr:
    epsilon = node.float("epsilon", 1e-5)
    return call("nn.instance_norm", node.input(0), node.input(1), node.input(2), axis=1, epsilon=epsilon)


@from_onnx("GroupNormalization", since=21)
def group_normalization(node: OnnxNode) -> Expr:
    attrs = {"num_groups": node.int("num_groups", 1), "axis": 1, "epsilon": node.float("epsilon", 1e-5)}
    return call("nn.group_norm", node.input(0), node.input(1), node.input(2), **attrs)


@from_onnx("GroupNormalization", since=18)
def group_normalization_18(node: OnnxNode) -> Expr:
    """As it first was: one scale and bias per group."""
    x, groups = node.input(0), node.int("num_groups", 1)
    channels = type_of(x).shape[1]
    if isinstance(channels, AnyDim):
        raise UnsupportedError(f"GroupNormalization node {node.name!r}: the number of channels is not known")
    scale, bias = (call("repeat", node.input(n), repeats=channels // groups, axis=0) for n in (1, 2))
    return call("nn.group_norm", x, scale, bias, num_groups=groups, axis=1, epsilon=node.float("epsilon", 1e-5))


@from_onnx("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode) -> Expr:
    x = node.input(0)
    axes = node.ints("axes") or ((0, 1, 2, 3) if node.flag("across_channels", False) else (0, 2, 3))
    wide = widened(x)
    centred = wide - call("mean", wide, axis=tuple(axes), keepdims=True)
    deviation = call("sqrt", call("mean", centred * centred, axis=tuple(axes), keepdims=True))
    return narrowed(centred / (deviation + 1e-9), x)


@from_onnx("LRN")
def lrn(node: OnnxNode) -> Expr:
    attrs = {"bias": node.float("bias", 1.0), "alpha": node.float("alpha", 1e-4), "beta": node.float("beta", 0.75)}
    return call("nn.lrn", node.input(0), size=node.int("size"), axis=1, **attrs)


@from_onnx("LpNormalization")
def lp_normalization(node: OnnxNode) -> Expr:
    """x / norm; where the norm is 0 the result is 0."""
    data, axis, p = node.input(0), node.int("axis", -1), node.int("p", 2)
    x = widened(data)  # the squares of float16 overflow
    if p not in (1, 2):
        raise UnsupportedError(f"LpNormalization node {node.name!r}: p={p}; 1 and 2 are supported")
    total = call("sum", call("abs", x) if p == 1 else x * x, axis=(axis,), keepdims=True)
    norm = total if p == 1 else call("sqrt", total)
    return narrowed(x / (norm + call("cast", call("equal", norm, 0.0), dtype=type_of(x).dtype)), data)
