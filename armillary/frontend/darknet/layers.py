"""Darknet's layers as Relay's operators, each what Darknet's CPU code computes at inference.

In: a section, the value before it and those of all layers before. Out: the value of the layer; of `yolo` and `region`
also what scripts decode boxes with: mask, anchors and attributes, in the order of TVM's importer. Invariant: batch
normalisation is folded into weights here, with Darknet's own epsilon: (x - mean) / (sqrt(variance) + 1e-6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.frontend.darknet.activations import ACTIVATIONS
from armillary.frontend.darknet.cfg import Section
from armillary.frontend.darknet.weights import WeightReader
from armillary.frontend.values import dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple

_EPSILON = 1e-6
_MOST_ANCHORS = 1024  # bounds what a line of text may allocate


@record
class Layer:
    """A section with what it reads: the value before it (`x`), all values before, and the file of weights."""

    section: Section
    x: Expr
    values: Sequence[Expr]
    weights: WeightReader
    parameter: Callable[[str, Array], Expr]

    @property
    def image(self) -> tuple[int, int, int, int]:
        """The shape (n, c, h, w) of what it reads."""
        shape = shape_of(self.x)
        if len(shape) != 4:
            self.section.wrong(f"it wants an image, and reads a value of the shape {list(shape)}")
        n, c, h, w = shape
        return n, c, h, w

    def take(self, *shape: int) -> Array:
        """The next values of the weights file."""
        return self.weights.take(self.section.title, *shape)

    def earlier(self, name: str) -> list[Expr]:
        """The layers that an option lists: below zero, counted back from this one."""
        number, places = self.section.number, self.section.wholes(name)
        places = tuple(place + number if place < 0 else place for place in places)
        if not places or not all(0 <= place < number for place in places):
            self.section.wrong(f"{name}={self.section.text(name, '')}, wanted layers before this one")
        return [self.values[place] for place in places]

    def activated(self, x: Expr, default: str) -> Expr:
        """A value after the activation of the section."""
        name = self.section.text("activation", default)
        if name not in ACTIVATIONS:
            hint = f"supported: {', '.join(ACTIVATIONS)}"
            raise UnsupportedError(f"{self.section.title}: activation={name}", span=self.section.span, hint=hint)
        return ACTIVATIONS[name](x)

    def split(self, x: Expr, axis: int, *ends: int) -> list[Expr]:
        """Parts of a value along an axis that end at these places."""
        starts = (0, *ends[:-1])
        return [
            op("strided_slice", x, begin=(start,), end=(end,), strides=(1,), axes=(axis,))
            for start, end in zip(starts, ends, strict=True)
            if end > start
        ]


def _normalised(layer: Layer, weight: Array, bias: Array, rows: Array) -> tuple[Array, Array]:
    """Weights and biases (channels first) with the normalisation of the rows scale, mean, variance folded in."""
    scale, mean, variance = rows.astype(np.float64)
    if not (variance >= 0).all():
        layer.section.wrong("a variance is below zero or no number: the weights are damaged, or of another network")
    factor = scale / (np.sqrt(variance) + _EPSILON)
    with np.errstate(over="ignore", invalid="ignore"):
        return weight * factor.reshape(-1, *(1,) * (weight.ndim - 1)), bias - mean * factor


def _convolutional(layer: Layer) -> Expr:
    section, (_, channels, _, _) = layer.section, layer.image
    section.check_unset("binary", "xnor", "antialiasing", "share_index", "dontload", "dontloadscales", "deform")
    section.check_unset("rotate", "sway", "stretch", "stretch_sway", "assisted_excitation", "coordconv")
    filters, size = section.whole("filters", 1, 1), section.whole("size", 1, 1)
    groups, stride = section.whole("groups", 1, 1), section.whole("stride", 1, 1)
    strides = section.whole("stride_y", stride, 1), section.whole("stride_x", stride, 1)
    dilation = section.whole("dilation", 1, 1)
    padding = size // 2 if section.whole("pad", 0) else section.whole("padding", 0, 0)
    if channels % groups or filters % groups:
        section.wrong(f"{channels} channels and {filters} filters do not divide into {groups} groups")
    bias = layer.take(filters)
    rows = layer.take(3, filters) if section.whole("batch_normalize", 0) else None
    shape = (filters, channels // groups, size, size)
    if section.whole("flipped", 0):
        weight = layer.take(math.prod(shape[1:]), filters).T.reshape(shape)
    else:
        weight = layer.take(*shape)
    if rows is not None:
        weight, bias = _normalised(layer, weight, bias, rows)
    result = op(
        "nn.conv2d",
        layer.x,
        layer.parameter("weight", weight),
        kernel_size=(size, size),
        channels=filters,
        strides=strides,
        padding=(padding,) * 4,
        dilation=(dilation, dilation),
        groups=groups,
    )
    return layer.activated(op("nn.bias_add", result, layer.parameter("bias", bias), axis=1), "logistic")


def _connected(layer: Layer) -> Expr:
    section, shape = layer.section, shape_of(layer.x)
    section.check_unset("dontload", "dontloadscales")
    inputs, outputs = math.prod(shape[1:]), section.whole("output", 1, 1)
    bias = layer.take(outputs)
    if layer.weights.is_transposed:
        weight = layer.take(inputs, outputs).T
    else:
        weight = layer.take(outputs, inputs)
    if section.whole("batch_normalize", 0):
        weight, bias = _normalised(layer, weight, bias, layer.take(3, outputs))
    product = op("nn.dense", _flat(layer.x), layer.parameter("weight", weight), units=outputs)
    return layer.activated(op("nn.bias_add", product, layer.parameter("bias", bias), axis=-1), "logistic")


def _flat(x: Expr) -> Expr:
    shape = shape_of(x)
    return x if len(shape) == 2 else reshape_to(x, (shape[0], math.prod(shape[1:])))


def _maxpool(layer: Layer) -> Expr:
    section, (_, _, height, width) = layer.section, layer.image
    section.check_unset("maxpool_depth", "antialiasing")
    stride = section.whole("stride", 1, 1)
    strides = section.whole("stride_y", stride, 1), section.whole("stride_x", stride, 1)
    size = section.whole("size", stride, 1)
    padding = section.whole("padding", size - 1, 0)
    before = padding // 2
    if before >= size or min(height, width) + padding < size:
        section.wrong(f"windows of {size} with padding={padding} do not fit an image of {height}x{width}")
    sides = (before, before, padding - before, padding - before)  # the odd one is below and to the right
    return op("nn.max_pool2d", layer.x, pool_size=(size, size), strides=strides, padding=sides)


def _avgpool(layer: Layer) -> Expr:
    assert layer.image, "it checks the shape"
    return op("nn.global_avg_pool2d", layer.x)


def _route(layer: Layer) -> Expr:
    section, parts = layer.section, layer.earlier("layers")
    groups, group = section.whole("groups", 1, 1), section.whole("group_id", 0, 0)
    if groups != 1:
        if group >= groups or any(shape_of(part)[1] % groups for part in parts):
            section.wrong(f"there is no group {group} of {groups} in what it reads")
        counts = [shape_of(part)[1] // groups for part in parts]
        parts = [
            layer.split(part, 1, count * group, count * (group + 1))[-1]
            for part, count in zip(parts, counts, strict=True)
        ]
    return parts[0] if len(parts) == 1 else op("concatenate", Tuple(tuple(parts)), axis=1)


def _shortcut(layer: Layer) -> Expr:
    """The sum with earlier layers.

    Of more pixels every second (or third, …) is added, of different numbers of channels the lower ones.
    """
    section, (n, channels, height, width) = layer.section, layer.image
    section.check_unset("weights_type", "weights_normalization")
    if section.number_of("alpha", 1) != 1 or section.number_of("beta", 1) != 1:
        section.wrong("alpha and beta other than 1 are not supported")
    result = layer.x
    for other in layer.earlier("from"):
        shape = shape_of(other)
        stride = max(shape[-1] // width, 1)
        if len(shape) != 4 or tuple(-(-size // stride) for size in shape[2:]) != (height, width):
            message = f"{section.title}: it adds a value of the shape {list(shape)} to {[n, channels, height, width]}"
            raise UnsupportedError(message, span=section.span, hint="the sizes of images have to be the same")
        if stride > 1:
            other = op("strided_slice", other, begin=(0, 0), end=shape[2:], strides=(stride, stride), axes=(2, 3))
        if shape[1] > channels:
            (other,) = layer.split(other, 1, channels)
        elif shape[1] < channels:
            other = op("nn.pad", other, pad_width=((0, 0), (0, channels - shape[1]), (0, 0), (0, 0)), pad_value=0.0)
        result = op("add", result, other)
    return layer.activated(result, "linear")


def _crop(layer: Layer) -> Expr:
    """The middle of the image, and 0 to 1 as -1 to 1 unless `noadjust` is set."""
    section, (_, _, height, width) = layer.section, layer.image
    rows, columns = section.whole("crop_height", 1, 1), section.whole("crop_width", 1, 1)
    if rows > height or columns > width:
        section.wrong(f"{rows}x{columns} of an image of {height}x{width}")
    top, left = (height - rows) // 2, (width - columns) // 2
    result = op("strided_slice", layer.x, begin=(top, left), end=(top + rows, left + columns), axes=(2, 3))
    if section.whole("noadjust", 0):
        return result
    dtype = dtype_of(result)
    return op("subtract", op("multiply", result, scalar(2, dtype)), scalar(1, dtype))


def _upsample(layer: Layer) -> Expr:
    stride, factor = layer.section.whole("stride", 2, 1), layer.section.number_of("scale", 1)
    assert layer.image, "it checks the shape"
    result = op("nn.upsampling", layer.x, scale_h=float(stride), scale_w=float(stride))
    return result if factor == 1 else op("multiply", result, scalar(factor, dtype_of(result)))


def _softmax(layer: Layer) -> Expr:
    section = layer.section
    section.check_unset("tree", "spatial")
    x, groups, temperature = _flat(layer.x), section.whole("groups", 1, 1), section.number_of("temperature", 1)
    n, count = shape_of(x)
    if count % groups or not temperature:
        section.wrong(f"{count} values do not divide into groups={groups}, or temperature={temperature}")
    if temperature != 1:
        x = op("divide", x, scalar(temperature, dtype_of(x)))
    if groups == 1:
        return op("nn.softmax", x, axis=-1)
    return reshape_to(op("nn.softmax", reshape_to(x, (n, groups, count // groups)), axis=-1), (n, count))


def _reorg(layer: Layer) -> Expr:
    """Blocks of the image as channels, as Darknet orders them.

    Its loop takes the memory of (c, h, w) for that of (c / stride^2, h * stride, w * stride), and networks are trained
    with that.
    """
    section, (n, channels, height, width) = layer.section, layer.image
    section.check_unset("reverse", "flatten", "extra")
    stride = section.whole("stride", 1, 1)
    depth = channels // stride**2
    if channels % stride**2 or height % stride or width % stride:
        section.wrong(f"an image of {channels}x{height}x{width} does not divide by stride={stride}")
    blocks = reshape_to(layer.x, (n, depth, height, stride, width, stride))
    moved = op("transpose", blocks, axes=(0, 3, 5, 1, 2, 4))
    return reshape_to(moved, (n, channels * stride**2, height // stride, width // stride))


def _same(layer: Layer) -> Expr:
    return layer.x


def _activation(layer: Layer) -> Expr:
    return layer.activated(layer.x, "linear")


def _by_anchor(layer: Layer, anchors: int, depth: int) -> Expr:
    n, channels, height, width = layer.image
    if channels != anchors * depth:
        layer.section.wrong(f"{channels} channels, wanted {anchors} anchors of {depth} values")
    return reshape_to(layer.x, (n, anchors, depth, height, width))


def _joined(layer: Layer, parts: list[Expr]) -> Expr:
    return reshape_to(op("concatenate", Tuple(tuple(parts)), axis=2), layer.image)


def _anchor_count(section: Section) -> int:
    count = section.whole("num", 1, 1)
    return count if count <= _MOST_ANCHORS else section.wrong(f"num={count}, at most {_MOST_ANCHORS} are read")


def _anchor_sizes(section: Section, count: int) -> Array:
    values = np.full(2 * count, 0.5, np.float32)
    sizes = section.numbers("anchors")[: 2 * count]
    values[: len(sizes)] = sizes
    return values


def _attributes(layer: Layer, anchors: int, *rest: int) -> Array:
    return np.array([anchors, *layer.image[1:], *rest], np.int32)


def _yolo(layer: Layer) -> list[Expr]:
    """The boxes of YOLO 3 and later: centres, objectness and classes between 0 and 1."""
    section, total = layer.section, _anchor_count(layer.section)
    classes, scale = section.whole("classes", 20, 0), section.number_of("scale_x_y", 1)
    mask = section.wholes("mask") or tuple(range(total))
    if not all(0 <= place < total for place in mask):
        section.wrong(f"mask={section.text('mask', '')}, wanted anchors below num={total}")
    x = _by_anchor(layer, len(mask), classes + 5)
    centre, size, rest = layer.split(x, 2, 2, 4, classes + 5)
    if not section.whole("new_coords", 0):
        centre, rest = op("sigmoid", centre), op("sigmoid", rest)
    if scale != 1:
        dtype = dtype_of(centre)
        centre = op("subtract", op("multiply", centre, scalar(scale, dtype)), scalar(0.5 * (scale - 1), dtype))
    return [
        _joined(layer, [centre, size, rest]),
        layer.parameter("mask", np.array(mask, np.int32)),
        layer.parameter("bias", _anchor_sizes(section, total)),
        layer.parameter("attr", _attributes(layer, len(mask), classes, total)),
    ]


def _region(layer: Layer) -> list[Expr]:
    """The boxes of YOLO 2: centres and objectness between 0 and 1, classes by a softmax where it says so."""
    section, anchors = layer.section, _anchor_count(layer.section)
    section.check_unset("tree", "softmax_tree")
    classes, coordinates = section.whole("classes", 20, 1), section.whole("coords", 4, 3)
    has_background, is_softmax = section.whole("background", 0) != 0, section.whole("softmax", 0) != 0
    depth = classes + coordinates + 1
    x = _by_anchor(layer, anchors, depth)
    if has_background and is_softmax:  # the objectness is that of the background, a class as the others
        centre, size, scores = layer.split(x, 2, 2, coordinates, depth)
        rest = [op("nn.softmax", scores, axis=2)]
    else:
        centre, size, presence, scores = layer.split(x, 2, 2, coordinates, coordinates + 1, depth)
        presence = presence if has_background else op("sigmoid", presence)
        rest = [presence, op("nn.softmax", scores, axis=2) if is_softmax else op("sigmoid", scores)]
    return [
        _joined(layer, [op("sigmoid", centre), size, *rest]),
        layer.parameter("bias", _anchor_sizes(section, anchors)),
        layer.parameter("attr", _attributes(layer, anchors, classes, coordinates, has_background)),
    ]


RULES: dict[str, Callable[[Layer], Expr | list[Expr]]] = {
    "convolutional": _convolutional,
    "connected": _connected,
    "maxpool": _maxpool,
    "avgpool": _avgpool,
    "route": _route,
    "shortcut": _shortcut,
    "upsample": _upsample,
    "softmax": _softmax,
    "reorg": _reorg,
    "activation": _activation,
    "dropout": _same,
    "cost": _same,
    "crop": _crop,
    "yolo": _yolo,
    "region": _region,
}
