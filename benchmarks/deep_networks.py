"""Two networks of many different kernels as ONNX files: Inception v3, and the first four layers of BERT.

In: a name. Out: an ONNX file with seeded weights. Invariant: as for the networks of `networks.py`; the parameters are
those of the published architectures (Inception v3 without its auxiliary classifier; BERT without embeddings).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from networks import FOLDER, Builder, Flow, network_file
from onnx import TensorProto, helper

LAYERS, HIDDEN, HEADS, WIDE, POSITIONS = 4, 768, 12, 3072, 128
SIDE = 299
DEEP = ("inception_v3", "bert_4")


def deep_file(name: str, folder: Path = FOLDER) -> Path:
    """The file of a network of this module or of `networks.py`, written now if it is not there."""
    if name not in DEEP:
        return network_file(name, folder=folder)
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".part")
        onnx.save(_inception() if name == "inception_v3" else _bert(), str(partial))
        partial.replace(path)
    return path


def _model(net: Builder, name: str, shape: list[int], result: list[int]) -> onnx.ModelProto:
    net.nodes[-1].output[0] = "output"
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, result)
    graph = helper.make_graph(net.nodes, name, [x], [y], net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# --- Inception v3


def _unit(
    net: Builder, x: Flow, out: int, kernel: tuple[int, int] = (1, 1), stride: int = 1, same: bool = True
) -> Flow:
    """Convolution, normalisation, rectifier."""
    rows, columns = kernel
    weight = net.weight(net.normal((out, x.channels, rows, columns), x.channels * rows * columns))
    pads = [rows // 2, columns // 2] * 2 if same else [0] * 4
    sizes = {"kernel_shape": list(kernel), "strides": [stride] * 2, "pads": pads}
    return net.relu(net.norm(net.node("Conv", [x.name, weight], out, **sizes)))


def _joined(net: Builder, parts: list[Flow]) -> Flow:
    return net.node("Concat", [part.name for part in parts], sum(part.channels for part in parts), axis=1)


def _mean(net: Builder, x: Flow) -> Flow:
    sizes = {"kernel_shape": [3] * 2, "strides": [1] * 2, "pads": [1] * 4}
    return net.node("AveragePool", [x.name], x.channels, **sizes)


def _chain(net: Builder, x: Flow, *steps: tuple[int, tuple[int, int]]) -> Flow:
    for out, kernel in steps:
        x = _unit(net, x, out, kernel)
    return x


ONE, THREE, FIVE, WIDTH, HEIGHT = (1, 1), (3, 3), (5, 5), (1, 7), (7, 1)


def _inception() -> onnx.ModelProto:
    net = Builder(3)
    x = _unit(net, _unit(net, Flow("input", 3), 32, THREE, 2, same=False), 32, THREE, same=False)
    x = net.max_pool(_unit(net, x, 64, THREE), 3, 2)
    x = net.max_pool(_unit(net, _unit(net, x, 80), 192, THREE, same=False), 3, 2)
    for pooled in (32, 64, 64):
        x = _joined(
            net,
            [
                _unit(net, x, 64),
                _chain(net, x, (48, ONE), (64, FIVE)),
                _chain(net, x, (64, ONE), (96, THREE), (96, THREE)),
                _unit(net, _mean(net, x), pooled),
            ],
        )
    deep = _chain(net, x, (64, ONE), (96, THREE))
    x = _joined(
        net,
        [_unit(net, x, 384, THREE, 2, same=False), _unit(net, deep, 96, THREE, 2, same=False), net.max_pool(x, 3, 2)],
    )
    for mid in (128, 160, 160, 192):
        x = _joined(
            net,
            [
                _unit(net, x, 192),
                _chain(net, x, (mid, ONE), (mid, WIDTH), (192, HEIGHT)),
                _chain(net, x, (mid, ONE), (mid, HEIGHT), (mid, WIDTH), (mid, HEIGHT), (192, WIDTH)),
                _unit(net, _mean(net, x), 192),
            ],
        )
    deep = _chain(net, x, (192, ONE), (192, WIDTH), (192, HEIGHT))
    x = _joined(
        net,
        [
            _unit(net, _unit(net, x, 192), 320, THREE, 2, same=False),
            _unit(net, deep, 192, THREE, 2, same=False),
            net.max_pool(x, 3, 2),
        ],
    )
    for _ in range(2):
        middle, deep = _unit(net, x, 384), _chain(net, x, (448, ONE), (384, THREE))
        x = _joined(
            net,
            [
                _unit(net, x, 320),
                *(_unit(net, part, 384, k) for part in (middle, deep) for k in ((1, 3), (3, 1))),
                _unit(net, _mean(net, x), 192),
            ],
        )
    net.dense(net.pooled(x), 1000)
    return _model(net, "inception_v3", [1, 3, SIDE, SIDE], [1, 1000])


# --- BERT


def _linear(net: Builder, x: Flow, units: int) -> Flow:
    weight = net.weight(net.random.standard_normal((x.channels, units)) / math.sqrt(x.channels))
    y = net.node("MatMul", [x.name, weight], units)
    return net.node("Add", [y.name, net.weight(0.1 * net.random.standard_normal(units))], units)


def _shape(net: Builder, sizes: list[int]) -> str:
    name = net.weight(np.zeros(0))
    net.weights[-1] = onnx.numpy_helper.from_array(np.array(sizes, np.int64), name)
    return name


def _heads(net: Builder, x: Flow, order: list[int]) -> Flow:
    split = net.node("Reshape", [x.name, _shape(net, [1, POSITIONS, HEADS, HIDDEN // HEADS])], HIDDEN)
    return net.node("Transpose", [split.name], HIDDEN, perm=order)


def _normalized(net: Builder, x: Flow) -> Flow:
    rows = net.weight(net.random.uniform(0.8, 1.2, HIDDEN)), net.weight(0.1 * net.random.standard_normal(HIDDEN))
    return net.node("LayerNormalization", [x.name, *rows], HIDDEN, axis=-1)


def _layer(net: Builder, x: Flow) -> Flow:
    q, k, v = (_linear(net, x, HIDDEN) for _ in range(3))
    q, k, v = _heads(net, q, [0, 2, 1, 3]), _heads(net, k, [0, 2, 3, 1]), _heads(net, v, [0, 2, 1, 3])
    scores = net.node("MatMul", [q.name, k.name], POSITIONS)
    scores = net.node("Div", [scores.name, net.weight(math.sqrt(HIDDEN // HEADS))], POSITIONS)
    mixed = net.node("MatMul", [net.node("Softmax", [scores.name], POSITIONS, axis=-1).name, v.name], HIDDEN)
    turned = net.node("Transpose", [mixed.name], HIDDEN, perm=[0, 2, 1, 3])
    flat = net.node("Reshape", [turned.name, _shape(net, [1, POSITIONS, HIDDEN])], HIDDEN)
    x = _normalized(net, net.node("Add", [x.name, _linear(net, flat, HIDDEN).name], HIDDEN))
    wide = _linear(net, x, WIDE)
    root = net.node("Erf", [net.node("Div", [wide.name, net.weight(math.sqrt(2))], WIDE).name], WIDE)
    inner = net.node("Mul", [wide.name, net.node("Add", [root.name, net.weight(1.0)], WIDE).name], WIDE)
    gelu = net.node("Mul", [inner.name, net.weight(0.5)], WIDE)
    return _normalized(net, net.node("Add", [x.name, _linear(net, gelu, HIDDEN).name], HIDDEN))


def _bert() -> onnx.ModelProto:
    net, x = Builder(4), Flow("input", HIDDEN)
    for _ in range(LAYERS):
        x = _layer(net, x)
    return _model(net, "bert_4", [1, POSITIONS, HIDDEN], [1, POSITIONS, HIDDEN])
