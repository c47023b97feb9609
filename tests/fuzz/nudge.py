"""Good models with numbers a hair off those that passes recognise, or as large and small as they may be.

In: a seed. Out: a `Drawn`: a run of nodes that passes look for, or any graph, with some constants moved by a millionth
to a thousandth, or brought near the largest and the least number, attributes at the ends of what is allowed, and
optional inputs that are left out or named by nothing. Invariant: shapes and names stay; a model that is no more valid
is one that everybody refuses.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
import onnx_draw
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.defs import OpSchema
from onnx_kit import Draw, Drawn, Unfit
from onnx_motifs import MOTIFS

_MOST = 16  # elements of a constant that is a number, or one for each channel
# of the largest a sum of a hundred stays finite in whatever order
_EXTREMES = (2e36, 1e35, 1e30, 2.0**64, 1e-30, 1.2e-38, 1e-40, 1e-45, 0.0, -0.0, -1.0)
_REALS = {"epsilon": (0.0, 1e-45, 1e-38, 1e-12, 1.0, 1e30)}
_FLAGS = ("keepdims", "count_include_pad", "ceil_mode", "exclusive", "reverse", "largest", "sorted", "align_corners")


def hard_activations(d: Draw) -> None:
    """x clip(x + 3, 0, 6) / 6 and its like, and clip(x / 6 + 0.5, 0, 1), written out."""
    if d.opset < 11:
        raise Unfit("bounds are inputs since opset 11")
    x = d.data(("float32",), 1, 4, 0)

    def number(value: float) -> object:
        return d.fixed(value, "float32")

    if d.chance(0.6):
        clipped = d.emit("Clip", [d.emit("Add", [x, number(3.0)])[0], number(0.0), number(6.0)])[0]
        gate = d.emit("Mul", [clipped, number(1 / 6)])[0] if d.chance(0.5) else d.emit("Div", [clipped, number(6.0)])[0]
    else:
        scaled = d.emit("Add", [d.emit("Mul", [x, number(1 / 6)])[0], number(0.5)])[0]
        gate = d.emit("Clip", [scaled, number(0.0), number(1.0)])[0]
    d.emit("Mul", [x, gate])


def soft_activations(d: Draw) -> None:
    """x sigmoid(k x), x tanh(log(1 + e^x)), and a softmax written out."""
    x = d.data(("float32",), 1, 4, 0, lambda v: bool(np.all(np.abs(v.array) < 50)))
    way = d.integer(0, 2)
    if way == 0:
        d.emit("Mul", [x, d.emit("Sigmoid", [d.emit("Mul", [x, d.fixed(d.one((1.0, 1.702)), "float32")])[0]])[0]])
    elif way == 1:
        more = d.emit("Add", [d.emit("Exp", [x])[0], d.fixed(1.0, "float32")])[0]
        d.emit("Mul", [x, d.emit("Tanh", [d.emit("Log", [more])[0]])[0]])
    else:
        scaled = d.emit("Exp", [d.emit("Mul", [x, d.fixed(0.125, "float32")])[0]])[0]
        axes = {"axes": [-1]} if 11 <= d.opset < 13 else {}
        total = d.emit("ReduceSum", [scaled] + ([d.fixed([-1])] if d.opset >= 13 else []), keepdims=1, **axes)[0]
        d.emit("Div", [scaled, total])


RUNS: tuple[Callable[[Draw], None], ...] = (*MOTIFS, *(hard_activations, soft_activations) * 4)


def generate(seed: int) -> Drawn:
    """The model of a seed."""
    rng = random.Random(seed)
    drawn = onnx_draw.run_of(seed, RUNS) if rng.random() < 0.6 else onnx_draw.generate(seed)
    for change in rng.sample(CHANGES, rng.choice((1, 1, 2))):
        change(drawn.model, rng)
    return drawn


def _numbers(model: ModelProto) -> list[TensorProto]:
    """Constants of few real numbers."""
    held = list(model.graph.initializer)
    held += [
        a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "value"
    ]
    reals = (TensorProto.FLOAT, TensorProto.DOUBLE)
    return [t for t in held if t.data_type in reals and 0 < int(np.prod(t.dims, dtype=np.int64)) <= _MOST]


def _hair_off(model: ModelProto, rng: random.Random) -> None:
    """Some numbers times 1 ± 1e-6 to 1e-3."""
    for tensor in _numbers(model):
        if rng.random() < 0.6:
            array = numpy_helper.to_array(tensor)
            off = 1 + rng.choice((-1, 1)) * 10 ** -rng.uniform(3, 6)
            _store(tensor, array * array.dtype.type(off))


def _extreme(model: ModelProto, rng: random.Random) -> None:
    """One constant near the largest numbers or below the normal ones: all of it, or one element."""
    found = _numbers(model)
    if not found:
        return
    tensor, value = rng.choice(found), rng.choice(_EXTREMES)
    array = np.array(numpy_helper.to_array(tensor))
    if rng.random() < 0.6:
        array[...] = value
    else:
        array.reshape(-1)[rng.randrange(array.size)] = value
    _store(tensor, array)


def _store(tensor: TensorProto, array: np.ndarray) -> None:  # type: ignore[type-arg]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def _at_the_ends(model: ModelProto, rng: random.Random) -> None:
    """Attributes at the ends of what they may be."""
    items = [a for node in model.graph.node for a in node.attribute]
    for item in items:
        if item.type == AttributeProto.FLOAT and rng.random() < 0.5:
            off = item.f * (1 + rng.choice((-1, 1)) * 10 ** -rng.uniform(3, 6))
            item.f = rng.choice((*_REALS.get(item.name, (0.0, -0.0, 1e-45, 1e30, -1.0, 3.4e38)), off, off))
        elif item.type == AttributeProto.INT and item.name in _FLAGS:
            item.i = rng.choice((0, 1))
        elif item.type == AttributeProto.INTS and item.name in ("strides", "dilations") and rng.random() < 0.3:
            item.ints[rng.randrange(len(item.ints))] = rng.choice(((1 << 31) - 1, 1 << 20, 1000, 7))


def _left_out(model: ModelProto, rng: random.Random) -> None:
    """Optional inputs that are given no more, by an empty name or by none; and empty names behind the last."""
    versions = {o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:
        schema = _schema(node, versions)
        if schema is None:
            continue
        optional = [
            k for k, formal in enumerate(schema.inputs) if formal.option == OpSchema.FormalParameterOption.Optional
        ]
        for k in optional:
            if k < len(node.input) and rng.random() < 0.3:
                node.input[k] = ""
        if rng.random() < 0.5:
            while node.input and not node.input[-1]:
                del node.input[-1]
        elif optional and len(node.input) <= optional[-1] < 64 and len(node.input) in optional:
            node.input.append("")


def _schema(node: NodeProto, versions: dict[str, int]) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return None


CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _hair_off,
    _hair_off,
    _extreme,
    _at_the_ends,
    _left_out,
)
