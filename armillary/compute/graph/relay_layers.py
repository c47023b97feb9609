"""Which layer a call of Relay is.

In: a typed call whose weights are constants. Out: the layer and the values it reads, or None where no layer computes
that. Invariant: a layer is offered only where it computes what the call does; the reader checks its shape. Rules are
keyed by operators, one function for each family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary import relay
from armillary.base.aliases import Array
from armillary.compute.core.tensor_info import TensorShape
from armillary.compute.core.types import (
    ActivationFunction,
    ActivationLayerInfo,
    DimensionRoundingType,
    NormalizationLayerInfo,
    NormType,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    Size2D,
)
from armillary.compute.graph import nodes
from armillary.compute.graph.accessors import NumPyAccessor
from armillary.compute.graph.hints import EltwiseOperation
from armillary.errors import TypeMismatch
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.op import Op
from armillary.relay.op.signature import function_of
from armillary.relay.types import TensorType

Found = tuple[nodes.INode | None, Sequence[Expr]]
_NONE: Found = (None, ())


def _function(call: Call) -> object:
    """What scripts call to make such a call: the keys of the rules."""
    return function_of(call.op) if isinstance(call.op, Op) else None


def _constant(expr: Expr) -> Array | None:
    return np.asarray(expr.data) if isinstance(expr, Constant) else None


def tensor_type(expr: Expr) -> TensorType | None:
    """The type of an expression of one tensor."""
    result = expr.checked_type
    return result if isinstance(result, TensorType) else None


def _shape(expr: Expr) -> tuple[int, ...]:
    ty = tensor_type(expr)
    return shape_in(ty) if ty is not None else ()


def shape_in(kind: TensorType) -> tuple[int, ...]:
    """The extents of a tensor's type; those that are unknown are refused."""
    if not all(isinstance(n, int) for n in kind.shape):
        raise TypeMismatch(f"a graph's tensors have known sizes, got {kind}")
    return tuple(n for n in kind.shape if isinstance(n, int))


def _info(attrs: object, is_ceil: bool = False) -> PadStrideInfo:
    """Strides and padding of a call, which names rows first."""
    pads = tuple(int(n) for n in attrs.padding)  # type: ignore[attr-defined]  # windows have it
    top, left, bottom, right = (pads * 4)[:4] if len(pads) != 2 else (*pads, *pads)
    down, along = attrs.strides  # type: ignore[attr-defined]  # windows have them
    rounding = DimensionRoundingType.CEIL if is_ceil else DimensionRoundingType.FLOOR
    return PadStrideInfo(int(along), int(down), left, right, top, bottom, round=rounding)


def _convolution(call: Call, biases: Array | None = None) -> Found:
    x, w = call.args
    weights, attrs = _constant(w), call.attrs
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and not attrs.out_layout
    if weights is None or not plain or tuple(attrs.dilation) != (1, 1) or str(weights.dtype) != "float32":
        return _NONE
    outputs, inner, height, width = weights.shape
    bias_values = NumPyAccessor(biases) if biases is not None else None
    if attrs.groups > 1 and inner == 1 and attrs.groups == _shape(x)[1]:
        multiplier = outputs // attrs.groups
        accessor = NumPyAccessor(weights)
        return nodes.DepthwiseConvolutionLayer(width, height, accessor, bias_values, _info(attrs), multiplier), [x]
    layer = nodes.ConvolutionLayer(
        width, height, outputs, NumPyAccessor(weights), bias_values, _info(attrs), attrs.groups
    )
    return layer, [x]


def _dense(call: Call, biases: Array | None = None) -> Found:
    weights = _constant(call.args[1])
    if weights is None or str(weights.dtype) != "float32":
        return _NONE
    bias_values = NumPyAccessor(biases) if biases is not None else None
    return nodes.FullyConnectedLayer(weights.shape[0], NumPyAccessor(weights), bias_values), [call.args[0]]


_WITH_BIASES: dict[object, Callable[..., Found]] = {relay.nn.conv2d: _convolution, relay.nn.dense: _dense}


def _sum(call: Call) -> Found:
    """Biases behind a product, or two values of one shape."""
    left, right = call.args
    added = _constant(right)
    if added is not None and isinstance(left, Call) and _function(left) in _WITH_BIASES:
        channels = _shape(left)[1]
        axis = call.attrs.axis if call.attrs is not None else None
        by_channel = added.shape == (channels,) and (axis == 1 or (axis is None and _function(left) is relay.nn.dense))
        by_channel |= axis is None and added.size == channels and added.shape[-3:] == (channels, 1, 1)
        return _WITH_BIASES[_function(left)](left, added.reshape(-1)) if by_channel else _NONE
    if added is not None or call.attrs is not None or isinstance(left, Constant) or _shape(left) != _shape(right):
        return _NONE
    return nodes.EltwiseNode(EltwiseOperation.Add), [left, right]


def _activation(which: ActivationFunction) -> Callable[[Call], Found]:
    def rule(call: Call) -> Found:
        return nodes.ActivationLayer(ActivationLayerInfo(which)), [call.args[0]]

    return rule


def _clip(call: Call) -> Found:
    low, high = float(call.attrs.a_min), float(call.attrs.a_max)
    if not math.isfinite(low) or not math.isfinite(high):
        return _NONE
    info = ActivationLayerInfo(ActivationFunction.LU_BOUNDED_RELU, high, low)
    return nodes.ActivationLayer(info), [call.args[0]]


def _pool(which: PoolingType) -> Callable[[Call], Found]:
    def rule(call: Call) -> Found:
        attrs = call.attrs
        if attrs.layout != "NCHW" or tuple(attrs.dilation) != (1, 1):
            return _NONE
        height, width = attrs.pool_size
        exclude = which is PoolingType.AVG and not attrs.count_include_pad
        size = Size2D(int(width), int(height))
        return nodes.PoolingLayer(PoolingLayerInfo(which, size, _info(attrs, attrs.ceil_mode), exclude)), [call.args[0]]

    return rule


def _global_pool(which: PoolingType) -> Callable[[Call], Found]:
    def rule(call: Call) -> Found:
        return (nodes.PoolingLayer(PoolingLayerInfo(which)), [call.args[0]]) if call.attrs.layout == "NCHW" else _NONE

    return rule


def _softmax(call: Call) -> Found:
    is_last = call.attrs.axis in (-1, len(_shape(call)) - 1)
    return (nodes.SoftmaxLayer(), [call.args[0]]) if is_last else _NONE


def _reshape(call: Call) -> Found:
    return nodes.ReshapeLayer(TensorShape(*reversed(_shape(call)))), [call.args[0]]


def _concatenate(call: Call) -> Found:
    parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
    fits = len(_shape(call)) == 4 and call.attrs.axis in (1, -3) and len(parts) > 1
    return (nodes.DepthConcatenateNode(), parts) if fits and not any(map(_is_constant, parts)) else _NONE


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Constant)


def _normalization(call: Call) -> Found:
    attrs = call.attrs
    if attrs.axis != 1:
        return _NONE
    info = NormalizationLayerInfo(NormType.CROSS_MAP, attrs.size, attrs.alpha, attrs.beta, attrs.bias, is_scaled=True)
    return nodes.NormalizationLayer(info), [call.args[0]]


_RULES: dict[object, Callable[[Call], Found]] = {
    relay.nn.conv2d: _convolution,
    relay.nn.dense: _dense,
    relay.nn.bias_add: _sum,
    relay.add: _sum,
    relay.nn.relu: _activation(ActivationFunction.RELU),
    relay.sigmoid: _activation(ActivationFunction.LOGISTIC),
    relay.clip: _clip,
    relay.nn.max_pool2d: _pool(PoolingType.MAX),
    relay.nn.avg_pool2d: _pool(PoolingType.AVG),
    relay.nn.global_max_pool2d: _global_pool(PoolingType.MAX),
    relay.nn.global_avg_pool2d: _global_pool(PoolingType.AVG),
    relay.nn.softmax: _softmax,
    relay.nn.batch_flatten: _reshape,
    relay.reshape: _reshape,
    relay.concatenate: _concatenate,
    relay.nn.lrn: _normalization,
}


def layer_of(expr: Expr) -> Found:
    """The layer that computes a call, and the values that it reads."""
    rule = _RULES.get(_function(expr)) if isinstance(expr, Call) else None
    return rule(expr) if rule is not None and isinstance(expr, Call) else _NONE
