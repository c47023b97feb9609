"""Records what TFLite computes: `python record.py` with tensorflow 2.21 and ai-edge-litert 2.3 writes operators.npz.

In: names of cases, which are added to what is stored (none: all are written anew). Out: for each case the bytes of a
.tflite file, its inputs and the outputs of the interpreter's reference kernels. Cases are functions of TensorFlow,
converted in float32, with float16 or dynamic-range weights, and in affine integers; some are put together by hand.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert import interpreter as litert
from flatbuffers import flexbuffers
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

FOLDER = Path(__file__).parent
UNLIKE_REFERENCE = ("lrn-real",)  # the reference kernel misses the last channel of a window
LEFT_OUT = ("log_softmax-int8", "l2_normalize-int8", "sum-int8")  # see docs/limits.md
IMAGE, ROW, SEQUENCE = (1, 7, 6, 4), (3, 8), (2, 5, 6)
Case = tuple[Callable[..., object], list[tuple[int, ...]]]


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(sum(shape) + seed).uniform(-1, 1, shape).astype("float32")


def conv(**attrs: object) -> Callable[..., object]:
    attrs = {"strides": 1, "padding": "SAME"} | attrs
    return lambda x: tf.nn.bias_add(tf.nn.conv2d(x, weight(3, 3, 4, 5), **attrs), weight(5))


def compared(name: str) -> Callable[..., object]:
    return lambda x, y: getattr(tf.math, name)(tf.floor(x), tf.floor(y))


def pooled(name: str, padding: str) -> Callable[..., object]:
    return lambda x: getattr(tf.nn, name)(x, 3, 2, padding)


UNARY = ["abs", "ceil", "cos", "exp", "floor", "sigmoid", "negative", "round", "sin", "tanh", "square", "sign"]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "pow",
    "floordiv",
    "floormod",
    "squared_difference",
]
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
SMOOTH: dict[str, Case] = {  # in float32 and in integers
    "conv": (conv(), [IMAGE]),
    "conv_valid_strided": (conv(padding="VALID", strides=2), [IMAGE]),
    "conv_same_strided": (conv(strides=2), [IMAGE]),
    "conv_dilated": (conv(dilations=2), [IMAGE]),
    "conv_relu": (lambda x: tf.nn.relu(conv()(x)), [IMAGE]),
    "conv_relu6": (lambda x: tf.nn.relu6(conv()(x) * 3.0), [IMAGE]),
    "depthwise": (lambda x: tf.nn.depthwise_conv2d(x, weight(3, 3, 4, 1), (1, 2, 2, 1), "SAME") + weight(4), [IMAGE]),
    "depthwise_2": (lambda x: tf.nn.depthwise_conv2d(x, weight(3, 3, 4, 2), (1, 1, 1, 1), "VALID"), [IMAGE]),
    "dense": (lambda x: tf.nn.relu(tf.matmul(x, weight(8, 5)) + weight(5)), [ROW]),
    "dense_large": (lambda x: tf.matmul(x, weight(16, 64)) + weight(64), [(64, 16)]),
    "dense_3d": (lambda x: tf.tensordot(x, weight(6, 4), 1) + weight(4), [SEQUENCE]),
    "matmul": (lambda x, y: tf.matmul(x, y, transpose_b=True), [SEQUENCE, (2, 3, 6)]),
    "transpose_conv": (
        lambda x: tf.nn.conv2d_transpose(x, weight(3, 3, 5, 4), (1, 14, 12, 5), 2, "SAME") + weight(5),
        [IMAGE],
    ),
    "transpose_conv_valid": (
        lambda x: tf.nn.conv2d_transpose(x, weight(3, 2, 5, 4), (1, 15, 12, 5), 2, "VALID"),
        [IMAGE],
    ),
    "avg_pool": (pooled("avg_pool2d", "SAME"), [IMAGE]),
    "avg_pool_valid": (pooled("avg_pool2d", "VALID"), [IMAGE]),
    "max_pool": (pooled("max_pool2d", "SAME"), [IMAGE]),
    "add": (lambda x, y: x + y * 0.3, [IMAGE, IMAGE]),
    "add_broadcast": (lambda x, y: tf.nn.relu(x + y), [IMAGE, (4,)]),
    "sub": (lambda x, y: x - y, [IMAGE, IMAGE]),
    "mul": (lambda x, y: x * y, [IMAGE, (1, 1, 1, 4)]),
    "maximum": (lambda x, y: tf.maximum(x, y), [ROW, ROW]),
    "concat": (lambda x, y: tf.concat([x, y * 2.0, x], -1), [IMAGE, IMAGE]),
    "mean": (lambda x: tf.reduce_mean(x, (1, 2)), [IMAGE]),
    "mean_keep": (lambda x: tf.reduce_mean(x, -1, keepdims=True), [IMAGE]),
    "sum": (lambda x: tf.reduce_sum(x, 1), [IMAGE]),
    "reduce_max": (lambda x: tf.reduce_max(x, (1, 2)), [IMAGE]),
    "softmax": (lambda x: tf.nn.softmax(x * 3.0), [ROW]),
    "log_softmax": (tf.nn.log_softmax, [ROW]),
    "sigmoid": (lambda x: tf.sigmoid(x * 4.0), [IMAGE]),
    "tanh": (lambda x: tf.tanh(x * 2.0), [IMAGE]),
    "hard_swish": (lambda x: x * 3.0 * tf.nn.relu6(x * 3.0 + 3.0) * (1 / 6), [IMAGE]),
    "relu": (tf.nn.relu, [IMAGE]),
    "relu6": (lambda x: tf.nn.relu6(x * 8.0), [IMAGE]),
    "leaky": (lambda x: tf.nn.leaky_relu(x, 0.2), [IMAGE]),
    "prelu": (lambda x: tf.nn.relu(x) + weight(4) * -tf.nn.relu(-x), [IMAGE]),
    "elu": (tf.nn.elu, [IMAGE]),
    "gelu": (lambda x: tf.nn.gelu(x), [IMAGE]),
    "pad": (lambda x: tf.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))), [IMAGE]),
    "mirror_pad": (lambda x: tf.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0)), "REFLECT"), [IMAGE]),
    "resize_bilinear": (lambda x: tf.compat.v1.image.resize_bilinear(x, (11, 9), half_pixel_centers=True), [IMAGE]),
    "resize_corners": (lambda x: tf.compat.v1.image.resize_bilinear(x, (13, 11), align_corners=True), [IMAGE]),
    "resize_plain": (lambda x: tf.compat.v1.image.resize_bilinear(x, (14, 12)), [IMAGE]),
    "resize_nearest": (lambda x: tf.image.resize(x, (11, 9), "nearest"), [IMAGE]),
    "reshape": (lambda x: tf.reshape(x, (6, -1)), [IMAGE]),
    "transpose": (lambda x: tf.transpose(x, (0, 3, 1, 2)), [IMAGE]),
    "slice": (lambda x: x[:, 1:5:2, ::-1, 0], [IMAGE]),
    "split": (lambda x: list(tf.split(x, 2, -1)), [IMAGE]),
    "stack": (lambda x, y: tf.stack([x, y], 1), [ROW, ROW]),
    "unstack": (lambda x: tf.unstack(x, axis=1)[2], [SEQUENCE]),
    "gather": (lambda x: tf.gather(x, [2, 0, 2], axis=1), [SEQUENCE]),
    "tile": (lambda x: tf.tile(x, (2, 1, 3)), [SEQUENCE]),
    "space_to_depth": (lambda x: tf.nn.space_to_depth(x, 2), [(1, 4, 6, 4)]),
    "depth_to_space": (lambda x: tf.nn.depth_to_space(x, 2), [IMAGE]),
    "batch_norm": (lambda x: x * weight(4) + weight(4, seed=1), [IMAGE]),
    "rsqrt": (lambda x: tf.math.rsqrt(tf.abs(x) + 0.5), [IMAGE]),
    "l2_normalize": (lambda x: tf.math.l2_normalize(x, -1), [ROW]),
    "layer_norm": (
        lambda x: (
            (x - tf.reduce_mean(x, -1, keepdims=True))
            * tf.math.rsqrt(
                tf.reduce_mean(tf.math.squared_difference(x, tf.reduce_mean(x, -1, keepdims=True)), -1, keepdims=True)
                + 1e-3
            )
        ),
        [SEQUENCE],
    ),
    "argmax": (lambda x: tf.argmax(x, -1, output_type=tf.int32), [ROW]),
    "topk": (lambda x: list(tf.math.top_k(x, 3)), [ROW]),
    "space_to_batch": (lambda x: tf.space_to_batch(x, (2, 2), ((1, 0), (0, 0))), [IMAGE]),
    "batch_to_space": (lambda x: tf.batch_to_space(x, (2, 2), ((1, 0), (0, 0))), [(4, 4, 3, 4)]),
}
REAL: dict[str, Case] = {
    **{f"unary_{name}": (getattr(tf.math, name), [ROW]) for name in UNARY},
    "log_sqrt": (lambda x: tf.math.log(tf.sqrt(tf.abs(x) + 1.0)), [ROW]),
    **{f"binary_{name}": (getattr(tf.math, name), [(3, 8), (8,)]) for name in BINARY if name != "pow"},
    "pow": (lambda x, y: tf.pow(tf.abs(x) + 0.1, y), [ROW, ROW]),
    **{f"compare_{name}": (compared(name), [ROW, ROW]) for name in COMPARE},
    "logic": (lambda x, y: tf.logical_or(tf.logical_and(x > 0.0, y > 0.0), tf.logical_not(x > y)), [ROW, ROW]),
    "where": (lambda x, y: tf.where(x > y, x, y), [ROW, (8,)]),
    "cast": (lambda x: tf.cast(tf.cast(x * 10.0, tf.int32), tf.float32), [ROW]),
    "ints": (lambda x: tf.cast(x * 10.0, tf.int32) // 3 + tf.cast(x * 10.0, tf.int32) % 3, [ROW]),
    "one_hot": (lambda x: tf.one_hot(tf.argmax(x, -1), 8, 2.0, -1.0), [ROW]),
    "gather_nd": (lambda x: tf.gather_nd(x, [[0, 1], [1, 3]]), [SEQUENCE]),
    "gather_batch": (lambda x: tf.gather(x, [[0, 1], [4, 3]], axis=1, batch_dims=1), [SEQUENCE]),
    "scatter_nd": (lambda x: tf.scatter_nd([[1], [3], [1]], x, (4, 8)), [ROW]),
    "cumsum": (lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True), [ROW]),
    "reverse": (lambda x: tf.reverse(x, [1, 2]), [SEQUENCE]),
    "reverse_sequence": (lambda x: tf.reverse_sequence(x, [2, 4], 1, 0), [SEQUENCE]),
    "reduce": (lambda x: tf.reduce_prod(x, 1) + tf.reduce_min(x, 1), [SEQUENCE]),
    "any_all": (lambda x: [tf.reduce_any(x > 0.5, 1), tf.reduce_all(x > -1.5, 1)], [SEQUENCE]),
    "new_axes": (lambda x: x[tf.newaxis, ..., 1:3, tf.newaxis], [SEQUENCE]),
    "shape": (lambda x: tf.reshape(x, (tf.shape(x)[0], -1)), [SEQUENCE]),
    "fill": (lambda x: x + tf.fill((8,), 2.0), [ROW]),
    "broadcast_to": (lambda x: tf.broadcast_to(x, (2, 3, 8)), [ROW]),
    "expand_squeeze": (lambda x: tf.squeeze(tf.expand_dims(x, 1) * 2.0, 1), [ROW]),
    "split_v": (lambda x: list(tf.split(x, [1, 3, 4], 1)), [ROW]),
    "conv3d": (lambda x: tf.nn.conv3d(x, weight(2, 2, 2, 4, 3), (1, 1, 1, 1, 1), "SAME"), [(1, 3, 4, 5, 4)]),
    "lrn": (lambda x: tf.nn.local_response_normalization(x, 2, 1.0, 0.1, 0.6), [IMAGE]),
    "matrix_diag": (lambda x: tf.linalg.diag(x), [ROW]),
    "nearest_corners": (lambda x: tf.compat.v1.image.resize_nearest_neighbor(x, (13, 11), align_corners=True), [IMAGE]),
    "matmul_broadcast": (lambda x, y: tf.matmul(x, y), [(1, 3, 5, 6), (2, 1, 6, 4)]),
    "embedding": (lambda x: tf.nn.embedding_lookup(weight(9, 4), tf.cast(tf.abs(x) * 4.0, tf.int32)), [ROW]),
    "select": (lambda x: tf.where(tf.reduce_sum(x, -1, keepdims=True) > 0.0, x, 0.0), [ROW]),
    "fake_quant": (lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.5, 1.5), [ROW]),
}
BYTES = [
    "conv",
    "conv_relu6",
    "depthwise",
    "dense_large",
    "add",
    "mul",
    "sub",
    "avg_pool",
    "max_pool",
    "concat",
    "softmax",
]
BYTES += ["sigmoid", "tanh", "mean", "mean_keep", "pad", "reshape", "leaky", "relu6", "hard_swish"]
CONTROL: dict[str, Case] = {
    "if": (lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.matmul(x, weight(8, 8)), lambda: x * 3.0), [ROW]),
    "while": (
        lambda x: tf.while_loop(
            lambda i, y: tf.reduce_sum(tf.abs(y)) < 60.0, lambda i, y: (i + 1, tf.matmul(y, weight(8, 8)) * 2.0), [0, x]
        ),
        [ROW],
    ),
    "while_in_if": (
        lambda x: tf.cond(
            tf.reduce_sum(x) > -1e3,
            lambda: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.matmul(y, weight(8, 8))), [0, x])[1],
            lambda: x,
        ),
        [ROW],
    ),
}
LAYERS = {
    "lstm_while": lambda: keras.Sequential([keras.Input((5, 6), batch_size=1), keras.layers.LSTM(4)]),
    "gru_while": lambda: keras.Sequential(
        [keras.Input((12, 6), batch_size=1), keras.layers.GRU(4, return_sequences=True)]
    ),
    "bidirectional_while": lambda: keras.Sequential(
        [
            keras.Input((12, 6), batch_size=1),
            keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True)),
        ]
    ),
    "rnn": lambda: keras.Sequential([keras.Input((5, 6), batch_size=1), keras.layers.SimpleRNN(4, unroll=True)]),
    "gru": lambda: keras.Sequential([keras.Input((5, 6), batch_size=1), keras.layers.GRU(4, unroll=True)]),
}


def inputs_of(name: str, shapes: list[tuple[int, ...]], count: int) -> list[list[np.ndarray]]:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return [[random.uniform(-2, 2, shape).astype("float32") for shape in shapes] for _ in range(count)]


def converted(name: str, case: Case, kind: str) -> bytes:
    function, shapes = case
    concrete = tf.function(function).get_concrete_function(*(tf.TensorSpec(shape) for shape in shapes))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    return finished(converter, kind, name, shapes)


def finished(converter: tf.lite.TFLiteConverter, kind: str, name: str, shapes: list[tuple[int, ...]]) -> bytes:
    if kind != "real":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind in ("int8", "uint8", "tensor"):
        converter.representative_dataset = lambda: iter(inputs_of(name + "r", shapes, 8))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        outer = tf.uint8 if kind == "uint8" else tf.int8
        converter.inference_input_type = converter.inference_output_type = outer
        converter._experimental_disable_per_channel = kind == "tensor"
    return bytes(converter.convert())


def sequence(name: str) -> bytes:
    """A file of one recurrent operator, as converters of TensorFlow 2.0 to 2.15 wrote them for Keras's layers."""
    batch, time, width, units = 2, 5, 3, 4
    model, graph, operator, code = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    model.version, model.buffers, model.subgraphs, model.operatorCodes = 3, [schema.BufferT()], [graph], [code]
    graph.tensors, graph.operators = [], [operator]

    def tensor(shape: tuple[int, ...], value: np.ndarray | None = None, is_state: bool = False) -> int:
        row, buffer = schema.TensorT(), schema.BufferT()
        row.shape, row.type, row.name, row.isVariable = list(shape), 0, f"t{len(graph.tensors)}".encode(), is_state
        row.buffer, buffer.data = (
            len(model.buffers),
            None if value is None else np.frombuffer(value.tobytes(), np.uint8),
        )
        model.buffers.append(buffer)
        graph.tensors.append(row)
        return len(graph.tensors) - 1

    def stored(*shape: int) -> int:
        return tensor(shape, weight(*shape, seed=len(graph.tensors)))

    data = tensor((batch, time, width))
    if name.startswith("lstm"):
        code.builtinCode, options = (
            schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM,
            schema.UnidirectionalSequenceLSTMOptionsT(),
        )
        peepholes = [stored(units) for _ in range(3)] if name == "lstm_peepholes" else [-1] * 3
        operator.inputs = [data, *(stored(units, width) for _ in range(4)), *(stored(units, units) for _ in range(4))]
        operator.inputs += [*peepholes, *(stored(units) for _ in range(4)), -1, -1]
        operator.inputs += [*(tensor((batch, units), None, True) for _ in range(2)), *[-1] * 4]
        operator.builtinOptionsType = schema.BuiltinOptions.UnidirectionalSequenceLSTMOptions
    else:
        code.builtinCode, options = schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN, schema.SequenceRNNOptionsT()
        operator.inputs = [
            data,
            stored(units, width),
            stored(units, units),
            stored(units),
            tensor((batch, units), None, True),
        ]
        operator.builtinOptionsType = schema.BuiltinOptions.SequenceRNNOptions
    code.deprecatedBuiltinCode, code.version = code.builtinCode, 1
    options.fusedActivationFunction, options.timeMajor = schema.ActivationFunctionType.TANH, False
    operator.builtinOptions, operator.outputs = options, [tensor((batch, time, units))]
    graph.inputs, graph.outputs = [data], operator.outputs
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def in_unsigned_bytes(data: bytes) -> bytes:
    """The same network with tensors of uint8 instead of int8, as converters before 2020 wrote them."""
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(data))
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.type == 9 and tensor.quantization is not None and tensor.quantization.scale is not None:
                tensor.type = 3
                tensor.quantization.zeroPoint = [int(zero) + 128 for zero in tensor.quantization.zeroPoint]
                buffer = model.buffers[tensor.buffer]
                if buffer.data is not None:
                    buffer.data = np.frombuffer(bytes(buffer.data), np.uint8) ^ 128
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


SIDES, CLASSES = (6, 3), 4
DETECTIONS = {
    "fast": {"max_detections": 10, "max_classes_per_detection": 1, "nms_score_threshold": 0.3},
    "fast_classes": {"max_detections": 6, "max_classes_per_detection": 3, "nms_score_threshold": 0.55},
    "few_classes": {"max_detections": 60, "max_classes_per_detection": 6, "nms_score_threshold": 0.45},
    "regular": {"max_detections": 20, "use_regular_nms": True, "detections_per_class": 7, "nms_score_threshold": 0.6},
}


def trunk(x: tf.Tensor) -> list[tf.Tensor]:
    """Boxes and scores of two images of features, as SSD has them: scores of a background first."""
    columns: list[list[tf.Tensor]] = [[], []]
    for depth, side in enumerate(SIDES):
        width = 4 if depth == 0 else 8
        x = tf.nn.relu6(tf.nn.depthwise_conv2d(x, weight(3, 3, width, 2, seed=depth), (1, 2, 2, 1), "SAME"))
        for column, last, scale in zip(columns, (4, CLASSES + 1), (0.5, 1.0), strict=True):
            head = tf.nn.conv2d(x, weight(1, 1, 2 * width, 2 * last, seed=depth) * scale, 1, "SAME")
            column.append(tf.reshape(head, (1, 2 * side * side, last)))
        x = x[..., :8]
    return [tf.concat(columns[0], 1), tf.sigmoid(tf.concat(columns[1], 1))]


def anchors() -> np.ndarray:
    rows = []
    for side in SIDES:
        places = (np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1) + 0.5) / side
        for place in places.reshape(-1, 2):
            rows += [[*place, 1 / side, 1 / side], [*place, 1.5 / side, 0.7 / side]]
    return np.array(rows, "float32")


def detector(options: dict[str, float], kind: str) -> bytes:
    """A small SSD network that ends in TFLite_Detection_PostProcess."""
    data = converted("detector", (trunk, [(1, 12, 12, 4)]), "tensor" if kind == "bytes" else kind)
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(in_unsigned_bytes(data) if kind == "bytes" else data))
    (graph,), code, operator = model.subgraphs, schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode, code.version = b"TFLite_Detection_PostProcess", 1
    values = {"num_classes": CLASSES, "nms_iou_threshold": 0.5, "max_classes_per_detection": 1}
    values |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, **options}
    operator.opcodeIndex, operator.customOptions = len(model.operatorCodes), list(flexbuffers.Dumps(values))
    model.operatorCodes.append(code)

    def tensor(name: str, shape: tuple[int, ...], stored: np.ndarray | None = None) -> int:
        row, buffer = schema.TensorT(), schema.BufferT()
        row.shape, row.type, row.name, row.buffer = list(shape), 0, name.encode(), len(model.buffers)
        buffer.data = None if stored is None else np.frombuffer(stored.tobytes(), np.uint8)
        if stored is not None and kind == "bytes":
            row.type, row.quantization = 3, schema.QuantizationParametersT()
            row.quantization.scale, row.quantization.zeroPoint = [1 / 128], [0]
            buffer.data = np.clip(np.round(stored * 128), 0, 255).astype(np.uint8).reshape(-1)
        model.buffers.append(buffer)
        graph.tensors.append(row)
        return len(graph.tensors) - 1

    count = int(values["max_detections"] * values["max_classes_per_detection"])
    boxes, scores = sorted(graph.outputs, key=lambda n: graph.tensors[n].shape[-1])
    operator.inputs = [boxes, scores, tensor("anchors", anchors().shape, anchors())]
    shapes = {"boxes": (1, count, 4), "classes": (1, count), "scores": (1, count), "count": (1,)}
    operator.outputs = [tensor(name, shape) for name, shape in shapes.items()]
    graph.operators.append(operator)
    graph.outputs = operator.outputs
    model.signatureDefs = []
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def called(name: str) -> bytes:
    """A network as a graph that another calls."""
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(converted(name, SMOOTH["dense"], "real")))
    (inner,), code, operator, outer = model.subgraphs, schema.OperatorCodeT(), schema.OperatorT(), schema.SubGraphT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CALL
    operator.opcodeIndex, operator.builtinOptions = len(model.operatorCodes), schema.CallOptionsT()
    operator.builtinOptionsType, operator.builtinOptions.subgraph = schema.BuiltinOptions.CallOptions, 1
    model.operatorCodes.append(code)
    outer.tensors = [inner.tensors[n] for n in (*inner.inputs, *inner.outputs)]
    operator.inputs, operator.outputs = [0], [1]
    outer.inputs, outer.outputs, outer.operators = [0], [1], [operator]
    model.subgraphs, model.signatureDefs = [outer, inner], []
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def run(data: bytes, name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    kinds, interpreter = litert.OpResolverType, None
    order = (kinds.BUILTIN_REF, kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES)  # a few operators have no reference kernel
    for kind in order[name in UNLIKE_REFERENCE :]:
        try:
            interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=kind)
            interpreter.allocate_tensors()
            break
        except (RuntimeError, ValueError):
            continue
    assert interpreter is not None
    random, values = np.random.default_rng(zlib.crc32(name.encode())), []
    for row in interpreter.get_input_details():
        kind, shape = row["dtype"], row["shape"]
        whole = np.issubdtype(kind, np.integer)
        value = (
            random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape)
            if whole
            else random.uniform(-2, 2, shape)
        )
        values.append(value.astype(kind))
        interpreter.set_tensor(row["index"], values[-1])
    interpreter.invoke()
    return values, [interpreter.get_tensor(row["index"]) for row in interpreter.get_output_details()]


def main() -> None:
    cases = [(f"{name}-real", case, "real") for name, case in (SMOOTH | REAL).items()]
    cases += [(f"{name}-int8", case, "int8") for name, case in SMOOTH.items()]
    cases += [
        (f"{name}-{kind}", SMOOTH[name], kind)
        for name in ("conv", "dense", "depthwise")
        for kind in ("float16", "tensor", "uint8")
    ]
    cases += [(f"{name}-bytes", SMOOTH[name], "bytes") for name in BYTES]
    cases += [(f"{name}-real", case, "real") for name, case in CONTROL.items()]
    makers: dict[str, Callable[[], bytes]] = {
        name: partial(written, name, case, kind) for name, case, kind in cases if name not in LEFT_OUT
    }
    for name, build in LAYERS.items():
        makers[f"{name}-real"] = partial(layer, name, build)
    for name in ("lstm_sequence", "lstm_peepholes", "rnn_sequence"):
        makers[f"{name}-real"] = partial(sequence, name)
    for name, options in DETECTIONS.items():
        makers |= {f"detections_{name}-{kind}": partial(detector, options, kind) for kind in ("real", "bytes")}
    makers["call-real"] = partial(called, "dense")
    file, wanted = FOLDER / "operators.npz", sys.argv[1:]
    stored = dict(np.load(file)) if wanted else {}
    for name in wanted or makers:
        try:
            data = makers[name]()
            record(stored, name, data, makers["dense-real"]() if name == "call-real" else data)
        except Exception as error:  # the converter, or the interpreter, has no such operator
            print(name, "is left out:", str(error).splitlines()[-1][:150])
    np.savez_compressed(file, **stored)


def written(name: str, case: Case, kind: str) -> bytes:
    data = converted(name, case, "tensor" if kind == "bytes" else kind)
    return in_unsigned_bytes(data) if kind == "bytes" else data


def layer(name: str, build: Callable[[], keras.Model]) -> bytes:
    keras.utils.set_random_seed(3)
    return finished(tf.lite.TFLiteConverter.from_keras_model(build()), "real", name, [])


def record(stored: dict[str, np.ndarray], name: str, data: bytes, truth: bytes) -> None:
    """A file and what the interpreter computes of it, or of `truth`, which is the same (it has no kernel of CALL)."""
    inputs, outputs = run(truth, name)
    if name.startswith("detections"):  # rows behind the last are what the memory held
        per_box = len(outputs[1][0]) // DETECTIONS[name.split("_", 1)[1].partition("-")[0]]["max_detections"]
        rows = np.arange(len(outputs[1][0]))
        used = (rows < outputs[3][0] * per_box) & (rows % per_box < CLASSES)
        outputs[:3] = [np.where(used[:, None] if x.ndim == 3 else used, x, 0.0) for x in outputs[:3]]
    stored[f"{name}:model"] = np.frombuffer(data, np.uint8)
    for word, values in (("in", inputs), ("out", outputs)):
        stored |= {f"{name}:{word}{k}": value for k, value in enumerate(values)}


if __name__ == "__main__":
    main()
