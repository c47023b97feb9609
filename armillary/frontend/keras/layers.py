"""Rules for the layers of Keras: a layer's configuration and weights to Relay.

In: a `Layer` with typed inputs, channels last. Out: an expression, or several. Invariant: one row of `RULES` for each
class of layers; what a rule does not look at has no effect on inference. Sequences: sequences.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from armillary.base.aliases import Array
from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.frontend import channels_last
from armillary.frontend.values import is_float, op, shape_of
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const
from armillary.relay.infer import infer_type


@record
class Layer:
    """A call of a layer; `weights` are (name, value) in Keras's order, `parameter` makes one an input of the module.

    `keywords` has what the call names: lists of tensors, or JSON of Keras.
    """

    name: str
    kind: str
    config: JsonObject  # Any: JSON of Keras
    inputs: list[Expr]
    weights: list[tuple[str, Array]]
    parameter: Callable[[str, Array], Expr]
    keywords: Mapping[str, object]

    @property
    def x(self) -> Expr:
        return self.inputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return shape_of_typed(self.x)

    def get(self, name: str, default: object = None) -> Any:  # Any: JSON of Keras
        result = self.config.get(name)
        return default if result is None else result

    def weight(self, number: int, change: Callable[[Array], Array] = lambda a: a) -> Expr:
        """A weight as a parameter `<layer>.<its last name>`, or with all its names where that is not enough."""
        if number >= len(self.weights):
            self.refuse(f"{len(self.weights)} weights, wanted {number + 1}")
        path, value = self.weights[number]
        lasts = [row[0].rsplit("/", 1)[-1] for row in self.weights]
        last = path.rsplit("/", 1)[-1] if lasts.count(lasts[number]) == 1 else path.replace("/", ".")
        return self.parameter(f"{self.name}.{last.partition(':')[0]}", change(value))

    def tensors(self, *names: str) -> list[Expr]:
        """The tensors among keywords."""
        values = [self.keywords.get(name) for name in names]
        return [x for value in values if isinstance(value, list) for x in value if isinstance(x, Expr)]

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this layer."""
        raise UnsupportedError(f"layer {self.name!r}, a {self.kind}: {what}", hint=hint)

    def channels_last(self) -> None:
        """Refuse the other layout."""
        if self.get("data_format", "channels_last") != "channels_last":
            self.refuse("channels first", "save the model with image_data_format 'channels_last'")


def shape_of_typed(x: Expr) -> tuple[int, ...]:
    """The sizes of an expression that a rule has just made."""
    infer_type(x)
    return shape_of(x)


_RANDOM = (  # RandomCrop changes sizes in some versions
    "Brightness ColorDegeneration ColorJitter Contrast ElasticTransform Erasing Flip GaussianBlur Grayscale Hue Invert "
    "Perspective Posterization Rotation Saturation Sharpness Shear Translation Zoom"
)
Rule = Callable[[Layer], Expr | list[Expr]]


def per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for each axis."""
    return (int(value),) * rank if isinstance(value, int) else tuple(int(v) for v in value)


def padding_of(layer: Layer, windows: Sequence[int]) -> str | channels_last.Pairs:
    """ "SAME", "VALID", or what is in front of the steps of "causal"."""
    mode = layer.get("padding", "valid")
    if mode == "causal":
        return [(windows[0] - 1, 0)]
    if mode not in ("valid", "same"):
        layer.refuse(f"padding {mode!r}", "valid, same or causal")
    return str(mode).upper()


def activated(value: Expr, name: object, layer: Layer) -> Expr:  # a name, or an object of Keras 3
    """A value behind an activation by name."""
    text = name.get("class_name", "") if isinstance(name, dict) else str(name)
    activation = ACTIVATIONS.get(text.lower())
    if activation is None:
        hint = f"known: {', '.join(ACTIVATIONS)}"
        raise UnsupportedError(f"layer {layer.name!r}: the activation {text!r} is not known", hint=hint)
    return activation(value)


def _scaled(value: Expr, factor: float, shift: float = 0.0) -> Expr:
    result = op("multiply", value, const(np.float32(factor)))
    return op("add", result, const(np.float32(shift))) if shift else result


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


def _softplus(value: Expr) -> Expr:
    small = op("exp", op("negative", op("abs", value)))
    return op("add", op("nn.relu", value), op("log", op("add", small, const(np.float32(1)))))


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
    "softplus": _softplus,
    "softsign": lambda e: op("divide", e, op("add", op("abs", e), const(np.float32(1)))),
    "selu": lambda e: _scaled(_elu(e, 1.6732632423543772), 1.0507009873554805),
    "mish": lambda e: op("multiply", e, op("tanh", _softplus(e))),
    "log_softmax": lambda e: op("nn.log_softmax", e, axis=-1),
    "leaky_relu": lambda e: op("nn.leaky_relu", e, alpha=0.2),
}


def _finished(value: Expr, layer: Layer, bias_at: int) -> Expr:
    """Behind a product: its bias, its activation."""
    if layer.get("use_bias", True):
        value = op("nn.bias_add", value, layer.weight(bias_at), axis=-1)
    return activated(value, layer.get("activation", "linear"), layer)


def _conv(layer: Layer) -> Expr:
    layer.channels_last()
    rank = len(layer.shape) - 2
    strides, dilation = (per_axis(layer.get(name, 1), rank) for name in ("strides", "dilation_rate"))
    size = layer.weights[0][1].shape
    windows = [(taps - 1) * step + 1 for taps, step in zip(size[:rank], dilation, strict=True)]
    padding = padding_of(layer, windows)
    if layer.kind.startswith("Conv"):
        result = channels_last.conv(layer.x, layer.weight(0), strides, padding, dilation)
        return _finished(result, layer, 1)
    kernel = layer.weight(0, lambda a: a.reshape(*a.shape[:rank], -1, 1))  # (spatial…, channels, results of each)
    result = channels_last.depthwise(layer.x, kernel, strides, padding, dilation)
    if layer.kind.startswith("Depthwise"):
        return _finished(result, layer, 1)
    return _finished(channels_last.conv(result, layer.weight(1), (1,) * rank, "VALID"), layer, 2)


def _transposed_conv(layer: Layer) -> Expr:
    layer.channels_last()
    rank, size = len(layer.shape) - 2, layer.weights[0][1].shape
    strides = per_axis(layer.get("strides", 1), rank)
    if layer.get("output_padding") or set(per_axis(layer.get("dilation_rate", 1), rank)) != {1}:
        layer.refuse("output_padding or dilation")
    padding = str(padding_of(layer, size[:rank]))
    rows = zip(layer.shape[1:-1], size, strides, strict=False)
    out = [n * s + (max(k - s, 0) if padding == "VALID" else 0) for n, k, s in rows]
    result = channels_last.transposed_conv(layer.x, layer.weight(0), out, strides, padding)
    return _finished(result, layer, 1)


def _dense(layer: Layer) -> Expr:
    product = op("nn.dense", layer.x, layer.weight(0, lambda a: a.T), units=layer.weights[0][1].shape[1])
    return _finished(product, layer, 1)


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
    normed = op("nn.batch_norm", layer.x, *values, axis=axis, epsilon=epsilon, center=center, scale=scale)
    return TupleGetItem(normed, 0)


def _layer_norm(layer: Layer) -> Expr:
    axes = _axes(layer)
    if len(axes) != 1:
        layer.refuse("several axes")
    (axis,), epsilon = axes, float(layer.get("epsilon", 1e-3))
    if layer.get("rms_scaling", False):  # by the deviation, which is not the root of the mean of squares
        mean = op("mean", layer.x, axis=axes, keepdims=True)
        variance = op("variance", layer.x, mean, axis=axes, keepdims=True)
        deviation = op("sqrt", op("add", variance, const(np.float32(epsilon))))
        wanted = tuple(-1 if k == axis else 1 for k in range(len(layer.shape)))
        return op("multiply", op("divide", layer.x, deviation), op("reshape", layer.weight(0), newshape=wanted))
    center, scale = bool(layer.get("center", True)), bool(layer.get("scale", True))
    size = layer.shape[axis]
    gamma = layer.weight(0) if scale else const(np.ones(size, np.float32))
    beta = layer.weight(int(scale)) if center else const(np.zeros(size, np.float32))
    return op("nn.layer_norm", layer.x, gamma, beta, axis=axis, epsilon=epsilon, center=center, scale=scale)


def _axes(layer: Layer) -> tuple[int, ...]:
    """The axes of a layer, counted from the front."""
    axis = layer.get("axis", -1)
    return tuple(int(a) % len(layer.shape) for a in (axis if isinstance(axis, list) else [axis]))


def _rms_norm(layer: Layer) -> Expr:
    axes, last = _axes(layer), len(layer.shape) - 1
    if axes != (last,):
        layer.refuse(f"axis={layer.get('axis')}", "the last axis is supported")
    return op("nn.rms_norm", layer.x, layer.weight(0), axis=last, epsilon=float(layer.get("epsilon", 1e-6)))


def _unit_norm(layer: Layer) -> Expr:
    return op("nn.l2_normalize", layer.x, axis=_axes(layer), eps=1e-24)  # 1e-12, squared


def _einsum_dense(layer: Layer) -> Expr:
    if layer.get("lora_rank") or layer.get("quantization_config"):
        layer.refuse("LoRA or quantised weights", "merge them into the kernel before saving")
    result = op("einsum", Tuple((layer.x, layer.weight(0))), equation=layer.config["equation"].replace(" ", ""))
    if layer.get("bias_axes"):
        result = op("add", result, layer.weight(1))
    return activated(result, layer.get("activation", "linear"), layer)


def _group_norm(layer: Layer) -> Expr:
    axis, groups = int(layer.get("axis", -1)) % len(layer.shape), int(layer.get("groups", 32))
    center, scale = bool(layer.get("center", True)), bool(layer.get("scale", True))
    size = layer.shape[axis]
    gamma = layer.weight(0) if scale else const(np.ones(size, np.float32))
    beta = layer.weight(int(scale)) if center else const(np.zeros(size, np.float32))
    groups = size if groups == -1 else groups
    return op(
        "nn.group_norm", layer.x, gamma, beta, num_groups=groups, axis=axis, epsilon=float(layer.get("epsilon", 1e-3))
    )


def _normalization(layer: Layer) -> Expr:
    """Data less a mean, over a deviation; both are stored, or in the configuration."""
    axis, shape = layer.get("axis", -1), layer.shape
    axes = {a % len(shape) for a in ([] if axis is None else axis if isinstance(axis, list) else [axis])}
    wanted = [size if k in axes else 1 for k, size in enumerate(shape)]
    if layer.config.get("mean") is not None:
        mean, variance = (np.asarray(layer.config[name], np.float32) for name in ("mean", "variance"))
    else:
        mean, variance = (layer.weights[k][1].astype(np.float32) for k in (0, 1))
    deviation = np.maximum(np.sqrt(variance), 1e-7).astype(np.float32)
    mean, deviation = (a.reshape(wanted) if a.size == math.prod(wanted) else a for a in (mean, deviation))
    if layer.get("invert", False):
        return op("add", const(mean), op("multiply", layer.x, const(deviation)))
    return op("divide", op("subtract", layer.x, const(mean)), const(deviation))


def _pool(kind: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        layer.channels_last()
        rank = len(layer.shape) - 2
        window = per_axis(layer.get("pool_size", 2), rank)
        strides = per_axis(layer.get("strides", window), rank)
        return channels_last.pool(kind, layer.x, window, strides, padding_of(layer, window))

    return rule


def _global_pool(name: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        layer.channels_last()
        axes = tuple(range(1, len(layer.shape) - 1))
        return op(name, layer.x, axis=axes, keepdims=bool(layer.get("keepdims", False)))

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


def _sides(value: int | Sequence[int | Sequence[int]], rank: int) -> list[tuple[int, int]]:
    """Pairs for each axis, from Keras's numbers, pairs or pairs of pairs."""
    if isinstance(value, int):
        return [(value, value)] * rank
    pairs = [(v, v) if isinstance(v, int) else (v[0], v[1]) for v in value]
    return [(pairs[0][0], pairs[1][0])] if rank == 1 and len(pairs) == 2 else pairs  # one axis: before and behind


def _zero_padding(layer: Layer) -> Expr:
    layer.channels_last()
    pairs = _sides(layer.get("padding", 1), len(layer.shape) - 2)
    return op("nn.pad", layer.x, pad_width=((0, 0), *pairs, (0, 0)))


def _cropping(layer: Layer) -> Expr:
    layer.channels_last()
    rank = len(layer.shape) - 2
    pairs = _sides(layer.get("cropping", 1), rank)
    ends = tuple(size - after for size, (_, after) in zip(layer.shape[1:-1], pairs, strict=True))
    return op("strided_slice", layer.x, begin=tuple(b for b, _ in pairs), end=ends, axes=tuple(range(1, rank + 1)))


def _folded(name: str) -> Rule:
    def rule(layer: Layer) -> Expr:
        result = layer.inputs[0]
        for other in layer.inputs[1:]:
            result = op(name, result, other)
        return _scaled(result, 1 / len(layer.inputs)) if layer.kind == "Average" else result

    return rule


def _reshape(layer: Layer) -> Expr:
    return op("reshape", layer.x, newshape=(layer.shape[0], *(int(n) for n in layer.config["target_shape"])))


def _upsampling(layer: Layer) -> Expr:
    layer.channels_last()
    height, width = per_axis(layer.get("size", 2), 2)
    method = {"nearest": "nearest_neighbor", "bilinear": "bilinear"}.get(layer.get("interpolation", "nearest"))
    if method is None:
        raise UnsupportedError(f"layer {layer.name!r}: interpolation {layer.get('interpolation')!r}")
    if method == "bilinear":  # of pixels' centres, nn.upsampling counts from their corners
        size = (layer.shape[1] * height, layer.shape[2] * width)
        return op("image.resize2d", layer.x, size=size, layout="NHWC", method="linear")
    return op("nn.upsampling", layer.x, scale_h=float(height), scale_w=float(width), layout="NHWC", method=method)


def _repeated(layer: Layer) -> Expr:
    """Upsampling of one axis or of three."""
    layer.channels_last()
    result = layer.x
    for axis, count in enumerate(per_axis(layer.get("size", 2), len(layer.shape) - 2), 1):
        result = op("repeat", result, repeats=count, axis=axis)
    return result


def _augmentation(layer: Layer) -> Expr:
    """Nothing but in training; of integers some give floats, others what they read."""
    if not is_float(layer.x):
        layer.refuse("images of integers", "a Rescaling in front of it, or an input in float32")
    return layer.x


def _resizing(layer: Layer) -> Expr:
    layer.channels_last()
    methods = {"nearest": "nearest_neighbor", "bilinear": "linear"}
    kind = layer.get("interpolation", "bilinear")
    if kind not in methods or layer.get("crop_to_aspect_ratio") or layer.get("pad_to_aspect_ratio"):
        layer.refuse(f"interpolation {kind!r}, or an aspect ratio that is kept", "bilinear and nearest are known")
    size = (int(layer.config["height"]), int(layer.config["width"]))
    return channels_last.resize(layer.x, size, methods[kind], False, True)


def _prelu(layer: Layer) -> Expr:
    zero = const(np.float32(0))
    return op("add", op("nn.relu", layer.x), op("multiply", layer.weight(0), op("minimum", layer.x, zero)))


def _rescaling(layer: Layer) -> Expr:
    scale, offset = (np.asarray(layer.get(name, fill), np.float32) for name, fill in (("scale", 1), ("offset", 0)))
    x = op("cast", layer.x, dtype="float32") if str(layer.x.checked_type.dtype) != "float32" else layer.x  # type: ignore[attr-defined]
    return op("add", op("multiply", x, const(scale)), const(offset))


def _dot(layer: Layer) -> Expr:
    axes = layer.config["axes"]
    first, second = (axes, axes) if isinstance(axes, int) else axes
    a, b = layer.inputs
    if layer.get("normalize"):
        layer.refuse("normalised")
    if len(shape_of(a)) == len(shape_of(b)) == 2:
        return op("sum", op("multiply", a, b), axis=(1,), keepdims=True)
    if len(shape_of(a)) != 3 or len(shape_of(b)) != 3:
        layer.refuse("tensors of more than three axes")
    a = op("transpose", a, axes=(0, 2, 1)) if first % 3 == 1 else a
    b = op("transpose", b, axes=(0, 2, 1)) if second % 3 == 2 else b
    return op("nn.batch_matmul", a, b, transpose_b=False)


def _scaled_sum(layer: Layer) -> Expr:
    """Inception-ResNet's own layer: the first input, plus the second times a number."""
    return op("add", layer.inputs[0], _scaled(layer.inputs[1], float(layer.config["scale"])))


RULES: dict[str, Rule] = {
    **{f"{kind}{rank}D": _conv for kind in ("Conv", "DepthwiseConv", "SeparableConv") for rank in (1, 2, 3)},
    **{f"Conv{rank}DTranspose": _transposed_conv for rank in (1, 2, 3)},
    "Dense": _dense,
    "EinsumDense": _einsum_dense,
    "BatchNormalization": _norm,
    "Activation": lambda layer: activated(layer.x, layer.get("activation", "linear"), layer),
    "ReLU": _relu,
    "LeakyReLU": _leaky,
    "ELU": lambda layer: _elu(layer.x, float(layer.get("alpha", 1.0))),
    "Softmax": lambda layer: op("nn.softmax", layer.x, axis=int(layer.get("axis", -1))),
    **{f"MaxPooling{rank}D": _pool("max") for rank in (1, 2, 3)},
    **{f"AveragePooling{rank}D": _pool("avg") for rank in (1, 2, 3)},
    **{f"GlobalMaxPooling{rank}D": _global_pool("max") for rank in (1, 2, 3)},
    **{f"GlobalAveragePooling{rank}D": _global_pool("mean") for rank in (1, 2, 3)},
    **{f"ZeroPadding{rank}D": _zero_padding for rank in (1, 2, 3)},
    **{f"Cropping{rank}D": _cropping for rank in (1, 2, 3)},
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "RMSNormalization": _rms_norm,
    "UnitNormalization": _unit_norm,
    "Normalization": _normalization,
    "PReLU": _prelu,
    "Dot": _dot,
    "LayerScale": lambda layer: op("multiply", layer.x, layer.weight(0)),
    "CustomScaleLayer": _scaled_sum,
    **{f"UpSampling{rank}D": _repeated for rank in (1, 3)},
    "Resizing": _resizing,
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
    "Concatenate": lambda layer: op("concatenate", Tuple(tuple(layer.inputs)), axis=int(layer.get("axis", -1))),
    "Rescaling": _rescaling,
    **{
        name: (lambda layer: layer.x)
        for name in (
            "Dropout",
            "SpatialDropout1D",
            "SpatialDropout2D",
            "SpatialDropout3D",
            "GaussianNoise",
            "GaussianDropout",
            "AlphaDropout",
            "ActivityRegularization",
            "StochasticDepth",
            "Identity",
        )
    },
    **dict.fromkeys(("AugMix", "CutMix", "MixUp", "RandAugment"), _augmentation),
    **{f"Random{change}": _augmentation for change in _RANDOM.split()},
}
