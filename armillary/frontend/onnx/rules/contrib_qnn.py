"""Quantised operators of the domain com.microsoft, which ONNX Runtime's quantiser and graph optimiser write.

In: nodes of that domain, of 8-bit tensors with scales and zero points. Out: products in integers (qnn_onnx.product,
then qnn.requantize or a scaling to float); elementwise operators, pools and softmax between qnn.dequantize and
qnn.quantize, which is one kernel. Invariant: an input or attribute that would change the result and is not implemented
is refused by name; a missing zero point is 0. The rest of the domain: contrib.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_rule
from armillary.frontend.onnx.rules._checked import checked, one_way
from armillary.frontend.onnx.rules.contrib import DOMAIN, attended
from armillary.frontend.onnx.rules.nn.dense import transposed
from armillary.frontend.onnx.rules.qnn import dequantize_linear, product, quantize_linear, quantized_by_range
from armillary.ops._iota import iota, splat
from armillary.ops.nn._windows import axis_of, call, type_of
from armillary.ops.qnn.quantize import dequantize, quantize, requantize
from armillary.relay.expr import Expr, const
from armillary.relay.op import constant_value

from_onnx("QuantizeLinear", domain=DOMAIN)(quantize_linear)
from_onnx("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


# --- values with their scale and zero point ---------------------------------------------------------------------------


def _zero(node: OnnxNode, index: int) -> Expr:
    return const(0, "int32") if node.missing(index) else call("cast", node.input(index), dtype="int32")


def _dequantized(node: OnnxNode, first: int, axis: int = -1) -> Expr:
    """A tensor that comes as values, scale and zero point."""
    return dequantize(node.input(first), _flat(node.input(first + 1)), _flat(_zero(node, first + 2)), axis=axis)


def _quantized(node: OnnxNode, x: Expr, scale: int) -> Expr:
    dtype = "uint8" if node.missing(scale + 1) else str(node.type_of(scale + 1).dtype)
    return quantize(x, _flat(node.input(scale)), _flat(_zero(node, scale + 1)), out_dtype=dtype)


def _flat(parameter: Expr) -> Expr:
    """A parameter per tensor as a scalar."""
    ty = type_of(parameter)
    return parameter if ty.size > 1 or ty.ndim == 0 else call("reshape", parameter, newshape=())


def _standard(node: OnnxNode, op_type: str, opset: int, *inputs: Expr | None) -> Any:  # Any: what a rule may return
    """The standard's operator of that name, of other inputs and the node's attributes."""
    rule = onnx_rule("", op_type, opset)
    if rule is None:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: there is no {op_type} of operator set {opset}")
    known = [None if x is None else constant_value(x) for x in inputs]
    return rule(OnnxNode(op_type, node.name, "", opset, list(inputs), known, node.attributes, node.outputs))


def _is_last(node: OnnxNode) -> bool:
    return node.flag("channels_last", False)


def _channels_first(is_last: bool, x: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """`rule` of x in NCHW, wherever the channels are."""
    if not is_last:
        return rule(x)
    ndim = type_of(x).ndim
    output = rule(call("transpose", x, axes=(0, ndim - 1, *range(1, ndim - 1))))
    return call("transpose", output, axes=(0, *range(2, ndim), 1))


# --- elementwise, pools, softmax --------------------------------------------------------------------------------------


@from_onnx("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_arithmetic(node: OnnxNode) -> Expr:
    a, b = _dequantized(node, 0), _dequantized(node, 3)
    return _quantized(node, a + b if node.op_type == "QLinearAdd" else a * b, 6)


@from_onnx("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def qlinear_activation(node: OnnxNode) -> Expr:
    x = _dequantized(node, 0)
    if node.op_type == "QLinearSigmoid":
        return _quantized(node, call("sigmoid", x), 3)
    return _quantized(node, call("nn.leaky_relu", x, alpha=node.float("alpha", 0.01)), 3)


@from_onnx("QLinearWhere", domain=DOMAIN)
def qlinear_where(node: OnnxNode) -> Expr:
    """Inputs: the condition, then x, y and the result's parameters."""
    return _quantized(node, call("where", node.input(0), _dequantized(node, 1), _dequantized(node, 4)), 7)


@from_onnx("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(node: OnnxNode) -> Expr:
    """`opset` says what the axis means: before 13 the axes from it on count as one."""
    return _quantized(node, _standard(node, "Softmax", int(node.int("opset", 13)), _dequantized(node, 0)), 3)


@from_onnx("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(node: OnnxNode) -> Expr:
    axes = tuple(range(1, node.type_of(0).ndim - 1) if _is_last(node) else range(2, node.type_of(0).ndim))
    return _quantized(node, call("mean", _dequantized(node, 0), axis=axes, keepdims=True), 3)


@from_onnx("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(node: OnnxNode) -> Expr:
    pooled = _channels_first(_is_last(node), _dequantized(node, 0), lambda x: _standard(node, "AveragePool", 19, x))
    return _quantized(node, pooled, 3)


@from_onnx("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: OnnxNode) -> Expr:
    """Output scale and zero point first, then each input with its own."""
    parts = tuple(_dequantized(node, k) for k in range(2, len(node.inputs), 3))
    return _quantized(node, call("concatenate", parts, axis=node.int("axis", 0)), 0)


@from_onnx("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: OnnxNode) -> Expr:
    """MaxPool of integers with the channels last."""
    result: Expr = _channels_first(True, node.input(0), lambda x: _standard(node, "MaxPool", 12, x))
    return result


# --- products ---------------------------------------------------------------------------------------------------------


@from_onnx("QLinearConv", domain=DOMAIN)
def qlinear_conv_of_any_layout(node: OnnxNode) -> Expr:
    """The standard's, with a choice of layout for data and result."""
    rest = node.inputs[1:]
    return _channels_first(_is_last(node), node.input(0), lambda x: _standard(node, "QLinearConv", 10, x, *rest))


def _scaled(node: OnnxNode, total: Expr, first: int, second: int) -> Expr:
    """int32 sums of products as real numbers: times both scales, of which the second may be one per column."""
    scale = _flat(node.input(first)) * _flat(node.input(second))
    return call("cast", total, dtype="float32") * scale


@from_onnx("QGemm", domain=DOMAIN)
def qgemm(node: OnnxNode) -> Expr:
    """Inputs: A and B with scale and zero point each, C in steps of both scales' product, the result's if any."""
    a, b = (
        transposed(node.input(k), (1, 0)) if node.int(name, 0) else node.input(k)
        for k, name in ((0, "transA"), (3, "transB"))
    )
    total = product(a, b, _flat(_zero(node, 2)), _flat(_zero(node, 5)))
    if not node.missing(6):
        total = total + one_way(node, 6, type_of(total).shape)
    alpha: float = node.float("alpha", 1.0)
    scale = _flat(node.input(1)) * _flat(node.input(4))
    scale = scale if alpha == 1.0 else scale * alpha
    if node.missing(7):
        return call("cast", total, dtype="float32") * scale
    dtype = "uint8" if node.missing(8) else str(node.type_of(8).dtype)
    return requantize(
        total,
        scale,
        const(0, "int32"),
        _flat(node.input(7)),
        _flat(_zero(node, 8)),
        axis=-1,
        rounding="TOEVEN",
        compute_dtype="float32",
        out_dtype=dtype,
    )


@from_onnx("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(node: OnnxNode) -> Expr:
    """Inputs: A, B, their scales, their zero points, a bias."""
    total = product(node.input(0), node.input(1), _flat(_zero(node, 4)), _flat(_zero(node, 5)))
    result = _scaled(node, total, 2, 3)
    return result if node.missing(6) else result + node.input(6)


@from_onnx("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: OnnxNode) -> Expr:
    """A is quantised by its own range, multiplied in integers, and scaled back."""
    data, scale, shift = quantized_by_range(node.input(0))
    total = call("cast", product(data, node.input(1), shift, _zero(node, 3)), dtype="float32")
    result = total * (scale * call("reshape", node.input(2), newshape=(-1,)))
    return result if node.missing(4) else result + node.input(4)


@from_onnx("QAttention", domain=DOMAIN)
def qattention(node: OnnxNode) -> list[Expr]:
    """Attention behind an integer projection: input, weight, bias, both scales, mask, both zero points."""
    total = product(node.input(0), node.input(1), _flat(_zero(node, 6)), _flat(_zero(node, 7)))
    return attended(node, _scaled(node, total, 3, 4) + node.input(2), 5, 8, 9)


@from_onnx("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(node: OnnxNode) -> list[Expr]:
    """LSTM with weights as integers, inner sizes first; its data stay float, where ONNX Runtime quantises them too."""
    node.int("hidden_size")  # what the weights' shapes say as well
    weights = [call("transpose", _direction_weights(node, k, 8 + 2 * n), axes=(0, 2, 1)) for n, k in enumerate((1, 2))]
    result: list[Expr] = _standard(node, "LSTM", 14, node.input(0), *weights, *node.inputs[3:8])
    return result


def _direction_weights(node: OnnxNode, index: int, scale: int) -> Expr:
    """(directions, inner, gates) as real numbers; scales are one per direction, or one per gate of each."""

    def spread(parameter: Expr) -> Expr:
        shape = type_of(parameter).static
        return call("reshape", parameter, newshape=(shape[0] if shape else 1, 1, shape[1] if len(shape) > 1 else 1))

    steps = call("cast", node.input(index), dtype="int32") - spread(_zero(node, scale + 1))
    return call("cast", steps, dtype="float32") * spread(node.input(scale))


# --- embeddings -------------------------------------------------------------------------------------------------------


def _embedded(
    node: OnnxNode, tables: Sequence[Expr], gamma: Expr, beta: Expr, mask: int, positions: Expr
) -> list[Expr]:
    """The norm of the sum of word, position and segment rows; how many words count (a mask of 1); the sum."""
    ids = _row_numbers(node, 0, tables[0], "word")
    parts = [call("take", tables[0], ids, axis=0), call("take", tables[1], positions, axis=0)]
    if not node.missing(1):
        parts.append(call("take", tables[2], _row_numbers(node, 1, tables[2], "segment"), axis=0))
    total = parts[0] + parts[1] if len(parts) == 2 else parts[0] + parts[1] + parts[2]
    y = call("nn.layer_norm", total, gamma, beta, axis=-1, epsilon=float(node.float("epsilon", 1e-12)))
    batch = type_of(ids).static[0]
    count = (
        splat((batch,), 0, "int32")
        if node.missing(mask)
        else call("sum", call("cast", call("equal", node.input(mask), const(1, "int32")), dtype="int32"), axis=(1,))
    )
    return [y, count, total]


def _row_numbers(node: OnnxNode, index: int, table: Expr, what: str) -> Expr:
    """Input `index`, whose numbers are rows of a table."""
    rows, width = type_of(table).static
    return checked(node, index, [(0, rows - 1)], what, node.type_of(index).size * width)


def _positions(node: OnnxNode, table: Expr) -> Expr:
    ids, rows = node.input(0), type_of(table).static[0]
    if type_of(ids).static[1] > rows:
        message = f"{type_of(ids).static[1]} words and {rows} rows of positions"
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: {message}")
    return call("expand_dims", iota(type_of(ids).static[1], "int32"), axis=0)


@from_onnx("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(node: OnnxNode) -> list[Expr]:
    if node.int("mask_index_type", 1) not in (0, 1):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: mask_index_type {node.int('mask_index_type')}")
    tables = [node.input(k) for k in ((2, 3) if node.missing(4) else (2, 3, 4))]
    positions = _positions(node, tables[1]) if node.missing(8) else _row_numbers(node, 8, tables[1], "position")
    return _embedded(node, tables, node.input(5), node.input(6), 7, positions)


@from_onnx("QEmbedLayerNormalization", domain=DOMAIN)
def qembed_layer_normalization(node: OnnxNode) -> list[Expr]:
    """Inputs 2 to 6 are integers: three tables, gamma, beta; their scales are inputs 8 to 12, zero points 13 to 17."""
    known = [k for k in range(2, 7) if not node.missing(k)]
    real = {k: dequantize(node.input(k), _flat(node.input(k + 6)), _flat(_zero(node, k + 11))) for k in known}
    tables = [real[k] for k in known if k < 5]
    return _embedded(node, tables, real[5], real[6], 7, _positions(node, tables[1]))


@from_onnx("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(node: OnnxNode) -> Expr:
    """Rows of a table of integers with a scale and a zero point per block: taken as they are stored, then expanded."""
    bits, block, ndim = int(node.int("bits", 4)), int(node.int("block_size", 128)), node.type_of(0).ndim
    axis = axis_of(node.op_type, int(node.int("quantize_axis", 1)), ndim)
    if axis_of(node.op_type, int(node.int("gather_axis", 0)), ndim) or not axis or node.type_of(0).dtype.is_float:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: only rows of integers, in blocks along other axes")
    is_packed = node.type_of(0).dtype == "uint8" and bits < 8
    _check_blocks(node, axis, block, 8 // bits if is_packed else 1)
    rows, scales = (_standard(node, "Gather", 13, node.input(k), node.input(1)) for k in (0, 2))
    values = _unpacked(rows, bits) if is_packed else call("cast", rows, dtype="int32")
    zero: Expr = const(1 << (bits - 1) if node.type_of(0).dtype == "uint8" else 0, "int32")
    axis += type_of(values).ndim - ndim
    if not node.missing(3):
        points = _standard(node, "Gather", 13, node.input(3), node.input(1))
        points = _unpacked(points, bits) if is_packed else call("cast", points, dtype="int32")
        zero = _spread(points, block, axis, type_of(values).static)
    steps = call("cast", values - zero, dtype=str(type_of(scales).dtype))
    return steps * _spread(scales, block, axis, type_of(values).static)


def _check_blocks(node: OnnxNode, axis: int, block: int, packed: int) -> None:
    """A scale, and a zero point if any, for each block along the axis; `packed` values lie in a byte."""
    table = list(node.type_of(0).static)
    table[axis] = -(-table[axis] * (packed if axis == len(table) - 1 else 1) // block)
    zeros = [*table[:-1], -(-table[-1] // packed)]
    for index, wanted in ((2, table), (3, zeros)):
        if not node.missing(index) and list(node.type_of(index).static) != wanted:
            message = f"input {index} has shape {node.type_of(index).shape}, wanted {tuple(wanted)}"
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: {message}")


def _unpacked(rows: Expr, bits: int) -> Expr:
    """The values of bytes that hold several, lowest bits first, along the last axis."""
    shape, wide = type_of(rows).static, call("cast", rows, dtype="int32")
    parts = [
        call("bitwise_and", call("right_shift", wide, const(k, "int32")), const((1 << bits) - 1, "int32"))
        for k in range(0, 8, bits)
    ]
    return call("reshape", call("stack", parts, axis=-1), newshape=(*shape[:-1], shape[-1] * len(parts)))


def _spread(parameter: Expr, block: int, axis: int, shape: tuple[int, ...]) -> Expr:
    """A value per block as one per element; packed ones may have one more than there are blocks."""
    spread = call("repeat", parameter, repeats=block, axis=axis)
    return call("strided_slice", spread, begin=(0,) * len(shape), end=shape)
