"""A frozen graph of TensorFlow to a Relay module, without TensorFlow.

In: a GraphDef (the path of a `.pb` file, its bytes, or the object), shapes of placeholders, names of outputs; or the
folder of a SavedModel, which the tensorflow package freezes. Out: the module and its parameters, named as nodes are.
Invariant: data is channels last, as in the graph; what the outputs do not need is left out. The file: graph.py.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.tensorflow.graph import DTypeOf, Node, read_graph, refuse_text
from armillary.frontend.tensorflow.node import TENSORFLOW_RULES, TensorflowNode
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, Tuple, Var, const, var
from armillary.relay.transform.layout.use_layouts import use_layouts

_INPUTS = ("Placeholder",)
_SILENT = ("NoOp", "Assert")
_LARGE = 16  # elements from which on a constant of floats is a parameter


@boundary("from_tensorflow", arguments=True)
def from_tensorflow(
    graph: object,  # a path, bytes, or a GraphDef
    layout: str = "NHWC",
    shape: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    signature: str = "serving_default",
) -> tuple[IRModule, dict[str, Array]]:
    """Import a frozen graph of TensorFlow; returns the module and its parameters by name.

    `graph` is the path of a `.pb` file, its bytes, a GraphDef, or the folder of a SavedModel, whose `signature` the
    tensorflow package freezes. `shape` has the shapes of placeholders that the graph leaves open (a batch is 1 then),
    `outputs` the names of the results (`"softmax"`, `"split:1"`): by default those that no other node reads.
    `layout="NCHW"` computes convolutions with channels first. Raises UnsupportedError, naming all of them, for
    operators that are not known, and ModelError for a damaged file.
    """
    if layout not in ("NHWC", "NCHW"):
        raise UnsupportedError(f"from_tensorflow: layout {layout!r}", hint="NHWC or NCHW")
    data, name = _bytes(graph, signature)
    module, params = _Importer(read_graph(data, name), name, dict(shape or {})).run(list(outputs or []))
    if layout == "NCHW":
        module = use_layouts(module, desired_layouts={"nn.conv2d": ["NCHW", "default"]})
    return module, params


def _bytes(graph: object, signature: str) -> tuple[bytes, str]:
    if hasattr(graph, "SerializeToString"):
        return bytes(graph.SerializeToString()), "the graph"
    if isinstance(graph, bytes | bytearray | memoryview):
        return bytes(graph), "the graph"
    if not isinstance(graph, str | os.PathLike):
        hint = "the path of a frozen graph, its bytes, or a GraphDef"
        raise ModelError(f"from_tensorflow takes a graph of TensorFlow, got {type(graph).__name__}", hint=hint)
    path = Path(graph).expanduser()
    if (path / "saved_model.pb").is_file():
        return _frozen(path, signature), str(path)
    try:
        return read_regular(path, MOST_MODEL_BYTES), str(path)
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path))) from None


def _frozen(path: Path, signature: str) -> bytes:
    """The graph of a SavedModel with its variables as constants."""
    try:
        tf = importlib.import_module("tensorflow")
        convert = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    except ImportError:
        hint = "install tensorflow here, or freeze the model where it is: convert_variables_to_constants_v2"
        raise UnsupportedError("a SavedModel without the tensorflow package", span=Span(str(path)), hint=hint) from None
    loaded = tf.saved_model.load(str(path))
    if signature not in loaded.signatures:
        known = ", ".join(loaded.signatures) or "none"
        raise ModelError(f"it has no signature {signature!r}", span=Span(str(path)), hint=f"its signatures: {known}")
    function = convert.convert_variables_to_constants_v2(loaded.signatures[signature])
    return bytes(function.graph.as_graph_def().SerializeToString())


class _Importer:
    def __init__(self, nodes: list[Node], file: str, shape: dict[str, Sequence[int]]) -> None:
        self.nodes, self.file, self.shape = {node.name: node for node in nodes}, file, shape
        self.folder = Folder()
        self.values: dict[str, list[Expr]] = {}
        self.inputs: list[Var] = []
        self.params: dict[str, Array] = {}
        self.variables: list[Var] = []

    def run(self, outputs: list[str]) -> tuple[IRModule, dict[str, Array]]:
        heads = [self.head(name) for name in outputs] or self.unread()
        order = self.order(name for name, _ in heads)
        self.check(order)
        for node in order:
            self.values[node.name] = self.evaluated(node)
        results = [self.result(*head, "an output") for head in heads]
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        return IRModule.from_expr(Function((*self.inputs, *self.variables), body)), self.params

    def wrong(self, what: str, hint: str = "") -> ModelError:
        return ModelError(what, span=Span(self.file), hint=hint)

    def head(self, text: str) -> tuple[str, int]:
        name, _, index = text.partition(":")
        if name not in self.nodes:
            raise self.wrong(f"outputs: there is no node {name!r}", f"among others: {', '.join(self.names()[-5:])}")
        return name, int(index) if index.isdecimal() else 0

    def names(self) -> list[str]:
        return [node.name for node in self.nodes.values() if node.op not in ("Const", *_SILENT)]

    def unread(self) -> list[tuple[str, int]]:
        read = {name for node in self.nodes.values() for name, _ in node.inputs}
        result = [(name, 0) for name in self.names() if name not in read and self.nodes[name].op not in _INPUTS]
        return result or [(name, 0) for name in self.names()[-1:]]

    def order(self, heads: Iterable[str]) -> list[Node]:
        """What the outputs need, each node behind what it reads."""
        done: dict[str, Node] = {}
        open_: set[str] = set()
        pending = list(heads)
        while pending:
            name = pending[-1]
            node = self.nodes.get(name)
            if node is None:
                raise self.wrong(f"a node reads {name!r}, which is not there")
            waiting = [other for other, _ in node.inputs if other not in done]
            if name in done or not waiting:
                done.setdefault(name, node)
                pending.pop()
                continue
            if name in open_:
                raise UnsupportedError(f"{node.op} {name!r} reads its own result: loops are not known", span=Span(name))
            open_.add(name)
            pending += waiting
        return list(done.values())

    def check(self, nodes: list[Node]) -> None:
        """Name all that cannot be imported."""
        unknown = sorted({node.op for node in nodes if node.op not in (*_INPUTS, "Const")} - TENSORFLOW_RULES.keys())
        if unknown:
            hint = "variables and training: freeze the graph (convert_variables_to_constants_v2)"
            raise UnsupportedError(f"operators of TensorFlow that are not known: {', '.join(unknown)}", hint=hint)
        names = [node.name for node in nodes if node.op in _INPUTS]
        others = sorted(set(self.shape) - {*names, *(f"{name}:0" for name in names)})
        if others:
            raise self.wrong(f"shape: there is no input {others[0]!r}", f"its inputs: {', '.join(names)}")

    def evaluated(self, node: Node) -> list[Expr]:
        if node.op in _INPUTS:
            return [self.input(node)]
        if node.op == "Const":
            return [self.constant(node)]
        span = Span(node.name)
        inputs = [self.result(name, index, node.name) for name, index in node.inputs]
        try:
            output = TENSORFLOW_RULES[node.op](
                TensorflowNode(node.op, node.name, inputs, node.attrs, self.folder, span)
            )
        except (IndexError, ValueError, ArithmeticError) as error:
            message = f"{node.op} {node.name!r} does not fit its {len(inputs)} inputs: {error}"
            raise TypeMismatch(message, span=span) from None
        return [self.folder.settle(value, span) for value in (output if isinstance(output, list) else [output])]

    def result(self, name: str, index: int, reader: str) -> Expr:
        values = self.values[name]
        if index >= len(values):
            raise UnsupportedError(f"{reader} reads result {index} of {name!r}, and only {len(values)} are computed")
        return values[index]

    def input(self, node: Node) -> Expr:
        declared = node.attrs.get("shape")
        sizes = self.shape.get(node.name, self.shape.get(f"{node.name}:0"))
        if sizes is None and isinstance(declared, tuple):
            sizes = [1 if n == -1 and k == 0 else n for k, n in enumerate(declared)]
        if sizes is None or any(int(n) < 0 for n in sizes):
            hint = f'shape={{"{node.name}": (1, 224, 224, 3)}}'
            raise self.wrong(f"the shape of the input {node.name!r} is not known: {declared!r}", hint)
        kind = node.attrs.get("dtype")
        dtype = kind.name if isinstance(kind, DTypeOf) else "float32"
        if dtype == "string" or dtype.startswith("type"):
            raise UnsupportedError(f"an input of {dtype}: {node.name!r}")
        result = var(node.name, shape=tuple(int(n) for n in sizes), dtype=dtype)
        self.inputs.append(result)
        return result

    def constant(self, node: Node) -> Expr:
        array = refuse_text(node.attrs.get("value"), node)
        if array.dtype.kind != "f" or array.size < _LARGE:
            return self.folder.give(const(array))
        result = var(node.name, shape=array.shape, dtype=str(array.dtype))
        self.variables.append(result)
        self.params[node.name] = np.ascontiguousarray(array)
        self.folder.weights[id(result)] = array
        return result
