"""A TFLite network to a Relay module, without TFLite.

In: a `.tflite` file (its path, its bytes, or a `Model` of the tflite package), shapes and dtypes of inputs. Out: the
module and its parameters, named as the file names tensors. Invariant: data is channels last, as in the file. Operators
on affine integers are computed as the interpreter's reference kernels compute them, bit for bit; where only weights
are integers they become real numbers. States of recurrent layers begin at zero in each run. A graph that control flow
names is imported where it is called, with the values that it is called with. The file: schema.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.budgets import EXPANDED_NODES
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.tflite.node import INTEGER_RULES, SUB_GRAPHS, TFLITE_RULES, TfliteNode, TfliteRule, real
from armillary.frontend.tflite.row_writes import with_row_writes
from armillary.frontend.tflite.schema import Graph, Model, Operator, Tensor, read_model
from armillary.frontend.values import dtype_of, op
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Function, Tuple, Var, const, var

_BETWEEN = ("QUANTIZE", "DEQUANTIZE", *SUB_GRAPHS)  # they have rules for every kind of tensor
Converters = Mapping[str, Callable[[TfliteNode], Expr | list[Expr]]]


@boundary("from_tflite", arguments=True)
def from_tflite(
    model: object,  # a path, bytes, or a Model of the tflite package
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Mapping[str, str] | str | None = None,
    op_converter: Converters | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a TFLite network; returns the module and its parameters by name.

    `model` is the path of a `.tflite` file, its bytes, or what `tflite.Model.GetRootAsModel` returns. `shape_dict` has
    the shapes of inputs by name where they differ from the file's (a batch), `dtype_dict` their dtypes, which are
    checked against the file's. `op_converter` maps names of operators (`"CUSTOM MyOp"`) to functions that take a node
    (`node.inputs`, `node.value(k, what)`) and return expressions. Raises UnsupportedError, naming all of them, for
    operators that are not known, and ModelError for a damaged file.
    """
    return _Importer(_model(model), dict(shape_dict or {}), dtype_dict, dict(op_converter or {})).run()


def _model(model: object) -> Model:
    if isinstance(model, str | os.PathLike):
        path = Path(model).expanduser()
        try:
            return read_model(read_regular(path, MOST_MODEL_BYTES), str(path))
        except OSError as error:
            raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path))) from None
    if isinstance(model, bytes | bytearray | memoryview):
        return read_model(memoryview(model), "the model")
    table = getattr(model, "_tab", None)
    if table is not None and hasattr(table, "Bytes"):  # of the flatbuffers package
        return read_model(memoryview(table.Bytes), "the model", int(table.Pos))
    hint = "the path of a .tflite file, its bytes, or tflite.Model.GetRootAsModel(bytes, 0)"
    raise ModelError(f"from_tflite takes a TFLite model, got {type(model).__name__}", hint=hint)


class _Importer:
    def __init__(
        self,
        model: Model,
        shape: dict[str, Sequence[int]],
        dtype: Mapping[str, str] | str | None,
        converters: dict[str, TfliteRule],
    ) -> None:
        self.model, self.graph, self.shape, self.dtype = model, model.graphs[0], shape, dtype
        self.converters = converters
        self.folder = Folder()
        self.values: dict[int, Expr] = {}  # of the graph that is being imported
        self.constants: dict[tuple[int, int], Expr] = {}  # by graph and tensor
        self.params: dict[str, Array] = {}
        self.variables: list[Var] = []
        self.calls = [0]  # the graphs that are being imported, the innermost last
        self.walked = 0

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        self.check()
        inputs = [self.input(number) for number in self.graph.inputs]
        outputs = self.results()
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        module = IRModule.from_expr(Function((*inputs, *self.variables), body))
        return module, self.params

    def results(self) -> list[Expr]:
        """The outputs of the graph in work, whose inputs are there."""
        operators = with_row_writes(self.graph)
        count = len(operators)
        self.walked += count
        EXPANDED_NODES.check(self.walked, "graphs of control flow", Span(self.model.file), free=count)
        for operator in operators:
            self.call(operator)
        return [self.expr(number) for number in self.graph.outputs]

    def graph_at(self, number: int) -> Graph:
        """A graph of the file."""
        if not 0 <= number < len(self.model.graphs):
            raise self.wrong(f"graph {number} is called, and the file has {len(self.model.graphs)}")
        return self.model.graphs[number]

    def body(self, number: int, inputs: Sequence[Expr]) -> list[Expr]:
        """What a graph gives for these inputs."""
        graph = self.graph_at(number)
        if number in self.calls:
            raise self.wrong(f"graph {number} calls itself")
        if len(inputs) != len(graph.inputs):
            raise self.wrong(f"graph {number} has {len(graph.inputs)} inputs and is called with {len(inputs)}")
        around = self.graph, self.values
        self.graph, self.values = graph, dict(zip(graph.inputs, inputs, strict=True))
        self.calls.append(number)
        try:
            return self.results()
        finally:
            self.calls.pop()
            self.graph, self.values = around

    def wrong(self, what: str, hint: str = "") -> ModelError:
        return ModelError(what, span=Span(self.model.file), hint=hint)

    def check(self) -> None:
        """Name all that cannot be imported."""
        known = self.converters.keys() | TFLITE_RULES.keys() | INTEGER_RULES.keys()
        graph, pending, reached = self.graph, [0], set[int]()
        unknown: set[str] = set()
        while pending:
            number = pending.pop()
            if number not in reached:
                reached.add(number)
                operators = self.graph_at(number).operators
                unknown |= {operator.name for operator in operators} - known
                pending += [n for operator in operators for n in _called(operator)]
        if unknown:
            hint = "from_tflite(..., op_converter={name: function}) adds rules"
            raise UnsupportedError(f"operators of TFLite that are not known: {', '.join(sorted(unknown))}", hint=hint)
        names = [graph.tensors[number].name for number in graph.inputs]
        others = sorted(set(self.shape) - set(names))
        if others:
            raise self.wrong(f"shape_dict: there is no input {others[0]!r}", f"its inputs: {', '.join(names)}")

    def input(self, number: int) -> Var:
        tensor = self.graph.tensors[number]
        shape = tuple(int(n) for n in self.shape.get(tensor.name, tensor.shape))
        asked = self.dtype if isinstance(self.dtype, str) else (self.dtype or {}).get(tensor.name, tensor.dtype)
        if asked != tensor.dtype:
            raise self.wrong(f"dtype_dict: the input {tensor.name!r} is of {tensor.dtype}, not {asked}")
        if tensor.dtype in ("string", "resource", "variant", "int4"):
            raise UnsupportedError(f"an input of {tensor.dtype}: {tensor.name!r}")
        result = var(self.unique(tensor.name or f"input_{number}", number), shape=shape, dtype=tensor.dtype)
        self.values[number] = result
        return result

    def unique(self, name: str, number: int) -> str:
        taken = {v.name_hint for v in self.variables}
        taken |= {v.name_hint for v in self.values.values() if isinstance(v, Var)}
        result = name or f"tensor_{number}"
        while result in taken:
            result = f"{result}_{number}"
        return result

    def expr(self, number: int) -> Expr:
        """The value of a tensor: computed, or stored in the file."""
        if number not in self.values:
            place = (self.calls[-1], number)
            if place not in self.constants:
                self.constants[place] = self.stored(number)
            self.values[number] = self.constants[place]
        return self.values[number]

    def stored(self, number: int) -> Expr:
        tensor = self.graph.tensors[number]
        if tensor.is_variable and not tensor.data:
            return op("zeros", shape=tensor.shape, dtype=tensor.dtype)
        if not tensor.is_constant:
            raise self.wrong(f"tensor {tensor.name!r} is read before it is computed")
        array = tensor.array()
        is_weight = array.ndim > 0 and (tensor.is_quantised or array.dtype.kind == "f")
        if not is_weight:
            return self.folder.give(const(array))
        name = self.unique(tensor.name or "weight", number)
        result = var(name, shape=array.shape, dtype=str(array.dtype))
        self.variables.append(result)
        self.params[name] = np.ascontiguousarray(array)
        self.folder.weights[id(result)] = array
        return result

    def call(self, operator: Operator) -> None:
        tensors = self.graph.tensors
        reads = [tensors[number] if number >= 0 else None for number in operator.inputs]
        writes = [tensors[number] for number in operator.outputs]
        name = writes[0].name if writes else operator.name
        span = Span(name)
        inputs = [self.expr(number) if number >= 0 else None for number in operator.inputs]
        computed = [
            tensor
            for x, tensor in zip(inputs, reads, strict=True)
            if tensor is not None and tensor.is_quantised and not self.is_stored(x)
        ]
        rule, is_real = self.rule(operator.name, name, computed, writes)
        if is_real:
            inputs = [
                self.folder.settle(real(x, tensor), span)
                if x is not None and tensor is not None and tensor.is_quantised
                else x
                for x, tensor in zip(inputs, reads, strict=True)
            ]
        between = [tensors[number] for number in operator.intermediates if number >= 0]
        options, custom = operator.options, operator.custom
        node = TfliteNode(operator.name, name, inputs, reads, writes, between, options, custom, self.folder, span, self)
        try:
            results = rule(node)
        except (IndexError, ValueError, ArithmeticError) as error:
            message = f"{operator.name} {name!r} does not fit its {len(inputs)} inputs: {error}"
            raise TypeMismatch(message, span=span) from None
        values = results if isinstance(results, list) else [results]
        for number, value in zip(operator.outputs, values, strict=False):
            self.values[number] = self.typed(self.folder.settle(value, span), tensors[number])

    def is_stored(self, x: Expr | None) -> bool:
        """Whether a value is one of the file's, passed to a graph or read in it."""
        return isinstance(x, Constant) or id(x) in self.folder.weights

    def rule(self, name: str, place: str, computed: list[Tensor], writes: list[Tensor]) -> tuple[TfliteRule, bool]:
        """The rule of an operator, and whether it wants stored integers as real numbers.

        `computed`: the affine integers that it reads and that the file does not hold.
        """
        if name in self.converters:
            return self.converters[name], False
        is_integer = any(t.is_quantised for t in writes) or bool(computed)
        if name in _BETWEEN or not is_integer:
            return TFLITE_RULES[name], name not in _BETWEEN
        if any(t.dtype == "int16" for t in [*computed, *writes] if t.is_quantised):
            raise UnsupportedError(f"{name} {place!r} of 16-bit data", span=Span(place), hint="8 bits are supported")
        if name not in INTEGER_RULES:
            message = f"{name} {place!r} of quantised tensors is not known"
            raise UnsupportedError(
                message, span=Span(place), hint="convert the network without quantising, or in float16"
            )
        return INTEGER_RULES[name], False

    def typed(self, value: Expr, tensor: Tensor) -> Expr:
        """A result in the type that the file says."""
        if dtype_of(value) != tensor.dtype:
            message = f"{tensor.name!r} is computed as {dtype_of(value)}, the file says {tensor.dtype}"
            raise UnsupportedError(message, span=Span(tensor.name))
        return value


def _called(operator: Operator) -> list[int]:
    """The graphs that an operator names."""
    fields = SUB_GRAPHS.get(operator.name, ())
    return [0 if operator.options is None else operator.options.whole(field) for field in fields]
