"""ONNX models of a few kilobytes with constants as large as the data, of which only sizes are given, or many of them.

In: nothing. Out: `SIZED`, models by name, also in `MODELS` (hostile_models.py). Invariant: as there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hostile_models import BOOL, I32, I64, MODELS, F, hostile, info, model, node, one
from onnx import ModelProto, NodeProto, TensorProto, helper

_BEFORE = set(MODELS)
_U8 = TensorProto.UINT8
_ROW = np.ones((1, 1))


def _summed(nodes: Sequence[NodeProto], shape: Sequence[int] | None = None, **weights: object) -> ModelProto:
    """The sum of what each of many nodes makes."""
    parts = [node("ReduceSum", [made.output[0]], [f"sum{k}"], keepdims=0) for k, made in enumerate(nodes)]
    total = node("Sum", [part.output[0] for part in parts], ["y"])
    return model([*nodes, *parts, total], shape, weights, opset=17)  # type: ignore[arg-type]


one("determinants of a column of matrices", "Det", "x", shape=(600_000_000, 3, 3))
one("determinants of empty matrices", "Det", "x", shape=(600_000_000, 0, 0))
one(
    "a recurrent network of a wide batch",
    "RNN",
    "x w r",
    {"w": np.ones((1, 1, 1)), "r": np.ones((1, 1, 1))},
    shape=(1, 400_000_000, 1),
    outputs=("", "y"),
    hidden_size=1,
)
one("samples of a region", "RoiAlign", "x r b", {"r": np.ones((3, 4)), "b": np.zeros(3, np.int64)}, sampling_ratio=3000)
one(
    "a long row of nearest neighbours",
    "Resize",
    "x - - s",
    {"s": [1, 1, 1, 2_000_000_000]},
    shape=(1, 1, 1, 4),
    kind=_U8,
)
one("many different numbers", "Unique", "x", shape=(200_000_000,), outputs=("y", "a", "b", "c"))


@hostile("samples of constant regions")
def _samples() -> ModelProto:
    weights = {"i": np.ones((1, 2, 7, 12)), "r": np.ones((3, 4)), "b": np.zeros(3, np.int64)}
    regions = node("RoiAlign", ["i", "r", "b"], ["y"], sampling_ratio=3000, output_height=2, output_width=4)
    return model([regions], None, weights)


@hostile("a choice of many")
def _compressed() -> ModelProto:
    made = model([node("Compress", ["x", "c"], ["y"], axis=0)], (1_000_000_000,), kind=_U8)
    made.graph.input.append(info("c", BOOL, [1_000_000_000]))
    return made


@hostile("an update of a long cache")
def _cache() -> ModelProto:
    made = model([node("TensorScatter", ["x", "u"], ["y"])], (1, 1, 400_000_000, 1), opset=24)
    made.graph.input.append(info("u", F, [1, 1, 400_000_000, 1]))
    return made


@hostile("lengths of a long sequence")
def _lengths() -> ModelProto:
    weights = {"w": np.ones((1, 4, 1)), "r": np.ones((1, 4, 1))}
    made = model([node("LSTM", ["x", "w", "r", "", "n"], ["", "y"], hidden_size=1)], (400_000_000, 1, 1), weights)
    made.graph.input.append(info("n", I32, [1]))
    return made


@hostile("transforms of sixty lengths")
def _transforms() -> ModelProto:
    nodes = [node("DFT", ["x", f"n{k}"], [f"d{k}"], axis=1) for k in range(60)]
    return _summed(nodes, (1, 4093, 1), **{f"n{k}": 4093 - k for k in range(60)})


@hostile("forty long ranges")
def _ranges() -> ModelProto:
    nodes = [node("Range", ["first", "last", "step"], [f"r{k}"]) for k in range(40)]
    return _summed(nodes, first=0, last=60_000_000, step=1)


@hostile("thirty long windows")
def _windows() -> ModelProto:
    return _summed([node("HannWindow", ["n"], [f"h{k}"], periodic=k % 2) for k in range(30)], n=20_000_000)


@hostile("a window of sixty million numbers")
def _window() -> ModelProto:
    nodes = [node("BlackmanWindow", ["n"], ["v"]), node("Sigmoid", ["v"], ["y"])]
    return model(nodes, None, {"n": 64_000_000}, opset=17)


@hostile("forty masks of what lies ahead")
def _masks() -> ModelProto:
    own = {"domain": "com.microsoft", "num_heads": 1, "unidirectional": 1}
    nodes = [node("Attention", ["x", "w", "b"], [f"a{k}"], scale=k + 1.0, **own) for k in range(40)]
    return _summed(nodes, (1, 8000, 1), w=np.ones((1, 3)), b=np.ones(3))


def _large(count: int) -> list[NodeProto]:
    """Nodes that make c0, c1, …: 256 MB each, one number of which is not 0."""
    nodes = []
    for k in range(count):
        values = TensorProto(data_type=F, dims=[1], float_data=[1.0])
        sparse = node("Constant", [], [f"c{k}"])
        attribute = sparse.attribute.add(name="sparse_value", type=11)
        attribute.sparse_tensor.values.CopyFrom(values)
        attribute.sparse_tensor.indices.CopyFrom(TensorProto(data_type=I64, dims=[1], int64_data=[k]))
        attribute.sparse_tensor.dims.append(1 << 26)
        nodes.append(sparse)
    return nodes


@hostile("twenty large tensors of one number")
def _sparse() -> ModelProto:
    return _summed(_large(20))


@hostile("sums of two large tensors of one number")
def _sums() -> ModelProto:
    names = ["c0", *(f"s{k}" for k in range(20))]
    sums = [node("Add", [names[k], "c1"], [names[k + 1]]) for k in range(20)]
    return model([*_large(2), *sums, node("ReduceSum", ["s19"], ["y"], keepdims=0)], None, opset=17)


@hostile("an input plus twenty large tensors")
def _plus() -> ModelProto:
    names = ["x", *(f"s{k}" for k in range(20))]
    sums = [node("Add", [names[k], "c0"], [names[k + 1]]) for k in range(20)]
    return model([*_large(1), *sums, node("ReduceSum", ["s19"], ["y"], keepdims=0)], (1,), opset=17)


def _nested(inner: Sequence[NodeProto], levels: int, shape: Sequence[int], weight: object) -> ModelProto:
    """Functions that call ten others each; every call grows what it gets, so that no two kernels are the same."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", "f0", ["x", "w"], ["y"], list(inner), opsets)]
    for level in range(1, levels + 1):
        names = ["x", *(f"v{k}" for k in range(9)), "y"]
        calls = [node(f"f{level - 1}", [names[k], "w"], [names[k + 1]], domain="own") for k in range(10)]
        made.append(helper.make_function("own", f"f{level}", ["x", "w"], ["y"], calls, opsets))
    last = node(f"f{levels}", ["x", "w"], ["y"], domain="own")
    return model([last], shape, {"w": weight}, opset=17, functions=made)  # type: ignore[dict-item]


@hostile("a thousand convolutions of different sizes")
def _convolutions() -> ModelProto:
    inner = [node("Conv", ["x", "w"], ["c"], pads=[2, 2, 2, 2]), node("Relu", ["c"], ["y"])]
    return _nested(inner, 3, (1, 1, 8, 8), np.ones((1, 1, 3, 3)))


@hostile("a thousand softmaxes of different sizes")
def _softmaxes() -> ModelProto:
    return _nested(
        [node("Concat", ["x", "w"], ["c"], axis=0), node("Softmax", ["c"], ["y"], axis=0)], 3, (3,), np.ones(1)
    )


@hostile("a scan of a hundred million inputs")
def _scan() -> ModelProto:
    body = helper.make_graph([node("Identity", ["a"], ["b"])], "b", [info("a", F, [3])], [info("b", F, [3])])
    return model([node("Scan", ["x"], ["y"], body=body, num_scan_inputs=100_000_000)])


@hostile("a transposed convolution of long strides")
def _far_apart() -> ModelProto:
    return model(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[10_000, 10_000])], (1, 1, 2, 2), {"w": np.ones((1, 1, 2, 2))}
    )


SIZED = frozenset(MODELS) - _BEFORE
