"""Rules for the layers of Keras: a layer's configuration and weights to Relay.

In: a `Layer` with typed inputs, channels last. Out: an expression. Invariant: one row of `RULES` for each class of
layers; what a rule does not look at has no effect on inference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.relay.expr import Expr, TupleGetItem, const
from armillary.relay.op import get_op


@record
class Layer:
    """A call of a layer; `weights` are (name, value) in Keras's order, `parameter` makes one an input of the module."""

    name: str
    kind: str
    config: JsonObject  # Any: JSON of Keras
    inputs: list[Expr]
    weights: list[tuple[str, Array]]
    parameter: Callable[[str, Array], Expr]

    @property
    def x(self) -> Expr:
        return self.inputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return tuple(self.x.checked_type.static)  # type: ignore[attr-defined]

    def get(self, name: str, default: object = None) -> Any:  # Any: JSON of Keras
        found = self.config.get(name)
        return default if found is None else found

    def weight(self, number: int, change: Callable[[Array], Array] = lambda a: a) -> Expr:
        """A weight as a parameter `<layer>.<its last name>`."""
        if number >= len(self.weights):
            raise UnsupportedError(f"layer {self.name!r} has {len(self.weights)} weights, wanted {number + 1}")
        path, value = self.weights[number]
        return self.parameter(f"{self.name}.{path.rsplit('/', 1)[-1].partition(':')[0]}", change(value))

    def channels_last(self) -> None:
        """Refuse the other layout."""
        if self.get("data_format", "channels_last") != "channels_last":
            hint = "save the model with image_data_format 'channels_last'"
            raise UnsupportedError(f"layer {self.name!r} has channels first", hint=hint)


Rule = Callable[[Layer], Expr]


def op(name: str, *args: Expr, **attrs: object) -> Expr:  # attribute values
    """A call of an operator."""
    return get_op(name)(*args, **attrs)


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """Height and width."""
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def padding_of(layer: Layer, window: Sequence[int], strides: Sequence[int]) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of "same" and "valid"."""
    mode = layer.get("padding", "valid")
    if mode == "valid":
        return 0, 0, 0, 0
    if mode != "same":
        raise UnsupportedError(f"layer {layer.name!r}: padding {mode!r}", hint="valid or same")
    totals = [
        max((-(-size // stride) - 1) * stride + taps - size, 0)
        for size, taps, stride in zip(layer.shape[1:3], window, strides, strict=True)
    ]
    (top, left), (height, width) = (t // 2 for t in totals), totals
    return top, left, height - top, width - left


def activated(value: Expr, name: object, layer: Layer) -> Expr:  # a name, or an object of Keras 3
    """A value behind an activation by name."""
    text = name.get("class_name", "") if isinstance(name, dict) else str(name)
    made = ACTIVATIONS.get(text.lower())
    if made is None:
        hint = f"known: {', '.join(ACTIVATIONS)}"
        raise UnsupportedError(f"layer {layer.name!r}: the activation {text!r} is not known", hint=hint)
    return made(value)


def _scaled(value: Expr, factor: float, shift: float = 0.0) -> Expr:
    made = op("multiply", value, const(np.float32(factor)))
    return op("add", made, const(np.float32(shift))) if shift else made


def _clip(value: Expr, low: float, high: float) -> Expr:
    return op("clip", value, a_min=low, a_max=high)


def _elu(value: Expr, alpha: float = 1.0) -> Expr:
    below = _scaled(op("subtract", op("exp", _clip(value, -1e38, 0.0)), const(np.float32(1))), alpha)
    return op("add", op("nn.relu", value), below)


def _swish(value: Expr) -> Expr:
    return op("multiply", value, op("sigmoid", value))


def _gelu(value: Expr) -> Expr:
    inner = op("erf", _scaled(value, float(np.sqrt(0.5))))
    return op("multiply", _scaled(value, 0.5), op("add", inner, const(np.float32(1))))


def _hard_sigmoid(value: Expr) -> Expr:
    return _clip(_scaled(value, 1 / 6, 0.5), 0.0, 1.0)  # of Keras 3


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "linear": lambda e: e,
    "relu": lambda e: op("nn.relu", e),
    "relu6": lambda e: _clip(e, 0.0, 6.0),
    "sigmoid": lambda e: op("sigmoid", e),
    "tanh": lambda e: op("tanh", e),
    "softmax": lambda e: op("nn.softmax", e, axis=-1),
    "exponential": lambda e: op("exp", e),
    "elu": _elu,
    "swish": _swish,
    "silu": _swish,
    "gelu": _gelu,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda e: op("multiply", e, _hard_sigmoid(e)),
    "hard_silu": lambda e: op("multiply", e, _hard_sigmoid(e)),
}


def _finished(value: Expr, layer: Layer, bias_at: int) -> Expr:
    """Behind a product: its bias, its activation."""
    if layer.get("use_bias", True):
        value = op("nn.bias_add", value, layer.weight(bias_at), axis=-1)
    return activated(value, layer.get("activation", "linear"), layer)


def _conv(layer: Layer) -> Expr:
    layer.channels_last()
    strides, dilation = pair(layer.get("strides", 1)), pair(layer.get("dilation_rate", 1))
    size = layer.weights[0][1].shape
    window = [(taps - 1) * step + 1 for taps, step in zip(size[:2], dilation, strict=True)]
    attrs: JsonObject = {"strides": strides, "dilation": dilation, "padding": padding_of(layer, window, strides)}
    attrs |= {"data_layout": "NHWC", "kernel_size": size[:2]}
    if layer.kind == "Conv2D":
        made = op(
            "nn.conv2d",
            layer.x,
            layer.weight(0),
            channels=size[3],
            groups=int(layer.get("groups", 1)),
            kernel_layout="HWIO",
            **attrs,
        )
        return _finished(made, layer, 1)
    inner, factor = size[2], size[3]  # depthwise: (H, W, channels, results of each)
    kernel = layer.weight(0, lambda a: a.reshape(*a.shape[:2], inner * factor, 1))
    made = op("nn.conv2d", layer.x, kernel, channels=inner * factor, groups=inner, kernel_layout="HWOI", **attrs)
    if layer.kind == "DepthwiseConv2D":
        return _finished(made, layer, 1)
    units = layer.weights[1][1].shape[3]
    made = op(
        "nn.conv2d", made, layer.weight(1), channels=units, kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    )
    return _finished(made, layer, 2)


def _dense(layer: Layer) -> Expr:
    made = op("nn.dense", layer.x, layer.weight(0, lambda a: a.T), units=layer.weights[0][1].shape[1])
    return _finished(made, layer, 1)


def _norm(layer: Layer) -> Expr:
    axis = layer.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) else axis
    center, scale = bool(layer.get("center", True)), bool(layer.get("scale", True))
    values, number = [], 0
    size = layer.weights[-1][1].shape
    for used, fill in ((scale, 1.0), (center, 0.0)):
        values.append(layer.weight(number) if used else const(np.full(size, fill, "float32")))
        number += used
    values += [layer.weight(number), layer.weight(number + 1)]
    epsilon = float(layer.get("epsilon", 1e-3))
    made = op("nn.batch_norm", layer.x, *values, axis=axis, epsilon=epsilon, center=center, scale=scale)
    return TupleGetItem(made, 0)


def _pool(name: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        layer.channels_last()
        window = pair(layer.get("pool_size", 2))
        strides = pair(layer.get("strides", window))
        padding = padding_of(layer, window, strides)
        return op(name, layer.x, pool_size=window, strides=strides, padding=padding, layout="NHWC")

    return rule


def _global_pool(name: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        layer.channels_last()
        made = op(name, layer.x, layout="NHWC")
        return made if layer.get("keepdims", False) else op("squeeze", made, axis=(1, 2))

    return rule


def _relu(layer: Layer) -> Expr:
    top, slope = layer.get("max_value"), float(layer.get("negative_slope", 0.0))
    if layer.get("threshold", 0.0) or (top is not None and slope):
        raise UnsupportedError(f"layer {layer.name!r}: a ReLU with a threshold, or with both a slope and a top")
    if slope:
        return op("nn.leaky_relu", layer.x, alpha=slope)
    return op("nn.relu", layer.x) if top is None else _clip(layer.x, 0.0, float(top))


def _leaky(layer: Layer) -> Expr:
    return op("nn.leaky_relu", layer.x, alpha=float(layer.get("negative_slope", layer.get("alpha", 0.3))))


def _zero_padding(layer: Layer) -> Expr:
    layer.channels_last()
    given = layer.get("padding", 1)
    rows, columns = ((given, given), (given, given)) if isinstance(given, int) else map(_both, given)
    return op("nn.pad", layer.x, pad_width=((0, 0), tuple(rows), tuple(columns), (0, 0)))


def _both(value: int | Sequence[int]) -> tuple[int, int]:
    return pair(value)


def _folded(name: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        made = layer.inputs[0]
        for other in layer.inputs[1:]:
            made = op(name, made, other)
        return _scaled(made, 1 / len(layer.inputs)) if layer.kind == "Average" else made

    return rule


def _reshape(layer: Layer) -> Expr:
    return op("reshape", layer.x, newshape=(layer.shape[0], *(int(n) for n in layer.config["target_shape"])))


def _upsampling(layer: Layer) -> Expr:
    layer.channels_last()
    height, width = pair(layer.get("size", 2))
    method = {"nearest": "nearest_neighbor", "bilinear": "bilinear"}.get(layer.get("interpolation", "nearest"))
    if method is None:
        raise UnsupportedError(f"layer {layer.name!r}: interpolation {layer.get('interpolation')!r}")
    if method == "bilinear":  # of pixels' centres, nn.upsampling counts from their corners
        size = (layer.shape[1] * height, layer.shape[2] * width)
        return op("image.resize2d", layer.x, size=size, layout="NHWC", method="linear")
    return op("nn.upsampling", layer.x, scale_h=float(height), scale_w=float(width), layout="NHWC", method=method)


RULES: dict[str, Rule] = {
    "Conv2D": _conv,
    "DepthwiseConv2D": _conv,
    "SeparableConv2D": _conv,
    "Dense": _dense,
    "BatchNormalization": _norm,
    "Activation": lambda layer: activated(layer.x, layer.get("activation", "linear"), layer),
    "ReLU": _relu,
    "LeakyReLU": _leaky,
    "ELU": lambda layer: _elu(layer.x, float(layer.get("alpha", 1.0))),
    "Softmax": lambda layer: op("nn.softmax", layer.x, axis=int(layer.get("axis", -1))),
    "MaxPooling2D": _pool("nn.max_pool2d"),
    "AveragePooling2D": _pool("nn.avg_pool2d"),
    "GlobalMaxPooling2D": _global_pool("nn.global_max_pool2d"),
    "GlobalAveragePooling2D": _global_pool("nn.global_avg_pool2d"),
    "ZeroPadding2D": _zero_padding,
    "UpSampling2D": _upsampling,
    "Flatten": lambda layer: op("nn.batch_flatten", layer.x),
    "Reshape": _reshape,
    "Permute": lambda layer: op("transpose", layer.x, axes=(0, *(int(n) for n in layer.config["dims"]))),
    "Add": _folded("add"),
    "Subtract": _folded("subtract"),
    "Multiply": _folded("multiply"),
    "Maximum": _folded("maximum"),
    "Minimum": _folded("minimum"),
    "Average": _folded("add"),
    "Concatenate": lambda layer: op("concatenate", tuple(layer.inputs), axis=int(layer.get("axis", -1))),  # type: ignore[arg-type]
    "Rescaling": lambda layer: _scaled(layer.x, float(layer.get("scale", 1.0)), float(layer.get("offset", 0.0))),
    **{name: (lambda layer: layer.x) for name in ("Dropout", "SpatialDropout2D", "GaussianNoise", "InputLayer")},
}
