"""Recipes for the layers of networks: normalisation, recurrence, attention, resampling, quantisation.

In: a Draw. Out: the node added to its graph, or Unfit. Invariant: as in onnx_recipes.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_kit import FLOATS, Draw, Unfit, Value
from onnx_recipes import has_attribute, recipe

# --- normalisation ----------------------------------------------------------------------------------------------------


def _image(d: Draw, low: int = 3, dtypes: tuple[str, ...] = ("float32",)) -> Value:
    return d.data(dtypes, low, 5, 0, lambda v: v.array.size > 0 and bool(np.all(np.abs(v.array) < 1e6)))


@recipe("BatchNormalization")
def batch_norm(d: Draw) -> None:
    x = _image(d, 2)
    scale, bias, mean, var = (
        d.give(d.array("float32", (x.shape[1],), *r)) for r in ((-2, 2), (-2, 2), (-1, 1), (0.1, 2))
    )
    d.emit("BatchNormalization", [x, scale, bias, mean, var], epsilon=d.one((None, 1e-3)))


@recipe("InstanceNormalization", "GroupNormalization")
def instance_norm(d: Draw) -> None:
    x = _image(d)
    channels = x.shape[1]
    if d.opset >= 18 and d.chance(0.5):
        groups = d.one([g for g in range(1, channels + 1) if channels % g == 0])
        size = channels if d.opset >= 21 else groups
        scale, bias = (d.give(d.array("float32", (size,), 0.5, 2)) for _ in range(2))
        d.emit("GroupNormalization", [x, scale, bias], num_groups=groups, epsilon=d.one((None, 1e-2)))
        return
    scale, bias = (d.give(d.array("float32", (channels,), 0.5, 2)) for _ in range(2))
    d.emit("InstanceNormalization", [x, scale, bias], epsilon=d.one((None, 1e-2)))


@recipe("LayerNormalization", "RMSNormalization")
def layer_norm(d: Draw) -> None:
    x = _image(d, 1, ("float32", "float32", "float64", "float16"))
    axis = d.axis(x.rank)
    shape = x.shape[axis % x.rank :] if d.chance(0.7) else d.broadcast(x.shape[axis % x.rank :])
    scale = d.give(d.array(x.dtype, shape, 0.5, 2))
    epsilon = d.one((None, 1e-2))
    if d.opset >= 23 and d.chance(0.5):
        d.emit("RMSNormalization", [x, scale], axis=axis, epsilon=epsilon)
    else:
        bias = d.like(x, shape) if d.chance(0.6) else None
        d.emit("LayerNormalization", [x, scale, bias], d.one((1, 1, 1, 3)), axis=axis, epsilon=epsilon)


@recipe("LRN")
def local_response(d: Draw) -> None:
    x = _image(d)
    d.emit(
        "LRN",
        [x],
        size=d.one((1, 2, 3, 5, 9)),
        alpha=d.one((None, 0.5)),
        beta=d.one((None, 0.5)),
        bias=d.one((None, 2.0)),
    )


@recipe("MeanVarianceNormalization")
def mean_variance(d: Draw) -> None:
    x = _image(d, 4)
    d.emit(
        "MeanVarianceNormalization",
        [x],
        axes=None if d.chance(0.3) else sorted({a % x.rank for a in d.axes(x.rank)}) or [0],
    )


@recipe("LpNormalization")
def lp_norm(d: Draw) -> None:
    x = d.give(d.array(d.one(("float32", "float64")), d.shape(1), 0.5, 4))
    d.emit("LpNormalization", [x], axis=d.axis(x.rank), p=d.one((None, 1, 2)))


@recipe("Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draw) -> None:
    x = d.data(FLOATS if d.opset >= 11 else ("float32",), 1)
    axis = d.axis(x.rank) if d.opset >= 11 else d.integer(0, x.rank - 1)
    d.emit(d.one(("Softmax", "Softmax", "LogSoftmax", "Hardmax")), [x], axis=None if d.chance(0.2) else axis)


@recipe("PRelu")
def prelu(d: Draw) -> None:
    x = d.data(("float32", "float64") if d.opset >= 9 else ("float32",), 1)
    d.emit("PRelu", [x, d.like(x, d.broadcast(x.shape))])


@recipe("Dropout")
def dropout(d: Draw) -> None:
    x = d.data(FLOATS)
    if has_attribute(d, "Dropout", "ratio"):
        d.emit("Dropout", [x], ratio=0.5)
    else:
        ratio = d.give(np.asarray(0.5, "float32"), True) if d.chance(0.5) else None
        d.emit("Dropout", [x, ratio, d.fixed(False, "bool") if ratio and d.chance(0.5) else None], d.integer(1, 2))


@recipe("SwiGLU")
def swiglu(d: Draw) -> None:
    x = d.data(("float32",), 1, 4, 0, lambda v: v.shape[-1] % 2 == 0)
    d.emit("SwiGLU", [x])


# --- recurrence -------------------------------------------------------------------------------------------------------


@recipe("RNN", "GRU", "LSTM")
def recurrent(d: Draw) -> None:
    op = d.one(("RNN", "GRU", "LSTM"))
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    direction = d.one(("forward", "reverse", "bidirectional"))
    two, steps, batch, width, hidden = (
        (direction == "bidirectional") + 1,
        d.integer(1, 6),
        d.integer(1, 3),
        d.integer(1, 5),
        d.integer(1, 5),
    )
    by_batch = d.opset >= 14 and d.chance(0.15)

    def turned(*shape: int) -> tuple[int, ...]:
        return (shape[1], shape[0], *shape[2:]) if by_batch else shape

    def new(*shape: int) -> Value:
        return d.give(d.array("float32", shape, -1, 1))

    x = new(*turned(steps, batch, width))
    inputs: list[Value | None] = [x, new(two, gates * hidden, width), new(two, gates * hidden, hidden)]
    inputs.append(new(two, 2 * gates * hidden) if d.chance(0.6) else None)
    lengths = d.numpy.integers(1, steps + 1, batch).astype("int32")
    inputs.append(d.give(lengths) if d.chance(0.35) else None)
    states = [new(*turned(two, batch, hidden)) if d.chance(0.5) else None for _ in range(1 + (op == "LSTM"))]
    inputs += states
    if op == "LSTM":
        inputs.append(new(two, 3 * hidden) if d.chance(0.3) else None)
    more: dict[str, Any] = {"linear_before_reset": d.integer(0, 1)} if op == "GRU" else {}
    if d.chance(0.25):
        more["clip"] = d.one((0.3, 1.0, 5.0))
    if op == "LSTM" and d.chance(0.15):
        more["input_forget"] = 1
    if d.chance(0.3):
        names = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign")
        more["activations"] = [d.one(names) for _ in range({"RNN": 1, "GRU": 2, "LSTM": 3}[op] * two)]
    d.emit(
        op,
        inputs,
        d.integer(1, 3 if op == "LSTM" else 2),
        hidden_size=hidden,
        direction=direction,
        layout=1 if by_batch else None,
        **more,
    )


# --- attention --------------------------------------------------------------------------------------------------------


@recipe("Attention")
def attention(d: Draw) -> None:
    if d.opset < 23:
        raise Unfit("since opset 23")
    batch, kv, heads = d.integer(1, 2), d.integer(1, 2), d.integer(1, 3)
    queries, keys, size, value = d.integer(1, 5), d.integer(1, 6), d.one((2, 4, 8)), d.one((2, 3, 8))
    flat = d.chance(0.3)
    more: dict[str, Any] = {
        "is_causal": d.one((None, None, 1)),
        "scale": d.one((None, 0.3)),
        "softcap": d.one((None, None, 2.0)),
    }

    def part(count: int, steps: int, width: int) -> Value:
        shape = (batch, steps, count * width) if flat else (batch, count, steps, width)
        return d.give(d.array("float32", shape, -2, 2))

    inputs: list[Value | None] = [part(kv * heads, queries, size), part(kv, keys, size), part(kv, keys, value)]
    if flat:
        more |= {"q_num_heads": kv * heads, "kv_num_heads": kv}
    if d.chance(0.4):
        shape = d.one(((queries, keys), (batch, kv * heads, queries, keys), (1, 1, queries, keys)))
        inputs.append(d.give(d.array(d.one(("float32", "bool")), shape, -2, 2)))
    if d.chance(0.2):
        old = d.integer(1, 3)
        inputs = [*inputs[:3], None]
        inputs += [d.give(d.array("float32", (batch, kv, old, w), -2, 2)) for w in (size, value)]
        d.emit("Attention", inputs, 3, **more)
    else:
        d.emit("Attention", inputs, 1, **more)


@recipe("RotaryEmbedding")
def rotary(d: Draw) -> None:
    if d.opset < 23:
        raise Unfit("since opset 23")
    batch, heads, steps, size = d.integer(1, 2), d.integer(1, 3), d.integer(1, 5), d.one((4, 8))
    x = d.give(d.array("float32", (batch, heads, steps, size)))
    rows = 8
    tables = [d.give(d.array("float32", (rows, size // 2), -1, 1)) for _ in range(2)]
    places = d.give(d.numpy.integers(0, rows, (batch, steps)).astype("int64"))
    d.emit("RotaryEmbedding", [x, *tables, places], interleaved=d.one((None, 1)))


# --- resampling -------------------------------------------------------------------------------------------------------


@recipe("Resize")
def resize(d: Draw) -> None:
    if d.opset < 11:
        raise Unfit("since opset 11; before, Upsample")
    x = _image(d, d.one((3, 4)))
    if x.rank > 4:
        raise Unfit("rank")
    mode = d.one(("nearest", "linear", "cubic"))
    spatial = x.rank - 2 if mode != "cubic" else 2
    if x.rank < spatial + 2:
        raise Unfit("rank")
    transform = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.one(transform)}
    if mode == "nearest":
        more["nearest_mode"] = d.one(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        more |= {"cubic_coeff_a": d.one((None, -0.5)), "exclude_outside": d.one((None, 1))}
    if d.opset >= 18 and mode != "nearest" and d.chance(0.3):
        more["antialias"] = 1
    kept = [1.0] * (x.rank - spatial)
    empty = d.fixed([], "float32") if d.opset < 13 or d.chance(0.2) else None
    if d.chance(0.5):
        factors = (0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)
        to_sizes = [d.integer(1, 31) / max(1, extent) for extent in x.shape[len(kept) :]]  # as exporters write sizes
        chosen = to_sizes if d.chance(0.4) else [d.one(factors) for _ in range(spatial)]
        scales = d.fixed([*kept, *chosen], "float32")
        d.emit("Resize", [x, empty, scales], **more)
    else:
        sizes = d.fixed([*x.shape[: len(kept)], *(d.integer(1, 9) for _ in range(spatial))])
        d.emit("Resize", [x, empty, d.fixed([], "float32") if d.opset < 13 else None, sizes], **more)


@recipe("GridSample")
def grid_sample(d: Draw) -> None:
    if d.opset < 16:
        raise Unfit("since opset 16")
    rank = 2 if d.opset < 20 or d.chance(0.7) else 3
    names = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    batch = d.integer(1, 2)
    x = d.give(d.array("float32", (batch, d.integer(1, 3), *(d.integer(1, 5) for _ in range(rank))), special=0))
    grid = d.give(d.array("float32", (batch, *(d.integer(1, 4) for _ in range(rank)), rank), -1.3, 1.3))
    mode = d.one(names[:2] if rank == 3 else names)
    d.emit(
        "GridSample",
        [x, grid],
        mode=mode,
        padding_mode=d.one((None, "zeros", "border", "reflection")),
        align_corners=d.one((None, 0, 1)),
    )


@recipe("AffineGrid")
def affine_grid(d: Draw) -> None:
    rank, batch = d.one((2, 2, 3)), d.integer(1, 2)
    theta = d.give(d.array("float32", (batch, rank, rank + 1), -1, 1))
    size = d.fixed([batch, 2, *(d.integer(1, 5) for _ in range(rank))])
    d.emit("AffineGrid", [theta, size], align_corners=d.one((None, 0, 1)))


@recipe("RoiAlign")
def roi_align(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    batch, count = d.integer(1, 2), d.integer(1, 3)
    x = d.give(d.array("float32", (batch, d.integer(1, 3), d.integer(3, 8), d.integer(3, 8)), special=0))
    corners = d.array("float32", (count, 2), 0, 3)
    rois = d.give(np.concatenate([corners, corners + d.array("float32", (count, 2), 0.5, 5)], 1))
    which = d.give(d.numpy.integers(0, batch, count).astype("int64"))
    more = {"coordinate_transformation_mode": d.one(("half_pixel", "output_half_pixel"))} if d.opset >= 16 else {}
    d.emit(
        "RoiAlign",
        [x, rois, which],
        mode=d.one(("avg", "max")),
        output_height=d.integer(1, 4),
        output_width=d.integer(1, 4),
        sampling_ratio=d.integer(0, 3),
        spatial_scale=d.one((1.0, 0.5)),
        **more,
    )


@recipe("NonMaxSuppression")
def suppression(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    count = d.integer(1, 6)
    corners = d.array("float32", (1, count, 2), 0, 3)
    boxes = d.give(np.concatenate([corners, corners + d.array("float32", (1, count, 2), 0.5, 3)], 2))
    scores = d.give(d.numpy.permutation(count * 2).reshape(1, 2, count).astype("float32") / (2 * count))
    more = [
        d.fixed([d.integer(1, 4)]),
        d.fixed([d.one((0.3, 0.5))], "float32"),
        d.fixed([d.one((0.0, 0.2))], "float32"),
    ]
    d.emit("NonMaxSuppression", [boxes, scores, *more])


# --- quantisation -----------------------------------------------------------------------------------------------------


@recipe("QuantizeLinear", "DequantizeLinear")
def quantise(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    kind = d.one(("uint8", "int8") + (("uint16", "int16") if d.opset >= 21 else ()))
    shape = d.shape(1, 4)
    axis, each = d.axis(len(shape)), d.opset >= 13 and d.chance(0.4)
    size = (shape[axis],) if each else ()
    scale = d.give(np.abs(d.array("float32", size, 0.03, 2)) + np.float32(0.01))
    zero = None if d.chance(0.3) else d.give(d.array(kind, size, -5, 5, special=0))
    axes = {"axis": axis} if each else {}
    if d.chance(0.5):
        x = d.data(("float32",), len(shape), len(shape), fits=lambda v: not each or v.shape == shape)
        d.emit("QuantizeLinear", [x, scale, zero], **axes)
    else:
        kind = zero.dtype if zero is not None else kind
        x = d.give(d.array(kind, shape, -128, 127))
        d.emit("DequantizeLinear", [x, scale, zero], **axes)


@recipe("QLinearMatMul")
def quantised_product(d: Draw) -> None:
    if d.opset < 10:
        raise Unfit("since opset 10")
    m, k, n = d.size(0), d.size(0), d.size(0)
    operands: list[Value] = []
    for shape, kind in (((m, k), "uint8"), ((k, n), d.one(("uint8", "int8")))):
        operands += [
            d.give(d.array(kind, shape, -100, 100, special=0)),
            d.give(d.array("float32", (), 0.01, 0.1), True),
            d.give(d.array(kind, (), 0, 20, special=0), True),
        ]
    last = [d.give(d.array("float32", (), 0.05, 1), True), d.fixed(d.integer(0, 200), "uint8")]
    d.emit("QLinearMatMul", [*operands, *last])


@recipe("DynamicQuantizeLinear")
def dynamic(d: Draw) -> None:
    if d.opset < 11:
        raise Unfit("since opset 11")
    d.emit("DynamicQuantizeLinear", [_image(d, 1)], 3)


# --- losses, windows, text --------------------------------------------------------------------------------------------


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draw) -> None:
    if d.opset < 12:
        raise Unfit("since opset 12")
    classes, batch, rest = d.integer(1, 5), d.integer(1, 4), d.shape(0, 2, 0, 40)
    x = d.give(d.array("float32", (batch, classes, *rest), special=0))
    target = d.give(d.numpy.integers(0, classes, (batch, *rest)).astype("int64"))
    weight = d.give(d.array("float32", (classes,), 0.5, 2)) if d.chance(0.4) else None
    op = d.one(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    d.emit(op, [x, target, weight], reduction=d.one(("none", "sum", "mean")), ignore_index=d.one((None, None, 1)))


@recipe("HannWindow", "HammingWindow", "BlackmanWindow")
def cosine_window(d: Draw) -> None:
    if d.opset < 17:
        raise Unfit("since opset 17")
    op = d.one(("HannWindow", "HammingWindow", "BlackmanWindow"))
    d.emit(op, [d.fixed(d.integer(2, 12))], periodic=d.one((None, 0, 1)))


@recipe("DFT")
def transform(d: Draw) -> None:
    if d.opset < 17:
        raise Unfit("since opset 17")
    inverse = d.chance(0.3)
    shape = (d.integer(1, 2), d.integer(1, 7), d.integer(1, 6), 2 if inverse or d.chance(0.5) else 1)
    x, axis = d.give(d.array("float32", shape, special=0)), d.one((1, 2, -2))
    length = d.fixed(d.integer(1, 8)) if d.chance(0.3) else None
    more = {"inverse": 1} if inverse else {"onesided": d.one((None, 1)) if shape[-1] == 1 else None}
    if d.opset >= 20:
        d.emit("DFT", [x, length, d.fixed(axis)], **more)
    else:
        d.emit("DFT", [x, length], axis=axis, **more)


@recipe("CenterCropPad")
def crop(d: Draw) -> None:
    if d.opset < 18:
        raise Unfit("since opset 18")
    x = d.data(("float32", "int64"), 1, 4, 0)
    axes = d.random.sample(range(x.rank), d.integer(1, x.rank))
    d.emit("CenterCropPad", [x, d.fixed([d.integer(1, 9) for _ in axes])], axes=axes)
