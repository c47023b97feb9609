"""Recipes for the operators outside the standard (com.microsoft, ai.onnx.ml) that have an import rule.

In: a Draw. Out: the node added to its graph, or Unfit. Invariant: as in onnx_recipes.py; ONNX Runtime alone says what
these give.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_kit import Draw, Unfit, Value
from onnx_recipes import Recipe, recipe
from onnx_windows import window

MS, ML = "com.microsoft", "ai.onnx.ml"


def contrib(*ops: str) -> Callable[[Recipe], Recipe]:
    """Register for operators of com.microsoft."""
    return recipe(*ops, domain=MS)


def _f32(d: Draw, *shape: int, low: float = -2, high: float = 2) -> Value:
    return d.give(d.array("float32", shape, low, high))


def _bytes(d: Draw, kind: str, *shape: int) -> Value:
    return d.give(d.array(kind, shape, -128, 255, special=0))


def _scale(d: Draw, low: float = 0.01, high: float = 0.1) -> Value:
    return d.give(np.float32(d.random.uniform(low, high)), True)


def _zero(d: Draw, kind: str) -> Value:
    return d.give(np.asarray(d.integer(0, 20), kind), True)


def _quantised(d: Draw, kind: str, *shape: int) -> list[Value]:
    """A quantised tensor with its scale and zero point."""
    return [_bytes(d, kind, *shape), _scale(d), _zero(d, kind)]


def _ends(d: Draw, kind: str) -> list[Value]:
    return [_scale(d, 0.02, 0.2), _zero(d, kind)]


# --- floating point ---------------------------------------------------------------------------------------------------


@contrib("Gelu", "QuickGelu", "FastGelu", "BiasGelu")
def gelu(d: Draw) -> None:
    op = d.one(("Gelu", "QuickGelu", "FastGelu", "BiasGelu"))
    x = d.data(("float32",), 1, 4, 0)
    bias = [d.like(x, x.shape[-1:])] if op == "BiasGelu" or (op == "FastGelu" and d.chance(0.5)) else []
    d.emit(op, [x, *bias], domain=MS, **({"alpha": d.one((1.5, 0.5))} if op == "QuickGelu" else {}))


@contrib("FusedMatMul")
def fused_matmul(d: Draw) -> None:
    m, k, n, batch = d.size(0), d.size(0), d.size(0), d.shape(0, 2, 0, 6)
    first, second = d.integer(0, 1), d.integer(0, 1)
    a = _f32(d, *batch, *((k, m) if first else (m, k)))
    b = _f32(d, *batch, *((n, k) if second else (k, n)))
    d.emit("FusedMatMul", [a, b], domain=MS, transA=first, transB=second, alpha=d.one((None, 0.5)))


@contrib("FusedGemm")
def fused_gemm(d: Draw) -> None:
    m, k, n = d.size(0), d.size(0), d.size(0)
    first, second = d.integer(0, 1), d.integer(0, 1)
    inputs = [_f32(d, *((k, m) if first else (m, k))), _f32(d, *((n, k) if second else (k, n)))]
    inputs.append(_f32(d, *d.broadcast((m, n))))
    act = d.one(("Relu", "Tanh", "Sigmoid", "LeakyRelu"))
    more = {"activation_alpha": 0.3} if act == "LeakyRelu" else {}
    d.emit("FusedGemm", inputs, domain=MS, transA=first, transB=second, activation=act, alpha=0.5, beta=2.0, **more)


@contrib("FusedConv")
def fused_convolution(d: Draw) -> None:
    w, into, out = window(d, 2), d.integer(1, 4), d.integer(1, 5)
    x = _f32(d, 1, into, d.integer(7, 12), d.integer(7, 12))
    inputs: list[Value | None] = [x, _f32(d, out, into, *w.kernel), _f32(d, out) if d.chance(0.6) else None]
    act = d.one(("Relu", "Tanh", "Sigmoid", "LeakyRelu"))
    more = {"activation_params": [0.3]} if act == "LeakyRelu" else {}
    d.emit("FusedConv", inputs, domain=MS, activation=act, **w.attributes, **more)


@contrib("LayerNormalization", "SimplifiedLayerNormalization")
def layer_norm(d: Draw) -> None:
    x = _f32(d, *d.shape(2, 4, 0))
    scale = _f32(d, x.shape[-1])
    if d.chance(0.5):
        d.emit("SimplifiedLayerNormalization", [x, scale], axis=-1, epsilon=1e-3, stash_type=1)
    else:
        d.emit("LayerNormalization", [x, scale, _f32(d, x.shape[-1])], axis=-1, epsilon=1e-3)


@contrib("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(d: Draw) -> None:
    shape = (d.integer(1, 3), d.integer(1, 4), d.integer(2, 9))
    inputs: list[Value | None] = [_f32(d, *shape), _f32(d, *shape), _f32(d, shape[-1])]
    plain = d.chance(0.5)
    if plain:
        inputs.append(_f32(d, shape[-1]) if d.chance(0.6) else None)
    inputs.append(_f32(d, shape[-1]) if d.chance(0.4) else None)
    op = "SkipLayerNormalization" if plain else "SkipSimplifiedLayerNormalization"
    d.emit(op, inputs, domain=MS, epsilon=1e-3)


@contrib("Attention")
def attention(d: Draw) -> None:
    batch, steps, heads, size = d.integer(1, 2), d.integer(1, 6), d.integer(1, 3), d.one((2, 4))
    width = heads * size
    inputs: list[Value | None] = [_f32(d, batch, steps, width), _f32(d, width, 3 * width), _f32(d, 3 * width)]
    if d.chance(0.4):
        mask = d.numpy.integers(0, 2, (batch, steps)).astype("int32")
        mask[:, 0] = 1
        inputs.append(d.give(mask))
    d.emit("Attention", inputs, domain=MS, num_heads=heads, unidirectional=d.one((None, 1)), scale=d.one((None, 0.4)))


@contrib("MultiHeadAttention")
def many_heads(d: Draw) -> None:
    batch, heads, size = d.integer(1, 2), d.integer(1, 3), d.one((2, 4))
    queries, keys, width = d.integer(1, 5), d.integer(1, 6), heads * size
    inputs = [_f32(d, batch, queries, width), _f32(d, batch, keys, width), _f32(d, batch, keys, width)]
    if d.chance(0.5):
        inputs.append(_f32(d, 3 * width))
    d.emit("MultiHeadAttention", inputs, domain=MS, num_heads=heads)


@contrib("RotaryEmbedding")
def turned_heads(d: Draw) -> None:
    batch, steps, heads, size = d.integer(1, 2), d.integer(1, 5), d.integer(1, 3), d.one((4, 8))
    by_heads, partly = d.chance(0.5), d.chance(0.3)
    x = _f32(d, batch, heads, steps, size) if by_heads else _f32(d, batch, steps, heads * size)
    rows = steps + d.integer(0, 6)
    half = size // 4 if partly else size // 2
    tables = [_f32(d, rows, half, low=-1, high=1) for _ in range(2)]
    is_first = d.chance(0.5)
    places = d.numpy.integers(0, rows - steps + 1, 1) if is_first else d.numpy.integers(0, rows, (batch, steps))
    d.emit(
        "RotaryEmbedding",
        [x, d.give(places.astype("int64")), *tables],
        domain=MS,
        interleaved=d.one((None, 1)),
        num_heads=heads if partly else None,
        rotary_embedding_dim=2 * half if partly else None,
    )


@contrib("GroupQueryAttention")
def grouped_heads(d: Draw) -> None:
    batch, steps, groups, size = d.integer(1, 2), d.integer(1, 5), d.integer(1, 2), 8
    heads, past = groups * d.integer(1, 3), d.one((0, 0, 4, 16))
    steps = 1 if past and batch > 1 else steps  # a chunk behind a prompt is one sequence's
    total = steps if not past or d.chance(0.3) else d.integer(steps, past + steps)
    if d.chance(0.3):
        data: list[Value | None] = [_f32(d, batch, steps, (heads + 2 * groups) * size), None, None]
    else:
        data = [_f32(d, batch, steps, n * size) for n in (heads, groups, groups)]
    for _ in range(2):
        cache = d.array("float32", (batch, groups, past, size), -2, 2)
        cache[:, :, total - steps :] = 0  # what lies behind the total length is nobody's: ONNX Runtime clears it
        data.append(d.give(cache))
    data += [d.fixed([total - 1] * batch, "int32"), d.fixed(total, "int32")]
    is_turned = d.chance(0.4)
    if is_turned:
        data += [_f32(d, max(total, past), size // 2, low=-1, high=1) for _ in range(2)]
    d.emit(
        "GroupQueryAttention",
        data,
        3,
        MS,
        num_heads=heads,
        kv_num_heads=groups,
        do_rotary=1 if is_turned else None,
        rotary_interleaved=d.one((None, 1)) if is_turned else None,
        local_window_size=d.one((None, None, 3)),
        softcap=d.one((None, None, 2.0)),
        scale=d.one((None, None, 0.7)),
    )


@contrib("DecoderMaskedMultiHeadAttention")
def one_token(d: Draw) -> None:
    batch, heads, size, capacity = d.integer(1, 2), d.integer(1, 3), d.one((4, 8)), d.integer(2, 9)
    past = d.integer(0, capacity - 1)
    inputs: list[Value | None] = [_f32(d, batch, 1, heads * size) for _ in range(3)]
    inputs += [None, _f32(d, 1, d.one((1, heads)), 1, past + 1) if d.chance(0.4) else None]
    inputs += [_f32(d, batch, heads, capacity, size) for _ in range(2)]
    inputs += [d.fixed([past], "int32"), None, None, _f32(d, 3 * heads * size) if d.chance(0.4) else None]
    named = {"num_heads": heads, "past_present_share_buffer": 1, "scale": d.one((None, 0.4))}
    d.emit("DecoderMaskedMultiHeadAttention", inputs, 3, MS, **named)


@contrib("EmbedLayerNormalization", "QEmbedLayerNormalization")
def embedding(d: Draw) -> None:
    quantised, width = d.chance(0.5), d.integer(2, 8)
    ids = d.give(d.numpy.integers(0, 20, (2, 6)).astype("int32"))
    segments = d.give((ids.array % 2).astype("int32"))
    mask = d.give((ids.array > 4).astype("int32"))
    shapes = ((20, width), (10, width), (2, width), (width,), (width,))
    weights = [d.give(d.array("uint8" if quantised else "float32", s), True) for s in shapes]
    inputs = [ids, segments, *weights, mask]
    if quantised:
        inputs += [_scale(d) for _ in shapes] + [_zero(d, "uint8") for _ in shapes]
    op = "QEmbedLayerNormalization" if quantised else "EmbedLayerNormalization"
    d.emit(op, inputs, 2, MS, epsilon=1e-6)


# --- quantised --------------------------------------------------------------------------------------------------------


@contrib("QuantizeLinear", "DequantizeLinear")
def quantise(d: Draw) -> None:
    kind = d.one(("uint8", "int8"))
    if d.chance(0.5):
        d.emit("QuantizeLinear", [_f32(d, *d.shape(0, 3)), _scale(d), _zero(d, kind)], domain=MS)
    else:
        d.emit("DequantizeLinear", _quantised(d, kind, *d.shape(0, 3)), domain=MS)


@contrib("QLinearAdd", "QLinearMul")
def quantised_binary(d: Draw) -> None:
    kind, shape = d.one(("uint8", "int8")), d.shape(1, 3, 0)
    parts = [*_quantised(d, kind, *shape), *_quantised(d, kind, *d.broadcast(shape)), *_ends(d, kind)]
    d.emit(d.one(("QLinearAdd", "QLinearMul")), parts, domain=MS)


@contrib("QLinearSigmoid", "QLinearLeakyRelu")
def quantised_unary(d: Draw) -> None:
    kind = d.one(("uint8", "int8"))
    op = d.one(("QLinearSigmoid", "QLinearLeakyRelu"))
    more = {"alpha": d.one((0.1, 0.3))} if op == "QLinearLeakyRelu" else {}
    d.emit(op, [*_quantised(d, kind, *d.shape(1, 3, 0)), *_ends(d, kind)], domain=MS, **more)


@contrib("QLinearSoftmax")
def quantised_softmax(d: Draw) -> None:
    shape = d.shape(1, 3, 0)
    ends = [d.give(np.float32(1 / 256), True), d.give(np.uint8(0), True)]
    parts = [*_quantised(d, "uint8", *shape), *ends]
    d.emit("QLinearSoftmax", parts, domain=MS, axis=d.axis(len(shape)), opset=d.one((11, 13)))


@contrib("QLinearConcat")
def quantised_concat(d: Draw) -> None:
    kind, shape, axis = d.one(("uint8", "int8")), list(d.shape(1, 3, 0)), 0
    parts = _ends(d, kind)
    for _ in range(d.integer(1, 3)):
        shape[axis] = d.size(0)
        parts += _quantised(d, kind, *shape)
    d.emit("QLinearConcat", parts, domain=MS, axis=axis)


@contrib("QLinearWhere")
def quantised_where(d: Draw) -> None:
    kind, shape = d.one(("uint8", "int8")), d.shape(1, 3, 0)
    parts = [*_quantised(d, kind, *shape), *_quantised(d, kind, *d.broadcast(shape)), *_ends(d, kind)]
    d.emit("QLinearWhere", [d.give(d.array("bool", shape)), *parts], domain=MS)


@contrib("QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool")
def quantised_pool(d: Draw) -> None:
    kind, last = d.one(("uint8", "int8")), d.integer(0, 1)
    channels, rows, columns = d.integer(1, 4), d.integer(3, 8), d.integer(3, 8)
    op = d.one(("QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool"))
    shape = (1, rows, columns, channels) if last or op == "NhwcMaxPool" else (1, channels, rows, columns)
    if op == "QLinearGlobalAveragePool":
        d.emit(op, [*_quantised(d, kind, *shape), *_ends(d, kind)], domain=MS, channels_last=last)
        return
    more = {"kernel_shape": [3, 3], "strides": [d.integer(1, 3)] * 2, "pads": [d.integer(0, 1) for _ in range(4)]}
    if op == "NhwcMaxPool":
        d.emit(op, [_bytes(d, kind, *shape)], domain=MS, **more)
    else:
        parts = [*_quantised(d, kind, *shape), *_ends(d, kind)]
        d.emit(op, parts, domain=MS, channels_last=last, count_include_pad=d.integer(0, 1), **more)


@contrib("QLinearConv")
def quantised_convolution(d: Draw) -> None:
    w, into, out, last = window(d, 2), d.integer(1, 4), d.integer(1, 5), d.integer(0, 1)
    rows, columns = d.integer(7, 11), d.integer(7, 11)
    shape = (1, rows, columns, into) if last else (1, into, rows, columns)
    weight = [d.give(d.array("int8", (out, into, *w.kernel), -100, 100), True), _scale(d), d.fixed(0, "int8")]
    inputs = [*_quantised(d, "uint8", *shape), *weight, *_ends(d, "uint8")]
    d.emit("QLinearConv", inputs, domain=MS, channels_last=last, **w.attributes)


@contrib("QGemm")
def quantised_gemm(d: Draw) -> None:
    m, k, n, to_float = d.size(0), d.size(0), d.size(0), d.chance(0.4)
    first, second = d.integer(0, 1), d.integer(0, 1)
    a = _quantised(d, "uint8", *((k, m) if first else (m, k)))
    b = [d.give(d.array("int8", (n, k) if second else (k, n), -100, 100), True), _scale(d), d.fixed(0, "int8")]
    c = [d.give(d.array("int32", (n,), -300, 300), True)]
    ends = [] if to_float else _ends(d, "uint8")
    d.emit("QGemm", [*a, *b, *c, *ends], domain=MS, transA=first, transB=second, alpha=d.one((None, 0.5)))


@contrib("MatMulIntegerToFloat", "DynamicQuantizeMatMul")
def product_of_bytes(d: Draw) -> None:
    m, k, n = d.size(0), d.size(0), d.size(0)
    weight = d.give(d.array(d.one(("int8", "uint8")), (k, n), -100, 100), True)
    bias = _f32(d, n) if d.chance(0.5) else None
    scale, zero = _scale(d), _zero(d, weight.dtype)
    if d.chance(0.5):
        d.emit("DynamicQuantizeMatMul", [_f32(d, m, k), weight, scale, zero, bias], domain=MS)
        return
    x = _quantised(d, "uint8", m, k)
    d.emit("MatMulIntegerToFloat", [x[0], weight, x[1], scale, x[2], zero, bias], domain=MS)


@contrib("MatMulNBits")
def product_of_bits(d: Draw) -> None:
    k, n, block = d.one((32, 64, 40)), d.integer(1, 9), d.one((16, 32))
    blocks = -(-k // block)
    weight = d.give(d.array("uint8", (n, blocks, block // 2), 0, 255), True)
    scales = d.give(d.array("float32", (n * blocks,), 0.01, 0.1), True)
    zeros = d.give(d.array("uint8", (n * -(-blocks // 2),), 0, 255), True) if d.chance(0.5) else None
    d.emit(
        "MatMulNBits",
        [_f32(d, d.integer(1, 4), k), weight, scales, zeros],
        domain=MS,
        K=k,
        N=n,
        bits=4,
        block_size=block,
    )


@contrib("MoE", "QMoE")
def experts(d: Draw) -> None:
    """Weights of four bits with a scale for each unit: with blocks ONNX Runtime rounds rows."""
    rows, count, hidden, inner = d.integer(1, 5), d.integer(2, 4), 32, 64
    inputs: list[Value | None] = [_f32(d, rows, hidden), _f32(d, rows, count)]
    packed = d.chance(0.5)
    for units, terms in ((inner, hidden), (hidden, inner)):
        if packed:
            inputs.append(d.give(d.array("uint8", (count, units, terms // 2), 0, 255), True))
            inputs.append(d.give(d.array("float32", (count, units), 0.01, 0.1), True))
        else:
            inputs.append(d.give(d.array("float32", (count, units, terms), -1, 1), True))
        inputs.append(_f32(d, count, units) if d.chance(0.5) else None)
    attributes = {"expert_weight_bits": 4} if packed else {}
    kind, chosen = d.one(("relu", "silu", "gelu")), d.integer(1, 2)
    op = "QMoE" if packed else "MoE"
    d.emit(op, inputs, domain=MS, k=chosen, activation_type=kind, normalize_routing_weights=1, **attributes)


@contrib("GatherBlockQuantized")
def rows_of_bits(d: Draw) -> None:
    bits = d.one((4, 8))
    table = d.give(d.array("uint8", (20, 40 * bits // 8), 0, 255), True)
    scales = d.give(d.array("float32", (20, 3), 0.01, 0.1), True)
    which = d.give(d.numpy.integers(-20, 20, (3, 2)).astype("int64"))
    zeros = [d.give(d.array("uint8", (20, -(-3 * bits // 8)), 0, 255), True)] if d.chance(0.5) else []
    d.emit("GatherBlockQuantized", [table, which, scales, *zeros], domain=MS, bits=bits, block_size=16)


@contrib("QAttention")
def quantised_attention(d: Draw) -> None:
    batch, steps, heads, size = d.integer(1, 2), d.integer(2, 6), d.integer(1, 3), d.one((2, 4))
    width = heads * size
    x = _quantised(d, "uint8", batch, steps, width)
    weight = d.give(d.array("int8", (width, 3 * width), -100, 100), True)
    mask = d.give(d.numpy.integers(1, steps + 1, batch).astype("int32")) if d.chance(0.6) else None
    inputs = [x[0], weight, _f32(d, 3 * width), x[1], _scale(d), mask, x[2], d.fixed(0, "int8")]
    d.emit("QAttention", inputs, domain=MS, num_heads=heads, unidirectional=d.integer(0, 1))


@contrib("DynamicQuantizeLSTM")
def quantised_lstm(d: Draw) -> None:
    two, hidden, width = d.integer(1, 2), d.integer(1, 5), d.integer(1, 5)
    weights = [d.give(d.array("int8", (two, s, 4 * hidden), -100, 100), True) for s in (width, hidden)]
    ends = [d.give(np.full((two,), v, t), True) for v, t in ((0.01, "float32"), (0, "int8")) * 2]
    inputs = [_f32(d, d.integer(1, 5), 2, width), *weights, _f32(d, two, 8 * hidden), None, None, None, None, *ends]
    direction = "bidirectional" if two == 2 else "forward"
    d.emit("DynamicQuantizeLSTM", inputs, 3, MS, hidden_size=hidden, direction=direction)


# --- others -----------------------------------------------------------------------------------------------------------


@recipe("MelWeightMatrix")
def mel(d: Draw) -> None:
    if d.opset < 17:
        raise Unfit("since opset 17")
    ends = [d.fixed(v, t) for v, t in ((d.integer(3, 8), "int64"), (d.integer(8, 32), "int64"), (8192, "int64"))]
    d.emit("MelWeightMatrix", [*ends, d.fixed(0.0, "float32"), d.fixed(4096.0, "float32")])


@recipe("ArrayFeatureExtractor", domain=ML)
def features(d: Draw) -> None:
    x = d.data(("float32", "float64", "int64", "int32"), 1, 3, 0)
    which = d.numpy.integers(0, x.shape[-1], (1, d.integer(1, 5))).astype("int64")
    d.emit("ArrayFeatureExtractor", [x, d.give(which)], domain=ML)


@recipe("Scaler", domain=ML)
def scaler(d: Draw) -> None:
    x = d.data(("float32", "int64"), 2, 2, 0)
    count = d.one((1, x.shape[-1]))
    more = {n: [d.random.uniform(0.1, 2) for _ in range(count)] for n in ("offset", "scale")}
    d.emit("Scaler", [x], domain=ML, **more)
