"""What random ONNX graphs are drawn with: shapes, values, names, and the graph that grows node by node.

In: a seed. Out: a `Draw`, to which recipes add nodes; `model` makes a ModelProto and its inputs of it. Each node is
evaluated when it is added, so that later ones know real shapes and values. Invariant: the same seed gives the same
model and inputs. The recipes are in onnx_recipes*.py, the choice among them in onnx_draw.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper
from onnx_truth import by_onnxruntime, by_reference

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "bool")
MOST_ELEMENTS = 4096
MODEL_OPSETS = (26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7)
DOMAINS = {"com.microsoft": 1, "ai.onnx.ml": 3, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}
HOSTILE = (
    "p0",
    "p1",
    "p2",
    "main",
    "__if",
    "__loop",
    "__yield",
    "x",
    "X",
    "output",
    "fused_add",
    "0",
    "-1",
    " ",
    "a b",
    "%0",
    "tvmgen_default_fused_add",
    "p0_1",
    "ä",
    "名前",
    "😀",
    "'",
    '"',
    "\\",
    "a\nb",
    "../x",
    "/",
    "a/b:0",
    "data",
    "None",
    "storage_id",
    "{}",
    "n" * 1000,
    "\u00e9",  # é in one character, and in two
    "e\u0301",
    "params",
    "__nop",
    "a.b",
    "A",
    "a",
    "return",
    "int",
    "void",
    "nan",
)


class Unfit(Exception):
    """What was drawn gives no valid node; draw something else."""


@dataclass
class Value:
    """A tensor of the graph, with what it is for the inputs drawn. `array` None: a sequence or optional."""

    name: str
    array: Array

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass
class Drawn:
    """A model, the arrays for its inputs, and how to compile it."""

    model: ModelProto
    inputs: dict[str, Array]

    def parts(self) -> tuple[ModelProto, dict[str, Array]]:
        """Both."""
        return self.model, self.inputs


@dataclass
class Draw:
    """A graph under construction."""

    seed: int
    opset: int = 0
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    pool: list[Value] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numpy = np.random.default_rng(self.seed)
        self.opset = self.opset or self.random.choice(MODEL_OPSETS + MODEL_OPSETS[:12] + (17, 18, 21) * 4)
        self.constant_share = self.random.choice((0.0, 0.3, 0.5, 0.7, 1.0))

    # --- choices ---

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def one(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return self.random.randint(low, high)

    def size(self, zero: float = 0.02) -> int:
        """A length of an axis: often 1 or odd, now and then 0."""
        if self.chance(zero):
            return 0
        return self.random.choice((1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 33, 64))

    def shape(self, low: int = 0, high: int = 5, zero: float = 0.02, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        rank = self.random.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5) if low <= r <= high] or [low])
        shape = [self.size(zero) for _ in range(rank)]
        while int(np.prod([max(s, 1) for s in shape])) > most:
            shape[shape.index(max(shape))] //= 2
        return tuple(shape)

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        kept = shape[self.integer(0, len(shape)) if self.chance(0.4) else 0 :]
        return tuple(1 if self.chance(0.25) else s for s in kept)

    def axis(self, rank: int) -> int:
        if rank < 1:
            raise Unfit("no axis")
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        """Some axes, in any order, positive or negative."""
        chosen = self.random.sample(range(rank), self.integer(0 if self.chance(0.05) else min(1, rank), rank))
        return [a - rank if self.chance(0.3) else a for a in chosen]

    # --- values ---

    def array(self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4, special: float = 0.04) -> Array:
        """Numbers of one of several kinds: whole and quarter numbers, random ones, now and then odd ones."""
        kind = np.dtype(dtype).kind if dtype != "bfloat16" else "f"
        if kind == "b":
            return np.asarray(self.numpy.random(shape) < 0.5)
        if kind in "iu":
            return self._whole(dtype, shape, low, high, special)
        if self.chance(0.4):
            data = np.floor(self.numpy.uniform(low * 4, high * 4 + 1, shape)) / 4
        else:
            data = self.numpy.uniform(low, high, shape)
        data = np.asarray(np.clip(data, low, high))
        if self.chance(special) and data.size and (low, high) == (-4, 4):
            odd = self.one(([np.nan], [np.inf, -np.inf], [-0.0, 0.0], [1e30, -1e30], [65504, -70000.0], [1e-40, 3e-8]))
            places = self.numpy.integers(0, data.size, max(1, data.size // 4))
            data.flat[places] = self.numpy.choice(odd, len(places))
        with np.errstate(all="ignore"):
            return np.asarray(data.astype(bfloat16 if dtype == "bfloat16" else dtype))

    def _whole(self, dtype: str, shape: Sequence[int], low: float, high: float, special: float) -> Array:
        info = np.iinfo(dtype)
        if self.chance(special) and (low, high) == (-4, 4):
            return np.asarray(self.numpy.integers(info.min, info.max, shape, dtype, True))
        if (low, high) == (-4, 4) and self.chance(0.3):
            low, high = -100, 100
        first, last = max(int(np.ceil(low)), info.min), min(int(high), info.max)
        return np.asarray(self.numpy.integers(first, last, shape, dtype, True))

    # --- the graph ---

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def give(self, array: Any, constant: bool | None = None) -> Value:
        """A new value: an input of the graph, a weight, or a Constant node."""
        array = np.asarray(array)
        value = Value(self.name(), array)
        if not (self.chance(self.constant_share) if constant is None else constant):
            self.inputs[value.name] = array
        elif self.chance(0.15) and self.opset >= 9:
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=numpy_helper.from_array(array)))
        else:
            self.weights[value.name] = array
        return value

    def fixed(self, array: Any, dtype: str = "int64") -> Value:
        """A constant, for what gives shapes."""
        return self.give(np.asarray(array, dtype), True)

    def data(
        self,
        dtypes: Sequence[str] = FLOATS,
        low: int = 0,
        high: int = 5,
        zero: float = 0.02,
        fits: Callable[[Value], bool] = lambda v: True,
    ) -> Value:
        """A value of the graph, or a new input (values in the middle of the range)."""
        known = [v for v in self.pool if v.dtype in dtypes and low <= v.rank <= high and fits(v)]
        if known and self.chance(0.75):
            return self.one(known[-3:] if self.chance(0.7) else known)
        weighted = [d for d in dtypes for _ in range(6 if d == dtypes[0] else 3 if d in ("int64", "int32") else 1)]
        for _ in range(20):
            value = Value("", np.zeros(self.shape(low, high, zero), self.one(weighted)))
            if fits(value):
                return self.give(self.array(value.dtype, value.shape), self.chance(0.04))
        raise Unfit("no such value")

    def like(self, value: Value, shape: Sequence[int] | None = None, **limits: float) -> Value:
        """A value of the same dtype: one of the graph of that shape, or a new one."""
        shape = tuple(value.shape if shape is None else shape)
        known = [v for v in self.pool if v.dtype == value.dtype and v.shape == shape]
        if known and not limits and self.chance(0.5):
            return self.one(known)
        return self.give(self.array(value.dtype, shape, **limits))

    def emit(
        self, op: str, inputs: Sequence[Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Add a node and evaluate it; Unfit if neither evaluator accepts it."""
        names = [v.name if v is not None else "" for v in inputs]
        while names and not names[-1]:
            names.pop()
        attributes = {k: v for k, v in attributes.items() if v is not None}
        given = [self.name() for _ in range(outputs)]
        node = helper.make_node(op, names, given, domain=domain, **attributes)
        for attribute in node.attribute:  # an empty list has no type of its own
            if attribute.type == AttributeProto.UNDEFINED or (attribute.type == 7 and not attribute.ints):
                attribute.type = AttributeProto.INTS
        arrays = evaluate_node(node, {v.name: v.array for v in inputs if v is not None}, self.opset)
        return self.keep(node, arrays)

    def emit_block(
        self,
        nodes: Sequence[NodeProto],
        inputs: dict[str, Value],
        outputs: Sequence[str],
        weights: Sequence[onnx.TensorProto] = (),
    ) -> list[Value]:
        """Add several nodes; `inputs` by the names they read, `outputs` the names that are tensors afterwards."""
        names = {old: value.name for old, value in inputs.items()}
        inner = {n for node in nodes for n in node.output if n} | {w.name for w in weights}
        names |= {name: self.name() for name in sorted(inner)}
        block = GraphProto(node=nodes)
        rename(block, names)
        for weight in weights:
            self.weights[names[weight.name]] = numpy_helper.to_array(weight)
        infos = [onnx.ValueInfoProto(name=names[n]) for n in outputs]
        held = {names[w.name]: self.weights[names[w.name]] for w in weights}
        given = {v.name: v.array for v in inputs.values()}
        model = make_model(block.node, given, infos, held, self.opset)
        arrays = dict(zip((names[n] for n in outputs), evaluate(model, given)))
        self.nodes.extend(block.node)
        values = [Value(n, np.asarray(a)) for n, a in arrays.items() if isinstance(a, np.ndarray | np.generic)]
        self.pool.extend(v for v in values if v.dtype in ALL and v.array.size <= 4 * MOST_ELEMENTS)
        if len(values) < len(arrays):
            raise Unfit("a sequence as result")
        return values

    def keep(self, node: NodeProto, arrays: Sequence[Any]) -> list[Value]:
        """Add a node whose outputs are known."""
        if any(isinstance(a, np.ndarray | np.generic) and np.asarray(a).size > 4 * MOST_ELEMENTS for a in arrays):
            raise Unfit("too large")
        values = [
            Value(n, np.asarray(a) if isinstance(a, np.ndarray | np.generic) else a)
            for n, a in zip(node.output, arrays)
            if n
        ]
        self.nodes.append(node)
        self.pool.extend(v for v in values if isinstance(v.array, np.ndarray) and v.dtype in ALL)
        return values


def opset_imports(opset: int) -> list[onnx.OperatorSetIdProto]:
    """Versions of all domains."""
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in DOMAINS.items())]


def value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    """The declared type of a tensor."""
    array = np.asarray(value)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def make_model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, Array],
    opset: int,
) -> ModelProto:
    """A model of these parts."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [value_info(n, a) for n, a in inputs.items()],
        list(outputs),
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=opset_imports(opset), ir_version=10)


def node_model(node: NodeProto, inputs: dict[str, Any], opset: int) -> ModelProto:
    """A model of one node that takes everything as input; its outputs have no declared type."""
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    return make_model([node], inputs, outputs, {}, opset)


def evaluate_node(node: NodeProto, inputs: dict[str, Any], opset: int) -> list[Any]:
    """What one node gives; Unfit if the reference evaluator and ONNX Runtime both refuse."""
    if any(not isinstance(a, np.ndarray) for a in inputs.values()):
        raise Unfit("sequences are evaluated by their recipe")
    return evaluate(node_model(node, inputs, opset), inputs)


def evaluate(model: ModelProto, inputs: dict[str, Any]) -> list[Any]:
    """What a model gives; Unfit if both evaluators refuse, or only numpy takes what the standard has not."""
    try:
        return by_onnxruntime(model, inputs)
    except Exception:
        try:
            onnx.shape_inference.infer_shapes(model, check_type=True)
            return by_reference(model, inputs)
        except Exception as error:
            raise Unfit(str(error)) from None


def rename(graph: GraphProto, names: dict[str, str]) -> None:
    """Replace names of values, in bodies too."""
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
        for item in node.attribute:
            if item.HasField("g"):
                rename(item.g, names)
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        for thing in part:
            thing.name = names.get(thing.name, thing.name)
