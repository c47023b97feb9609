"""Recipes for operators with a sliding window: convolutions, poolings, transposed convolutions, in 1 to 3 dimensions.

In: a Draw. Out: the node added to its graph. Invariant: strides, dilations, padding up to beyond the kernel, groups,
SAME_* and axes of size 1 are all likely, as is an output as large as its input; `window_graph` is a graph of one such
node, now and then with what networks put behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_kit import Draw, Unfit, Value
from onnx_recipes import recipe


@dataclass
class Window:
    """The attributes that all share, as a node takes them."""

    rank: int
    kernel: list[int]
    attributes: dict[str, Any]


def window(d: Draw, rank: int, dilations: bool = True, beyond: bool = True) -> Window:
    """Draw one. `beyond`: padding may be as large as the kernel or larger."""
    kernel = [d.one((1, 1, 2, 3, 3, 3, 4, 5, 7)) if rank < 3 else d.one((1, 2, 3, 3)) for _ in range(rank)]
    found: dict[str, Any] = {}
    if d.chance(0.65):
        found["strides"] = [d.one((1, 1, 2, 2, 2, 3, 4, 7)) for _ in range(rank)]
    if dilations and d.chance(0.3):
        found["dilations"] = [d.one((1, 1, 2, 3, 5)) for _ in range(rank)]
    auto = d.random.random()
    if auto < 0.25:
        found["auto_pad"] = d.one(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif auto < 0.85:
        reach = [d.one((0, k // 2, k - 1, k, k, k + 1, 2 * k + 1)) if beyond else k - 1 for k in kernel]
        found["pads"] = [d.integer(0, max(r, 0)) for r in reach * 2] if d.chance(0.6) else reach * 2
    return Window(rank, kernel, found)


def spatial(d: Draw, rank: int, w: Window | None = None) -> list[int]:
    """Sizes of the spatial axes, nearly always such that the window fits."""
    many = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17) if rank < 3 else (1, 2, 3, 4, 5, 6)
    sizes = [d.one(many) for _ in range(rank)]
    if w is None or w.attributes.get("auto_pad", "").startswith("SAME") or d.chance(0.02):
        return sizes
    pads = w.attributes.get("pads", [0] * 2 * rank)
    reach = [(k - 1) * n + 1 for k, n in zip(w.kernel, w.attributes.get("dilations", [1] * rank))]
    return [max(s, reach[k] - pads[k] - pads[rank + k]) for k, s in enumerate(sizes)]


def _rank(d: Draw) -> int:
    return int(d.one((1, 2, 2, 2, 2, 3)))


def _groups(d: Draw) -> tuple[int, int, int]:
    """Groups, input channels, output channels."""
    kind = d.random.random()
    if kind < 0.4:
        return 1, d.one((1, 2, 3, 4, 5, 8, 16, 17)), d.one((1, 2, 3, 4, 7, 8, 16, 33))
    groups = d.one((2, 3, 4, 5, 8, 16))
    if kind < 0.65:
        return groups, groups, groups * d.one((1, 1, 1, 2, 3))
    return groups, groups * d.one((1, 2, 3, 4)), groups * d.one((1, 2, 3, 4))


def _weights(d: Draw, window: Window, groups: int, into: int, out: int, dtype: str, transposed: bool = False) -> Value:
    shape = (into, out // groups) if transposed else (out, into // groups)
    return d.give(d.array(dtype, (*shape, *window.kernel), *((-4, 4) if d.chance(0.5) else (-1, 1)), special=0))


def _input(d: Draw, rank: int, channels: int, dtype: str, w: Window | None = None) -> Value:
    known = [v for v in d.pool if v.rank == rank + 2 and v.shape[1] == channels and v.dtype == dtype and v.array.size]
    if known and d.chance(0.5):
        return d.one(known)
    batch = d.one((1, 1, 1, 2, 3))
    return d.give(d.array(dtype, (batch, channels, *spatial(d, rank, w)), special=0), False)


@recipe("Conv")
def convolution(d: Draw) -> None:
    rank, (groups, into, out) = _rank(d), _groups(d)
    dtype = d.one(("float32",) * 8 + ("float64", "float16"))
    w = window(d, rank)
    bias = d.give(d.array(dtype, (out,), special=0)) if d.chance(0.5) else None
    shape = w.kernel if d.chance(0.6) else None
    inputs = [_input(d, rank, into, dtype, w), _weights(d, w, groups, into, out, dtype), bias]
    d.emit("Conv", inputs, group=groups if groups > 1 or d.chance(0.3) else None, kernel_shape=shape, **w.attributes)


@recipe("ConvInteger")
def convolution_of_bytes(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    rank, (groups, into, out) = _rank(d), _groups(d)
    w = window(d, rank)
    x = d.give(d.array("uint8", (1, into, *spatial(d, rank, w)), 0, 255, special=0), False)
    shape = (out, into // groups, *w.kernel)
    weight = d.give(d.array(d.one(("uint8", "int8")), shape, 0, 100, special=0))
    zeros = [None if d.chance(0.4) else d.give(d.array(v.dtype, (), 0, 9, special=0), True) for v in (x, weight)]
    d.emit("ConvInteger", [x, weight, *zeros], group=groups, **w.attributes)


@recipe("QLinearConv")
def quantised_convolution(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    rank, (groups, into, out) = _rank(d), _groups(d)
    w = window(d, rank)
    x = d.give(d.array("uint8", (1, into, *spatial(d, rank, w)), 0, 255, special=0), False)
    kind = d.one(("uint8", "int8"))
    weight = d.give(d.array(kind, (out, into // groups, *w.kernel), -100, 100, special=0), True)
    each = (out,) if d.chance(0.4) else ()
    scales = [d.give(d.array("float32", s, 0.01, 0.2), True) for s in ((), each, ())]
    zeros = [d.fixed(d.integer(0, 200), "uint8"), d.give(d.array(kind, each, 0, 0, special=0), True)]
    last = d.fixed(d.integer(0, 200), "uint8")
    bias = d.give(d.array("int32", (out,), -500, 500, special=0), True) if d.chance(0.5) else None
    inputs = [x, scales[0], zeros[0], weight, scales[1], zeros[1], scales[2], last, bias]
    d.emit("QLinearConv", inputs, group=groups, **w.attributes)


@recipe("ConvTranspose")
def transposed_convolution(d: Draw) -> None:
    rank, (groups, into, out) = _rank(d), _groups(d)
    w = window(d, rank)
    more, strides = w.attributes, w.attributes.get("strides", [1] * rank)
    dtype = d.one(("float32",) * 6 + ("float64",))
    if d.chance(0.3):
        more["output_padding"] = [d.integer(0, max(0, s - 1)) for s in strides]
    x = _input(d, rank, into, dtype)
    if d.chance(0.1) and "pads" not in more:
        more["output_shape"] = [n * s for n, s in zip(x.shape[2:], strides)]
    bias = d.give(d.array(dtype, (out,), special=0)) if d.chance(0.5) else None
    inputs = [x, _weights(d, w, groups, into, out, dtype, True), bias]
    d.emit("ConvTranspose", inputs, group=groups if groups > 1 else None, **more)


@recipe("MaxPool", "AveragePool", "LpPool")
def pooling(d: Draw) -> None:
    rank, op = _rank(d), d.one(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    w = window(d, rank, d.opset >= dilated, beyond=d.chance(0.1))
    dtype = d.one(
        ("float32",) * 8 + (("uint8", "int8", "float64") if op == "MaxPool" and d.opset >= 12 else ("float32",))
    )
    x = _input(d, rank, d.integer(1, 5), dtype, w)
    more: dict[str, Any] = {}
    if d.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op] and d.chance(0.3):
        more["ceil_mode"] = 1
    if op == "AveragePool" and d.opset >= 7 and d.chance(0.4):
        more["count_include_pad"] = 1
    if op == "LpPool":
        more["p"] = d.one((None, 1, 2, 3))
    outputs = 2 if op == "MaxPool" and d.opset >= 8 and d.chance(0.2) else 1
    if outputs == 2 and d.chance(0.2):
        more["storage_order"] = 1
    d.emit(op, [x], outputs, kernel_shape=w.kernel, **w.attributes, **more)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pooling(d: Draw) -> None:
    op = d.one(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = _input(d, _rank(d), d.integer(1, 5), "float32")
    d.emit(op, [x], p=d.one((None, 1, 3)) if op == "GlobalLpPool" else None)


@recipe("MaxUnpool")
def unpooling(d: Draw) -> None:
    if d.opset < 9:
        raise Unfit("since opset 9")
    windows = [2] * _rank(d)
    shape = (d.integer(1, 2), d.integer(1, 3), *(d.integer(2, 8) for _ in windows))
    x = d.give(d.array("float32", shape, special=0), False)
    pooled, places = d.emit("MaxPool", [x], 2, kernel_shape=windows, strides=windows)
    sizes = [d.fixed(shape)] if any(n % 2 for n in shape[2:]) or d.chance(0.3) else []
    d.emit("MaxUnpool", [pooled, places, *sizes], kernel_shape=windows, strides=windows)


@recipe("Col2Im")
def columns_to_image(d: Draw) -> None:
    rank = d.one((1, 2, 2, 3))
    image, block = [d.integer(2, 6) for _ in range(rank)], [d.integer(1, 2) for _ in range(rank)]
    strides, dilations = [d.integer(1, 2) for _ in range(rank)], [d.integer(1, 2) for _ in range(rank)]
    pads = [d.integer(0, 1) for _ in range(2 * rank)]
    count, size = 1, 1
    for k in range(rank):
        free = image[k] + pads[k] + pads[rank + k] - dilations[k] * (block[k] - 1) - 1
        if free < 0:
            raise Unfit("a block larger than the image")
        count, size = count * (free // strides[k] + 1), size * block[k]
    x = d.give(d.array("float32", (d.integer(1, 2), d.integer(1, 3) * size, count), special=0))
    d.emit("Col2Im", [x, d.fixed(image), d.fixed(block)], strides=strides, dilations=dilations, pads=pads)


@recipe("DeformConv")
def deformable_convolution(d: Draw) -> None:
    groups, per = d.one(((1, 2), (2, 1), (1, 3)))
    into, out, offsets = groups * per, groups * d.integer(1, 2), 1
    kernel, strides = [d.integer(1, 3), d.integer(1, 3)], [d.integer(1, 2), d.integer(1, 2)]
    pads, size = [d.integer(0, 1) for _ in range(4)], [d.integer(4, 7), d.integer(4, 7)]
    result = [(size[k] + pads[k] + pads[2 + k] - kernel[k]) // strides[k] + 1 for k in range(2)]
    x = d.give(d.array("float32", (1, into, *size), special=0))
    weight = d.give(d.array("float32", (out, per, *kernel), special=0))
    offset = d.give(d.array("float32", (1, 2 * offsets * kernel[0] * kernel[1], *result), -1.5, 1.5))
    bias = d.give(d.array("float32", (out,), special=0)) if d.chance(0.5) else None
    mask = d.give(d.array("float32", (1, offsets * kernel[0] * kernel[1], *result), 0, 1)) if d.chance(0.5) else None
    d.emit("DeformConv", [x, weight, offset, bias, mask], group=groups, strides=strides, pads=pads, kernel_shape=kernel)


WINDOWS = (
    (convolution,) * 8
    + (transposed_convolution,) * 4
    + (pooling,) * 5
    + (
        convolution_of_bytes,
        quantised_convolution,
        global_pooling,
        deformable_convolution,
        columns_to_image,
        unpooling,
    )
)


def after(d: Draw, x: Value) -> None:
    """What networks put behind a convolution, so that it is fused."""
    if x.dtype not in ("float32", "float64"):
        return
    kind = d.integer(0, 5)
    if kind == 0:
        d.emit("Relu", [x])
    elif kind == 1:
        d.emit("Add", [x, d.like(x, (x.shape[1], *[1] * (x.rank - 2)))])
    elif kind == 2 and d.opset >= 9 and x.rank > 2:
        shape = (x.shape[1],)
        four = [d.give(d.array(x.dtype, shape, 0.5, 2)) for _ in range(4)]
        d.emit("BatchNormalization", [x, *four])
    elif kind == 3:
        d.emit("Mul", [x, x])
    elif kind == 4:
        d.emit("Sigmoid", [x])
    else:
        d.emit("Concat", [x, d.like(x)], axis=1)


def window_graph(d: Draw) -> None:
    """One such node, or two, with something behind it now and then."""
    d.one(WINDOWS)(d)
    if d.chance(0.35) and d.pool:
        after(d, d.pool[-1])
    if d.chance(0.15):
        d.one(WINDOWS)(d)
