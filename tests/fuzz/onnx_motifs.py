"""What networks are made of: runs of nodes that the compiler recognises, rewrites or fuses.

In: a Draw. Out: several nodes in its graph, or Unfit. Invariant: each is a pattern of a pass (quantised layers,
attention and normalisation as arithmetic, transpositions around convolutions, padding, parallel branches), drawn with
the odd sizes and attributes under which a pattern must not match, too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_kit import Draw, Unfit, Value
from onnx_windows import window


def _new(d: Draw, *shape: int, low: float = -2, high: float = 2) -> Value:
    return d.give(d.array("float32", shape, low, high))


def _image(d: Draw, channels: int = 0) -> Value:
    shape = (d.one((1, 1, 2)), channels or d.one((1, 2, 3, 4, 8, 16)), d.integer(1, 12), d.integer(1, 12))
    known = [
        v
        for v in d.pool
        if v.rank == 4 and v.dtype == "float32" and v.array.size and (channels or v.shape[1]) == v.shape[1]
    ]
    return d.one(known) if known and d.chance(0.6) else d.give(d.array("float32", shape, special=0), False)


def _conv(d: Draw, x: Value, out: int = 0, like: bool = False, bias: bool = False) -> Value:
    into = x.shape[1]
    groups = d.one([g for g in (1, 1, 1, into) if into % g == 0])
    out = out or groups * d.one((1, 2, 3, 8))
    if out % groups:
        groups = 1
    if like:
        k = d.one((1, 3, 5))
        more = {"pads": [k // 2] * 4}
        kernel = [k, k]
    else:
        w = window(d, 2)
        more, kernel = w.attributes, w.kernel
    weight = d.give(d.array("float32", (out, into // groups, *kernel), -1, 1))
    inputs = [x, weight, _new(d, out)] if bias or d.chance(0.4) else [x, weight]
    return d.emit("Conv", inputs, group=groups, **more)[0]


def _activation(d: Draw, x: Value) -> Value:
    op = d.one(("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu", "Clip", ""))
    if not op or (op == "HardSwish" and d.opset < 14):
        return x
    if op == "Clip" and d.opset >= 11:
        return d.emit(op, [x, d.fixed(0, "float32"), d.fixed(6, "float32")])[0]
    return d.emit("Relu" if op == "Clip" else op, [x])[0]


def conv_block(d: Draw) -> None:
    """Convolution, normalisation, activation, and the image added again."""
    x = _image(d)
    y = _conv(d, x, x.shape[1], like=d.chance(0.6))
    if d.opset >= 9 and d.chance(0.6):
        four = [d.give(d.array("float32", (y.shape[1],), 0.2, 2)) for _ in range(4)]
        y = d.emit("BatchNormalization", [y, *four])[0]
    elif d.chance(0.5):
        y = d.emit(d.one(("Mul", "Add")), [y, _new(d, y.shape[1], 1, 1)])[0]
    y = _activation(d, y)
    if y.shape == x.shape:
        y = d.emit("Add", [y, x] if d.chance(0.5) else [x, y])[0]
        _activation(d, y)


def channels_last(d: Draw) -> None:
    """Transpositions around layers of channels first."""
    x = d.give(d.array("float32", (1, d.integer(1, 9), d.integer(1, 9), d.one((1, 2, 3, 8))), special=0), False)
    y = d.emit("Transpose", [x], perm=[0, 3, 1, 2])[0]
    y = _conv(d, y, like=d.chance(0.5))
    if d.chance(0.5):
        y = _activation(d, y)
    if d.chance(0.4):
        y = d.emit("MaxPool", [y], kernel_shape=[2, 2], strides=[d.integer(1, 2)] * 2, pads=[0, 0, 1, 1])[0]
    y = d.emit("Transpose", [y], perm=d.one(([0, 2, 3, 1], [0, 2, 3, 1], [0, 3, 2, 1])))[0]
    d.emit(d.one(("Add", "Mul", "Sub")), [y, _new(d, *d.broadcast(y.shape))])


def padded(d: Draw) -> None:
    """A Pad before a window."""
    x = _image(d)
    pads = [0, 0, d.integer(0, 3), d.integer(0, 3), 0, 0, d.integer(0, 3), d.integer(-1, 3)]
    value = d.one((None, 0.0, 1.0))
    if d.opset < 11:
        y = d.emit("Pad", [x], pads=pads, value=value)[0]
    else:
        y = d.emit("Pad", [x, d.fixed(pads), None if value is None else d.fixed(value, "float32")])[0]
    if d.chance(0.7):
        _conv(d, y)
    else:
        w = window(d, 2, False, beyond=False)
        d.emit(d.one(("MaxPool", "AveragePool")), [y], kernel_shape=w.kernel, **w.attributes)


def branches(d: Draw) -> None:
    """Layers of one input side by side, joined."""
    x, k, out = _image(d), d.one((1, 3)), d.one((1, 2, 4))
    parts = []
    for _ in range(d.integer(2, 3)):
        weight = d.give(d.array("float32", (out if d.chance(0.7) else out + 1, x.shape[1], k, k), -1, 1))
        parts.append(d.emit("Conv", [x, weight], pads=[k // 2] * 4)[0])
    if d.chance(0.5):
        parts = [_activation(d, p) for p in parts]
    joined = d.emit("Concat", parts, axis=1)[0]
    if d.chance(0.5):
        _conv(d, joined)


def squeeze_and_excite(d: Draw) -> None:
    """An image scaled by what its mean says."""
    x = _image(d)
    mean = d.emit("GlobalAveragePool", [x])[0]
    few = _conv(d, mean, 2, like=True)
    many = _conv(d, d.emit("Relu", [few])[0], x.shape[1], like=True)
    d.emit("Mul", [x, d.emit("Sigmoid", [many])[0]])


# --- quantised --------------------------------------------------------------------------------------------------------


def _ends(d: Draw, kind: str, each: int = 0) -> list[Value]:
    scale = d.array("float32", (each,) if each else (), 0.01, 0.1)
    zero = d.array(kind, (each,) if each else (), 0, 0 if each else 20, special=0)
    return [d.give(scale, True), d.give(zero, True)]


def _rounded(d: Draw, x: Value, kind: str) -> Value:
    """Through bytes and back, as QDQ models do."""
    ends = _ends(d, kind)
    return d.emit("DequantizeLinear", [d.emit("QuantizeLinear", [x, *ends])[0], *ends])[0]


def _weight(d: Draw, shape: tuple[int, ...], each: int, axis: int) -> Value:
    ends = _ends(d, "int8", each)
    more = {"axis": axis} if each else {}
    return d.emit("DequantizeLinear", [d.give(d.array("int8", shape, -100, 100, special=0), True), *ends], **more)[0]


def quantised_conv(d: Draw) -> None:
    """A convolution between QuantizeLinear and DequantizeLinear."""
    if d.opset < 13:
        raise Unfit("per-axis scales since opset 13")
    kind, x = d.one(("uint8", "uint8", "int8")), _image(d)
    groups = d.one((1, 1, x.shape[1]))
    out, w = groups * d.one((1, 2, 4)), window(d, 2)
    weight = _weight(d, (out, x.shape[1] // groups, *w.kernel), out if d.chance(0.6) else 0, 0)
    y = d.emit("Conv", [_rounded(d, x, kind), weight], group=groups, **w.attributes)[0]
    y = d.emit("Relu", [y])[0] if d.chance(0.5) else y
    y = _rounded(d, y, kind)
    if d.chance(0.3):
        _rounded(d, d.emit("MaxPool", [y], kernel_shape=[2, 2], pads=[0, 0, 1, 1])[0], kind)


def quantised_product(d: Draw) -> None:
    """A product between QuantizeLinear and DequantizeLinear."""
    if d.opset < 13:
        raise Unfit("per-axis scales since opset 13")
    m, k, n, kind = d.integer(1, 9), d.one((1, 3, 4, 16, 33, 64)), d.one((1, 2, 7, 16, 33)), d.one(("uint8", "int8"))
    x = _rounded(d, _new(d, m, k), kind)
    y = d.emit("MatMul", [x, _weight(d, (k, n), n if d.chance(0.5) else 0, 1)])[0]
    if d.chance(0.6):
        y = d.emit("Add", [y, _new(d, n)])[0]
    y = _rounded(d, _activation(d, y), kind)
    if d.chance(0.4):
        _rounded(d, d.emit(d.one(("Add", "Mul")), [y, _rounded(d, _new(d, m, n), kind)])[0], kind)


# --- arithmetic that means a layer ------------------------------------------------------------------------------------


def _mean(d: Draw, x: Value, axis: int = -1) -> Value:
    if d.opset >= 18:
        return d.emit("ReduceMean", [x, d.fixed([axis])], keepdims=1)[0]
    return d.emit("ReduceMean", [x], axes=[axis if d.opset >= 11 else axis % x.rank], keepdims=1)[0]


def normalisation(d: Draw) -> None:
    """Layer or RMS normalisation, written out."""
    x = _new(d, *d.shape(2, 4, 0))
    axis = -1 if d.chance(0.8) else -2
    centred = x if d.chance(0.3) else d.emit("Sub", [x, _mean(d, x, axis)])[0]
    two = d.fixed(2.0, "float32")
    square = d.emit("Pow", [centred, two])[0] if d.chance(0.6) else d.emit("Mul", [centred, centred])[0]
    total = d.emit("Add", [_mean(d, square, axis), d.fixed(d.one((1e-5, 1e-2)), "float32")])[0]
    root = d.emit("Sqrt", [total])[0]
    y = d.emit("Div", [centred, root])[0]
    y = d.emit("Mul", [y, _new(d, x.shape[-1])])[0]
    if d.chance(0.6):
        d.emit("Add", [y, _new(d, x.shape[-1])])


def gelu(d: Draw) -> None:
    """x/2 (1 + erf(x / sqrt 2)), or with tanh, with slightly other numbers now and then."""
    if d.opset < 9:
        raise Unfit("Erf since opset 9")
    x = d.data(("float32",), 1, 4, 0, lambda v: bool(np.all(np.abs(v.array) < 1e3)))

    def number(value: float) -> Value:
        return d.fixed(value if d.chance(0.95) else value * 1.5, "float32")

    if d.chance(0.6):
        inner = d.emit("Erf", [d.emit("Div", [x, number(2**0.5)])[0]])[0]
    else:
        cube = d.emit("Mul", [d.emit("Pow", [x, d.fixed(3.0, "float32")])[0], number(0.044715)])[0]
        inner = d.emit("Tanh", [d.emit("Mul", [d.emit("Add", [x, cube])[0], number((2 / np.pi) ** 0.5)])[0]])[0]
    one = d.emit("Add", [inner, number(1.0)])[0]
    if d.chance(0.5):
        d.emit("Mul", [d.emit("Mul", [x, one])[0], number(0.5)])
    else:
        d.emit("Mul", [d.emit("Mul", [x, number(0.5)])[0], one])


def attention(d: Draw) -> None:
    """Softmax(q k') v of projections, heads split by Reshape and Transpose."""
    batch, steps, heads, size = d.integer(1, 2), d.integer(1, 7), d.integer(1, 3), d.one((1, 4, 8))
    width = heads * size
    x = _new(d, batch, steps, width)
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = d.emit("MatMul", [x, d.give(d.array("float32", (width, width), -1, 1))])[0]
        y = d.emit("Add", [y, _new(d, width)])[0] if d.chance(0.5) else y
        y = d.emit("Reshape", [y, d.fixed([0, -1 if d.chance(0.5) else steps, heads, size])])[0]
        parts.append(d.emit("Transpose", [y], perm=perm)[0])
    scores = d.emit("MatMul", parts[:2])[0]
    scores = d.emit(
        *(
            ("Div", [scores, d.fixed(size**0.5, "float32")])
            if d.chance(0.5)
            else ("Mul", [scores, d.fixed(0.3, "float32")])
        )
    )[0]
    if d.chance(0.5):
        scores = d.emit("Add", [scores, _new(d, *d.one(((steps, steps), (batch, 1, 1, steps), (1,))))])[0]
    weights = d.emit("Softmax", [scores], axis=3 if d.opset < 13 else -1)[0]
    mixed = d.emit("Transpose", [d.emit("MatMul", [weights, parts[2]])[0]], perm=[0, 2, 1, 3])[0]
    d.emit("Reshape", [mixed, d.fixed([0, 0, width])])


def shapes_in_a_row(d: Draw) -> None:
    """Several changes of shape that may fold into fewer, with arithmetic between."""
    x = d.data(("float32", "int64"), 2, 4)
    for _ in range(d.integer(2, 5)):
        kind = d.integer(0, 4)
        if kind == 0:
            perm = list(range(x.rank))
            d.random.shuffle(perm)
            x = d.emit("Transpose", [x], perm=perm)[0]
        elif kind == 1 and x.rank > 1:
            shape = [x.shape[0] * x.shape[1], *x.shape[2:]]
            x = d.emit("Reshape", [x, d.fixed(shape)])[0] if x.array.size else x
        elif kind == 2:
            x = d.emit("Concat", [x, d.like(x)], axis=d.integer(0, x.rank - 1))[0]
        elif kind == 3 and d.opset >= 10:
            axis = d.integer(0, x.rank - 1)
            ends = [d.fixed([v]) for v in (d.integer(0, 1), x.shape[axis], axis, d.integer(1, 2))]
            x = d.emit("Slice", [x, *ends])[0]
        else:
            x = d.emit(d.one(("Add", "Mul", "Sub")), [x, d.like(x, d.broadcast(x.shape))])[0]


MOTIFS: tuple[Callable[[Draw], None], ...] = (
    conv_block,
    conv_block,
    channels_last,
    channels_last,
    padded,
    padded,
    branches,
    squeeze_and_excite,
    quantised_conv,
    quantised_conv,
    quantised_product,
    normalisation,
    gelu,
    attention,
    shapes_in_a_row,
    shapes_in_a_row,
)
